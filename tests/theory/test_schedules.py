"""Schedules against steps taken one by one, finite differences, the constant rates they contain and known optima."""

from __future__ import annotations

import math
import re
from itertools import pairwise, product
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from scipy.optimize import Bounds, minimize

import batchlens as bl
from batchlens._shapes import SHAPES
from batchlens.theory._course import Course, Plan, make_course, split_evenly
from batchlens.theory._kernels.path import momentum_path, sgd_path
from batchlens.theory._lanes import Lanes, into_lanes
from tests.dense_search import paper_problem
from tests.reference import Setting, path_by_steps

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

PAPER = paper_problem()
PROBLEM = bl.NoisyQuadratic(*PAPER)
TARGET = 0.01
# A problem that is quick to step through.
SMALL = bl.NoisyQuadratic([2.0, 0.7, 0.11, 0.013], [1.0, 0.3, 0.2, 0.01], [0.5, 1.0, 3.0, 20.0], [1, 3, 2, 7])
STEEP = bl.NoisyQuadratic([1.0, 0.5], [0.0, 0.0], [1.0, 1.0])


def step_through(problem: bl.NoisyQuadratic, plan: bl.Schedule, batch_size: float) -> Floats:
    """The risk after every step, one by one."""
    pieces = [Setting(float(rate), plan.momentum, power=plan.power) for rate in plan.learning_rates]
    columns = problem.curvature, problem.noise, problem.initial, problem.count
    return path_by_steps(*columns, pieces, [batch_size] * len(pieces), plan.lengths.tolist())


def constant_steps(family: str, batch_size: float, power: float = 0.0, problem: bl.NoisyQuadratic = PROBLEM) -> int:
    steps = bl.tune(problem, family, batch_size, TARGET, power).steps
    assert steps is not None
    return steps


# ---------------------------------------------------------------------------------------------
# Gradients
# ---------------------------------------------------------------------------------------------


def sgd_slopes(lanes: Lanes, rates: Floats, lengths: Ints) -> tuple[float, Floats]:
    """Risk and gradient by the rates, at the batch size of the lanes."""
    return sgd_path(*lanes, rates, np.ones(lengths.size), lengths)[:2]


def momentum_slopes(lanes: Lanes, rates: Floats, momentum: float, lengths: Ints) -> tuple[float, Floats]:
    """Risk and gradient by the rates and momentum, at the batch size of the lanes."""
    return momentum_path(*lanes, rates, momentum, np.ones(lengths.size), lengths)[:2]


def stepped_risk(rates: Floats, momentum: float, lengths: Ints, power: float, batch_size: float) -> float:
    plan = bl.Schedule(rates, lengths, 0.0, momentum, power)
    return float(step_through(SMALL, plan, batch_size)[-1])


def slope(rates: Floats, momentum: float, lengths: Ints, power: float, batch_size: float, which: int) -> float:
    """Central difference, two sizes of step extrapolated to none; beyond the rates comes momentum."""

    def difference(width: float) -> float:
        sides = []
        for sign in (1, -1):
            moved, beta = rates.copy(), momentum
            if which < rates.size:
                moved[which] += sign * width
            else:
                beta += sign * width
            sides.append(stepped_risk(moved, beta, lengths, power, batch_size))
        return (sides[0] - sides[1]) / (2 * width)

    value = rates[which] if which < rates.size else 1 - momentum
    return (4 * difference(5e-5 * value) - difference(1e-4 * value)) / 3


def draw_path(seed: int) -> tuple[Floats, float, Ints, float, float]:
    random = np.random.default_rng(seed)
    pieces = int(random.integers(1, 7))
    rates = 10 ** random.uniform(-3, 0, pieces)
    lengths = random.integers(1, [8, 40][seed % 2], pieces)
    momentum = float(random.choice([random.uniform(0.05, 0.9), 0.99]))
    return rates, momentum, lengths, float(random.choice([0, 0.5, 1])), float(10 ** random.uniform(0, 3))


