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
from batchlens.scaling._bend import fit_bends
from batchlens.scaling._hyperbola import fit_curves

Definition = Literal["knee", "overhead", "fit", "bend"]
Relation = Literal["=", ">=", "<=", "unknown"]
Steps = float | int | None

# The status of a point that may still change.
UNFINISHED = "unfinished"
DEFINITIONS: tuple[Definition, ...] = get_args(Definition)
END_WIDTH = 4.0
PERFECT_SLOPE = -0.8
HALF_WAY_SLOPE = -0.5
PLATEAU_SLOPE = -0.2

_ROUNDING = 1e-9
_PERFECT_EXCESS = 0.2
_ALL = slice(None)
_TINY = 1e-300  # instead of 0 in a denominator
RELATIONS: dict[int, Relation] = {0: "=", 1: ">=", -1: "<="}
_WORDS = {"=": "", ">=": "at least ", "<=": "at most "}


class Readings(NamedTuple):
    """Logarithms of critical batch sizes, one per curve; side 0: a number, 1: a lower bound, -1: an upper bound."""

    log_value: FloatArray
    side: npt.NDArray[np.int64]


def bound_words(value: float, relation: Relation) -> str:
    """A critical batch size or its bound, in words.

    >>> bound_words(4096.0, ">=")
    'at least 4,096'
    """
    return f"{_WORDS[relation]}{value:{',.0f' if value >= 100 else '.3g'}}"


def read_curves(
    definition: Definition, log_batch: FloatArray, log_steps: FloatArray, tolerance: float = 0.2
) -> Readings:
    """Critical batch sizes of many curves over the same batch sizes: `log_steps` has one curve in each row."""
    return within(log_batch, _READERS[definition](log_batch, log_steps, tolerance))


def within(log_batch: FloatArray, readings: Readings) -> Readings:
    """What lies beyond the batch sizes given is a bound."""
    log_value, side = readings
    side = np.where(log_value > log_batch[-1], 1, np.where(log_value < log_batch[0], -1, side))
    return Readings(np.clip(log_value, log_batch[0], log_batch[-1]), side)


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
    return read_fitted(log_batch, log_steps, fit_curves(log_batch, log_steps)[0])


def _read_bend(log_batch: FloatArray, log_steps: FloatArray, _: float) -> Readings:
    return read_fitted(log_batch, log_steps, fit_bends(log_batch, log_steps).log_critical)


def read_fitted(log_batch: FloatArray, log_steps: FloatArray, log_critical: FloatArray) -> Readings:
    """Fitted B_crit; of two points, which any curve fits, only bounds."""
    if log_batch.size > 2:
        return Readings(log_critical, np.zeros(log_critical.size, dtype=np.int64))
    outside = (log_critical < log_batch[0]) | (log_critical > log_batch[-1])
    bound = _bound_by_slope(log_batch, log_steps)
    return Readings(np.where(outside, log_critical, bound.log_value), bound.side)


_READERS: dict[Definition, Callable[[FloatArray, FloatArray, float], Readings]] = {
    "knee": _read_knee,
    "overhead": _read_overhead,
    "fit": _read_fit,
    "bend": _read_bend,
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
