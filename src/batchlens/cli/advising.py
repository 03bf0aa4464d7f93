"""What to do with a curve: transfer, plan, time."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import batchlens as bl
from batchlens.cli.options import data_dir_option, json_option, setting_option
from batchlens.cli.progress import progress_bar
from batchlens.cli.terminal import (
    DURATION,
    NUMBER,
    PRICE,
    WHOLE,
    WHOLES,
    columns_of,
    print_json,
    print_table,
    say,
)

if TYPE_CHECKING:
    from batchlens.advice._planning import Option


@click.command("transfer")
@click.option(
    "--optimizer", required=True, help="sgd, momentum, nesterov, adam, adamw, muon, kfac, ...; +ema averages."
)
@click.option("--from", "from_batch", type=NUMBER, required=True, help="The batch size that the settings work at.")
@click.option("--to", "to_batch", type=NUMBER, required=True, help="The batch size that is wanted.")
@setting_option
@click.option("--critical-batch-size", type=NUMBER, help="B_crit of steps = S_min (1 + B_crit / B), as fit finds it.")
@click.option("--measurement", type=click.Path(path_type=Path), help="A file of batchlens measure.")
@click.option("--rule", help="Of the learning rate: linear, saturating, square_root, square_root_saturating, "
              "square_root_capped.")  # fmt: skip
@json_option
def transfer_command(
    optimizer: str,
    from_batch: float,
    to_batch: float,
    settings: dict[str, float],
    critical_batch_size: float | None,
    measurement: Path | None,
    rule: str | None,
    as_json: bool,
) -> None:
    """Settings that work at one batch size, at another.

    A line for each setting: old and new value, the theory's own, the rule, where it holds and its measured error.
    Settings: learning_rate, momentum, beta1, beta2, epsilon, weight_decay, averaging, warmup_steps, decay_steps, steps.

    \b
    Examples:
      batchlens transfer --optimizer adamw --from 256 --to 4096 --set learning_rate=3e-4 --set beta2=0.95
          --set weight_decay=0.1 --critical-batch-size 1000
      batchlens transfer --optimizer momentum --from 64 --to 256 --set learning_rate=0.1 --set momentum=0.9
    """
    if not settings:
        raise click.UsageError("--set must give at least one setting, got none.")
    try:
        found = bl.transfer(settings, optimizer, from_batch, to_batch, critical_batch_size, measurement, rule)
    except ValueError as error:
        raise ValueError(_as_settings(str(error), settings)) from None
    if as_json:
        print_json(found.as_document())
        return
    say(f"{found.headline}.")
    numbers = [
        {"setting": moved.name, "from": moved.before, "to": moved.after, "theory": moved.theory,
         "rule": moved.formula, "measured_error": moved.error}
        for moved in found.settings
    ]  # fmt: skip
    critical = found.critical_batch_size
    known = "critical batch size" if critical is None else f"critical batch size, here {critical:,.4g}"
    print_table(f"kappa = B1/B0; B_crit: {known}; theory: tuned at both batch sizes", columns_of(numbers))
    reach = [
        {"setting": moved.name, "holds": moved.valid, "across_the_critical_batch_size": moved.beyond,
         "source": moved.source}
        for moved in found.settings
    ]  # fmt: skip
    print_table("How far the rules reach", columns_of(reach))
    for line in (*found.warnings, *found.ways):
        say(line)


def _as_settings(message: str, given: dict[str, float]) -> str:
    """A setting is no option of its own here, and batch sizes have shorter names."""
    for name in given:
        message = message.replace(f"`{name}`", f"--set {name}")
    return message.replace("`from_batch`", "--from").replace("`to_batch`", "--to")


@click.command("plan")
@click.argument("curve", metavar="RUNS|STORE|PREDICTION", type=click.Path(path_type=Path))
@click.option("--step-times", type=click.Path(path_type=Path), required=True,
              help="CSV: batch_size, seconds and, of several, devices; batchlens time writes it.")  # fmt: skip
@click.option("--price", type=PRICE, help="Of one device, such as 2.5/h; device-hours are counted without.")
@click.option("--devices", type=WHOLES, default="1", show_default=True, help="1,2,4 or 1..64 for each doubling.")
@click.option("--deadline", type=DURATION, help="Such as 90s, 30m, 6h or 2d.")
@click.option("--memory-limit", type=WHOLE, help="Examples that fit into a device; larger batches are accumulated.")
@click.option("--optimizer", help="Which one, where the file has several.")
@click.option(
    "--out", type=click.Path(path_type=Path), help="Folder for the picture (PNG and SVG) and its numbers (CSV)."
)
@json_option
def plan_command(
    curve: Path,
    step_times: Path,
    price: float | None,
    devices: list[int],
    deadline: float | None,
    memory_limit: int | None,
    optimizer: str | None,
    out: Path | None,
    as_json: bool,
) -> None:
    """The fastest and the cheapest batch size, for a hardware and a deadline.

    Steps to the target come from a CSV file of runs (as batchlens fit reads it), a sweep's store, or a JSON file of
    batchlens predict; times seconds a step they are the time, times devices and price the cost. In brackets: the 90%
    interval of the best batch size.

    \b
    Examples:
      batchlens plan runs.csv --step-times times.csv --price 2.5/h --devices 1..64 --deadline 6h
      batchlens plan digits.sqlite --optimizer momentum --step-times times.csv --memory-limit 512 --out plan
    """
    try:
        found = bl.plan(curve, step_times, devices, price, deadline, memory_limit, optimizer)
    except ValueError as error:
        raise ValueError(str(error).replace("`curve`", str(curve))) from None
    if out is not None:
        from batchlens.advice._writing import write_plan

        written = write_plan(found, out)
    if as_json:
        print_json(found.as_document())
        return
    say(found.sentence)
    print_table("The frontier: nothing else is both faster and cheaper", columns_of([_row(o) for o in found.frontier]))
    if len(found.by_devices) > 1:
        print_table("What a doubling of devices buys: the fastest of each", columns_of(_doublings(found)))
    for note in found.notes:
        say(f"Note: {note}.")
    if out is not None:
        say(f"Written: {', '.join(map(str, written))}")


def _row(option: "Option") -> dict[str, Any]:
    from batchlens._results import short
    from batchlens.advice._units import in_time

    ends = option.interval
    return {
        "batch_size": short(option.batch_size),
        "devices": option.devices,
        "slices": option.slices,
        "steps": round(option.steps),
        "time": in_time(option.seconds),
        "90%_interval": None if ends is None else f"{in_time(ends[0])} to {in_time(ends[1])}",
        "cost": float(f"{option.cost:.4g}"),
    }


def _doublings(found: "bl.Plan") -> list[dict[str, Any]]:
    rows = []
    before: Option | None = None
    for option in found.by_devices:
        faster = None if before is None else f"{before.seconds / option.seconds:.2f}x"
        dearer = None if before is None else f"{option.cost / before.cost:.2f}x"
        rows.append({**_row(option), "times_faster": faster, "times_the_cost": dearer})
        before = option
    return rows


@click.command("time")
@click.argument("workload")
@click.option("--batch-sizes", type=WHOLES, required=True, help="16,64,256 or 16..4096 for each doubling.")
@click.option("--optimizer", default="momentum", show_default=True, help="sgd, momentum, adam, kfac, ...")
@setting_option
@click.option("--size", type=click.Choice(["laptop", "paper"]), default="laptop", show_default=True,
              help="As published, or narrower.")  # fmt: skip
@click.option("--steps", type=WHOLE, default=20, show_default=True, help="Timed at every batch size.")
@click.option("--micro-batch", type=WHOLE, help="Accumulate over slices of this many examples; else in one piece.")
@click.option("--memory", type=NUMBER, help="Bytes that steps may take on the CPU; what is left by default.")
@click.option("--device", default="cpu", show_default=True, help="cpu, cuda or mps.")
@click.option("--threads", type=WHOLE, help="Of torch on the CPU; by default as many as the work of a step is worth.")
@click.option("--out", type=click.Path(path_type=Path), help="CSV file to write, as batchlens plan reads it.")
@data_dir_option
@json_option
def time_command(
    workload: str,
    batch_sizes: list[int],
    optimizer: str,
    settings: dict[str, float],
    out: Path | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Seconds of real steps, by batch size.

    overhead + B / throughput is fitted, with 90% intervals. Where a batch does not fit into memory, the largest that
    does is looked for.

    \b
    Example:
      batchlens time simple_cnn_mnist --batch-sizes 16..4096 --optimizer adam --out times.csv
    """
    given = {name: value for name, value in options.items() if value is not None}
    with progress_bar("Timing") as advance:
        found = bl.time_steps(workload, batch_sizes, optimizer, settings, progress=advance, **given)
    if out is not None:
        from batchlens.advice._writing import write_table

        write_table(found.to_frame(), out)
    if as_json:
        print_json(found.as_document())
        return
    document = found.as_document()
    say(f"{found.headline}.")
    rows = [{name: float(f"{value:.4g}") for name, value in point.items()} for point in document["points"]]
    print_table("seconds a step", columns_of(rows))
    for name, unit in (("overhead", "s"), ("throughput", "examples/s")):
        low, high = document[name]["interval"]
        say(f"{name}: {document[name]['value']:.4g} {unit} (90%: {low:.4g} to {high:.4g})")
