"""One training run."""

import hashlib
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from batchlens._extras import import_extra
from batchlens.cli.options import data_dir_option, json_option, setting_option, settings_as_typed
from batchlens.cli.progress import Lines, is_watched, stopping
from batchlens.cli.terminal import NUMBER, WHOLE, Names, columns_of, print_json, print_table, say

if TYPE_CHECKING:
    from batchlens.training._arguments import Arguments
    from batchlens.training.loop import Progress
    from batchlens.training.record import Record

RUNS = Path("~/.cache/batchlens/runs")


@click.command("train")
@click.argument("workload")
@click.option("--optimizer", required=True, help="sgd, momentum, nesterov, adam, ...; +ema averages.")
@click.option("--batch-size", type=WHOLE, help="Examples of a step.")
@click.option("--batch-schedule", type=click.Path(path_type=Path),
              help="CSV: step, batch_size, learning_rate, a row holds from its step on; for --batch-size.")  # fmt: skip
@setting_option
@click.option("--size", type=click.Choice(["laptop", "paper"]), default="laptop", show_default=True,
              help="As published, or narrower with an easier target.")  # fmt: skip
@click.option("--seed", type=WHOLE, default=0, show_default=True, help="Of weights, order and augmentation.")
@click.option("--max-steps", type=WHOLE, help="Step budget; the workload's by default.")
@click.option("--micro-batch", type=WHOLE, help="Accumulate gradients over slices of this many examples.")
@click.option(
    "--schedule", help="constant, linear_decay, cosine, step_decay, warmup_stable_decay; the workload's by default."
)
@click.option("--target", type=NUMBER, help="Metric to reach; the workload's by default.")
@click.option("--target-on", type=click.Choice(["validation", "train", "train-loss"]), default="validation",
              show_default=True, help="What is to reach it: the metric, or the training loss.")  # fmt: skip
@click.option("--also-targets", type=Names(), default=[],
              help="Others to note on the way, such as train-loss:0.3,validation:0.97.")  # fmt: skip
@click.option("--confirm-target", is_flag=True, help="Two evaluations in a row must meet a target.")
@click.option("--averages", type=click.Choice(["best", "each"]),
              help="Measure averages of the weights beside the run: the first to arrive, or each.")  # fmt: skip
@click.option("--read-all", is_flag=True, help="Read the whole set at every point of the 3% grid: exact, slower.")
@click.option("--device", default="cpu", show_default=True, help="cpu, cuda or mps.")
@click.option("--threads", type=WHOLE, help="Of torch on the CPU; by default as many as the work of a step is worth.")
@click.option("--checkpoint", type=click.Path(path_type=Path),
              help=f"Where an interrupted run is kept; by default a file in {RUNS}.")  # fmt: skip
