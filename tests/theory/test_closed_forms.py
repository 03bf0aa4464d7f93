"""The paper's closed forms against the step-by-step recursion: exact where they say so, bounds elsewhere."""

from collections.abc import Callable

import numpy as np
import pytest

import batchlens as bl
from batchlens.theory import closed_forms
from tests.reference import Setting, risk_by_steps

H = np.array([1.0, 0.3, 0.01])
C = np.array([0.5, 0.3, 0.02])
S = np.array([1.0, 2.0, 0.5])
N = np.array([1.0, 2.0, 5.0])
PROBLEM = bl.NoisyQuadratic(H, C, S, N)
STEPS = [0, 1, 2, 7, 50, 400]
B = 8.0

Terms = Callable[[bl.NoisyQuadratic], bl.RiskTerms]


def count(
    setting: Setting, noise: np.ndarray[tuple[int], np.dtype[np.float64]]
) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    return np.asarray(risk_by_steps(H, noise, S, N, setting, B, STEPS[-1])[STEPS])


@pytest.mark.parametrize("power", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("rate", [0.0, 1e-3, 0.5, 1.0, 1.9])
def test_sgd_is_exact(rate: float, power: float) -> None:
    found = closed_forms.sgd_risk(PROBLEM, rate, B, STEPS, power)
    setting = Setting(rate, power=power)
    assert found.total == pytest.approx(count(setting, C), rel=1e-11)
    assert found.deterministic == pytest.approx(count(setting, 0 * C), rel=1e-11, abs=1e-300)


CRITICAL = (1 - np.sqrt(0.9)) ** 2
BOUNDS: dict[str, tuple[Setting, Terms]] = {
    "preconditioned": (
        Setting(0.7, power=0.25),
        lambda problem: closed_forms.preconditioned_bound(problem, 0.7, B, STEPS, 0.25),
    ),
    "momentum, overdamped": (Setting(1e-3, 0.5), lambda p: closed_forms.momentum_bound(p, 1e-3, 0.5, B, STEPS)),
    "momentum, underdamped": (Setting(0.5, 0.9), lambda p: closed_forms.momentum_bound(p, 0.5, 0.9, B, STEPS)),
    "momentum, critical": (Setting(CRITICAL, 0.9), lambda p: closed_forms.momentum_bound(p, CRITICAL, 0.9, B, STEPS)),
    "momentum, near critical": (
        Setting(CRITICAL * (1 + 1e-12), 0.9),
        lambda p: closed_forms.momentum_bound(p, CRITICAL * (1 + 1e-12), 0.9, B, STEPS),
    ),
    "momentum, negative roots": (Setting(3.5, 0.8), lambda p: closed_forms.momentum_bound(p, 3.5, 0.8, B, STEPS)),
    "averaging": (Setting(0.3, averaging=0.9), lambda p: closed_forms.averaging_bound(p, 0.3, 0.9, B, STEPS)),
    "averaging, equal roots": (
        Setting(0.5, averaging=0.5),
        lambda p: closed_forms.averaging_bound(p, 0.5, 0.5, B, STEPS),
    ),
    "averaging, negative root": (
        Setting(1.8, averaging=0.9),
        lambda p: closed_forms.averaging_bound(p, 1.8, 0.9, B, STEPS),
    ),
}


@pytest.mark.parametrize("name", BOUNDS)
def test_bounds_lie_above_and_their_first_term_is_exact(name: str) -> None:
    setting, terms = BOUNDS[name]
    found = terms(PROBLEM)
    exact, start = count(setting, C), count(setting, 0 * C)
    assert found.deterministic == pytest.approx(start, rel=1e-7, abs=1e-12)
    assert (found.total >= exact * (1 - 1e-9)).all()
    assert found.total[1] > exact[1] * (1 + 1e-6), "a bound that is never above would not be one"


@pytest.mark.parametrize("name", BOUNDS)
def test_bounds_meet_the_steady_state(name: str) -> None:
    setting, terms = BOUNDS[name]
    rule = bl.UpdateRule(setting.learning_rate, setting.momentum, False, setting.averaging, setting.power)
    assert terms(PROBLEM).noise[-1] == pytest.approx(bl.steady_state_risk(PROBLEM, rule, B), rel=1e-9)


def test_one_step_count_gives_numbers() -> None:
    assert closed_forms.sgd_risk(PROBLEM, 0.1, B, 5).total.shape == ()


def test_unstable_rules_are_refused() -> None:
    with pytest.raises(ValueError, match=r"^`learning_rate \* h\^\(1 - power\)` must be in \[0, 2\), got 2\.0\.$"):
        closed_forms.sgd_risk(PROBLEM, 2.0, B, 5)
