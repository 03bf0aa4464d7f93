"""Learning-rate schedules: the best one for a batch size.

A schedule is piecewise constant; `_course` tells how the best one is found.
"""

from dataclasses import dataclass
from typing import Literal, Self

from batchlens._arrays import FloatArray, IntArray
from batchlens.checks import require_number, require_whole
from batchlens.theory._arguments import MAX_STEPS
from batchlens.theory._course import Course, Plan, make_course
from batchlens.theory.problem import NoisyQuadratic
from batchlens.theory.rule import UpdateRule


@dataclass(frozen=True, eq=False)
class Schedule:
    """Piecewise-constant learning rates, and the risk they end with."""

    learning_rates: FloatArray
    lengths: IntArray
    risk: float
    momentum: float = 0.0
    power: float = 0.0

    @property
    def steps(self) -> int:
        """Steps in all."""
        return int(self.lengths.sum())

    @property
    def rules(self) -> list[UpdateRule]:
        """The rule of every piece, as `risk_path` takes them."""
        return [UpdateRule(rate, self.momentum, power=self.power) for rate in self.learning_rates]

    @classmethod
    def _of(cls, course: Course, plan: Plan) -> Self:
        """What a search has found, as users see it."""
        return cls(plan.learning_rates, plan.lengths, plan.risk, plan.momentum, course.power)


def optimal_schedule(
    problem: NoisyQuadratic,
    batch_size: float,
    target: float,
    pieces: int = 50,
    momentum: float | Literal["tuned"] = 0.0,
    power: float = 0.0,
    max_learning_rate: float | None = None,
) -> Schedule:
    """The piecewise-constant learning rates that reach the target in the fewest steps.

    Arguments:
        problem: what is minimised.
        batch_size: examples a step.
        target: risk to reach at the end.
        pieces: how many, as equal in length as the number of steps allows.
        momentum: a number, or "tuned" to choose it together with the schedule.
        power: preconditioning by H^-power.
        max_learning_rate: cap on every piece.  None is the largest stable constant rate, 2 (1 + momentum) / h_1 in
            preconditioned coordinates, as in the paper.  Short pieces beyond it act like Chebyshev steps.

    >>> problem = NoisyQuadratic.power_law(dim=10_000).binned(100, rounding="down")
    >>> plan = optimal_schedule(problem, batch_size=256, target=0.01)
    >>> plan.steps, plan.lengths.size
    (9148, 50)
    """
    course = make_course(problem, batch_size, pieces, momentum, power, max_learning_rate)
    target = require_number("target", target, low=0, closed=(False, True))
    return Schedule._of(course, course.reach(target, course.solve))


def best_schedule(
    problem: NoisyQuadratic,
    batch_size: float,
    steps: int,
    pieces: int = 50,
    momentum: float | Literal["tuned"] = 0.0,
    power: float = 0.0,
    max_learning_rate: float | None = None,
) -> Schedule:
    """The piecewise-constant learning rates with the least risk after a given number of steps.

    Arguments as for `optimal_schedule`, with the budget fixed instead of the target.

    >>> problem = NoisyQuadratic.power_law(dim=10_000).binned(100, rounding="down")
    >>> capped = best_schedule(problem, batch_size=4**10, steps=50, power=0.5)
    >>> beyond = best_schedule(problem, batch_size=4**10, steps=50, power=0.5, max_learning_rate=100.0)
    >>> round(capped.risk, 3), round(beyond.risk, 5)
    (0.049, 0.00012)
    """
    course = make_course(problem, batch_size, pieces, momentum, power, max_learning_rate)
    plan = course.solve(require_whole("steps", steps, low=1, high=MAX_STEPS))
    return Schedule._of(course, course.exact(plan))