@click.option("--restart", is_flag=True, help="Start anew even if an interrupted run could be picked up.")
@data_dir_option
@json_option
def train_command(
    workload: str,
    optimizer: str,
    batch_size: int | None,
    settings: dict[str, float],
    averages: str | None,
    read_all: bool,
    threads: int | None,
    checkpoint: Path | None,
    restart: bool,
    data_dir: Path | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Train once; how many steps to the target?

    WORKLOAD is simple_cnn_mnist, simple_cnn_fashion_mnist, resnet8_cifar10, resnet32_cifar10, vgg11_cifar10,
    transformer_lm1b, digits, or FILE.py:NAME for one of your own.

    Ctrl-C keeps the run; the same command goes on with it.

    \b
    Examples:
      batchlens train digits --optimizer momentum --batch-size 64 --set learning_rate=0.1
      batchlens train simple_cnn_mnist --optimizer adam --batch-size 256 --set learning_rate=0.002
      batchlens train digits --optimizer sgd --batch-size 8 --set learning_rate=0.25 --target-on train-loss
          --also-targets train-loss:0.3,validation:0.97 --averages best
      batchlens train digits --optimizer sgd --batch-schedule growing.csv
    """
    import_extra("torch")
    from batchlens.training._arguments import check_arguments
    from batchlens.training._checkpoint import discard_checkpoint
    from batchlens.training.loop import Interrupted, train

    if batch_size is None and options["batch_schedule"] is None:
        raise click.UsageError("--batch-size or --batch-schedule must be given, got neither.")
    options |= {"lazy": not read_all, "averages": averages or ""}
    with settings_as_typed(settings):
        arguments = check_arguments(workload, optimizer, batch_size, settings, **options)
    checkpoint = checkpoint or _usual_checkpoint(arguments)
    if restart:
        discard_checkpoint(checkpoint)
    elif checkpoint.exists():
        say(f"batchlens: going on with {checkpoint}", err=True)
    with stopping() as asked, _bar(arguments.max_steps) as watch:
        try:
            record = train(
                arguments.workload,
                arguments.recipe,
                batch_size,
                settings,
                threads=threads,
                data_dir=data_dir,
                checkpoint=checkpoint,
                watch=watch,
                stop=lambda _: "interrupted" if asked() else None,
                **options,
            )
        except Interrupted as interrupted:
            kept = f"at step {interrupted.step:,} and kept in {interrupted.checkpoint}"
            raise click.Abort(f"{kept}; run the same command again to go on.") from None
    _print(record, [str(target) for target in arguments.targets[1:]], as_json)
    if record.status == "failed":
        sys.exit(1)


def _usual_checkpoint(arguments: "Arguments") -> Path:
    """A file of its own for every run, found again by the same arguments."""
    identity = {name: value for name, value in arguments.identity().items() if name != "versions"}
    digest = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:12]
    return RUNS.expanduser() / f"{identity['workload']}-{identity['optimizer']}-{identity['batch_size']}-{digest}.pt"


@contextmanager
def _bar(max_steps: int) -> Iterator[Callable[["Progress"], None] | None]:
    """A bar with step, metric, target, rate and time left where a person is looking, else a line a minute."""
    if not is_watched():
        lines = Lines()
        yield lambda now: lines.say(lambda: f"step {now.step:,} of at most {max_steps:,}, {_metric(now)}")
        return
    from rich import progress as rich
    from rich.console import Console

    columns = (
        rich.TextColumn("step"),
        rich.MofNCompleteColumn(),
        rich.BarColumn(),
        rich.TextColumn("{task.fields[metric]}", markup=False),
        rich.TextColumn("{task.fields[rate]}"),
        rich.TextColumn("at most"),
        rich.TimeRemainingColumn(),
    )
    with rich.Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("training", total=max_steps, metric="", rate="")

        def watch(now: "Progress") -> None:
            speed = bar.tasks[task].speed
            bar.update(
                task,
                completed=now.step,
                metric=_metric(now),
                rate=f"{speed:.1f} steps/s" if speed else "",
            )

        yield watch


def _metric(now: "Progress") -> str:
    known = "" if now.latest is None else f"{now.metric} {now.latest.relation} {now.latest.metric:.4f}, "
    return f"{known}target {now.target:g}"


def _print(record: "Record", also: Sequence[str], as_json: bool) -> None:
    if as_json:
        print_json(record.as_document())
        return
    title = f"{record.workload} ({record.size}), {record.optimizer}, {record.batches_in_words}"
    row = {
        "status": record.status,
        "steps": record.steps,
        "interpolated": record.steps_interpolated,
        "steps_taken": record.steps_taken,
        "examples": record.examples,
        "best_exact_metric": record.best_metric,
        "target": record.target,
        "seconds": round(record.seconds, 2),
        "of_it_evaluating": f"{record.evaluation_seconds / record.seconds:.0%}",
        "threads": record.threads,
    }
    print_table(title, columns_of([row]))
    main = f"{record.target_on} {record.target:g}"
    met = [
        {"target": target, "met_by": weights, "steps": found.steps, "interpolated": found.interpolated}
        for target, by_weights in record.crossings.items()
        for weights, found in by_weights.items()
    ]
    if any(entry["target"] != main for entry in met) or len(met) > 1:
        print_table("Every target that was met on the way", columns_of([_named(entry) for entry in met]))
    for target in also:
        if target not in record.crossings:
            say(f"{target} was not met in {record.steps_taken:,} steps.")
    for line in (record.reason, *record.notes):
        if line:
            say(line)


def _named(entry: dict[str, Any]) -> dict[str, Any]:
    """With words for the weights that met a target."""
    weights = entry["met_by"]
    return entry | {"met_by": "plain weights" if weights == "plain" else f"average, {weights}"}
