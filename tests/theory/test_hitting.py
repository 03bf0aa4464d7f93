"""Steps to a target against counting them one by one."""

from __future__ import annotations

from collections import Counter
from dataclasses import astuple, dataclass

import numpy as np
import numpy.typing as npt
import pytest

from batchlens import (
    BatchlensError,
    HittingTime,
    NoisyQuadratic,
    UpdateRule,
    hitting_time,
    is_stable,
    risk,
    steady_state_risk,
    steps_to_target,
)
from tests.reference import Setting, first_hit_by_steps, risk_by_steps

Floats = npt.NDArray[np.float64]

SEARCHES = 1000
SIDES = ("just above the minimum", "just below the minimum")
# How many of the searches must be of which kind, for the sample to be worth its name.
SITUATIONS = {
    "momentum oscillates": 30,
    "average of a momentum that oscillates": 30,
    "negative roots": 30,
    "plain SGD dips": 15,
    "unstable, yet reached": 15,
    "reached after a rise": 15,
    "reached": 200,
    "unstable": 15,
    "steady_state_above_target": 15,
    "beyond_max_steps": 30,
    SIDES[0]: 50,
    SIDES[1]: 50,
}


@dataclass(frozen=True)
class Search:
    problem: NoisyQuadratic
    setting: Setting
    batch_size: float
    target: float
    side: str
    path: Floats  # the risk after 0, 1, ... steps, one by one

    @property
    def rule(self) -> UpdateRule:
        return UpdateRule(*astuple(self.setting))

    @property
    def max_steps(self) -> int:
        return len(self.path) - 1

    @property
    def first_hit(self) -> int | None:
        hits = np.flatnonzero(self.path <= self.target)
        return int(hits[0]) if hits.size else None


def draw_search(random: np.random.Generator) -> Search:
    dim = int(random.integers(1, 8))
    curvature = 10 ** random.uniform(-3, 0, dim)
    noise = curvature * 10 ** random.uniform(-3, 1, dim) * (random.uniform(size=dim) < 0.9)
    initial = 10 ** random.uniform(-4, 1, dim) * (random.uniform(size=dim) < 0.9)
    count = random.integers(1, 5, dim)
    momentum = float(random.choice([0, random.uniform(), 1 - 10 ** random.uniform(-4, 0)]))
    nesterov = bool(random.integers(2))
    averaging = float(random.choice([0, 0, random.uniform(), 1 - 10 ** random.uniform(-4, 0)]))
    power = float(random.choice([0, 0.5, 1]))
    batch_size = float(10 ** random.uniform(0, 5))
    if random.uniform() < 0.25:  # plain SGD, some coordinates far below their steady state
        momentum, averaging, batch_size = 0.0, 0.0, 1.0
        initial *= random.choice([1e-4, 10], dim)
        noise *= 10
    limit = 2 * (1 + momentum) / (1 + 2 * momentum if nesterov else 1)
    share = random.choice([random.uniform(), 10 ** random.uniform(-4, 0), random.uniform(0.95, 1.05)])
    learning_rate = float(share * limit / (curvature ** (1 - power)).max())
    setting = Setting(learning_rate, momentum, nesterov, averaging, power)
    max_steps = int(10 ** random.uniform(1, 3.5))
    with np.errstate(all="ignore"):  # unstable rules overflow in the reference
        path = risk_by_steps(curvature, noise, initial, count, setting, batch_size, max_steps)
    path = path[: int(np.argmin(np.isfinite(path))) or None]
    problem = NoisyQuadratic(curvature, noise, initial, count)
    while True:
        side = str(random.choice([*SIDES, "on the path", "anywhere"]))
        target = {
            SIDES[0]: path.min() * (1 + 1e-6),
            SIDES[1]: path.min() * (1 - 1e-6),
            "on the path": np.quantile(path, random.uniform(0, 0.3)) * (1 + 1e-7 * random.uniform()),
            "anywhere": path[0] * 10 ** random.uniform(-4, 0),
        }[side]
        # Two computations cannot agree on the order of a target and a risk that are equal but for rounding.
        if target > 1e-280 and np.abs(path - target).min() > 1e-10 * target:
            return Search(problem, setting, batch_size, float(target), side, path)
        if not path[0] > 0:  # nothing to do: no noise and no start
            return draw_search(random)


