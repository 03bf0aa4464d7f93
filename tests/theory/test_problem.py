"""Noisy quadratics: built, binned, and left alone afterwards."""

from __future__ import annotations

from dataclasses import FrozenInstanceError
from typing import Literal

import numpy as np
import numpy.typing as npt
import pytest

from batchlens import NoisyQuadratic, UpdateRule, risk

Floats = npt.NDArray[np.float64]
ROUNDINGS: tuple[Literal["mean", "down"], ...] = ("mean", "down")
COLUMNS = ("curvature", "noise", "initial", "count")

PAPER = NoisyQuadratic.power_law(dim=10_000)
MIXED = NoisyQuadratic(
    curvature=[0.02, 3.0, 0.5, 0.021, 0.5, 1e-4, 2.9],
    noise=[0.0, 1.0, 0.2, 0.4, 0.3, 5.0, 0.1],
    initial=[1.0, 0.0, 2.0, 4.0, 0.5, 9.0, 1.5],
    count=[1.0, 2.0, 5.0, 1.0, 3.5, 100.0, 7.0],
)


def sums(problem: NoisyQuadratic) -> Floats:
    """Sums over coordinates of 1, h, c and h s."""
    h, c, s, n = problem.curvature, problem.noise, problem.initial, problem.count
    return np.array([n.sum(), (n * h).sum(), (n * c).sum(), (n * h * s).sum()])


# ---------------------------------------------------------------------------------------------
# Construction
# ---------------------------------------------------------------------------------------------


def test_columns_become_float_arrays() -> None:
    problem = NoisyQuadratic([1, 2], (0, 3), np.array([4, 5], dtype=np.float32))
    for name, values in zip(COLUMNS, ([1, 2], [0, 3], [4, 5], [1, 1]), strict=True):
        column = getattr(problem, name)
        assert column.dtype == np.float64
        assert column.tolist() == values


def test_sums() -> None:
    assert MIXED.dim == 119.5
    assert MIXED.trace == pytest.approx(sums(MIXED)[1], rel=1e-15)
    assert MIXED.initial_risk == pytest.approx(sums(MIXED)[3] / 2, rel=1e-15)


def test_problems_are_frozen() -> None:
    problem = NoisyQuadratic([1.0], [1.0], [1.0])
    for name in COLUMNS:
        with pytest.raises(FrozenInstanceError):
            setattr(problem, name, np.zeros(1))
        with pytest.raises(ValueError, match="read-only"):
            getattr(problem, name)[0] = 7.0


def test_problems_keep_a_copy_of_their_own() -> None:
    given = [np.full(2, value) for value in (1.0, 2.0, 3.0, 4.0)]
    problem = NoisyQuadratic(*given)
    spectrum = NoisyQuadratic.from_spectrum(given[0])
    for column in given:
        column[:] = 99.0
    assert [getattr(problem, name)[0] for name in COLUMNS] == [1.0, 2.0, 3.0, 4.0]
    assert spectrum.curvature.tolist() == spectrum.noise.tolist() == [1.0, 1.0]


def test_power_law() -> None:
    problem = NoisyQuadratic.power_law(dim=5, exponent=2.0, noise=0.5, initial=3.0)
    h = [1.0, 1 / 4, 1 / 9, 1 / 16, 1 / 25]
    np.testing.assert_allclose(problem.curvature, h, rtol=1e-15)
    np.testing.assert_allclose(problem.noise, np.multiply(0.5, h), rtol=1e-15)
    assert problem.initial.tolist() == [3.0] * 5
    assert problem.count.tolist() == [1.0] * 5


def test_power_law_of_the_paper() -> None:
    assert PAPER.dim == 10_000
    assert PAPER.trace == pytest.approx(sum(1 / i for i in range(1, 10_001)), rel=1e-14)
    np.testing.assert_array_equal(PAPER.noise, PAPER.curvature)
    assert PAPER.initial_risk == pytest.approx(PAPER.trace / 2, rel=1e-14)


def test_power_law_without_decay() -> None:
    assert NoisyQuadratic.power_law(dim=3, exponent=0.0).curvature.tolist() == [1.0] * 3


def test_from_spectrum() -> None:
    problem = NoisyQuadratic.from_spectrum([0.5, 2.0], noise=3.0, initial=0.0, count=[4, 1])
    assert problem.curvature.tolist() == [0.5, 2.0]
    assert problem.noise.tolist() == [1.5, 6.0]
    assert problem.initial.tolist() == [0.0, 0.0]
    assert problem.count.tolist() == [4.0, 1.0]
    assert NoisyQuadratic.from_spectrum([0.5]).initial.tolist() == [1.0]


# ---------------------------------------------------------------------------------------------
# Bins
# ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bins", [1, 2, 3, 7, 100, 10_000])
@pytest.mark.parametrize("problem", [PAPER, MIXED], ids=["paper", "mixed"])
def test_mean_keeps_the_sums(problem: NoisyQuadratic, bins: int) -> None:
    binned = problem.binned(bins)
    assert binned.curvature.size <= bins
    assert (binned.count >= 1).all()
    np.testing.assert_allclose(sums(binned), sums(problem), rtol=1e-13)
    np.testing.assert_allclose(sums(problem.binned(bins, rounding="mean")), sums(binned), rtol=0)


