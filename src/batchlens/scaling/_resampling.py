"""Curves as other runs might have given them, and what they say of critical batch sizes and predictions."""

import math
from typing import NamedTuple

import numpy as np
from scipy import stats

from batchlens._arrays import FloatArray
from batchlens.scaling._critical import Definition, fit_curves, predict_curves
from batchlens.scaling._intervals import CONFIDENCE, Interval, critical_ends, interval_of_logs, percentile_interval

_ENOUGH_REPEATS = 5  # to tell the noise at one batch size from its own runs


class Prediction(NamedTuple):
    """Steps that the fitted curve takes at a batch size; `extrapolated` where that is outside those measured."""

    batch_size: float
    steps: float
    interval: Interval | None
    extrapolated: bool


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
    tail = (1 + CONFIDENCE) / 2
    widening = stats.t.ppf(tail, freedom) / stats.norm.ppf(tail)
    columns = [
        random.choice(source, size=(resamples, count)).mean(axis=1)
        for source, count in zip(sources, counts, strict=True)
    ]
    return log_steps + widening * np.stack(columns, axis=1), noise


def critical_interval(definition: Definition, log_batch: FloatArray, noisy: FloatArray) -> Interval | None:
    return interval_of_logs(*percentile_interval(*critical_ends(definition, log_batch, noisy)))


def predict_steps(
    log_batch: FloatArray,
    fit: tuple[FloatArray, FloatArray],
    noisy: FloatArray | None,
    wanted: list[float],
) -> list[Prediction]:
    predictions: list[Prediction] = []
    if not wanted:
        return predictions
    noisy_fits = None if noisy is None else fit_curves(log_batch, noisy)
    for size in wanted:
        log_size = np.log([size])
        interval = None
        if noisy_fits is not None:
            log_steps = np.log(predict_curves(log_size, *noisy_fits)[:, 0])
            interval = interval_of_logs(*percentile_interval(log_steps, log_steps))
        outside = not log_batch[0] <= log_size[0] <= log_batch[-1]
        predictions.append(Prediction(size, float(predict_curves(log_size, *fit)[0, 0]), interval, outside))
    return predictions