def name_situations(search: Search, found: HittingTime) -> list[str]:
    setting, path = search.setting, search.path
    rates = setting.learning_rate * search.problem.curvature ** (1 - setting.power)
    beta = setting.momentum
    trace = (1 + beta) * (1 - rates) if setting.nesterov else 1 - rates + beta
    product = beta * (1 - rates) if setting.nesterov else beta + 0 * rates
    moves = search.problem.initial > 0
    complex_roots = bool(((trace**2 < 4 * product) & moves).any())
    negative_roots = bool(((trace**2 >= 4 * product) & (trace < 0) & moves).any())
    stable = is_stable(search.problem, search.rule)
    rises = np.diff(path) > 1e-9 * path[:-1]
    named = {
        "momentum oscillates": complex_roots and not setting.averaging and rises.any(),
        "average of a momentum that oscillates": complex_roots and setting.averaging and rises.any(),
        "negative roots": negative_roots,
        "plain SGD dips": stable
        and not (setting.momentum or setting.averaging)
        and path.min() < min(path[0], path[-1]) * (1 - 1e-3),
        "unstable, yet reached": not stable and found.steps,
        "reached after a rise": found.steps and rises[: found.steps].any(),
        found.status: True,
        search.side: True,
    }
    return [name for name, holds in named.items() if holds]


@pytest.mark.slow
def test_random_searches_equal_counting() -> None:
    random = np.random.default_rng(20)
    seen: Counter[str] = Counter()
    for _ in range(SEARCHES):
        search = draw_search(random)
        asked = (search.problem, search.rule, search.batch_size, search.target, search.max_steps)
        found = hitting_time(*asked)
        assert found.steps == search.first_hit, search
        assert steps_to_target(*asked) == found.steps
        assert (found.status == "reached") == (found.steps is not None)
        if found.steps is None:
            assert (found.status == "unstable") == (not is_stable(search.problem, search.rule)), search
        if found.status == "steady_state_above_target":
            assert steady_state_risk(*asked[:3]) > search.target, search
        seen.update(name_situations(search, found))
    assert {name: seen[name] for name, least in SITUATIONS.items() if seen[name] < least} == {}


def test_counting_stops_where_the_reference_does() -> None:
    """`Search.first_hit` reads a path; the reference has a count of its own."""
    search = draw_search(np.random.default_rng(3))
    p = search.problem
    assert search.first_hit == first_hit_by_steps(
        p.curvature, p.noise, p.initial, p.count,
        search.setting, search.batch_size, search.target, search.max_steps,
    )  # fmt: skip


# ---------------------------------------------------------------------------------------------
# Every way a search can end
# ---------------------------------------------------------------------------------------------

PROBLEM = NoisyQuadratic.power_law(dim=100)
PLAIN = UpdateRule(0.1)
SWINGING = UpdateRule(0.5, momentum=0.99)


def test_reached() -> None:
    assert hitting_time(PROBLEM, PLAIN, 64, 0.01) == (1429, "reached")


def test_unstable() -> None:
    rule = UpdateRule(2.1)
    assert hitting_time(PROBLEM, rule, 64, 0.01) == (None, "unstable")
    assert steps_to_target(PROBLEM, rule, 64, 0.01) is None


def test_unstable_rules_may_dip_first() -> None:
    # The steep coordinate starts so near its minimum that the other one has the time to get there.
    problem = NoisyQuadratic([1.0, 0.1], [1e-6, 1e-6], [1e-9, 1.0])
    assert hitting_time(problem, UpdateRule(2.5), 1, 0.01) == (3, "reached")
    assert hitting_time(problem, UpdateRule(2.5), 1, 1e-6) == (None, "unstable")
    assert risk(problem, UpdateRule(2.5), 1, 10**3) > 1e100


def test_steady_state_above_target() -> None:
    assert steady_state_risk(PROBLEM, PLAIN, 1) > 0.01
    assert hitting_time(PROBLEM, PLAIN, 1, 0.01) == (None, "steady_state_above_target")
    assert steps_to_target(PROBLEM, PLAIN, 1, 0.01) is None


def test_dip_below_the_steady_state() -> None:
    # Of two coordinates, one starts at its minimum and is driven out of it by noise.
    problem = NoisyQuadratic([0.1, 1.0], [1.0, 0.0], [0.0, 1.0])
    rule = UpdateRule(0.5)
    path = risk(problem, rule, 4, range(100))
    lowest = int(np.argmin(path))
    assert 0 < lowest < 10
    assert path[lowest] < steady_state_risk(problem, rule, 4)
    assert hitting_time(problem, rule, 4, float(path[lowest]) * (1 + 1e-9)) == (lowest, "reached")
    assert hitting_time(problem, rule, 4, float(path[lowest]) * (1 - 1e-9)) == (
        None,
        "steady_state_above_target",
    )


