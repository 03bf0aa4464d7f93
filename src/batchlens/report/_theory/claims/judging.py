"""How a claim is judged, and what the checks read from curves."""

import math
from collections.abc import Mapping

from batchlens.report._page.records import Verdict
from batchlens.scaling.curve import ScalingCurve

Curves = Mapping[float, ScalingCurve]  # by power


def judge(holds: bool, in_part: bool = False, limit: str = "") -> tuple[Verdict, str]:
    """The verdict (all of it, part of it, none of it), and what the limit is where only part of it holds."""
    if holds:
        return "holds", ""
    return ("holds with a limit", limit) if in_part else ("fails", "")


def reached(curve: ScalingCurve) -> tuple[list[float], list[float]]:
    """The batch sizes at which the target was reached, and the steps there."""
    both = [(size, steps) for size, steps in zip(curve.batch_sizes, curve.steps, strict=True) if steps]
    return [size for size, _ in both], [float(steps) for _, steps in both]


def first_steps(curve: ScalingCurve) -> float:
    """Steps at the smallest batch size at which the target was reached."""
    return reached(curve)[1][0]


def last_steps(curve: ScalingCurve) -> float:
    """Steps at the largest batch size at which the target was reached."""
    return reached(curve)[1][-1]


def share_saved(plain: ScalingCurve, other: ScalingCurve, end: int) -> float:
    """Share of the steps saved at one end of the curves, where both have reached the target."""
    both = [(a, b) for a, b in zip(plain.steps, other.steps, strict=True) if a and b]
    return 1 - both[end][1] / both[end][0]


def critical_size(curve: ScalingCurve) -> float:
    """The critical batch size (knee), or the bound on it where no more is known."""
    return curve.critical_batch_size().value or math.nan
