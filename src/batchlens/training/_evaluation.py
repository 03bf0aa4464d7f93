"""Measuring a model against a target, reading no more examples than the decision needs."""

import math
from dataclasses import dataclass
from functools import cache
from typing import Literal

import torch
from scipy import stats
from torch import Tensor, nn

from batchlens.training.metrics import Metric

# Examples read between two decisions, at least and at most.
_LEAST, _MOST = 64, 1024
# Numbers that a model puts out at a time, at most, as far as a single example allows.
_OUTPUTS = 2**25
# Seeds the random order of the examples.
_ORDER = 0
# The probability that a set which meets the target is taken for one that does not.
ERROR = 1e-6

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
    """Examples to measure on, read only as far as the decision needs.

    Met, a target has always been met on the whole set; for a miss, less can be enough:

    - Not even the best scores on what is left could meet it. This is certain, and comes soon where few examples decide:
      then those that were hardest last time are read first.
    - Where many may score badly, as at an accuracy of 0.7, those would be many to read. Of scores with a worst and a
      best value a few examples are read first, in a fixed random order, and enough where Chernoff's bound on the mean
      (Hoeffding 1963, theorems 1 and 4: also without replacement), with an error probability of 1e-6 shared by all
      looks, lies beyond the target. Once that has failed, the target is near, and later measurements do without.
    - Where losses are much alike, as those of sequences are, examples are read in a fixed random order, and reading
      also ends where Student's lower bound on the mean, with the correction for a finite set and the same error
      probability, lies beyond the target. For losses with a tail to the right it errs less often.

    What has then been measured is a bound on the metric. `classes` says how many numbers the model puts out for each
    target, which bounds the memory that reading takes.
    """

    def __init__(self, inputs: Tensor, targets: Tensor, metric: Metric, classes: int = 1) -> None:
        self.inputs, self.targets, self.metric = inputs, targets, metric
        self.difficulty = torch.full((len(inputs),), torch.nan)  # unknown
        self.read = 0  # examples, over all measurements
        self.near = False  # whether a glance has failed to tell the metric from the target
        self._most = max(1, min(_MOST, _OUTPUTS // (classes * targets[0].numel())))
        self._shuffled = torch.randperm(len(inputs), generator=torch.Generator().manual_seed(_ORDER))

    def measure(self, model: nn.Module, step: int, target: float | None = None) -> Evaluation:
        """The metric of a model: exact where `target` is None or met, else possibly a bound."""
        order, random = self._order(target)
        was_training = model.training
        model.eval()
        seen = _Seen()
        try:
            while seen.count < len(order):
                self.near = self.near or 0 < random <= seen.count
                part = order[seen.count : seen.count + self._next_size(seen, target, random - seen.count)]
                seen.add(self._read(model, part), seen.count < random)
                if target is None or seen.count == len(order):
                    continue
                for bound in (seen.sum, self._lower_bound(seen) if seen.count <= random else -math.inf):
                    if not self.metric.meets(self._value(bound), target):
                        return Evaluation(step, self._value(bound), "<=" if self.metric.higher_is_better else ">=")
        finally:
            model.train(was_training)
            self.read += seen.count
        return Evaluation(step, self._value(seen.sum))

    def _order(self, target: float | None) -> tuple[Tensor, int]:
        """In which order to read, and how many of the first ones are in random order."""
        known = self.difficulty[~self.difficulty.isnan()]
        if self.metric.difficulty is None and (len(known) < 2 or not known.std() > known.mean()):
            return self._shuffled, len(self._shuffled)
        middle = 0.0 if self.metric.difficulty is not None else float(known.mean())
        glance = self._glance(target)
        rest = self._shuffled[glance:]
        filled = self.difficulty.nan_to_num(middle, posinf=torch.inf, neginf=-torch.inf)[rest]
        rest = rest[filled.argsort(descending=True, stable=True)]
        return torch.cat([self._shuffled[:glance], rest]), glance

    def _glance(self, target: float | None) -> int:
        """How many examples to read in random order first: half of those that must score badly for a miss."""
        if target is None or self.metric.worst is None or self.near:
            return 0
        span = abs(self.metric.best - self.metric.worst)
        half = int(abs(self.metric.best - target) / span * len(self.inputs) / 2)
        return half if half >= 2 * _LEAST else 0

    def _lower_bound(self, seen: "_Seen") -> float:
        """Below what the whole set loses, but for one set in a million."""
        count, looks = len(self.inputs), _looks(len(self.inputs), self._most)
        if self.metric.worst is None:
            return seen.lower_bound(count, looks)
        return seen.bounded_lower_bound(count, abs(self.metric.best - self.metric.worst), looks)

    @torch.inference_mode()
    def _read(self, model: nn.Module, part: Tensor) -> Tensor:
        """By how much the scores of these examples fall short of perfect ones."""
        there = part.to(self.inputs.device)
        outputs, targets = model(self.inputs[there]), self.targets[there]
        lost = (self.metric.scores(outputs, targets).double() - self.metric.best).abs()
        hard = lost if self.metric.difficulty is None else self.metric.difficulty(outputs, targets)
        self.difficulty[part] = hard.to("cpu", torch.float32)
        return lost

    def _next_size(self, seen: "_Seen", target: float | None, random: int) -> int:
        """As many examples as should settle it if they score like those read so far, and a fifth more."""
        if target is None:
            return self._most
        if random > 0:  # as many again as have been read: few looks share the error probability
            return min(max(_LEAST, seen.count), self._most, random)
        allowed = abs(self.metric.best - target) * len(self.inputs)
        rate = seen.chosen_sum / seen.chosen if seen.chosen_sum else 1.0
        return int(min(max(_LEAST, 1.2 * (allowed - seen.sum) / rate + 1), self._most))

    def _value(self, lost: float) -> float:
        # One division, so that 4,850 of 5,000 is the number that 0.97 is.
        count = len(self.inputs)
        sign = -1 if self.metric.higher_is_better else 1
        return (self.metric.best * count + sign * lost) / count


class _Seen:
    """What the examples read so far have lost."""

    def __init__(self) -> None:
        self.count, self.sum, self.squares = 0, 0.0, 0.0
        self.chosen, self.chosen_sum = 0, 0.0  # of those that are not random

    def add(self, lost: Tensor, random: bool) -> None:
        self.count += len(lost)
        self.sum += (added := float(lost.sum()))
        self.squares += float(lost.square().sum())
        if not random:
            self.chosen += len(lost)
            self.chosen_sum += added

    def lower_bound(self, whole: int, looks: int) -> float:
        """Below the sum over the whole set, but for one set in a million."""
        mean = self.sum / self.count
        variance = max(self.squares - self.count * mean**2, 0.0) / (self.count - 1) if self.count > 1 else math.inf
        error = math.sqrt(variance / self.count * (1 - self.count / whole))
        return whole * (mean - _quantile(self.count, looks) * error)

    def bounded_lower_bound(self, whole: int, span: float, looks: int) -> float:
        """The same where an example loses at most `span`: the mean below which such a sample is too unlikely."""
        mean = min(self.sum / self.count / span, 1.0)
        needed = -math.log(ERROR / looks) / self.count
        low, high = 0.0, mean
        for _ in range(40):
            middle = (low + high) / 2
            low, high = (middle, high) if _divergence(mean, middle) > needed else (low, middle)
        return whole * span * low


def _divergence(one: float, other: float) -> float:
    """Of a coin from another, in nats; infinite where the other one cannot fall like that."""
    pairs = ((one, other), (1 - one, 1 - other))
    return sum(part * math.log(part / of) if of > 0 else math.inf for part, of in pairs if part > 0)


def _looks(whole: int, most: int) -> int:
    """As many as there are doublings from the first one on, or parts of the largest size."""
    return 1 + max(math.ceil(math.log2(whole / _LEAST)), 0) + whole // most


@cache
def _quantile(count: int, looks: int) -> float:
    """Of Student's distribution, for one of all looks."""
    return float(stats.t.isf(ERROR / looks, max(count - 1, 1)))


def best_exact(history: tuple[Evaluation, ...], higher_is_better: bool) -> float | None:
    """The best metric that was measured on the whole set."""
    exact = [entry.metric for entry in history if entry.exact and not math.isnan(entry.metric)]
    return (max if higher_is_better else min)(exact) if exact else None
