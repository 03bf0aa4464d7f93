"""How few examples can do: the paper's bound (section 3.6), and one that no learner can beat.

Notation as in `problem`; N, examples seen.  N noisy gradients say as much about a coordinate as one measurement of
theta with variance c / (N h^2).
"""

import sys

import numpy as np

from batchlens._checks import require_choice, require_instance, require_number
from batchlens.theory._arguments import require_batch_size
from batchlens.theory._types import Bound
from batchlens.theory.problem import NoisyQuadratic


def lower_bound_risk(problem: NoisyQuadratic, examples: float, kind: Bound = "mle") -> float:
    """Least expected loss that `examples` examples allow.

    "mle": 1/2 sum_i n_i c_i / (N h_i), the risk of the maximum-likelihood estimate (d / 2N where c = h, the paper's
    bound).  It ignores where training starts; a learner that starts near the optimum can beat it.
    "bayes": 1/2 sum_i n_i h_i / (1/s_i + N h_i^2 / c_i), which bounds every learner that starts from N(0, s).

    Arguments:
        problem: what is minimised.
        examples: seen in all, at least 0.
        kind: "mle" or "bayes".

    >>> problem = NoisyQuadratic.power_law(dim=10_000)
    >>> lower_bound_risk(problem, examples=500_000)
    0.01
    >>> round(lower_bound_risk(problem, examples=500_000, kind="bayes"), 6)
    0.009901
    """
    require_instance("problem", problem, NoisyQuadratic)
    examples = require_number("examples", examples, low=0)
    require_choice("kind", kind, ("mle", "bayes"))
    return _bound(problem, examples, kind)


def _bound(problem: NoisyQuadratic, examples: float, kind: str) -> float:
    """`lower_bound_risk`, unchecked."""
    h, c, s, n = problem.curvature, problem.noise, problem.initial, problem.count
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        if kind == "mle":
            return float(0.5 * (n @ (c / h)) / examples) if examples > 0 else float("inf")
        known = h * s
        learnt = c / h / examples if examples > 0 else np.full_like(h, np.inf)
        # known learnt / (known + learnt)
        small, large = np.minimum(known, learnt), np.maximum(known, learnt)
        ratio = np.where(small < large, small / large, 1.0)
        return float(0.5 * n @ (small / (1 + ratio)))


def lower_bound_steps(problem: NoisyQuadratic, batch_size: float, target: float, kind: Bound = "mle") -> int:
    """Fewest steps to the target by one of the bounds of `lower_bound_risk`.

    Arguments:
        problem: what is minimised.
        batch_size: examples per step, any number above 0.
        target: risk to reach.
        kind: "mle" or "bayes".

    >>> problem = NoisyQuadratic.power_law(dim=10_000)
    >>> lower_bound_steps(problem, batch_size=256, target=0.01)
    1954
    >>> lower_bound_steps(problem, batch_size=256, target=0.01, kind="bayes")
    1934
    """
    require_instance("problem", problem, NoisyQuadratic)
    batch_size = require_batch_size(batch_size)
    target = require_number("target", target, low=0, closed=(False, True))
    require_choice("kind", kind, ("mle", "bayes"))
    if _bound(problem, 0.0, kind) <= target:
        return 0
    low, high = 0, 1
    while _bound(problem, high * batch_size, kind) > target:
        low, high = high, 2 * high
        if high > sys.float_info.max:
            raise ValueError(f"`target` must be within reach of {sys.float_info.max:.1e} steps, got {target}.")
    while high - low > 1:
        middle = (low + high) // 2
        if _bound(problem, middle * batch_size, kind) <= target:
            high = middle
        else:
            low = middle
    return high
