"""Ready-made schedules: what people use, with the peak tuned, to hold against the optimum."""

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
from scipy.ndimage import minimum_filter
from scipy.optimize import minimize_scalar

from batchlens._arrays import FloatArray
from batchlens._checks import require_choice, require_number, require_whole
from batchlens._shapes import SHAPES
from batchlens.theory._arguments import MAX_STEPS
from batchlens.theory._course import Course, Plan, make_course, split_evenly
from batchlens.theory.problem import NoisyQuadratic
from batchlens.theory.schedules import Schedule

# Pieces in which a smooth shape is followed; every step is its own piece below that.
_PIECES = 200
# Peaks tried before the best is refined: from one at which nothing moves to the largest stable one.
_PEAKS = 60
_BASINS = 6


def ready_made_schedule(
    problem: NoisyQuadratic,
    shape: str,
    batch_size: float,
    steps: int,
    learning_rate: float | None = None,
    momentum: float = 0.0,
    power: float = 0.0,
) -> Schedule:
    """A schedule of a usual shape over a number of steps, with its risk; the peak is tuned unless it is given.

    Arguments:
        problem: what is minimised.
        shape: "constant", "linear_decay", "cosine", "step_decay" or "warmup_stable_decay".
        batch_size: examples per step.
        steps: how many in all.
        learning_rate: the peak; None takes the one with the least final risk, up to the stability limit.
        momentum: the same throughout.
        power: preconditioning by H^-power.

    >>> problem = NoisyQuadratic.power_law(dim=10_000).binned(100, rounding="down")
    >>> round(ready_made_schedule(problem, "cosine", batch_size=256, steps=10_000).risk, 4)
    0.0287
    """
    course = _course(problem, shape, batch_size, momentum, power)
    steps = require_whole("steps", steps, low=1, high=MAX_STEPS)
    if learning_rate is None:
        plan = _tune_peak(course, shape, steps)
    else:
        plan = _draw(course, shape, steps, require_number("learning_rate", learning_rate, low=0) / course.unit)
    return Schedule._of(course, course.exact(plan))


def tune_ready_made(
    problem: NoisyQuadratic,
    shape: str,
    batch_size: float,
    target: float,
    momentum: float = 0.0,
    power: float = 0.0,
) -> Schedule:
    """The schedule of a usual shape that ends at the target after the fewest steps, its peak tuned.

    Arguments:
        problem: what is minimised.
        shape: as for `ready_made_schedule`.
        batch_size: examples per step.
        target: risk to reach at the end.
        momentum: the same throughout.
        power: preconditioning by H^-power.

    >>> problem = NoisyQuadratic.power_law(dim=10_000).binned(100, rounding="down")
    >>> tune_ready_made(problem, "linear_decay", batch_size=256, target=0.01).steps
    14639
    """
    course = _course(problem, shape, batch_size, momentum, power)
    target = require_number("target", target, low=0, closed=(False, True))
    plan = course.reach(target, lambda steps, _near: _tune_peak(course, shape, steps))
    return Schedule._of(course, plan)


def _course(problem: NoisyQuadratic, shape: str, batch_size: float, momentum: float, power: float) -> Course:
    momentum = require_number("momentum", momentum, 0, 1, closed=(True, False))
    require_choice("shape", shape, tuple(SHAPES))
    return make_course(problem, batch_size, _PIECES, momentum, power, None)


def _draw(course: Course, shape: str, steps: int, peak: float) -> Plan:
    """The learning rates for a given peak; their risk is still to be found."""
    lengths = split_evenly(steps, _PIECES)
    ends = np.cumsum(lengths)
    rates = peak * SHAPES[shape].at((ends - 0.5 * lengths) / steps)
    return Plan(rates, lengths, math.nan, course.momentum or 0.0)


def _tune_peak(course: Course, shape: str, steps: int) -> Plan:
    """The learning rates with the best peak."""

    def risk(log_peak: float) -> float:
        plan = _draw(course, shape, steps, math.exp(log_peak))
        value, _ = course.risk(plan.learning_rates, plan.momentum, plan.lengths)
        return value if math.isfinite(value) else math.inf

    momentum = course.momentum or 0.0
    highest = math.log(course.cap(momentum))
    lowest = math.log(0.01 * (1 - momentum) / (course.stiffest * steps))
    spread = np.linspace(min(lowest, highest - 1.0), highest, _PEAKS)
    large = highest + np.log(np.arange(1, _PEAKS + 1) / _PEAKS)  # where momentum's oscillations lie close together
    peaks = np.unique(np.concatenate([spread, large] if momentum else [spread]))
    risks = np.array([risk(peak) for peak in peaks])
    minima = np.flatnonzero(risks == minimum_filter(risks, size=3, mode="nearest"))
    best = sorted(minima.tolist(), key=lambda i: float(risks[i]))[:_BASINS]
    found = min((_descend(risk, peaks, i) for i in best), key=lambda result: result[1])
    return replace(_draw(course, shape, steps, math.exp(found[0])), risk=found[1])


def _descend(risk: Callable[[float], float], peaks: FloatArray, i: int) -> tuple[float, float]:
    """The least risk between the neighbours of a peak, and where; the ends count too."""
    around = peaks[max(i - 1, 0)], peaks[min(i + 1, peaks.size - 1)]
    found = minimize_scalar(risk, bounds=around, method="bounded", options={"xatol": 1e-6})
    return min(((float(found.x), float(found.fun)), (float(peaks[i]), risk(peaks[i]))), key=lambda result: result[1])
