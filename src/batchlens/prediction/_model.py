"""A noisy quadratic with power-law spectra, fitted to the loss curve of one run.

Notation: coordinate i of RANKS has curvature h_i = top * i^-a and holds a share of the initial loss in proportion to
i^-b; the gradient's covariance is proportional to the curvature, with the measured trace; `floor` is the loss that no
training removes, below half the target.  a, b and the floor are fitted, all else is measured.

Early in training the curvature is higher than later, and what momentum can do at large batches is limited by that: one
more coordinate with the early curvature, hardly any loss and no noise, makes rates beyond its stability useless.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import least_squares

from batchlens._arrays import FloatArray
from batchlens.theory.dynamics import risk
from batchlens.theory.problem import NoisyQuadratic
from batchlens.theory.rule import UpdateRule

RANKS, _BINS = 1000, 50
# Coordinates of neighbouring ranks are put together: where each group begins, and how many ranks it has.
_EDGES = np.unique(np.round(np.geomspace(1, RANKS + 1, _BINS)).astype(int))
_STARTS, _COUNTS = _EDGES[:-1] - 1, np.diff(_EDGES).astype(float)
_INDEX = np.arange(1.0, RANKS + 1)
# Which share of the initial loss the early curvature's coordinate has.
_EARLY_SHARE = 1e-3
# What is believed of log a, b and the floor (its log odds in half the target) before the curve is seen: mean, spread.
_BELIEFS = ((0.0, 0.5), (0.8, 0.7), (0.0, 3.0))
_BELIEF_WEIGHT = 0.3
_START = (-0.2, 0.6, -1.0)
_LARGEST_LOSS = 1e6
_EVALUATIONS = 60


@dataclass(frozen=True)
class Reference:
    """A run: its training losses by step, from step 0 on, and the rule that it followed."""

    steps: tuple[int, ...]
    losses: tuple[float, ...]
    batch_size: int
    learning_rate: float
    momentum: float
    target: float  # a training loss

    @property
    def rule(self) -> UpdateRule:
        return UpdateRule(self.learning_rate, self.momentum)


@dataclass(frozen=True)
class Model:
    """The quadratic, by its few numbers; `misfit` is the root mean square of log losses about the curve."""

    top: float
    early: float | None
    variance: float
    curvature_exponent: float
    loss_exponent: float
    floor: float
    start: float
    misfit: float = math.nan

    def problem(self, early: bool = False) -> NoisyQuadratic:
        """The quadratic; with the early curvature's coordinate where that is asked for and known."""
        curvature = self.top * _INDEX**-self.curvature_exponent
        shares = _INDEX**-self.loss_exponent
        h = np.add.reduceat(curvature, _STARTS) / _COUNTS
        loss = (self.start - self.floor) * np.add.reduceat(shares, _STARTS) / shares.sum()
        noise = self.variance * h / (h @ _COUNTS)
        initial, count = 2 * loss / (_COUNTS * h), _COUNTS
        if early and self.early is not None and self.early > self.top:
            h, noise, count = np.append(h, self.early), np.append(noise, 0.0), np.append(count, 1.0)
            initial = np.append(initial, 2 * _EARLY_SHARE * (self.start - self.floor) / self.early)
        return NoisyQuadratic(h, noise, initial, count)

    def losses(self, reference: Reference, steps: Sequence[int]) -> FloatArray:
        """What the model says that a run's losses are."""
        found: FloatArray = self.floor + risk(self.problem(), reference.rule, reference.batch_size, list(steps))
        return np.minimum(found, _LARGEST_LOSS)


def fit_model(
    reference: Reference, top: float, variance: float, early: float | None = None, near: Model | None = None
) -> Model:
    """The model that follows the run's losses most closely; the search starts `near` another one where given."""
    steps, logs = reference.steps[1:], np.log(reference.losses[1:])

    def model_of(numbers: FloatArray) -> Model:
        floor = 0.5 * reference.target / (1 + math.exp(-numbers[2]))
        return Model(top, early, variance, math.exp(numbers[0]), float(numbers[1]), floor, reference.losses[0])

    def away(numbers: FloatArray) -> FloatArray:
        beliefs = [_BELIEF_WEIGHT * (x - mean) / spread for x, (mean, spread) in zip(numbers, _BELIEFS, strict=True)]
        return np.concatenate([np.log(model_of(numbers).losses(reference, steps)) - logs, beliefs])

    start = _START if near is None else _numbers_of(near, reference.target)
    found = least_squares(
        away, start, diff_step=[1e-3] * 3, max_nfev=_EVALUATIONS if near is None else _EVALUATIONS // 6
    )
    misfit = math.sqrt(float(np.mean(found.fun[: len(steps)] ** 2)))
    return replace(model_of(found.x), misfit=misfit)


def _numbers_of(model: Model, target: float) -> tuple[float, float, float]:
    share = min(max(2 * model.floor / target, 1e-6), 1 - 1e-6)
    return math.log(model.curvature_exponent), model.loss_exponent, math.log(share / (1 - share))
