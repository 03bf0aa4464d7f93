"""What is minimised and what is measured, one number an example."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional

from batchlens._checks import require_number

__all__ = [
    "ACCURACY",
    "CROSS_ENTROPY",
    "SQUARED_ERROR",
    "Metric",
    "Scores",
    "cross_entropies",
    "hits",
    "shortfalls",
    "smoothed_cross_entropies",
    "squared_errors",
]

Scores = Callable[[Tensor, Tensor], Tensor]


def cross_entropies(outputs: Tensor, targets: Tensor, label_smoothing: float = 0.0) -> Tensor:
    """The cross entropy of each example in nats; of a sequence, the mean over its positions."""
    losses = functional.cross_entropy(
        outputs.flatten(0, -2), targets.flatten(), reduction="none", label_smoothing=label_smoothing
    )
    return losses if targets.dim() == 1 else losses.view_as(targets).flatten(1).mean(1)


def smoothed_cross_entropies(label_smoothing: float) -> Scores:
    """Cross entropies against targets mixed with the uniform distribution."""
    return partial(cross_entropies, label_smoothing=label_smoothing)


def hits(outputs: Tensor, targets: Tensor) -> Tensor:
    """1 where the largest output is the target, else 0; of a sequence, the mean over its positions."""
    right = (outputs.argmax(-1) == targets).double()
    return right if targets.dim() == 1 else right.flatten(1).mean(1)


def shortfalls(outputs: Tensor, targets: Tensor) -> Tensor:
    """By how much the largest other output exceeds the target's; of a sequence, the mean over its positions."""
    wanted = outputs.gather(-1, targets[..., None])
    short = outputs.scatter(-1, targets[..., None], -torch.inf).amax(-1) - wanted[..., 0]
    return short if targets.dim() == 1 else short.flatten(1).mean(1)


def squared_errors(outputs: Tensor, targets: Tensor) -> Tensor:
    """Half the squared distance between output and target."""
    if outputs.shape != targets.shape:
        raise ValueError(
            f"`targets` must have the shape of the outputs, {tuple(outputs.shape)}, got {tuple(targets.shape)}."
        )
    return 0.5 * (outputs - targets).square().reshape(len(outputs), -1).sum(1)


@dataclass(frozen=True)
class Metric:
    """The mean over examples of a score.

    `best` is the best score that an example can have, which is what allows an evaluation to end early: what has not
    been read cannot beat it. `difficulty` is larger for examples more likely to score badly next time; those are read
    first. Without it the scores tell. `worst` is the worst score that an example can have, where there is one.
    """

    name: str
    scores: Scores
    best: float
    higher_is_better: bool
    difficulty: Scores | None = None
    worst: float | None = None

    def require_target(self, name: str, target: object) -> float:
        """`target`, if the metric can be as good."""
        number = require_number(name, target)
        if not self.meets(self.best, number):
            relation = "at most" if self.higher_is_better else "at least"
            raise ValueError(
                f"`{name}` must be {relation} {self.best:g}, the best {self.name} there is, got {number:g}."
            )
        return number

    def meets(self, value: float, target: float) -> bool:
        """Whether a value is as good as the target."""
        return value >= target if self.higher_is_better else value <= target


ACCURACY = Metric("accuracy", hits, best=1.0, higher_is_better=True, difficulty=shortfalls, worst=0.0)
CROSS_ENTROPY = Metric("cross_entropy", cross_entropies, best=0.0, higher_is_better=False)
SQUARED_ERROR = Metric("squared_error", squared_errors, best=0.0, higher_is_better=False)
