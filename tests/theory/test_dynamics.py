"""Risk after any number of steps, against many digits and against single steps."""

from __future__ import annotations

import math
from dataclasses import astuple, dataclass, replace
from itertools import product

import mpmath
import numpy as np
import pytest

from batchlens import (
    NoisyQuadratic,
    UpdateRule,
    convergence_rate,
    is_stable,
    risk,
    risk_path,
    risk_terms,
    steady_state_risk,
)
from tests.reference import Setting, path_by_steps, risk_by_steps, risk_mp

SMALLEST = 1e-290  # below this a double has lost digits, or is about to


@dataclass(frozen=True)
class Case:
    problem: NoisyQuadratic
    setting: Setting
    batch_size: float
    steps: int

    @property
    def rule(self) -> UpdateRule:
        return UpdateRule(*astuple(self.setting))

    def measure(self) -> list[float]:
        """Relative errors of the deterministic term, the noise term and the total."""
        p = self.problem
        columns = (p.curvature, p.noise, p.initial, p.count)
        exact = risk_mp(*columns, self.setting, self.batch_size, self.steps, digits=20)
        terms = risk_terms(p, self.rule, self.batch_size, self.steps)
        total = risk(p, self.rule, self.batch_size, self.steps)
        found = (float(terms.deterministic), float(terms.noise), total)
        wanted = (*exact, exact[0] + exact[1])
        return [relative_error(x, y) for x, y in zip(found, wanted, strict=True)]


def relative_error(found: float, wanted: mpmath.mpf) -> float:
    if wanted <= SMALLEST:
        return 0.0 if found <= 2 * SMALLEST else math.inf
    return float(abs(mpmath.mpf(found) - wanted) / wanted)


def assert_exact(cases: list[Case], tolerance: float) -> None:
    errors = [max(case.measure()) for case in cases]
    worst = int(np.argmax(errors))
    assert errors[worst] <= tolerance, f"relative error {errors[worst]:.2e} at {cases[worst]}"


def stability_limit(momentum: float, nesterov: bool) -> float:
    """The formulas of the issue."""
    heavy_ball = 2 * (1 + momentum)
    return heavy_ball / (1 + 2 * momentum) if nesterov else heavy_ball


# ---------------------------------------------------------------------------------------------
# Random cases, every mix
# ---------------------------------------------------------------------------------------------

COEFFICIENTS = ("none", "uniform", "close to 1")
MIXES = [
    mix
    for mix in product(COEFFICIENTS, (False, True), COEFFICIENTS, (0.0, 0.25, 0.5, 1.0, None))
    if mix[0] != "none" or not mix[1]
]
CASES_PER_MIX = 6


def draw_coefficient(random: np.random.Generator, kind: str) -> float:
    if kind == "none":
        return 0.0
    return float(random.uniform() if kind == "uniform" else 1 - 10 ** random.uniform(-6, 0))


def draw_case(
    random: np.random.Generator,
    momentum_kind: str,
    nesterov: bool,
    averaging_kind: str,
    power: float | None,
) -> Case:
    momentum = draw_coefficient(random, momentum_kind)
    averaging = draw_coefficient(random, averaging_kind)
    power = float(random.uniform()) if power is None else power
    dim = int(random.integers(1, 4))
    curvature = 10 ** random.uniform(-4, 1, dim)
    problem = NoisyQuadratic(
        curvature,
        curvature * 10 ** random.uniform(-2, 2, dim),
        10 ** random.uniform(-2, 2, dim),
        random.integers(1, 100, dim),
    )
    limit = stability_limit(momentum, nesterov)
    spread_evenly = random.uniform() < 0.5
    rate = limit * (random.uniform() if spread_evenly else 10 ** random.uniform(-9, 0))
    learning_rate = float(rate / (curvature ** (1 - power)).max())
    return Case(
        problem,
        Setting(learning_rate, momentum, nesterov, averaging, power),
        batch_size=float(int(10 ** random.uniform(0, 6))),
        steps=int(10 ** random.uniform(0, 9)),
    )


def test_the_random_cases_are_many() -> None:
    assert len(MIXES) * CASES_PER_MIX >= 400


