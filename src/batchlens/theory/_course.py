"""The search for the best learning rates of a schedule.

A schedule is piecewise constant.  For a fixed number of steps the final risk is smooth in the learning rates; its
minimum comes from scipy's bounded quasi-Newton method with exact gradients (`_kernels.path`), and the number of steps
is the smallest at which that minimum meets the target.

Learning rates range over many decades and may be 0.  Their logarithms would let a piece drift towards 0 and stay there;
plain values would leave the small ones badly scaled.  What is optimised is asinh(learning rate / e), with e a rate at
which nothing moves in a piece: a logarithm above e, and linear below.
"""

import math
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Any

import numpy as np
from scipy.optimize import Bounds, minimize
from threadpoolctl import ThreadpoolController

from batchlens._arrays import FloatArray, IntArray
from batchlens._checks import require_choice, require_instance, require_number, require_whole
from batchlens.theory._arguments import MAX_STEPS, require_batch_size, require_constant_noise
from batchlens.theory._cells import best_constant
from batchlens.theory._kernels.path import momentum_path, sgd_path
from batchlens.theory._kernels.update import rate_limit
from batchlens.theory._lanes import Lanes, into_lanes
from batchlens.theory._search import RESOLUTION, excess_of, fewest_steps
from batchlens.theory._units import rescaled
from batchlens.theory.bounds import lower_bound_steps
from batchlens.theory.dynamics import risk_path
from batchlens.theory.problem import NoisyQuadratic
from batchlens.theory.rule import UpdateRule

# A piece moves nothing if (learning rate) x (largest curvature) x (its steps) is this small.
_STILL = 0.01
# Pieces of at most this number of steps can act like Chebyshev steps.
_SHORT = 4
# Learning rates beyond this many times the stable one help no further.
_MOST_SHARE = 4.0**20
# Momentum is tuned up to 1 - exp(-this).
_MOST_MOMENTUM = 20.0
_QUASI_NEWTON: Any = {"maxiter": 3000, "maxfun": 6000, "maxcor": 20, "ftol": 1e-11, "gtol": 1e-9}


def _single_thread() -> AbstractContextManager[Any]:
    """Inside it linear algebra keeps to one thread: on matrices this small, several only wait for each other."""
    limited: AbstractContextManager[Any] = _threads().limit(limits=1, user_api="blas")
    return limited


@cache
def _threads() -> ThreadpoolController:
    return ThreadpoolController()


@dataclass(frozen=True, eq=False)
class Plan:
    """Learning rates of pieces, the momentum that goes with them, and the risk that they end with."""

    learning_rates: FloatArray
    lengths: IntArray
    risk: float
    momentum: float = 0.0

    @property
    def steps(self) -> int:
        """Steps in all."""
        return int(self.lengths.sum())


def make_course(
    problem: NoisyQuadratic,
    batch_size: float,
    pieces: int,
    momentum: float | str,
    power: float,
    max_learning_rate: float | None,
) -> "Course":
    """Check arguments once for all who plan schedules."""
    require_constant_noise(require_instance("problem", problem, NoisyQuadratic))
    if isinstance(momentum, str):
        require_choice("momentum", momentum, ("tuned",))
        fixed = None
    else:
        fixed = require_number("momentum", momentum, 0, 1, closed=(True, False))
    if max_learning_rate is not None:
        max_learning_rate = require_number("max_learning_rate", max_learning_rate, low=0, closed=(False, True))
    batch_size = require_batch_size(batch_size)
    pieces = require_whole("pieces", pieces, low=1, high=10**6)
    power = require_number("power", power, 0, 1)
    problem, unit = rescaled(problem, power)
    cap = None if max_learning_rate is None else max_learning_rate / unit
    return Course(problem, batch_size, pieces, fixed, power, cap, unit)


