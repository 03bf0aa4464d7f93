"""Measuring a model against a target, reading no more examples than the decision needs."""

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from batchlens.training.metrics import Metric

# Examples read between two decisions, at least and at most.
_LEAST, _MOST = 64, 1024
# Numbers that a model puts out at a time, at most, as far as a single example allows.
_OUTPUTS = 2**25
# Below this growth of the step count no new evaluation is due.
GROWTH = 1.03

Relation = Literal["=", "<=", ">="]
# How a run ends.
Status = Literal["reached", "not_reached", "diverged", "failed", "pruned"]


@dataclass(frozen=True)
class Evaluation:
    """A metric after a number of steps; with "<=" or ">=" it is a bound, which the target lies beyond."""

    step: int
    metric: float
    relation: Relation = "="

    @property
    def exact(self) -> bool:
        """Whether every example was read."""
        return self.relation == "="


class Evaluator:
    """Examples to measure on, those that were hardest last time first.

    With a target, reading ends as soon as not even perfect scores on what is left could meet it: what has then been
    measured is a bound on the metric. Met, the target has always been met on the whole set. `classes` says how many
    numbers the model puts out for each target, which bounds the memory that reading takes.
    """

    def __init__(self, inputs: Tensor, targets: Tensor, metric: Metric, classes: int = 1) -> None:
        self.inputs, self.targets, self.metric = inputs, targets, metric
        self.difficulty = torch.zeros(len(inputs))
        self._most = max(1, min(_MOST, _OUTPUTS // (classes * targets[0].numel())))

    def measure(self, model: nn.Module, step: int, target: float | None = None) -> Evaluation:
        """The metric of a model: exact where `target` is None or met, else possibly a bound."""
        order = self.difficulty.argsort(descending=True, stable=True)
        was_training = model.training
        model.eval()
        read, lost = 0, 0.0
        try:
            while read < len(order):
                part = order[read : read + self._next_size(read, lost, target)]
                lost += self._read(model, part)
                read += len(part)
                if target is not None and not self.metric.meets(self._value(lost), target):
                    break
        finally:
            model.train(was_training)
        return Evaluation(step, self._value(lost), self._relation(read == len(order)))

    @torch.inference_mode()
    def _read(self, model: nn.Module, part: Tensor) -> float:
        """By how much the scores of these examples fall short of perfect ones, in all."""
        there = part.to(self.inputs.device)
        outputs, targets = model(self.inputs[there]), self.targets[there]
        lost = (self.metric.scores(outputs, targets).double() - self.metric.best).abs()
        hard = lost if self.metric.difficulty is None else self.metric.difficulty(outputs, targets)
        self.difficulty[part] = hard.to("cpu", torch.float32)
        return float(lost.sum())

    def _next_size(self, read: int, lost: float, target: float | None) -> int:
        """As many examples as should settle it if they score like those read so far, and a fifth more."""
        if target is None:
            return self._most
        allowed = abs(self.metric.best - target) * len(self.inputs)
        rate = lost / read if lost else 1.0
        return int(min(max(_LEAST, 1.2 * (allowed - lost) / rate + 1), self._most))

    def _value(self, lost: float) -> float:
        # One division, so that 4,850 of 5,000 is the number that 0.97 is.
        count = len(self.inputs)
        sign = -1 if self.metric.higher_is_better else 1
        return (self.metric.best * count + sign * lost) / count

    def _relation(self, complete: bool) -> Relation:
        if complete:
            return "="
        return "<=" if self.metric.higher_is_better else ">="


def next_evaluation(step: int) -> int:
    """The step of the evaluation after the one at `step`: 2 to 3% later, as far as whole steps allow.

    >>> next_evaluation(10), next_evaluation(1000)
    (11, 1030)
    """
    return max(step + 1, int(step * GROWTH))


def best_exact(history: tuple[Evaluation, ...], higher_is_better: bool) -> float | None:
    """The best metric that was measured on the whole set."""
    exact = [entry.metric for entry in history if entry.exact and not math.isnan(entry.metric)]
    return (max if higher_is_better else min)(exact) if exact else None
