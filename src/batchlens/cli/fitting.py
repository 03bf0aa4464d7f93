"""One's own runs: batchlens fit."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import click

import batchlens as bl
from batchlens._results import short
from batchlens.cli.options import json_option
from batchlens.cli.terminal import NUMBER, NUMBERS, PART, columns_of, print_json, print_table, say
from batchlens.scaling._logs.choosing import SEVERAL
from batchlens.scaling._logs.crossing import Direction
from batchlens.scaling._sentences import best_words

if TYPE_CHECKING:
    from batchlens.scaling._intervals import Interval
    from batchlens.scaling.fitting import FittedRuns


@click.command("fit")
@click.argument("runs", nargs=-1, required=True)
@click.option("--metric", default=None, help="The metric of the logs that has a target.")
@click.option("--target", type=NUMBER, default=None, help="The value that it must reach.")
@click.option(
    "--direction",
    type=click.Choice(get_args(Direction)),
    default=None,
    help="Which way the metric is better; by default towards the target from where the runs start.",
)
@click.option(
    "--batch-size-from",
    metavar="REGEX",
    default=None,
    help="Finds the batch size in the path, 'b(\\d+)'; named groups are settings. By default what the log says.",
)
@click.option(
    "--smoothing",
    type=PART,
    default=0.1,
    show_default=True,
    help="The running median is over the records within this part of a step; 0: as logged.",
)
@click.option(
    "--runs",
    "several",
    type=click.Choice(SEVERAL),
    default="best",
    show_default=True,
    help="Of runs at one batch size, those of the best settings, or all of them.",
)
@click.option(
    "--predict", type=NUMBERS, default=None, help="Batch sizes at which to predict steps: 4,16,64 or 4..4096."
)
@click.option("--out", type=click.Path(path_type=Path), help="Folder for a page with figures and their numbers.")
@json_option
def fit_command(
    runs: tuple[str, ...], predict: list[float] | None, out: Path | None, as_json: bool, **reading: Any
) -> None:
    """How large a batch your own runs can use, in a sentence, a table and, with --out, a page.

    RUNS is a CSV file, or - for standard input, with the columns batch_size and steps (empty where the target was not
    reached), and optionally optimizer, seconds (how long the run took) and repeat (a name for each of several runs
    alike).

    Or RUNS are the logs of training runs, files, patterns or folders, and --metric and --target say when a run has
    reached its target: files of a Monitor, Lightning's metrics.csv, CSV exports of Weights & Biases, Hugging Face's
    trainer_state.json, TensorBoard's events, or any CSV with a column of steps.

    Four definitions: knee, where perfect scaling and the plateau meet; overhead, the largest batch that costs at most
    20% more examples; fit, B_crit of steps = S_min (1 + B_crit / B), which the sentence is about; bend, the same with
    the sharpness of the bend fitted too, which predictions come from. A ? is an end that the runs leave open.

    \b
    Examples:
      batchlens fit runs.csv
      batchlens fit runs.csv --predict 64..8192 --out page
      batchlens fit runs/*.jsonl --metric accuracy --target 0.97
      batchlens fit lightning_logs --metric val_loss --target 0.4 --batch-size-from 'b(\\d+)'
      my-query | batchlens fit -
    """
    source = sys.stdin.buffer if runs == ("-",) else runs
    found = bl.fit(source, predict=predict or (), **reading)
    page = None if out is None else bl.write_report(found, out)
    if as_json:
        print_json(found.as_document() | ({} if page is None else {"page": str(page)}))
        return
    for line in found.sentence.splitlines():
        say(line)
    for fitted in found:
        _print(fitted)
    for note in found.notes:
        say(note)
    if page is not None:
        say(f"Page: {page}")


def _print(fitted: "FittedRuns") -> None:
    title = fitted.optimizer or "runs"
    rows: list[dict[str, Any]] = [
        {"definition": value.definition, "critical_batch_size": str(value), "95% interval": _words(interval)}
        for value, interval in fitted.estimates
    ]
    print_table(f"{title}: critical batch size", columns_of(rows))
    efficiency = [None if part is None else f"{part:.0%}" for part in fitted.curve.efficiency()]
    measured: dict[str, list[Any]] = {
        "batch_size": [short(size) for size in fitted.curve.batch_sizes],
        "steps": list(fitted.curve.steps),
        "efficiency": efficiency,
        "seconds": list(fitted.seconds),
    }
    print_table(f"{title}: measured", measured)
    if fitted.predictions:
        predicted = [
            {
                "batch_size": short(entry.batch_size),
                "steps": round(entry.steps),
                "95% interval": _words(entry.interval),
                "extrapolated": "yes" if entry.extrapolated else "",
            }
            for entry in fitted.predictions
        ]
        print_table(f"{title}: predicted", columns_of(predicted))
    for name, size, tied in (
        ("fastest", fitted.fastest, fitted.fastest_range),
        ("cheapest", fitted.cheapest, fitted.cheapest_range),
    ):
        if size is not None:
            say(f"{title}: {name} batch size {best_words(size, tied)}")


def _words(interval: "Interval | None") -> str:
    return "none" if interval is None else str(interval)
