"""A user's own runs, from whatever holds them: a CSV file, an open file, a DataFrame or a curve."""

import csv
import io
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from batchlens._checks import require_number
from batchlens.errors import BatchlensError
from batchlens.scaling.curve import ScalingCurve

if TYPE_CHECKING:
    from _csv import Reader as CsvReader

_REQUIRED = ("batch_size", "steps")
_COLUMNS = (*_REQUIRED, "optimizer", "seconds", "repeat")


class Run(NamedTuple):
    """One training run; `steps` is None where it did not reach the target, `seconds` is how long it took."""

    batch_size: float
    steps: float | None
    optimizer: str = ""
    seconds: float | None = None
    repeat: str = ""


def collect_runs(source: object) -> list[Run]:
    """The runs that a source holds: the path of a CSV file, an open one, a DataFrame, a curve, or runs themselves.

    The first line of a file names the columns, in any case: batch_size and steps (empty or nan: the target was not
    reached), and if there are any optimizer, seconds (how long the run took) and repeat (a name for each of several
    runs alike).  Other columns are left alone.  A file that cannot be read so raises a BatchlensError that names the
    line.
    """
    if isinstance(source, str | Path):
        return _read_file(Path(source))
    if isinstance(source, ScalingCurve):
        sizes = zip(source.batch_sizes, source.steps, strict=True)
        return [Run(size, steps or None, source.optimizer) for size, steps in sizes]
    if hasattr(source, "to_csv"):
        return _parse_frame(source)
    if hasattr(source, "read"):
        return _parse(_name_of(source), _text_of(source))
    if isinstance(source, Iterable) and not isinstance(source, Mapping | bytes):
        runs = list(source)
        if all(isinstance(run, Run) for run in runs):
            return runs
    raise TypeError(f"`runs` must be a path, an open file, a DataFrame or a ScalingCurve, got {source!r}.")


def _parse_frame(frame: Any) -> list[Run]:
    if frame.index.name is not None:
        frame = frame.reset_index()
    names = [str(name).strip().lower() for name in frame.columns]
    if missing := [name for name in _REQUIRED if name not in names]:
        raise ValueError(f"`runs` must have the column {' and '.join(missing)}, got {', '.join(names) or 'none'}.")
    return _parse("the frame", frame.to_csv(index=False))


def _read_file(path: Path) -> list[Run]:
    try:
        with open(path, encoding="utf-8-sig", newline="") as file:
            return _parse(str(path), file.read())
    except OSError as error:
        raise BatchlensError(f"{path} cannot be read: {error.strerror or error}.") from None
    except UnicodeDecodeError:
        raise BatchlensError(f"{path} must be UTF-8 text. Save it as CSV in UTF-8.") from None


def _name_of(file: object) -> str:
    name = getattr(file, "name", "")
    return "standard input" if name == "<stdin>" else str(name or "the file")


def _text_of(file: object) -> str:
    try:
        text = file.read()  # type: ignore[attr-defined]
        return text.decode("utf-8-sig") if isinstance(text, bytes) else str(text).removeprefix("\ufeff")
    except UnicodeDecodeError:
        raise BatchlensError(f"{_name_of(file)} must be UTF-8 text. Save it as CSV in UTF-8.") from None


def _parse(where: str, text: str) -> list[Run]:
    return _parse_runs(where, csv.reader(io.StringIO(text, newline=""), strict=True))


def _parse_runs(path: str, lines: "CsvReader") -> list[Run]:
    runs: list[Run] = []
    places: list[int | None] | None = None
    width = 0
    seen: dict[Run, int] = {}
    try:
        for cells in lines:
            if not any(cell.strip() for cell in cells):
                continue
            if places is None:
                names = [cell.strip().lower() for cell in cells]
                places, width = _find_columns(path, lines.line_num, names), len(cells)
                continue
            where = f"{path}, line {lines.line_num}"
            if len(cells) != width:
                raise BatchlensError(f"{where} must have {width} cells, one per column, got {len(cells)}.")
            run = _parse_run(where, *("" if place is None else cells[place].strip() for place in places))
            if run.repeat:
                first = seen.setdefault(run._replace(steps=None, seconds=None), lines.line_num)
                if first != lines.line_num:
                    raise BatchlensError(
                        f"{where} must not have batch size, optimizer and repeat of line {first}. "
                        "Keep one run of each, with the best settings."
                    )
            runs.append(run)
    except csv.Error as error:
        raise BatchlensError(f"{path}, line {lines.line_num} must be CSV: {error}.") from None
    if places is None:
        raise BatchlensError(f"{path} must begin with a line that names the columns batch_size and steps, got nothing.")
    if not runs:
        raise BatchlensError(f"{path} must hold at least one run below the line of column names, got none.")
    return runs


def _find_columns(path: str, line: int, names: list[str]) -> list[int | None]:
    """Where each known column stands."""
    for name in _COLUMNS:
        if names.count(name) > 1:
            raise BatchlensError(
                f"{path}, line {line} must name the column {name} once, got {names.count(name)} times."
            )
    if missing := [name for name in _REQUIRED if name not in names]:
        raise BatchlensError(
            f"{path}, line {line} must name {' and '.join(missing)}, got {', '.join(names)}. "
            "Separate columns by commas."
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
