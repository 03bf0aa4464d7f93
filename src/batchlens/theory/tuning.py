"""The best update rule for a batch size: the fewest steps to a target, or the least risk on a budget.

The steps that a rule takes jump as its parameters change, so they are not what is minimised.  For a fixed number of
steps t the risk is smooth in the parameters; its least value falls as t grows, and the answer is the smallest t at
which it meets the target.  The minimum over the parameters is made global by a grid over all rules that can matter at
t steps, from whose best basins a simplex descends (see `_kernels.quick`).  Where the noise follows the loss, runs are
followed step by step instead (see `_tune_following`).
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from batchlens._arrays import FloatArray
from batchlens._checks import require_choice, require_instance, require_number, require_sequence, require_whole
from batchlens._results import Result, axes_or_new
from batchlens.optimizers import FAMILIES
from batchlens.scaling.curve import ScalingCurve
from batchlens.theory._arguments import MAX_STEPS, require_batch_size, require_constant_noise
from batchlens.theory._cells import FREE, Cell, best_at, limits
from batchlens.theory._following import Follower
from batchlens.theory._showing import describe, one_row, settings_of
from batchlens.theory._tune_cell import tune_cell
from batchlens.theory._tune_following import Search, tune_following
from batchlens.theory._types import Status
from batchlens.theory._units import require_rate, rescaled
from batchlens.theory.bounds import lower_bound_steps
from batchlens.theory.dynamics import risk, risk_terms
from batchlens.theory.hitting import hitting_time
from batchlens.theory.problem import NoisyQuadratic
from batchlens.theory.rule import UpdateRule

if TYPE_CHECKING:
    import pandas
    from matplotlib.axes import Axes


# Step counts at which a plot shows the risk.
_MOMENTS = 100


@dataclass(frozen=True, repr=False)
class Tuned(Result):
    """The best rule found, and how it does.

    Arguments:
        rule: None where the target is beyond reach.
        steps: to the target; None where it is beyond reach.
        status: "reached" or "beyond_max_steps".
        limits: at which edges of the search the optimum lies: "stability" (a larger learning rate would diverge),
            "momentum" and "averaging" (0 is best).
        problem: what was minimised.
        batch_size: examples per step.
        target: the risk that was to be reached.

    >>> tune(NoisyQuadratic.power_law(dim=100), "sgd", batch_size=16, target=0.1)
    <Tuned: 124 steps to the target by sgd, learning rate 0.7256>
    """

    rule: UpdateRule | None
    steps: int | None
    status: Status
    limits: tuple[str, ...] = ()
    problem: NoisyQuadratic | None = field(default=None, compare=False)
    batch_size: float | None = None
    target: float | None = None

    @property
    def headline(self) -> str:
        """The steps and the rule, in one line."""
        if self.rule is None or self.steps is None:
            return f"no rule found: {self.status}"
        return f"{self.steps:,} steps to the target by {describe(self.rule)}{_at_limits(self.limits)}"

    def to_frame(self) -> "pandas.DataFrame":
        """One row, with what `as_document` says."""
        return one_row(self.as_document())

    def plot(self, ax: "Axes | None" = None) -> "Axes":
        """Risk against steps by the rule found, with the target; without a rule, the words alone."""
        return _draw(axes_or_new(ax), self, self.target)

    def as_document(self) -> dict[str, Any]:
        """Steps, settings, status and limits."""
        return {"steps": self.steps, **settings_of(self.rule), "status": self.status, "limits": list(self.limits)}


@dataclass(frozen=True, repr=False)
class BestRisk(Result):
    """The rule with the least risk after a given number of steps.

    Arguments:
        rule: the best one found.
        risk: what it ends with.
        steps: after which.
        limits: at which edges of the search it lies, as for `Tuned`.
        problem: what was minimised.
        batch_size: examples per step.

    >>> best_risk(NoisyQuadratic.power_law(dim=100), "sgd", batch_size=16, steps=100)
    <BestRisk: risk 0.1187 after 100 steps by sgd, learning rate 0.812>
    """

    rule: UpdateRule
    risk: float
    steps: int
    limits: tuple[str, ...] = ()
    problem: NoisyQuadratic | None = field(default=None, compare=False)
    batch_size: float | None = None

    @property
    def headline(self) -> str:
        """The risk and the rule, in one line."""
        done = f"risk {self.risk:.4g} after {self.steps:,} steps"
        return f"{done} by {describe(self.rule)}{_at_limits(self.limits)}"

    def to_frame(self) -> "pandas.DataFrame":
        """One row, with what `as_document` says."""
        return one_row(self.as_document())

    def plot(self, ax: "Axes | None" = None) -> "Axes":
        """Risk against steps by the rule found."""
        return _draw(axes_or_new(ax), self, self.risk)

    def as_document(self) -> dict[str, Any]:
        """Steps, risk, settings and limits."""
        return {"steps": self.steps, "risk": self.risk, **settings_of(self.rule), "limits": list(self.limits)}


def _draw(ax: "Axes", found: Tuned | BestRisk, level: float | None) -> "Axes":
    """Risk up to twice the steps, and the level that is reached in them."""
    if found.rule is not None and found.steps and found.problem is not None and found.batch_size is not None:
        steps = np.unique(np.geomspace(1, 2 * found.steps, _MOMENTS).astype(np.int64))
        risk_terms(found.problem, found.rule, found.batch_size, [0, *steps.tolist()]).plot(ax)
        ax.axvline(found.steps, linestyle="--", linewidth=1.0, color="0.4")
    if level is not None:
        ax.axhline(level, linestyle="--", linewidth=1.0, color="0.4")
    ax.set_title(found.headline, fontsize="medium", wrap=True)
    return ax


def _at_limits(limits: tuple[str, ...]) -> str:
    return f", at the edge of {' and '.join(limits)}" if limits else ""


def tune(
    problem: NoisyQuadratic,
    family: str,
    batch_size: float,
    target: float,
    power: float = 0.0,
    max_steps: int = MAX_STEPS,
    momentum: float | None = None,
) -> Tuned:
    """The stable rule of a family that reaches the target in the fewest steps.

    Every parameter is tuned continuously and globally: learning rate, momentum and averaging, each where the family
    has it.  A family never needs more steps than one that it contains.

    Arguments:
        problem: what is minimised.
        family: "sgd", "momentum", "nesterov", "sgd+ema" or "momentum+ema".
        batch_size: examples per step.
        target: risk to reach.
        power: preconditioning by H^-power.
        max_steps: give up beyond.
        momentum: a value to keep, for families that have it; None tunes it.

    >>> problem = NoisyQuadratic.power_law(dim=10_000).binned(100, rounding="down")
    >>> best = tune(problem, "momentum", batch_size=256, target=0.01)
    >>> best.steps, round(best.rule.momentum, 5)
    (20081, 0.99952)
    """
    (cell, unit), target = _check(problem, family, batch_size, power, momentum), _check_target(target)
    max_steps = require_whole("max_steps", max_steps, low=1, high=2**61)
    asked = problem, batch_size, target
    if problem.initial_risk <= target:
        return Tuned(UpdateRule(0.0, power=cell.power), 0, "reached", (), *asked)
    if problem.noise_follows_loss:
        return _tune_following(cell, unit, target, max_steps, asked)
    least = lower_bound_steps(problem, cell.batch_size, target, kind="bayes") - 1
    found = tune_cell(cell, target, least, max_steps)
    if found is None:
        return Tuned(None, None, "beyond_max_steps", (), *asked)
    steps, point = found
    return Tuned(_in_units(cell.rule(point), unit), steps, "reached", limits(cell, point), *asked)


def _tune_following(
    cell: Cell, unit: float, target: float, max_steps: int, asked: tuple[NoisyQuadratic, float, float]
) -> Tuned:
    """`tune` step by step."""
    follower = Follower.of(cell.problem, cell.batch_size, cell.power)
    guess = partial(_guess, cell, target, max_steps)
    found = tune_following(Search(follower, cell.family, cell.power, target, max_steps, cell.momentum, guess))
    if found.point is None:
        return Tuned(None, None, "beyond_max_steps", (), *asked)
    rule = _in_units(found.rule(found.point), unit)
    return Tuned(rule, math.ceil(found.best), "reached", limits(cell, found.point), *asked)


def _guess(cell: Cell, target: float, max_steps: int, family: str) -> FloatArray | None:
    """The best point of a family where the noise stays what it is at the target."""
    problem = cell.problem
    noise = problem.noise + target * problem.noise_growth
    steady = NoisyQuadratic(problem.curvature, noise, problem.initial, problem.count)
    least = lower_bound_steps(steady, cell.batch_size, target, kind="bayes") - 1
    found = tune_cell(replace(cell, problem=steady, family=family), target, least, max_steps)
    return None if found is None else found[1]


def scaling_curve(
    problem: NoisyQuadratic,
    family: str | UpdateRule,
    batch_sizes: Sequence[float],
    target: float,
    power: float = 0.0,
    max_steps: int = MAX_STEPS,
    momentum: float | None = None,
    progress: Callable[[int, int, str], None] | None = None,
) -> ScalingCurve:
    """Steps to the target against batch size: of a family tuned at every one, or of one rule throughout.

    Arguments:
        problem: what is minimised.
        family: "sgd", "momentum", "nesterov", "sgd+ema" or "momentum+ema"; or an `UpdateRule`, to be used as it is.
        batch_sizes: above 0, rising.
        target: risk to reach.
        power: preconditioning by H^-power; a rule has its own.
        max_steps: give up beyond.
        momentum: a value to keep, for families that have it; None tunes it.
        progress: told after each batch size how many are done, of how many, and which was the last.

    >>> problem = NoisyQuadratic.power_law(dim=10_000).binned(100, rounding="down")
    >>> curve = scaling_curve(problem, "momentum", batch_sizes=[4**k for k in range(1, 11)], target=0.01)
    >>> curve.steps[-3:], curve.statuses[-1]
    ((182, 159, 152), 'reached')
    >>> print(curve.critical_batch_size())
    33,067
    >>> scaling_curve(problem, UpdateRule(0.001, momentum=0.9), batch_sizes=[64, 256], target=0.01).steps
    (1392611, 1381313)
    """
    batch_sizes = require_sequence("batch_sizes", batch_sizes)
    found = []
    name = family.family if isinstance(family, UpdateRule) else family
    for size in batch_sizes:
        if isinstance(family, UpdateRule):
            found.append(_follow(problem, family, size, target, power, max_steps, momentum))
        else:
            found.append(tune(problem, family, size, target, power, max_steps, momentum))
        if progress is not None:
            progress(len(found), len(batch_sizes), f"{name}, batch size {size:g}")
    return ScalingCurve(
        batch_sizes,
        [best.steps for best in found],
        [{} if best.rule is None else settings_of(best.rule) for best in found],
        name,
        family.power if isinstance(family, UpdateRule) else power,
        target,
        [best.status for best in found],
        [best.limits for best in found],
    )


def _follow(
    problem: NoisyQuadratic,
    rule: UpdateRule,
    batch_size: float,
    target: float,
    power: float,
    max_steps: int,
    momentum: float | None,
) -> Tuned:
    """How a rule does that is not tuned."""
    for name, value in (("power", power or None), ("momentum", momentum)):
        if value is not None:
            raise ValueError(f"`{name}` must be left out where a rule is given, which has its own, got {value}.")
    steps, status = hitting_time(problem, rule, batch_size, target, max_steps)
    return Tuned(rule, steps, status, (), problem, batch_size, target)


def best_risk(
    problem: NoisyQuadratic,
    family: str,
    batch_size: float,
    examples: float | None = None,
    steps: int | None = None,
    power: float = 0.0,
    momentum: float | None = None,
) -> BestRisk:
    """The rule of a family with the least risk on a budget of examples, or of steps.

    Arguments:
        problem: what is minimised.
        family: "sgd", "momentum", "nesterov", "sgd+ema" or "momentum+ema".
        batch_size: examples per step.
        examples: how many in all; this or `steps`.
        steps: how many.
        power: preconditioning by H^-power.
        momentum: a value to keep, for families that have it; None tunes it.

    >>> problem = NoisyQuadratic.power_law(dim=10_000).binned(100, rounding="down")
    >>> best = best_risk(problem, "momentum", batch_size=256, examples=1_000_000)
    >>> best.steps, round(best.risk, 4)
    (3906, 0.0395)
    """
    cell, unit = _check(problem, family, batch_size, power, momentum)
    require_constant_noise(problem)
    if (examples is None) == (steps is None):
        raise ValueError(f"`examples` or `steps` must be given, one of them, got {examples} and {steps}.")
    if examples is not None:
        budget = require_number("examples", examples, low=cell.batch_size)
        steps = int(budget // cell.batch_size)
    steps = require_whole("steps", steps, low=1)
    best = best_at(cell, steps)
    rule = _in_units(cell.rule(best.point), unit)
    return BestRisk(rule, risk(problem, rule, batch_size, steps), steps, limits(cell, best.point), problem, batch_size)


def _check(
    problem: NoisyQuadratic, family: str, batch_size: float, power: float, momentum: float | None
) -> tuple[Cell, float]:
    """The cell to search, and the learning rate that 1 stands for in it."""
    require_instance("problem", problem, NoisyQuadratic)
    require_choice("family", family, FAMILIES)
    batch_size = require_batch_size(batch_size)
    power = require_number("power", power, 0, 1)
    if momentum is not None:
        if not FREE[family][1]:
            raise ValueError(f"`momentum` must be left out for {family}, got {momentum}.")
        momentum = require_number("momentum", momentum, 0, 1, closed=(True, False))
    problem, unit = rescaled(problem, power)
    return Cell(problem, family, batch_size, power, momentum), unit


def _in_units(rule: UpdateRule, unit: float) -> UpdateRule:
    return replace(rule, learning_rate=require_rate(rule.learning_rate * unit)) if unit != 1.0 else rule


def _check_target(target: float) -> float:
    return require_number("target", target, low=0, closed=(False, True))
