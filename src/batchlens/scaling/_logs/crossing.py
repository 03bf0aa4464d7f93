"""The step at which a run reaches its target.

The curve is smoothed by a running median: that of the records no further from a step than a part of it, `smoothing`.
Where records are rare each stands for itself, and what windows that grow with the step do to it is about the same
factor at every batch size.  Of an even number of records the worse of the two in the middle counts: a step has reached
the target where more than half of the records around it have.  Near the end the window shrinks to stay as wide after
the step as before it, down to the last record alone; else a run that stopped at its target would have missed it.
Between records the step is interpolated on a straight line.
"""

import math
from typing import Literal, NamedTuple

import numpy as np

from batchlens._arrays import FloatArray
from batchlens.scaling._logs.log import Curve

Direction = Literal["up", "down"]


class Crossing(NamedTuple):
    """Steps to the target, the seconds they took (None: not known), and whether it was reached by the first record."""

    steps: float
    seconds: float | None
    first: bool


def find_crossing(curve: Curve, target: float, direction: Direction, smoothing: float) -> Crossing | None:
    """Where the smoothed curve first reaches the target; None where it does not. What is nan has not reached it."""
    sign = -1.0 if direction == "up" else 1.0
    cost = np.where(np.isnan(curve.values), math.inf, sign * curve.values)
    steps = curve.steps
    starts, ends = _windows(steps, smoothing)
    reached = np.concatenate([[0], np.cumsum(cost <= sign * target)])
    hits = np.flatnonzero(2 * (reached[ends] - reached[starts]) > ends - starts)
    if not hits.size:
        return None
    hit = int(hits[0])
    if hit == 0:
        return Crossing(float(steps[0]), _known(curve.seconds[0]), first=True)
    before, after = (_median(cost[starts[index] : ends[index]]) for index in (hit - 1, hit))
    part = (before - sign * target) / (before - after) if math.isfinite(before) and math.isfinite(after) else 1.0
    between = [(1 - part) * values[hit - 1] + part * values[hit] for values in (steps, curve.seconds)]
    return Crossing(float(between[0]), _known(between[1]), first=False)


def _windows(steps: FloatArray, smoothing: float) -> tuple[FloatArray, FloatArray]:
    """For each record, the first in its window and the first after it."""
    reach = np.minimum(smoothing * steps, steps[-1] - steps) + 1e-9 * steps  # rounding
    starts = np.searchsorted(steps, steps - reach, side="left")
    ends = np.searchsorted(steps, steps + reach, side="right")
    return starts, ends


def _median(costs: FloatArray) -> float:
    return float(np.partition(costs, costs.size // 2)[costs.size // 2])


def _known(seconds: float) -> float | None:
    return float(seconds) if math.isfinite(seconds) and seconds > 0 else None
