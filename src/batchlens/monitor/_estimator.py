"""From squared gradients of two batch sizes to a noise scale with an interval; no torch.

Notation

    g_b        gradient of a batch of b examples: mean G, covariance Sigma / b
    noise      tr Sigma, signal |G|^2: E |g_b|^2 = signal + noise / b, whatever b is
    scale      noise / signal, the batch size at which the two are alike: B_simple of McCandlish et al. 2018

Any other pair whose ratio is wanted (tr(HC) and G'HG) goes through `ratio_of_means` in the same way. A step's estimate
of the signal may be negative, and is left so: only means over steps are divided.

The means of both parts have the covariance that differences between successive steps show (von Neumann), to which a
slow drift of either part adds next to nothing. The interval is Fieller's: all ratios r for which the mean of
noise - r signal is within Student's quantile of zero. Where the signal cannot be told from zero, it has no upper end.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy import stats

from batchlens._arrays import FloatArray

# Fewest steps from which an interval is given.
LEAST_STEPS = 3


class Parts(NamedTuple):
    """What one step says, without bias, and how much it counts."""

    noise: float
    signal: float
    weight: float = 1.0


def two_sizes(small: float, large: float, small_batch: float, large_batch: float) -> Parts:
    """Noise and signal from mean squared gradients of two batch sizes; the step counts by its examples.

    >>> two_sizes(small=5.0, large=2.0, small_batch=1, large_batch=4)
    Parts(noise=4.0, signal=1.0, weight=4)
    """
    noise = (small - large) / (1 / small_batch - 1 / large_batch)
    signal = (large_batch * large - small_batch * small) / (large_batch - small_batch)
    return Parts(noise, signal, large_batch)


@dataclass(frozen=True)
class Ratio:
    """A ratio of means.

    Arguments:
        noise: mean of the numerators.
        signal: mean of the denominators.
        steps: how many steps were given.
        effective_steps: how many that count alike would tell as much.
        value: the ratio; None where the signal is not above zero.
        interval: all ratios from 0 that the steps allow, the upper end inf where there is none; None with too few
            steps, or where no such ratio is allowed.
        relative_error: half the width of the interval over the value, as it is where the signal is well known; inf
            where it is not above zero.
        signal_error: half the width of the signal's own interval.
    """

    noise: float
    signal: float
    steps: int
    effective_steps: float
    value: float | None
    interval: tuple[float, float] | None
    relative_error: float
    signal_error: float


def ratio_of_means(parts: FloatArray, ages: FloatArray | None = None, confidence: float = 0.9) -> Ratio:
    """The ratio of the means of both parts over steps.

    Arguments:
        parts: (steps, 3): noise, signal and weight of each step, in order.
        ages: factors of the weights, for steps that count less the older they are; None: all alike.
        confidence: of the interval.

    >>> ratio = ratio_of_means(np.array([[4.0, 2.1, 1.0], [4.2, 1.9, 1.0], [3.8, 2.0, 1.0], [4.0, 2.0, 1.0]]))
    >>> round(ratio.value, 3), tuple(round(end, 2) for end in ratio.interval)
    (2.0, (1.77, 2.26))
    """
    weights = parts[:, 2] if ages is None else parts[:, 2] * ages
    weights = weights / weights.sum()
    noise, signal = (float(mean) for mean in weights @ parts[:, :2])
    value = noise / signal if signal > 0 else None
    steps, effective = len(parts), float(1 / (weights**2).sum())
    if steps < LEAST_STEPS:
        return Ratio(noise, signal, steps, effective, value, None, math.inf, math.inf)
    covariance = _covariance_of_means(parts[:, :2] - [noise, signal], weights)
    quantile = float(stats.t.ppf((1 + confidence) / 2, _degrees_of_freedom(weights)))
    relative_error = math.inf
    if value is not None:
        direction = np.array([1, -value])
        relative_error = quantile * math.sqrt(max(0.0, direction @ covariance @ direction)) / max(abs(noise), 1e-300)
    interval = fieller((noise, signal), quantile**2 * covariance)
    signal_error = quantile * math.sqrt(covariance[1, 1])
    return Ratio(noise, signal, steps, effective, value, interval, relative_error, signal_error)


def _covariance_of_means(centred: FloatArray, weights: FloatArray) -> FloatArray:
    """Of weighted means of steps, each with noise of its own, from differences between successive steps."""
    steps = len(centred)
    jumps = np.diff(centred * weights[:, None], axis=0)
    covariance: FloatArray = jumps.T @ jumps / 2 * steps / (steps - 1)
    return covariance


def _degrees_of_freedom(weights: FloatArray) -> float:
    """Of that covariance: two thirds of the steps that count, since neighbouring differences share a step."""
    count = (weights**2).sum() ** 2 / (weights**4).sum()
    return float(max(1.0, 2 * (count - 1) ** 2 / (3 * count - 4))) if count > 2 else 1.0


def fieller(means: tuple[float, float], spread: FloatArray) -> tuple[float, float] | None:
    """All r from 0 with (noise - r signal)^2 <= (1, -r) spread (1, -r)': one interval, or None where there is none.

    >>> fieller((4.0, 2.0), np.zeros((2, 2)))
    (2.0, 2.0)
    >>> fieller((4.0, 0.1), np.diag([0.0, 1.0]))[1]
    inf
    """
    noise, signal = means
    (noise_spread, both), (_, signal_spread) = spread.tolist()
    square, middle, constant = signal**2 - signal_spread, noise * signal - both, noise**2 - noise_spread
    root = math.sqrt(max(0.0, middle**2 - square * constant))
    if square > 0:  # the signal is not zero
        low, high = (middle - root) / square, (middle + root) / square
        return None if signal < 0 or high < 0 else (max(0.0, low), high)
    if constant <= 0:  # the noise may be zero as well: every ratio is allowed
        return 0.0, math.inf
    if noise < 0:
        return None
    return constant / (middle + root) if middle + root > 0 else math.inf, math.inf


def steps_to_precision(ratio: Ratio, precision: float) -> tuple[int, bool] | None:
    """How many steps more it takes until the interval reaches `precision` of the value to either side.

    The error falls with the square root of the steps. Where the signal is not above zero, the largest that it may be
    takes its place, and the number is a lower bound (the second entry is then False). None: too few steps to tell.
    """
    if ratio.steps < LEAST_STEPS:
        return None
    error, told = ratio.relative_error, ratio.value is not None
    if not told:
        largest = ratio.signal + ratio.signal_error
        if largest <= 0:
            return None
        error = ratio.signal_error / largest
    return max(0 if told else 1, math.ceil(ratio.effective_steps * ((error / precision) ** 2 - 1))), told