@dataclass(frozen=True)
class Course:
    """All of a schedule but its learning rates and its length; momentum None is to be tuned.

    Learning rates are counted in `unit`s.
    """

    problem: NoisyQuadratic
    batch_size: float
    pieces: int
    momentum: float | None
    power: float
    max_learning_rate: float | None
    unit: float = 1.0

    @cached_property
    def lanes(self) -> Lanes:
        return into_lanes(self.problem, self.power, self.batch_size)

    @cached_property
    def stiffest(self) -> float:
        return float(self.lanes[0].max())

    def cap(self, momentum: float) -> float:
        """The largest learning rate that a piece may have."""
        stable = rate_limit(momentum, nesterov=False) / self.stiffest
        return min(self.max_learning_rate or stable, _MOST_SHARE * stable)

    def reach(self, target: float, plan: Callable[[int, Plan | None], Plan]) -> Plan:
        """The schedule with the fewest steps that meets the target; `plan` gives the best of a number of steps."""
        if self.problem.initial_risk <= target:
            return Plan(np.zeros(0), np.zeros(0, np.int64), self.problem.initial_risk)
        low = lower_bound_steps(self.problem, self.batch_size, target, kind="bayes") - 1
        best = plan(min(low + 1, MAX_STEPS), None)
        while best.risk > target:
            if best.steps >= MAX_STEPS:
                raise ValueError(f"`target` must be within reach of {MAX_STEPS:,} steps, got {target:g}.")
            low = best.steps
            best = plan(min(4 * low, MAX_STEPS), best)

        def excess(steps: int) -> float:
            nonlocal best
            found = plan(steps, best)
            if found.risk <= target:
                best = found
            return excess_of(found.risk, target)

        fewest_steps(excess, low, best.steps, excess_of(best.risk, target))
        # Starts nearby may have led astray, or to a better valley in the end: fewer steps count as out of reach only
        # where that one and fresh starts fail.
        while best.steps > 1 and (fewer := _one_fewer(target, plan, best)) is not None:
            best = fewer
        while (confirmed := self.exact(best)).risk > target:  # by a rounding error
            best = plan(best.steps + 1 + int(best.steps * RESOLUTION), best)
        return confirmed

    def _next_cap(self) -> float | None:
        """The next lower cap on a ladder of fours from the default one: what it allows, this one allows too."""
        stable = rate_limit(self.momentum or 0.0, nesterov=False) / self.stiffest
        rungs = math.ceil(math.log(max(self.cap(0.0) / stable, 1.0), 4.0) - 1e-9) - 1
        return stable * 4.0**rungs if rungs > 0 else None

    def solve(self, steps: int, near: Plan | None = None) -> Plan:
        """The schedule of `steps` steps with the least risk, from `near` and other starts, none of them better."""
        lengths = split_evenly(steps, self.pieces)
        found = [self._descend(lengths, *start) for start in self._starts(lengths, near)]
        return min(found, key=lambda plan: plan.risk)

    def exact(self, plan: Plan) -> Plan:
        """The same plan with its risk from the exact engine."""
        rules = [UpdateRule(rate, plan.momentum, power=self.power) for rate in plan.learning_rates]
        return replace(plan, risk=float(risk_path(self.problem, rules, self.batch_size, plan.lengths)[-1]))

    def _starts(self, lengths: IntArray, near: Plan | None) -> list[tuple[FloatArray, float]]:
        """Learning rates and momenta to start from."""
        pieces = lengths.size
        starts = []
        if near is not None:
            places = (np.arange(pieces) + 0.5) / pieces
            known = (np.arange(near.lengths.size) + 0.5) / near.lengths.size
            starts.append((np.interp(places, known, near.learning_rates), near.momentum))
        elif self.momentum == 0.0:
            stable = rate_limit(0.0, nesterov=False) / self.stiffest
            starts.append((min(stable, self.cap(0.0)) * np.linspace(0.9, 0.3, pieces), 0.0))
        if self.momentum != 0.0:
            # Oscillations make many local optima: start from the best constant rule as well, never to be worse.
            steps = int(lengths.sum())
            rule = best_constant(self.problem, "momentum", self.batch_size, steps, self.power, self.momentum)
            starts.append((np.full(pieces, rule.learning_rate), rule.momentum))
        if self.momentum == 0.0 and lengths.max() <= _SHORT:
            starts += [(self._chebyshev(pieces, kappa), 0.0) for kappa in (5.0, 20.0, 50.0, np.inf)]
        if self.max_learning_rate is not None:
            capped = replace(self, max_learning_rate=self._next_cap()).solve(int(lengths.sum()))
            starts.append((capped.learning_rates, capped.momentum))
        return starts

    def _chebyshev(self, pieces: int, kappa: float) -> FloatArray:
        """Learning rates that make short pieces act like Chebyshev steps for curvatures down to 1 / kappa.

        The largest come first: what they amplify, noise included, the others still damp.
        """
        k = self.lanes[0][self.lanes[0] > 0]
        least = max(k.min(), k.max() / kappa)
        nodes = np.cos(np.pi * (np.arange(pieces) + 0.5) / pieces)
        rates = 2.0 / (k.max() + least + (k.max() - least) * nodes)
        return np.sort(rates)[::-1]

    def _descend(self, lengths: IntArray, rates: FloatArray, momentum: float) -> Plan:
        """The local minimum of the risk next to given learning rates and momentum, or those if they are better.

        Near the edge of stability risk may hang on the last bit of a rate, which the search's own coordinates lose.
        """
        rates = np.minimum(rates, self.cap(momentum))
        begun = Plan(rates, lengths, self.risk(rates, momentum, lengths)[0], momentum)
        found = self._minimum(lengths, rates / self.cap(momentum), momentum)
        return begun if begun.risk <= found.risk else found

    def _minimum(self, lengths: IntArray, shares: FloatArray, momentum: float) -> Plan:
        """The local minimum of the risk next to given shares of the cap and momentum."""
        still = _STILL * (1 - momentum) / (self.stiffest * lengths.max() * self.cap(momentum))
        tuned = self.momentum is None

        def unpack(x: FloatArray) -> tuple[FloatArray, float, float]:
            beta = float(-np.expm1(-x[-1])) if tuned else momentum
            return still * np.sinh(x[: lengths.size]), beta, self.cap(beta)

        best: tuple[float, FloatArray] = (np.inf, np.zeros(0))  # a search that runs into divergence ends elsewhere

        def objective(x: FloatArray) -> tuple[float, FloatArray]:
            nonlocal best
            share, beta, cap = unpack(x)
            value, slope = self.risk(cap * share, beta, lengths)
            value = max(value, 1e-300) if math.isfinite(value) else math.inf
            if value < best[0] or not best[1].size:
                best = value, x.copy()
            gradient = np.empty_like(x)
            with np.errstate(over="ignore", invalid="ignore"):
                gradient[: lengths.size] = slope[: lengths.size] * cap * still * np.cosh(x[: lengths.size])
                if tuned:
                    by_cap = 0.0 if self.max_learning_rate else 2.0 / self.stiffest
                    gradient[-1] = (slope[-1] + (slope[:-1] @ share) * by_cap) * (1 - beta)
                gradient /= value
            if value == math.inf or not np.isfinite(gradient).all():
                return 1e3, np.zeros_like(x)
            return math.log(value), gradient

        start = np.arcsinh(np.clip(shares, 0.0, 1.0) / still)
        highest = np.full(lengths.size, np.arcsinh(1.0 / still))
        if tuned:
            start = np.append(start, -np.log1p(-momentum))
            highest = np.append(highest, _MOST_MOMENTUM)
        with _single_thread():
            minimize(
                objective,
                start,
                jac=True,
                method="L-BFGS-B",
                bounds=Bounds(np.zeros_like(highest), highest),
                options=_QUASI_NEWTON,
            )
        share, beta, cap = unpack(best[1])
        return Plan(cap * np.minimum(share, 1.0), lengths, best[0], beta)

    def risk(self, rates: FloatArray, momentum: float, lengths: IntArray) -> tuple[float, FloatArray]:
        """Final risk, and its gradient by the learning rates (and by momentum, where that is not 0)."""
        if self.momentum == 0.0:
            return sgd_path(*self.lanes, rates, np.ones(lengths.size), lengths)[:2]
        return momentum_path(*self.lanes, rates, momentum, np.ones(lengths.size), lengths)[:2]


def _one_fewer(target: float, plan: Callable[[int, Plan | None], Plan], best: Plan) -> Plan | None:
    """A schedule with a step less that meets the target, from near the best one or from fresh starts."""
    found = (plan(best.steps - 1, near) for near in (best, None))
    return next((fewer for fewer in found if fewer.risk <= target), None)


def split_evenly(steps: int, pieces: int) -> IntArray:
    """Lengths that differ by at most one step, no more of them than there are steps.

    >>> split_evenly(10, 4).tolist()
    [2, 3, 2, 3]
    """
    pieces = min(steps, pieces)
    ends = np.arange(1, pieces + 1, dtype=np.int64) * steps // pieces
    return np.diff(ends, prepend=0)
