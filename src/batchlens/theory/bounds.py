"""What no learner can beat, however it uses its examples (section 3.6 of the paper, and beyond).

Notation as in `problem`; N, examples seen.  N noisy gradients say as much about a coordinate as one measurement of
theta with variance c / (N h^2).
"""

from typing import Literal

import numpy as np

from batchlens.checks import require_choice, require_number
from batchlens.theory.dynamics import require_batch_size
from batchlens.theory.problem import NoisyQuadratic

Bound = Literal["mle", "bayes"]


def lower_bound_risk(problem: NoisyQuadratic, examples: float, kind: Bound = "mle") -> float:
    """Least expected loss that `examples` examples allow.

    "mle": 1/2 sum_i n_i c_i / (N h_i), the risk of the maximum-likelihood estimate (d / 2N where c = h, the paper's
    bound).  It ignores where training starts; a learner that starts near the optimum can beat it.
    "bayes": 1/2 sum_i n_i h_i / (1/s_i + N h_i^2 / c_i), which bounds every learner that starts from N(0, s).

    >>> problem = NoisyQuadratic.power_law(dim=10_000)
    >>> lower_bound_risk(problem, examples=500_000)
    0.01
    >>> round(lower_bound_risk(problem, examples=500_000, kind="bayes"), 6)
    0.009901
    """
    examples = require_number("examples", examples, low=0)
    require_choice("kind", kind, ("mle", "bayes"))
    return _bound(problem, examples, kind)


def _bound(problem: NoisyQuadratic, examples: float, kind: str) -> float:
    """`lower_bound_risk`, unchecked."""
    h, c, s, n = problem.curvature, problem.noise, problem.initial, problem.count
    if kind == "mle":
        return float(0.5 * (n @ (c / h)) / examples) if examples > 0 else float("inf")
    known = h * s
    # known / (1 + known / learnt), with learnt = c / (N h) what the examples alone would leave
    gain = np.divide(examples * known, c / h, out=np.full_like(h, np.inf), where=c > 0)
    return float(0.5 * n @ np.where(gain < np.inf, known / (1 + gain), 0.0 if examples else known))


def lower_bound_steps(problem: NoisyQuadratic, batch_size: float, target: float, kind: Bound = "mle") -> int:
    """Fewest steps in which any learner could reach the target, by `lower_bound_risk`.

    >>> problem = NoisyQuadratic.power_law(dim=10_000)
    >>> lower_bound_steps(problem, batch_size=256, target=0.01)
    1954
    >>> lower_bound_steps(problem, batch_size=256, target=0.01, kind="bayes")
    1934
    """
    batch_size = require_batch_size(batch_size)
    target = require_number("target", target, low=0, closed=(False, True))
    require_choice("kind", kind, ("mle", "bayes"))
    if _bound(problem, 0.0, kind) <= target:
        return 0
    low, high = 0, 1
    while _bound(problem, high * batch_size, kind) > target:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        if _bound(problem, middle * batch_size, kind) <= target:
            high = middle
        else:
            low = middle
    return high
