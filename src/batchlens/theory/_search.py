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
    straight line in the logarithm of the steps, which regula falsi (Illinois) finds in a few evaluations.

    >>> fewest_steps(lambda steps: math.log(123.4 / steps), 1, 10_000, math.log(123.4 / 10_000))
    124
    """
    above, below = None, min(excess_at_high, 0.0)
    while high - low > max(1.0, high * RESOLUTION):
        if above is None:
            guess = high * math.exp(min(below, -1e-6))  # as if the risk were proportional to 1 / steps
        else:
            guess = low * (high / low) ** (above / (above - below)) if low else high / 2
        steps = min(max(round(guess), low + 1), high - 1)
        value = excess(steps)
        if value <= 0.0:
            high, below = steps, value
            above = None if above is None else above / 2
        else:
            low, above, below = steps, value, below / 2
    return high