@pytest.mark.parametrize("seed", range(12))
def test_gradient_of_plain_sgd(seed: int) -> None:
    rates, _, lengths, power, batch_size = draw_path(seed)
    risk, gradient = sgd_slopes(into_lanes(SMALL, power, batch_size), rates, lengths)
    assert risk == pytest.approx(stepped_risk(rates, 0.0, lengths, power, batch_size), rel=1e-11)
    expected = [slope(rates, 0.0, lengths, power, batch_size, j) for j in range(rates.size)]
    np.testing.assert_allclose(gradient, expected, rtol=1e-6, atol=1e-8 * np.abs(gradient).max())


@pytest.mark.parametrize("seed", range(12))
def test_gradient_with_momentum(seed: int) -> None:
    rates, momentum, lengths, power, batch_size = draw_path(seed)
    risk, gradient = momentum_slopes(into_lanes(SMALL, power, batch_size), rates, momentum, lengths)
    assert risk == pytest.approx(stepped_risk(rates, momentum, lengths, power, batch_size), rel=1e-11)
    expected = [slope(rates, momentum, lengths, power, batch_size, j) for j in range(rates.size + 1)]
    np.testing.assert_allclose(gradient, expected, rtol=1e-6, atol=1e-8 * np.abs(gradient).max())


def test_momentum_0_is_plain_sgd() -> None:
    rates, _, lengths, power, batch_size = draw_path(5)
    lanes = into_lanes(SMALL, power, batch_size)
    plain, gradient = sgd_slopes(lanes, rates, lengths)
    risk, longer = momentum_slopes(lanes, rates, 0.0, lengths)
    assert risk == pytest.approx(plain, rel=1e-13)
    np.testing.assert_allclose(longer[:-1], gradient, rtol=1e-11)


def test_a_piece_may_stand_still() -> None:
    rates, lengths = np.array([0.3, 0.0, 0.1]), np.array([5, 7, 9])
    for momentum in (0.0, 0.9):
        lanes = into_lanes(SMALL, 0.0, 4.0)
        risk, gradient = (
            momentum_slopes(lanes, rates, momentum, lengths) if momentum else sgd_slopes(lanes, rates, lengths)
        )
        assert risk == pytest.approx(stepped_risk(rates, momentum, lengths, 0.0, 4.0), rel=1e-12)
        width = 1e-5
        later = stepped_risk(rates + np.array([0, width, 0]), momentum, lengths, 0.0, 4.0)
        further = stepped_risk(rates + np.array([0, 2 * width, 0]), momentum, lengths, 0.0, 4.0)
        assert gradient[1] == pytest.approx((4 * later - 3 * risk - further) / (2 * width), rel=1e-4)


# ---------------------------------------------------------------------------------------------
# The best schedule
# ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("batch_size", "published"), [(256, 9_147), (16, 50_433)])
def test_known_steps(batch_size: int, published: int) -> None:
    plan = bl.optimal_schedule(PROBLEM, batch_size, TARGET)
    assert plan.steps <= published * 1.001
    assert plan.steps >= bl.lower_bound_steps(PROBLEM, batch_size, TARGET, kind="bayes")
    assert plan.risk <= TARGET
    assert step_through(PROBLEM, plan, batch_size)[-1] == pytest.approx(plan.risk, rel=1e-9)


CELLS = [(0.0, 64), (0.0, 4096), (0.25, 256), (0.5, 16), (0.5, 65_536), (0.75, 4**10)]


