"""Ratios of means with intervals: simulated training steps, and cases that can be worked out by hand."""

import math

import numpy as np
import pytest

from batchlens._arrays import FloatArray
from batchlens.monitor._estimator import fieller, ratio_of_means, steps_to_precision, two_sizes

REPEATS = 1000
SPECTRA: dict[str, FloatArray] = {"even": np.ones(60), "power law": 1 / np.arange(1.0, 101.0)}


def simulate(
    scale: float, small: int, steps: int, spectrum: FloatArray, random: np.random.Generator, drift: float = 0.0
) -> tuple[FloatArray, float]:
    """(repeats, steps, 3): noise, signal and weight, and the true ratio, of a batch of 1 made of `small` small batches.

    Gradients are normal with |G|^2 = 1 and tr Sigma = `scale`. The mean of the small ones and their squared deviations
    from it are then independent, the latter being chi-squared; |G|^2 grows by the factor exp(drift) over the steps.
    """
    variances = scale * spectrum / spectrum.sum()
    size = len(variances)
    growth = np.exp(drift * np.linspace(-0.5, 0.5, steps))
    mean = np.sqrt(growth / size)[:, None] + np.sqrt(variances) * random.standard_normal((REPEATS, steps, size))
    large = (mean**2).sum(-1)
    deviations = random.chisquare(small - 1, (REPEATS, steps, size)) @ variances
    noise, signal, _ = two_sizes(large + deviations, large, 1 / small, 1.0)
    return np.stack([noise, signal, np.ones_like(large)], -1), scale / float(growth.mean())


def coverage(parts: FloatArray, truth: float, half_life: float | None = None) -> float:
    ages = None if half_life is None else 0.5 ** (np.arange(parts.shape[1])[::-1] / half_life)
    found = [ratio_of_means(run, ages).interval for run in parts]
    return sum(ends is not None and ends[0] <= truth <= ends[1] for ends in found) / len(found)


@pytest.mark.parametrize("spectrum", SPECTRA)
@pytest.mark.parametrize("small", [2, 64])
@pytest.mark.parametrize("scale", [0.2, 2.0, 20.0])
def test_nine_of_ten_intervals_hold_the_truth(scale: float, small: int, spectrum: str) -> None:
    """60 steps; the noise scale is `scale` times the batch, which is made of `small` small ones."""
    random = np.random.default_rng([int(10 * scale), small, len(spectrum)])
    parts, truth = simulate(scale, small, 60, SPECTRA[spectrum], random)
    assert 0.87 <= coverage(parts, truth) <= 0.93


@pytest.mark.parametrize("scale", [0.2, 2.0, 20.0])
def test_they_do_so_where_the_gradient_drifts_and_old_steps_fade(scale: float) -> None:
    parts, truth = simulate(scale, 64, 150, SPECTRA["even"], np.random.default_rng(1), drift=2.0)
    assert 0.87 <= coverage(parts, truth) <= 0.93
    parts, truth = simulate(scale, 64, 150, SPECTRA["even"], np.random.default_rng(2))
    assert 0.87 <= coverage(parts, truth, half_life=25.0) <= 0.93


def test_the_mean_of_ratios_would_be_far_off() -> None:
    """Why only means are divided: the steps' own ratios average to anything."""
    parts, truth = simulate(20.0, 64, 60, SPECTRA["even"], np.random.default_rng(3))
    values = [ratio_of_means(run).value for run in parts]
    assert np.median([value or math.inf for value in values]) == pytest.approx(truth, rel=0.1)
    ratios = (parts[..., 0] / parts[..., 1]).mean(1)
    assert abs(np.median(ratios) / truth - 1) > 0.5


def test_the_steps_needed_give_the_precision() -> None:
    """From 30 steps, how many it takes; with that many, half the intervals are as narrow."""
    random = np.random.default_rng(4)
    parts, _ = simulate(10.0, 64, 30, SPECTRA["even"], random)
    needed = [steps_to_precision(ratio_of_means(run), 0.4) for run in parts]
    total = 30 + int(np.median([more for more, told in filter(None, needed) if told]))
    parts, _ = simulate(10.0, 64, total, SPECTRA["even"], random)
    assert np.median([ratio_of_means(run).relative_error for run in parts]) == pytest.approx(0.4, rel=0.15)


def test_without_a_signal_the_steps_needed_are_a_lower_bound() -> None:
    parts = np.array([[1.0, signal, 1.0] for signal in (-0.3, 0.2, -0.2, 0.1, -0.1, 0.2)])
    found = ratio_of_means(parts)
    assert found.signal < 0
    assert found.value is None
    assert found.interval is not None
    assert found.interval[0] > 0
    assert math.isinf(found.interval[1])
    needed = steps_to_precision(found, 0.5)
    assert needed is not None
    assert needed[0] > 0
    assert not needed[1]


def test_fieller_by_hand() -> None:
    """Noise 4, signal 2: with errors of the noise alone the ratio is (4 +- 1) / 2, of the signal alone 4 / (2 +- 1)."""
    assert fieller((4.0, 2.0), np.diag([1.0, 0.0])) == (1.5, 2.5)
    assert fieller((4.0, 2.0), np.diag([0.0, 1.0])) == pytest.approx((4 / 3, 4.0))
    assert fieller((4.0, 2.0), np.diag([0.0, 9.0])) == pytest.approx((4 / 5, math.inf))
    assert fieller((4.0, -2.0), np.diag([0.0, 9.0])) == pytest.approx((4.0, math.inf))
    assert fieller((1.0, 2.0), np.diag([4.0, 9.0])) == (0.0, math.inf)
    assert fieller((1.0, 2.0), np.diag([4.0, 0.0])) == (0.0, 1.5)
    assert fieller((4.0, -2.0), np.diag([0.0, 1.0])) is None
    assert fieller((-4.0, 2.0), np.diag([1.0, 0.0])) is None
    assert fieller((-4.0, 0.1), np.diag([1.0, 1.0])) is None


def test_a_small_last_batch_does_no_harm() -> None:
    """Two examples instead of 256 have 128 times the error: the step counts as 2 / 256 of a step."""
    random = np.random.default_rng(5)
    signal = 1 + 0.1 * random.standard_normal(50)
    parts = np.stack([np.full(50, 256.0), signal, np.full(50, 256.0)], 1)
    before = ratio_of_means(parts)
    after = ratio_of_means(np.vstack([parts, [256.0, 1 + 12.8, 2.0]]))
    assert before.value is not None
    assert after.value is not None
    assert abs(after.value - before.value) < 0.01 * before.value
    assert after.relative_error < 1.3 * before.relative_error


def test_few_steps_tell_no_interval() -> None:
    found = ratio_of_means(np.array([[2.0, 1.0, 1.0], [2.0, 1.0, 1.0]]))
    assert (found.value, found.interval) == (2.0, None)
    assert steps_to_precision(found, 0.5) is None
