"""Curvature and gradient noise of a network along its training."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import batchlens as bl
from batchlens._extras import import_extra
from batchlens.cli.options import data_dir_option, json_option, setting_option, settings_as_typed
from batchlens.cli.progress import progress_bar, saying_how_to_go_on, stopping
from batchlens.cli.terminal import NUMBER, WHOLE, WHOLES, columns_of, print_json, print_table, say

if TYPE_CHECKING:
    from batchlens.curvature.measurement import Measurement, Moment

_FILE = click.Path(path_type=Path)


@click.command("measure")
@click.argument("workload")
@click.option("--optimizer", default="sgd", show_default=True, help="sgd, momentum, nesterov, adam, ...")
@click.option("--batch-size", type=WHOLE, default=64, show_default=True, help="Examples of a step.")
@setting_option
@click.option("--steps", type=WHOLES, default=[0, 50, 200, 800], show_default="0,50,200,800",
              help="After which the weights are measured.")  # fmt: skip
@click.option("--examples", type=WHOLE, default=1536, show_default=True, help="Of the training set to measure on.")
@click.option("--error", type=NUMBER, default=0.1, show_default=True, help="Of traces from probes, as a part of them.")
@click.option("--hessian", is_flag=True, help="Also the largest eigenvalue of the Hessian.")
@click.option("--density-probes", type=WHOLE, default=0, show_default=True,
              help="Of the density of eigenvalues; takes 40 products each.")  # fmt: skip
@click.option("--chunk-size", type=WHOLE, default=256, show_default=True, help="Examples in memory at a time.")
@click.option("--out", type=_FILE, help="File that keeps every moment; an interrupted run goes on from it.")
@click.option("--page", type=_FILE, help="Folder for a page with figures and their numbers.")
@click.option("--size", type=click.Choice(["laptop", "paper"]), default="laptop", show_default=True,
              help="As published, or narrower.")  # fmt: skip
@click.option("--seed", type=WHOLE, default=0, show_default=True, help="Of weights, order and probes.")
@click.option("--schedule", help="Shape of the learning rate; the workload's by default.")
@click.option("--max-steps", type=WHOLE, help="Step budget that a schedule refers to; the workload's by default.")
@click.option("--device", default="cpu", show_default=True, help="cpu, cuda or mps.")
@click.option("--threads", type=WHOLE, help="Of torch on the CPU; by default as many as the work of a step is worth.")
@data_dir_option
@json_option
def measure_command(
    workload: str,
    optimizer: str,
    batch_size: int,
    settings: dict[str, float],
    page: Path | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Measure curvature and gradient noise along a training.

    WORKLOAD is as for `batchlens train`. A learning rate that is not --set is the middle of the workload's search
    space. With --out, Ctrl-C keeps the run, and the same command goes on with it.

    \b
    Examples:
      batchlens measure digits --set learning_rate=0.5 --steps 0,50,200
      batchlens measure simple_cnn_mnist --optimizer momentum --set learning_rate=0.02 --out mnist.json --page mnist
    """
    with saying_how_to_go_on("--out", options["out"] is not None):
        import_extra("torch")
        if page is not None:
            from batchlens.report._page.folder import prepare_folder

            prepare_folder(page, "Choose another --page.")
        if "learning_rate" not in settings:
            rate = settings["learning_rate"] = _usual_rate(workload, optimizer, options["size"])
            say(f"batchlens: --set learning_rate={rate:g}, the middle of its search space", err=True)
        with stopping() as asked, progress_bar("Measuring") as advance, settings_as_typed(settings):
            found = bl.measure_training(
                workload, optimizer, batch_size, settings, progress=advance, stop=asked, **options
            )
        drawn = None if page is None else _draw(found, page)
    _print(found, drawn, as_json)


def _usual_rate(workload: str, optimizer: str, size: str) -> float:
    """The geometric middle of where sweeps search, to two digits."""
    from batchlens.optimizers import base_of
    from batchlens.training.workloads import find_workload

    space = find_workload(workload, size).space(base_of(optimizer), 1)["learning_rate"]
    return float(f"{(space.low * space.high) ** 0.5:.2g}")


def report_measurement(file: Path, out: Path | None, as_json: bool) -> None:
    """What a measurement says, with its page."""
    found = bl.read_measurement(file)
    _print(found, _draw(found, out or file.with_name(f"{file.stem}-report")), as_json)


def _draw(found: "Measurement", folder: Path) -> Path:
    with progress_bar("Drawing") as advance:
        return bl.write_report(found, folder, progress=advance)


def _print(found: "Measurement", page: Path | None, as_json: bool) -> None:
    """What was measured, for a person or as JSON."""
    if as_json:
        print_json({**found.as_document(), **({} if page is None else {"page": str(page)})})
        return
    say(found.headline)
    if found.moments:
        print_table(
            f"{found.name}, on {found.moments[0].examples:,} examples", columns_of(list(map(_row, found.moments)))
        )
        print_table("Variance of the gradient against curvature", columns_of(list(map(_compared, found.moments))))
        left_out = found.moments[-1].left_out
        if left_out:
            words = "; ".join(f"{name} ({reason})" for name, reason in left_out.items())
            say(f"Not in the Kronecker eigenbasis: {words}.")
    if page is not None:
        say(f"Page: {page}")


def _row(moment: "Moment") -> dict[str, Any]:
    return {
        "step": moment.step,
        "loss": float(f"{moment.loss:.4g}"),
        "top_curvature": str(moment.top_curvature),
        "on_halves": ", ".join(f"{half:.3g}" for half in moment.top_halves),
        "trace_of_curvature": str(moment.curvature_trace),
        "trace_of_covariance": str(moment.gradient_variance),
        "B_simple": str(moment.noise_scale),
        "B_noise": str(moment.curvature_noise_scale),
        "seconds": round(moment.seconds, 1),
    }


def _compared(moment: "Moment") -> dict[str, Any]:
    compared = moment.comparison
    exponents = ", ".join(f"{decade.exponent:.2f}" for decade in moment.decades)
    return {
        "step": moment.step,
        "slope": None if compared is None else float(f"{compared.slope:.3g}"),
        "correlation": None if compared is None else float(f"{compared.correlation:.3g}"),
        "ratio": None if moment.size_ratio is None else float(f"{moment.size_ratio:.3g}"),
        "exponents_by_decade_of_rank": exponents or "-",
    }
