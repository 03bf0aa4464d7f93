"""What a rule of thumb makes of a tuned update rule at another batch size, on a noisy quadratic.

The model preconditions by a fixed matrix.  Adam and its kin divide by the root of the gradient's second moment
instead, which falls with the batch size as 1 + B_crit / B: theirs is a learning rate times sqrt(1 + B_crit / B).
"""

import math
from dataclasses import dataclass, replace

from batchlens.advice._rules import MOST_RATE, RateRule, power, saturating
from batchlens.theory._coordinates import preconditioned
from batchlens.theory.hitting import hitting_time
from batchlens.theory.problem import NoisyQuadratic
from batchlens.theory.rule import UpdateRule
from batchlens.theory.tuning import scaling_curve

# A rule that takes this many times the steps of the best one counts as one that never arrives.
_GIVE_UP = 20
# Batch sizes at which the critical one of a problem is looked for, in steps of 4.
_EXPONENTS = range(-8, 18)


@dataclass(frozen=True)
class Carrier:
    """How update rules are carried: learning rates by `rule`, coefficients by their half-life in examples.

    Arguments:
        rule: of learning_rate / (1 - momentum).
        critical: B_crit of the problem, without momentum.
        divides_by_root: whether the optimizer divides by the root of second moments.
        cap: the largest learning rate of a larger batch, in units of (1 + momentum); None: no cap.
        keeps_momentum: whether momentum stays as it is.
    """

    rule: RateRule
    critical: float
    divides_by_root: bool = False
    cap: float | None = None
    keeps_momentum: bool = False

    def carry(self, rule: UpdateRule, b0: float, b1: float) -> UpdateRule:
        """The update rule at batch size b1, from the one at b0."""
        kappa = b1 / b0
        factor = self.rule.factor(b0, b1, self.critical)
        if self.divides_by_root:
            factor *= math.sqrt(saturating(b0, b1, self.critical))
        momentum = rule.momentum if self.keeps_momentum else power(rule.momentum, kappa)
        rate = rule.learning_rate * factor * (1 - momentum) / (1 - rule.momentum)
        if self.cap is not None and kappa > 1:
            rate = min(rate, max(self.cap * (1 + momentum), rule.learning_rate))
        return replace(rule, learning_rate=rate, momentum=momentum, averaging=power(rule.averaging, kappa))


def rate_cap(problem: NoisyQuadratic, power_of: float = 0.0) -> float:
    """The largest learning rate that is trusted beside the curvature of a problem, without momentum."""
    return MOST_RATE / float(preconditioned(problem.curvature, power_of).max())


def steps_lost(problem: NoisyQuadratic, rule: UpdateRule, batch_size: float, target: float, best: int) -> float:
    """How many more steps than the `best` a rule takes, as a part of them; infinite where it does not arrive."""
    steps = hitting_time(problem, rule, batch_size, target, max_steps=_GIVE_UP * best).steps
    return math.inf if steps is None else steps / best - 1


def critical_of(problem: NoisyQuadratic, target: float, power_of: float = 0.0, momentum: float = 0.0) -> float | None:
    """B_crit of the steps to the target, the learning rate tuned; None where the problem shows none."""
    sizes = [4.0**exponent for exponent in _EXPONENTS]
    family, held = ("momentum", momentum) if momentum else ("sgd", None)
    found = scaling_curve(problem, family, sizes, target, power_of, momentum=held).critical_batch_size("fit")
    return found.value if found.relation == "=" else None
