"""Schedules of batch size and learning rate together: should the batch grow while training?

`_batch_course` tells how the best one is found.  Ready-made ramps are there to be held against it.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from batchlens._arrays import FloatArray
from batchlens._checks import require_choice, require_instance, require_number, require_sequence, require_whole
from batchlens._results import Result, axes_or_new, short
from batchlens.theory._arguments import MAX_STEPS
from batchlens.theory._batch_course import BatchCourse
from batchlens.theory._batch_ramps import RAMPS, tune_ramp
from batchlens.theory._course import Plan, make_course
from batchlens.theory._units import require_rate
from batchlens.theory.bounds import lower_bound_risk, lower_bound_steps
from batchlens.theory.dynamics import risk_path
from batchlens.theory.problem import NoisyQuadratic
from batchlens.theory.rule import UpdateRule
from batchlens.theory.schedules import Schedule

if TYPE_CHECKING:
    import pandas
    from matplotlib.axes import Axes

_Family = Literal["sgd", "momentum"]


@dataclass(frozen=True, eq=False, repr=False)
class BatchSchedule(Schedule):
    """Piecewise-constant learning rates and batch sizes, and the risk they end with.

    Arguments:
        learning_rates: one per piece.
        lengths: steps of each piece.
        risk: expected loss at the end.
        momentum: the same throughout.
        power: preconditioning by H^-power.
        batch_sizes: one per piece; any number above 0, see `rounded`.
        problem: what is minimised.

    >>> problem = NoisyQuadratic.power_law(dim=100)
    >>> best_batch_schedule(problem, "sgd", steps=100, examples=1600, pieces=4)
    <BatchSchedule: 100 steps and 1,600 examples in 4 pieces to risk 0.05171, batch sizes from 6.17 to 16.7, \
