"""What is written down about an update against the matrix of a step, built from kick and carry."""

from fractions import Fraction

import numpy as np
import numpy.typing as npt
import pytest

from batchlens.theory._kernels.update import (
    characteristic,
    kick_and_carry,
    kick_and_carry_slopes,
    limit_with_tail,
    rate_limit,
)

MOMENTA = (0.0, 0.1, 0.5, 0.9, 0.999)
RULES = [(momentum, nesterov) for momentum in MOMENTA for nesterov in (False, True)]


def step_matrix(a: float, momentum: float, nesterov: bool) -> npt.NDArray[np.float64]:
    """(theta, u) after a step, from (theta, u) before."""
    kick, _, carry, _ = kick_and_carry(momentum, nesterov)
    return np.array([[1 - a * kick, -a * carry], [1.0, momentum]])


@pytest.mark.parametrize(("momentum", "nesterov"), RULES)
def test_the_step_is_that_of_torch(momentum: float, nesterov: bool) -> None:
    theta, buffer, a = 0.7, -0.3, 0.2
    after = momentum * buffer + theta
    moved = theta - a * (theta + momentum * after if nesterov else after)
    np.testing.assert_allclose(step_matrix(a, momentum, nesterov) @ [theta, buffer], [moved, after], rtol=1e-14)


@pytest.mark.parametrize(("momentum", "nesterov"), RULES)
def test_roots_are_those_of_the_step(momentum: float, nesterov: bool) -> None:
    for a in (1e-6, 0.01, 0.3, 0.99, 1.2):
        trace, product, first, second = characteristic(a, momentum, nesterov)
        matrix = step_matrix(a, momentum, nesterov)
        assert trace == pytest.approx(matrix.trace(), abs=1e-14)
        assert product == pytest.approx(np.linalg.det(matrix), abs=1e-14)
        assert first * second == pytest.approx(trace**2 - 4 * product, abs=1e-14)


@pytest.mark.parametrize(("momentum", "nesterov"), RULES)
def test_the_limit_parts_stable_from_unstable_steps(momentum: float, nesterov: bool) -> None:
    limit = rate_limit(momentum, nesterov)

    def radius(a: float) -> float:
        return float(np.abs(np.linalg.eigvals(step_matrix(a, momentum, nesterov))).max())

    assert radius(limit * (1 - 1e-6)) < 1 < radius(limit * (1 + 1e-6))


@pytest.mark.parametrize(("momentum", "nesterov"), RULES)
def test_slopes_are_those_of_kick_and_carry(momentum: float, nesterov: bool) -> None:
    kick, _, carry, _ = kick_and_carry(momentum, nesterov)
    more_kick, _, more_carry, _ = kick_and_carry(momentum + 1e-6, nesterov)
    slopes = (more_kick - kick) / 1e-6, (more_carry - carry) / 1e-6
    np.testing.assert_allclose(kick_and_carry_slopes(momentum, nesterov), slopes, atol=2e-6)


def test_tails_are_what_rounding_took() -> None:
    momentum = 1 / 3
    exact = Fraction(momentum)
    kick, kick_tail, carry, carry_tail = (Fraction(part) for part in kick_and_carry(momentum, True))
    limit, limit_tail = (Fraction(part) for part in limit_with_tail(momentum, False))
    assert kick + kick_tail == 1 + exact
    assert carry + carry_tail == exact**2
    assert limit + limit_tail == 2 * (1 + exact)
