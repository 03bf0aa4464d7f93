"""How a critical batch size is read off curves of steps against batch size, many at a time.

At small batch sizes twice the batch halves the steps (*perfect scaling*, slope -1 in a log-log plot); at large
ones the steps no longer fall (the *plateau*, slope 0).  The critical batch size lies between.

Which regimes a curve shows is judged at its two ends.  An *end* is made of the batch sizes within a factor of 4 of
the smallest (the largest), so that a fine grid counts no more than a coarse one; its slope is the least-squares
slope of log steps over log batch size there, or that of the two outermost points where no other is so close.
The small end shows perfect scaling where its slope is -0.8 or steeper, the large end the plateau where its slope is
-0.2 or flatter (rising included: measured curves may).  As a curve bends one way only, no longer stretch from the
same side can be steeper (flatter) than the end; so one that is steep (flat) enough shows the regime as well, whatever
the noise at the end says.  Only batch sizes that reached the target, after at least one step, count.
"""

import math
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple, get_args

import numpy as np
import numpy.typing as npt

from batchlens._arrays import BoolArray, FloatArray

Definition = Literal["knee", "overhead", "fit"]
Relation = Literal["=", ">=", "<=", "unknown"]
Steps = float | int | None

# The status of a point that may still change.
UNFINISHED = "unfinished"
DEFINITIONS: tuple[Definition, ...] = get_args(Definition)
END_WIDTH = 4.0
PERFECT_SLOPE = -0.8
HALF_WAY_SLOPE = -0.5
PLATEAU_SLOPE = -0.2

# How far beyond the batch sizes given the fit looks for B_crit: from there on the curve is a straight line.
FIT_MARGIN = math.log(1e6)
_FIT_GRID = 800
_FIT_STEPS = 60
_FIT_ACCURACY = 1e-12
_ROUNDING = 1e-9
_PERFECT_EXCESS = 0.2
_ALL = slice(None)
_TINY = 1e-300  # instead of 0 in a denominator
RELATIONS: dict[int, Relation] = {0: "=", 1: ">=", -1: "<="}


class Readings(NamedTuple):
    """Logarithms of critical batch sizes, one per curve; side 0: a number, 1: a lower bound, -1: an upper bound."""

    log_value: FloatArray
    side: npt.NDArray[np.int64]


def read_curves(
    definition: Definition, log_batch: FloatArray, log_steps: FloatArray, tolerance: float = 0.2
) -> Readings:
    """Critical batch sizes of many curves over the same batch sizes: `log_steps` has one curve in each row."""
    log_value, side = _READERS[definition](log_batch, log_steps, tolerance)
    side = np.where(log_value > log_batch[-1], 1, np.where(log_value < log_batch[0], -1, side))
    return Readings(np.clip(log_value, log_batch[0], log_batch[-1]), side)


def fit_curves(log_batch: FloatArray, log_steps: FloatArray) -> tuple[FloatArray, FloatArray]:
    """log B_crit and log S_min of steps = S_min (1 + B_crit / B) for every row of `log_steps`.

    S_min is eliminated.  What is left is a function of log B_crit alone: its least value on a grid, then Gauss-Newton
    steps inside the two grid cells around it, bisection where one would leave them.
    """
    centred = log_steps - log_steps.mean(axis=1, keepdims=True)
    grid = np.linspace(log_batch[0] - FIT_MARGIN, log_batch[-1] + FIT_MARGIN, _FIT_GRID)
    shapes = np.logaddexp(0, grid[:, None] - log_batch)
    shapes -= shapes.mean(axis=1, keepdims=True)
    best = np.argmin((shapes**2).sum(axis=1) - 2 * centred @ shapes.T, axis=1)
    low, high = grid[np.maximum(best - 1, 0)], grid[np.minimum(best + 1, _FIT_GRID - 1)]
    log_critical = (low + high) / 2
    for _ in range(_FIT_STEPS):
        shape = np.logaddexp(0, log_critical[:, None] - log_batch)
        growth = np.exp(log_critical[:, None] - log_batch - shape)
        shape -= shape.mean(axis=1, keepdims=True)
        growth -= growth.mean(axis=1, keepdims=True)
        gradient = ((shape - centred) * growth).sum(axis=1)
        low, high = np.where(gradient < 0, log_critical, low), np.where(gradient < 0, high, log_critical)
        newton = log_critical - gradient / np.maximum((growth**2).sum(axis=1), _TINY)
        before, log_critical = log_critical, np.where((low < newton) & (newton < high), newton, (low + high) / 2)
        if np.abs(log_critical - before).max() < _FIT_ACCURACY:
            break
    log_least = (log_steps - np.logaddexp(0, log_critical[:, None] - log_batch)).mean(axis=1)
    return log_critical, log_least


def predict_curves(log_batch: FloatArray, log_critical: FloatArray, log_least: FloatArray) -> FloatArray:
    """Steps of the fitted curves, one in each row, at other batch sizes."""
    with np.errstate(over="ignore"):
        steps: FloatArray = np.exp(log_least[:, None] + np.logaddexp(0, log_critical[:, None] - log_batch))
    return steps


