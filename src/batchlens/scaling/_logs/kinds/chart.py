"""A chart of Weights & Biases, exported as CSV: the x axis, then for each run "name - metric" and its extremes.

Where the x axis is not the step, the step of each run has a column of its own, "name - _step".
"""

import math
from collections.abc import Iterator

from batchlens.errors import BatchlensError
from batchlens.scaling._logs.kinds.cells import Row, Table
from batchlens.scaling._logs.kinds.records import number_in
from batchlens.scaling._logs.log import LIGHTNING_STEP, STEP_NAMES, Curve, Log, Point, make_curve

_BETWEEN = " - "
_EXTREMES = ("__MIN", "__MAX")


def is_chart(table: Table) -> bool:
    """Whether every column but the first is one of a run."""
    return len(table.header.cells) > 1 and all(_BETWEEN in name for name in table.header.cells[1:])


def read_chart(where: str, table: Table) -> list[Log]:
    """One log for each run of the chart."""
    columns = {name: place for place, name in enumerate(table.header.cells) if not name.endswith(_EXTREMES)}
    runs: dict[str, dict[str, int]] = {}
    for name, place in columns.items():
        if place:
            run, _, metric = name.rpartition(_BETWEEN)
            runs.setdefault(run, {})[metric] = place
    return [_read_run(f"{where}/{run}", table, places) for run, places in runs.items()]


def _read_run(where: str, table: Table, places: dict[str, int]) -> Log:
    axis = table.header.cells[0]
    own = places.pop("_step", None)
    step = 0 if axis.lower() in STEP_NAMES else own
    first = 1 if axis.lower() == LIGHTNING_STEP else 0
    if step is None:
        raise BatchlensError(f"{where} has {axis} as its x axis. Export the chart with Step as its x axis.")

    def read(metric: str) -> Curve:
        return make_curve(_points(table.rows, step, first, metric, places[metric]))

    return Log(where, tuple(places), read)


def _points(rows: list[Row], step: int, first: int, metric: str, place: int) -> Iterator[Point]:
    for row in rows:
        if row.cells[place] and row.cells[step]:
            yield number_in(row, step, "step") + first, number_in(row, place, metric), math.nan
