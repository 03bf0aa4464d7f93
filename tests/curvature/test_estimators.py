"""Eigenvalues, traces and densities against spectra that are known, and whether their intervals mean what they say."""

from functools import cache, partial

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from batchlens._arrays import FloatArray
from batchlens.curvature import _products
from batchlens.curvature._lanczos import Krylov, krylov, quadrature, random_signs, random_vector, window
from batchlens.curvature._noise import noise_of
from batchlens.curvature._objective import Objective
from batchlens.curvature._reading import read_loss
from batchlens.curvature._traces import estimate_mean, mean_of, trace
from batchlens.monitor._estimator import fieller

REPEATS = 1000


def known(spectrum: FloatArray, dtype: torch.dtype = torch.float64) -> Objective:
    """A linear model whose Gauss-Newton matrix is the diagonal of `spectrum`: example i is sqrt(N h_i) e_i."""
    model = nn.Linear(len(spectrum), 1, bias=False, dtype=dtype)
    inputs = torch.diag(torch.as_tensor(np.sqrt(len(spectrum) * spectrum))).to(dtype)
    return Objective(model, inputs, torch.zeros(len(spectrum), 1, dtype=dtype), read_loss("squared_error"), 1000)


def rotated(spectrum: FloatArray, seed: int) -> tuple[Tensor, Tensor]:
    """A matrix with that spectrum in a random basis, and a start for Lanczos."""
    generator = torch.Generator().manual_seed(seed)
    size = len(spectrum)
    basis, _ = torch.linalg.qr(torch.randn(size, size, generator=generator, dtype=torch.float64))
    return basis @ torch.diag(torch.as_tensor(spectrum)) @ basis.T, random_vector(basis[0], generator)


@settings(deadline=None, max_examples=200)
@given(
    st.integers(0, 10**6),
    st.integers(2, 60),
    st.floats(0.1, 3.0),
    st.floats(0.5, 2.0),
    st.booleans(),
)
def test_the_residual_bound_of_the_top_eigenvalue_always_holds(
    seed: int, size: int, exponent: float, scale: float, indefinite: bool
) -> None:
    spectrum = scale * np.arange(1.0, size + 1) ** -exponent
    if indefinite:
        spectrum[1::2] *= -1
    matrix, start = rotated(spectrum, seed)
    for dtype in (torch.float64, torch.float32):
        product = partial(torch.mv, matrix.to(dtype))
        found = krylov(product, start.to(dtype), most=40, tolerance=0.01)
        assert abs(float(found.values[-1]) - spectrum.max()) <= found.bounds[-1]
        vector = found.ritz_vector(-1).double()
        assert float(vector.norm()) == pytest.approx(1.0, abs=1e-5)


def test_all_eigenvalues_are_found_when_there_are_as_many_products() -> None:
    spectrum = np.array([5.0, 3.0, 2.0, 1.0, -1.0])
    matrix, start = rotated(spectrum, 0)
    found = krylov(partial(torch.mv, matrix), start, most=5)
    assert found.values[::-1] == pytest.approx(spectrum, abs=1e-12)


def test_lanczos_ends_where_the_matrix_leads_no_further() -> None:
    found = krylov(lambda vector: 2.0 * vector, torch.ones(50, dtype=torch.float64), most=20)
    assert len(found.basis) == 1
    assert found.values == pytest.approx([2.0])


def test_trace_is_exact_where_the_krylov_space_is_all_there_is() -> None:
    spectrum = np.array([3.0, 2.0, 1.0])
    objective = known(spectrum)
    found = krylov(partial(_products.gauss_newton_product, objective), torch.ones(3, dtype=torch.float64), 3)
    estimate = trace(lambda _: pytest.fail("no probe is needed"), found, 0.1, 10, torch.Generator())
    assert estimate.value == pytest.approx(6.0)
    assert estimate.standard_error == 0.0


def test_more_probes_are_drawn_until_the_error_is_what_was_asked_for() -> None:
    generator = torch.Generator().manual_seed(0)
    drawn: list[float] = []

    def draw() -> float:
        drawn.append(float(1 + torch.randn((), generator=generator)))
        return drawn[-1]

    found = estimate_mean(draw, 0.0, 0.1, most=1000)
    assert 50 <= len(drawn) <= 300
    assert found.standard_error == pytest.approx(0.1, rel=0.5)
    assert found.degrees == len(drawn) - 1
    assert len(np.unique(drawn)) == len(drawn)


# Coverage ----------------------------------------------------------------------------------------

SPECTRUM = 1 / np.arange(1.0, 151.0)


