"""All that the report computes, each thing once: the curves of a problem, by optimizer, power and target."""

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import pandas as pd

from batchlens._checks import require_number
from batchlens.report._page.numbers import frame_of, stack
from batchlens.scaling.curve import ScalingCurve
from batchlens.theory._arguments import MAX_STEPS
from batchlens.theory._types import Rounding
from batchlens.theory.batch_schedules import BatchSchedule, optimal_batch_schedule
from batchlens.theory.bounds import lower_bound_steps
from batchlens.theory.problem import NoisyQuadratic
from batchlens.theory.schedules import Schedule, optimal_schedule
from batchlens.theory.tuning import scaling_curve

POWERS = (0.0, 0.25, 0.5, 0.75)
PIECES = 50
BATCH_SIZES = tuple(4**k for k in range(1, 11))


def power_law_problem(dim: int, exponent: float, bins: int, rounding: Rounding) -> NoisyQuadratic:
    """A power law, its spectrum cut into `bins`; 0 leaves it as it is."""
    problem = NoisyQuadratic.power_law(dim, exponent)
    return problem.binned(bins, rounding) if bins else problem


@dataclass(frozen=True, eq=False)
class Study:
    """A noisy quadratic, a target, and the batch sizes and preconditioning powers to look at.

    Curves and schedules are kept once they are computed: figures and claims share them.
    """

    problem: NoisyQuadratic
    target: float
    batch_sizes: tuple[int, ...] = BATCH_SIZES
    powers: tuple[float, ...] = POWERS
    parameters: dict[str, Any] = field(default_factory=dict)
    _curves: dict[Any, ScalingCurve] = field(default_factory=dict, repr=False)
    _schedules: dict[Any, Schedule] = field(default_factory=dict, repr=False)
    _batch_schedules: dict[int, BatchSchedule] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        require_number("target", self.target, low=0, high=self.problem.initial_risk, closed=(False, False))

    @classmethod
    def of_power_law(
        cls,
        dim: int = 10_000,
        exponent: float = 1.0,
        bins: int = 100,
        rounding: Rounding = "down",
        target: float = 0.01,
    ) -> "Study":
        """The paper's problem unless told otherwise; bins 0 leaves the spectrum as it is."""
        problem = power_law_problem(dim, exponent, bins, rounding)
        parameters = {"dim": dim, "exponent": exponent, "bins": bins, "rounding": rounding, "target": target}
        return cls(problem, target, parameters=parameters)

    def curve(
        self, family: str, power: float, target: float | None = None, momentum: float | None = None
    ) -> ScalingCurve:
        """Tuned steps against batch size; the study's own target must be within reach everywhere."""
        key = (family, power, target or self.target, momentum)
        if key not in self._curves:
            curve = scaling_curve(self.problem, family, self.batch_sizes, key[2], power, momentum=momentum)
            if key[2] == self.target and None in curve.steps:
                raise ValueError(f"`target` must be within reach of {MAX_STEPS:,} steps, got {self.target:g}.")
            self._curves[key] = curve
        return self._curves[key]

    def schedule(self, batch_size: int, power: float = 0.0, momentum: Any = 0.0) -> Schedule:
        """The optimal schedule of 50 pieces."""
        key = (batch_size, power, momentum)
        if key not in self._schedules:
            self._schedules[key] = optimal_schedule(
                self.problem, batch_size, self.target, PIECES, momentum=momentum, power=power
            )
        return self._schedules[key]

    @property
    def ramp_sizes(self) -> tuple[int, ...]:
        """The smaller half of the batch sizes, where growing batches matter, and the largest: each takes a second."""
        return (*self.batch_sizes[: len(self.batch_sizes) // 2 + 1], self.batch_sizes[-1])

    def batch_schedule(self, batch_size: int) -> BatchSchedule:
        """Batch sizes and learning rates in 50 pieces, at the examples of the optimal schedule of one batch size."""
        if batch_size not in self._batch_schedules:
            examples = batch_size * self.schedule(batch_size).steps
            self._batch_schedules[batch_size] = optimal_batch_schedule(
                self.problem, target=self.target, examples=examples, pieces=PIECES
            )
        return self._batch_schedules[batch_size]

    @property
    def targets(self) -> list[float]:
        """Targets from ten times as loose to ten times as tight, without those that are met at the start."""
        scaled = [self.target * factor for factor in (10.0, 3.0, 1.0, 0.3, 0.1)]
        return [target for target in scaled if target < self.problem.initial_risk]

    @property
    def description(self) -> dict[str, str]:
        """What the numbers come from, in words."""
        sizes = self.batch_sizes
        return {
            **{name: f"{value}" for name, value in self.parameters.items()},
            "batch sizes": f"{len(sizes)} from {sizes[0]:,} to {sizes[-1]:,}",
            "powers": ", ".join(f"{power:g}" for power in self.powers),
            "pieces of a schedule": str(PIECES),
            "coordinates": f"{self.problem.dim:,.0f} in {self.problem.curvature.size} bins",
            "trace": f"{self.problem.trace:.6g}",
            "initial risk": f"{self.problem.initial_risk:.6g}",
        }

    @cached_property
    def bounds(self) -> pd.DataFrame:
        """Steps of the maximum-likelihood estimate, and of the Bayes bound, which no learner can beat."""
        return frame_of(
            {"optimizer": f"{kind} bound", "power": None, "batch_size": size, "steps": steps}
            for kind in ("mle", "bayes")
            for size in self.batch_sizes
            for steps in [lower_bound_steps(self.problem, size, self.target, kind)]
        )

    def steps(self, *families: str) -> pd.DataFrame:
        """The curves of families at every power, one row for each batch size."""
        return stack([curve_frame(self.curve(name, power)) for name in families for power in self.powers])


def curve_frame(curve: ScalingCurve) -> pd.DataFrame:
    """A curve's batch sizes, steps and settings."""
    return frame_of(
        {
            "optimizer": curve.optimizer,
            "power": curve.power,
            "target": curve.target,
            "batch_size": int(size) if size == int(size) else size,
            "steps": steps,
            **{name: setting.get(name) for name in ("learning_rate", "momentum", "averaging")},
        }
        for size, steps, setting in zip(curve.batch_sizes, curve.steps, curve.settings, strict=True)
    )
