"""One's own runs: batchlens fit."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import batchlens as bl
from batchlens._results import short
from batchlens.cli.options import json_option
from batchlens.cli.terminal import NUMBERS, columns_of, print_json, print_table, say

if TYPE_CHECKING:
    from batchlens.scaling._intervals import Interval
    from batchlens.scaling.fitting import FittedRuns


@click.command("fit")
@click.argument("runs")
@click.option(
    "--predict", type=NUMBERS, default=None, help="Batch sizes at which to predict steps: 4,16,64 or 4..4096."
)
@json_option
def fit_command(runs: str, predict: list[float] | None, as_json: bool) -> None:
    """The critical batch size of your own runs.

    RUNS is a CSV file, or - for standard input, with the columns batch_size and steps (empty where the target was not
    reached), and optionally optimizer, seconds (how long the run took) and repeat (a name for each of several runs
    alike).

    Three definitions: knee, where perfect scaling and the plateau meet; overhead, the largest batch that costs at most
    20% more examples; fit, B_crit of steps = S_min (1 + B_crit / B). A ? is an end that the runs leave open.

    \b
    Examples:
      batchlens fit runs.csv
      batchlens fit runs.csv --predict 64..8192
      my-query | batchlens fit -
    """
    found = bl.fit(sys.stdin.buffer if runs == "-" else Path(runs), predict=predict or ())
    if as_json:
        print_json(found.as_document())
        return
    for fitted in found:
        _print(fitted)


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
    for name, size in (("fastest", fitted.fastest), ("cheapest", fitted.cheapest)):
        if size is not None:
            say(f"{title}: {name} batch size {short(size):,}")


def _words(interval: "Interval | None") -> str:
    return "none" if interval is None else str(interval)
