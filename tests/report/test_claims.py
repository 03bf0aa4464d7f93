"""Every claim's check is fed numbers on which it holds, holds with a limit, and fails."""

import ast
import inspect
import textwrap
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import pytest

from batchlens.report._page.records import Claim, Verdict
from batchlens.report._theory.claims import averaging, momentum, preconditioning, rates, regimes, schedules
from batchlens.report._theory.claims.judging import judge
from batchlens.scaling.curve import ScalingCurve

SIZES = tuple(4**k for k in range(1, 11))
Check = Callable[..., Claim]


def bend(
    critical: float = 1e3,
    plateau: float = 100.0,
    rate: float = 0.01,
    momentum: float = 0.0,
    sizes: Sequence[float] = SIZES,
) -> ScalingCurve:
    """steps = plateau (1 + critical / B); the learning rate is proportional to B up to the critical batch size."""
    settings = [{"learning_rate": rate * min(size, critical), "momentum": momentum} for size in sizes]
    return ScalingCurve(sizes, [plateau * (1 + critical / size) for size in sizes], settings)


def scale(curve: ScalingCurve, *factors: float) -> ScalingCurve:
    """The curve with its steps times a factor, or with one factor at the first and another at the last batch size."""
    shares = np.geomspace(factors[0], factors[-1], len(curve.steps))
    return ScalingCurve(curve.batch_sizes, (np.array(curve.steps, dtype=float) * shares).tolist(), curve.settings)


def steep(slope: float) -> ScalingCurve:
    """A straight line in the log-log plot."""
    return ScalingCurve(SIZES, [1e9 * size**slope for size in SIZES])


def ends(first: float, last: float) -> ScalingCurve:
    """Log-log slopes at the two ends."""
    slopes = [first, *np.linspace(-1, 0, 7), last]
    return ScalingCurve(SIZES, np.cumprod([1e9, *(4.0**slope for slope in slopes)]).tolist())


def by_power(*curves: ScalingCurve) -> dict[float, ScalingCurve]:
    return {0.25 * i: curve for i, curve in enumerate(curves)}


def bends(*criticals: float) -> dict[float, ScalingCurve]:
    return by_power(*(bend(critical) for critical in criticals))


def plateaus(*counts: float) -> dict[float, ScalingCurve]:
    return by_power(*(bend(plateau=count) for count in counts))


def scaled(*factors: float | tuple[float, float]) -> dict[float, ScalingCurve]:
    """Curves that differ from `bend()` by factors."""
    return by_power(*(scale(bend(), *(factor if isinstance(factor, tuple) else (factor,))) for factor in factors))


def momenta(*values: float) -> dict[float, ScalingCurve]:
    """One curve whose momentum is given at each batch size, the learning rate 0.04 throughout."""
    sizes = SIZES[: len(values)]
    settings = [{"learning_rate": 0.04, "momentum": value} for value in values]
    return {0.0: ScalingCurve(sizes, [100.0] * len(sizes), settings)}


def with_rates(*shapes: Sequence[float]) -> dict[float, ScalingCurve]:
    """Curves whose learning rates are given at four batch sizes."""
    return by_power(
        *(ScalingCurve(SIZES[:4], [1] * 4, [{"learning_rate": r, "momentum": 0.0} for r in shape]) for shape in shapes)
    )


def effective(*values: float, momentum: float = 0.0) -> dict[float, ScalingCurve]:
    """Curves with given effective learning rates."""
    return by_power(*(bend(rate=value * (1 - momentum) / 4, momentum=momentum) for value in values))


def decay(*logs: float, plateau: int = 3) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    return np.concatenate([np.ones(plateau), np.exp(-np.array(logs, dtype=np.float64))])


STRAIGHT = decay(*np.arange(1.0, 11.0))
CROOKED = decay(*([0.1] * 30), 9.0)
# With learning rate 0.04 and smallest curvature 0.01 the bound on momentum is (1 - sqrt(0.0004))^2.
FLATTEST, MOST = {0.0: 0.01}, 0.98**2
HOLDS: Final = "holds"
LIMIT: Final = "holds with a limit"
FAILS: Final = "fails"

