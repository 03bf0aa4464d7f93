"""Critical batch sizes, steps and learning rates of a real network from one short run."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import batchlens as bl
from batchlens._extras import import_extra
from batchlens.cli.options import data_dir_option, json_option
from batchlens.cli.progress import progress_bar, saying_how_to_go_on
from batchlens.cli.terminal import NUMBER, WHOLE, WHOLES, Names, columns_of, print_json, print_table, say
from batchlens.prediction._readings import EXAMPLES, OPTIMIZERS, READINGS

if TYPE_CHECKING:
    from batchlens.prediction.prediction import Prediction

_FILE = click.Path(path_type=Path)


@click.command("predict")
@click.argument("workload")
@click.option("--optimizers", type=Names(tuple(READINGS)), default=",".join(OPTIMIZERS), show_default=True,
              help=f"Of {', '.join(READINGS)}.")  # fmt: skip
@click.option("--batch-sizes", type=WHOLES, default="8..4096", show_default=True, help="At which to predict.")
@click.option("--target-on", type=click.Choice(["validation", "train", "train-loss"]), default="validation",
              show_default=True, help="Where the target is measured.")  # fmt: skip
@click.option("--target", type=NUMBER, help="The workload's by default.")
@click.option("--confirm", type=WHOLE, default=0, show_default=True,
              help="At how many batch sizes, where it is least certain, to train and compare.")  # fmt: skip
@click.option("--batch-size", type=WHOLE, default=64, show_default=True, help="Of the reference run.")
@click.option("--learning-rate", type=NUMBER, help="Of the reference run; found by a range test by default.")
@click.option("--size", type=click.Choice(["laptop", "paper"]), default="laptop", show_default=True,
              help="As published, or narrower.")  # fmt: skip
@click.option(
    "--examples", type=WHOLE, help=f"Of the training set to measure on; {EXAMPLES:,}, or twice that where needed."
)
@click.option("--seed", type=WHOLE, default=0, show_default=True, help="Of the reference run.")
@click.option("--out", type=_FILE, help="Folder for the page, its figures and their numbers.")
@click.option(
    "--keep", type=_FILE, help="File that keeps what is measured; an interrupted measurement goes on from it."
)
@click.option("--device", default="cpu", show_default=True, help="cpu, cuda or mps.")
@click.option("--threads", type=WHOLE, help="Of torch on the CPU.")
@data_dir_option
@json_option
def predict_command(workload: str, out: Path | None, keep: Path | None, as_json: bool, **options: Any) -> None:
    """Predict how a network trains at other batch sizes.

    One run with plain SGD to the target, measured on the way, and the exact theory for every batch size and optimizer.
    WORKLOAD is as for `batchlens train`.

    \b
    Examples:
      batchlens predict digits --target-on train-loss --target 0.1
      batchlens predict simple_cnn_mnist --target-on train-loss --target 0.1 --confirm 2 --out page
    """
    import_extra("torch")
    if out is not None:
        from batchlens.report._page.folder import prepare_folder

        prepare_folder(out, "Choose another --out.")
    with (
        saying_how_to_go_on("--keep", keep is not None, partial(_has_begun, keep)),
        progress_bar("Predicting") as advance,
    ):
        found = bl.predict(workload, keep=keep, progress=advance, **options)
    if found.predicted and len(found.confirmed) < options["confirm"]:
        say(_few(len(found.confirmed), options["confirm"]), err=True)
    page = None if out is None else bl.write_report(found, out)
    if as_json:
        print_json({**found.as_document(), **({} if page is None else {"page": str(page)})})
        return
    say(found.sentence)
    _print(found)
    if page is not None:
        say(f"Page: {page}")


def _has_begun(keep: Path | None) -> bool:
    """Whether something is kept: a range test, or of a measurement; training without one is not."""
    ends = ("", ".range-test", ".checkpoint")
    return keep is not None and any(keep.with_name(f"{keep.name}{end}").exists() for end in ends)


def _print(found: "Prediction") -> None:
    if found.noise_scales:
        say(f"Measured at the target: {', '.join(f'{entry.definition} {entry}' for entry in found.noise_scales)}.")
    if found.predicted:
        rows = [
            {"optimizer": entry.optimizer}
            | {size.definition: str(size) for size in entry.critical_batch_sizes}
            | {"doubts": "; ".join(entry.reasons)}
            for entry in found.predicted
        ]
        print_table("Critical batch size (90% interval)", columns_of(rows))
        for words in (found.apart, *_notes(found)):
            if words:
                say(words)
        points = [
            {"optimizer": entry.optimizer}
            | {name: _short(name, value) for name, value in point.items() if name != "interval"}
            | {"90% interval": "" if interval is None else str(interval)}
            for entry in found.predicted
            for point, interval in zip(entry.points(), entry.curve.intervals, strict=True)
        ]
        print_table(f"Steps to a training loss of {found.target_loss:.3g}", columns_of(points))
    if found.confirmed:
        cells: list[dict[str, Any]] = [
            {
                "optimizer": cell.optimizer,
                "batch_size": cell.batch_size,
                "predicted": f"{cell.predicted:,.0f} ({cell.interval})",
                "measured": cell.words,
            }
            for cell in found.confirmed
        ]
        print_table("Predicted and measured", columns_of(cells))


def _notes(found: "Prediction") -> list[str]:
    own = [f"{entry.optimizer}: {note}." for entry in found.predicted for note in entry.notes]
    return [f"{note[0].upper()}{note[1:]}." for note in found.notes] + own


def _few(trained: int, asked: int) -> str:
    others = (
        "others lie close to these, have no predicted learning rate, or their batch is larger than the training set."
    )
    return f"batchlens: {trained} of {asked} cells were trained to confirm it: {others}"


def _short(name: str, value: Any) -> Any:
    """As exact as it is known."""
    if value is None or name == "batch_size":
        return value
    return round(value) if name == "steps" else float(f"{value:.3g}" if name == "learning_rate" else f"{value:.5g}")
