"""What the seeds that report say: a geometric mean and its interval."""

import math
from collections.abc import Sequence
from statistics import fmean, stdev

from scipy import stats

from batchlens.scaling._intervals import Interval
from batchlens.sweep._trial import Trial

LEVEL = 0.9


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


def least_half_width(reports: Sequence[Trial]) -> float | None:
    """The same, and where a seed missed the target, what it is if that took no longer than it was given."""
    return None if len(reports) < 2 else _spread(log_steps(reports))


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
    return float(stats.t.ppf(0.5 + LEVEL / 2, len(logs) - 1)) * stdev(logs) / math.sqrt(len(logs))


def steps_interval(reports: Sequence[Trial]) -> Interval | None:
    """Of the geometric mean; without an upper end where a seed has missed the target."""
    found = None if mean_steps(reports) is None else interval_of(log_steps(reports))
    return Interval(found.low, None) if found is not None and has_missed(reports) else found
