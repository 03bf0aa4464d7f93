"""A CSV file with a line for each record: that of Lightning's CSVLogger, a history of Weights & Biases, one's own.

The column of steps is the first there is of STEP_NAMES.  Columns named batch_size, optimizer, seed, repeat and run say
what the run is; a table may hold several runs that differ in these.  A learning rate (learning_rate, lr, or "lr-SGD" of
Lightning) that never changes is a setting.  An empty cell is no record, nan is one.
Lightning gives a step the number of steps before it: one is added.
"""

import math
from collections.abc import Iterator, Mapping

from batchlens.errors import BatchlensError
from batchlens.scaling._logs.kinds.cells import Row, Table
from batchlens.scaling._logs.log import LIGHTNING_STEP, STEP_NAMES, Curve, Log, Point, Setting, make_curve

_IDENTITY = ("batch_size", "optimizer", "seed", "repeat", "run")
# Since the start of the run, or since an hour long ago.
_SECONDS = ("seconds", "_runtime", "_timestamp")
_RATES = ("learning_rate", "lr")
_NO_METRICS = {*STEP_NAMES, *_IDENTITY, *_SECONDS}


def step_column(names: list[str]) -> int | None:
    """Where the optimizer's steps stand."""
    return next((names.index(name) for name in STEP_NAMES if name in names), None)


def read_records(where: str, table: Table, beside: Mapping[str, Setting], from_zero: bool = False) -> list[Log]:
    """The runs of a table of records.

    `beside` are the settings in the file beside it, `from_zero` is how Lightning counts steps.
    """
    names = [name.lower() for name in table.header.cells]
    places = {name: names.index(name) for name in _IDENTITY if name in names}
    groups: dict[tuple[str, ...], list[Row]] = {}
    constant = {place: _only_value(table.rows, place) for place in places.values()}
    for row in table.rows:
        groups.setdefault(tuple(row.cells[place] or constant[place] for place in places.values()), []).append(row)
    logs = []
    for values, rows in groups.items():
        told = {name: value for name, value in zip(places, values, strict=True) if value}
        words = ", ".join(f"{name} {value}" for name, value in told.items())
        name = f"{where} ({words})" if len(groups) > 1 else where
        logs.append(_read_run(name, table.header.cells, rows, {**beside, **told}, from_zero))
    return logs


def number_in(row: Row, place: int, name: str) -> float:
    """The number in a cell that is not empty."""
    try:
        return float(row.cells[place])
    except ValueError:
        raise BatchlensError(f"{row.where}: `{name}` must be a number, got {row.cells[place]}.") from None


def _read_run(where: str, header: tuple[str, ...], rows: list[Row], told: dict[str, Setting], from_zero: bool) -> Log:
    names = [name.lower() for name in header]
    metrics = {
        name: place
        for place, name in enumerate(header)
        if names[place] and names[place] not in _NO_METRICS and any(row.cells[place] for row in rows)
    }

    def read(metric: str) -> Curve:
        return make_curve(_points(rows, names, metric, metrics[metric], from_zero))

    rates = [place for place, name in enumerate(names) if name in _RATES or name.startswith("lr-")]
    if len(rates) == 1 and (rate := _only_value(rows, rates[0])):
        told = {_RATES[0]: rate, **told}
    size = told.pop("batch_size", None)
    try:
        batch_size = None if size is None else float(size)
    except ValueError:
        raise BatchlensError(f"{where}: `batch_size` must be a number, got {size}.") from None
    return Log(where, tuple(metrics), read, batch_size, str(told.pop("optimizer", "")), told)


def _points(rows: list[Row], names: list[str], metric: str, place: int, from_zero: bool) -> Iterator[Point]:
    step = step_column(names)
    first = 1 if from_zero or LIGHTNING_STEP in names else 0
    clock = next((names.index(name) for name in _SECONDS if name in names), None)
    start = 0.0
    if clock is not None and names[clock] == "_timestamp":
        start = min((number_in(row, clock, "_timestamp") for row in rows if row.cells[clock]), default=0.0)
    for row in rows:
        if step is None or not row.cells[place] or not row.cells[step]:
            continue
        seconds = math.nan
        if clock is not None and row.cells[clock]:
            seconds = number_in(row, clock, names[clock]) - start
        yield number_in(row, step, names[step]) + first, number_in(row, place, metric), seconds


def _only_value(rows: list[Row], place: int) -> str:
    """What a column says where it says one thing only, be it in some rows."""
    values = {row.cells[place] for row in rows} - {""}
    return values.pop() if len(values) == 1 else ""