@pytest.mark.parametrize("momentum", [0.0, pytest.param(0.9, marks=pytest.mark.slow)])
@pytest.mark.parametrize(("power", "batch_size"), CELLS)
def test_a_schedule_reaches_its_target_and_no_sooner(power: float, batch_size: int, momentum: float) -> None:
    plan = bl.optimal_schedule(PROBLEM, batch_size, TARGET, momentum=momentum, power=power)
    assert plan.risk <= TARGET
    assert (plan.momentum, plan.power) == (momentum, power)
    assert (plan.learning_rates >= 0).all()
    assert (plan.learning_rates <= 2 * (1 + momentum) * (1 + 1e-12)).all()  # the largest curvature is 1
    if plan.steps < 3_000:
        assert step_through(PROBLEM, plan, batch_size)[-1] == pytest.approx(plan.risk, rel=1e-9)
    for fewer in {plan.steps - 1 - plan.steps // 1000, math.floor(0.9 * plan.steps)}:
        sooner = bl.best_schedule(PROBLEM, batch_size, fewer, momentum=momentum, power=power)
        assert sooner.risk > TARGET * (1 - 1e-3), f"{fewer} steps do where {plan.steps} were reported"
    assert plan.steps >= bl.lower_bound_steps(PROBLEM, batch_size, TARGET, kind="bayes")
    kept = bl.tune(PROBLEM, "momentum", batch_size, TARGET, power, momentum=momentum).steps
    assert kept is not None
    assert plan.steps <= kept


def test_pieces_are_as_equal_as_possible() -> None:
    for steps, pieces in product((1, 2, 49, 50, 51, 99, 1000, 9147, 10**12), (1, 2, 50)):
        lengths = split_evenly(steps, pieces)
        assert lengths.sum() == steps
        assert lengths.size == min(steps, pieces)
        assert lengths.max() - lengths.min() <= 1
        assert lengths.min() >= 1
    plan = bl.optimal_schedule(PROBLEM, 4096, TARGET, pieces=7)
    np.testing.assert_array_equal(plan.lengths, split_evenly(plan.steps, 7))


def test_more_pieces_than_steps_are_one_a_step() -> None:
    plan = bl.best_schedule(PROBLEM, 4**10, steps=11, power=0.75, pieces=50)
    assert plan.lengths.tolist() == [1] * 11
    assert plan.risk == pytest.approx(step_through(PROBLEM, plan, 4**10)[-1], rel=1e-10)
    assert plan.risk <= bl.best_risk(PROBLEM, "sgd", 4**10, steps=11, power=0.75).risk


@pytest.mark.parametrize(("power", "batch_size"), CELLS)
def test_one_piece_is_the_best_constant_rate(power: float, batch_size: int) -> None:
    steps = constant_steps("sgd", batch_size, power)
    plan = bl.optimal_schedule(PROBLEM, batch_size, TARGET, pieces=1, power=power)
    assert abs(plan.steps - steps) <= max(1, 1e-4 * steps)


@pytest.mark.parametrize(("power", "batch_size"), CELLS)
def test_more_pieces_never_hurt(power: float, batch_size: int) -> None:
    steps = max(64, constant_steps("sgd", batch_size, power) // 2)
    risks = [bl.best_schedule(PROBLEM, batch_size, steps, pieces, power=power).risk for pieces in (1, 2, 4, 8, 32, 64)]
    for fewer, more in pairwise(risks):  # each cuts the pieces of the one before in parts, up to a step
        assert more <= fewer * 1.01
    assert risks[-1] <= risks[0]
    assert risks[0] == pytest.approx(bl.best_risk(PROBLEM, "sgd", batch_size, steps=steps, power=power).risk, rel=1e-6)


@pytest.mark.parametrize(
    ("power", "batch_size", "steps", "pieces"),
    [(0.0, 256, 9_000, 50), (0.5, 4096, 100, 10), (0.75, 4**10, 8, 8), (0.5, 4**10, 30, 30), (0.5, 4**8, 60, 50)],
)
def test_no_other_start_ends_lower(power: float, batch_size: int, steps: int, pieces: int) -> None:
    """Plain SGD has next to no local minima below its cap: many local searches end where the schedule is."""
    random = np.random.default_rng(3)
    found = bl.best_schedule(PROBLEM, batch_size, steps, pieces, power=power)
    lanes = into_lanes(PROBLEM, power, batch_size)
    lengths = split_evenly(steps, pieces)

    def objective(logs: Floats) -> tuple[float, Floats]:
        risk, gradient = sgd_slopes(lanes, np.exp(logs), lengths)
        return math.log(risk), gradient * np.exp(logs) / risk

    highest = math.log(2.0)
    for trial in range(8):
        start = random.uniform(-8.0 if trial % 2 else -2.0, highest, pieces)
        if trial % 4 < 2:
            start = np.sort(start)[::-1]
        other = minimize(objective, start, jac=True, method="L-BFGS-B", bounds=Bounds(-25.0, highest))
        assert found.risk <= math.exp(other.fun) * (1 + 1e-6)


# ---------------------------------------------------------------------------------------------
# Caps
# ---------------------------------------------------------------------------------------------


def test_short_pieces_beyond_the_stability_limit_help() -> None:
    ask: dict[str, Any] = {"problem": PROBLEM, "batch_size": 4**10, "steps": 50, "power": 0.5}
    capped = bl.best_schedule(**ask)
    assert capped.risk == pytest.approx(0.0492, abs=5e-5)
    assert capped.learning_rates.max() <= 2.0
    beyond = bl.best_schedule(**ask, max_learning_rate=100.0)
    assert beyond.risk <= 0.00014
    assert 2.0 < beyond.learning_rates.max() <= 100.0
    assert step_through(PROBLEM, beyond, 4**10)[-1] == pytest.approx(beyond.risk, rel=1e-6)


CAPS = (1.0, 2.0, 10.0, 100.0, 1000.0)


# Beyond the stable cap short pieces have many local optima, of which one may have half the risk of another, and which
# one is found hangs on the last bit. What holds to the bit is that a search is no worse than the plan it was given.
@pytest.mark.parametrize(
    ("power", "batch_size", "steps", "momentum"),
    [
        (0.5, 4**10, 50, 0.0),
        (0.5, 4**8, 20, 0.0),
        (0.0, 4**8, 50, 0.0),
        (0.0, 4**8, 120, 0.0),  # pieces of two steps and of three
        (0.0, 4**8, 1000, 0.0),
        (0.0, 256, 5000, 0.0),
        pytest.param(0.5, 4**8, 20, 0.9, marks=pytest.mark.slow),
        pytest.param(0.0, 4**8, 120, 0.9, marks=pytest.mark.slow),
    ],
)
def test_a_larger_cap_is_never_worse_than_the_plan_of_a_smaller_one(
    power: float, batch_size: int, steps: int, momentum: float
) -> None:
    plan: Plan | None = None
    for cap in CAPS:
        found = make_course(PROBLEM, batch_size, 50, momentum, power, cap).solve(steps, plan)
        assert found.learning_rates.max() <= cap
        assert found.risk <= (PROBLEM.initial_risk if plan is None else plan.risk)
        plan = found


def test_a_search_with_a_cap_begins_with_the_plan_of_a_smaller_one(monkeypatch: pytest.MonkeyPatch) -> None:
    plans: dict[float | None, Plan] = {}
    begun: list[tuple[float | None, Floats]] = []
    solve, descend = Course.solve, Course._descend

    def solve_and_keep(course: Course, steps: int, near: Plan | None = None) -> Plan:
        plans[course.max_learning_rate] = found = solve(course, steps, near)
        return found

    def descend_and_tell(course: Course, lengths: Ints, rates: Floats, momentum: float) -> Plan:
        begun.append((course.max_learning_rate, rates))
        return descend(course, lengths, rates, momentum)

    monkeypatch.setattr(Course, "solve", solve_and_keep)
    monkeypatch.setattr(Course, "_descend", descend_and_tell)
    bl.best_schedule(PROBLEM, 4**8, 20, power=0.5, max_learning_rate=100.0)
    assert list(plans) == [None, pytest.approx(8.0), pytest.approx(32.0), 100.0]
    for below, cap in pairwise(plans):
        assert plans[cap].risk <= plans[below].risk
        assert any(of == cap and np.array_equal(rates, plans[below].learning_rates) for of, rates in begun)


@pytest.mark.parametrize("cap", [1e-9, 1e-3, *(pytest.param(cap, marks=pytest.mark.slow) for cap in (1e6, 1e12))])
def test_no_cap_is_too_small_or_too_large(cap: float) -> None:
    for momentum, steps in product((0.0, 0.9), (1, 20, 200)):
        plan = bl.best_schedule(PROBLEM, 4**8, steps, pieces=10, momentum=momentum, power=0.5, max_learning_rate=cap)
        assert plan.risk < PROBLEM.initial_risk
        assert plan.learning_rates.max() <= cap


@pytest.mark.parametrize(("power", "batch_size"), CELLS[1::3])
def test_the_default_cap_is_the_stability_limit(power: float, batch_size: int) -> None:
    default = bl.best_schedule(PROBLEM, batch_size, 60, power=power)
    named = bl.best_schedule(PROBLEM, batch_size, 60, power=power, max_learning_rate=2.0)
    assert named.risk == pytest.approx(default.risk, rel=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize(("power", "batch_size"), [(0.5, 4**8), (0.5, 4**10), (0.0, 4**8), (0.0, 256)])
def test_fewest_steps_with_a_larger_cap(power: float, batch_size: int) -> None:
    before = None
    for cap in (None, 10.0, 100.0):
        plan = bl.optimal_schedule(PROBLEM, batch_size, TARGET, power=power, max_learning_rate=cap)
        assert plan.risk <= TARGET
        assert before is None or plan.steps <= before * 1.001
        for share in (0.5, 0.7, 0.9, 0.97):
            fewer = math.ceil(share * plan.steps) - 1
            if fewer:
                other = bl.best_schedule(PROBLEM, batch_size, fewer, power=power, max_learning_rate=cap)
                assert other.risk > TARGET, f"{fewer} steps do where {plan.steps} were reported with cap {cap}"
        before = plan.steps


# ---------------------------------------------------------------------------------------------
# Momentum
# ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("power", "batch_size"),
    [
        pytest.param(0.75, 4**10),
        pytest.param(0.5, 4**8, marks=pytest.mark.slow),
        pytest.param(0.5, 4096, marks=pytest.mark.slow),
        pytest.param(0.25, 256, marks=pytest.mark.slow),
        pytest.param(0.0, 256, marks=pytest.mark.slow),
    ],
)
def test_tuned_momentum_is_never_worse_than_the_best_constant_rule(power: float, batch_size: int) -> None:
    plan = bl.optimal_schedule(PROBLEM, batch_size, TARGET, momentum="tuned", power=power)
    assert plan.risk <= TARGET
    assert plan.steps <= constant_steps("momentum", batch_size, power)
    assert plan.steps <= bl.optimal_schedule(PROBLEM, batch_size, TARGET, power=power).steps
    assert plan.steps >= bl.lower_bound_steps(PROBLEM, batch_size, TARGET, kind="bayes")
    assert step_through(PROBLEM, plan, batch_size)[-1] == pytest.approx(plan.risk, rel=1e-8)


@pytest.mark.parametrize(("power", "batch_size", "steps"), [(0.0, 256, 1000), (0.5, 4**8, 15), (0.0, 4**10, 60)])
def test_tuned_momentum_is_never_worse_than_a_kept_one(power: float, batch_size: int, steps: int) -> None:
    ask: dict[str, Any] = {"problem": PROBLEM, "batch_size": batch_size, "steps": steps, "pieces": 10, "power": power}
    tuned = bl.best_schedule(**ask, momentum="tuned")
    for momentum in (0.0, 0.5, 0.9, 0.99):
        assert tuned.risk <= bl.best_schedule(**ask, momentum=momentum).risk * (1 + 1e-3), f"momentum {momentum}"
    assert tuned.risk <= bl.best_risk(PROBLEM, "momentum", batch_size, steps=steps, power=power).risk


# ---------------------------------------------------------------------------------------------
# Ready-made schedules
# ---------------------------------------------------------------------------------------------


def test_shapes_at_their_ends() -> None:
    ends = np.array([0.0, 1.0])
    values = {name: shape.at(ends).tolist() for name, shape in SHAPES.items()}
    assert values == {
        "constant": [1.0, 1.0],
        "linear_decay": [1.0, 0.0],
        "cosine": [1.0, pytest.approx(0.0, abs=1e-15)],
        "step_decay": [1.0, 0.01],
        "warmup_stable_decay": [0.0, 0.0],
    }


def test_shapes_in_between() -> None:
    places = np.array([0.01, 0.05, 0.25, 0.5, 0.6, 0.75, 0.9])
    np.testing.assert_allclose(SHAPES["cosine"].at(places), (1 + np.cos(np.pi * places)) / 2)
    np.testing.assert_allclose(SHAPES["step_decay"].at(places), [1, 1, 1, 0.1, 0.1, 0.01, 0.01])
    np.testing.assert_allclose(SHAPES["warmup_stable_decay"].at(places), [0.2, 1, 1, 1, 1, 1, 0.5])
    fine = np.linspace(0, 1, 1001)
    for shape in SHAPES.values():
        assert shape.at(fine).max() == 1.0
        assert shape.at(fine).min() >= 0.0


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_ready_made_schedule_follows_its_shape(shape: str, momentum: float) -> None:
    for steps, power, batch_size in ((1, 0.0, 256), (7, 0.5, 4**8), (150, 0.5, 4**8), (2000, 0.0, 256)):
        plan = bl.ready_made_schedule(PROBLEM, shape, batch_size, steps, 0.3, momentum, power)
        assert plan.steps == steps
        middles = (np.cumsum(plan.lengths) - plan.lengths / 2) / steps
        np.testing.assert_allclose(plan.learning_rates, 0.3 * SHAPES[shape].at(middles))
        if steps <= 150:
            assert (plan.lengths == 1).all()
        assert plan.risk == pytest.approx(step_through(PROBLEM, plan, batch_size)[-1], rel=1e-9)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_no_peak_of_a_grid_beats_the_tuned_one(shape: str, momentum: float) -> None:
    for steps, power, batch_size in ((40, 0.5, 4**8), (1000, 0.0, 256)):
        best = bl.ready_made_schedule(PROBLEM, shape, batch_size, steps, momentum=momentum, power=power)
        limit = 2 * (1 + momentum)
        assert best.learning_rates.max() <= limit
        for peak in np.geomspace(1e-3, 1, 80) * limit:
            other = bl.ready_made_schedule(PROBLEM, shape, batch_size, steps, peak, momentum, power)
            assert best.risk <= other.risk * (1 + 1e-4), f"peak {peak}"


@pytest.mark.parametrize("shape", SHAPES)
def test_the_best_schedule_beats_the_ready_made_ones(shape: str) -> None:
    for steps, power, batch_size in ((1, 0.0, 256), (40, 0.5, 4**8), (200, 0.0, 256), (1000, 0.0, 4**10)):
        habit = bl.ready_made_schedule(PROBLEM, shape, batch_size, steps, power=power)
        assert bl.best_schedule(PROBLEM, batch_size, steps, 200, power=power).risk <= habit.risk * (1 + 1e-6)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_tuned_ready_made_schedule_needs_the_fewest_steps(shape: str, momentum: float) -> None:
    for power, batch_size in ((0.0, 256), (0.5, 4**8)):
        plan = bl.tune_ready_made(PROBLEM, shape, batch_size, TARGET, momentum, power)
        assert plan.risk <= TARGET
        assert plan.risk == pytest.approx(bl.risk_path(PROBLEM, plan.rules, batch_size, plan.lengths)[-1], rel=1e-12)
        for fewer in {plan.steps - 1, plan.steps - 1 - plan.steps // 1000, int(0.8 * plan.steps)}:
            other = bl.ready_made_schedule(PROBLEM, shape, batch_size, fewer, momentum=momentum, power=power)
            assert other.risk > TARGET * (1 - 1e-5), f"{fewer} steps do where {plan.steps} were reported"
        if shape == "constant":
            kept = bl.tune(PROBLEM, "momentum", batch_size, TARGET, power, momentum=momentum).steps
            assert kept is not None
            assert abs(plan.steps - kept) <= max(1, 1e-4 * kept)


# ---------------------------------------------------------------------------------------------
# Without noise, without steps, without sense
# ---------------------------------------------------------------------------------------------


def test_without_noise_two_rates_solve_two_coordinates() -> None:
    """Learning rates 1 and 2, in any order, remove both coordinates; constant ones need many steps."""
    for target in (1e-3, 1e-6, 1e-9):
        plan = bl.optimal_schedule(STEEP, 1, target)
        assert plan.steps == 2
        np.testing.assert_allclose(sorted(plan.learning_rates), [1, 2], atol=2 * math.sqrt(target))
    assert bl.best_schedule(STEEP, 1, steps=10).risk < 1e-12
    assert bl.best_schedule(STEEP, 1, steps=10, momentum="tuned").risk < 1e-12


def test_a_target_above_the_initial_risk_takes_no_step() -> None:
    for plan in (
        bl.optimal_schedule(PROBLEM, 256, PROBLEM.initial_risk),
        bl.optimal_schedule(PROBLEM, 256, 10.0, momentum="tuned"),
        bl.tune_ready_made(PROBLEM, "cosine", 256, 10.0),
    ):
        assert plan.steps == 0
        assert plan.learning_rates.size == 0
        assert plan.rules == []
        assert plan.risk == PROBLEM.initial_risk


def test_a_target_next_to_the_initial_risk_takes_one_step() -> None:
    plan = bl.optimal_schedule(PROBLEM, 256, PROBLEM.initial_risk * (1 - 1e-6))
    assert plan.steps == 1
    assert plan.risk < PROBLEM.initial_risk


def test_a_target_out_of_reach_is_named() -> None:
    with pytest.raises(ValueError, match="`target` must be within reach"):
        bl.optimal_schedule(PROBLEM, 1, 1e-12)


GOOD: dict[str, Any] = {"problem": PROBLEM, "batch_size": 256}


def ask_optimal(**values: Any) -> bl.Schedule:
    return bl.optimal_schedule(**GOOD | {"target": 0.5} | values)


def ask_best(**values: Any) -> bl.Schedule:
    return bl.best_schedule(**GOOD | {"steps": 10} | values)


def ask_ready_made(**values: Any) -> bl.Schedule:
    return bl.ready_made_schedule(**GOOD | {"shape": "cosine", "steps": 10} | values)


def ask_tuned(**values: Any) -> bl.Schedule:
    return bl.tune_ready_made(**GOOD | {"shape": "cosine", "target": 0.5} | values)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"batch_size": 0}, "`batch_size` must be finite and above 0, got 0."),
        ({"momentum": 1.0}, "`momentum` must be in [0, 1), got 1.0."),
        ({"power": -0.5}, "`power` must be in [0, 1], got -0.5."),
    ],
)
def test_bad_values_of_all_schedules(values: dict[str, Any], message: str) -> None:
    for ask in (ask_optimal, ask_best, ask_ready_made, ask_tuned):
        with pytest.raises(ValueError, match=re.escape(message)):
            ask(**values)