CASES: list[tuple[Check, Verdict, tuple[Any, ...]]] = [
    (regimes.check_two_regimes, HOLDS, ([bend(), bend(1e4)],)),
    (regimes.check_two_regimes, HOLDS, ([ends(-0.91, -0.19)],)),
    (regimes.check_two_regimes, FAILS, ([ends(-0.89, -0.19)],)),
    (regimes.check_two_regimes, FAILS, ([ends(-0.91, -0.21)],)),
    (regimes.check_two_regimes, LIMIT, ([bend(), steep(-1)],)),
    (regimes.check_two_regimes, FAILS, ([bend(), steep(-1), steep(0)],)),
    (momentum.check_momentum_at_small_batches, HOLDS, (bend(), scale(bend(), 0.99), scale(bend(), 0.951))),
    (momentum.check_momentum_at_small_batches, LIMIT, (bend(), scale(bend(), 0.951), scale(bend(), 0.949))),
    (momentum.check_momentum_at_small_batches, FAILS, (bend(), scale(bend(), 0.949), scale(bend(), 0.949))),
    (momentum.check_momentum_raises_critical, HOLDS, (bends(1e3, 1e4), bends(2e3, 2e4))),
    (momentum.check_momentum_raises_critical, LIMIT, (bends(1e3, 1e4), bends(2e3, 1e4))),
    (momentum.check_momentum_raises_critical, LIMIT, (bends(1e3, 1e4), bends(2e3, 5e3))),
    (momentum.check_momentum_raises_critical, FAILS, (bends(1e3, 1e4), bends(1e3, 1e4))),
    (momentum.check_momentum_benefit_shrinks, HOLDS, (plateaus(100, 100, 100), plateaus(10, 20, 50))),
    (momentum.check_momentum_benefit_shrinks, LIMIT, (plateaus(100, 100, 100), plateaus(20, 10, 50))),
    (momentum.check_momentum_benefit_shrinks, FAILS, (plateaus(100, 100, 100), plateaus(20, 50, 10))),
    (momentum.check_momentum_bound, HOLDS, (momenta(0.0, 0.9, MOST), FLATTEST)),
    (momentum.check_momentum_bound, LIMIT, (momenta(MOST, MOST, MOST, MOST + 1e-6), FLATTEST)),
    (momentum.check_momentum_bound, FAILS, (momenta(0.0, 0.0, 0.97), FLATTEST)),
    (preconditioning.check_preconditioning_raises_critical, HOLDS, (bends(1e2, 1e3, 1e4), bends(1e3, 1e4, 1e5))),
    (preconditioning.check_preconditioning_raises_critical, LIMIT, (bends(1e2, 1e3, 1e4), bends(1e3, 1e5, 1e4))),
    (preconditioning.check_preconditioning_raises_critical, FAILS, (bends(1e2, 1e4, 1e3), bends(1e3, 1e5, 1e4))),
    (preconditioning.check_preconditioning_at_small_batches, HOLDS, (scaled(1.0, 0.9, 0.8),)),
    (preconditioning.check_preconditioning_at_small_batches, LIMIT, (scaled(1.0, 0.8, 0.9),)),
    (preconditioning.check_preconditioning_at_small_batches, FAILS, (scaled(1.0, 1.0, 1.1),)),
    (preconditioning.check_combination, HOLDS, (scaled(1.0, 0.8), scaled((1.0, 0.1), (0.8, 0.05)))),
    (preconditioning.check_combination, LIMIT, (bends(1e3, 1e4), {0.0: bend(1e4), 0.25: bend(1e5, 200.0)})),
    (preconditioning.check_combination, FAILS, (bends(1e3, 1e4), {0.0: bend(1e4), 0.25: bend(1e2, 1e5)})),
    (preconditioning.check_steady_state_grows, HOLDS, ({0.0: 1.0, 0.5: 2.0, 1.0: 3.0},)),
    (preconditioning.check_steady_state_grows, LIMIT, ({0.0: 1.0, 0.5: 3.0, 1.0: 2.0},)),
    (preconditioning.check_steady_state_grows, FAILS, ({0.0: 2.0, 0.5: 3.0, 1.0: 1.0},)),
    (averaging.check_averaging_at_small_batches, HOLDS, (scaled(1.0, 1.0), scaled(0.2, 0.949))),
    (averaging.check_averaging_at_small_batches, LIMIT, (scaled(1.0, 1.0), scaled(0.2, 0.951))),
    (averaging.check_averaging_at_small_batches, LIMIT, (scaled(1.0, 1.0), scaled(0.6, 0.5))),
    (averaging.check_averaging_at_small_batches, FAILS, (scaled(1.0, 1.0), scaled(0.951, 0.5))),
    (averaging.check_averaging_at_large_batches, HOLDS, (scaled(1.0, 1.0), scaled((0.5, 0.981), (0.5, 1.1)))),
    (averaging.check_averaging_at_large_batches, LIMIT, (scaled(1.0, 1.0), scaled((0.5, 0.981), (0.5, 0.979)))),
    (averaging.check_averaging_at_large_batches, FAILS, (scaled(1.0, 1.0), scaled((0.5, 0.9), (0.5, 0.979)))),
    (averaging.check_averaging_lowers_critical, HOLDS, (bends(1e3, 1e4), bends(5e2, 5e3))),
    (averaging.check_averaging_lowers_critical, LIMIT, (bends(1e3, 1e4), bends(5e2, 1e4))),
    (averaging.check_averaging_lowers_critical, FAILS, (bends(1e3, 1e4), bends(1e3, 2e4))),
    (averaging.check_averaging_rate, HOLDS, (0.9, 0.9, 0.95, 0.99)),
    (averaging.check_averaging_rate, LIMIT, (0.9, 0.9, 0.95, 1.0)),
    (averaging.check_averaging_rate, FAILS, (0.9, 0.9 + 1e-9, 0.95, 0.5)),
    (rates.check_linear_then_flat, HOLDS, (with_rates((1, 4**0.91, 8, 8), (1, 4**1.09, 8, 8 * 4**0.19)),)),
    (rates.check_linear_then_flat, LIMIT, (with_rates((1, 4, 8, 8), (1, 4, 8, 8 * 4**0.21)),)),
    (rates.check_linear_then_flat, FAILS, (with_rates((1, 4, 8, 8), (1, 4**0.89, 8, 8)),)),
    (rates.check_linear_then_flat, FAILS, (with_rates((1, 4, 8, 8), (1, 4**1.11, 8, 8)),)),
    (rates.check_rate_falls_with_power, HOLDS, (with_rates([0.3] * 4, [0.2] * 4, [0.1] * 4),)),
    (rates.check_rate_falls_with_power, LIMIT, (with_rates([0.3] * 4, [0.1] * 4, [0.2] * 4),)),
    (rates.check_rate_falls_with_power, FAILS, (with_rates([0.2] * 4, [0.1] * 4, [0.2] * 4),)),
    (
        rates.check_effective_rates,
        HOLDS,
        (effective(1, 2), effective(1, 2, momentum=0.9), effective(1.09, 1.83, momentum=0.999)),
    ),
    (
        rates.check_effective_rates,
        LIMIT,
        (effective(1, 2), effective(1, 2, momentum=0.9), effective(1.11, 2, momentum=0.999)),
    ),
    (
        rates.check_effective_rates,
        FAILS,
        (effective(1, 2), effective(1, 1.7, momentum=0.9), effective(1.11, 2, momentum=0.999)),
    ),
    (momentum.check_effective_motion, HOLDS, (0.02, 0.01, 0.02)),
    (momentum.check_effective_motion, LIMIT, (0.02, 0.02, 0.021)),
    (momentum.check_effective_motion, LIMIT, (0.021, 0.02, 0.02)),
    (momentum.check_effective_motion, FAILS, (0.021, 0.021, 0.5)),
    (schedules.check_batch_ramps, HOLDS, (0.9, 0.001)),
    (schedules.check_batch_ramps, LIMIT, (0.9, 0.03)),
    (schedules.check_batch_ramps, LIMIT, (0.04, 0.0)),
    (schedules.check_batch_ramps, FAILS, (0.0, 0.0)),
    (schedules.check_schedules_at_small_batches, HOLDS, (1000, 300, 150)),
    (schedules.check_schedules_at_small_batches, LIMIT, (1000, 300, 149)),
    (schedules.check_schedules_at_small_batches, LIMIT, (1000, 951, 900)),
    (schedules.check_schedules_at_small_batches, FAILS, (1000, 1000, 900)),
    (schedules.check_schedules_at_large_batches, HOLDS, (1000, 981, 0.109, 0.1)),
    (schedules.check_schedules_at_large_batches, LIMIT, (1000, 981, 0.111, 0.1)),
    (schedules.check_schedules_at_large_batches, FAILS, (1000, 979, 0.1, 0.1)),
    (schedules.check_schedule_shape, HOLDS, ({4: STRAIGHT, 16: STRAIGHT, 64: np.ones(50)},)),
    (schedules.check_schedule_shape, LIMIT, ({4: CROOKED},)),
    (schedules.check_schedule_shape, LIMIT, ({4: np.ones(50)},)),
    (schedules.check_schedule_shape, LIMIT, ({4: STRAIGHT, 16: 0.5 * STRAIGHT},)),
    (schedules.check_schedule_shape, FAILS, ({4: 0.98 * STRAIGHT, 16: 0.5 * STRAIGHT},)),
    (schedules.check_final_rates, HOLDS, (SIZES, [size**0.91 for size in SIZES])),
    (schedules.check_final_rates, HOLDS, (SIZES, [size**1.09 if size <= 4**5 else 2e3 for size in SIZES])),
    (schedules.check_final_rates, FAILS, (SIZES, [size**0.89 for size in SIZES])),
    (schedules.check_final_rates, FAILS, (SIZES, [size**1.11 for size in SIZES])),
    (regimes.check_harder_targets, HOLDS, ({0.1: bend(1e2), 0.03: bend(3e2), 0.01: bend(1e3)},)),
    (regimes.check_harder_targets, LIMIT, ({0.1: bend(1e2), 0.03: bend(1e3), 0.01: bend(3e2)},)),
    (regimes.check_harder_targets, FAILS, ({0.1: bend(1e3), 0.03: bend(2e3), 0.01: bend(1e3)},)),
    (regimes.check_initial_variance, HOLDS, ({0.1: 1000.0, 1.0: 500.0, 10.0: 700.0},)),
    (regimes.check_initial_variance, FAILS, ({0.1: 1000.0, 1.0: 499.0, 10.0: 700.0},)),
    (regimes.check_dimensions, HOLDS, ({10: [HOLDS, HOLDS], 100: [HOLDS, HOLDS]},)),
    (regimes.check_dimensions, LIMIT, ({10: [HOLDS, LIMIT], 100: [HOLDS, HOLDS]},)),
    (regimes.check_dimensions, FAILS, ({10: [HOLDS, LIMIT], 100: [FAILS, HOLDS]},)),
]

