"""Ready-made ramps of the batch size, with their first batch size and learning rate tuned."""

import math

import numpy as np
from scipy.optimize import minimize_scalar

from batchlens._arrays import FloatArray, IntArray
from batchlens.theory._batch_course import BatchCourse
from batchlens.theory._course import Plan

RAMPS = ("doubling", "square_root_decay", "constant")
# Learning rates tried before the best is refined, over this many e-folds below the largest stable one.
_PEAKS, _REACH = 40, 14.0
# First batch sizes are told apart to this part.
_RESOLUTION = 1e-4


def tune_ramp(course: BatchCourse, shape: str, stages: int, target: float) -> tuple[Plan, FloatArray] | None:
    """The ramp with the largest first batch size, so the fewest steps, that meets the target; None where none does."""
    low, high = 0.0, math.log(course.examples / stages)
    best = _tune_rate(course, shape, stages, low)
    if best[0].risk > target:
        return None
    while high - low > _RESOLUTION:
        middle = (low + high) / 2
        found = _tune_rate(course, shape, stages, middle)
        if found[0].risk <= target:
            low, best = middle, found
        else:
            high = middle
    return best


def _tune_rate(course: BatchCourse, shape: str, stages: int, log_first: float) -> tuple[Plan, FloatArray]:
    """The best learning rate of a ramp from a first batch size."""
    batches, lengths = _draw(course.examples, shape, stages, math.exp(log_first))
    decay: FloatArray = np.ones(stages)
    if shape == "square_root_decay":
        decay = decay * 2.0 ** (-0.5 * np.arange(stages))
    momentum = course.momentum or 0.0

    def risk(log_rate: float) -> float:
        value = course.follow(math.exp(log_rate) * decay, momentum, batches, lengths)[0]
        return value if math.isfinite(value) else math.inf

    highest = math.log(course.cap(momentum))
    rates = np.linspace(highest - _REACH, highest, _PEAKS)
    place = int(np.argmin([risk(rate) for rate in rates]))
    around = rates[max(place - 1, 0)], rates[min(place + 1, _PEAKS - 1)]
    found = minimize_scalar(risk, bounds=around, method="bounded", options={"xatol": 1e-6})
    rate = min((float(found.x), float(rates[place])), key=risk)
    return Plan(math.exp(rate) * decay, lengths, risk(rate), momentum), batches


def _draw(examples: float, shape: str, stages: int, first: float) -> tuple[FloatArray, IntArray]:
    """Batch sizes and steps of stages that use as many examples each, to a step."""
    batches = first * (1.0 if shape == "constant" else 2.0 ** np.arange(stages)) * np.ones(stages)
    lengths = np.maximum(np.floor(examples / stages / batches), 1).astype(np.int64)
    return batches, lengths
