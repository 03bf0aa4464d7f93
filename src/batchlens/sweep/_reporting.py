"""What the seeds that report say: a geometric mean and its interval."""

import math
from collections.abc import Sequence
from statistics import fmean, stdev, variance

from scipy import stats

from batchlens.scaling._intervals import Interval
from batchlens.sweep._trial import Trial

LEVEL = 0.9
# As how many seeds more the scatter of all cells counts in each of them.
_SHARED = 4


def seed_steps(trial: Trial) -> float | None:
    """What a seed took; None where it missed the target."""
    return None if trial.steps is None else max(trial.interpolated or float(trial.steps), 1e-3)


def log_steps(reports: Sequence[Trial]) -> list[float]:
    """Of every seed; one that missed the target takes longer than it was given, which bounds the mean from below."""
    return [math.log(seed_steps(trial) or max(trial.steps_taken, 1)) for trial in reports]


def has_missed(reports: Sequence[Trial]) -> bool:
    """Whether a seed has missed the target."""
    return any(trial.steps is None for trial in reports)


def mean_steps(reports: Sequence[Trial]) -> float | None:
    """The geometric mean, where a seed has missed the target a lower bound of it; None where all have."""
    if all(trial.steps is None for trial in reports):
        return None
    return math.exp(fmean(log_steps(reports)))


def half_width(reports: Sequence[Trial]) -> float | None:
    """Half the interval of the mean log steps, by Student's distribution; None where there are too few seeds.

    A seed that missed the target leaves it open.
    """
    return None if len(reports) < 2 or has_missed(reports) else _spread(log_steps(reports))


def shared_half_widths(cells: Sequence[Sequence[Trial]]) -> list[float]:
    """The same of many cells, each with two seeds at least, where the scatter of all counts in each beside its own.

    Few seeds lie close together by chance too: by their own scatter alone such a cell would look sure, and get no more
    seeds. One that missed the target counts as if it took no longer than it was given.
    """
    logs = [log_steps(reports) for reports in cells]
    freedoms, variances = [len(cell) - 1 for cell in logs], [variance(cell) for cell in logs]
    weighted = [freedom * own for freedom, own in zip(freedoms, variances, strict=True)]
    shared = math.fsum(weighted) / max(sum(freedoms), 1)
    widths = []
    for cell, freedom, own in zip(logs, freedoms, variances, strict=True):
        both = (_SHARED * shared + freedom * own) / (_SHARED + freedom)
        widths.append(_quantile(_SHARED + freedom) * math.sqrt(both / len(cell)))
    return widths


def interval_of(logs: Sequence[float]) -> Interval | None:
    """Of the geometric mean of steps whose logarithms these are."""
    if len(logs) < 2:
        return None
    mean, width = fmean(logs), _spread(logs)
    return Interval(math.exp(mean - width), math.exp(mean + width))


def most_steps(reports: Sequence[Trial]) -> float | None:
    """What one more seed would stay below in 95 of 100 cases; None where seeds are too few or missed the target."""
    if len(reports) < 2 or has_missed(reports):
        return None
    logs = log_steps(reports)
    return math.exp(fmean(logs) + _spread(logs) * math.sqrt(len(logs) + 1))


def _spread(logs: Sequence[float]) -> float:
    return _quantile(len(logs) - 1) * stdev(logs) / math.sqrt(len(logs))


def _quantile(freedom: int) -> float:
    return float(stats.t.ppf(0.5 + LEVEL / 2, freedom))


def steps_interval(reports: Sequence[Trial]) -> Interval | None:
    """Of the geometric mean; without an upper end where a seed has missed the target."""
    found = None if mean_steps(reports) is None else interval_of(log_steps(reports))
    return Interval(found.low, None) if found is not None and has_missed(reports) else found
