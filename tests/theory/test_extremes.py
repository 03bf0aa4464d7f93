"""Curvatures at the ends of a double's range: right answers, or sentences."""

import math
from typing import Any

import numpy as np
import pytest

import batchlens as bl

LARGE = bl.NoisyQuadratic([1e308], [1.0], [1e-308])
SMALL = bl.NoisyQuadratic([5e-324], [1.0], [1.0])
# The same problem in other units: curvature in units of 1e308, learning rates in units of 1e-308.
MILD = bl.NoisyQuadratic([1.0], [1e-308], [1.0])


@pytest.mark.parametrize("family", ["sgd", "momentum", "nesterov", "sgd+ema", "momentum+ema"])
def test_tuning_does_not_depend_on_the_unit_of_curvature(family: str) -> None:
    large = bl.tune(LARGE, family, batch_size=1, target=1e-3)
    mild = bl.tune(MILD, family, batch_size=1, target=1e-3)
    assert large.steps == mild.steps == 1
    assert large.rule is not None
    assert bl.hitting_time(LARGE, large.rule, 1, 1e-3) == (1, "reached")


@pytest.mark.parametrize("power", [0.0, 0.5])
def test_tuned_steps_are_those_of_other_units(power: float) -> None:
    spectrum = np.array([1.0, 0.1, 0.01])
    factor = 2.0**1000
    mild = bl.NoisyQuadratic(spectrum, spectrum, np.ones(3))
    large = bl.NoisyQuadratic(spectrum * factor, spectrum * factor, np.ones(3) / factor)
    expected, found = (bl.tune(problem, "momentum", 64, 0.01, power) for problem in (mild, large))
    assert found.steps == expected.steps
    assert found.rule is not None
    assert expected.rule is not None
    rate = expected.rule.learning_rate / factor ** (1 - power)
    assert found.rule.learning_rate == pytest.approx(rate, rel=1e-3)
    assert bl.steps_to_target(large, found.rule, 64, 0.01) == found.steps


def test_best_risk_at_the_largest_curvatures() -> None:
    assert bl.best_risk(LARGE, "sgd", batch_size=1, steps=10).risk < 1e-30


@pytest.mark.parametrize("extra", [{}, {"max_learning_rate": 1.0}, {"momentum": 0.9}, {"momentum": "tuned"}])
def test_schedules_at_the_largest_curvatures(extra: dict[str, Any]) -> None:
    plan = bl.best_schedule(LARGE, batch_size=1, steps=10, **extra)
    assert plan.risk < 1e-10
    assert bl.risk_path(LARGE, plan.rules, 1, plan.lengths)[-1] == pytest.approx(plan.risk, abs=1e-12)


def test_ready_made_schedules_at_the_largest_curvatures() -> None:
    tuned = bl.ready_made_schedule(LARGE, "cosine", batch_size=1, steps=10)
    given = bl.ready_made_schedule(LARGE, "cosine", 1, 10, learning_rate=float(tuned.learning_rates.max()))
    assert tuned.risk < 1e-10
    assert given.learning_rates.max() == pytest.approx(tuned.learning_rates.max(), rel=0.05)


@pytest.mark.parametrize(
    "ask",
    [
        lambda problem: bl.ready_made_schedule(problem, "cosine", batch_size=1, steps=10),
        lambda problem: bl.best_schedule(problem, batch_size=1, steps=10),
        lambda problem: bl.best_risk(problem, "sgd", batch_size=1, steps=10),
    ],
)
def test_the_smallest_curvatures_end_in_a_sentence(ask: Any) -> None:
    with pytest.raises(ValueError, match=r"^`noise` over `curvature` must stay below 1.8e\+308, got 1 over 4.94"):
        ask(SMALL)
    with pytest.raises(ValueError, match=r"^`curvature` must allow learning rates below 1.8e\+308"):
        ask(bl.NoisyQuadratic([5e-324], [0.0], [1.0]))


def test_an_infinite_initial_risk_is_refused() -> None:
    problem = bl.NoisyQuadratic([1e308], [1.0], [1e308])
    with pytest.raises(ValueError, match=r"^`problem` must have a finite initial risk, got inf\.$"):
        bl.tune(problem, "sgd", batch_size=1, target=1.0)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (([math.nan], [1], 0.1), "`learning_rates` must be finite, got nan."),
        (([-1.0], [1], 0.1), "`learning_rates` must be at least 0, got -1."),
        (([1.0], [0.5], 0.1), "`lengths` must be a whole number, got 0.5."),
        (([1.0], [-1], 0.1), "`lengths` must be at least 0, got -1."),
        (([1.0], [1, 2], 0.1), "`lengths` must have 1 entries, one per learning rate, got 2."),
        (([1.0], [1], math.nan), "`risk` must be a number, got nan."),
        (([1.0], [1], 0.1, math.nan), "`momentum` must be in [0, 1), got nan."),
        (([1.0], [1], 0.1, 0.9, math.nan), "`power` must be in [0, 1], got nan."),
    ],
)
def test_a_schedule_of_bad_numbers_is_refused(values: tuple[Any, ...], message: str) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        bl.Schedule(*values)
    assert str(caught.value) == message