@pytest.mark.parametrize(
    "mix",
    MIXES,
    ids=lambda mix: f"momentum={mix[0]}-nesterov={mix[1]}-averaging={mix[2]}-power={mix[3]}",
)
def test_random_cases_are_exact(mix: tuple[str, bool, str, float | None]) -> None:
    random = np.random.default_rng(MIXES.index(mix))
    assert_exact([draw_case(random, *mix) for _ in range(CASES_PER_MIX)], 1e-9)


# ---------------------------------------------------------------------------------------------
# Hard cases, by name
# ---------------------------------------------------------------------------------------------

ONE = NoisyQuadratic([1.0], [0.7], [1.3])
THREE = NoisyQuadratic([1.3, 0.4, 5e-3], [0.7, 0.4, 0.2], [1.0, 2.5, 0.3], [1, 3, 40])
HARD: dict[str, list[Case]] = {}


def add_hard(name: str, *settings: Setting, steps: tuple[int, ...]) -> None:
    """Cases on one coordinate of curvature 1, whose rate is the learning rate to the last bit."""
    HARD[name] = [Case(ONE, setting, 8.0, t) for setting in settings for t in steps]


def with_averaging(setting: Setting) -> tuple[Setting, ...]:
    return tuple(replace(setting, averaging=gamma) for gamma in (0.0, 0.5, 0.99, 1 - 1e-6))


# (1 - sqrt(rate))^2 = momentum: exact in doubles, and the three roots equal where averaging is 1 - sqrt(rate)
for rate, momentum, few in ((0.25, 0.25, 40), (0.0625, 0.5625, 200), (2.0**-20, (1 - 2.0**-10) ** 2, 9000)):
    for side, factor in (("exactly", 1.0), ("from below", 1 - 1e-12), ("from above", 1 + 1e-12)):
        critical = Setting(rate * factor, momentum)
        add_hard(
            f"critical damping {side}, rate {rate:.2g}",
            *with_averaging(critical),
            replace(critical, averaging=1 - math.sqrt(rate)),
            steps=(1, 2, 7, few, 10 * few),
        )
for side, factor in (("nearest double", 1.0), ("from below", 1 - 1e-12), ("from above", 1 + 1e-12)):
    add_hard(
        f"critical damping {side}, both roots negative",
        *with_averaging(Setting(2.25 * factor, 0.25)),
        steps=(1, 2, 7, 40, 400),
    )
    add_hard(
        f"critical damping {side}, nesterov",
        *with_averaging(Setting((0.1 / 1.9) ** 2 * factor, 0.9, True)),
        steps=(1, 2, 7, 200, 2000),
    )
for name, momentum, nesterov in (
    ("sgd", 0.0, False), ("momentum", 0.9, False), ("nesterov", 0.9, True)
):  # fmt: skip
    limit = stability_limit(momentum, nesterov)
    add_hard(
        f"limit less 1e-9, {name}",
        *with_averaging(Setting(limit - 1e-9, momentum, nesterov)),
        steps=(10**6, 10**6 + 1),
    )
    add_hard(
        f"rate 1e-12, {name}",
        *with_averaging(Setting(1e-12, momentum, nesterov)),
        steps=(1, 1000, 10**6, 10**9, 10**12),
    )
    add_hard(
        f"rate exactly 1, {name}",
        *with_averaging(Setting(1.0, momentum, nesterov)),
        steps=(1, 2, 3, 50, 10**6),
    )
    add_hard(
        f"10^12 steps, {name}",
        *(
            Setting(rate, momentum, nesterov, gamma)
            for rate in (1e-13, 1e-11, 1e-6, 0.1, 1.1)
            for gamma in (0.0, 0.9, 1 - 1e-10)
        ),
        steps=(10**12,),
    )
for momentum in (0.99, 0.999, 1 - 1e-5, 1 - 1e-8):
    add_hard(
        f"limit less 1e-9, momentum 1 - {1 - momentum:.0e}",
        *with_averaging(Setting(2 * (1 + momentum) - 1e-9, momentum)),
        steps=(10**3, 10**6, 10**6 + 1, 10**9),
    )
