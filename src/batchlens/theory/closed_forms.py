"""The paper's closed forms, as corrected: for figures that plot them and tests that check against them.

`dynamics.risk` is exact for every rule and is what to use; of these only `sgd_risk` is.  The bounds replace the noise
that t steps have added by what endless steps would add, so they lie above the risk, and meet it as t grows.

Notation: a = alpha h^(1 - p), a coordinate's rate; beta, momentum; gamma, averaging; r1, r2, the two roots that its
motion follows.
"""

import numpy as np

from batchlens._arrays import FloatArray
from batchlens._checks import require_number
from batchlens.theory._arguments import require_batch_size, require_constant_noise, require_steps
from batchlens.theory._coordinates import weights_at
from batchlens.theory._kernels.update import rate_limit
from batchlens.theory._types import Steps
from batchlens.theory.dynamics import RiskTerms
from batchlens.theory.problem import NoisyQuadratic
from batchlens.theory.rule import UpdateRule


def sgd_risk(
    problem: NoisyQuadratic,
    learning_rate: float,
    batch_size: float,
    steps: Steps,
    power: float = 0.0,
) -> RiskTerms:
    """Eqn. 4, exact: (1 - a)^2t E[l(0)] + (1 - (1 - a)^2t) alpha c / (2 B (2 - a)), summed over coordinates.

    >>> problem = NoisyQuadratic.power_law(dim=100)
    >>> float(sgd_risk(problem, 0.1, batch_size=16, steps=1000).total.round(6))
    0.032899
    """
    a, start, noise = _coordinates(problem, UpdateRule(learning_rate, power=power), batch_size)
    left = (1 - a[:, None]) ** (2 * _flat(steps))
    return _shape(steps, start @ left, (noise * a / (2 - a)) @ (1 - left))


def preconditioned_bound(
    problem: NoisyQuadratic,
    learning_rate: float,
    batch_size: float,
    steps: Steps,
    power: float = 0.0,
) -> RiskTerms:
    """Eqn. 9, an upper bound: eqn. 4 with the whole steady-state risk of preconditioned SGD.

    >>> problem = NoisyQuadratic.power_law(dim=100)
    >>> float(preconditioned_bound(problem, 0.1, batch_size=16, steps=1000).total.round(6))
    0.032976
    """
    exact = sgd_risk(problem, learning_rate, batch_size, steps, power)
    a, _, noise = _coordinates(problem, UpdateRule(learning_rate, power=power), batch_size)
    return _shape(steps, exact.deterministic, np.full_like(exact.noise, (noise * a / (2 - a)).sum()))


def momentum_bound(
    problem: NoisyQuadratic,
    learning_rate: float,
    momentum: float,
    batch_size: float,
    steps: Steps,
    power: float = 0.0,
) -> RiskTerms:
    """Theorem 1, an upper bound; its first term is exact.

    ((r1^(t+1) - r2^(t+1) - beta (r1^t - r2^t)) / (r1 - r2))^2 E[l(0)] + (1 + beta) alpha c / (2 B (2 beta + 2 - a)
    (1 - beta)), with r1, r2 the roots of x^2 - (1 - a + beta) x + beta.  At r1 = r2, which the paper leaves out, the
    limit is taken.

    >>> problem = NoisyQuadratic.power_law(dim=100)
    >>> float(momentum_bound(problem, 0.01, 0.9, batch_size=16, steps=1000).total.round(6))
    0.032546
    """
    rule = UpdateRule(learning_rate, momentum, power=power)
    a, start, noise = _coordinates(problem, rule, batch_size)
    beta = rule.momentum
    root = np.sqrt(beta)
    discriminant = (((1 - beta) / (1 + root)) ** 2 - a) * ((1 + root) ** 2 - a)
    t = _flat(steps)
    trace = 1 - a + beta
    product = np.full_like(a, beta)
    left = _spread(trace, product, discriminant, t + 1)
    left -= beta * _spread(trace, product, discriminant, t)
    steady = noise * a * (1 + beta) / ((2 * beta + 2 - a) * (1 - beta))
    return _shape(steps, start @ left**2, steady.sum() + np.zeros(t.size))


def averaging_bound(
    problem: NoisyQuadratic,
    learning_rate: float,
    averaging: float,
    batch_size: float,
    steps: Steps,
    power: float = 0.0,
) -> RiskTerms:
    """Theorem 2, an upper bound; its first term is exact.

    ((r1^(t+1) - r2^(t+1) - gamma (1 - a) (r1^t - r2^t)) / (r1 - r2))^2 E[l(0)] + alpha c / (2 B (2 - a)) (1 - gamma)
    (1 + (1 - a) gamma) / ((1 + gamma) (1 - (1 - a) gamma)), with r1 = 1 - a and r2 = gamma.

    >>> problem = NoisyQuadratic.power_law(dim=100)
    >>> float(averaging_bound(problem, 0.1, 0.9, batch_size=16, steps=1000).total.round(6))
    0.03203
    """
    rule = UpdateRule(learning_rate, averaging=averaging, power=power)
    a, start, noise = _coordinates(problem, rule, batch_size)
    gamma = rule.averaging
    r = 1 - a
    t = _flat(steps)
    left = _spread(r + gamma, r * gamma, (r - gamma) ** 2, t + 1)
    left -= (gamma * r)[:, None] * _spread(r + gamma, r * gamma, (r - gamma) ** 2, t)
    reduction = (1 - gamma) * (1 + r * gamma) / ((1 + gamma) * (1 - r * gamma))
    return _shape(steps, start @ left**2, (noise * a / (2 - a) * reduction).sum() + np.zeros(t.size))


def _coordinates(
    problem: NoisyQuadratic, rule: UpdateRule, batch_size: float
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Rates and weights; the closed forms hold for stable rules only."""
    require_constant_noise(problem)
    a, _ = rule.rates(problem.curvature)
    limit = rate_limit(rule.momentum, nesterov=False)
    require_number("learning_rate * h^(1 - power)", a.max(), 0, limit, closed=(True, False))
    return a, *weights_at(problem, require_batch_size(batch_size))


def _flat(steps: Steps) -> FloatArray:
    return require_steps(steps).reshape(-1).astype(np.float64)


def _shape(steps: Steps, deterministic: FloatArray, noise: FloatArray) -> RiskTerms:
    counts = require_steps(steps)
    return RiskTerms(deterministic.reshape(counts.shape), noise.reshape(counts.shape), counts)


def _spread(trace: FloatArray, product: FloatArray, discriminant: FloatArray, t: FloatArray) -> FloatArray:
    """(r1^t - r2^t) / (r1 - r2), coordinates by steps, for real, equal and complex roots alike."""
    width = np.sqrt(np.abs(discriminant))
    larger = (trace + np.copysign(width, trace)) / 2
    result = np.empty((trace.size, t.size))
    for i in range(trace.size):
        if discriminant[i] < 0:
            angle = np.arctan2(width[i], trace[i])
            result[i] = product[i] ** ((t - 1) / 2) * np.sin(t * angle) / np.sin(angle)
        elif larger[i] == 0:
            result[i] = t == 1
        else:
            apart = width[i] / abs(larger[i])  # 1 - smaller / larger
            result[i] = larger[i] ** (t - 1) * _geometric_sum(apart, t)
    return result


def _geometric_sum(apart: float, t: FloatArray) -> FloatArray:
    """1 + x + ... + x^(t-1) for x = 1 - apart."""
    if apart == 0:
        return t
    power: FloatArray = np.expm1(t * np.log1p(-apart)) if apart < 1 else (1 - apart) ** t - 1
    return power / -apart
