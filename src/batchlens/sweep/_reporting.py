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
    """Of those that reached the target."""
    return [math.log(steps) for steps in map(seed_steps, reports) if steps is not None]


def mean_steps(reports: Sequence[Trial]) -> float | None:
    """The geometric mean; None where no seed has reached the target."""
    logs = log_steps(reports)
    return math.exp(fmean(logs)) if logs else None


def half_width(reports: Sequence[Trial]) -> float | None:
    """Half the interval of the mean log steps, by Student's distribution; None where there are too few seeds.

    A seed that missed the target leaves it open.
    """
    logs = log_steps(reports)
    if len(logs) < 2 or len(logs) < len(reports):
        return None
    return float(stats.t.ppf(0.5 + LEVEL / 2, len(logs) - 1)) * stdev(logs) / math.sqrt(len(logs))


def steps_interval(reports: Sequence[Trial]) -> Interval | None:
    """Of the geometric mean; without an upper end where a seed has missed the target."""
    logs, width = log_steps(reports), half_width(reports)
    if not logs or len(reports) < 2:
        return None
    if width is None:
        return Interval(math.exp(min(logs)), None)
    return Interval(math.exp(fmean(logs) - width), math.exp(fmean(logs) + width))
