"""What the paper says about momentum."""

import math
from collections.abc import Iterable, Mapping
from itertools import pairwise

from batchlens.report._page.records import Claim
from batchlens.report._theory.claims.judging import Curves, critical_size, judge, last_steps, share_saved
from batchlens.report._theory.claims.thresholds import FEW_CELLS, LATER, NO_BENEFIT, ROUNDING, SAME_MOTION
from batchlens.scaling.curve import ScalingCurve


def check_momentum_at_small_batches(plain: ScalingCurve, moderate: ScalingCurve, tuned: ScalingCurve) -> Claim:
    """Momentum is worth nothing at the smallest batch size."""
    saved, saved_most = share_saved(plain, moderate, 0), share_saved(plain, tuned, 0)
    extreme = tuned.settings[0]["momentum"]
    return Claim(
        "momentum_small_batches",
        "At small batches momentum needs as many steps as plain SGD.",
        "sections 3.2 and 3.7.1",
        "Share of SGD's steps that momentum saves at the smallest batch size, power 0: at momentum 0.9, and tuned "
        "without limit.",
        f"{saved:.1%} at 0.9, {saved_most:.1%} at {extreme:.6g}",
        f"at most {NO_BENEFIT:.0%}",
        *judge(
            saved_most <= NO_BENEFIT,
            saved <= NO_BENEFIT,
            "True of moderate momentum only; tuned without limit, momentum does save steps.",
        ),
    )


def check_momentum_raises_critical(plain: Curves, tuned: Curves) -> Claim:
    """Momentum extends perfect scaling."""
    ratios = [critical_size(tuned[power]) / critical_size(plain[power]) for power in plain]
    return Claim(
        "momentum_critical_batch",
        "Momentum raises the critical batch size.",
        "section 3.7.1, figure 3a",
        "Critical batch size (knee) of tuned momentum over that of tuned SGD, the least over the powers.",
        f"{min(ratios):.2g} times" + (f" to {max(ratios):.2g} times" if len(ratios) > 1 else ""),
        "above 1",
        *judge(min(ratios) > 1, max(ratios) > 1, "Not at every power."),
    )


def check_momentum_benefit_shrinks(plain: Curves, tuned: Curves) -> Claim:
    """The better the preconditioner, the less momentum adds."""
    gains = [last_steps(plain[power]) / last_steps(tuned[power]) for power in sorted(plain)]
    falling = [later < earlier for earlier, later in pairwise(gains)]
    return Claim(
        "momentum_benefit_shrinks",
        "Momentum helps less the stronger the preconditioner.",
        "sections 3.7.1 and 4.1",
        "Steps of SGD over steps of momentum at the largest batch size, power by power.",
        ", ".join(f"{gain:.3g}" for gain in gains),
        "falling",
        *judge(bool(falling) and all(falling), gains[-1] < gains[0], "Not from every power to the next."),
    )


def check_momentum_bound(tuned: Curves, smallest: Mapping[float, float]) -> Claim:
    """The optimal momentum leaves the flattest coordinate overdamped; `smallest` is its curvature, by power."""
    beyond = []
    cells = 0
    for power, curve in tuned.items():
        for size, setting in zip(curve.batch_sizes, curve.settings, strict=True):
            if setting:
                cells += 1
                limit = (1 - math.sqrt(min(setting["learning_rate"] * smallest[power], 1.0))) ** 2
                if setting["momentum"] > limit + ROUNDING:
                    beyond.append((power, size))
    least = min((size for _, size in beyond), default=0)
    return Claim(
        "optimal_momentum_overdamped",
        "The optimal momentum is at most (1 - sqrt(alpha h_d))^2, so that the flattest coordinate is overdamped.",
        "section 3.2",
        "Cells of figure 3a (powers by batch sizes) whose tuned momentum exceeds it, in preconditioned coordinates.",
        f"{len(beyond)} of {cells}",
        "none",
        *judge(
            not beyond,
            len(beyond) <= FEW_CELLS * cells,
            f"Exceeded at powers {_list(power for power, _ in beyond)} from batch size {least:,.0f} on: so few steps "
            "end before the flattest coordinate would swing back.",
        ),
    )


def check_effective_motion(early: float, moderate: float, extreme: float) -> Claim:
    """How far the first term of theorem 1 is from SGD's, at most.

    Arguments:
        early: with momentum up to 0.9, at any number of steps of figure 8.
        moderate: the same from LATER steps on.
        extreme: with any momentum of the figure, at any number of steps.
    """
    return Claim(
        "momentum_moves_like_sgd",
        "Momentum converges like plain SGD at the effective learning rate.",
        "section 3.2, appendix E (figure 8 here)",
        "Largest difference of the first term of theorem 1 from SGD's, over its initial value, alpha h = 0.0005: "
        f"momentum up to 0.9 at all step counts of figure 8, the same from {LATER} steps on, and momentum up to 0.998.",
        f"{early:.2g}, {moderate:.2g} and {extreme:.2g}",
        f"at most {SAME_MOTION}",
        *judge(
            max(early, extreme) <= SAME_MOTION,
            moderate <= SAME_MOTION,
            f"True of momentum up to 0.9 from {LATER} steps on; it builds up more slowly, and close to 1 it swings.",
        ),
    )


def _list(powers: Iterable[float]) -> str:
    return ", ".join(f"{power:g}" for power in dict.fromkeys(powers))
