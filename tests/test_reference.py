"""The oracles of `reference.py` against each other and against the paper's closed forms."""

from __future__ import annotations

from fractions import Fraction
from itertools import product

import mpmath
import numpy as np
import pytest

from tests.reference import (
    Setting,
    first_hit_by_steps,
    monte_carlo_risk,
    path_by_steps,
    risk_by_steps,
    risk_mp,
)

H = [1.3, 0.4, 0.05]
C = [0.7, 0.4, 0.2]
S = [1.0, 2.5, 0.3]
N = [1.0, 3.0, 40.0]
BATCH_SIZE = 8

MIXES = [
    Setting(0.3, momentum, nesterov, averaging, power)
    for momentum, nesterov, averaging, power in product((0.0, 0.5, 0.95), (False, True), (0.0, 0.8), (0.0, 0.5, 1.0))
]


def name(setting: Setting) -> str:
    rule = "nesterov" if setting.nesterov else "momentum"
    return f"{rule}={setting.momentum}-averaging={setting.averaging}-power={setting.power}"


@pytest.mark.parametrize("setting", MIXES, ids=name)
def test_many_digits_agree_with_single_steps(setting: Setting) -> None:
    stepped = risk_by_steps(H, C, S, N, setting, BATCH_SIZE, 40)
    for steps in (0, 1, 2, 3, 7, 8, 40):
        exact = float(sum(risk_mp(H, C, S, N, setting, BATCH_SIZE, steps)))
        assert exact == pytest.approx(stepped[steps], rel=1e-12)


@pytest.mark.parametrize("setting", [mix for mix in MIXES if mix.power == 0], ids=name)
def test_many_digits_agree_with_fractions(setting: Setting) -> None:
    h, c, s, n = (Fraction(x[1]) for x in (H, C, S, N))
    alpha, beta = Fraction(setting.learning_rate), Fraction(setting.momentum)
    gamma = Fraction(setting.averaging)

    def step(theta: Fraction, m: Fraction, avg: Fraction, eps: Fraction) -> tuple[Fraction, Fraction, Fraction]:
        g = h * theta + eps
        m = beta * m + g
        theta -= alpha * (g + beta * m if setting.nesterov else m)
        return theta, m, gamma * avg + (1 - gamma) * theta

    # avg(t) is a sum: what the start contributes, and what the noise of each step contributes.
    steps, zero, one = 11, Fraction(0), Fraction(1)
    state, response = (one, zero, one), step(zero, zero, zero, one)
    noise = zero
    for _ in range(steps):
        state = step(*state, zero)
        noise += response[2] ** 2
        response = step(*response, zero)
    expected = (n * h / 2 * state[2] ** 2 * s, n * h / 2 * noise * c / BATCH_SIZE)

    got = risk_mp(H[1], C[1], S[1], N[1], setting, BATCH_SIZE, steps)
    with mpmath.workdps(80):
        for part, fraction in zip(got, expected, strict=True):
            wanted = mpmath.mpf(fraction.numerator) / fraction.denominator
            assert abs(part - wanted) <= mpmath.mpf(10) ** -60 * wanted


@pytest.mark.parametrize("power", [0.0, 0.5, 0.75])
@pytest.mark.parametrize("steps", [0, 1, 10, 1000, 10**12])
def test_plain_sgd_is_equation_4(power: float, steps: int) -> None:
    alpha = 2e-3
    got = risk_mp(H, C, S, N, Setting(alpha, power=power), BATCH_SIZE, steps)
    with mpmath.workdps(120):
        deterministic = noise = mpmath.mpf(0)
        for h, c, s, n in zip(*([mpmath.mpf(x) for x in xs] for xs in (H, C, S, N)), strict=True):
            flat, a = h ** (1 - mpmath.mpf(power)), mpmath.mpf(alpha)
            left = (1 - a * flat) ** (2 * steps)
            deterministic += n * left * h * s / 2
            steady = a * c * h ** -mpmath.mpf(power) / (2 * BATCH_SIZE * (2 - a * flat))
            noise += n * (1 - left) * steady
        if deterministic > mpmath.mpf(10) ** -400:
            assert abs(got[0] - deterministic) <= mpmath.mpf(10) ** -59 * deterministic
        assert abs(got[1] - noise) <= mpmath.mpf(10) ** -59 * noise


@pytest.mark.parametrize("momentum", [0.0, 0.3, 0.25, 0.9, 0.9999])
def test_steady_state_of_theorem_1(momentum: float) -> None:
    # With alpha h = 0.25, momentum 0.25 is critical damping, which the theorem excludes.
    h, c, alpha = 0.5, 0.7, 0.5
    deterministic, noise = risk_mp(h, c, 1, 1, Setting(alpha, momentum), BATCH_SIZE, 10**7)
    with mpmath.workdps(80):
        beta = mpmath.mpf(momentum)
        wanted = (1 + beta) * alpha * mpmath.mpf(c)
        wanted /= 2 * BATCH_SIZE * (2 * beta + 2 - alpha * h) * (1 - beta)
        assert deterministic < mpmath.mpf(10) ** -60
        assert abs(noise - wanted) <= mpmath.mpf(10) ** -59 * wanted