for nesterov in (False, True):
    add_hard(
        f"momentum 1 - 1e-8, {'nesterov' if nesterov else 'heavy ball'}",
        *(
            Setting(rate, 1 - 1e-8, nesterov, gamma)
            for rate in (1e-12, 1e-9, 1e-3, 0.5, 1.0, stability_limit(1, nesterov) - 1e-3)
            for gamma in (0.0, 1 - 1e-6)
        ),
        steps=(1, 1000, 10**6, 10**8, 10**10, 10**12),
    )
add_hard(
    "averaging equal to 1 - rate",
    *(Setting(rate, averaging=1 - rate) for rate in (0.5, 0.1, 2.0**-10, 1e-4, 1e-9, 2.0**-40)),
    steps=(1, 10, 1000, 10**5, 10**9, 10**12),
)
for power in (0.0, 1.0):
    HARD[f"power {power:.0f}"] = [
        Case(THREE, Setting(rate, momentum, nesterov, averaging, power), 8.0, steps)
        for rate, steps in ((1e-6, 10**7), (0.9, 5), (0.9, 60), (0.9, 10**9))
        for momentum, nesterov in ((0.0, False), (0.9, False), (0.9, True))
        for averaging in (0.0, 0.99)
    ]


# A root at -1 nearly cancels in an average that keeps all but 1e-6 of itself.
TOLERANCES = {"limit less 1e-9, nesterov": 1e-8}


@pytest.mark.parametrize("name", HARD)
def test_hard_cases_are_exact(name: str) -> None:
    assert_exact(HARD[name], TOLERANCES.get(name, 1e-10))


# ---------------------------------------------------------------------------------------------
# What is asked for, and what comes back
# ---------------------------------------------------------------------------------------------

RULE = UpdateRule(0.3, momentum=0.8, averaging=0.5, power=0.25)


def test_one_step_count_gives_a_float() -> None:
    found = risk(THREE, RULE, 8, 17)
    assert type(found) is float
    assert found == pytest.approx(
        risk_by_steps([1.3, 0.4, 5e-3], [0.7, 0.4, 0.2], [1.0, 2.5, 0.3], [1, 3, 40],
                      Setting(*astuple(RULE)), 8, 17)[-1], rel=1e-13
    )  # fmt: skip


@pytest.mark.parametrize("steps", [[3], (0, 5), range(4), np.array([7, 2], dtype=np.int32)])
def test_many_step_counts_give_an_array(steps: list[int]) -> None:
    found = risk(THREE, RULE, 8, steps)
    assert isinstance(found, np.ndarray)
    assert found.dtype == np.float64
    assert found.shape == (len(steps),)


def test_step_counts_may_be_unsorted_and_repeated() -> None:
    steps = [1000, 0, 3, 10**9, 3, 2, 1000, 1]
    found = risk(THREE, RULE, 8, steps)
    alone = [risk(THREE, RULE, 8, t) for t in steps]
    np.testing.assert_allclose(found, alone, rtol=1e-12)
    assert found[0] == found[6]
    assert found[2] == found[4]


@pytest.mark.parametrize("steps", [5, [5, 0, 5]])
def test_terms_have_the_shape_of_the_steps_and_add_up(steps: int | list[int]) -> None:
    terms = risk_terms(THREE, RULE, 8, steps)
    assert np.shape(terms.deterministic) == np.shape(terms.noise) == np.shape(steps)
    np.testing.assert_array_equal(terms.total, terms.deterministic + terms.noise)
    np.testing.assert_array_equal(terms.total, risk(THREE, RULE, 8, steps))


def test_whole_floats_count_as_step_counts() -> None:
    assert risk(THREE, RULE, 8, 1e3) == risk(THREE, RULE, 8, 1000)  # type: ignore[call-overload]


def test_step_0_is_the_initial_risk() -> None:
    terms = risk_terms(THREE, RULE, 8, 0)
    assert float(terms.deterministic) == pytest.approx(THREE.initial_risk, rel=1e-15)
    assert float(terms.noise) == 0.0


