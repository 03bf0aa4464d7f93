"""What the paper says about preconditioning, alone and with momentum."""

from collections.abc import Mapping
from itertools import pairwise

from batchlens.report._page.records import Claim
from batchlens.report._theory.claims.judging import Curves, critical_size, first_steps, judge, last_steps


def check_preconditioning_raises_critical(plain: Curves, tuned: Curves) -> Claim:
    """Preconditioning extends perfect scaling, with and without momentum."""
    rising = []
    found = []
    for curves in (plain, tuned):
        sizes = [critical_size(curves[power]) for power in sorted(curves)]
        found.append(", ".join(f"{size:.3g}" if size < 1e3 else f"{size / 1e3:.3g}k" for size in sizes))
        rising += [later > earlier for earlier, later in pairwise(sizes)]
    return Claim(
        "preconditioning_critical_batch",
        "Preconditioning raises the critical batch size.",
        "sections 3.3 and 3.7.1, figure 3a",
        "Critical batch size (knee), power by power, of tuned SGD and of tuned momentum.",
        "; ".join(found),
        "rising",
        *judge(bool(rising) and all(rising), rising.count(True) > len(rising) / 2, "Not from every power to the next."),
    )


def check_preconditioning_at_small_batches(plain: Curves) -> Claim:
    """Unlike momentum, preconditioning helps at small batches too."""
    steps = [first_steps(plain[power]) for power in sorted(plain)]
    falling = [later < earlier for earlier, later in pairwise(steps)]
    return Claim(
        "preconditioning_small_batches",
        "Preconditioning saves steps at the smallest batches too.",
        "section 3.7.1, figure 3a",
        "Tuned SGD's steps at the smallest batch size, power by power.",
        ", ".join(f"{count:,.0f}" for count in steps),
        "falling",
        *judge(bool(falling) and all(falling), min(steps) < steps[0], "Not from every power to the next."),
    )


def check_combination(plain: Curves, tuned: Curves) -> Claim:
    """Momentum and preconditioning together beat either alone, at both ends."""
    powers = sorted(plain)
    strongest = tuned[powers[-1]]
    others = [plain[powers[0]], plain[powers[-1]], tuned[powers[0]]]
    wider = critical_size(strongest) / max(critical_size(curve) for curve in others)
    small = first_steps(strongest) / min(first_steps(curve) for curve in others)
    large = last_steps(strongest) / min(last_steps(curve) for curve in others)
    return Claim(
        "momentum_with_preconditioning",
        "Momentum and preconditioning together extend both trends.",
        "section 3.7.1, figure 3a",
        f"Tuned momentum at power {powers[-1]:g} against the best of SGD, SGD at that power and momentum at power "
        f"{powers[0]:g}: critical batch size, steps at the smallest and at the largest batch.",
        f"{wider:.2g} times the critical batch size, {small:.0%} and {large:.0%} of the steps",
        "at least 1 times, at most 100%",
        *judge(
            wider >= 1 and small <= 1 and large <= 1,
            wider >= 1 or (small <= 1 and large <= 1),
            "True of one trend, not of the other.",
        ),
    )


def check_steady_state_grows(risks: Mapping[float, float]) -> Claim:
    """Eqn. 10: steady-state risk at a fixed share of the largest stable rate, by power."""
    values = [risks[power] for power in sorted(risks)]
    rising = [later > earlier for earlier, later in pairwise(values)]
    return Claim(
        "steady_state_grows_with_power",
        "A stronger preconditioner has a larger steady-state risk.",
        "section 3.3, eqn. 10",
        "Steady-state risk at batch size 1 of SGD at half the largest stable learning rate, power by power.",
        ", ".join(f"{value:,.3g}" if value < 1000 else f"{value:,.0f}" for value in values),
        "rising",
        *judge(bool(rising) and all(rising), values[-1] > values[0], "Not from every power to the next."),
    )
