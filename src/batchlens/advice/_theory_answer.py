"""The theory's own answer to a change of batch size: tuned at both, on the paper's spectrum or a measured one.

A critical batch size that is known sets the unit of batch sizes: gradient noise enters as c / B only.
"""

import math
from dataclasses import dataclass
from functools import cached_property

from batchlens.advice._carrying import Carrier, critical_of, steps_lost
from batchlens.advice._rules import RateRule
from batchlens.optimizers import base_of
from batchlens.theory.problem import NoisyQuadratic
from batchlens.theory.tuning import Tuned, tune

# A rule that loses more than this part of the steps has parted from the theory.
PARTED = 0.05
# Momenta that are tried for a simpler answer, and how many times the fewest steps count as few.
_MOMENTA, _ALIKE = (0.0, 0.5, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995, 0.998, 0.999), 1.01
# Batch sizes between the two that are looked at, at most.
_MOST_SIZES = 12
PAPER_TARGET = 0.01


def paper_problem() -> NoisyQuadratic:
    """The paper's spectrum, h = c = 1/i."""
    return NoisyQuadratic.power_law(dim=10_000).binned(100)


@dataclass(frozen=True)
class Question:
    """A change of batch size, put to the theory.

    Arguments:
        problem: the spectrum.
        target: risk to reach.
        family: of update rules.
        power: preconditioning by H^-power.
        divides_by_root: whether the optimizer divides by the root of second moments; its momentum is held, then.
        momentum: at b0, where the family has one.
        keeps_momentum: whether the rule leaves it as it is.
        b0: the batch size that is left.
        b1: the one that is wanted.
        critical: the user's critical batch size; None: the problem's own.
    """

    problem: NoisyQuadratic
    target: float
    family: str
    power: float
    divides_by_root: bool
    momentum: float
    keeps_momentum: bool
    b0: float
    b1: float
    critical: float | None

    @cached_property
    def problems_critical(self) -> float:
        """B_crit of the problem in its own units."""
        held = self.momentum if self.divides_by_root else 0.0
        found = critical_of(self.problem, self.target, self.power, held)
        if found is None:
            raise ValueError("`measurement` must show a critical batch size between 1e-4 and 1e10, got none.")
        return found

    @property
    def critical_batch_size(self) -> float:
        """In the user's units."""
        return self.problems_critical if self.critical is None else self.critical

    def at(self, batch_size: float) -> Tuned:
        """What is best at a batch size, with the least momentum that comes within 1% of the fewest steps."""
        if not self._has_momentum or self.divides_by_root:
            return self._tune(batch_size, self.momentum)
        best = self._tune(batch_size, None)
        if best.steps is None:
            return best
        tried = (self._tune(batch_size, momentum) for momentum in _MOMENTA)
        return next((one for one in tried if one.steps is not None and one.steps <= _ALIKE * best.steps), best)

    @property
    def _has_momentum(self) -> bool:
        return base_of(self.family) != "sgd"

    def _tune(self, batch_size: float, momentum: float | None) -> Tuned:
        held = momentum if self._has_momentum else None
        return tune(self.problem, self.family, self._own(batch_size), self.target, self.power, momentum=held)

    def _own(self, batch_size: float) -> float:
        return batch_size * self.problems_critical / self.critical_batch_size

    def answer(self, rule: RateRule, cap: float | None) -> "TheoryAnswer | None":
        """What the theory says of the move, and of `rule` on the way; None where the target is beyond reach."""
        start, end = self._tune(self.b0, self.momentum), self.at(self.b1)
        if start.rule is None or end.rule is None or not start.steps or not end.steps:
            return None
        carrier = Carrier(rule, self.problems_critical, self.divides_by_root, cap, self.keeps_momentum)
        sizes = _between(self.b0, self.b1)
        tuned = [self.at(size) for size in sizes[:-1]] + [end] * bool(sizes)
        known = [(size, best) for size, best in zip(sizes, tuned, strict=True) if best.rule is not None and best.steps]
        return TheoryAnswer(
            critical_batch_size=self.critical_batch_size,
            batch_sizes=tuple(size for size, _ in known),
            rate_factors=tuple(self._rate(best, size) / self._rate(start, self.b0) for size, best in known),
            steps_lost=tuple(self._lost(carrier, start, size, best) for size, best in known),
            momentum=end.rule.momentum,
            averaging=end.rule.averaging,
            steps_ratio=end.steps / start.steps,
        )

    def _rate(self, tuned: Tuned, batch_size: float) -> float:
        """learning_rate / (1 - momentum) up to a constant, in the optimizer's units."""
        assert tuned.rule is not None
        rate = tuned.rule.learning_rate / (1 - tuned.rule.momentum)
        return rate * math.sqrt(1 + self.critical_batch_size / batch_size) if self.divides_by_root else rate

    def _lost(self, carrier: Carrier, start: Tuned, batch_size: float, best: Tuned) -> float:
        assert start.rule is not None
        assert best.steps is not None
        carried = carrier.carry(start.rule, self._own(self.b0), self._own(batch_size))
        return steps_lost(self.problem, carried, self._own(batch_size), self.target, best.steps)


@dataclass(frozen=True)
class TheoryAnswer:
    """What tuning at both batch sizes, and on the way between them, says.

    Arguments:
        critical_batch_size: that the answer goes by.
        batch_sizes: on the way, the last one being the one that is wanted.
        rate_factors: of learning_rate / (1 - momentum) there, in the optimizer's units.
        steps_lost: there by the rule, as a part of the best; infinite where it does not arrive.
        momentum: the best one at the last.
        averaging: the best one at the last.
        steps_ratio: steps at the new batch size over steps at the old.
    """

    critical_batch_size: float
    batch_sizes: tuple[float, ...]
    rate_factors: tuple[float, ...]
    steps_lost: tuple[float, ...]
    momentum: float
    averaging: float
    steps_ratio: float

    @property
    def rate_factor(self) -> float:
        """Of the move."""
        return self.rate_factors[-1] if self.rate_factors else 1.0

    @property
    def lost(self) -> float:
        """Steps that the rule loses at the new batch size, as a part of the best."""
        return self.steps_lost[-1] if self.steps_lost else 0.0

    @property
    def parts_from(self) -> float | None:
        """The first batch size on the way at which the rule costs over 5% more steps; None: nowhere."""
        places = zip(self.batch_sizes, self.steps_lost, strict=True)
        return next((size for size, part in places if part > PARTED), None)


def _between(b0: float, b1: float) -> list[float]:
    """Batch sizes on the way, doublings where these are not too many, and b1; b0 is left out."""
    if b0 == b1:
        return []
    octaves = abs(math.log2(b1) - math.log2(b0))
    step = 2.0 ** (math.ceil(octaves / _MOST_SIZES) * (1 if b1 > b0 else -1))
    sizes = [b0 * step ** (k + 1) for k in range(_MOST_SIZES)]
    return [size for size in sizes if min(b0, b1) * (1 + 1e-9) < size < max(b0, b1) * (1 - 1e-9)] + [b1]
