"""A user's own runs, from whatever holds them: files and logs, an open file, a DataFrame or a curve."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from batchlens.scaling._logs.finding import find_logs
from batchlens.scaling._logs.kinds.records import step_column
from batchlens.scaling._logs.kinds.steps_table import REQUIRED
from batchlens.scaling._logs.kinds.steps_table import Run as Run
from batchlens.scaling._logs.log import Log
from batchlens.scaling._logs.measuring import Question, measure
from batchlens.scaling._logs.reading import not_text, read_path, read_text
from batchlens.scaling.curve import ScalingCurve


class Collected(NamedTuple):
    """Runs, and in words how they were read off their logs."""

    runs: list[Run]
    notes: tuple[str, ...] = ()


def collect_runs(source: object, question: Question | None = None) -> Collected:
    """The runs that a source holds: paths, an open file, a DataFrame, a curve, or runs themselves.

    The first line of a table of runs names the columns, in any case: batch_size and steps (empty or nan: the target was
    not reached), and if there are any optimizer, seconds (how long the run took) and repeat (a name for each of several
    runs alike).  Other columns are left alone.  Anything else that is read is the log of a run.  A file that cannot be
    read so raises a BatchlensError that names the line.
    """
    question = question or Question()
    read = _read(source)
    logs = [entry for entry in read if isinstance(entry, Log)]
    runs = [entry for entry in read if isinstance(entry, Run)]
    if logs:
        measured, notes = measure(logs, question)
        return Collected(runs + measured, notes)
    if question.metric is not None:
        raise ValueError("`metric` is for logs of runs, and these runs have their steps counted: leave it out.")
    return Collected(runs)


def _read(source: object) -> Sequence[Run | Log]:
    if isinstance(source, str | Path):
        source = [source]
    if isinstance(source, ScalingCurve):
        sizes = zip(source.batch_sizes, source.steps, strict=True)
        return [Run(size, steps or None, source.optimizer) for size, steps in sizes]
    if hasattr(source, "to_csv"):
        return _read_frame(source)
    if hasattr(source, "read"):
        return read_text(_name_of(source), _text_of(source))
    if isinstance(source, Iterable) and not isinstance(source, Mapping | bytes):
        entries = list(source)
        if all(isinstance(entry, Run) for entry in entries):
            return entries
        if all(isinstance(entry, str | Path) for entry in entries):
            return [found for path in find_logs(entries) for found in read_path(path)]
    raise TypeError(f"`runs` must be paths, an open file, a DataFrame or a ScalingCurve, got {source!r}.")


def _read_frame(frame: Any) -> Sequence[Run | Log]:
    if frame.index.name is not None:
        frame = frame.reset_index()
    names = [str(name).strip().lower() for name in frame.columns]
    if step_column(names) is None and (missing := [name for name in REQUIRED if name not in names]):
        raise ValueError(f"`runs` must have the column {' and '.join(missing)}, got {', '.join(names) or 'none'}.")
    return read_text("the frame", frame.to_csv(index=False))


def _name_of(file: object) -> str:
    name = getattr(file, "name", "")
    return "standard input" if name == "<stdin>" else str(name or "the file")


def _text_of(file: object) -> str:
    try:
        text = file.read()  # type: ignore[attr-defined]
        return text.decode("utf-8-sig") if isinstance(text, bytes) else str(text).removeprefix("\ufeff")
    except UnicodeDecodeError:
        raise not_text(_name_of(file)) from None
