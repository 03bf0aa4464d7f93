"""Risk and first hits where the noise follows the loss (see `_kernels.following`)."""

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from batchlens._arrays import FloatArray, IntArray
from batchlens.theory._coordinates import preconditioned, weights_at
from batchlens.theory._kernels.following import GROWN, REACHED, first_hit, risks_along
from batchlens.theory._kernels.risks import sum_steady_state
from batchlens.theory._lanes import padded
from batchlens.theory._types import Status
from batchlens.theory.problem import NoisyQuadratic
from batchlens.theory.rule import UpdateRule

# Coordinate-steps that one run may take: a second or two.
_MOST = 5 * 10**8


class Hit(NamedTuple):
    """The first step at or below the target, and where between it and the step before; or why there is none."""

    steps: int | None
    place: float
    status: Status


@dataclass(frozen=True)
class Follower:
    """A problem at a batch size and a power, ready for the kernels."""

    curvature: FloatArray
    start: FloatArray
    noise: FloatArray
    growth: FloatArray

    @classmethod
    def of(cls, problem: NoisyQuadratic, batch_size: float, power: float) -> "Follower":
        """Weights as in `weights_at`; a unit of growth weighs what a unit of noise does."""
        start, noise = weights_at(problem, batch_size)
        growth = 0.5 * problem.count * (problem.noise_growth / problem.curvature) / batch_size
        curvature = preconditioned(problem.curvature, power).astype(np.float64)
        return cls(*map(padded, (curvature, start, noise, growth)))

    @property
    def most_steps(self) -> int:
        """That are taken at the most."""
        return _MOST // self.curvature.size

    @property
    def stiffest(self) -> float:
        return float(self.curvature.max())

    def risks(self, rule: UpdateRule, steps: IntArray) -> FloatArray:
        """After each number of steps."""
        if steps.max() > self.most_steps:
            raise ValueError(
                f"`steps` must be at most {self.most_steps:,} where the noise follows the loss, got {steps.max():,}."
            )
        rising, places = np.unique(steps, return_inverse=True)
        found = risks_along(*self._coordinates(rule), rule.momentum, rule.nesterov, rule.averaging, rising)
        return found[places]

    def hit(self, rule: UpdateRule, target: float, max_steps: int) -> Hit:
        """The first step that does."""
        most = min(max_steps, self.most_steps)
        steps, place, ending = first_hit(
            *self._coordinates(rule), rule.momentum, rule.nesterov, rule.averaging, target, most
        )
        if ending == REACHED:
            return Hit(steps, place, "reached")
        if ending == GROWN:
            return Hit(None, math.inf, "unstable")
        return Hit(None, math.inf, "beyond_max_steps" if most == max_steps else "undecided")

    def steady_state(self, rule: UpdateRule) -> float:
        """Risk after endlessly many steps, inf where the noise feeds itself.

        With N and G what noise and growth come to, the plain weights' loss L solves L = N + G L.
        """
        rates, _, noise, growth = self._coordinates(rule)
        nothing = np.zeros_like(rates)

        def total(weights: FloatArray, averaging: float) -> float:
            found: float = sum_steady_state(rates, nothing, nothing, weights, rule.momentum, rule.nesterov, averaging)
            return found

        feedback = total(growth, 0.0)
        if not feedback < 1.0:
            return math.inf
        loss = total(noise, 0.0) / (1.0 - feedback)
        return total(noise, rule.averaging) + total(growth, rule.averaging) * loss if rule.averaging else loss

    def _coordinates(self, rule: UpdateRule) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
        return rule.learning_rate * self.curvature, self.start, self.noise, self.growth
