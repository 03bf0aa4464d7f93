"""The curve whose sharpness is fitted: its mode, its intervals, and what they are worth."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import ArrayLike, NDArray
from scipy import optimize

from batchlens.scaling._bend import fit_bends, predict_bends, resample_bends
from batchlens.scaling._runs import Run
from batchlens.scaling.curve import critical_batch_size
from batchlens.scaling.fitting import FittedRuns, fit

SIZES = [2.0**k for k in range(4, 12)]
SPREAD, NOISE = 0.3, 0.05  # of the priors of log a and of log steps, as docs/fitting.md has them


def bent(sizes: ArrayLike, critical: float, sharpness: float, least: float = 100.0) -> NDArray[np.float64]:
    """The curve as it is written down."""
    steps: NDArray[np.float64] = least * (1 + (critical / np.asarray(sizes)) ** sharpness) ** (1 / sharpness)
    return steps


def slow_bend(sizes: ArrayLike, steps: ArrayLike) -> tuple[float, float]:
    """B_crit and a of the mode, by a search from many places."""

    def height(place: NDArray[np.float64]) -> float:
        residual = np.log(steps) - np.log(bent(sizes, math.exp(place[0]), math.exp(place[1])))
        squares = float(((residual - residual.mean()) ** 2).sum())
        return len(residual) * math.log(2 * NOISE**2 + squares) + (float(place[1]) / SPREAD) ** 2

    starts = [[math.log(critical), log_a] for critical in np.geomspace(1, 1e6, 9) for log_a in (-0.7, 0.0, 0.7, 1.4)]
    found = [optimize.minimize(height, np.array(start), method="Nelder-Mead", tol=1e-9) for start in starts]
    best = min(found, key=lambda entry: float(entry.fun))
    return math.exp(best.x[0]), math.exp(best.x[1])


@pytest.mark.parametrize("seed", range(6))
def test_the_mode_is_that_of_a_slow_search(seed: int) -> None:
    random = np.random.default_rng(seed)
    sizes = SIZES[: 3 + seed]
    steps = bent(sizes, 100, math.exp(0.5 * random.normal())) * np.exp(0.05 * random.normal(size=len(sizes)))
    critical, sharpness = slow_bend(sizes, steps)
    found = fit_bends(np.log(sizes), np.log(steps)[None])
    assert math.exp(found.log_sharpness[0]) == pytest.approx(sharpness, rel=1e-4)
    assert math.exp(found.log_critical[0]) == pytest.approx(critical, rel=1e-4)


def test_an_exact_hyperbola_is_met_exactly() -> None:
    steps = bent(SIZES, 150, 1)
    found = fit_bends(np.log(SIZES), np.log(steps)[None])
    assert math.exp(found.log_critical[0]) == pytest.approx(150, rel=1e-8)
    assert found.log_sharpness[0] == pytest.approx(0, abs=1e-8)
    np.testing.assert_allclose(predict_bends(np.array([1.0, 1e6]), found)[0], bent([1, 1e6], 150, 1), rtol=1e-7)


@pytest.mark.parametrize("sharpness", [0.6, 2.0])
def test_the_prior_matters_less_the_more_batch_sizes_there_are(sharpness: float) -> None:
    found = []
    for count in (4, 8, 16, 64):
        sizes = np.geomspace(4, 4096, count)
        bend = fit_bends(np.log(sizes), np.log(bent(sizes, 128, sharpness))[None])
        found.append(abs(bend.log_sharpness[0]) / abs(math.log(sharpness)))
    assert 0.5 < found[0] < found[1] < found[2] < found[3] < 1
    assert found[3] > 0.99


def test_rows_are_fitted_apart() -> None:
    random = np.random.default_rng(0)
    log_steps = np.log(bent(SIZES, 100, 1.3)) + 0.1 * random.normal(size=(20, len(SIZES)))
    together = fit_bends(np.log(SIZES), log_steps)
    for place, row in enumerate(log_steps):
        alone = fit_bends(np.log(SIZES), row[None])
        for found, expected in zip(together, alone, strict=True):
            assert found[place] == pytest.approx(expected[0], abs=1e-6)


def test_bend_tells_a_sharp_knee_where_fit_does_not() -> None:
    sizes = [2.0**k for k in range(2, 14)]
    steps = bent(sizes, 256, 2.5).tolist()
    bend, hyperbola = (critical_batch_size(sizes, steps, definition).value for definition in ("bend", "fit"))
    assert bend is not None
    assert hyperbola is not None
    assert bend == pytest.approx(256, rel=0.01)
    assert abs(hyperbola / 256 - 1) > 0.04


def test_resampled_bends_spread_as_the_prior_where_steps_say_nothing() -> None:
    flat = np.zeros((2000, 5))
    found = resample_bends(np.log(SIZES[:5]), flat)
    assert np.std(found.log_sharpness) == pytest.approx(SPREAD, rel=0.06)
    sizes = np.geomspace(1, 1e5, 60)
    exact = np.tile(np.log(bent(sizes, 300, 1.5)), (200, 1))
    assert np.std(resample_bends(np.log(sizes), exact).log_sharpness) < 0.2 * SPREAD


def noisy_fit(seed: int, sizes: list[float], sharpness: float, noise: float, predict: list[float]) -> FittedRuns:
    random = np.random.default_rng(seed)
    steps = bent(sizes, 256, sharpness) * np.exp(noise * random.normal(size=len(sizes)))
    (fitted,) = fit([Run(size, count) for size, count in zip(sizes, steps.tolist(), strict=True)], predict=predict)
    return fitted


def test_intervals_widen_beyond_the_batch_sizes_measured() -> None:
    fitted = noisy_fit(0, SIZES, 1.0, 0.03, [256, 4096, 16384, 65536])
    widths = []
    for entry in fitted.predictions:
        assert entry.interval is not None
        assert entry.interval.low is not None
        assert entry.interval.high is not None
        widths.append(entry.interval.high / entry.interval.low)
    assert 1 < widths[0] < widths[1] < widths[2] < widths[3]
    assert [entry.extrapolated for entry in fitted.predictions] == [False, True, True, True]


def inside(fitted: FittedRuns, place: int, truth: float) -> bool:
    interval = fitted.predictions[place].interval
    assert interval is not None
    assert interval.low is not None
    assert interval.high is not None
    return interval.low <= truth <= interval.high


@pytest.mark.slow
def test_extrapolations_cover_curves_whose_sharpness_is_as_the_prior_says() -> None:
    """Predicted 8 times beyond the largest batch size, as on the published curves."""
    random = np.random.default_rng(1)
    covered = 0
    for seed in range(150):
        sharpness = math.exp(SPREAD * random.normal())
        fitted = noisy_fit(seed, SIZES[:6], sharpness, 0.04, [SIZES[5] * 8])
        covered += inside(fitted, 0, float(bent([SIZES[5] * 8], 256, sharpness)[0]))
    assert covered >= 0.9 * 150


@pytest.mark.slow
def test_fit_gives_a_number_that_is_covered_where_the_knee_gives_a_bound() -> None:
    """S_min (1 + 256 / B) at nine batch sizes with 8% of noise."""
    sizes = [2.0**k for k in range(3, 12)]
    fits = [noisy_fit(seed, sizes, 1.0, 0.08, []) for seed in range(150)]
    assert all(entry.estimate("fit").critical_batch_size.relation == "=" for entry in fits)
    covered = 0
    for entry in fits:
        interval = entry.estimate("fit").interval
        assert interval is not None
        covered += (interval.low or 0) <= 256 <= (interval.high or math.inf)
    assert covered >= 0.92 * 150  # of a nominal 95%, and a standard deviation of 2.7 of 150
    assert sum(entry.estimate("knee").critical_batch_size.relation != "=" for entry in fits) >= 50
    assert all("is about" in entry.sentence for entry in fits)