def _read_knee(log_batch: FloatArray, log_steps: FloatArray, _: float) -> Readings:
    examples, perfect = perfect_examples(log_batch, log_steps)
    large = _near(log_batch, log_batch[-1])
    stretches = [slice(-count, None) for count in range(max(int(large.sum()), 2), log_batch.size + 1)]
    flat = np.max([_slope(log_batch, log_steps, stretch) for stretch in stretches], axis=0) >= PLATEAU_SLOPE
    plateau = np.where(flat, log_steps[:, large].mean(axis=1), log_steps[:, -1])
    all_perfect = log_batch[-1] + log_steps[:, -1] - examples <= math.log1p(_PERFECT_EXCESS)
    least = (log_batch + log_steps)[:, _near(log_batch, log_batch[0])].min(axis=1) - log_steps[:, -1]
    before = np.where(all_perfect, log_batch[-1], least)
    neither = _bound_by_slope(log_batch, log_steps)
    log_value = np.where(perfect & ~flat, before, examples - plateau)
    side = perfect.astype(np.int64) - flat
    unseen = ~(perfect | flat)
    return Readings(np.where(unseen, neither.log_value, log_value), np.where(unseen, neither.side, side))


def _read_overhead(log_batch: FloatArray, log_steps: FloatArray, tolerance: float) -> Readings:
    examples, perfect = perfect_examples(log_batch, log_steps)
    excess = log_batch + log_steps - examples[:, None]
    allowed = math.log1p(tolerance)
    last = log_batch.size - 1
    within = last - np.argmax((excess <= allowed + _ROUNDING)[:, ::-1], axis=1)
    after = np.minimum(within + 1, last)
    rows = np.arange(within.size)
    below, above = excess[rows, within], excess[rows, after]
    part = np.clip((allowed - below) / np.where(above > below, above - below, 1), 0, 1)
    between = log_batch[within] + part * (log_batch[after] - log_batch[within])
    side = np.where(perfect, np.where(within == last, 1, 0), -1)
    return Readings(np.where(perfect, between, log_batch[after]), side)


def _read_fit(log_batch: FloatArray, log_steps: FloatArray, _: float) -> Readings:
    log_critical, _least = fit_curves(log_batch, log_steps)
    outside = (log_critical < log_batch[0]) | (log_critical > log_batch[-1])
    if log_batch.size > 2:
        return Readings(log_critical, np.zeros(log_critical.size, dtype=np.int64))
    bound = _bound_by_slope(log_batch, log_steps)
    return Readings(np.where(outside, log_critical, bound.log_value), bound.side)


_READERS: dict[Definition, Callable[[FloatArray, FloatArray, float], Readings]] = {
    "knee": _read_knee,
    "overhead": _read_overhead,
    "fit": _read_fit,
}


def perfect_examples(log_batch: FloatArray, log_steps: FloatArray) -> tuple[FloatArray, BoolArray]:
    """log N_0 of every row, and whether its small end shows perfect scaling."""
    log_examples = log_batch + log_steps
    if log_batch.size < 2:
        return log_examples[:, 0], np.zeros(len(log_steps), dtype=np.bool_)
    small = _near(log_batch, log_batch[0])
    stretches = [slice(count) for count in range(max(int(small.sum()), 2), log_batch.size + 1)]
    perfect = np.min([_slope(log_batch, log_steps, stretch) for stretch in stretches], axis=0) <= PERFECT_SLOPE
    return np.where(perfect, log_examples[:, small].mean(axis=1), log_examples[:, 0]), perfect


def _near(log_batch: FloatArray, log_extreme: float) -> BoolArray:
    near: BoolArray = np.abs(log_batch - log_extreme) <= math.log(END_WIDTH) + _ROUNDING
    return near


def _slope(log_batch: FloatArray, log_steps: FloatArray, stretch: slice = _ALL) -> FloatArray:
    """Least-squares slope of every row over some of the batch sizes."""
    offset = log_batch[stretch] - log_batch[stretch].mean()
    slope: FloatArray = log_steps[:, stretch] @ offset / max(offset @ offset, _TINY)
    return slope


def _bound_by_slope(log_batch: FloatArray, log_steps: FloatArray) -> Readings:
    """What is left to say of a curve that shows neither regime."""
    before = _slope(log_batch, log_steps) < HALF_WAY_SLOPE
    return Readings(np.where(before, log_batch[0], log_batch[-1]), np.where(before, 1, -1))


def reached(batch_sizes: Sequence[float], steps: Sequence[Steps]) -> tuple[FloatArray, FloatArray]:
    """Logarithms of the batch sizes that tell, and of their steps."""
    pairs = [(size, count) for size, count in zip(batch_sizes, steps, strict=True) if count]
    logs = np.log(np.array(pairs, dtype=np.float64).reshape(-1, 2))
    return logs[:, 0], logs[:, 1]
