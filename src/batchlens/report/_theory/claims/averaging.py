"""What the paper says about averages of the iterates."""

from itertools import pairwise

from batchlens.report._page.records import Claim
from batchlens.report._theory.claims.judging import Curves, critical_size, judge, share_saved
from batchlens.report._theory.claims.thresholds import NO_BENEFIT, NOTHING, SAME_RATE


def check_averaging_at_small_batches(plain: Curves, averaged: Curves) -> Claim:
    """Averaging saves steps at small batches, most without preconditioning."""
    saved = [share_saved(plain[power], averaged[power], 0) for power in sorted(plain)]
    most_first = all(later < earlier for earlier, later in pairwise(saved))
    return Claim(
        "averaging_small_batches",
        "Averaging saves steps at small batches, most of all without preconditioning.",
        "section 3.7.1, figure 4",
        "Share of tuned SGD's steps that averaging saves at the smallest batch size, power by power.",
        ", ".join(f"{share:.0%}" for share in saved),
        f"above {NO_BENEFIT:.0%}, falling",
        *judge(
            min(saved) > NO_BENEFIT and most_first,
            saved[0] > NO_BENEFIT,
            "It does at power 0, but not everywhere, or not most there.",
        ),
    )


def check_averaging_at_large_batches(plain: Curves, averaged: Curves) -> Claim:
    """Averaging is redundant where steps are nearly deterministic."""
    saved = [share_saved(plain[power], averaged[power], -1) for power in sorted(plain)]
    return Claim(
        "averaging_large_batches",
        "Averaging saves nothing at large batches.",
        "section 3.7.1, figure 4",
        "Share of tuned SGD's steps that averaging saves at the largest batch size, the most over the powers.",
        f"{max(saved):.1%}",
        f"at most {NOTHING:.0%}",
        *judge(max(saved) <= NOTHING, min(saved) <= NOTHING, "Not at every power."),
    )


def check_averaging_lowers_critical(plain: Curves, averaged: Curves) -> Claim:
    """The same plateau is reached with smaller batches."""
    ratios = [critical_size(averaged[power]) / critical_size(plain[power]) for power in sorted(plain)]
    return Claim(
        "averaging_critical_batch",
        "Averaging lowers the critical batch size: the same speed-up with smaller batches.",
        "section 3.7.1, figure 4",
        "Critical batch size (knee) with averaging over that of tuned SGD, power by power.",
        ", ".join(f"{ratio:.2g}" for ratio in ratios),
        "below 1",
        *judge(max(ratios) < 1, min(ratios) < 1, "Not at every power."),
    )


def check_averaging_rate(plain: float, below: float, above: float, reduction: float) -> Claim:
    """Convergence rates without averaging and with a coefficient below and above 1 - alpha h_d."""
    kept = abs(below - plain) <= SAME_RATE
    return Claim(
        "averaging_keeps_rate",
        "An averaging coefficient below 1 - alpha h_d lowers the steady-state risk and keeps the convergence rate.",
        "section 3.4",
        "Change of the convergence rate by a coefficient below and by one above 1 - alpha h_d, and steady-state risk "
        "with the former over that without.",
        f"{below - plain:.1g} below, {above - plain:.1g} above; risk times {reduction:.3g}",
        "0 below; risk under 1",
        *judge(kept and reduction < 1, kept, "The rate is kept, the steady-state risk is not lowered."),
    )