learning rates from 2 to 0.209>
    """

    batch_sizes: FloatArray = field(default_factory=lambda: np.zeros(0))
    problem: NoisyQuadratic | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        given = require_sequence("batch_sizes", self.batch_sizes)
        sizes = np.array([require_number("batch_sizes", size, low=0, closed=(False, True)) for size in given])
        if sizes.size != self.lengths.size:
            raise ValueError(f"`batch_sizes` must have {self.lengths.size} entries, one per length, got {sizes.size}.")
        object.__setattr__(self, "batch_sizes", sizes)

    @property
    def examples(self) -> float:
        """Examples in all."""
        return float(self.lengths @ self.batch_sizes)

    @property
    def least_examples(self) -> int:
        """That no learner reaches this risk without."""
        problem = require_instance("problem", self.problem, NoisyQuadratic)
        return lower_bound_steps(problem, 1.0, self.risk, kind="bayes")

    @property
    def headline(self) -> str:
        """Steps, examples, risk, and from where to where batch size and learning rate go."""
        pieces = f"{self.lengths.size} piece{'s' * (self.lengths.size != 1)}"
        words = f"{self.steps:,} steps and {self.examples:,.0f} examples in {pieces} to risk {self.risk:.4g}"
        if self.lengths.size:
            words += f", batch sizes from {self.batch_sizes[0]:.3g} to {self.batch_sizes[-1]:.3g}"
            words += f", learning rates from {self.learning_rates[0]:.3g} to {self.learning_rates[-1]:.3g}"
        return words + (f", momentum {self.momentum:.6g}" if self.momentum else "")

    def to_frame(self) -> "pandas.DataFrame":
        """One row per piece: the step it begins with, its batch size and its learning rate."""
        import pandas

        first = np.cumsum(self.lengths) - self.lengths
        sizes = [short(size) for size in self.batch_sizes.tolist()]
        return pandas.DataFrame({"step": first, "batch_size": sizes, "learning_rate": self.learning_rates})

    def to_csv(self, path: Path | str) -> None:
        """Writes step, batch_size and learning_rate: a row holds from its step on."""
        self.to_frame().to_csv(path, index=False)

    def rounded(self) -> "BatchSchedule":
        """The same with whole batch sizes, at least 1, and the exact risk of those."""
        sizes = np.maximum(np.round(self.batch_sizes), 1.0)
        problem = require_instance("problem", self.problem, NoisyQuadratic)
        risk = float(risk_path(problem, self.rules, sizes, self.lengths)[-1]) if sizes.size else self.risk
        return BatchSchedule(self.learning_rates, self.lengths, risk, self.momentum, self.power, sizes, problem)

    def plot(self, ax: "Axes | None" = None) -> "Axes":
        """Draws batch size and learning rate against step, as staircases on a logarithmic axis each."""
        from batchlens._drawing import BLUE, RED

        ax = axes_or_new(ax)
        rates = ax.twinx()
        ends = np.append(0, np.cumsum(self.lengths))
        ax.stairs(self.batch_sizes, ends, baseline=None, color=BLUE)
        rates.stairs(self.learning_rates, ends, baseline=None, color=RED)
        for one, name, colour in ((ax, "batch size", BLUE), (rates, "learning rate", RED)):
            one.set_yscale("log")
            one.set_ylabel(name, color=colour)
        ax.set_xlabel("step")
        return ax

    def as_document(self) -> dict[str, Any]:
        """As a schedule, with batch sizes, examples, and the bound on these."""
        least = None if self.problem is None else self.least_examples
        added = {"examples": self.examples, "least_examples": least, "batch_sizes": self.batch_sizes.tolist()}
        return super().as_document() | added


def optimal_batch_schedule(
    problem: NoisyQuadratic,
    family: "_Family | UpdateRule" = "sgd",
    *,
    target: float,
    examples: float | None = None,
    steps: int | None = None,
    max_batch: float | None = None,
    min_batch: float = 1.0,
    pieces: int = 50,
    power: float = 0.0,
    max_learning_rate: float | None = None,
) -> BatchSchedule:
    """The batch sizes and learning rates that reach a target in the fewest steps for some examples, or with the fewest
    examples in some steps.

    Both are optimised together, piece by piece, and never do worse than the best schedule of one batch size.

    Arguments:
        problem: what is minimised.
        family: "sgd", "momentum" to tune it along, or an `UpdateRule` whose momentum and power are to be used.
        target: risk to reach at the end.
        examples: that may be used in all; this or `steps`.
        steps: that may be taken.
        max_batch: the largest batch size of a piece; None: any.
        min_batch: the smallest, as far as the examples go.
        pieces: how many, as equal in steps as these allow.
        power: preconditioning by H^-power; a rule has its own.
        max_learning_rate: cap on every piece, as for `optimal_schedule`.

    >>> problem = NoisyQuadratic.power_law(dim=10_000).binned(100, rounding="down")
    >>> plan = optimal_batch_schedule(problem, target=0.01, examples=2_300_000, pieces=20)
    >>> plan.steps < 8_900, bool(plan.batch_sizes[-1] > 2 * plan.batch_sizes[0])
    (True, True)
    """
    course = _course(problem, family, pieces, power, max_learning_rate, min_batch, max_batch)
    target = require_number("target", target, low=0, closed=(False, True))
    if (examples is None) == (steps is None):
        raise ValueError(f"`examples` or `steps` must be given, one of them, got {examples} and {steps}.")
    if steps is not None:
        found = course.fewest_examples(require_whole("steps", steps, low=1, high=MAX_STEPS), target)
        if found is None:
            raise ValueError(f"`steps` must suffice for the target at the largest batch size, got {steps}.")
        return _schedule(problem, *found)
    budget = require_number("examples", examples, low=0, closed=(False, True))
    if lower_bound_risk(problem, budget, kind="bayes") > target:
        least = lower_bound_steps(problem, 1.0, target, kind="bayes")
        raise ValueError(f"`examples` must be at least {least:,}, which no learner can do without, got {budget:,.6g}.")
    course = _limited(course, budget)
    try:
        plan = course.reach(target, course.solve)
    except ValueError:  # beyond the most steps
        raise ValueError(
            f"`examples` must be enough for some schedule to reach the target, got {budget:,.6g}."
        ) from None
    return _schedule(problem, course, plan)


def best_batch_schedule(
    problem: NoisyQuadratic,
    family: "_Family | UpdateRule" = "sgd",
    *,
    steps: int,
    examples: float,
    max_batch: float | None = None,
    min_batch: float = 1.0,
    pieces: int = 50,
    power: float = 0.0,
    max_learning_rate: float | None = None,
) -> BatchSchedule:
    """The batch sizes and learning rates with the least risk after given steps and examples.

    Arguments:
        problem: what is minimised.
        family: "sgd", "momentum" to tune it along, or an `UpdateRule` whose momentum and power are to be used.
        steps: how many in all.
        examples: how many in all.
        max_batch: the largest batch size of a piece; None: any.
        min_batch: the smallest, as far as the examples go.
        pieces: how many, as equal in steps as these allow.
        power: preconditioning by H^-power; a rule has its own.
        max_learning_rate: cap on every piece, as for `optimal_schedule`.

    >>> problem = NoisyQuadratic.power_law(dim=10_000).binned(100, rounding="down")
    >>> best = best_batch_schedule(problem, steps=1000, examples=256_000, pieces=10)
    >>> round(best.risk, 3), round(best.examples)
    (0.365, 256000)
    """
    course = _course(problem, family, pieces, power, max_learning_rate, min_batch, max_batch)
    course = _limited(course, require_number("examples", examples, low=0, closed=(False, True)))
    plan = course.solve(require_whole("steps", steps, low=1, high=MAX_STEPS))
    return _schedule(problem, course, course.exact(plan))


def tune_batch_ramp(
    problem: NoisyQuadratic,
    shape: str,
    *,
    target: float,
    examples: float,
    stages: int = 5,
    momentum: float = 0.0,
    power: float = 0.0,
) -> BatchSchedule:
    """A ready-made ramp of the batch size that reaches a target in the fewest steps for some examples, its first batch
    size and its first learning rate tuned.

    "doubling" doubles the batch and keeps the learning rate; "square_root_decay" (Seesaw) doubles the batch and divides
    the learning rate by sqrt(2), in place of halving it; "constant" changes nothing.  Stages use as many examples each.

    Arguments:
        problem: what is minimised.
        shape: "doubling", "square_root_decay" or "constant".
        target: risk to reach at the end.
        examples: used in all.
        stages: how many batch sizes.
        momentum: the same throughout.
        power: preconditioning by H^-power.

    >>> problem = NoisyQuadratic.power_law(dim=10_000).binned(100, rounding="down")
    >>> ramps = [tune_batch_ramp(problem, shape, target=0.01, examples=7e6).steps for shape in ("constant", "doubling")]
    >>> ramps[1] < ramps[0]
    True
    """
    require_choice("shape", shape, RAMPS)
    target = require_number("target", target, low=0, closed=(False, True))
    budget = require_number("examples", examples, low=0, closed=(False, True))
    stages = require_whole("stages", stages, low=1, high=60)
    momentum = require_number("momentum", momentum, 0, 1, closed=(True, False))
    course = _limited(_course(problem, UpdateRule(0.0, momentum, power=power), stages, 0.0, None, 1.0, None), budget)
    found = tune_ramp(course, shape, stages, target)
    if found is None:
        raise ValueError(f"`examples` must be enough for the ramp to reach the target, got {budget:,.6g}.")
    plan, batches = found
    rules = [UpdateRule(rate * course.unit, momentum, power=power) for rate in plan.learning_rates]
    risk = float(risk_path(problem, rules, batches, plan.lengths)[-1])
    rates = plan.learning_rates * course.unit
    return BatchSchedule(rates, plan.lengths, risk, momentum, course.power, batches, problem)


@dataclass(frozen=True, eq=False, repr=False)
class BatchFrontier(Result):
    """How few examples do for how few steps, with a batch that changes and with one that does not.

    Arguments:
        schedules: the fewest examples for each number of steps.
        constant: the fewest examples with one batch size throughout, its learning rates as free; None: out of reach.
        least_examples: that no learner can do without.
        target: that is reached.

    >>> problem = NoisyQuadratic.power_law(dim=100)
    >>> frontier = batch_frontier(problem, target=0.05, steps=[150, 600], pieces=5)
    >>> saved = frontier.to_frame()["saved"]
    >>> bool((saved >= -1e-6).all()), bool(saved.max() > 0.03)
    (True, True)
    """

    schedules: tuple[BatchSchedule, ...]
    constant: tuple[float | None, ...]
    least_examples: int
    target: float

    @property
    def headline(self) -> str:
        """From where to where it goes."""
        ends = [f"{one.steps:,} steps with {one.examples:,.0f} examples" for one in self.schedules]
        words = f"{ends[0]} to {ends[-1]}" if len(ends) > 1 else ends[0]
        return f"{words}, at least {self.least_examples:,} examples"

    def to_frame(self) -> "pandas.DataFrame":
        """One row per number of steps: examples, those of one batch size, and which part of these is saved."""
        import pandas

        frame = pandas.DataFrame(
            {
                "steps": [one.steps for one in self.schedules],
                "examples": [one.examples for one in self.schedules],
                "constant_examples": self.constant,
                "least_examples": self.least_examples,
            }
        )
        frame["saved"] = 1 - frame["examples"] / frame["constant_examples"].astype(float)
        return frame

    def plot(self, ax: "Axes | None" = None) -> "Axes":
        """Examples against steps, with the bound that no learner beats."""
        from batchlens._drawing import BLUE, RED

        ax = axes_or_new(ax)
        steps = [one.steps for one in self.schedules]
        kept = [(count, examples) for count, examples in zip(steps, self.constant, strict=True) if examples is not None]
        ax.plot(
            [count for count, _ in kept], [examples for _, examples in kept], "s--", color=RED, label="one batch size"
        )
        ax.plot(steps, [one.examples for one in self.schedules], "o-", color=BLUE, label="batch sizes optimised")
        ax.axhline(self.least_examples, linestyle=":", color="0.4", label="no learner needs fewer")
        ax.set_xscale("log")
        ax.set_yscale("log")
        ax.set_xlabel("steps to target")
        ax.set_ylabel("examples to target")
        ax.grid(True, alpha=0.2)
        ax.legend()
        return ax

    def as_document(self) -> dict[str, Any]:
        """Points of the front, with their schedules."""
        points = [
            {**one.as_document(), "constant_examples": constant}
            for one, constant in zip(self.schedules, self.constant, strict=True)
        ]
        return {"target": self.target, "least_examples": self.least_examples, "points": points}


def batch_frontier(
    problem: NoisyQuadratic,
    family: "_Family | UpdateRule" = "sgd",
    *,
    target: float,
    steps: Sequence[int],
    max_batch: float | None = None,
    min_batch: float = 1.0,
    pieces: int = 50,
    power: float = 0.0,
) -> BatchFrontier:
    """The fewest examples that reach a target, for each of several numbers of steps: a Pareto front.

    Arguments:
        problem: what is minimised.
        family: "sgd", "momentum" to tune it along, or an `UpdateRule` whose momentum and power are to be used.
        target: risk to reach at the end.
        steps: several numbers of them.
        max_batch: the largest batch size of a piece; None: any.
        min_batch: the smallest, as far as the examples go.
        pieces: how many, as equal in steps as these allow.
        power: preconditioning by H^-power; a rule has its own.

    >>> problem = NoisyQuadratic.power_law(dim=100)
    >>> [one.steps for one in batch_frontier(problem, target=0.05, steps=[100, 200], pieces=3).schedules]
    [100, 200]
    """
    course = _course(problem, family, pieces, power, None, min_batch, max_batch)
    target = require_number("target", target, low=0, closed=(False, True))
    counts = sorted(
        {require_whole("steps", count, low=1, high=MAX_STEPS) for count in require_sequence("steps", steps)}
    )
    if not counts:
        raise ValueError("`steps` must have at least one entry, got none.")
    schedules: list[BatchSchedule] = []
    constant: list[float | None] = []
    for count in counts:
        found = course.fewest_examples(count, target)
        if found is None:
            raise ValueError(f"`steps` must suffice for the target at the largest batch size, got {count}.")
        schedules.append(_schedule(problem, *found))
        constant.append(course.fewest_constant(count, target, found[1]))
    least = lower_bound_steps(problem, 1.0, target, kind="bayes")
    return BatchFrontier(tuple(schedules), tuple(constant), least, target)


def _course(
    problem: NoisyQuadratic,
    family: "_Family | UpdateRule",
    pieces: int,
    power: float,
    max_learning_rate: float | None,
    min_batch: float,
    max_batch: float | None,
) -> BatchCourse:
    """Arguments checked; examples are still to be said."""
    momentum: float | str
    if isinstance(family, UpdateRule):
        if power:
            raise ValueError(f"`power` must be left out where a rule is given, which has its own, got {power}.")
        if family.nesterov or family.averaging:
            raise ValueError(f"`family` must be a rule without nesterov and averaging, got {family.family}.")
        momentum, power = family.momentum, family.power
    else:
        momentum = 0.0 if require_choice("family", family, ("sgd", "momentum")) == "sgd" else "tuned"
    smallest = require_number("min_batch", min_batch, low=0, closed=(False, True))
    largest = math.inf if max_batch is None else require_number("max_batch", max_batch, low=smallest)
    made = make_course(problem, 1.0, pieces, momentum, power, max_learning_rate)
    return BatchCourse(
        made.problem, largest, made.pieces, made.momentum, made.power, made.max_learning_rate, made.unit,
        smallest=smallest,
    )  # fmt: skip


def _limited(course: BatchCourse, examples: float) -> BatchCourse:
    """With examples to use, and no batch larger than them."""
    return BatchCourse(
        course.problem, min(course.batch_size, examples), course.pieces, course.momentum, course.power,
        course.max_learning_rate, course.unit, examples, min(course.smallest, examples),
    )  # fmt: skip


def _schedule(problem: NoisyQuadratic, course: BatchCourse, plan: Plan) -> BatchSchedule:
    """What a search has found, as users see it."""
    require_rate(float(plan.learning_rates.max(initial=0.0)) * course.unit)
    batches = course.batches(plan.learning_rates, plan.momentum, plan.lengths) if plan.lengths.size else np.zeros(0)
    rates = plan.learning_rates * course.unit
    return BatchSchedule(rates, plan.lengths, plan.risk, plan.momentum, course.power, batches, problem)
