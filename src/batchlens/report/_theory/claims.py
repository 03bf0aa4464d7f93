"""What the paper says about the noisy quadratic model, statement by statement, each put to the test.

A check is a function of numbers alone, so that it can be fed numbers on which it fails; `evidence` feeds them those of
a study.  "Holds with a limit" is the verdict where a statement is true in part, and the note says of which.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

import numpy as np

from batchlens._arrays import FloatArray
from batchlens.report._page.records import Claim, Verdict
from batchlens.scaling.curve import ScalingCurve

# Thresholds, each used by the claims that its comment names.
PERFECT, FLAT = -0.9, -0.2  # log-log slopes: two regimes
NO_BENEFIT = 0.05  # share of steps saved: momentum at small batches
NOTHING = 0.02  # share of steps saved: averaging and schedules at large batches
CLOSE = 0.1  # relative difference: effective learning rates
NEAR_BOUND = 2.0  # times the bound: schedules
LINEAR = (0.9, 1.1)  # log-log slope: learning rates
STRAIGHT = 0.85  # R^2 of log learning rate over time: decay
SAME_MOTION, LATER = 0.02, 100  # difference of first terms, counted from so many steps on: momentum like SGD
ALIKE = 2.0  # factor between critical batch sizes: initial variance

Curves = Mapping[float, ScalingCurve]  # by power


def judge(holds: bool, in_part: bool = False, limit: str = "") -> tuple[Verdict, str]:
    """The verdict (all of it, part of it, none of it), and what the limit is where only part of it holds."""
    if holds:
        return "holds", ""
    return ("holds with a limit", limit) if in_part else ("fails", "")


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


def check_momentum_at_small_batches(plain: ScalingCurve, moderate: ScalingCurve, tuned: ScalingCurve) -> Claim:
    """Momentum is worth nothing at the smallest batch size."""
    saved, saved_most = _saved(plain, moderate, 0), _saved(plain, tuned, 0)
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
    ratios = [_critical(tuned[power]) / _critical(plain[power]) for power in plain]
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
    gains = [_last(plain[power]) / _last(tuned[power]) for power in sorted(plain)]
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
                if setting["momentum"] > limit + 1e-9:
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
            len(beyond) <= cells / 4,
            f"Exceeded at powers {_list(power for power, _ in beyond)} from batch size {least:,.0f} on: so few steps "
            "end before the flattest coordinate would swing back.",
        ),
    )


def check_preconditioning_raises_critical(plain: Curves, tuned: Curves) -> Claim:
    """Preconditioning extends perfect scaling, with and without momentum."""
    rising = []
    found = []
    for curves in (plain, tuned):
        sizes = [_critical(curves[power]) for power in sorted(curves)]
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
    steps = [_first(plain[power]) for power in sorted(plain)]
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
    wider = _critical(strongest) / max(_critical(curve) for curve in others)
    small = _first(strongest) / min(_first(curve) for curve in others)
    large = _last(strongest) / min(_last(curve) for curve in others)
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


def check_averaging_at_small_batches(plain: Curves, averaged: Curves) -> Claim:
    """Averaging saves steps at small batches, most without preconditioning."""
    saved = [_saved(plain[power], averaged[power], 0) for power in sorted(plain)]
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
    saved = [_saved(plain[power], averaged[power], -1) for power in sorted(plain)]
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
    ratios = [_critical(averaged[power]) / _critical(plain[power]) for power in sorted(plain)]
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
    kept = abs(below - plain) <= 1e-12
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


def check_effective_motion(early: float, moderate: float, extreme: float) -> Claim:
    """Largest differences of the first term of theorem 1 to SGD's.

    early: momentum up to 0.9, at any step count of figure 8; moderate: the same from LATER steps on; extreme: any
    momentum of the figure, at any step count.
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


def check_schedules_at_small_batches(constant: float, scheduled: float, bound: float) -> Claim:
    """Decay closes most of the gap to the bound."""
    return Claim(
        "schedules_small_batches",
        "At small batches an optimal schedule saves many steps and comes near the information-theoretic bound.",
        "section 3.7.2, figure 3b",
        "Steps at the smallest batch size, power 0: best constant rate over optimal schedule, and that over the "
        "maximum-likelihood bound.",
        f"{constant / scheduled:.3g} times fewer; {scheduled / bound:.3g} times the bound",
        f"above {1 / (1 - NO_BENEFIT):.2f}; at most {NEAR_BOUND}",
        *judge(
            constant * (1 - NO_BENEFIT) > scheduled and bound <= scheduled <= NEAR_BOUND * bound,
            scheduled < constant,
            "Fewer steps than that bound, which ignores where training starts."
            if scheduled < bound
            else "Schedules save steps, but few, or stay far from the bound.",
        ),
    )