@cache
def model_and_top() -> tuple[Objective, Krylov]:
    """A model with spectrum 1/i, and a Krylov space of some of it."""
    torch.manual_seed(0)
    objective = known(SPECTRUM)
    start = random_vector(objective.new_vector(), torch.Generator().manual_seed(1))
    # Rademacher probes see a diagonal matrix exactly: the basis is what makes the trace of the rest random.
    return objective, krylov(partial(_products.gauss_newton_product, objective), start, 6)


def covered(inside: int) -> None:
    assert 0.87 <= inside / REPEATS <= 0.93, inside


@pytest.mark.slow
def test_ninety_percent_intervals_of_the_trace_cover() -> None:
    objective, top = model_and_top()
    generator = torch.Generator().manual_seed(2)

    def form(vector: Tensor) -> float:
        return float(_products.gauss_newton_form(objective, vector).mean())

    inside = 0
    for _ in range(REPEATS):
        low, high = trace(form, top, 0.003, 64, generator).interval()
        inside += low <= SPECTRUM.sum() <= high
    covered(inside)


@pytest.mark.slow
def test_ninety_percent_intervals_of_the_density_cover_at_three_points() -> None:
    objective, _ = model_and_top()
    product = partial(_products.gauss_newton_product, objective)
    at = np.array([0.01, 0.03, 0.2])
    truth = window(SPECTRUM, at, 0.2).sum(0)
    generator = torch.Generator().manual_seed(3)
    inside = np.zeros(3, dtype=int)
    for _ in range(REPEATS):
        heights = quadrature(product, objective.new_vector(), 8, 24, generator).per_decade(at, 0.2)
        for point in range(3):
            low, high = mean_of(heights[:, point]).interval()
            inside[point] += low <= truth[point] <= high
    for count in inside:
        covered(int(count))


def test_density_of_one_probe_integrates_to_the_number_of_eigenvalues() -> None:
    objective, _ = model_and_top()
    product = partial(_products.gauss_newton_product, objective)
    found = quadrature(product, objective.new_vector(), 2, 30, torch.Generator().manual_seed(0))
    at = np.logspace(-4, 2, 601)
    total = found.per_decade(at, 0.2).sum(1) * 0.01
    assert total == pytest.approx([150, 150], rel=1e-3)


def test_signs_are_one_and_minus_one() -> None:
    signs = random_signs(1000, torch.zeros(1), torch.Generator().manual_seed(0))
    assert set(signs.tolist()) == {1.0, -1.0}
    assert abs(float(signs.mean())) < 0.1


# Noise -------------------------------------------------------------------------------------------


def gradients(random: np.random.Generator, examples: int) -> FloatArray:
    """Of examples whose covariance is diagonal, with a skew; tr C = 6, |G|^2 = 1."""
    deviations = np.sqrt([3.0, 2.0, 1.0])
    each: FloatArray = (random.exponential(size=(examples, 3)) - 1) * deviations + np.array([1.0, 0.0, 0.0])
    return each


def test_noise_is_without_bias_and_its_intervals_cover() -> None:
    random = np.random.default_rng(0)
    found = []
    inside = 0
    for _ in range(2000):
        each = gradients(random, 100)
        mean = each.mean(0)
        noise = noise_of(((each - mean) ** 2).sum(1), each @ mean)
        found.append((noise.variance, noise.squared_gradient))
        ends = fieller((noise.variance, noise.squared_gradient), 1.66**2 * noise.errors)
        assert ends is not None
        inside += ends[0] <= 6.0 <= ends[1]
    assert np.mean(found, axis=0) == pytest.approx([6.0, 1.0], rel=0.02)
    assert 0.85 <= inside / 2000 <= 0.95


def test_errors_of_variance_and_gradient_are_those_that_repeats_show() -> None:
    random = np.random.default_rng(1)
    found, errors = [], []
    for _ in range(2000):
        each = gradients(random, 200)
        mean = each.mean(0)
        noise = noise_of(((each - mean) ** 2).sum(1), each @ mean)
        found.append((noise.variance, noise.squared_gradient))
        errors.append(noise.errors)
    assert np.mean(errors, axis=0) == pytest.approx(np.cov(np.array(found).T), rel=0.15)


def test_a_gradient_that_may_be_zero_has_no_upper_noise_scale() -> None:
    ends = fieller((4.0, 0.1), np.diag([0.0, 1.0]))
    assert ends is not None
    assert ends[0] == pytest.approx(4.0 / 1.1)
    assert ends[1] == np.inf
    assert fieller((-4.0, 2.0), np.diag([0.01, 0.0])) is None
