"""What every curve has in common, and what it does not depend on."""

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise

from batchlens.report._page.records import Claim, Verdict
from batchlens.report._theory.claims.judging import critical_size, judge, reached
from batchlens.report._theory.claims.thresholds import ALIKE, FLAT, PERFECT
from batchlens.scaling.curve import ScalingCurve


def check_two_regimes(curves: Sequence[ScalingCurve]) -> Claim:
    """Perfect scaling at small batches, a plateau at large ones."""
    slopes = [(_slope(curve, 0), _slope(curve, -2)) for curve in curves]
    shown = [first <= PERFECT and last >= FLAT for first, last in slopes]
    worst = max(first for first, _ in slopes), min(last for _, last in slopes)
    return Claim(
        "two_regimes",
        "Every optimizer has two regimes: steps fall as 1 / batch size while batches are small, and no longer fall "
        "once they are large.",
        "section 3.7.1, figure 3a",
        "Log-log slope of steps over batch size between the two smallest and between the two largest batch sizes, "
        f"the worst of {len(curves)} tuned curves.",
        f"slopes {worst[0]:.2f} and {worst[1]:.2f}",
        f"at most {PERFECT}, at least {FLAT}",
        *judge(
            all(shown),
            sum(shown) >= len(shown) / 2,
            f"{shown.count(False)} of {len(shown)} curves lack one of them at these batch sizes.",
        ),
    )


def check_harder_targets(curves: Mapping[float, ScalingCurve]) -> Claim:
    """Curves by target."""
    sizes = [critical_size(curves[target]) for target in sorted(curves, reverse=True)]
    rising = [later > earlier for earlier, later in pairwise(sizes)]
    return Claim(
        "harder_targets",
        "The critical batch size grows for harder targets.",
        "appendix E",
        "Critical batch size (knee) of tuned SGD, from the loosest target to the tightest.",
        ", ".join(f"{size:,.0f}" for size in sizes),
        "rising",
        *judge(bool(rising) and all(rising), sizes[-1] > sizes[0], "Not from every target to the next."),
    )


def check_initial_variance(critical: Mapping[float, float]) -> Claim:
    """Critical batch sizes by initial variance."""
    spread = max(critical.values()) / min(critical.values())
    return Claim(
        "initial_variance",
        "Results do not depend on the variance that training starts from.",
        "section 3.7",
        f"Critical batch size (knee) of tuned momentum at initial variances {', '.join(f'{v:g}' for v in critical)}: "
        "largest over smallest.",
        f"{spread:.2f}",
        f"at most {ALIKE}",
        *judge(spread <= ALIKE),
    )


def check_dimensions(verdicts: Mapping[int, Sequence[Verdict]]) -> Claim:
    """Verdicts of the main claims, by number of coordinates."""
    holding = {dim: all(verdict == "holds" for verdict in some) for dim, some in verdicts.items()}
    return Claim(
        "dimensions",
        "Results do not depend on the number of coordinates, qualitatively.",
        "section 3.5",
        f"Two regimes, and momentum raising the critical batch size, with {', '.join(f'{d:,}' for d in verdicts)} "
        "coordinates.",
        f"{sum(holding.values())} of {len(holding)} hold",
        "all",
        *judge(bool(holding) and all(holding.values()), any(holding.values()), "Not with every number of coordinates."),
    )


def _slope(curve: ScalingCurve, i: int) -> float:
    """Log-log slope of steps between neighbouring batch sizes."""
    sizes, steps = reached(curve)
    return math.log(steps[i + 1] / steps[i]) / math.log(sizes[i + 1] / sizes[i])