def check_schedules_at_large_batches(constant: float, scheduled: float, capped: float, free: float) -> Claim:
    """True under the paper's cap on every piece; `capped` and `free` are risks after 50 steps, with and without it."""
    saved = 1 - scheduled / constant
    artefact = capped > (1 + CLOSE) * free
    return Claim(
        "schedules_large_batches",
        "Schedules do not help at large batches.",
        "section 3.7.2, figure 3b",
        "Share of steps saved at the largest batch size, power 0, under the cap 2 / h_1; and the risk after 50 steps "
        "of one piece each at power 0.5, with that cap over a cap 50 times as high.",
        f"{saved:.1%} saved; risk {capped / free:.3g} times as high with the cap",
        f"at most {NOTHING:.0%}; at most {1 + CLOSE:g} times",
        *judge(
            saved <= NOTHING and not artefact,
            saved <= NOTHING,
            "True under the paper's cap only: short pieces beyond 2 / h_1 act like Chebyshev steps and help most "
            "exactly there.",
        ),
    )


def check_schedule_shape(shares: Mapping[int, FloatArray]) -> Claim:
    """Learning rates as shares of the cap, by batch size: full at first, then a straight line in the logarithm."""
    starts = [float(rates[0]) for rates in shares.values()]
    straight = [_straightness(rates) for rates in shares.values()]
    known = [value for value in straight if value is not None]
    full = all(start >= 0.99 for start in starts)
    return Claim(
        "schedule_shape",
        "Optimal schedules start at the largest stable learning rate and then decay about exponentially.",
        "section 3.7.2, figure 3c",
        "First learning rate over the largest stable one, the least over the batch sizes; and R^2 of a straight line "
        "through the logarithm of the decaying part, the median over the batch sizes that decay.",
        f"{min(starts):.2f}; {np.median(known):.2f}" if known else f"{min(starts):.2f}; no decay",
        f"at least 0.99; at least {STRAIGHT}",
        *judge(
            full and bool(known) and float(np.median(known)) >= STRAIGHT,
            max(starts) >= 0.99,
            "Not at every batch size, or not along a straight line.",
        ),
    )


def check_final_rates(batch_sizes: Sequence[float], rates: Sequence[float]) -> Claim:
    """Where training ends is set by the noise."""
    half = max(2, len(rates) // 2)
    some = [(size, rate) for size, rate in zip(batch_sizes[:half], rates[:half], strict=True) if rate > 0]
    x, y = np.log(np.array(some).reshape(-1, 2)).T
    slope = float(np.polyfit(x, y, 1)[0]) if len(some) > 1 else 0.0
    return Claim(
        "final_rate_linear",
        "The final learning rate of the optimal schedule is linear in the batch size.",
        "section 3.7.2, appendix E",
        "Log-log slope over the smaller half of the batch sizes.",
        f"{slope:.3f}",
        f"{LINEAR[0]} to {LINEAR[1]}",
        *judge(LINEAR[0] <= slope <= LINEAR[1]),
    )


def check_harder_targets(curves: Mapping[float, ScalingCurve]) -> Claim:
    """Curves by target."""
    sizes = [_critical(curves[target]) for target in sorted(curves, reverse=True)]
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


def _range(values: Sequence[float]) -> str:
    low, high = (f"{value + 0.0:.2f}".replace("-0.00", "0.00") for value in (min(values), max(values)))
    return low if low == high else f"{low} to {high}"


def _list(powers: Iterable[float]) -> str:
    return ", ".join(f"{power:g}" for power in dict.fromkeys(powers))


def _slope(curve: ScalingCurve, i: int) -> float:
    """Log-log slope of steps between neighbouring batch sizes."""
    sizes, steps = _reached(curve)
    return math.log(steps[i + 1] / steps[i]) / math.log(sizes[i + 1] / sizes[i])


def _rate_slope(curve: ScalingCurve, i: int) -> float:
    rates = [setting["learning_rate"] for setting in curve.settings]
    sizes = curve.batch_sizes
    return math.log(rates[i + 1] / rates[i]) / math.log(sizes[i + 1] / sizes[i])


def _reached(curve: ScalingCurve) -> tuple[list[float], list[float]]:
    both = [(size, steps) for size, steps in zip(curve.batch_sizes, curve.steps, strict=True) if steps]
    return [size for size, _ in both], [float(steps) for _, steps in both]


def _first(curve: ScalingCurve) -> float:
    return _reached(curve)[1][0]


def _last(curve: ScalingCurve) -> float:
    return _reached(curve)[1][-1]


def _saved(plain: ScalingCurve, other: ScalingCurve, end: int) -> float:
    """Share of the steps saved at one end of the curves, where both have reached the target."""
    both = [(a, b) for a, b in zip(plain.steps, other.steps, strict=True) if a and b]
    return 1 - both[end][1] / both[end][0]


def _critical(curve: ScalingCurve) -> float:
    """The knee; where it is a bound, that."""
    return curve.critical_batch_size().value or math.nan


def _effective(curve: ScalingCurve) -> float:
    setting = curve.settings[0]
    return setting["learning_rate"] / (1 - setting["momentum"])


def _straightness(shares: FloatArray) -> float | None:
    """R^2 of a line through log learning rate over time, where it has left the cap; None where too little has."""
    decaying = np.flatnonzero((shares < 0.98) & (shares > 0))
    if decaying.size < 5:
        return None
    log_rates = np.log(shares[decaying])
    if np.ptp(log_rates) == 0:
        return None
    fit = np.polyval(np.polyfit(decaying, log_rates, 1), decaying)
    return float(1 - ((log_rates - fit) ** 2).sum() / ((log_rates - log_rates.mean()) ** 2).sum())
