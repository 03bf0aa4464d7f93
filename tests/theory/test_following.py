"""Noise that follows the loss, against steps taken one by one, drawn noise and the paper's constant noise."""

from __future__ import annotations

import math
from dataclasses import astuple
from pathlib import Path

import numpy as np
import pandas.testing
import pytest

import batchlens as bl
from batchlens.theory._nearby import tune_nearby
from tests.reference import Setting, monte_carlo_risk, risk_by_steps

H, C, S, N = [1.3, 0.4, 0.05], [0.5, 0.1, 0.0], [0.1, 1.0, 2.0], [1.0, 2.0, 5.0]
GROWTH = [1.5, 0.3, 0.1]
RULES = {
    "sgd": Setting(0.4),
    "momentum": Setting(0.1, 0.9),
    "nesterov": Setting(0.1, 0.9, True),
    "sgd+ema": Setting(0.8, averaging=0.9),
    "momentum+ema": Setting(0.3, 0.8, averaging=0.9),
    "preconditioned 0.5": Setting(0.3, power=0.5),
    "nesterov+ema+preconditioned": Setting(0.1, 0.8, True, 0.8, 0.5),
}
FAMILIES = ("sgd", "momentum", "nesterov", "sgd+ema", "momentum+ema")


def power_law(growth: float, noise: float = 1.0, dim: int = 200) -> bl.NoisyQuadratic:
    h = np.arange(1.0, dim + 1) ** -1.0
    return bl.NoisyQuadratic(h, noise * h, np.ones(dim), noise_growth=growth * h).binned(30)


@pytest.mark.parametrize("name", RULES)
def test_every_step_has_the_risk_of_a_dense_recursion(name: str) -> None:
    problem = bl.NoisyQuadratic(H, C, S, N, GROWTH)
    slow = risk_by_steps(H, C, S, N, RULES[name], 3.0, 300, GROWTH)
    steps = [0, 1, 2, 17, 300]
    found = bl.risk(problem, bl.UpdateRule(*astuple(RULES[name])), 3.0, steps)
    np.testing.assert_allclose(found, slow[steps], rtol=1e-11)


@pytest.mark.parametrize("name", RULES)
def test_simulated_training_has_the_risk(name: str) -> None:
    setting, rule = RULES[name], bl.UpdateRule(*astuple(RULES[name]))
    mean, error = monte_carlo_risk(H, C, S, 40_000, setting, 4, 40, 1, GROWTH)
    exact = bl.risk(bl.NoisyQuadratic(H, C, S, noise_growth=GROWTH), rule, 4, 40)
    assert abs(mean - exact) < 4 * error
    constant = bl.risk(bl.NoisyQuadratic(H, C, S), rule, 4, 40)
    assert abs(mean - constant) > 4 * error, "constant noise would not have been noticed"


@pytest.mark.parametrize("name", RULES)
def test_first_hits_are_those_of_counting(name: str) -> None:
    problem, rule = bl.NoisyQuadratic(H, C, S, N, GROWTH), bl.UpdateRule(*astuple(RULES[name]))
    risks = risk_by_steps(H, C, S, N, RULES[name], 8.0, 400, GROWTH)
    for target in (0.6 * risks[0], 1.1 * risks.min(), 1.0001 * risks.min()):
        assert bl.steps_to_target(problem, rule, 8.0, target) == int(np.argmax(risks <= target))


@pytest.mark.parametrize("name", RULES)
def test_the_steady_state_is_where_long_runs_end(name: str) -> None:
    problem, rule = bl.NoisyQuadratic(H, C, S, N, GROWTH), bl.UpdateRule(*astuple(RULES[name]))
    assert bl.steady_state_risk(problem, rule, 4.0) == pytest.approx(bl.risk(problem, rule, 4.0, 20_000), rel=1e-9)


def test_noise_that_feeds_itself_has_no_steady_state() -> None:
    problem, rule = bl.NoisyQuadratic([1.0], [0.0], [1.0], noise_growth=[10.0]), bl.UpdateRule(1.0)
    assert bl.is_stable(problem, rule)
    assert bl.steady_state_risk(problem, rule, batch_size=1) == math.inf
    assert bl.hitting_time(problem, rule, 1, 0.1).status == "unstable"
    assert bl.hitting_time(problem, rule, 100, 0.1).status == "reached"


