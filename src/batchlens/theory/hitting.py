"""The first step at which a rule reaches a target risk.

A risk need not fall monotonically: momentum oscillates, plain SGD dips where some coordinates start below their
steady state, and an unstable rule may dip before it blows up.  The search is exact (see
`_first_hit`): it passes over a stretch of steps only where a lower bound shows that none of them can do.
"""

import math
from typing import NamedTuple

from batchlens._checks import require_instance, require_number, require_whole
from batchlens.errors import BatchlensError
from batchlens.theory._arguments import MAX_STEPS, require_batch_size
from batchlens.theory._coordinates import lift, lifts, weights_at
from batchlens.theory._first_hit import find_first_hit
from batchlens.theory._following import Follower
from batchlens.theory._kernels.hitting import NEVER, REACHED, UNDECIDED
from batchlens.theory._types import Status
from batchlens.theory.dynamics import is_stable
from batchlens.theory.problem import NoisyQuadratic
from batchlens.theory.rule import UpdateRule


class HittingTime(NamedTuple):
    """How many steps it took, and if none did, why.

    Arguments:
        steps: the first that reaches the target; None where none does.
        status: "reached"; "unstable" (the risk grows without bound before reaching the target);
            "steady_state_above_target" (the noise alone keeps the risk above it); "beyond_max_steps"; "undecided" (too
            many fast, hardly damped oscillations to look at each: ask with a smaller `max_steps`).

    >>> HittingTime(1429, "reached").steps
    1429
    """

    steps: int | None
    status: Status


def hitting_time(
    problem: NoisyQuadratic,
    rule: UpdateRule,
    batch_size: float,
    target: float,
    max_steps: int = MAX_STEPS,
) -> HittingTime:
    """First step whose risk is at or below the target, 0 included, with the reason where there is none.

    The cost grows with the logarithm of the answer where the risk does not oscillate, and with the number of
    oscillations where it does.

    Arguments:
        problem: what is minimised.
        rule: how.
        batch_size: examples per step, any number above 0.
        target: risk to reach.
        max_steps: give up beyond.

    >>> problem = NoisyQuadratic.power_law(dim=100)
    >>> hitting_time(problem, UpdateRule(learning_rate=0.1), batch_size=64, target=0.01)
    HittingTime(steps=1429, status='reached')
    >>> hitting_time(problem, UpdateRule(learning_rate=0.1), batch_size=1, target=0.01)
    HittingTime(steps=None, status='steady_state_above_target')
    """
    require_instance("problem", problem, NoisyQuadratic)
    require_instance("rule", rule, UpdateRule)
    batch_size = require_batch_size(batch_size)
    target = require_number("target", target, low=0, closed=(False, True))
    max_steps = require_whole("max_steps", max_steps, low=0, high=2**61)
    if problem.initial_risk <= target:  # summed up in another order, it could lie a last digit beyond
        return HittingTime(0, "reached")
    if problem.noise_follows_loss:
        return _follow(problem, rule, batch_size, target, max_steps)
    rates, tails = rule.rates(problem.curvature)
    lifted = lifts(rates)
    start, noise = weights_at(problem, batch_size, lifted)
    coordinates = lift(rates, lifted), lift(tails, lifted), start, noise
    steps, ending = find_first_hit(coordinates, rule, target, max_steps)
    if ending == REACHED:
        return HittingTime(steps, "reached")
    if ending == UNDECIDED:
        return HittingTime(None, "undecided")
    if not is_stable(problem, rule):
        return HittingTime(None, "unstable")
    if ending == NEVER:
        return HittingTime(None, "steady_state_above_target")
    return HittingTime(None, "beyond_max_steps")


def _follow(problem: NoisyQuadratic, rule: UpdateRule, batch_size: float, target: float, max_steps: int) -> HittingTime:
    """Step by step."""
    follower = Follower.of(problem, batch_size, rule.power)
    steps, _, status = follower.hit(rule, target, max_steps)
    if status in ("beyond_max_steps", "undecided") and is_stable(problem, rule):
        level = follower.steady_state(rule)
        status = "unstable" if level == math.inf else "steady_state_above_target" if level > target else status
    return HittingTime(steps, status)


def steps_to_target(
    problem: NoisyQuadratic,
    rule: UpdateRule,
    batch_size: float,
    target: float,
    max_steps: int = MAX_STEPS,
) -> int | None:
    """First step whose risk is at or below the target, 0 included; None if no step up to `max_steps` is.

    Arguments:
        problem: what is minimised.
        rule: how.
        batch_size: examples per step.
        target: risk to reach.
        max_steps: give up beyond.

    >>> problem = NoisyQuadratic.power_law(dim=100)
    >>> steps_to_target(problem, UpdateRule(learning_rate=0.1, momentum=0.9), batch_size=64, target=0.05)
    90
    """
    steps, status = hitting_time(problem, rule, batch_size, target, max_steps)
    if status == "undecided":
        raise BatchlensError("The risk oscillates too often to look at every step; ask with a smaller `max_steps`.")
    return steps