@pytest.mark.parametrize("rule", [UpdateRule(1e-9), UpdateRule(1e-9, 0.5, True, 0.9, 0.5)])
def test_beyond_max_steps(rule: UpdateRule) -> None:
    assert hitting_time(PROBLEM, rule, 64, 0.01, max_steps=10**6) == (None, "beyond_max_steps")


def test_rules_that_do_not_move_stay_where_they_are() -> None:
    for rule in (UpdateRule(0.0), UpdateRule(0.0, 0.9, True, 0.99)):
        assert steps_to_target(PROBLEM, rule, 64, 0.01) is None
        assert steps_to_target(PROBLEM, rule, 64, PROBLEM.initial_risk * (1 + 1e-9)) == 0


def test_undecided(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("batchlens.theory._first_hit._BUDGET", 10**5)
    curvature = np.linspace(1, 3, 60)
    problem = NoisyQuadratic(curvature, curvature, np.ones(60))
    rule = UpdateRule(1.0, momentum=1 - 1e-10)
    assert hitting_time(problem, rule, 1e30, 1e-6) == (None, "undecided")
    with pytest.raises(BatchlensError, match="`max_steps`"):
        steps_to_target(problem, rule, 1e30, 1e-6)
    # what the message advises
    assert hitting_time(problem, rule, 1e30, 1e-6, max_steps=100) == (None, "beyond_max_steps")


# ---------------------------------------------------------------------------------------------
# The ends of the range
# ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", [PLAIN, SWINGING, UpdateRule(5.0), UpdateRule(0.0)])
@pytest.mark.parametrize("max_steps", [0, 1, 10**12])
def test_targets_that_the_start_meets_take_no_step(rule: UpdateRule, max_steps: int) -> None:
    for target in (risk(PROBLEM, rule, 64, 0), 1e6):
        assert hitting_time(PROBLEM, rule, 64, target, max_steps) == (0, "reached")


def test_no_steps_allowed() -> None:
    below = PROBLEM.initial_risk * (1 - 1e-9)
    assert hitting_time(PROBLEM, PLAIN, 64, below, max_steps=0) == (None, "beyond_max_steps")
    assert hitting_time(PROBLEM, PLAIN, 64, below, max_steps=1) == (1, "reached")


@pytest.mark.parametrize("rule", [PLAIN, SWINGING, UpdateRule(0.5, 0.99, averaging=0.9)])
@pytest.mark.parametrize("target", [1.0, 0.1, 0.03])
def test_the_answer_is_the_least_max_steps_that_will_do(rule: UpdateRule, target: float) -> None:
    steps, status = hitting_time(PROBLEM, rule, 10_000, target)
    assert status == "reached"
    assert steps is not None
    assert steps > 2
    assert steps & (steps - 1), "a power of two tests less"
    for more in (0, 1, 2, steps, 10**12 - steps):
        assert steps_to_target(PROBLEM, rule, 10_000, target, steps + more) == steps
    for fewer in (1, 2, steps // 3, steps // 2, steps):
        found = hitting_time(PROBLEM, rule, 10_000, target, steps - fewer)
        assert found == (None, "beyond_max_steps")


@pytest.mark.parametrize("learning_rate", [1e-4, 1e-6, 1e-8, 1e-10])
@pytest.mark.parametrize("momentum", [0.0, 0.5])
@pytest.mark.parametrize("averaging", [0.0, 0.999])
@pytest.mark.parametrize("power", [0.0, 1.0])
def test_large_answers_are_where_the_risk_crosses(
    learning_rate: float, momentum: float, averaging: float, power: float
) -> None:
    """Without oscillation and with every coordinate above its steady state, the risk only falls."""
    rule = UpdateRule(learning_rate, momentum, False, averaging, power)
    for target in (1.0, 0.1, 0.02):
        steps = steps_to_target(PROBLEM, rule, 256, target, max_steps=10**13)
        assert steps is not None
        assert steps * learning_rate > 0.1
        at, before = risk(PROBLEM, rule, 256, [steps, steps - 1])
        # the relative change of one step is of the order of the learning rate
        slack = 1 + 1e-14
        assert at <= target * slack
        assert before * slack > target


def test_large_answer_beyond_the_default_needs_to_be_asked_for() -> None:
    rule = UpdateRule(1e-12)
    assert hitting_time(PROBLEM, rule, 256, 0.01) == (None, "beyond_max_steps")
    steps = steps_to_target(PROBLEM, rule, 256, 0.01, max_steps=2**61)
    assert steps is not None
    assert steps > 10**12
    at, before = risk(PROBLEM, rule, 256, [steps, steps - 10**6])
    assert at <= 0.01 * (1 + 1e-14)
    assert before > 0.01