def test_a_noise_level_above_the_target_is_told() -> None:
    problem = bl.NoisyQuadratic([1.0], [1.0], [1.0], noise_growth=[1.0])
    found = bl.hitting_time(problem, bl.UpdateRule(0.5), 1, 0.01, max_steps=1000)
    assert found == (None, "steady_state_above_target")


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("batch_size", [4, 64, 4096])
def test_without_growth_the_search_finds_what_the_exact_one_finds(family: str, batch_size: int) -> None:
    """A growth too small to matter sends the problem through the other search."""
    expected = bl.tune(power_law(0.0), family, batch_size, 0.05).steps
    found = bl.tune(power_law(1e-12), family, batch_size, 0.05).steps
    assert found is not None
    assert expected is not None
    assert expected <= found <= 1.002 * expected + 1


@pytest.mark.parametrize("family", ["sgd", "momentum", "sgd+ema"])
@pytest.mark.parametrize("batch_size", [2, 32])
def test_no_rule_of_a_dense_grid_is_better(family: str, batch_size: int) -> None:
    problem = power_law(5.0, noise=0.2)
    best = bl.tune(problem, family, batch_size, 0.05)
    momenta = 1 - np.geomspace(1, 0.01, 14) if family == "momentum" else [0.0]
    averages = 1 - np.geomspace(1, 0.005, 14) if family == "sgd+ema" else [0.0]
    assert best.steps is not None
    assert best.rule is not None
    assert bl.steps_to_target(problem, best.rule, batch_size, 0.05) == best.steps
    for momentum in momenta:
        for averaging in averages:
            for rate in np.geomspace(1e-3, 1.99 * (1 + momentum), 40):
                rule = bl.UpdateRule(float(rate), float(momentum), averaging=float(averaging))
                steps = bl.hitting_time(problem, rule, batch_size, 0.05, max_steps=best.steps).steps
                assert steps is None or steps >= best.steps


def test_a_family_is_never_slower_than_one_that_it_contains() -> None:
    steps = {family: bl.tune(power_law(2.0), family, 16, 0.05).steps or math.inf for family in FAMILIES}
    assert steps["momentum+ema"] <= min(steps["momentum"], steps["sgd+ema"])
    assert max(steps["momentum"], steps["nesterov"], steps["sgd+ema"]) <= steps["sgd"]


def test_more_growth_takes_more_steps_at_small_batches_only() -> None:
    few, many = power_law(0.0, noise=0.1), power_law(20.0, noise=0.1)
    small = [bl.tune(problem, "sgd", 2, 0.05).steps or 0 for problem in (few, many)]
    large = [bl.tune(problem, "sgd", 10**6, 0.05).steps or 0 for problem in (few, many)]
    assert small[1] > 2 * small[0]
    assert large[1] <= large[0] + 1


def test_a_kept_momentum_is_kept() -> None:
    found = bl.tune(power_law(2.0), "momentum", 16, 0.05, momentum=0.7)
    assert found.rule is not None
    assert found.rule.momentum == pytest.approx(0.7)


@pytest.mark.parametrize("family", ["sgd+ema", "momentum"])
def test_long_runs_are_found_without_the_grid(family: str) -> None:
    """Averages of ten thousand steps and more lie beyond it."""
    h = np.arange(1.0, 101.0) ** -1.0
    steady = bl.NoisyQuadratic(h, 150 * h, np.ones(100)).binned(15)
    following = bl.NoisyQuadratic(
        steady.curvature, steady.noise, steady.initial, steady.count, 1e-12 * steady.curvature
    )  # fmt: skip
    expected, found = (bl.tune(problem, family, 8, 0.1).steps for problem in (steady, following))
    assert expected is not None
    assert expected > 2000
    assert found == pytest.approx(expected, rel=1e-3)


def test_a_run_that_grows_without_end_has_a_risk_without_end() -> None:
    problem = power_law(1.0)
    assert bl.risk(problem, bl.UpdateRule(3.0), 64, [10, 3000])[1] == math.inf


def test_a_file_keeps_the_growth(tmp_path: Path) -> None:
    problem = power_law(1.0)
    problem.to_frame().to_csv(tmp_path / "problem.csv", index=False)
    pandas.testing.assert_frame_equal(bl.read_problem(tmp_path / "problem.csv").to_frame(), problem.to_frame())


