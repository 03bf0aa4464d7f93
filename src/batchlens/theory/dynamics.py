"""Exact expected loss of an update rule on a noisy quadratic, after any number of steps.

Notation: h, c, s, n as in `problem`; a = learning_rate * h^(1 - power), a coordinate's rate; B, batch size.
Second moments follow S <- A S A^T + b b^T c / B exactly; n steps are binary powers of one step (see `_kernels.maps`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from batchlens._arrays import FloatArray, IntArray
from batchlens._checks import require_instance
from batchlens._results import Result, axes_or_new
from batchlens.theory._arguments import require_batch_size, require_constant_noise, require_steps
from batchlens.theory._coordinates import lift, lifts, preconditioned, weights, weights_at
from batchlens.theory._following import Follower
from batchlens.theory._kernels import risks
from batchlens.theory._kernels.update import characteristic, rate_limit
from batchlens.theory._types import Steps
from batchlens.theory.problem import NoisyQuadratic
from batchlens.theory.rule import UpdateRule

if TYPE_CHECKING:
    import pandas
    from matplotlib.axes import Axes


@dataclass(frozen=True, eq=False, repr=False)
class RiskTerms(Result):
    """Where the risk comes from: the starting point, and the gradient noise of the steps since.

    Arguments:
        deterministic: what is left of the starting point.
        noise: what the gradient noise has added.
        steps: after which number of steps; one or many, as for the others.

    >>> problem = NoisyQuadratic.power_law(dim=100)
    >>> risk_terms(problem, UpdateRule(learning_rate=1.0), batch_size=16, steps=[0, 50])
    <RiskTerms: risk 2.594 after 0 steps, 0.208 after 50>
    """

    deterministic: FloatArray
    noise: FloatArray
    steps: IntArray

    @property
    def total(self) -> FloatArray:
        """Expected loss."""
        return self.deterministic + self.noise

    @property
    def headline(self) -> str:
        risks, steps = self.total.reshape(-1), self.steps.reshape(-1)
        first = f"risk {risks[0]:.4g} after {steps[0]:,} steps"
        return first if steps.size == 1 else f"{first}, {risks[-1]:.4g} after {steps[-1]:,}"

    def to_frame(self) -> "pandas.DataFrame":
        import pandas

        return pandas.DataFrame(self.as_document())

    def plot(self, ax: "Axes | None" = None) -> "Axes":
        """Draws the risk and its two parts against the number of steps."""
        ax = axes_or_new(ax)
        rows = self.to_frame().sort_values("steps")
        for name, line in (("risk", "-"), ("deterministic", "--"), ("noise", ":")):
            ax.plot(rows["steps"], rows[name], line, label=name)
        ax.set_xscale("symlog", linthresh=1.0)
        ax.set_yscale("log")
        ax.set_xlabel("steps")
        ax.set_ylabel("risk")
        ax.legend()
        return ax

    def as_document(self) -> dict[str, Any]:
        columns = {"steps": self.steps, "risk": self.total, "deterministic": self.deterministic, "noise": self.noise}
        return {name: np.reshape(column, -1).tolist() for name, column in columns.items()}


@overload
def risk(problem: NoisyQuadratic, rule: UpdateRule, batch_size: float, steps: int) -> float: ...
@overload
def risk(
    problem: NoisyQuadratic, rule: UpdateRule, batch_size: float, steps: Sequence[int] | IntArray
) -> FloatArray: ...
def risk(problem: NoisyQuadratic, rule: UpdateRule, batch_size: float, steps: Steps) -> float | FloatArray:
    """Expected loss after each number of steps: exact, inf where it has diverged.

    1/2 sum_i n_i h_i E[average_i(t)^2]; for plain SGD this is eqn. 4 of the paper summed over coordinates.

    Arguments:
        problem: what is minimised.
        rule: how; its averaged iterate is what counts (without averaging that is the iterate itself).
        batch_size: examples per step, any number above 0.
        steps: one step count or many; the cost grows with the logarithm of the largest, or with the largest itself
            where the noise follows the loss.

    >>> problem = NoisyQuadratic.power_law(dim=10_000)
    >>> rule = UpdateRule(learning_rate=0.1, momentum=0.9)
    >>> risk(problem, rule, batch_size=256, steps=[0, 10, 1000]).round(6).tolist()
    [4.893803, 3.385655, 0.621118]
    """
    terms = risk_terms(problem, rule, batch_size, steps)
    return terms.total if np.ndim(steps) else float(terms.total)


def risk_terms(problem: NoisyQuadratic, rule: UpdateRule, batch_size: float, steps: Steps) -> RiskTerms:
    """`risk`, split into what is left of the starting point and what the gradient noise has added.

    Arguments:
        problem: what is minimised.
        rule: how.
        batch_size: examples per step, any number above 0.
        steps: one step count or many.

    >>> problem = NoisyQuadratic.power_law(dim=100)
    >>> terms = risk_terms(problem, UpdateRule(learning_rate=1.0), batch_size=16, steps=50)
    >>> round(float(terms.deterministic), 6), round(float(terms.noise), 6)
    (0.108774, 0.099208)
    """
    require_instance("problem", problem, NoisyQuadratic)
    require_instance("rule", rule, UpdateRule)
    batch_size = require_batch_size(batch_size)
    wanted = require_steps(steps)
    rates, tails = rule.rates(problem.curvature)
    lifted = lifts(rates)
    start, noise = weights_at(problem, batch_size, lifted)
    sums = risks.sum_risk(
        lift(rates, lifted),
        lift(tails, lifted),
        start,
        noise,
        rule.momentum,
        rule.nesterov,
        rule.averaging,
        wanted.reshape(-1),
    )
    if problem.noise_follows_loss:
        total = Follower.of(problem, batch_size, rule.power).risks(rule, wanted.reshape(-1))
        known = np.isfinite(total)
        sums[1] = np.where(known, np.maximum(total - np.where(known, sums[0], 0.0), 0.0), np.inf)
    return RiskTerms(sums[0].reshape(wanted.shape), sums[1].reshape(wanted.shape), wanted)


def risk_path(
    problem: NoisyQuadratic,
    rules: UpdateRule | Sequence[UpdateRule],
    batch_size: float | Sequence[float] | FloatArray,
    lengths: Sequence[int] | IntArray,
) -> FloatArray:
    """Expected loss after each piece of a training whose rule or batch size changes from piece to piece.

    The momentum buffer and the average live on across pieces: m as it is (unscaled by the learning rate), so that
    a learning rate may change, or be 0, at any step.

    Arguments:
        problem: what is minimised.
        rules: one rule per piece, or one for all.
        batch_size: one per piece, or one for all.
        lengths: number of steps of each piece; a piece costs the logarithm of its length.

    >>> problem = NoisyQuadratic.power_law(dim=100)
    >>> rules = [UpdateRule(learning_rate=1.0), UpdateRule(learning_rate=0.1)]
    >>> risk_path(problem, rules, batch_size=16, lengths=[50, 50]).round(6).tolist()
    [0.207982, 0.124059]
    """
    require_constant_noise(require_instance("problem", problem, NoisyQuadratic))
    given: object = lengths
    array = isinstance(given, np.ndarray) and given.ndim > 0
    if isinstance(given, str) or not (array or isinstance(given, Sequence)):
        raise TypeError(f"`lengths` must be a sequence, one entry per piece, got {lengths!r}.")
    sizes = require_steps(lengths, "lengths")
    pieces = sizes.size
    if not isinstance(rules, UpdateRule | Sequence):
        raise TypeError(f"`rules` must be an UpdateRule or a sequence of them, got {rules!r}.")
    used = [rules] * pieces if isinstance(rules, UpdateRule) else list(rules)
    many = isinstance(batch_size, list | tuple) or (isinstance(batch_size, np.ndarray) and batch_size.ndim > 0)
    batches = list(batch_size) if many else [batch_size] * pieces  # type: ignore[arg-type]
    for name, entries in (("rules", used), ("batch_size", batches)):
        if len(entries) != pieces:
            raise ValueError(f"`{name}` must have {pieces} entries, one per length, got {len(entries)}.")
    for rule in used:
        require_instance("rules", rule, UpdateRule)
    h = problem.curvature
    pairs = [rule.rates(h) for rule in used]
    rates, tails = np.stack([rate for rate, _ in pairs]), np.stack([tail for _, tail in pairs])
    lifted = lifts(rates.max(axis=0))
    start, noise = weights(problem, lifted)
    left, added = risks.sum_risk_path(
        lift(rates, lifted),
        lift(tails, lifted),
        _buffer_scales(h, [rule.power for rule in used]),
        start,
        noise,
        np.array([rule.momentum for rule in used]),
        np.array([rule.nesterov for rule in used]),
        np.array([rule.averaging for rule in used]),
        np.array([1.0 / require_batch_size(batch) for batch in batches]),
        sizes,
    )
    total: FloatArray = left + added
    return total


def _buffer_scales(h: FloatArray, powers: list[float]) -> FloatArray:
    """u = m / h^(1 - power) changes its unit with the power; m does not."""
    scales = [preconditioned(h, before) / preconditioned(h, after)
              for before, after in zip(powers[:1] + powers, powers, strict=False)]  # fmt: skip
    return np.minimum(np.stack(scales), np.longdouble(1e300)).astype(np.float64)


def is_stable(problem: NoisyQuadratic, rule: UpdateRule) -> bool:
    """Whether the risk stays bounded however long training goes on.

    Heavy ball: learning_rate * h^(1 - power) < 2 (1 + momentum) for every h; Nesterov: < 2 (1 + momentum) /
    (1 + 2 momentum).  Averaging changes nothing.  A learning rate of 0 is stable: nothing moves.

    Arguments:
        problem: what is minimised.
        rule: how.

    >>> problem = NoisyQuadratic.power_law(dim=100)
    >>> (
    ...     is_stable(problem, UpdateRule(learning_rate=2.1)),
    ...     is_stable(problem, UpdateRule(2.1, momentum=0.1)),
    ... )
    (False, True)
    """
    require_instance("problem", problem, NoisyQuadratic)
    require_instance("rule", rule, UpdateRule)
    rates, _ = rule.rates(problem.curvature)
    return bool(rates.max() < rate_limit(rule.momentum, rule.nesterov))


def steady_state_risk(problem: NoisyQuadratic, rule: UpdateRule, batch_size: float) -> float:
    """Expected loss after endlessly many steps: what the gradient noise keeps up; inf for an unstable rule.

    For momentum and for averaging alone these are the second terms of theorems 1 and 2 of the paper.  At learning
    rate 0 nothing moves, and the initial risk stays.

    Arguments:
        problem: what is minimised.
        rule: how.
        batch_size: examples per step, any number above 0.

    >>> problem = NoisyQuadratic.power_law(dim=100)
    >>> round(steady_state_risk(problem, UpdateRule(learning_rate=0.1), batch_size=16), 6)
    0.008238
    """
    batch_size = require_batch_size(batch_size)
    if not is_stable(problem, rule):
        return float("inf")
    if problem.noise_follows_loss and rule.learning_rate > 0:
        return Follower.of(problem, batch_size, rule.power).steady_state(rule)
    start, noise = weights_at(problem, batch_size)
    return risks.sum_steady_state(
        *rule.rates(problem.curvature),
        start,
        noise,
        rule.momentum,
        rule.nesterov,
        rule.averaging,
    )


def convergence_rate(problem: NoisyQuadratic, rule: UpdateRule) -> float:
    """Factor by which the slowest coordinate's expected iterate shrinks per step, once training is long.

    The largest |r| over coordinates, r the roots of the characteristic polynomial (r_1 of theorem 1, eqn. 7 of the
    paper; with averaging its coefficient is a root too).  The deterministic risk shrinks by its square.

    Arguments:
        problem: what is minimised.
        rule: how.

    >>> problem = NoisyQuadratic([1.0], [1.0], [1.0])
    >>> convergence_rate(problem, UpdateRule(learning_rate=0.25))
    0.75
    """
    require_instance("problem", problem, NoisyQuadratic)
    require_instance("rule", rule, UpdateRule)
    a, _ = rule.rates(problem.curvature)
    trace, product, *factors = characteristic(a, rule.momentum, rule.nesterov)
    # The discriminant is the product of the two, which may overflow.
    real = (np.abs(trace) + np.sqrt(np.abs(factors[0])) * np.sqrt(np.abs(factors[1]))) / 2
    radius = np.where(np.sign(factors[0]) * np.sign(factors[1]) >= 0, real, np.sqrt(np.abs(product)))
    return float(max(radius.max(), rule.averaging))
