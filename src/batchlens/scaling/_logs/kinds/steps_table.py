"""A table of runs: batch size and steps to the target, counted by whoever wrote it."""

from typing import NamedTuple

from batchlens._checks import require_number
from batchlens.errors import BatchlensError
from batchlens.scaling._logs.kinds.cells import Row, Table

REQUIRED = ("batch_size", "steps")
_COLUMNS = (*REQUIRED, "optimizer", "seconds", "repeat")


class Run(NamedTuple):
    """One training run; `steps` is None where it did not reach the target, `seconds` is how long it took."""

    batch_size: float
    steps: float | None
    optimizer: str = ""
    seconds: float | None = None
    repeat: str = ""


def parse_runs(where: str, table: Table | None) -> list[Run]:
    """The runs of a table with the columns batch_size and steps, and if there are any optimizer, seconds, repeat."""
    if table is None:
        raise BatchlensError(
            f"{where} must begin with a line that names the columns batch_size and steps, got nothing."
        )
    places = _find_columns(table.header)
    if not table.rows:
        raise BatchlensError(f"{where} must hold at least one run below the line of column names, got none.")
    runs: list[Run] = []
    seen: dict[Run, str] = {}
    for row in table.rows:
        run = _parse_run(row.where, *("" if place is None else row.cells[place] for place in places))
        if run.repeat:
            first = seen.setdefault(run._replace(steps=None, seconds=None), row.where)
            if first != row.where:
                raise BatchlensError(
                    f"{row.where} must not have batch size, optimizer and repeat of {first.rpartition(', ')[2]}. "
                    "Keep one run of each, with the best settings."
                )
        runs.append(run)
    return runs


def _find_columns(header: Row) -> list[int | None]:
    """Where each known column stands."""
    names = [name.lower() for name in header.cells]
    for name in _COLUMNS:
        if names.count(name) > 1:
            raise BatchlensError(f"{header.where} must name the column {name} once, got {names.count(name)} times.")
    if missing := [name for name in REQUIRED if name not in names]:
        raise BatchlensError(
            f"{header.where} must name {' and '.join(missing)}, got {', '.join(names)}. Separate columns by commas."
        )
    return [names.index(name) if name in names else None for name in _COLUMNS]


def _parse_run(where: str, batch_size: str, steps: str, optimizer: str, seconds: str, repeat: str) -> Run:
    def parse(name: str, text: str, remedy: str = "") -> float:
        try:
            return require_number(name, float(text), low=0, closed=(False, True))
        except ValueError:
            got = text or "nothing"
            raise BatchlensError(f"{where}: `{name}` must be finite and above 0, got {got}.{remedy}") from None

    def parse_or_none(name: str, text: str, remedy: str) -> float | None:
        return None if text.lower() in ("", "nan") else parse(name, text, remedy)

    return Run(
        parse("batch_size", batch_size),
        parse_or_none("steps", steps, " Leave it empty where the target was not reached."),
        optimizer,
        parse_or_none("seconds", seconds, " Leave it empty where it is not known."),
        repeat,
    )
