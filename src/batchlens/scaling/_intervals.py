"""Intervals from resampling, shared by one's own runs and by sweeps."""

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from batchlens._arrays import FloatArray
from batchlens.scaling._bend import Bends
from batchlens.scaling._critical import Definition, Readings, Relation, read_curves, read_fitted, within

if TYPE_CHECKING:
    from batchlens.scaling.curve import CriticalBatchSize

CONFIDENCE = 0.95


class Interval(NamedTuple):
    """Where the truth lies, at 95% confidence; None: open, the runs do not limit it on that side.

    >>> print(Interval(96.0, None))
    96 to ?
    """

    low: float | None
    high: float | None

    def __str__(self) -> str:
        low, high = ("?" if end is None else f"{end:,.3g}" if end < 1000 else f"{end:,.0f}" for end in self)
        return f"{low} to {high}"


def open_end(interval: Interval, relation: Relation) -> Interval:
    """The interval of a bound: what lies beyond the batch sizes asked for is not known.

    >>> print(open_end(Interval(4.0, 16.0), ">="))
    4 to ?
    """
    low, high = interval
    return Interval(None if relation == "<=" else low, None if relation == ">=" else high)


class Estimate(NamedTuple):
    """A critical batch size and its interval; None where the runs give no interval."""

    critical_batch_size: "CriticalBatchSize"
    interval: Interval | None


def critical_ends(
    definition: Definition, log_batch: FloatArray, log_steps: FloatArray, bends: Bends
) -> tuple[FloatArray, FloatArray]:
    """Between which logarithms the critical batch size of every curve lies; infinite where it is not bounded.

    Of the definition "bend" it is that of `bends`, fitted to the curves by `resample_bends`.
    """
    if definition == "bend":
        return _ends(within(log_batch, read_fitted(log_batch, log_steps, bends.log_critical)))
    return _ends(read_curves(definition, log_batch, log_steps))


def _ends(readings: Readings) -> tuple[FloatArray, FloatArray]:
    log_value, side = readings
    return np.where(side < 0, -np.inf, log_value), np.where(side > 0, np.inf, log_value)


def percentile_interval(low: FloatArray, high: FloatArray) -> tuple[float, float]:
    """Percentiles, over resamples, of what is known from below and from above; infinite where it is not known."""
    tail = (1 - CONFIDENCE) / 2
    return (
        float(np.quantile(low, tail, method="inverted_cdf")),
        float(np.quantile(high, 1 - tail, method="inverted_cdf")),
    )


def interval_of_logs(log_low: float, log_high: float) -> Interval | None:
    """The interval between two logarithms, open where they are infinite; None where both are."""
    if math.isinf(log_low) and math.isinf(log_high):
        return None
    return Interval(*(None if math.isinf(end) else math.exp(end) for end in (log_low, log_high)))
