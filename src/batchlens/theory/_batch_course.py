"""The search for the best learning rates and batch sizes of a schedule, together.

Noise enters piece j as N / B_j, so that the final risk is R_0 + sum_j g_j / B_j, with g_j what the noise of the piece
comes to at the end at a batch of one.  For given learning rates and examples E = sum_j n_j B_j the best batch sizes are
therefore known: B_j = x sqrt(g_j / n_j), kept between the smallest and the largest allowed, with x such that all
examples are used.  What is left is a function of the learning rates alone, and since the batch sizes are the best ones
its slope is that at fixed batch sizes: the search of `_course` does the rest.
"""

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

import numpy as np

from batchlens._arrays import FloatArray, IntArray
from batchlens.theory._course import Course, Plan
from batchlens.theory._kernels.path import momentum_path, sgd_path
from batchlens.theory._lanes import Lanes, into_lanes
from batchlens.theory._search import excess_of, fewest_steps
from batchlens.theory.bounds import lower_bound_steps
from batchlens.theory.dynamics import risk_path
from batchlens.theory.rule import UpdateRule

# Halvings after which the share of examples is known to rounding.
_HALVINGS = 200
# Batch sizes are looked for up to this one, at which no noise is left; those that stay the same throughout are told
# apart to this part.
_LARGEST, _CLOSE = 2.0**40, 1e-5


@dataclass(frozen=True)
class BatchCourse(Course):
    """All of a schedule but its learning rates, its batch sizes and its length.

    `batch_size` is the largest that a piece may have, `smallest` the smallest, `examples` what may be used in all.
    """

    examples: float = math.inf
    smallest: float = 1.0

    @cached_property
    def lanes(self) -> Lanes:
        return into_lanes(self.problem, self.power, 1.0)

    def risk(self, rates: FloatArray, momentum: float, lengths: IntArray) -> tuple[float, FloatArray]:
        """Final risk at the best batch sizes, and its gradient by the learning rates (and by momentum)."""
        value, slopes, _ = self.follow(rates, momentum, self.batches(rates, momentum, lengths), lengths)
        return value, slopes

    def follow(
        self, rates: FloatArray, momentum: float, batches: FloatArray, lengths: IntArray
    ) -> tuple[float, FloatArray, FloatArray]:
        """Final risk, its gradient by the learning rates (and by momentum), and by every 1 / B."""
        if self.momentum == 0.0:
            return sgd_path(*self.lanes, rates, 1.0 / batches, lengths)
        return momentum_path(*self.lanes, rates, momentum, 1.0 / batches, lengths)

    def batches(self, rates: FloatArray, momentum: float, lengths: IntArray) -> FloatArray:
        """The best batch sizes for given learning rates."""
        _, _, noise = self.follow(rates, momentum, np.ones(lengths.size), lengths)
        with np.errstate(over="ignore", invalid="ignore"):
            shares = np.sqrt(np.maximum(noise, 0.0) / lengths)
        shares = np.where(np.isfinite(shares), shares, 0.0)
        return share_out(shares, lengths, self.examples, min(self.smallest, self._mean(lengths)), self.batch_size)

    def _mean(self, lengths: IntArray) -> float:
        return self.examples / float(lengths.sum())

    def exact(self, plan: Plan) -> Plan:
        """The same plan with its risk from the exact engine."""
        rules = [UpdateRule(rate, plan.momentum, power=self.power) for rate in plan.learning_rates]
        batches = self.batches(plan.learning_rates, plan.momentum, plan.lengths)
        return replace(plan, risk=float(risk_path(self.problem, rules, batches, plan.lengths)[-1]))

    def _starts(self, lengths: IntArray, near: Plan | None) -> list[tuple[FloatArray, float]]:
        """Beside what is near: the best schedule of one batch size throughout, never to be worse."""
        starts = super()._starts(lengths, near) if near is not None and self.momentum == 0.0 else []
        constant = self.constant(min(self._mean(lengths), self.batch_size)).solve(int(lengths.sum()), near)
        return [*starts, (constant.learning_rates, constant.momentum)]

    def constant(self, batch_size: float) -> Course:
        """The same with one batch size throughout."""
        return Course(
            self.problem, batch_size, self.pieces, self.momentum, self.power, self.max_learning_rate, self.unit
        )

    def with_examples(self, examples: float) -> Self:
        """The same with other examples to use."""
        return replace(self, examples=examples)

    def fewest_constant(self, steps: int, target: float, near: Plan) -> float | None:
        """The fewest examples with one batch size throughout, its learning rates as free; None where none does."""
        best, batch = near, self.examples / steps if math.isfinite(self.examples) else 1.0
        low, high = 0.0, batch
        while (best := self.constant(high).solve(steps, best)).risk > target:
            if high >= min(self.batch_size, _LARGEST):
                return None
            low, high = high, min(2 * high, self.batch_size)
        while high / max(low, self.smallest / 2) > 1 + _CLOSE:
            middle = math.sqrt(max(low, self.smallest / 2) * high)
            found = self.constant(middle).solve(steps, best)
            low, high = (low, middle) if found.risk <= target else (middle, high)
        return high * steps

    def fewest_examples(self, steps: int, target: float) -> tuple[Self, Plan] | None:
        """The fewest examples with which some schedule of `steps` steps meets the target; None where none does."""
        largest = min(self.batch_size, _LARGEST)
        if self.constant(largest).solve(steps).risk > target:
            return None
        least = lower_bound_steps(self.problem, 1.0, target, kind="bayes")
        high, most = max(least, steps), math.ceil(steps * largest)
        best = self.with_examples(min(high, most)).solve(steps)
        while best.risk > target:
            if high >= most:
                return None
            high = min(4 * high, most)
            best = self.with_examples(high).solve(steps, best)

        def excess(examples: int) -> float:
            nonlocal best
            found = self.with_examples(examples).solve(steps, best)
            if found.risk <= target:
                best = found
            return excess_of(found.risk, target)

        found = fewest_steps(excess, max(least - 1, 0), int(high), excess_of(best.risk, target))
        course = self.with_examples(found)
        return course, course.exact(best)


def share_out(shares: FloatArray, lengths: IntArray, examples: float, low: float, high: float) -> FloatArray:
    """Batch sizes in proportion to `shares`, between `low` and `high`, that use all examples or as many as they can.

    >>> share_out(np.array([1.0, 3.0]), np.array([10, 10]), 400.0, 1.0, np.inf).round(6).tolist()
    [10.0, 30.0]
    >>> share_out(np.array([1.0, 3.0]), np.array([10, 10]), 400.0, 1.0, 25.0).round(6).tolist()
    [15.0, 25.0]
    """
    if lengths.sum() * high <= examples:
        return np.full(lengths.size, high)
    largest = shares.max()
    shares = np.maximum(shares / largest, 1e-150) if largest > 0 else np.ones(lengths.size)
    least, most = math.log(low) - 1, math.log(min(high, examples)) + 1 - math.log(shares.min())
    for _ in range(_HALVINGS):
        middle = (least + most) / 2
        if lengths @ np.clip(math.exp(middle) * shares, low, high) > examples:
            most = middle
        else:
            least = middle
        if most - least < 1e-15 * abs(middle):
            break
    batches: FloatArray = np.clip(math.exp(least) * shares, low, high)
    return batches
