"""Risk against simulated training with drawn gradient noise."""

from __future__ import annotations

from dataclasses import astuple

import pytest

from batchlens import NoisyQuadratic, UpdateRule, risk
from tests.reference import Setting, monte_carlo_risk

H = [1.3, 0.4, 0.05]
C = [2.0, 0.5, 0.2]
S = [0.1, 1.0, 2.0]
BATCH_SIZE = 4
RUNS = 40_000

RULES = {
    "sgd": Setting(0.4),
    "momentum": Setting(0.1, 0.9),
    "nesterov": Setting(0.1, 0.9, True),
    "sgd+ema": Setting(0.8, averaging=0.9),
    "momentum+ema": Setting(0.3, 0.8, averaging=0.9),
    "preconditioned 0.5": Setting(0.3, power=0.5),
    "preconditioned 1": Setting(0.2, power=1.0),
    "nesterov+ema+preconditioned": Setting(0.1, 0.8, True, 0.8, 0.5),
}


@pytest.mark.parametrize("steps", [1, 5, 60])
@pytest.mark.parametrize("name", RULES)
def test_simulated_training_has_the_risk(name: str, steps: int) -> None:
    setting = RULES[name]
    mean, error = monte_carlo_risk(H, C, S, RUNS, setting, BATCH_SIZE, steps, seed=steps)
    exact = risk(NoisyQuadratic(H, C, S), UpdateRule(*astuple(setting)), BATCH_SIZE, steps)
    assert abs(mean - exact) < 4 * error, f"{(mean - exact) / error:.1f} standard errors off"
    assert error < 0.02 * mean, "too few runs to tell a wrong risk from a right one"


@pytest.mark.parametrize("name", RULES)
def test_simulated_training_tells_rules_apart(name: str) -> None:
    """The interval above would notice the risk of any of the other rules."""
    steps = 60
    mean, error = monte_carlo_risk(H, C, S, RUNS, RULES[name], BATCH_SIZE, steps, seed=0)
    for other in RULES.keys() - {name}:
        rule = UpdateRule(*astuple(RULES[other]))
        assert abs(mean - risk(NoisyQuadratic(H, C, S), rule, BATCH_SIZE, steps)) > 4 * error, other
