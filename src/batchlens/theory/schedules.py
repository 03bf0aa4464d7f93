"""Learning-rate schedules: the best one for a batch size.

A schedule is piecewise constant; `_course` tells how the best one is found.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np

from batchlens._arrays import FloatArray, IntArray
from batchlens._checks import require_number, require_sequence, require_vector, require_whole
from batchlens._results import Result, axes_or_new
from batchlens.theory._arguments import MAX_STEPS
from batchlens.theory._course import Course, Plan, make_course
from batchlens.theory._units import require_rate
from batchlens.theory.problem import NoisyQuadratic
from batchlens.theory.rule import UpdateRule

if TYPE_CHECKING:
    import pandas
    from matplotlib.axes import Axes


@dataclass(frozen=True, eq=False, repr=False)
class Schedule(Result):
    """Piecewise-constant learning rates, and the risk they end with.

    Arguments:
        learning_rates: one per piece.
        lengths: steps of each piece.
        risk: expected loss at the end.
        momentum: the same throughout.
        power: preconditioning by H^-power.

    >>> best_schedule(NoisyQuadratic.power_law(dim=100), batch_size=16, steps=100, pieces=4)
    <Schedule: 100 steps in 4 pieces to risk 0.05634, learning rates from 2 to 0.212>
    """

    learning_rates: FloatArray
    lengths: IntArray
    risk: float
    momentum: float = 0.0
    power: float = 0.0

    def __post_init__(self) -> None:
        rates = require_vector("learning_rates", self.learning_rates)
        if rates.min(initial=0.0) < 0:
            raise ValueError(f"`learning_rates` must be at least 0, got {rates.min():g}.")
        lengths = np.array([require_whole("lengths", length) for length in require_sequence("lengths", self.lengths)])
        if lengths.size != rates.size:
            raise ValueError(f"`lengths` must have {rates.size} entries, one per learning rate, got {lengths.size}.")
        if self.risk != self.risk:
            raise ValueError("`risk` must be a number, got nan.")
        risk = math.inf if self.risk == math.inf else require_number("risk", self.risk, low=0)
        object.__setattr__(self, "risk", risk)
        checked = {
            "learning_rates": rates,
            "lengths": lengths.astype(np.int64),
            "momentum": require_number("momentum", self.momentum, 0, 1, closed=(True, False)),
            "power": require_number("power", self.power, 0, 1),
        }
        for name, value in checked.items():
            object.__setattr__(self, name, value)

    @property
    def steps(self) -> int:
        """Steps in all."""
        return int(self.lengths.sum())

    @property
    def rules(self) -> list[UpdateRule]:
        """The rule of every piece, as `risk_path` takes them."""
        return [UpdateRule(rate, self.momentum, power=self.power) for rate in self.learning_rates]

    @property
    def headline(self) -> str:
        words = f"{self.steps:,} steps in {self.lengths.size} pieces to risk {self.risk:.4g}"
        if self.lengths.size:
            words += f", learning rates from {self.learning_rates[0]:.3g} to {self.learning_rates[-1]:.3g}"
        return words + (f", momentum {self.momentum:.6g}" if self.momentum else "")

    def to_frame(self) -> "pandas.DataFrame":
        """One row per piece: its first step, its length and its learning rate."""
        import pandas

        first = np.cumsum(self.lengths) - self.lengths
        return pandas.DataFrame({"first_step": first, "length": self.lengths, "learning_rate": self.learning_rates})

    def plot(self, ax: "Axes | None" = None) -> "Axes":
        """Draws learning rate against step as a staircase."""
        ax = axes_or_new(ax)
        if self.lengths.size:
            ax.stairs(self.learning_rates, np.append(0, np.cumsum(self.lengths)), baseline=None)
        ax.set_yscale("log")
        ax.set_xlabel("step")
        ax.set_ylabel("learning rate")
        return ax

    def as_document(self) -> dict[str, Any]:
        return {
            "steps": self.steps,
            "risk": self.risk,
            "lengths": self.lengths.tolist(),
            "learning_rates": self.learning_rates.tolist(),
            "momentum": self.momentum,
        }

    @classmethod
    def _of(cls, course: Course, plan: Plan) -> Self:
        """What a search has found, as users see it."""
        require_rate(float(plan.learning_rates.max(initial=0.0)) * course.unit)
        return cls(plan.learning_rates * course.unit, plan.lengths, plan.risk, plan.momentum, course.power)


def optimal_schedule(
    problem: NoisyQuadratic,
    batch_size: float,
    target: float,
    pieces: int = 50,
    momentum: float | Literal["tuned"] = 0.0,
    power: float = 0.0,
    max_learning_rate: float | None = None,
    progress: Callable[[int, float], None] | None = None,
) -> Schedule:
    """The piecewise-constant learning rates that reach the target in the fewest steps.

    Arguments:
        problem: what is minimised.
        batch_size: examples per step.
        target: risk to reach at the end.
        pieces: how many, as equal in length as the number of steps allows.
        momentum: a number, or "tuned" to choose it together with the schedule.
        power: preconditioning by H^-power.
        max_learning_rate: cap on every piece.  None is the largest stable constant rate, 2 (1 + momentum) / h_1 in
            preconditioned coordinates, as in the paper.  Short pieces beyond it act like Chebyshev steps.
        progress: told each number of steps that is tried, with the least risk found for it.

    >>> problem = NoisyQuadratic.power_law(dim=10_000).binned(100, rounding="down")
    >>> plan = optimal_schedule(problem, batch_size=256, target=0.01)
    >>> plan.steps, plan.lengths.size
    (9148, 50)
    """
    course = make_course(problem, batch_size, pieces, momentum, power, max_learning_rate)
    target = require_number("target", target, low=0, closed=(False, True))

    def plan(steps: int, near: Plan | None) -> Plan:
        found = course.solve(steps, near)
        if progress is not None:
            progress(steps, found.risk)
        return found

    return Schedule._of(course, course.reach(target, plan))


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

    Arguments:
        problem: what is minimised.
        batch_size: examples per step.
        steps: how many in all.
        pieces: how many, as equal in length as the number of steps allows.
        momentum: a number, or "tuned" to choose it together with the schedule.
        power: preconditioning by H^-power.
        max_learning_rate: cap on every piece, as for `optimal_schedule`.

    >>> problem = NoisyQuadratic.power_law(dim=10_000).binned(100, rounding="down")
    >>> capped = best_schedule(problem, batch_size=4**10, steps=50, power=0.5)
    >>> beyond = best_schedule(problem, batch_size=4**10, steps=50, power=0.5, max_learning_rate=100.0)
    >>> round(capped.risk, 3), round(beyond.risk, 5)
    (0.049, 0.00012)
    """
    course = make_course(problem, batch_size, pieces, momentum, power, max_learning_rate)
    plan = course.solve(require_whole("steps", steps, low=1, high=MAX_STEPS))
    return Schedule._of(course, course.exact(plan))
