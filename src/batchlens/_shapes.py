"""Shapes of learning-rate schedules, for the theory and for training alike.

A shape says which part of the peak learning rate is used as training goes on. Progress counts from 0 to 1; a step, or
a piece of several, covers the progress from `begin` to `end`. Decay goes by where it begins, warm-up by where it ends,
so that the first step moves and the last one still counts. The theory follows a shape in pieces of several steps, each
with the learning rate of its middle: between the two, schedules of few steps differ by up to half a piece.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from batchlens._arrays import FloatArray


def constant(begin: FloatArray, end: FloatArray) -> FloatArray:
    """The same learning rate throughout."""
    return np.ones_like(begin)


def linear_decay(begin: FloatArray, end: FloatArray, final_fraction: float) -> FloatArray:
    """Down in a straight line to `final_fraction` (appendix F of the paper, mended)."""
    return final_fraction + (1.0 - final_fraction) * (1.0 - np.minimum(begin, 1.0))


def cosine(begin: FloatArray, end: FloatArray, final_fraction: float) -> FloatArray:
    """Down along half a cosine to `final_fraction`."""
    progress = np.minimum(begin, 1.0)
    return np.asarray(final_fraction + (1.0 - final_fraction) * 0.5 * (1.0 + np.cos(np.pi * progress)))


def step_decay(begin: FloatArray, end: FloatArray) -> FloatArray:
    """A tenth after half of the steps, a hundredth after three quarters."""
    return np.where(begin < 0.5, 1.0, np.where(begin < 0.75, 0.1, 0.01))


def warmup_stable_decay(
    begin: FloatArray, end: FloatArray, warmup_fraction: float, decay_fraction: float, final_fraction: float
) -> FloatArray:
    """Up in a straight line, constant, then down in a straight line to `final_fraction`."""
    rise = np.minimum(end, warmup_fraction) / warmup_fraction if warmup_fraction else np.ones_like(end)
    left = np.maximum(1.0 - begin, 0.0)
    fall = (
        final_fraction + (1.0 - final_fraction) * np.minimum(left, decay_fraction) / decay_fraction
        if decay_fraction
        else np.ones_like(begin)
    )
    return np.minimum(np.minimum(rise, 1.0), fall)


@dataclass(frozen=True)
class Shape:
    """A schedule's shape.

    Arguments:
        function: from the progress at which steps begin and end to parts of the peak.
        fractions: what else the function takes, with defaults.
        length: what training calls the number of steps that the shape spans; empty where it has no end.
    """

    function: Callable[..., FloatArray]
    fractions: Mapping[str, float] = field(default_factory=dict)
    length: str = "total_steps"

    @property
    def settings(self) -> tuple[str, ...]:
        """What training can set."""
        return (*self.fractions, self.length) if self.length else tuple(self.fractions)

    def at(self, progress: FloatArray) -> FloatArray:
        """The parts in the middle of pieces, with the usual fractions."""
        return self.function(progress, progress, **self.fractions)

    def of_step(self, step: int, settings: Mapping[str, float]) -> float:
        """The part that a step of training uses; `settings` has the fractions, and the length by its name."""
        length = settings[self.length] if self.length else 1.0
        begin, end = np.float64(step / length), np.float64((step + 1) / length)
        return float(self.function(begin, end, **{name: settings[name] for name in self.fractions}))


SHAPES: dict[str, Shape] = {
    "constant": Shape(constant, length=""),
    "linear_decay": Shape(linear_decay, {"final_fraction": 0.0}, length="decay_steps"),
    "cosine": Shape(cosine, {"final_fraction": 0.0}),
    "step_decay": Shape(step_decay),
    "warmup_stable_decay": Shape(
        warmup_stable_decay, {"warmup_fraction": 0.05, "decay_fraction": 0.2, "final_fraction": 0.0}
    ),
}