def test_counts_are_copies_of_a_coordinate() -> None:
    spelled_out = NoisyQuadratic(*(np.repeat(x, [1, 3, 40]) for x in (
        THREE.curvature, THREE.noise, THREE.initial)))  # fmt: skip
    np.testing.assert_allclose(
        risk(THREE, RULE, 8, [0, 1, 10, 1000]),
        risk(spelled_out, RULE, 8, [0, 1, 10, 1000]),
        rtol=1e-13,
    )


def test_the_batch_size_divides_the_noise_only() -> None:
    small, large = (risk_terms(THREE, RULE, b, [1, 10, 10**6]) for b in (2, 6))
    np.testing.assert_array_equal(small.deterministic, large.deterministic)
    np.testing.assert_allclose(small.noise, 3 * large.noise, rtol=1e-14)


def test_a_diverged_risk_is_infinite() -> None:
    found = risk(THREE, UpdateRule(2.0), 8, [10, 500, 10**6, 10**12, 2**62])
    assert np.isfinite(found[:2]).all()
    assert (found[2:] == np.inf).all()


def test_a_coordinate_without_weight_may_diverge() -> None:
    still = NoisyQuadratic([3.0, 0.5], [0.0, 1.0], [0.0, 1.0])
    alone = NoisyQuadratic([0.5], [1.0], [1.0])
    assert risk(still, UpdateRule(1.0), 8, 10**9) == risk(alone, UpdateRule(1.0), 8, 10**9)


# ---------------------------------------------------------------------------------------------
# Paths
# ---------------------------------------------------------------------------------------------


def draw_piece(random: np.random.Generator, curvature: float) -> Setting:
    momentum = float(random.choice([0.0, random.uniform(), 1 - 10 ** random.uniform(-3, 0)]))
    nesterov = bool(random.integers(2))
    power = float(random.choice([0.0, 0.25, 0.5, 1.0, random.uniform()]))
    limit = stability_limit(momentum, nesterov) / curvature ** (1 - power)
    learning_rate = limit * float(random.choice([0.0, random.uniform(), 0.1 * random.uniform()]))
    averaging = float(random.choice([0.0, random.uniform(), 1 - 10 ** random.uniform(-3, 0)]))
    return Setting(learning_rate, momentum, nesterov, averaging, power)


@pytest.mark.parametrize("seed", range(40))
def test_a_path_of_changing_rules_is_exact(seed: int) -> None:
    random = np.random.default_rng(seed)
    dim = int(random.integers(1, 4))
    h = 10 ** random.uniform(-2, 0.3, dim)
    c, s = h * 10 ** random.uniform(-2, 1, dim), 10 ** random.uniform(-1, 1, dim)
    n = random.integers(1, 9, dim)
    pieces = [draw_piece(random, h.max()) for _ in range(8)]
    sizes = (10 ** random.uniform(0, 4, 8)).tolist()
    lengths = random.choice([0, 1, 2, 30, 100], 8).tolist()
    stepped = path_by_steps(h, c, s, n, pieces, sizes, lengths)[np.cumsum(lengths)]
    rules = [UpdateRule(*astuple(piece)) for piece in pieces]
    found = risk_path(NoisyQuadratic(h, c, s, n), rules, sizes, lengths)
    np.testing.assert_allclose(found, stepped, rtol=1e-10)


def test_every_setting_may_change_by_itself() -> None:
    base = Setting(0.2, 0.7, False, 0.5, 0.5)
    columns = ([1.3, 0.4, 5e-3], [0.7, 0.4, 0.2], [1.0, 2.5, 0.3], [1, 3, 40])
    for other in (
        replace(base, learning_rate=0.0),
        replace(base, learning_rate=0.5),
        replace(base, momentum=0.0),
        replace(base, nesterov=True),
        replace(base, averaging=0.0),
        replace(base, power=0.0),
        replace(base, power=1.0),
    ):
        pieces = [base, other] * 3
        lengths = [10, 1, 5, 0, 1, 20]
        stepped = path_by_steps(*columns, pieces, [4.0] * 6, lengths)[np.cumsum(lengths)]
        found = risk_path(THREE, [UpdateRule(*astuple(piece)) for piece in pieces], 4, lengths)
        np.testing.assert_allclose(found, stepped, rtol=1e-12, err_msg=str(other))