def test_a_target_of_few_steps_does_not_lead_out_of_the_search() -> None:
    """There a momentum of nearly 1 does no harm, and the search wanders."""
    problem = power_law(3.0)
    found = bl.tune(problem, "momentum+ema", 4096, 0.5 * problem.initial_risk)
    assert found.rule is not None
    assert found.rule.momentum < 1


def test_a_target_out_of_reach_is_a_result() -> None:
    assert bl.tune(power_law(2.0), "sgd", 16, 0.05, max_steps=3).status == "beyond_max_steps"


@pytest.mark.parametrize("family", ["sgd", "momentum", "sgd+ema"])
def test_next_to_a_known_rule_the_best_one_is_found(family: str) -> None:
    known = bl.tune(power_law(2.0), family, 16, 0.05)
    exact = bl.tune(power_law(2.5), family, 16, 0.05)
    assert known.rule is not None
    assert known.steps is not None
    assert exact.steps is not None
    near = tune_nearby(power_law(2.5), family, 16, 0.05, 0.0, known.rule, known.steps)
    assert near is not None
    assert near[0] == pytest.approx(exact.steps, rel=0.01, abs=1)


def test_a_rule_at_the_limit_is_followed_when_the_limit_moves() -> None:
    """With hardly any noise the best rate of SGD is next to the largest stable one."""
    known = bl.tune(power_law(2.0), "sgd", 10**6, 0.05)
    before = power_law(2.0)
    stiffer = bl.NoisyQuadratic(1.1 * before.curvature, before.noise, before.initial, before.count, before.noise_growth)
    assert known.rule is not None
    assert known.steps is not None
    near = tune_nearby(stiffer, "sgd", 10**6, 0.05, 0.0, known.rule, known.steps)
    assert near is not None
    assert near[0] == pytest.approx(bl.tune(stiffer, "sgd", 10**6, 0.05).steps, rel=0.01, abs=1)


@pytest.mark.parametrize("rounding", ["mean", "down"])
def test_bins_keep_the_growth(rounding: str) -> None:
    h = np.geomspace(1.0, 0.1, 50)
    fine = bl.NoisyQuadratic(h, h, np.ones(50), noise_growth=2 * h)
    coarse = fine.binned(10, rounding)  # type: ignore[arg-type]
    np.testing.assert_allclose(coarse.noise_growth, 2 * coarse.noise)
    rule = bl.UpdateRule(0.5)
    assert bl.risk(coarse, rule, 64, 100) == pytest.approx(bl.risk(fine, rule, 64, 100), rel=0.3)


def test_units_far_from_one_change_nothing() -> None:
    plain = bl.tune(power_law(2.0), "momentum", 16, 0.05)
    h = power_law(2.0)
    scale = 2.0**-800
    tiny = bl.NoisyQuadratic(h.curvature * scale, h.noise * scale, h.initial / scale, h.count, h.noise_growth * scale)
    assert bl.tune(tiny, "momentum", 16, 0.05).steps == plain.steps


def test_what_needs_constant_noise_says_so() -> None:
    problem, rule = power_law(1.0), bl.UpdateRule(0.1)
    for ask in (
        lambda: bl.best_risk(problem, "sgd", 16, steps=10),
        lambda: bl.optimal_schedule(problem, batch_size=16, target=0.05),
        lambda: bl.risk_path(problem, rule, 16, [10]),
        lambda: bl.optimal_batch_schedule(problem, "sgd", target=0.05, steps=100),
    ):
        with pytest.raises(ValueError, match="noise_growth"):
            ask()


def test_bad_growth_is_refused() -> None:
    with pytest.raises(ValueError, match="`noise_growth` must be at least 0, got -1"):
        bl.NoisyQuadratic([1.0], [1.0], [1.0], noise_growth=[-1.0])
    with pytest.raises(ValueError, match="noise_growth"):
        bl.NoisyQuadratic([1.0], [1.0], [1.0], noise_growth=[1.0, 2.0])
    with pytest.raises(ValueError, match="`steps` must be at most"):
        bl.risk(power_law(1.0), bl.UpdateRule(0.1), 16, 10**12)