def test_deterministic_part_of_theorem_1() -> None:
    h, alpha, beta, steps = 0.5, 0.125, 0.75, 37
    deterministic, _ = risk_mp(h, 0, 1, 1, Setting(alpha, beta), 1, steps)
    with mpmath.workdps(80):
        total = 1 - mpmath.mpf(alpha) * h + beta
        root = mpmath.sqrt(total**2 - 4 * beta)
        r1, r2 = (total + root) / 2, (total - root) / 2
        factor = (r1 ** (steps + 1) - r2 ** (steps + 1) - beta * (r1**steps - r2**steps)) / root
        wanted = mpmath.re(factor) ** 2 * h / 2
        assert abs(deterministic - wanted) <= mpmath.mpf(10) ** -59 * wanted


@pytest.mark.parametrize("averaging", [0.3, 0.75, 0.9, 0.9999])
def test_steady_state_of_theorem_2(averaging: float) -> None:
    # With alpha h = 0.25, averaging 0.75 makes the two roots equal.
    h, c, alpha = 0.5, 0.7, 0.5
    setting = Setting(alpha, averaging=averaging)
    deterministic, noise = risk_mp(h, c, 1, 1, setting, BATCH_SIZE, 10**7)
    with mpmath.workdps(80):
        gamma, keep = mpmath.mpf(averaging), 1 - mpmath.mpf(alpha) * h
        wanted = alpha * mpmath.mpf(c) / (2 * BATCH_SIZE * (2 - alpha * h))
        wanted *= (1 - gamma) * (1 + keep * gamma) / ((1 + gamma) * (1 - keep * gamma))
        assert deterministic < mpmath.mpf(10) ** -60
        assert abs(noise - wanted) <= mpmath.mpf(10) ** -59 * wanted


def test_averaged_moment_the_printed_matrix_gets_wrong() -> None:
    h = 0.7
    risk = sum(risk_mp(h, 0.7, 1, 1, Setting(0.3, averaging=0.9), 4, 50))
    assert round(float(2 * risk / h), 4) == 0.0131


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("nesterov", [False, True])
def test_more_digits_confirm_extremes(momentum: float, nesterov: bool) -> None:
    extremes = [
        Setting(1e-9, momentum, nesterov, 0.0),
        Setting(0.1, momentum, nesterov, 1 - 1e-9, 0.75),
        Setting(1e-6, 1 - 1e-5 * (1 - momentum), nesterov, 0.999),
    ]
    for setting in extremes:
        short = risk_mp(H, C, S, N, setting, BATCH_SIZE, 10**10, digits=20)
        long = risk_mp(H, C, S, N, setting, BATCH_SIZE, 10**10, digits=150)
        with mpmath.workdps(150):
            for a, b in zip(short, long, strict=True):
                assert b < mpmath.mpf(10) ** -400 or abs(a - b) <= mpmath.mpf(10) ** -20 * b


def test_exactly_reached_minimum_is_zero() -> None:
    # h^-0.75 = 8 and alpha h^0.25 = 1: one step lands on the minimum.
    deterministic, _ = risk_mp(1 / 16, 0, 1, 1, Setting(2.0, power=0.75), 1, 3)
    assert float(deterministic) == 0.0


@pytest.mark.parametrize("setting", MIXES, ids=name)
def test_first_hit_is_the_first(setting: Setting) -> None:
    risks = risk_by_steps(H, C, S, N, setting, BATCH_SIZE, 60)
    for target in (risks[0], risks[0] / 3, risks.min()):
        hit = first_hit_by_steps(H, C, S, N, setting, BATCH_SIZE, target, 60)
        assert hit == next((t for t, risk in enumerate(risks) if risk <= target), None)
    assert first_hit_by_steps(H, C, S, N, setting, BATCH_SIZE, risks.min() * 0.99, 60) is None


def test_path_of_equal_pieces_is_one_piece() -> None:
    setting = Setting(0.3, 0.9, True, 0.8, 0.5)
    whole = risk_by_steps(H, C, S, N, setting, BATCH_SIZE, 30)
    parts = path_by_steps(H, C, S, N, [setting] * 3, [BATCH_SIZE] * 3, [10, 0, 20])
    np.testing.assert_array_equal(whole, parts)


def test_path_keeps_the_raw_momentum_buffer() -> None:
    # theta: 1, then m = 1 and theta = 0.5, then m = 0.5 * 1 + 0.5 = 1 and theta = 0.5 - 0.1 * 1.
    pieces = [Setting(0.5, 0.5), Setting(0.1, 0.5)]
    risks = path_by_steps(1, 0, 1, 1, pieces, [1, 4], [1, 1])
    np.testing.assert_allclose(2 * risks, [1.0, 0.25, 0.16], rtol=1e-15)


@pytest.mark.parametrize(
    "setting",
    [
        Setting(0.3),
        Setting(0.1, 0.9),
        Setting(0.1, 0.9, True, 0.0, 0.5),
        Setting(0.2, 0.7, False, 0.8, 1.0),
        Setting(0.2, 0.7, True, 0.8),
    ],
    ids=name,
)
@pytest.mark.parametrize("steps", [3, 40])
def test_simulated_training_agrees(setting: Setting, steps: int) -> None:
    ones = np.ones(len(H))
    mean, error = monte_carlo_risk(H, C, S, 40_000, setting, BATCH_SIZE, steps, seed=steps)
    exact = float(sum(risk_mp(H, C, S, ones, setting, BATCH_SIZE, steps)))
    assert abs(mean - exact) < 4.5 * error
    assert error < 0.02 * exact
