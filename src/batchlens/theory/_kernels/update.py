"""One update, written once: all that tells one rule from another.

Notation as in `maps`.  A step of any rule is

    theta <- theta - a (kick (theta + noise) + carry u)
    u     <- momentum u + theta + noise

with u before the step.  Kick and carry depend on momentum alone; the heavy ball has 1 and momentum, Nesterov 1 +
momentum and momentum^2.  Everything else in this file follows from them, in the form that loses no digits: the
derivatives, the rate beyond which a coordinate is unstable, and the polynomial whose roots its motion follows.

Functions without a decorator take arrays as well; kernels compile them into themselves with `merged`.
"""

from typing import TypeVar

import numpy as np

from batchlens._arrays import FloatArray
from batchlens.theory._kernels.compiling import fused_multiply_add, merged

_N = TypeVar("_N", float, FloatArray)


@merged
def kick_and_carry(momentum: float, nesterov: bool) -> tuple[float, float, float, float]:
    """Kick, what rounding took from it, carry, what rounding took from it."""
    if nesterov:
        kick = 1.0 + momentum
        carry = momentum * momentum
        return kick, momentum - (kick - 1.0), carry, fused_multiply_add(momentum, momentum, -carry)
    return 1.0, 0.0, momentum, 0.0


@merged
def kick_and_carry_slopes(momentum: float, nesterov: bool) -> tuple[float, float]:
    """Derivatives of kick and carry with respect to momentum."""
    return (1.0, 2.0 * momentum) if nesterov else (0.0, 1.0)


def limit_with_tail(momentum: float, nesterov: bool) -> tuple[float, float]:
    """The rate from which on a coordinate is unstable, 2 (1 + momentum) / (kick + momentum kick - carry).

    With it what rounding took from it, for the heavy ball; `one_step` needs no other.
    """
    both = 1.0 + momentum
    if nesterov:
        return 2.0 * both / (1.0 + 2.0 * momentum), 0.0
    return 2.0 * both, 2.0 * (momentum - (both - 1.0))


def rate_limit(momentum: float, nesterov: bool) -> float:
    """The learning_rate * h^(1 - power) from which on a coordinate is unstable."""
    return limit_with_tail(momentum, nesterov)[0]


def characteristic(a: _N, momentum: float, nesterov: bool) -> tuple[_N, _N | float, _N, _N]:
    """Sum and product of the two roots that a coordinate's motion follows, and two factors of their discriminant.

    The roots are those of r^2 - (1 - a kick + momentum) r + momentum (1 - a kick) + a carry; the discriminant, (r1 -
    r2)^2, is the product of the factors, of which the first is at least 0 where the motion is overdamped.
    """
    if nesterov:
        left = 1.0 - a
        return (1.0 + momentum) * left, momentum * left, (1.0 - momentum) ** 2 - a * (1.0 + momentum) ** 2, left
    root = np.sqrt(momentum)
    damped = ((1.0 - momentum) / (1.0 + root)) ** 2
    return 1.0 - a + momentum, momentum, damped - a, (1.0 + root) ** 2 - a