@pytest.mark.parametrize("ask", [ask_optimal, ask_best])
@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"pieces": 0}, "`pieces` must be at least 1, got 0."),
        ({"pieces": 1.5}, "`pieces` must be a whole number, got 1.5."),
        ({"max_learning_rate": 0.0}, "`max_learning_rate` must be finite and above 0, got 0.0."),
        ({"max_learning_rate": math.inf}, "`max_learning_rate` must be finite and above 0, got inf."),
    ],
)
def test_bad_values_of_free_schedules(ask: Any, values: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        ask(**values)


def test_other_bad_values() -> None:
    for ask in (ask_optimal, ask_best):
        with pytest.raises(ValueError, match=r"`momentum`.*tuned.*free"):
            ask(momentum="free")
    for ask in (ask_ready_made, ask_tuned):
        with pytest.raises(ValueError, match="`shape`") as caught:
            ask(shape="triangle")
        for shape in (*SHAPES, "triangle"):
            assert shape in str(caught.value)
        with pytest.raises((TypeError, ValueError), match="`momentum`"):
            ask(momentum="tuned")
    for ask in (ask_best, ask_ready_made):
        with pytest.raises(ValueError, match="`steps` must be at least 1, got 0"):
            ask(steps=0)
    for ask in (ask_optimal, ask_tuned):
        with pytest.raises(ValueError, match="`target` must be finite and above 0, got 0"):
            ask(target=0)
    with pytest.raises(ValueError, match="`learning_rate` must be finite and at least 0, got -1"):
        ask_ready_made(learning_rate=-1)


def test_a_search_for_a_schedule_says_what_it_tries() -> None:
    told: list[tuple[int, float]] = []
    problem = bl.NoisyQuadratic.power_law(dim=50)
    plan = bl.optimal_schedule(problem, 16, 0.1, pieces=5, progress=lambda steps, risk: told.append((steps, risk)))
    assert {risk <= 0.1 for steps, risk in told if steps == plan.steps} == {True}
    assert all(risk > 0.1 for steps, risk in told if steps < plan.steps)
