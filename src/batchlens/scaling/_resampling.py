"""Curves as other runs might have given them, and what they say of critical batch sizes and predictions."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy import stats

from batchlens._arrays import FloatArray
from batchlens.scaling._bend import Bends, fit_bends, predict_bends, resample_bends
from batchlens.scaling._critical import Definition
from batchlens.scaling._hyperbola import fit_curves
from batchlens.scaling._intervals import CONFIDENCE, Interval, critical_ends, interval_of_logs, percentile_interval

_ENOUGH_REPEATS = 5  # to tell the noise at one batch size from its own runs
_BAND_POINTS = 65
_TAIL = (1 - CONFIDENCE) / 2
_ROUNDING = 1e-9


class Prediction(NamedTuple):
    """Steps that the fitted curve takes at a batch size; `extrapolated` where that is outside those measured."""

    batch_size: float
    steps: float
    interval: Interval | None
    extrapolated: bool


class Sharpness(NamedTuple):
    """a of steps = S_min (1 + (B_crit / B)^a)^(1/a), and its interval."""

    value: float
    interval: Interval | None


@dataclass(frozen=True)
class FittedCurve:
    """A curve with its bend, and the same of resamples: their log steps and their bends, both None without noise."""

    sizes: FloatArray
    log_steps: FloatArray
    bend: Bends
    noise: str | None
    noisy: FloatArray | None
    bends: Bends | None

    def interval(self, definition: Definition) -> Interval | None:
        """Of the critical batch size."""
        if self.noisy is None or self.bends is None:
            return None
        ends = critical_ends(definition, np.log(self.sizes), self.noisy, self.bends)
        return interval_of_logs(*percentile_interval(*ends))

    def sharpness(self) -> Sharpness | None:
        """Of the bend; None where two batch sizes say nothing of it."""
        if self.sizes.size < 3:
            return None
        interval = None
        if self.bends is not None:
            interval = interval_of_logs(*percentile_interval(self.bends.log_sharpness, self.bends.log_sharpness))
        return Sharpness(math.exp(self.bend.log_sharpness[0]), interval)

    def predict(self, sizes: Sequence[float] | FloatArray) -> tuple[Prediction, ...]:
        """Steps at other batch sizes."""
        wanted = np.asarray(sizes, dtype=np.float64)
        intervals: list[Interval | None] = [None] * len(wanted)
        if self.bends is not None:
            steps = predict_bends(wanted, self.bends)
            ends = np.quantile(steps, [_TAIL, 1 - _TAIL], axis=0, method="inverted_cdf")
            intervals = [Interval(*pair) for pair in ends.T.tolist()]
        found = predict_bends(wanted, self.bend)[0].tolist()
        outside = ((wanted < self.sizes[0]) | (wanted > self.sizes[-1])).tolist()
        return tuple(map(Prediction, wanted.tolist(), found, intervals, outside))

    def band(self, wanted: Sequence[float] = ()) -> tuple[Prediction, ...]:
        """Predictions close enough to draw a line through, as far as the batch sizes measured and wanted go."""
        reach = [*self.sizes, *wanted]
        between = np.geomspace(min(reach), max(reach), _BAND_POINTS)[1:-1]
        return self.predict(np.unique([*between, *reach]))

    def tied_range(self, values: Mapping[float, float | None]) -> tuple[float, float] | None:
        """Around the batch size with the least value, those that the noise of the steps does not tell from it."""
        known = [value for value in map(values.get, self.sizes.tolist()) if value is not None]
        if self.noisy is None or len(known) < self.sizes.size:
            return None
        logs = np.log(known)
        noise = self.noisy - self.log_steps
        # By how much noise puts one of them ahead of another, all of them compared with it.
        ahead = np.quantile((noise[:, [int(np.argmin(logs))]] - noise).max(axis=1), CONFIDENCE)
        alike = self.sizes[logs - logs.min() <= ahead + _ROUNDING]
        return float(alike[0]), float(alike[-1])


def fit_resampled(logs: Mapping[float, FloatArray], resamples: int, seed: int) -> FittedCurve:
    """The curve of runs, given as logarithms of their steps by batch size, rising, at least two of them."""
    sizes = np.array(list(logs))
    log_steps = np.array([log.mean() for log in logs.values()])
    noisy, noise = resample(np.log(sizes), list(logs.values()), resamples, np.random.default_rng(seed))
    bend = fit_bends(np.log(sizes), log_steps[None])
    bends = None if noisy is None else resample_bends(np.log(sizes), noisy)
    return FittedCurve(sizes, log_steps, bend, noise, noisy, bends)


def resample(
    log_batch: FloatArray, logs: list[FloatArray], resamples: int, random: np.random.Generator
) -> tuple[FloatArray | None, str | None]:
    """Curves as other runs might have given them, one in each row, and what their noise was drawn from."""
    log_steps = np.array([log.mean() for log in logs])
    counts = [len(log) for log in logs]
    freedom = sum(counts) - len(counts)
    if freedom >= 2:
        noise = "repeats"
        own = [(log - log.mean()) * math.sqrt(len(log) / max(len(log) - 1, 1)) for log in logs]
        everyone = np.concatenate([deviations for deviations in own if len(deviations) > 1])
        sources = [mine if len(mine) >= _ENOUGH_REPEATS else everyone for mine in own]
    else:
        noise = "residuals"
        counts = [1] * len(logs)
        freedom = len(logs) - 2
        if freedom < 2:
            return None, None
        log_critical, log_least = fit_curves(log_batch, log_steps[None])
        residuals = log_steps - log_least - np.logaddexp(0, log_critical - log_batch)
        sources = [residuals * math.sqrt(len(logs) / freedom)] * len(logs)
    widening = stats.t.ppf(1 - _TAIL, freedom) / stats.norm.ppf(1 - _TAIL)
    columns = [
        random.choice(source, size=(resamples, count)).mean(axis=1)
        for source, count in zip(sources, counts, strict=True)
    ]
    return log_steps + widening * np.stack(columns, axis=1), noise
