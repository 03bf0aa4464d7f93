"""Large problems: searched in passes, tuned through bins."""

import subprocess
import sys

import numpy as np
import pytest

import batchlens as bl
from batchlens.theory import _first_hit, _tune_cell

PROBLEM = bl.NoisyQuadratic.power_law(dim=50)
RULES = (
    bl.UpdateRule(0.1),
    bl.UpdateRule(1.9),
    bl.UpdateRule(0.1, 0.9),
    bl.UpdateRule(0.02, 0.999),
    bl.UpdateRule(3.7, 0.9),
    bl.UpdateRule(0.1, 0.95, nesterov=True),
    bl.UpdateRule(0.5, averaging=0.99),
    bl.UpdateRule(1.5, averaging=0.9),
    bl.UpdateRule(0.1, 0.99, averaging=0.95),
    bl.UpdateRule(0.3, 0.9, power=0.5),
)


@pytest.fixture
def in_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_first_hit, "AT_ONCE", 0)


@pytest.mark.parametrize("rule", RULES, ids=str)
@pytest.mark.usefixtures("in_passes")
def test_passes_find_the_first_step_that_reaches_the_target(rule: bl.UpdateRule) -> None:
    risks = bl.risk(PROBLEM, rule, batch_size=64, steps=range(20_001))
    for target in np.geomspace(risks.min() * 1.001, risks.max(), 12).tolist():
        expected = int(np.flatnonzero(risks <= target)[0])
        assert bl.hitting_time(PROBLEM, rule, 64, target) == (expected, "reached")


@pytest.mark.usefixtures("in_passes")
def test_passes_end_as_the_search_at_once_does() -> None:
    ask = bl.hitting_time
    assert ask(PROBLEM, bl.UpdateRule(0.1), 1, 0.01) == (None, "steady_state_above_target")
    assert ask(PROBLEM, bl.UpdateRule(2.1), 64, 0.01) == (None, "unstable")
    assert ask(PROBLEM, bl.UpdateRule(0.01), 64, 0.01, max_steps=100) == (None, "beyond_max_steps")
    assert ask(PROBLEM, bl.UpdateRule(0.0), 64, 0.01, max_steps=2**61) == (None, "beyond_max_steps")
    assert ask(PROBLEM, bl.UpdateRule(0.1), 64, 100.0) == (0, "reached")
    steps = bl.steps_to_target(PROBLEM, bl.UpdateRule(0.01), 1e6, 0.1)
    assert steps is not None
    assert ask(PROBLEM, bl.UpdateRule(0.01), 1e6, 0.1, max_steps=steps) == (steps, "reached")
    assert ask(PROBLEM, bl.UpdateRule(0.01), 1e6, 0.1, max_steps=steps - 1) == (None, "beyond_max_steps")


@pytest.mark.usefixtures("in_passes")
def test_passes_give_up_where_oscillations_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_first_hit, "_PASSES", 2)
    assert bl.hitting_time(PROBLEM, bl.UpdateRule(0.001), 64, 0.1) == (None, "undecided")


PEAK_OF = """
import resource, sys
import batchlens as bl
problem, rule = bl.NoisyQuadratic.power_law(dim=1_000_000), bl.UpdateRule(0.05, 0.9)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
if sys.argv[1] == "risk":
    bl.risk(problem, rule, 256, [7620])
else:
    assert bl.steps_to_target(problem, rule, 256, 0.3 * problem.initial_risk) == 7620
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="needs the module resource")
def test_memory_of_a_search_stays_within_twice_that_of_a_risk() -> None:
    def peak(ask: str) -> int:
        return int(subprocess.run([sys.executable, "-c", PEAK_OF, ask], check=True, capture_output=True).stdout)

    peak("risk"), peak("steps")  # compiled, if need be
    assert peak("steps") <= 2 * peak("risk")


def spectrum_at_random() -> bl.NoisyQuadratic:
    """Curvature, noise and start without any order."""
    random = np.random.default_rng(0)
    h = np.exp(random.uniform(-9, 0, 3000))
    return bl.NoisyQuadratic(h, h * random.uniform(0, 2, 3000), random.uniform(0, 2, 3000))


@pytest.mark.slow
@pytest.mark.parametrize("family", ["sgd", "momentum", "nesterov", "sgd+ema", "momentum+ema"])
@pytest.mark.parametrize(
    "problem", [bl.NoisyQuadratic.power_law(dim=3000), spectrum_at_random()], ids=["law", "random"]
)
def test_tuning_through_bins_gives_the_answer_of_the_whole(
    problem: bl.NoisyQuadratic, family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for batch_size, power in ((16, 0.0), (4096, 0.5)):
        target = 0.02 * problem.initial_risk
        whole = bl.tune(problem, family, batch_size, target, power)
        with monkeypatch.context() as patched:
            patched.setattr(_tune_cell, "LARGE", 100)
            patched.setattr(_tune_cell, "BINS", 300)
            binned = bl.tune(problem, family, batch_size, target, power)
        assert binned.steps == whole.steps
        assert binned.rule is not None
        assert bl.steps_to_target(problem, binned.rule, batch_size, target) == binned.steps
