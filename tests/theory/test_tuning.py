"""The tuner against a dense search, against steps counted one by one, and against itself where answers must agree."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from functools import cache
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import batchlens as bl
from tests.dense_search import Search, paper_problem, quadratic

Floats = npt.NDArray[np.float64]
Asked = dict[str, Any]  # what `tune` takes apart from problem and family

FAMILIES = ("sgd", "momentum", "nesterov", "sgd+ema", "momentum+ema")
CONTAINED = [
    ("sgd", "momentum"),
    ("sgd", "nesterov"),
    ("sgd", "sgd+ema"),
    ("momentum", "momentum+ema"),
    ("sgd+ema", "momentum+ema"),
]
BATCH_SIZES = tuple(4**k for k in range(1, 11))
CELLS = tuple(product((0.0, 0.25, 0.5, 0.75), BATCH_SIZES))
TARGET = 0.01
PAPER = paper_problem()
PROBLEM = bl.NoisyQuadratic(*PAPER)

# Up to this number of steps every rule of a dense grid is stepped to its first hit.
COUNTABLE = 2_000
# How much a search over a grid, by its number of dimensions, may itself miss of the optimum.
GRID_ERROR = {1: 0.001, 2: 0.015, 3: 0.08}


@cache
def tuned(family: str, power: float, batch_size: float) -> bl.Tuned:
    return bl.tune(PROBLEM, family, batch_size, TARGET, power)


def steps_of(result: bl.Tuned) -> int:
    assert result.status == "reached"
    assert result.steps is not None
    return result.steps


def rule_of(result: bl.Tuned) -> bl.UpdateRule:
    assert result.rule is not None
    return result.rule


def as_row(rule: bl.UpdateRule) -> Floats:
    """A rule as the dense search takes it."""
    return np.array([[rule.learning_rate, 1 - rule.momentum, 1 - rule.averaging]])


def search_of(problem: bl.NoisyQuadratic, family: str, batch_size: float, target: float, power: float) -> Search:
    columns = problem.curvature, problem.noise, problem.initial, problem.count
    return Search(quadratic(*columns, power), family, batch_size, target)


def fewest_allowed(steps: int) -> float:
    """What an exhaustive search may need at least, if the tuner is to pass."""
    return min(0.995 * steps, steps - 1)


def same(steps: int, other: int, tolerance: float = 1e-3) -> bool:
    """Equal up to one step or a share."""
    return abs(steps - other) <= max(1, tolerance * steps)


# ---------------------------------------------------------------------------------------------
# As good as a dense search
# ---------------------------------------------------------------------------------------------


def spread_cells(family: str) -> tuple[tuple[float, int], ...]:
    """All cells, or for the families with more to search every third."""
    return CELLS if family in ("sgd", "momentum", "sgd+ema") else CELLS[::3]


@pytest.mark.parametrize(
    ("family", "power", "batch_size"),
    [
        pytest.param(family, *cell, marks=[] if cell[0] >= 0.5 and cell[1] >= 4**6 else pytest.mark.slow)
        for family in FAMILIES
        for cell in spread_cells(family)
    ],
)
def test_no_rule_of_a_dense_search_needs_fewer_steps(family: str, power: float, batch_size: int) -> None:
    steps = steps_of(tuned(family, power, batch_size))
    search = search_of(PROBLEM, family, batch_size, TARGET, power)
    if steps <= COUNTABLE or (family == "sgd" and steps <= 10 * COUNTABLE):
        found = search.fewest_steps(most=int(1.15 * steps) + 5)
    else:
        # At these numbers of steps no rule is at the target; the best ones a bit later are counted step by step.
        for share, basins, zooms in ((0.5, 1, 1), (0.7, 1, 1), (0.9, 1, 1), (0.995, 3, 2)):
            _, risks = search.best_rules(math.floor(share * steps), basins, zooms)
            assert risks[0] > TARGET, f"a rule reaches the target in {share} of the tuned {steps} steps"
        rules, _ = search.best_rules(steps, basins=1)
        found = int(search.first_hits(rules[: max(10**7 // steps, 8)], most=int(1.02 * steps)).min())
    assert found >= fewest_allowed(steps)
    # and the search was dense enough to tell
    assert found <= 1 + steps * (1 + GRID_ERROR[len(family.split("+")) + (family != "sgd")])


@pytest.mark.parametrize("family", FAMILIES)
def test_reported_steps_are_the_first_with_a_risk_at_the_target(family: str) -> None:
    for power, batch_size in CELLS:
        best = tuned(family, power, batch_size)
        search = search_of(PROBLEM, family, batch_size, TARGET, power)
        counted = search.first_hits(as_row(rule_of(best)), most=steps_of(best) + 10)[0]
        assert counted == best.steps, f"power {power}, batch size {batch_size}"


def test_problem_is_the_paper_s() -> None:
    binned = bl.NoisyQuadratic.power_law(dim=10_000).binned(100, rounding="down")
    np.testing.assert_allclose(binned.curvature, PROBLEM.curvature, rtol=1e-12)
    np.testing.assert_array_equal(binned.count, PROBLEM.count)


def test_known_values() -> None:
    assert tuned("momentum", 0.0, 256).steps == 20_081
    assert steps_of(tuned("momentum", 0.0, 65_536)) <= 182


def draw_problem(seed: int, noiseless: bool = False) -> tuple[bl.NoisyQuadratic, Asked]:
    """A problem of a few unlike coordinates, and what else `tune` takes."""
    random = np.random.default_rng(seed)
    dim = int(random.integers(1, 9))
    curvature = 10 ** random.uniform(-random.uniform(0, 5), 0, dim) * 10 ** random.uniform(-3, 3)
    noise = curvature * 10 ** random.uniform(-2, 1, dim) * (random.uniform(size=dim) < random.choice([1, 1, 0.7]))
    initial = 10 ** random.uniform(-3, 2, dim)
    initial[1:] *= random.uniform(size=dim - 1) < random.choice([1, 1, 0.7])
    count = random.integers(1, 100, dim).astype(np.float64)
    problem = bl.NoisyQuadratic(curvature, 0 * noise if noiseless else noise, initial, count)
    asked = {
        "batch_size": float(10 ** random.uniform(0, 5)),
        "target": problem.initial_risk * 10 ** -random.uniform(0.05, 3),
        "power": float(random.choice([0, 0.25, 0.5, 0.75, 1])),
    }
    return problem, asked


def check_against_dense_search(problem: bl.NoisyQuadratic, family: str, asked: Asked) -> None:
    best = bl.tune(problem, family, **asked)
    steps = steps_of(best)
    search = search_of(problem, family, **asked)
    if steps < 10**6:
        assert search.first_hits(as_row(rule_of(best)), most=steps + 10)[0] == steps
    if steps <= 10 * COUNTABLE // problem.curvature.size:
        assert search.fewest_steps(most=steps) >= fewest_allowed(steps)
        return
    for share in (0.3, 0.6, 0.8, 0.9, 0.95, 0.98, 0.995):
        rules, risks = search.best_rules(math.floor(share * steps), basins=2, zooms=2)
        assert risks[0] > asked["target"], f"{rules[0]} needs {share} of the tuned {steps} steps"


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("seed", [pytest.param(seed, marks=[pytest.mark.slow] * (seed > 3)) for seed in range(24)])
def test_no_rule_of_a_dense_search_needs_fewer_steps_on_other_problems(family: str, seed: int) -> None:
    problem, asked = draw_problem(seed)
    check_against_dense_search(problem, family, asked)


def test_the_least_risk_may_rise_with_the_steps() -> None:
    """Nesterov meets this target with 4 steps, and cannot with 5."""
    problem = bl.NoisyQuadratic(
        curvature=[0.2555, 8.289, 24.38, 0.4472, 0.8113, 10.30],
        noise=[0.00655, 0.905, 12.1, 0.00868, 0.0142, 29.2],
        initial=[0.941, 0.00113, 1.5, 0.00227, 0.43, 2.43],
        count=[59, 57, 39, 68, 4, 83],
    )
    asked: Asked = {"batch_size": 15_453.0, "target": 0.298, "power": 0.5}
    reached = bl.UpdateRule(learning_rate=0.2058, momentum=0.9228, nesterov=True, power=0.5)
    assert bl.steps_to_target(problem, reached, asked["batch_size"], asked["target"]) == 4
    assert bl.tune(problem, "nesterov", **asked).steps == 4


@pytest.mark.xfail(reason="a narrow basin of momentum with averaging is missed here: 791 steps for 540", strict=True)
def test_momentum_with_averaging_is_searched_where_its_ripples_are_narrow() -> None:
    problem = bl.NoisyQuadratic(
        curvature=[0.000995, 0.00136, 0.1561, 0.01817, 0.9075],
        noise=[1.3e-05, 4.242e-05, 0.02104, 0.004563, 0.1315],
        initial=[0.01739, 0.0, 15.77, 0.0, 0.01076],
        count=[78, 62, 7, 4, 29],
    )
    asked: Asked = {"batch_size": 1.5135, "target": 0.00652, "power": 0.0}
    reached = bl.UpdateRule(learning_rate=0.000455, momentum=1 - 0.0052, averaging=1 - 0.00412)
    known = bl.steps_to_target(problem, reached, asked["batch_size"], asked["target"])
    assert known is not None
    assert steps_of(bl.tune(problem, "momentum+ema", **asked)) <= known
    for steps in (600, 700, 791, 900):
        rule = replace(reached, learning_rate=0.000455 * (known / steps) ** 2)
        least = min(
            bl.risk(problem, replace(rule, momentum=1 - slip, averaging=1 - fresh), asked["batch_size"], steps)
            for slip in np.linspace(0.003, 0.006, 16)
            for fresh in np.linspace(0.002, 0.005, 16)
        )
        assert bl.best_risk(problem, "momentum+ema", asked["batch_size"], steps=steps).risk <= least


# ---------------------------------------------------------------------------------------------
# Answers that must agree
# ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("inner", "outer"), CONTAINED)
def test_a_family_never_needs_more_steps_than_one_it_contains(inner: str, outer: str) -> None:
    for power, batch_size in CELLS:
        assert steps_of(tuned(outer, power, batch_size)) <= steps_of(tuned(inner, power, batch_size))


@pytest.mark.parametrize("seed", range(60))
def test_families_keep_their_order_on_other_problems(seed: int) -> None:
    problem, asked = draw_problem(seed)
    steps = {family: bl.tune(problem, family, **asked).steps or math.inf for family in FAMILIES}
    for inner, outer in CONTAINED:
        assert steps[outer] <= steps[inner], f"{outer} and {inner}"


@pytest.mark.parametrize("family", FAMILIES)
def test_no_rule_beats_the_bayes_bound(family: str) -> None:
    for power, batch_size in CELLS:
        least = bl.lower_bound_steps(PROBLEM, batch_size, TARGET, kind="bayes")
        assert steps_of(tuned(family, power, batch_size)) >= least


@pytest.mark.parametrize(
    "family", [pytest.param(name, marks=[pytest.mark.slow] * (name == "momentum+ema")) for name in FAMILIES]
)
def test_a_slightly_different_problem_takes_about_as_many_steps(family: str) -> None:
    h, c, s, n = PAPER
    stretched = bl.NoisyQuadratic(h * (1 + 1e-6), c, s, n)
    for power, batch_size in CELLS:
        steps = steps_of(tuned(family, power, batch_size))
        where = f"power {power}, batch size {batch_size}"
        assert same(steps, steps_of(bl.tune(stretched, family, batch_size, TARGET, power))), where
        assert same(steps, steps_of(bl.tune(PROBLEM, family, batch_size * (1 + 1e-6), TARGET, power))), where


# A change of units leaves the steps as they are: (h, c, s, n, batch size, target), and what the learning rate becomes.
def in_other_units(name: str, k: float, power: float) -> tuple[bl.NoisyQuadratic, float, float, float]:
    h, c, s, n = PAPER
    match name:
        case "curvature":
            return bl.NoisyQuadratic(k * h, k**2 * c, s, n), 1.0, k, k ** (power - 1)
        case "parameters":
            return bl.NoisyQuadratic(h, k * c, k * s, n), 1.0, k, 1.0
        case "examples":
            return bl.NoisyQuadratic(h, k * c, s, n), k, 1.0, 1.0
        case "order":
            return bl.NoisyQuadratic(h[::-1], c[::-1], s[::-1], n[::-1]), 1.0, 1.0, 1.0
        case _:  # count
            h, c, s, n = (np.repeat(column, 2) for column in PAPER)
            return bl.NoisyQuadratic(h, c, s, n * np.tile([1, 3], n.size // 2)), 1.0, 4.0, 1.0


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(
    ("name", "k"),
    [*product(("curvature", "parameters", "examples"), (1e-6, 3.7, 1e6)), ("order", 1.0), ("count", 1.0)],
)
def test_units_do_not_matter(family: str, name: str, k: float) -> None:
    for power, batch_size in CELLS[::7]:
        best = tuned(family, power, batch_size)
        problem, batches, targets, rates = in_other_units(name, k, power)
        other = bl.tune(problem, family, batch_size * batches, TARGET * targets, power)
        assert same(steps_of(best), steps_of(other), 1e-4)
        if family == "sgd":  # the optimum is flat, and with momentum has ridges: only here is it one point
            assert rule_of(other).learning_rate == pytest.approx(rule_of(best).learning_rate * rates, rel=1e-2)


@pytest.mark.parametrize("family", FAMILIES)
def test_preconditioning_is_another_problem(family: str) -> None:
    h, c, s, n = PAPER
    for power, batch_size in CELLS[13::7]:
        changed = bl.NoisyQuadratic(h ** (1 - power), c * h**-power, s * h**power, n)
        assert same(
            steps_of(tuned(family, power, batch_size)),
            steps_of(bl.tune(changed, family, batch_size, TARGET)),
            1e-4,
        )


# ---------------------------------------------------------------------------------------------
# Far away
# ---------------------------------------------------------------------------------------------


def test_momentum_next_to_1_is_reached() -> None:
    assert 1 - rule_of(tuned("momentum", 0.0, 4)).momentum < 1e-5
    hard = bl.tune(PROBLEM, "momentum", batch_size=1, target=1e-6)
    assert steps_of(hard) > 10**11
    assert 1 - rule_of(hard).momentum < 1e-9


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("target", [1e-3, 1e-4, 1e-5])
def test_hard_targets_are_tuned_as_well_as_easy_ones(family: str, target: float) -> None:
    best = bl.tune(PROBLEM, family, batch_size=1, target=target)
    steps = steps_of(best)
    assert bl.risk(PROBLEM, rule_of(best), 1, steps) <= target
    assert bl.risk(PROBLEM, rule_of(best), 1, steps - 1) > target
    search = search_of(PROBLEM, family, 1, target, 0.0)
    _, risks = search.best_rules(math.floor(0.995 * steps), basins=1, zooms=1)
    assert risks[0] > target
    assert bl.best_risk(PROBLEM, family, batch_size=1, steps=steps).risk <= target * (1 + 1e-6)


def test_learning_rates_over_many_decades_are_reached() -> None:
    h, c, s, n = PAPER
    rates = []
    for scale, batch_size, target in ((1e-8, 4**10, 0.5), (1.0, 1, 1e-5), (1e8, 1, 1e-5)):
        problem = bl.NoisyQuadratic(scale * h, scale**2 * c, s, n)
        rates.append(rule_of(bl.tune(problem, "momentum", batch_size, scale * target)).learning_rate)
    assert rates[0] > 1e8
    assert rates[2] < 1e-20
    assert rates[1] == pytest.approx(1e8 * rates[2], rel=0.01)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("seed", range(12))
def test_without_noise(family: str, seed: int) -> None:
    problem, asked = draw_problem(seed, noiseless=True)
    check_against_dense_search(problem, family, asked)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("target", [0.4, 1e-2, 1e-6, 1e-11])
def test_one_coordinate_without_noise_takes_one_step(family: str, target: float) -> None:
    best = bl.tune(bl.NoisyQuadratic([2.0], [0.0], [1.0]), family, batch_size=1, target=target)
    assert best.steps == 1


@pytest.mark.slow
def test_problem_without_bins() -> None:
    whole = bl.NoisyQuadratic.power_law(dim=10_000)
    for family, batch_size in product(("momentum", "sgd+ema"), (256, 65_536)):
        best = bl.tune(whole, family, batch_size, TARGET)
        binned = bl.tune(whole.binned(1000), family, batch_size, TARGET)
        assert same(steps_of(best), steps_of(binned))
        assert bl.steps_to_target(whole, rule_of(best), batch_size, TARGET) == best.steps


# ---------------------------------------------------------------------------------------------
# Limits, fixed momentum, budgets
# ---------------------------------------------------------------------------------------------


def test_limits_name_the_edges_of_the_search() -> None:
    assert tuned("momentum", 0.0, 256).limits == ()
    assert tuned("sgd+ema", 0.0, 4).limits == ()
    # all of the risk in the flat direction, next to no noise: as fast as the stiff one allows
    stiff = bl.NoisyQuadratic([1.0, 1e-3], [1e-9, 1e-9], [1e-6, 1.0])
    assert bl.tune(stiff, "sgd", batch_size=1, target=1e-4).limits == ("stability",)
    # small batches of the paper's problem: with averaging there is nothing left for momentum to do
    assert tuned("momentum+ema", 0.0, 4).limits == ("momentum",)
    # without noise there is nothing to average
    quiet = bl.NoisyQuadratic([1.0, 0.5], [0.0, 0.0], [1.0, 1.0])
    assert bl.tune(quiet, "sgd+ema", batch_size=1, target=1e-2).limits == ("averaging",)


@pytest.mark.parametrize("family", ["momentum", "nesterov", "momentum+ema"])
@pytest.mark.parametrize("momentum", [0.0, 0.5, 0.9, 0.999])
def test_momentum_may_be_kept(family: str, momentum: float) -> None:
    for power, batch_size in CELLS[3::9]:
        kept = bl.tune(PROBLEM, family, batch_size, TARGET, power, momentum=momentum)
        assert rule_of(kept).momentum == pytest.approx(momentum, abs=1e-12)
        assert "momentum" not in kept.limits
        steps = steps_of(kept)
        assert steps >= steps_of(tuned(family, power, batch_size))
        if momentum == 0.0:
            assert steps == steps_of(tuned("sgd+ema" if "ema" in family else "sgd", power, batch_size))
        # no learning rate (nor averaging) does better
        limit = 2 * (1 + momentum) / (1 + 2 * momentum if family == "nesterov" else 1)
        rates = limit * np.concatenate([np.geomspace(1e-7, 0.9, 500), np.linspace(0.9, 0.999, 100)])
        rows = np.stack([rates, np.full_like(rates, 1 - momentum), np.ones_like(rates)], axis=1)
        if "ema" in family:
            averages = np.concatenate([1 - np.geomspace(0.2 / steps, 1, 60), [rule_of(kept).averaging]])
            rows = np.concatenate([rows * [1, 1, 1 - average] for average in averages])
        fewer = math.ceil(fewest_allowed(steps)) - 1
        search = search_of(PROBLEM, family, batch_size, TARGET, power)
        assert search.risks(rows, fewer).min() > TARGET
        assert bl.risk(PROBLEM, rule_of(kept), batch_size, steps) <= TARGET


def test_tuned_momentum_kept_takes_as_many_steps() -> None:
    for power, batch_size in CELLS[::5]:
        best = tuned("momentum", power, batch_size)
        kept = bl.tune(PROBLEM, "momentum", batch_size, TARGET, power, momentum=rule_of(best).momentum)
        assert same(steps_of(best), steps_of(kept), 1e-5)


@pytest.mark.parametrize("family", FAMILIES)
def test_best_risk_and_tune_agree(family: str) -> None:
    for power, batch_size in CELLS[::3]:
        steps = steps_of(tuned(family, power, batch_size))
        enough = bl.best_risk(PROBLEM, family, batch_size, steps=steps, power=power)
        assert enough.steps == steps
        assert enough.risk <= TARGET * (1 + 1e-7)
        assert enough.risk == pytest.approx(bl.risk(PROBLEM, enough.rule, batch_size, steps), rel=1e-12)
        fewer = steps - max(1, steps // 1000)
        assert bl.best_risk(PROBLEM, family, batch_size, steps=fewer, power=power).risk > TARGET * (1 - 1e-3)


@pytest.mark.parametrize("family", FAMILIES)
def test_best_risk_falls_with_the_budget_and_is_the_dense_search_s(family: str) -> None:
    before = PROBLEM.initial_risk
    for steps in (1, 2, 10, 100, 1_000, 10_000):
        best = bl.best_risk(PROBLEM, family, 256, steps=steps)
        assert bl.lower_bound_risk(PROBLEM, 256 * steps, kind="bayes") <= best.risk < before
        assert bl.is_stable(PROBLEM, best.rule)
        search = search_of(PROBLEM, family, 256, best.risk, 0.0)
        assert search.best_rules(steps, basins=1)[1][0] >= best.risk * (1 - 1e-6)
        before = best.risk


def test_budget_of_examples_is_a_budget_of_steps() -> None:
    for examples, steps in ((1_000_000, 3906), (256, 1), (511.9, 1), (512, 2)):
        by_examples = bl.best_risk(PROBLEM, "momentum", batch_size=256, examples=examples)
        assert by_examples == bl.best_risk(PROBLEM, "momentum", batch_size=256, steps=steps)
        assert by_examples.steps == steps


@pytest.mark.parametrize("family", FAMILIES)
def test_target_above_the_initial_risk_takes_no_step(family: str) -> None:
    for target in (PROBLEM.initial_risk, 2 * PROBLEM.initial_risk):
        best = bl.tune(PROBLEM, family, 256, target, power=0.5)
        assert (best.steps, best.status) == (0, "reached")
        assert bl.steps_to_target(PROBLEM, rule_of(best), 256, target) == 0
    assert bl.tune(PROBLEM, family, 256, PROBLEM.initial_risk * (1 - 1e-9)).steps == 1


@pytest.mark.parametrize("family", FAMILIES)
def test_a_target_beyond_max_steps_is_a_result(family: str) -> None:
    beyond: dict[str, Any] = dict.fromkeys(("steps", "learning_rate", "momentum", "averaging"))
    beyond |= {"status": "beyond_max_steps", "limits": []}
    for power, batch_size in CELLS[::6]:
        steps = steps_of(tuned(family, power, batch_size))
        fewer = bl.tune(PROBLEM, family, batch_size, TARGET, power, max_steps=math.ceil(steps * 0.99) - 1)
        assert fewer.as_document() == beyond
        enough = bl.tune(PROBLEM, family, batch_size, TARGET, power, max_steps=steps)
        assert enough.steps == steps
    assert bl.tune(PROBLEM, family, batch_size=1, target=1e-12).as_document() == beyond


# ---------------------------------------------------------------------------------------------
# Curves
# ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", FAMILIES)
def test_scaling_curve_is_tune_at_every_batch_size(family: str) -> None:
    curve = bl.scaling_curve(PROBLEM, family, BATCH_SIZES, TARGET, power=0.25)
    assert curve.batch_sizes == BATCH_SIZES
    assert (curve.optimizer, curve.power, curve.target) == (family, 0.25, TARGET)
    assert len(curve.settings) == len(BATCH_SIZES)
    for batch_size, steps, setting in zip(BATCH_SIZES, curve.steps, curve.settings, strict=True):
        best = tuned(family, 0.25, batch_size)
        assert steps == best.steps
        rule = rule_of(best)
        assert setting == {
            "learning_rate": rule.learning_rate,
            "momentum": rule.momentum,
            "averaging": rule.averaging,
        }


def test_scaling_curve_keeps_batch_sizes_that_do_not_reach_the_target() -> None:
    curve = bl.scaling_curve(PROBLEM, "momentum", [64, 256], TARGET, max_steps=30_000)
    assert curve.steps == (None, 20_081)
    assert curve.settings[0] == {}


def test_scaling_curve_says_how_each_point_was_found() -> None:
    curve = bl.scaling_curve(PROBLEM, "momentum", [64, 4**10], TARGET, max_steps=30_000)
    assert curve.statuses == ("beyond_max_steps", "reached")
    found = [bl.tune(PROBLEM, "momentum", size, TARGET, max_steps=30_000) for size in curve.batch_sizes]
    assert curve.limits == tuple(best.limits for best in found)


def test_scaling_curve_of_a_rule_is_its_first_hit_at_every_batch_size() -> None:
    rule = bl.UpdateRule(0.05, 0.9, averaging=0.5, power=0.25)
    sizes = (1, 64, 4096)
    curve = bl.scaling_curve(PROBLEM, rule, sizes, TARGET)
    hits = [bl.hitting_time(PROBLEM, rule, size, TARGET) for size in sizes]
    assert [*zip(curve.steps, curve.statuses, strict=True)] == hits
    assert {status for _, status in hits} == {"reached", "steady_state_above_target"}
    assert (curve.optimizer, curve.power, curve.target) == ("momentum+ema", 0.25, TARGET)
    assert curve.settings == ({"learning_rate": 0.05, "momentum": 0.9, "averaging": 0.5},) * 3


@pytest.mark.parametrize("extra", [{"power": 0.5}, {"momentum": 0.9}])
def test_a_rule_has_its_own_power_and_momentum(extra: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=rf"^`{next(iter(extra))}` must be left out where a rule is given, which has "):
        bl.scaling_curve(PROBLEM, bl.UpdateRule(0.1), [4], TARGET, **extra)


@pytest.mark.parametrize("family", ["sgd", bl.UpdateRule(0.5)])
def test_progress_is_told_after_each_batch_size(family: Any) -> None:
    told: list[tuple[int, int, str]] = []
    bl.scaling_curve(PROBLEM, family, [256, 1024.5], 0.5, progress=lambda *words: told.append(words))
    assert told == [(1, 2, "sgd, batch size 256"), (2, 2, "sgd, batch size 1024.5")]


def test_steps_fall_with_the_batch_size() -> None:
    for family, power in product(FAMILIES, (0.0, 0.25, 0.5, 0.75)):
        steps = [steps_of(tuned(family, power, batch_size)) for batch_size in BATCH_SIZES]
        assert steps == sorted(steps, reverse=True)


# ---------------------------------------------------------------------------------------------
# Bad input
# ---------------------------------------------------------------------------------------------

TUNE: dict[str, Any] = {"problem": PROBLEM, "family": "momentum", "batch_size": 256, "target": 0.01}
BAD_VALUES: list[tuple[dict[str, Any], str]] = [
    ({"batch_size": 0}, "`batch_size` must be finite and above 0, got 0."),
    ({"batch_size": math.inf}, "`batch_size` must be finite and above 0, got inf."),
    ({"target": 0}, "`target` must be finite and above 0, got 0."),
    ({"target": -0.01}, "`target` must be finite and above 0, got -0.01."),
    ({"target": math.nan}, "`target` must be finite and above 0, got nan."),
    ({"power": 1.5}, "`power` must be in [0, 1], got 1.5."),
    ({"momentum": 1.0}, "`momentum` must be in [0, 1), got 1.0."),
    ({"family": "sgd", "momentum": 0.9}, "`momentum` must be left out for sgd, got 0.9."),
    ({"family": "sgd+ema", "momentum": 0.9}, "`momentum` must be left out for sgd+ema, got 0.9."),
    ({"max_steps": 0}, "`max_steps` must be at least 1, got 0."),
]


@pytest.mark.parametrize(("values", "message"), BAD_VALUES)
def test_bad_values(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        bl.tune(**TUNE | values)


def test_unknown_family_lists_the_known_ones() -> None:
    for ask in (
        lambda: bl.tune(PROBLEM, "adam", 256, 0.01),
        lambda: bl.best_risk(PROBLEM, "adam", 256, steps=10),
        lambda: bl.scaling_curve(PROBLEM, "adam", [256], 0.01),
    ):
        with pytest.raises(ValueError, match="`family`") as caught:
            ask()
        for family in (*FAMILIES, "adam"):
            assert family in str(caught.value)


@pytest.mark.parametrize(
    "budget",
    [{}, {"steps": 10, "examples": 1000}, {"steps": 0}, {"steps": 1.5}, {"examples": 255}, {"examples": math.inf}],
)
def test_a_budget_is_examples_or_steps(budget: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"`(examples|steps)`"):
        bl.best_risk(PROBLEM, "sgd", 256, **budget)


def test_batch_sizes_of_a_curve_must_rise() -> None:
    for sizes in ([], [256, 64], [64, 64]):
        with pytest.raises(ValueError, match="`batch_sizes`"):
            bl.scaling_curve(PROBLEM, "sgd", sizes, 0.5)
