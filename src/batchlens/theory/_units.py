"""Problems next to the ends of a double's range, in units that leave room for a search.

With curvature in units of sigma, h' = h / sigma, the same risk has c' = c / sigma, s' = s sigma, and learning rates in
units of sigma^(power - 1).
"""

import math

import numpy as np

from batchlens.theory._coordinates import weights
from batchlens.theory.problem import NoisyQuadratic

# A largest curvature of 2^-ROOM to 2^ROOM is left as it is.
_ROOM = 664


def rescaled(problem: NoisyQuadratic, power: float) -> tuple[NoisyQuadratic, float]:
    """The problem with its largest curvature within reach of a search, and the learning rate that 1 stands for then."""
    if not math.isfinite(problem.initial_risk):
        raise ValueError(f"`problem` must have a finite initial risk, got {problem.initial_risk}.")
    exponent = math.frexp(problem.curvature.max())[1]
    shift = exponent - min(max(exponent, -_ROOM), _ROOM)
    if shift == 0:
        return problem, 1.0
    weights(problem)  # refused here, its sentence has the user's numbers
    with np.errstate(over="ignore", under="ignore"):  # what overflows is refused
        curvature, noise, growth = (
            np.ldexp(column, -shift) for column in (problem.curvature, problem.noise, problem.noise_growth)
        )
        initial = np.ldexp(problem.initial, shift)
    return NoisyQuadratic(curvature, noise, initial, problem.count, growth), 2.0 ** (-shift * (1.0 - power))


def require_rate(rate: float) -> float:
    """A learning rate back in the user's units."""
    if not math.isfinite(rate):
        raise ValueError("`curvature` must allow learning rates below 1.8e+308, got one so small that none moves it.")
    return rate
