"""The curve steps = S_min (1 + (B_crit / B)^a)^(1/a), whose bend is the sharper the larger a is.

a = 1 is the curve of "fit".  The two straight lines, perfect scaling and the plateau, meet at B_crit whatever a is, and
a says how closely the curve follows them.  A curve that ends near its bend says little of a, so a is shrunk: what is
fitted is the mode of the posterior under two priors,

    log a ~ N(0, 0.3^2)             half of all bends have a between 0.82 and 1.22, 95% between 0.56 and 1.8;
    the noise of log steps: 5%, as if two more batch sizes had said so.

With r the residuals of log steps at n batch sizes, a flat prior on log B_crit and log S_min, and the noise integrated
out, that is the least value of n log(2 * 0.05^2 + sum r^2) + (log a / 0.3)^2.  docs/fitting.md says where the
priors come from.
"""

from typing import NamedTuple

import numpy as np

from batchlens._arrays import FloatArray
from batchlens.scaling._hyperbola import FIT_MARGIN, fit_curves

SPREAD = 0.3  # of log a
NOISE = 0.05  # of log steps
NOISE_WEIGHT = 2.0  # how many batch sizes the prior of the noise is worth

_STEPS = 200
_ACCURACY = 1e-9
_STEEPEST = 4.0  # the largest |log a|
_START, _LOOSER, _TIGHTER, _FREE = 1e-3, 0.2, 5.0, 1e-12  # damping of Gauss-Newton steps


class Bends(NamedTuple):
    """log B_crit, log S_min and log a of curves, one entry each."""

    log_critical: FloatArray
    log_least: FloatArray
    log_sharpness: FloatArray


def fit_bends(log_batch: FloatArray, log_steps: FloatArray, centres: FloatArray | float = 0.0) -> Bends:
    """The curve of every row of `log_steps`; `centres` are those of the prior of log a, 0 unless they are resampled.

    Damped Gauss-Newton steps in log B_crit and log a from the curve of a = 1, S_min being eliminated.
    """
    centred = log_steps - log_steps.mean(axis=1, keepdims=True)
    place = np.stack([fit_curves(log_batch, log_steps)[0], np.zeros(len(log_steps))], axis=1)
    centres = np.broadcast_to(centres, len(log_steps))
    low = np.array([log_batch[0] - FIT_MARGIN, -_STEEPEST])
    high = np.array([log_batch[-1] + FIT_MARGIN, _STEEPEST])
    damping = np.full(len(log_steps), _START)
    height, gradient, matrix = _descend(log_batch, centred, place, centres)
    rows = np.arange(len(log_steps))  # that still move
    for _ in range(_STEPS):
        damped = matrix[rows] * (1 + damping[rows, None, None] * np.eye(2)) + _FREE * np.eye(2)
        tried = np.clip(place[rows] - np.linalg.solve(damped, gradient[rows, :, None])[..., 0], low, high)
        moved = np.abs(tried - place[rows]).max(axis=1)
        found = _descend(log_batch, centred[rows], tried, centres[rows])
        better = found[0] < height[rows]
        damping[rows] *= np.where(better, _LOOSER, _TIGHTER)
        place[rows[better]] = tried[better]
        for known, new in zip((height, gradient, matrix), found, strict=True):
            known[rows[better]] = new[better]
        rows = rows[moved >= _ACCURACY]
        if not rows.size:
            break
    log_critical, log_sharpness = place.T
    log_least = (log_steps - _shape(log_batch, log_critical, log_sharpness)).mean(axis=1)
    return Bends(log_critical, log_least, log_sharpness)


def resample_bends(log_batch: FloatArray, log_steps: FloatArray) -> Bends:
    """The curves of resampled steps, each under a prior of log a whose centre is drawn from that prior.

    Were the curve linear in its parameters and the noise normal, these would be draws from the posterior: what is not
    known of a is in their spread.
    """
    centres = SPREAD * np.random.default_rng(0).standard_normal(len(log_steps))
    return fit_bends(log_batch, log_steps, centres)


def predict_bends(sizes: FloatArray, bends: Bends) -> FloatArray:
    """Steps of the curves, one in each row, at other batch sizes."""
    shape = _shape(np.log(sizes), bends.log_critical, bends.log_sharpness)
    with np.errstate(over="ignore"):
        steps: FloatArray = np.exp(bends.log_least[:, None] + shape)
    return steps


def _shape(log_batch: FloatArray, log_critical: FloatArray, log_sharpness: FloatArray) -> FloatArray:
    """Log steps over S_min."""
    sharpness = np.exp(log_sharpness)[:, None]
    shape: FloatArray = np.logaddexp(0, sharpness * (log_critical[:, None] - log_batch)) / sharpness
    return shape


def _descend(
    log_batch: FloatArray, centred: FloatArray, place: FloatArray, centres: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """What is to be least, and the gradient and the matrix of the Gauss-Newton step, each of every row."""
    log_critical, log_sharpness = place.T
    shape = _shape(log_batch, log_critical, log_sharpness)
    before = log_critical[:, None] - log_batch
    by_critical = np.exp(np.exp(log_sharpness)[:, None] * (before - shape))
    slopes = np.stack([by_critical, before * by_critical - shape], axis=1)
    slopes -= slopes.mean(axis=2, keepdims=True)
    residual = shape - shape.mean(axis=1, keepdims=True) - centred
    squares = NOISE_WEIGHT * NOISE**2 + (residual**2).sum(axis=1)
    freedom = NOISE_WEIGHT + log_batch.size - 2
    aside = log_sharpness - centres
    pull = squares / freedom / SPREAD**2
    gradient = (slopes @ residual[..., None])[..., 0]
    gradient[:, 1] += pull * aside
    matrix = slopes @ slopes.transpose(0, 2, 1)
    matrix[:, 1, 1] += pull
    return freedom * np.log(squares) + (aside / SPREAD) ** 2, gradient, matrix
