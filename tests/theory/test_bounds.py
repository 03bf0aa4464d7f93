"""Lower bounds, against one-line formulas and against what rules can do."""

from __future__ import annotations

import math

import numpy as np
import pytest

from batchlens import NoisyQuadratic, UpdateRule, lower_bound_risk, lower_bound_steps, risk

PAPER = NoisyQuadratic.power_law(dim=10_000)
MIXED = NoisyQuadratic([2.0, 0.3, 0.01], [0.7, 4.0, 0.2], [1.0, 0.1, 30.0], [1, 5, 20])
NO_NOISE_SOMEWHERE = NoisyQuadratic([2.0, 0.3, 0.01], [0.7, 0.0, 0.2], [1.0, 0.1, 30.0])
NO_START_SOMEWHERE = NoisyQuadratic([2.0, 0.3, 0.01], [0.7, 4.0, 0.2], [1.0, 0.0, 30.0])
PROBLEMS = [PAPER, MIXED, NO_NOISE_SOMEWHERE, NO_START_SOMEWHERE]
IDS = ["paper", "mixed", "no noise somewhere", "no start somewhere"]


def mle(p: NoisyQuadratic, examples: float) -> float:
    columns = zip(p.curvature, p.noise, p.count, strict=True)
    return 0.5 * math.fsum(n * c / (examples * h) for h, c, n in columns)


def bayes(p: NoisyQuadratic, examples: float) -> float:
    """h / (1/s + N h^2 / c), with its limits at s = 0 and at c = 0."""
    columns = zip(p.curvature, p.noise, p.initial, p.count, strict=True)
    return 0.5 * math.fsum(n * h / (1 / s + examples * h**2 / c) for h, c, s, n in columns if s > 0 and c > 0)


@pytest.mark.parametrize("examples", [1e-3, 1.0, 7.5, 1000, 1e12])
@pytest.mark.parametrize("problem", PROBLEMS, ids=IDS)
def test_risk_is_the_formula(problem: NoisyQuadratic, examples: float) -> None:
    assert lower_bound_risk(problem, examples) == pytest.approx(mle(problem, examples), rel=1e-12)
    assert lower_bound_risk(problem, examples, kind="bayes") == pytest.approx(bayes(problem, examples), rel=1e-12)


@pytest.mark.parametrize("problem", PROBLEMS, ids=IDS)
def test_without_examples_only_the_start_is_known(problem: NoisyQuadratic) -> None:
    assert lower_bound_risk(problem, 0) == math.inf
    assert lower_bound_risk(problem, 0, kind="bayes") == pytest.approx(problem.initial_risk, rel=1e-14)


def test_the_papers_bound_is_d_over_2n() -> None:
    assert lower_bound_risk(PAPER, 500_000) == pytest.approx(10_000 / (2 * 500_000), rel=1e-13)


def test_without_noise_one_example_tells_all() -> None:
    problem = NoisyQuadratic([1.0, 0.1], [0.0, 0.0], [1.0, 2.0])
    assert lower_bound_risk(problem, 1) == 0.0
    assert lower_bound_risk(problem, 1, kind="bayes") == 0.0
    assert lower_bound_steps(problem, 1, 1e-9) == 1
    assert lower_bound_steps(problem, 1, 1e-9, kind="bayes") == 1


def test_at_the_minimum_there_is_nothing_to_learn() -> None:
    problem = NoisyQuadratic([1.0, 0.1], [1.0, 1.0], [0.0, 0.0])
    assert lower_bound_risk(problem, 1, kind="bayes") == 0.0
    assert lower_bound_steps(problem, 1, 1e-9, kind="bayes") == 0


@pytest.mark.parametrize("problem", PROBLEMS, ids=IDS)
def test_bayes_is_never_above_mle_nor_above_the_start(problem: NoisyQuadratic) -> None:
    for examples in np.geomspace(1e-6, 1e9, 60):
        bound = lower_bound_risk(problem, examples, kind="bayes")
        assert bound <= lower_bound_risk(problem, examples) * (1 + 1e-14)
        assert bound <= problem.initial_risk * (1 + 1e-14)


@pytest.mark.parametrize("batch_size", [0.5, 1, 7, 256, 1e6])
@pytest.mark.parametrize("target", [1.0, 0.1, 1e-2, 1e-5])
@pytest.mark.parametrize("problem", PROBLEMS, ids=IDS)
def test_steps_are_the_fewest(problem: NoisyQuadratic, target: float, batch_size: float) -> None:
    for formula, steps in (
        (mle, lower_bound_steps(problem, batch_size, target)),
        (bayes, lower_bound_steps(problem, batch_size, target, kind="bayes")),
    ):
        assert isinstance(steps, int)
        if steps:
            assert formula(problem, steps * batch_size) <= target * (1 + 1e-13)
        if steps > 1:
            assert formula(problem, (steps - 1) * batch_size) > target * (1 - 1e-13)
        if steps <= 1 and formula is bayes:
            assert (problem.initial_risk <= target) == (steps == 0)


def test_bayes_steps_are_0_where_the_start_will_do() -> None:
    assert lower_bound_steps(PAPER, 1, PAPER.initial_risk * (1 + 1e-9), kind="bayes") == 0
    assert lower_bound_steps(PAPER, 1, PAPER.initial_risk * (1 - 1e-9), kind="bayes") == 1


@pytest.mark.parametrize("seed", range(20))
def test_no_rule_beats_bayes(seed: int) -> None:
    random = np.random.default_rng(seed)
    dim = int(random.integers(1, 6))
    curvature = 10 ** random.uniform(-3, 0, dim)
    problem = NoisyQuadratic(curvature, curvature * 10 ** random.uniform(-2, 2, dim), 10 ** random.uniform(-2, 2, dim))
    steps = [0, 1, 2, 3, 5, 10, 30, 100, 1000, 10**4, 10**6]
    closest = math.inf
    for _ in range(100):
        momentum = float(random.choice([0.0, 1 - 10 ** random.uniform(-4, 0)]))
        averaging = float(random.choice([0.0, 1 - 10 ** random.uniform(-4, 0)]))
        power = float(random.choice([0.0, 0.5, 1.0]))
        learning_rate = float(10 ** random.uniform(-4, 0.3) / (curvature ** (1 - power)).max())
        rule = UpdateRule(learning_rate, momentum, bool(random.integers(2)), averaging, power)
        batch_size = float(10 ** random.uniform(-1, 4))
        for t, found in zip(steps, risk(problem, rule, batch_size, steps), strict=True):
            bound = lower_bound_risk(problem, batch_size * t, kind="bayes")
            assert found >= bound * (1 - 1e-12), (rule, batch_size, t)
            closest = min(closest, found / bound if t else math.inf)
    assert closest < 5, "rules so poor test nothing"


def test_a_start_near_the_minimum_beats_mle() -> None:
    """Why the paper's bound is not a bound for every learner."""
    problem = NoisyQuadratic([1.0], [1.0], [1e-3])
    assert risk(problem, UpdateRule(1e-3), 1, 1) < lower_bound_risk(problem, 1)