@pytest.mark.parametrize("lengths", [[1], [0, 1, 1], [5, 7, 0, 100], [1] * 20, [10**6, 3, 10**9], [10**12, 10**12]])
@pytest.mark.parametrize("learning_rate", [0.0, 1e-9, 0.3, 2.0])
def test_one_rule_in_pieces_is_one_rule(lengths: list[int], learning_rate: float) -> None:
    rule = replace(RULE, learning_rate=learning_rate)
    found = risk_path(THREE, rule, 8, lengths)
    np.testing.assert_allclose(found, risk(THREE, rule, 8, np.cumsum(lengths)), rtol=1e-11)


def test_a_path_takes_one_rule_and_one_batch_size_for_all_pieces() -> None:
    many = risk_path(THREE, [RULE, RULE], [8, 8.0], [3, 4])
    np.testing.assert_array_equal(risk_path(THREE, RULE, 8, np.array([3, 4])), many)


def test_a_path_that_diverged_stays_infinite() -> None:
    rules = [UpdateRule(2.0), UpdateRule(0.0), UpdateRule(0.1, power=1.0)]
    assert (risk_path(THREE, rules, 8, [10**6, 1, 10]) == np.inf).all()


# ---------------------------------------------------------------------------------------------
# The long run
# ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("power", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("averaging", [0.0, 0.5, 1 - 1e-5])
@pytest.mark.parametrize(
    ("momentum", "nesterov"),
    [(0.0, False), (0.5, False), (0.5, True), (1 - 1e-5, False), (1 - 1e-5, True)],
)
def test_steady_state_is_the_limit(momentum: float, nesterov: bool, averaging: float, power: float) -> None:
    columns = (THREE.curvature, THREE.noise, THREE.initial, THREE.count)
    highest = stability_limit(momentum, nesterov) / 1.3 ** (1 - power)
    for learning_rate in (1e-3, 0.1, 0.9 * highest, highest * (1 - 1e-4)):
        setting = Setting(learning_rate, momentum, nesterov, averaging, power)
        exact = sum(risk_mp(*columns, setting, 8.0, 10**12, digits=20))
        found = steady_state_risk(THREE, UpdateRule(*astuple(setting)), 8)
        assert relative_error(found, exact) <= 1e-11, setting


def test_steady_state_of_a_rate_that_needs_ages() -> None:
    # eqn. 4: alpha c / (2 B (2 - alpha h)), reached after about 1e20 steps
    found = steady_state_risk(ONE, UpdateRule(1e-20), 8)
    assert found == pytest.approx(1e-20 * 0.7 / (2 * 8 * 2), rel=1e-12)


def test_steady_state_without_movement_is_the_start() -> None:
    for rule in (UpdateRule(0.0), UpdateRule(0.0, 0.9, True, 0.99, 0.5)):
        assert steady_state_risk(THREE, rule, 8) == pytest.approx(THREE.initial_risk, rel=1e-14)
        assert risk(THREE, rule, 8, 10**12) == pytest.approx(THREE.initial_risk, rel=1e-14)


def test_steady_state_of_an_unstable_rule_is_infinite() -> None:
    assert steady_state_risk(THREE, UpdateRule(2 / 1.3 * (1 + 1e-9)), 8) == math.inf


def dense_map(h: float, rule: UpdateRule) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    """(theta, m, average) <- map (theta, m, average), as the update is written."""
    scaled = h ** (1 - rule.power)
    m = np.array([scaled, rule.momentum, 0.0])
    ahead = np.array([scaled, 0.0, 0.0]) + rule.momentum * m if rule.nesterov else m
    theta = np.array([1.0, 0.0, 0.0]) - rule.learning_rate * ahead
    average = rule.averaging * np.array([0.0, 0.0, 1.0]) + (1 - rule.averaging) * theta
    return np.array([theta, m, average])


