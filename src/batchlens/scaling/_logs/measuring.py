"""From logs to runs: which batch size, which way the metric goes, and how many steps to the target."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, get_args

import numpy as np

from batchlens._checks import require_choice, require_number
from batchlens.errors import BatchlensError
from batchlens.scaling._logs.choosing import SEVERAL, Measured, Several, choose
from batchlens.scaling._logs.crossing import Direction, find_crossing
from batchlens.scaling._logs.kinds.steps_table import Run
from batchlens.scaling._logs.log import Curve, Log, Setting

_SIZE = "batch_size"


class _Read(NamedTuple):
    """A run as its log and its path have it."""

    name: str
    curve: Curve
    batch_size: float
    optimizer: str
    settings: Mapping[str, Setting]


@dataclass(frozen=True)
class Question:
    """What is asked of logs; `fit` says what each argument is."""

    metric: str | None = None
    target: float | None = None
    direction: Direction | None = None
    batch_size_from: str | None = None
    smoothing: float = 0.1
    several: Several = "best"

    def __post_init__(self) -> None:
        if (self.metric is None) != (self.target is None):
            raise ValueError("`metric` and `target` must be given together: which metric must reach which value?")
        if self.metric is not None and not isinstance(self.metric, str):
            raise TypeError(f"`metric` must be the name of one, got {self.metric!r}.")
        if self.target is not None:
            require_number("target", self.target)
        if self.direction is not None:
            require_choice("direction", self.direction, get_args(Direction))
        require_number("smoothing", self.smoothing, low=0, high=1)
        require_choice("several", self.several, SEVERAL)
        if self.batch_size_from is not None:
            _compile(self.batch_size_from)


def measure(logs: Sequence[Log], question: Question) -> tuple[list[Run], tuple[str, ...]]:
    """The runs that the logs are of, and in words how they were read."""
    metric, target = question.metric, question.target
    if metric is None or target is None:
        has = ", ".join(logs[0].metrics) or "none so far"
        raise ValueError(
            f"`metric` and `target` must be given for the log of a run, to say when it has reached its target: "
            f"{logs[0].name} has the metrics {has}."
        )
    begun, empty = _with_records(logs)
    read = [_Read(log.name, log.curve(metric), *_identify(log, question.batch_size_from)) for log in begun]
    distinct, repeated = _distinct(read)
    direction = question.direction or _find_direction(metric, target, [run.curve for run in distinct])
    notes = [_describe(metric, target, direction, question.smoothing), *empty, *repeated]
    measured, early = [], []
    for name, curve, batch_size, optimizer, settings in distinct:
        crossing = find_crossing(curve, target, direction, question.smoothing)
        if crossing is None:
            run = Run(batch_size, None, optimizer)
        elif crossing.steps > 0:
            run = Run(batch_size, crossing.steps, optimizer, crossing.seconds)
            early += [name] if crossing.first else []
        else:
            raise BatchlensError(f"{name} has reached {metric} {target:g} at step 0. Choose a harder target.")
        measured.append(Measured(run, settings))
    if early:
        notes.append(f"Reached by the first record, so steps are at most these: {', '.join(early)}.")
    notes += dict.fromkeys(log.caution for log in begun if log.caution and question.batch_size_from is None)
    runs, chosen = choose(measured, question.several)
    return runs, (*notes, *chosen)


def _describe(metric: str, target: float, direction: Direction, smoothing: float) -> str:
    smoothed = f"smoothed by the median of the records within {smoothing:.0%} of a step" if smoothing else "unsmoothed"
    return f"Target: {metric} {'at least' if direction == 'up' else 'at most'} {target:g}, {smoothed}."


def _with_records(logs: Sequence[Log]) -> tuple[Sequence[Log], list[str]]:
    """Without runs that ended before their first record, where others remain."""
    begun = [log for log in logs if log.metrics]
    empty = [log.name for log in logs if not log.metrics]
    if not begun or not empty:
        return logs, []
    return begun, [f"Left out, as the run ended before its first record: {', '.join(empty)}."]


def _distinct(read: Sequence[_Read]) -> tuple[list[_Read], list[str]]:
    """Copies of a log tell nothing new, and would make its run look surer than it is."""
    first: dict[tuple[object, ...], _Read] = {}
    notes, kept = [], []
    for run in read:
        name, curve, batch_size, optimizer, settings = run
        if not curve.steps.size:
            raise BatchlensError(f"{name} has no record of the metric with a step. Leave it out.")
        if not (np.isfinite(curve.steps).all() and curve.steps[0] >= 0):
            raise BatchlensError(f"{name} must have steps that are finite and at least 0, got {curve.steps[0]:g}.")
        records = tuple(column.tobytes() for column in curve)
        same = first.setdefault((batch_size, optimizer, frozenset(settings.items()), *records), run)
        if same is run:
            kept.append(run)
        elif name != same.name:
            notes.append(f"{name} has the records of {same.name}: counted once.")
    return kept, notes


def _find_direction(metric: str, target: float, curves: list[Curve]) -> Direction:
    """The way that most runs went, which must lead some of them from where they start to the target.

    A run may be past the target at its first record, where that comes late; not all of them.
    """
    finite = [curve.values[np.isfinite(curve.values)] for curve in curves]
    finite = [values for values in finite if values.size]
    if not finite:  # all diverged: none gets anywhere
        return "down"
    starts = np.array([values[0] for values in finite])
    rising = float(np.median(np.sign([np.median(values) - values[0] for values in finite])))
    if starts.min() < target and (rising > 0 or (rising == 0 and starts.max() < target)):
        return "up"
    if starts.max() > target and (rising < 0 or (rising == 0 and starts.min() > target)):
        return "down"
    raise ValueError(
        f"`direction` must be given, up or down: {metric} starts between {starts.min():g} and {starts.max():g} and "
        f"mostly {'rises' if rising > 0 else 'falls'}, away from the target {target:g}. Is the target too easy?"
    )


def _identify(log: Log, pattern: str | None) -> tuple[float, str, dict[str, Setting]]:
    """Batch size, optimizer and settings, those in the name before those in the log."""
    told: dict[str, Setting] = {**log.settings, "optimizer": log.optimizer}
    if log.batch_size is not None:
        told[_SIZE] = log.batch_size
    if pattern is not None:
        told |= _search(log.name, pattern)
    if _SIZE not in told:
        raise BatchlensError(
            f"{log.name} does not say its batch size. Give batch_size_from (--batch-size-from), a pattern that finds "
            r"it in the path, such as 'b(\d+)'."
        )
    size, optimizer = told.pop(_SIZE), str(told.pop("optimizer"))
    try:
        return require_number(_SIZE, float(size), low=0, closed=(False, True)), optimizer, told
    except ValueError:
        raise BatchlensError(f"{log.name}: the batch size must be finite and above 0, got {size}.") from None


def _search(name: str, pattern: str) -> dict[str, Setting]:
    """What the groups of the pattern's last match hold."""
    compiled, group = _compile(pattern)
    matches = list(compiled.finditer(name.replace("\\", "/")))
    if not matches:
        raise BatchlensError(f"{name} does not match batch_size_from, {pattern}.")
    found: dict[str, Setting] = {key: value for key, value in matches[-1].groupdict().items() if value is not None}
    return found | {_SIZE: matches[-1][group] or "nothing"}


def _compile(pattern: str) -> tuple[re.Pattern[str], int]:
    """The pattern, and which of its groups is the batch size: that of the name, else the first without one."""
    try:
        compiled = re.compile(pattern)
    except (re.error, TypeError, RecursionError, OverflowError) as error:
        kind = TypeError if isinstance(error, TypeError) else ValueError
        raise kind(f"`batch_size_from` must be a regular expression, got {pattern!r}: {error}.") from None
    unnamed = sorted({*range(1, compiled.groups + 1)} - {*compiled.groupindex.values()})
    group = compiled.groupindex.get(_SIZE, unnamed[0] if unnamed else None)
    if group is None or not isinstance(pattern, str):
        raise ValueError(rf"`batch_size_from` must have a group for the batch size, such as 'b(\d+)', got {pattern!r}.")
    return compiled, group
