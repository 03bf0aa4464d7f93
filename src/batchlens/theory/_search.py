"""The smallest number of steps that does."""

import math
from collections.abc import Callable

# Step counts closer than this, relatively, are not told apart; below 10^6 every single step is.
RESOLUTION = 1e-6


def excess_of(risk: float, target: float) -> float:
    """log(risk / target), the excess that `fewest_steps` looks at; finite where the risk is 0 or has diverged."""
    return math.log(min(max(risk / target, 1e-300), 1e300))


def fewest_steps(excess: Callable[[int], float], low: int, high: int, excess_at_high: float) -> int:
    """The smallest number of steps in (low, high] at which `excess` is at most 0, up to `RESOLUTION`.

    `excess` is the logarithm of risk over target; it is at most 0 at `high`, and falls along something close to a
    straight line in the logarithm of the steps, which regula falsi (Illinois) finds in a few evaluations.  Until one is
    above 0 the line goes through the last two, the first as if the risk were proportional to 1 / steps; where it is
    flat, strides grow by four.

    >>> fewest_steps(lambda steps: math.log(123.4 / steps), 1, 10_000, math.log(123.4 / 10_000))
    124
    """
    above, below = None, min(excess_at_high, 0.0)
    stride, last_above = below, None
    while high - low > max(1.0, high * RESOLUTION):
        if above is None:
            guess = high * math.exp(min(stride, -1e-6))
        else:
            guess = low * (high / low) ** (above / (above - below)) if low else high / 2
        steps = min(max(round(guess), low + 1), high - 1)
        value = excess(steps)
        if value > 0.0:
            below = below / 2 if last_above else below
            low, above, last_above = steps, value, True
            continue
        if above is None:
            slope = (value - below) / math.log(high / steps)
            stride = max(value / slope, 4 * stride) if slope > 0 else 4 * stride
        elif not last_above:
            above /= 2
        high, below, last_above = steps, value, False
    return high
