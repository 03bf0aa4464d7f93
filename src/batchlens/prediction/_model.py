"""A noisy quadratic with power-law spectra, fitted to the loss curve of one run.

Notation: coordinate i of RANKS has curvature h_i = top * i^-a and holds a share of the initial loss in proportion to
i^-b; the gradient's covariance is proportional to the curvature. A part of what it is at the target, `_CONSTANT`, is
the same at every loss, the rest in proportion to the loss; its trace was measured where the run ended.  a and b are
fitted, all else is measured.

Early in training the curvature is higher than later, and rates that are the best later on are beyond its stability: the
run jumps about until the curvature has come down. Those steps, the `delay`, are counted as they were at every rate and
batch size, and the quadratic begins after them.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from scipy.optimize import least_squares

from batchlens._arrays import FloatArray
from batchlens._checks import require_number, require_whole
from batchlens.theory.dynamics import risk
from batchlens.theory.problem import NoisyQuadratic
from batchlens.theory.rule import UpdateRule

RANKS, _BINS = 1000, 50
# Coordinates of neighbouring ranks are put together: where each group begins, and how many ranks it has.
_EDGES = np.unique(np.round(np.geomspace(1, RANKS + 1, _BINS)).astype(int))
_FIRSTS, _COUNTS = _EDGES[:-1] - 1, np.diff(_EDGES).astype(float)
_INDEX = np.arange(1.0, RANKS + 1)
# Which part of the gradients' variance at the target does not follow the loss.
_CONSTANT = 0.4
# What is believed of log a and b before the curve is seen: mean, spread.
_BELIEFS = ((0.0, 0.5), (0.8, 0.7))
_BELIEF_WEIGHT = 0.3
# Losses that are further than this from the curve, in logarithms, count less than their square: at large rates a run
# jumps.
_JUMP = 0.2
# Where the search begins; the lowest of these valleys counts.
_STARTS = ((-0.2, 0.6), (0.3, 1.2), (-0.5, 0.2))
_LARGEST_LOSS = 1e6
# Steps up to this factor away are around another one.
_AROUND = 1.25
_EVALUATIONS = 40
# A curve has gone on beyond its target where a loss is lower than the target by more than this factor.
_BEYOND = 1.15


@dataclass(frozen=True)
class Reference:
    """A run: its training losses by step, from step 0 on, and the rule that it followed."""

    steps: tuple[int, ...]
    losses: tuple[float, ...]
    batch_size: int
    learning_rate: float
    momentum: float
    target: float  # a training loss

    @classmethod
    def of(
        cls,
        loss_curve: Sequence[tuple[int, float]],
        batch_size: int,
        learning_rate: float,
        momentum: float,
        target: float,
    ) -> "Reference":
        """Of losses that go on until the target or beyond, which are checked and cut there."""
        target = require_number("target", target, 0, closed=(False, True))
        points = [tuple(point) for point in loss_curve]
        if len(points) < 2 or any(len(point) != 2 for point in points) or points[0][0] != 0:
            raise ValueError("`loss_curve` must hold (step, loss) pairs, that of step 0 first, and one more at least.")
        steps = tuple(require_whole("loss_curve", step) for step, _ in points)
        if any(later <= earlier for earlier, later in pairwise(steps)):
            raise ValueError("`loss_curve` must have rising steps.")
        losses = tuple(require_number("loss_curve", loss, 0, closed=(False, True)) for _, loss in points)
        below = next((place for place, loss in enumerate(losses) if loss < target / _BEYOND), len(losses) - 1)
        steps, losses = steps[: below + 1], losses[: below + 1]
        if losses[0] <= target:
            raise ValueError(f"`target` must be below the loss at step 0, {losses[0]:g}, got {target:g}.")
        return cls(
            steps,
            losses,
            require_whole("batch_size", batch_size, 1),
            require_number("learning_rate", learning_rate, 0, closed=(False, True)),
            require_number("momentum", momentum, 0, 1, closed=(True, False)),
            target,
        )

    @property
    def rule(self) -> UpdateRule:
        return UpdateRule(self.learning_rate, self.momentum)

    def after(self, delay: int) -> "Reference":
        """The run from a step on; its loss there is smoothed over the steps around it."""
        if not delay:
            return self
        logs, steps = np.log(self.losses), np.array(self.steps)
        around = logs[(steps >= delay / _AROUND) & (steps <= delay * _AROUND)]
        start = float(around.mean()) if around.size else float(np.interp(delay, steps, logs))
        kept = [(step - delay, loss) for step, loss in zip(self.steps, self.losses, strict=True) if step > delay]
        return replace(
            self,
            steps=(0, *(step for step, _ in kept)),
            losses=(math.exp(start), *(loss for _, loss in kept)),
        )


@dataclass(frozen=True)
class Model:
    """The quadratic, by its few numbers; `misfit` is the root mean square of log losses about the curve."""

    top: float
    variance: float
    curvature_exponent: float
    loss_exponent: float
    start: float
    target: float
    delay: int = 0
    constant: float = _CONSTANT
    misfit: float = math.nan

    def problem(self) -> NoisyQuadratic:
        """The quadratic."""
        curvature = self.top * _INDEX**-self.curvature_exponent
        shares = _INDEX**-self.loss_exponent
        h = np.add.reduceat(curvature, _FIRSTS) / _COUNTS
        loss = self.start * np.add.reduceat(shares, _FIRSTS) / shares.sum()
        noise = self.variance * h / (h @ _COUNTS)
        growth = (1 - self.constant) * noise / self.target
        return NoisyQuadratic(h, self.constant * noise, 2 * loss / (_COUNTS * h), _COUNTS, growth)

    def losses(self, reference: Reference, steps: Sequence[int]) -> FloatArray:
        """What the model says that a run's losses are, that many steps after the delay."""
        found: FloatArray = risk(self.problem(), reference.rule, reference.batch_size, list(steps))
        return np.minimum(found, _LARGEST_LOSS)


def fit_model(
    reference: Reference,
    top: float,
    variance: float,
    loss: float,
    delay: int = 0,
    near: Model | None = None,
    constant: float | None = None,
) -> Model:
    """The model that follows the run's losses most closely after a delay; the search starts `near` another one.

    Arguments:
        reference: the run.
        top: its largest curvature.
        variance: of the gradients, at a loss of `loss`.
        constant: which part of the variance at the target does not follow the loss.
    """
    constant = _CONSTANT if constant is None else constant
    variance /= constant + (1 - constant) * loss / reference.target
    later = reference.after(delay)
    steps, logs = later.steps[1:], np.log(later.losses[1:])

    def model_of(numbers: FloatArray) -> Model:
        a, b = math.exp(numbers[0]), float(numbers[1])
        return Model(top, variance, a, b, later.losses[0], later.target, delay, constant)

    def away(numbers: FloatArray) -> FloatArray:
        beliefs = [_BELIEF_WEIGHT * (x - mean) / spread for x, (mean, spread) in zip(numbers, _BELIEFS, strict=True)]
        return np.concatenate([np.log(model_of(numbers).losses(reference, steps)) - logs, beliefs])

    starts = _STARTS if near is None else [(math.log(near.curvature_exponent), near.loss_exponent)]
    most = _EVALUATIONS if near is None else _EVALUATIONS // 4
    found = min(
        (
            least_squares(away, start, diff_step=[1e-3] * 2, max_nfev=most, loss="soft_l1", f_scale=_JUMP)
            for start in starts
        ),
        key=lambda result: float(result.cost),
    )
    misfit = math.sqrt(float(np.mean(found.fun[: len(steps)] ** 2)))
    return replace(model_of(found.x), misfit=misfit)