SUBJECTS = (averaging, momentum, preconditioning, rates, regimes, schedules)
CHECKS = {name: value for subject in SUBJECTS for name, value in vars(subject).items() if name.startswith("check_")}


def possible_verdicts(check: Check) -> set[str]:
    """The verdicts that a check can give: with a limit only where it asks `judge` about parts."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(check)))
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    (judging,) = (call for call in calls if isinstance(call.func, ast.Name) and call.func.id == "judge")
    return {HOLDS, FAILS} | ({LIMIT} if len(judging.args) + len(judging.keywords) > 1 else set())


@pytest.mark.parametrize(("check", "verdict", "numbers"), CASES, ids=[f"{c.__name__}-{v}" for c, v, _ in CASES])
def test_verdict(check: Check, verdict: Verdict, numbers: tuple[Any, ...]) -> None:
    claim = check(*numbers)
    assert claim.verdict == verdict, claim.found
    assert "nan" not in claim.found
    assert "inf" not in claim.found


@pytest.mark.parametrize("check", CHECKS.values(), ids=CHECKS)
def test_every_check_meets_numbers_for_each_of_its_verdicts(check: Check) -> None:
    assert {verdict for other, verdict, _ in CASES if other is check} == possible_verdicts(check)


@pytest.mark.parametrize("check", CHECKS.values(), ids=CHECKS)
def test_a_claim_says_the_same_whatever_the_verdict(check: Check) -> None:
    some = [other(*numbers) for other, _, numbers in CASES if other is check]
    assert len({(claim.name, claim.sentence, claim.source) for claim in some}) == 1
    for claim in some:
        assert claim.sentence.endswith(".")
        assert claim.measure.endswith(".")
        assert claim.found
        assert claim.threshold


def test_names_are_distinct() -> None:
    names = {check.__name__: check(*numbers).name for check, _, numbers in CASES}
    assert len(set(names.values())) == len(names)


def test_what_holds_has_no_note() -> None:
    assert [check.__name__ for check, verdict, numbers in CASES if verdict == HOLDS and check(*numbers).note] == []


def test_the_note_says_what_the_limit_is() -> None:
    silent = {check.__name__ for check, verdict, numbers in CASES if verdict == LIMIT and not check(*numbers).note}
    assert silent == set()


@pytest.mark.parametrize(
    ("verdicts", "verdict"),
    [((True,), HOLDS), ((True, False), HOLDS), ((False, True), LIMIT), ((False, False), FAILS), ((False,), FAILS)],
)
def test_judge(verdicts: tuple[bool, ...], verdict: Verdict) -> None:
    holds, in_part = (*verdicts, False)[:2]
    assert judge(holds, in_part) == (verdict, "")


def test_momentum_bound_names_where_it_is_exceeded() -> None:
    curves = by_power(*(momenta(*[0.0] * 9, value)[0.0] for value in (0.9, 0.97)))
    claim = momentum.check_momentum_bound(curves, {0.0: 0.01, 0.25: 0.01})
    assert claim.found == "1 of 20"
    assert "powers 0.25 from batch size 1,048,576 on" in claim.note


def test_momentum_bound_leaves_out_what_was_not_reached() -> None:
    curve = ScalingCurve([4, 16], [None, 10], [{}, {"learning_rate": 0.04, "momentum": 0.9}])
    assert momentum.check_momentum_bound({0.0: curve}, FLATTEST).found == "0 of 1"


def test_momentum_bound_is_zero_beyond_the_largest_rate() -> None:
    curve = ScalingCurve([4], [10], [{"learning_rate": 1000.0, "momentum": 0.0}])
    assert momentum.check_momentum_bound({0.0: curve}, FLATTEST).verdict == HOLDS


def test_found_numbers_are_the_measured_ones() -> None:
    claim = momentum.check_momentum_at_small_batches(bend(), scale(bend(), 0.99), scale(bend(momentum=0.9999), 0.8))
    assert claim.found == "1.0% at 0.9, 20.0% at 0.9999"
    assert regimes.check_two_regimes([ends(-1.0, -0.1), ends(-0.95, 0.0)]).found == "slopes -0.95 and -0.10"
    assert regimes.check_initial_variance({1.0: 100.0, 10.0: 150.0}).found == "1.50"
    assert schedules.check_schedules_at_small_batches(1000, 500, 400).found == "2 times fewer; 1.25 times the bound"


def test_curves_with_unreached_batch_sizes_are_read_where_they_are_reached() -> None:
    whole = bend()
    partial = ScalingCurve(whole.batch_sizes, [None, *whole.steps[1:]], whole.settings)
    assert regimes.check_two_regimes([partial]).verdict == HOLDS


def test_savings_compare_the_same_batch_size() -> None:
    whole = bend()
    partial = ScalingCurve(whole.batch_sizes, [None, *whole.steps[1:]], whole.settings)
    claim = averaging.check_averaging_at_small_batches({0.0: partial}, {0.0: whole})
    assert claim.found == "0%"


def test_a_schedule_that_drops_once_has_a_shape_too() -> None:
    claim = schedules.check_schedule_shape({4: np.array([1.0] * 10 + [0.5] * 10)})
    assert "nan" not in claim.found


def test_no_dimensions_are_no_evidence() -> None:
    assert regimes.check_dimensions({}).verdict != HOLDS


def test_notes_follow_from_the_numbers() -> None:
    failed = momentum.check_momentum_at_small_batches(bend(), scale(bend(), 0.5), scale(bend(momentum=0.8), 0.5))
    assert "True of moderate momentum" not in failed.note
    limited = momentum.check_momentum_at_small_batches(bend(), bend(), scale(bend(momentum=0.8), 0.5))
    assert "closer to 1 than the paper looked" not in limited.note
