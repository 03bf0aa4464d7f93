"""Learning-rate schedules: plain functions of the step that say which part of the learning rate is used."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from batchlens.checks import require_choice


def constant(step: int) -> float:
    """The same learning rate throughout.

    >>> constant(7)
    1.0
    """
    return 1.0


def linear_decay(step: int, final_fraction: float, decay_steps: float) -> float:
    """Down in a straight line to `final_fraction` at `decay_steps`, then constant (appendix F of the paper, mended).

    >>> [round(linear_decay(step, final_fraction=0.2, decay_steps=10), 12) for step in (0, 5, 10, 20)]
    [1.0, 0.6, 0.2, 0.2]
    """
    return final_fraction + (1.0 - final_fraction) * (1.0 - min(step / decay_steps, 1.0))


def cosine(step: int, total_steps: float, final_fraction: float) -> float:
    """Down along half a cosine to `final_fraction` at `total_steps`.

    >>> round(cosine(50, total_steps=100, final_fraction=0.0), 12)
    0.5
    """
    progress = min(step / total_steps, 1.0)
    return final_fraction + (1.0 - final_fraction) * 0.5 * (1.0 + math.cos(math.pi * progress))


def warmup_stable_decay(
    step: int, total_steps: float, warmup_fraction: float, decay_fraction: float, final_fraction: float
) -> float:
    """Up in a straight line, constant, then down in a straight line to `final_fraction` at `total_steps`.

    >>> [round(warmup_stable_decay(step, 100, 0.1, 0.2, 0.0), 12) for step in (0, 9, 50, 90, 100)]
    [0.1, 1.0, 1.0, 0.5, 0.0]
    """
    rise = (step + 1) / (warmup_fraction * total_steps) if warmup_fraction else 1.0
    left = max(1.0 - step / total_steps, 0.0)
    fall = final_fraction + (1.0 - final_fraction) * left / decay_fraction if decay_fraction else 1.0
    return min(rise, 1.0, fall)


@dataclass(frozen=True)
class Shape:
    """A schedule and the settings it takes, each with its default; None is the run's step budget."""

    function: Callable[..., float]
    defaults: Mapping[str, float | None] = field(default_factory=dict)


SCHEDULES: dict[str, Shape] = {
    "constant": Shape(constant),
    "linear_decay": Shape(linear_decay, {"final_fraction": 0.01, "decay_steps": None}),
    "cosine": Shape(cosine, {"total_steps": None, "final_fraction": 0.0}),
    "warmup_stable_decay": Shape(
        warmup_stable_decay,
        {"total_steps": None, "warmup_fraction": 0.05, "decay_fraction": 0.2, "final_fraction": 0.0},
    ),
}


def schedule_shape(name: str) -> Shape:
    """The schedule of that name."""
    return SCHEDULES[require_choice("schedule", name, list(SCHEDULES))]