@pytest.mark.parametrize("bins", [1, 2, 3, 7, 100, 10_000])
@pytest.mark.parametrize("problem", [PAPER, MIXED], ids=["paper", "mixed"])
def test_down_rounds_every_eigenvalue_down_to_the_grid(problem: NoisyQuadratic, bins: int) -> None:
    """Coordinate by coordinate, in a loop."""
    largest, smallest = problem.curvature.max(), problem.curvature.min()
    grid = np.geomspace(smallest, largest, bins) if bins > 1 else np.array([smallest])
    cells: dict[int, list[int]] = {}
    for i, h in enumerate(problem.curvature):
        on_or_below = np.flatnonzero(grid <= h * (1 + 1e-12))
        cells.setdefault(int(on_or_below[-1]), []).append(i)
    wanted = []
    for k in sorted(cells, reverse=True):
        h, c, s, n = (getattr(problem, name)[cells[k]] for name in COLUMNS)
        wanted.append([grid[k], grid[k] * (n * c / h).sum() / n.sum(), (n * s).sum() / n.sum(), n.sum()])
    binned = problem.binned(bins, rounding="down")
    found = np.stack([getattr(binned, name) for name in COLUMNS], axis=1)
    np.testing.assert_allclose(found, wanted, rtol=1e-9)
    assert binned.dim == problem.dim
    assert binned.trace <= problem.trace


def test_the_papers_bins() -> None:
    paper = PAPER.binned(100, rounding="down")
    assert paper.dim == 10_000
    assert round(paper.trace, 5) == 9.40499
    np.testing.assert_allclose(paper.noise, paper.curvature, rtol=1e-14)  # c / h kept
    assert (paper.initial == 1.0).all()
    assert paper.curvature.max() == pytest.approx(1.0, rel=1e-12)
    assert paper.curvature.min() == pytest.approx(1e-4, rel=1e-12)


def test_empty_bins_are_dropped() -> None:
    problem = NoisyQuadratic.from_spectrum([1.0, 0.99, 1e-6])
    # The top of 50 cells holds the largest two; as for grid points, the second lies below the top one.
    for rounding, counts in zip(ROUNDINGS, ([2.0, 1.0], [1.0, 1.0, 1.0]), strict=True):
        binned = problem.binned(50, rounding)
        assert binned.count.tolist() == counts
        assert binned.curvature.min() == pytest.approx(1e-6, rel=1e-12)


@pytest.mark.parametrize("rounding", ROUNDINGS)
@pytest.mark.parametrize("bins", [1, 2, 100])
def test_equal_curvatures_share_one_bin(bins: int, rounding: Literal["mean", "down"]) -> None:
    problem = NoisyQuadratic([0.3] * 4, [1.0, 2.0, 3.0, 6.0], [4.0, 0.0, 0.0, 0.0])
    binned = problem.binned(bins, rounding)
    np.testing.assert_allclose([getattr(binned, name) for name in COLUMNS], [[0.3], [3.0], [1.0], [4.0]], rtol=1e-15)


@pytest.mark.parametrize("rounding", ROUNDINGS)
@pytest.mark.parametrize("bins", [1, 3, 20])
def test_order_does_not_matter(bins: int, rounding: Literal["mean", "down"]) -> None:
    order = [3, 0, 6, 2, 5, 1, 4]
    shuffled = NoisyQuadratic(*(getattr(MIXED, name)[order] for name in COLUMNS))
    for name in COLUMNS:
        np.testing.assert_allclose(
            getattr(shuffled.binned(bins, rounding), name),
            getattr(MIXED.binned(bins, rounding), name),
            rtol=1e-14,
        )


@pytest.mark.parametrize("rounding", ROUNDINGS)
@pytest.mark.parametrize("bins", [1, 3, 20])
def test_counts_are_copies(bins: int, rounding: Literal["mean", "down"]) -> None:
    counts = [1, 2, 5, 1, 3, 100, 7]
    whole = NoisyQuadratic(MIXED.curvature, MIXED.noise, MIXED.initial, counts)
    copied = NoisyQuadratic(*(np.repeat(getattr(MIXED, name), counts) for name in COLUMNS[:3]))
    for name in COLUMNS:
        np.testing.assert_allclose(
            getattr(whole.binned(bins, rounding), name),
            getattr(copied.binned(bins, rounding), name),
            rtol=1e-12,
        )


@pytest.mark.parametrize("rounding", ROUNDINGS)
def test_binning_twice_changes_nothing_more(rounding: Literal["mean", "down"]) -> None:
    once = PAPER.binned(100, rounding="down")
    twice = once.binned(100, rounding)
    if rounding == "down":
        np.testing.assert_allclose(twice.curvature, once.curvature, rtol=1e-12)
        np.testing.assert_array_equal(twice.count, once.count)
    np.testing.assert_allclose(sums(twice), sums(once), rtol=1e-12)


def test_one_bin_of_means() -> None:
    binned = MIXED.binned(1)
    n, h, c, hs = sums(MIXED)
    np.testing.assert_allclose(
        [getattr(binned, name) for name in COLUMNS], [[h / n], [c / n], [hs / h], [n]], rtol=1e-14
    )


def test_finer_means_come_closer() -> None:
    rule = UpdateRule(0.1, 0.9)
    exact = risk(PAPER, rule, 256, 1000)
    errors = [abs(risk(PAPER.binned(bins), rule, 256, 1000) / exact - 1) for bins in (10, 100, 1000)]
    assert errors[0] > errors[1] > errors[2]
    assert errors[1] < 1e-3
