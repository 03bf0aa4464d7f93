"""The rules that carry settings from one batch size to another.

Notation: b0, b1, batch sizes; kappa = b1 / b0; critical, B_crit of steps = S_min (1 + B_crit / B).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

Factor = Callable[[float, float, float], float]
# The largest learning rate that the saturating rule is trusted with, in units of 1 / (largest curvature).
MOST_RATE = 1.5
_BELOW_ONE = math.nextafter(1.0, 0.0)


@dataclass(frozen=True)
class RateRule:
    """By which factor a learning rate grows from b0 to b1; `needs_critical` where that takes B_crit."""

    name: str
    formula: str
    factor: Factor
    needs_critical: bool
    source: str


def saturating(b0: float, b1: float, critical: float) -> float:
    """Linear well below the critical batch size, constant well above; also what the steps are divided by."""
    return 1.0 if b0 == b1 else (1 + critical / b0) / (1 + critical / b1)


def _capped(b0: float, b1: float, critical: float) -> float:
    return math.sqrt(min(b1, critical) / min(b0, critical))


RATE_RULES = {
    rule.name: rule
    for rule in (
        RateRule(
            "linear",
            "eta kappa",
            lambda b0, b1, _: b1 / b0,
            False,
            "Goyal 2017, arXiv:1706.02677; the small-batch limit of the saturating rule",
        ),
        RateRule(
            "saturating",
            "eta (1 + B_crit/B0) / (1 + B_crit/B1)",
            saturating,
            True,
            "McCandlish 2018, arXiv:1812.06162",
        ),
        RateRule(
            "square_root",
            "eta sqrt(kappa)",
            lambda b0, b1, _: math.sqrt(b1 / b0),
            False,
            "Malladi 2022, arXiv:2205.10287",
        ),
        RateRule(
            "square_root_saturating",
            "eta sqrt((1 + B_crit/B0) / (1 + B_crit/B1))",
            lambda b0, b1, critical: math.sqrt(saturating(b0, b1, critical)),
            True,
            "McCandlish 2018, arXiv:1812.06162, square root",
        ),
        RateRule(
            "square_root_capped",
            "eta sqrt(min(B1, B_crit) / min(B0, B_crit))",
            _capped,
            True,
            "Malladi 2022, arXiv:2205.10287, capped by measurement",
        ),
    )
}


def power(coefficient: float, kappa: float) -> float:
    """A coefficient of decay per step with its half-life in examples kept: coefficient^kappa, below 1.

    >>> round(power(0.9, 2.0), 6), power(0.5, 1e-30) < 1.0
    (0.81, True)
    """
    if coefficient == 0.0 or kappa == 1.0:
        return coefficient
    return min(math.exp(kappa * math.log(coefficient)), _BELOW_ONE)


def default_rule(divides_by_root: bool, critical: float | None) -> RateRule:
    """The rule for optimizers that divide by the root of second moments, and for the others."""
    if divides_by_root:
        return RATE_RULES["square_root" if critical is None else "square_root_capped"]
    return RATE_RULES["linear" if critical is None else "saturating"]
