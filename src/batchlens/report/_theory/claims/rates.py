"""What the paper says about optimal constant learning rates."""

import math
from collections.abc import Sequence
from itertools import pairwise

from batchlens.report._page.records import Claim
from batchlens.report._theory.claims.judging import Curves, judge
from batchlens.report._theory.claims.thresholds import CLOSE, FLAT, LINEAR
from batchlens.scaling.curve import ScalingCurve


def check_linear_then_flat(plain: Curves) -> Claim:
    """The optimal learning rate grows with the batch, then meets the stability limit."""
    slopes = [_rate_slope(curve, 0) for curve in plain.values()]
    ends = [_rate_slope(curve, -2) for curve in plain.values()]
    linear = all(LINEAR[0] <= slope <= LINEAR[1] for slope in slopes)
    flat = all(abs(slope) <= -FLAT for slope in ends)
    return Claim(
        "learning_rate_linear_then_flat",
        "The optimal learning rate of SGD is linear in the batch size, then flat.",
        "section 3.7.2, figures of appendix E",
        "Log-log slope of the learning rate between the two smallest and between the two largest batch sizes, over all "
        "powers.",
        f"{_range(slopes)}, then {_range(ends)}",
        f"{LINEAR[0]} to {LINEAR[1]}, then within {-FLAT} of 0",
        *judge(linear and flat, linear, "Linear at small batches, but not flat yet at the largest."),
    )


def check_rate_falls_with_power(plain: Curves) -> Claim:
    """Preconditioning asks for smaller learning rates."""
    rates = [plain[power].settings[0]["learning_rate"] for power in sorted(plain)]
    falling = [later < earlier for earlier, later in pairwise(rates)]
    return Claim(
        "learning_rate_falls_with_power",
        "The stronger the preconditioner, the smaller the optimal learning rate at the same batch size.",
        "appendix E",
        "Tuned SGD's learning rate at the smallest batch size, power by power.",
        ", ".join(f"{rate:.3g}" for rate in rates),
        "falling",
        *judge(bool(falling) and all(falling), rates[-1] < rates[0], "Not from every power to the next."),
    )


def check_effective_rates(plain: Curves, moderate: Curves, tuned: Curves) -> Claim:
    """alpha / (1 - beta) is what counts at small batches."""
    apart = {
        name: max(abs(_effective(curves[power]) / _effective(plain[power]) - 1) for power in plain)
        for name, curves in (("momentum 0.9", moderate), ("tuned momentum", tuned))
    }
    return Claim(
        "effective_learning_rate",
        "At small batches the effective learning rate of momentum, alpha / (1 - beta), equals SGD's learning rate.",
        "section 3.7.2, appendix E",
        "Relative difference at the smallest batch size, the largest over the powers.",
        ", ".join(f"{value:.1%} ({name})" for name, value in apart.items()),
        f"at most {CLOSE:.0%}",
        *judge(
            max(apart.values()) <= CLOSE, min(apart.values()) <= CLOSE, "True of one of the two kinds of momentum only."
        ),
    )


def _range(values: Sequence[float]) -> str:
    low, high = (f"{value + 0.0:.2f}".replace("-0.00", "0.00") for value in (min(values), max(values)))
    return low if low == high else f"{low} to {high}"


def _rate_slope(curve: ScalingCurve, i: int) -> float:
    rates = [setting["learning_rate"] for setting in curve.settings]
    sizes = curve.batch_sizes
    return math.log(rates[i + 1] / rates[i]) / math.log(sizes[i + 1] / sizes[i])


def _effective(curve: ScalingCurve) -> float:
    setting = curve.settings[0]
    return setting["learning_rate"] / (1 - setting["momentum"])
