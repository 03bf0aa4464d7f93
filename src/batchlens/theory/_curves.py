"""Several curves at once, as the command line and the explorer ask for them."""

import math
from collections.abc import Callable, Sequence

from batchlens.scaling.curve import ScalingCurve
from batchlens.theory.problem import NoisyQuadratic
from batchlens.theory.rule import UpdateRule
from batchlens.theory.tuning import scaling_curve

Progress = Callable[[int, int, str], None]


def require_batch_sizes(sizes: Sequence[float]) -> list[float]:
    """Batch sizes in rising order, each once."""
    for size in sizes:
        if not 0 < size < math.inf:
            raise ValueError(f"`batch_sizes` must be finite and above 0, got {size:g}.")
    return sorted(set(sizes))


def scaling_curves(
    problem: NoisyQuadratic,
    rules: Sequence[tuple[str | UpdateRule, float]],
    batch_sizes: Sequence[float],
    target: float,
    progress: Progress,
) -> list[ScalingCurve]:
    """A curve for each rule or family with its power; a target that no tuned family reaches is refused.

    >>> problem = NoisyQuadratic.power_law(dim=100)
    >>> [curve.steps for curve in scaling_curves(problem, [("sgd", 0.0)], [64, 16], 0.1, lambda *_: None)]
    [(124, 51)]
    """
    sizes = require_batch_sizes(batch_sizes)
    curves: list[ScalingCurve] = []

    def advance(done: int, _: int, what: str) -> None:
        progress(len(curves) * len(sizes) + done, len(rules) * len(sizes), what)

    for rule, power in rules:
        curves.append(scaling_curve(problem, rule, sizes, target, power, progress=advance))
    refuse_out_of_reach(curves, target, tuned=any(isinstance(rule, str) for rule, _ in rules))
    return curves


def refuse_out_of_reach(curves: Sequence[ScalingCurve], target: float, tuned: bool = True) -> None:
    """A target that no tuned curve reaches is a mistake; that a given rule misses it is an answer."""
    if tuned and all(steps is None for curve in curves for steps in curve.steps):
        raise ValueError(f"`target` must be within reach of 1e12 steps, got {target:g}.")