@pytest.mark.parametrize("seed", range(100))
def test_convergence_rate_is_the_largest_eigenvalue(seed: int) -> None:
    random = np.random.default_rng(seed)
    curvature = 10 ** random.uniform(-3, 0.5, 3)
    momentum = float(random.choice([0.0, random.uniform()]))
    nesterov = bool(random.integers(2))
    power = float(random.choice([0.0, 0.5, 1.0]))
    rate = stability_limit(momentum, nesterov) * random.choice([0.0, random.uniform(0, 1.2)])
    averaging = float(random.choice([0.0, random.uniform()]))
    learning_rate = float(rate / (curvature ** (1 - power)).max())
    rule = UpdateRule(learning_rate, momentum, nesterov, averaging, power)
    wanted = max(np.abs(np.linalg.eigvals(dense_map(h, rule))).max() for h in curvature)
    problem = NoisyQuadratic(curvature, curvature, np.ones(3))
    assert convergence_rate(problem, rule) == pytest.approx(float(wanted), rel=1e-10)


def test_convergence_rate_by_hand() -> None:
    assert convergence_rate(ONE, UpdateRule(0.25, 0.25)) == 0.5
    assert convergence_rate(ONE, UpdateRule(0.25, 0.81)) == pytest.approx(0.9, rel=1e-15)
    assert convergence_rate(ONE, UpdateRule(0.25, averaging=0.9)) == 0.9
    assert convergence_rate(ONE, UpdateRule(1.0, 0.9, True)) == 0.0
    assert convergence_rate(ONE, UpdateRule(3.0)) == 2.0
    assert convergence_rate(ONE, UpdateRule(0.0)) == 1.0


@pytest.mark.parametrize("momentum", [0.0, 0.3, 0.9, 1 - 1e-6])
@pytest.mark.parametrize("nesterov", [False, True])
@pytest.mark.parametrize("power", [0.0, 0.5, 1.0])
def test_stability_limit(momentum: float, nesterov: bool, power: float) -> None:
    limit = stability_limit(momentum, nesterov) / 1.3 ** (1 - power)
    for averaging in (0.0, 0.9):
        below, above = (
            UpdateRule(limit * factor, momentum, nesterov, averaging, power) for factor in (1 - 1e-9, 1 + 1e-9)
        )
        assert is_stable(THREE, below)
        assert not is_stable(THREE, above)
        # The part that is left of the start grows on one side only.
        early, late = risk_terms(THREE, below, 8, [10**9, 10**12]).deterministic
        assert late < early or late == 0.0
        early, late = risk_terms(THREE, above, 8, [10**9, 10**12]).deterministic
        assert late == math.inf
        assert convergence_rate(THREE, below) < 1 < convergence_rate(THREE, above)


def test_a_rule_that_does_not_move_is_stable() -> None:
    assert is_stable(THREE, UpdateRule(0.0, 0.9, True, 0.9))


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize(("h", "c", "rate"), [(1e-300, 1e10, 1.0), (1e-170, 1.0, 1.0), (1.0, 1e300, 1e-200)])
def test_noise_counts_where_the_square_of_a_rate_is_no_double(h: float, c: float, rate: float, momentum: float) -> None:
    problem = NoisyQuadratic([h], [c], [1.0])
    rule = UpdateRule(rate, momentum)
    # The coordinate stays where it is; noise of p steps ago has moved it by rate (1 + momentum + ... + momentum^p).
    reach = sum((sum(momentum**k for k in range(p + 1)) * math.sqrt(h) * rate) ** 2 * c for p in range(3))
    expected = 0.5 * h + 0.5 * reach / 4
    assert risk(problem, rule, batch_size=4, steps=3) == pytest.approx(expected, rel=1e-12)
    assert risk_path(problem, rule, batch_size=4, lengths=[1, 2])[-1] == pytest.approx(expected, rel=1e-12)
    low = NoisyQuadratic([h, 1e-3], [c, 1e-3], [1.0, 0.0])
    assert risk(low, rule, batch_size=4, steps=3) >= expected


def test_noise_over_curvature_beyond_a_double_is_refused_where_no_order_is_safe() -> None:
    problem = NoisyQuadratic([1e-300], [1e10], [1.0])
    message = r"^`noise` over `curvature` must stay below 1.8e\+308, got 1e\+10 over 1e-300\.$"
    with pytest.raises(ValueError, match=message):
        risk(problem, UpdateRule(1e290), batch_size=1, steps=1)
    with pytest.raises(ValueError, match=message):
        steady_state_risk(problem, UpdateRule(1.0), batch_size=1)
