"""The curve steps = S_min (1 + B_crit / B), fitted to many curves at a time."""

import math

import numpy as np

from batchlens._arrays import FloatArray

# How far beyond the batch sizes given the fit looks for B_crit: from there on the curve is a straight line.
FIT_MARGIN = math.log(1e6)
_GRID = 800
_STEPS = 60
_ACCURACY = 1e-12
_TINY = 1e-300  # instead of 0 in a denominator


def fit_curves(log_batch: FloatArray, log_steps: FloatArray) -> tuple[FloatArray, FloatArray]:
    """log B_crit and log S_min of steps = S_min (1 + B_crit / B) for every row of `log_steps`.

    S_min is eliminated.  What is left is a function of log B_crit alone: its least value on a grid, then Gauss-Newton
    steps inside the two grid cells around it, bisection where one would leave them.
    """
    centred = log_steps - log_steps.mean(axis=1, keepdims=True)
    grid = np.linspace(log_batch[0] - FIT_MARGIN, log_batch[-1] + FIT_MARGIN, _GRID)
    shapes = np.logaddexp(0, grid[:, None] - log_batch)
    shapes -= shapes.mean(axis=1, keepdims=True)
    best = np.argmin((shapes**2).sum(axis=1) - 2 * centred @ shapes.T, axis=1)
    low, high = grid[np.maximum(best - 1, 0)], grid[np.minimum(best + 1, _GRID - 1)]
    log_critical = (low + high) / 2
    for _ in range(_STEPS):
        shape = np.logaddexp(0, log_critical[:, None] - log_batch)
        growth = np.exp(log_critical[:, None] - log_batch - shape)
        shape -= shape.mean(axis=1, keepdims=True)
        growth -= growth.mean(axis=1, keepdims=True)
        gradient = ((shape - centred) * growth).sum(axis=1)
        low, high = np.where(gradient < 0, log_critical, low), np.where(gradient < 0, high, log_critical)
        newton = log_critical - gradient / np.maximum((growth**2).sum(axis=1), _TINY)
        before, log_critical = log_critical, np.where((low < newton) & (newton < high), newton, (low + high) / 2)
        if np.abs(log_critical - before).max() < _ACCURACY:
            break
    log_least = (log_steps - np.logaddexp(0, log_critical[:, None] - log_batch)).mean(axis=1)
    return log_critical, log_least
