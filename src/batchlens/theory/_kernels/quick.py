"""Risk at one step count, as fast as it goes, and its minimum over the parameters of a rule.

The same maps as in `maps` (notation there), in plain doubles: C^n is carried as I + E, so that slow decay keeps its
digits and the risk is good to about 1e-12 of the initial risk.  Coordinates go in lanes of `LANES`: loops over a
constant number of them, on a work array of constant shape, become vector instructions.

A rule is a point (l, y, z): the learning rate is sigmoid(l) of the largest stable one, momentum is 1 - exp(-y),
averaging 1 - exp(-z).  So any learning rate, momenta next to 1 and rates next to the limit are all within reach.
"""

import numpy as np

from batchlens._arrays import BoolArray, FloatArray
from batchlens.theory._kernels.compiling import LANES, inlined, kernel, merged
from batchlens.theory._kernels.update import kick_and_carry, limit_with_tail

# The corner of the search: momentum and averaging up to 1 - 1e-10, learning rates over more than thirty decades.
LOWEST = (-75.0, 0.0, 0.0)
HIGHEST = (35.0, 23.0, 23.0)
_MOST_MOVES = 300

_limit_with_tail = merged(limit_with_tail)


@kernel
def quick_risk(
    curvature: FloatArray,
    start_weights: FloatArray,
    noise_weights: FloatArray,
    learning_rate: float,
    momentum: float,
    nesterov: bool,
    averaging: float,
    steps: int,
) -> float:
    """Risk after `steps` steps; the arrays' length is a multiple of LANES (pad with zeros)."""
    kick, _, carry, _ = kick_and_carry(momentum, nesterov)
    kick *= learning_rate
    carry *= learning_rate
    fresh = 1.0 - averaging
    bits = 0
    while steps >> bits > 1:
        bits += 1
    keeps = np.zeros(bits + 1)  # what the average keeps of itself over steps >> bit steps
    if averaging > 0.0:
        for bit in range(bits + 1):
            keeps[bit] = np.exp((steps >> bit) * np.log1p(-fresh))
    work = np.empty((14, LANES))
    total = 0.0
    for first in range(0, curvature.size, LANES):
        for i in range(LANES):
            a = curvature[first + i] * kick
            b = curvature[first + i] * carry
            work[0, i] = -a
            work[1, i] = -b
            work[2, i] = 1.0
            work[3, i] = momentum - 1.0
            work[4, i] = a * a
            work[5, i] = -a
            work[6, i] = 1.0
            work[7, i] = a
            work[8, i] = b
            work[9, i] = fresh * (1.0 - a)
            work[10, i] = -fresh * b
            work[11, i] = fresh * a * a
            work[12, i] = -fresh * a
            work[13, i] = fresh * a * fresh * a
        for bit in range(bits - 1, -1, -1):
            keep = keeps[bit + 1]
            if averaging > 0.0:
                _double_average(work, keep)
            _double_core(work)
            if (steps >> bit) & 1:
                if averaging > 0.0:
                    _step_average(work, keep * keep, averaging, fresh)
                _step_core(work, momentum)
        for i in range(LANES):
            v = work[9, i] + keeps[0] if averaging > 0.0 else 1.0 + work[0, i]
            q = work[13, i] if averaging > 0.0 else work[4, i]
            total += start_weights[first + i] * v * v + noise_weights[first + i] * q
    return total if total < np.inf else np.inf


@inlined
def _double_core(work: FloatArray) -> None:
    """E <- E (2 I + E), Q <- Q + C Q C^T, on rows e11, e12, e21, e22, q11, q12, q22."""
    for i in range(LANES):
        e11, e12, e21, e22 = work[0, i], work[1, i], work[2, i], work[3, i]
        q11, q12, q22 = work[4, i], work[5, i], work[6, i]
        c11 = 1.0 + e11
        c22 = 1.0 + e22
        p11 = c11 * q11 + e12 * q12
        p12 = c11 * q12 + e12 * q22
        p21 = e21 * q11 + c22 * q12
        p22 = e21 * q12 + c22 * q22
        work[4, i] = q11 + (p11 * c11 + p12 * e12)
        work[5, i] = q12 + (p11 * e21 + p12 * c22)
        work[6, i] = q22 + (p21 * e21 + p22 * c22)
        trace = c11 + c22
        cross = e12 * e21
        work[0, i] = e11 * (1.0 + c11) + cross
        work[1, i] = e12 * trace
        work[2, i] = e21 * trace
        work[3, i] = e22 * (1.0 + c22) + cross


@inlined
def _step_core(work: FloatArray, momentum: float) -> None:
    """One step more: Q gains the answer to one more impulse, C is multiplied by the map of a step."""
    for i in range(LANES):
        e11, e12, e21, e22 = work[0, i], work[1, i], work[2, i], work[3, i]
        a, b = work[7, i], work[8, i]
        c11 = 1.0 + e11
        c22 = 1.0 + e22
        y1 = e12 - a * c11
        y2 = c22 - a * e21
        work[4, i] += y1 * y1
        work[5, i] += y1 * y2
        work[6, i] += y2 * y2
        work[0, i] = e11 - (a * c11 + b * e21)
        work[1, i] = e12 - (a * e12 + b * c22)
        work[2, i] = c11 + momentum * e21
        work[3, i] = momentum * c22 + (e12 - 1.0)


@inlined
def _double_average(work: FloatArray, keep: float) -> None:
    """The rows w1, w2, q13, q23, q33 of a doubling; goes before `_double_core`, whose rows it reads."""
    for i in range(LANES):
        c11, c12, c21, c22 = 1.0 + work[0, i], work[1, i], work[2, i], 1.0 + work[3, i]
        q11, q12, q22 = work[4, i], work[5, i], work[6, i]
        w1, w2, q13, q23, q33 = work[9, i], work[10, i], work[11, i], work[12, i], work[13, i]
        p13 = c11 * q13 + c12 * q23
        p23 = c21 * q13 + c22 * q23
        r1 = w1 * q11 + w2 * q12
        r2 = w1 * q12 + w2 * q22
        r3 = w1 * q13 + w2 * q23
        work[11, i] = q13 + (c11 * r1 + c12 * r2 + keep * p13)
        work[12, i] = q23 + (c21 * r1 + c22 * r2 + keep * p23)
        work[13, i] = q33 + (r1 * w1 + r2 * w2 + keep * (2.0 * r3 + keep * q33))
        work[9, i] = w1 * (c11 + keep) + w2 * c21
        work[10, i] = w1 * c12 + w2 * (c22 + keep)


@inlined
def _step_average(work: FloatArray, keep: float, averaging: float, fresh: float) -> None:
    """The same rows of one step more; goes before `_step_core`."""
    for i in range(LANES):
        c11, c12, c21, c22 = 1.0 + work[0, i], work[1, i], work[2, i], 1.0 + work[3, i]
        a, b = work[7, i], work[8, i]
        w1, w2 = work[9, i], work[10, i]
        y1 = c12 - a * c11
        y2 = c22 - a * c21
        y3 = w2 - a * w1 - keep * fresh * a
        work[11, i] += y1 * y3
        work[12, i] += y2 * y3
        work[13, i] += y3 * y3
        work[9, i] = averaging * w1 + fresh * ((1.0 - a) * c11 - b * c21)
        work[10, i] = averaging * w2 + fresh * ((1.0 - a) * c12 - b * c22)


@kernel
def rule_at(point: FloatArray, stiffest: float, nesterov: bool) -> tuple[float, float, float]:
    """Learning rate, momentum and averaging at a point; `stiffest` is the largest curvature."""
    slip = np.exp(-point[1])
    momentum = 1.0 - slip
    limit, _ = _limit_with_tail(momentum, nesterov)
    learning_rate = limit / (stiffest * (1.0 + np.exp(-point[0])))
    return learning_rate, momentum, 1.0 - np.exp(-point[2])


@kernel
def risk_at(
    curvature: FloatArray,
    start_weights: FloatArray,
    noise_weights: FloatArray,
    nesterov: bool,
    steps: int,
    point: FloatArray,
) -> float:
    """Risk of the rule at a point, inf outside the corners of the search."""
    for d in range(3):
        if not LOWEST[d] <= point[d] <= HIGHEST[d]:
            return np.inf
    learning_rate, momentum, averaging = rule_at(point, curvature.max(), nesterov)
    return quick_risk(curvature, start_weights, noise_weights, learning_rate, momentum, nesterov, averaging, steps)


@kernel
def scan(
    curvature: FloatArray,
    start_weights: FloatArray,
    noise_weights: FloatArray,
    nesterov: bool,
    steps: int,
    points: FloatArray,
) -> FloatArray:
    """Risks at many points."""
    risks = np.empty(points.shape[0])
    for j in range(points.shape[0]):
        risks[j] = risk_at(curvature, start_weights, noise_weights, nesterov, steps, points[j])
    return risks


@kernel
def descend(
    curvature: FloatArray,
    start_weights: FloatArray,
    noise_weights: FloatArray,
    nesterov: bool,
    steps: int,
    start: FloatArray,
    widths: FloatArray,
    free: BoolArray,
    tolerance: float,
) -> tuple[FloatArray, float]:
    """A local minimum of the risk over the free dimensions, by Nelder and Mead's simplex.

    Ends when the corners' risks agree to `tolerance`, relatively.
    """
    axes = np.flatnonzero(free)
    corners = np.empty((axes.size + 1, 3))
    values = np.empty(axes.size + 1)
    for j in range(axes.size + 1):
        corners[j] = start
        if j > 0:
            d = axes[j - 1]
            corners[j, d] += widths[d]
            if corners[j, d] > HIGHEST[d]:
                corners[j, d] -= 2.0 * widths[d]
        values[j] = risk_at(curvature, start_weights, noise_weights, nesterov, steps, corners[j])
    for _ in range(_MOST_MOVES):
        order = np.argsort(values)
        corners = corners[order]
        values = values[order]
        if values[-1] - values[0] <= tolerance * values[0]:
            break
        middle = corners[:-1].sum(axis=0) / axes.size
        away = middle - corners[-1]
        mirrored = middle + away
        value = risk_at(curvature, start_weights, noise_weights, nesterov, steps, mirrored)
        if value < values[0]:
            further = middle + 2.0 * away
            far = risk_at(curvature, start_weights, noise_weights, nesterov, steps, further)
            if far < value:
                mirrored, value = further, far
        elif value >= values[-2]:
            if value < values[-1]:
                corners[-1] = mirrored
                values[-1] = value
                mirrored = middle + 0.5 * away
            else:
                mirrored = middle - 0.5 * away
            value = risk_at(curvature, start_weights, noise_weights, nesterov, steps, mirrored)
        if value < values[-1]:
            corners[-1] = mirrored
            values[-1] = value
        else:
            for j in range(1, axes.size + 1):
                corners[j] = 0.5 * (corners[0] + corners[j])
                values[j] = risk_at(curvature, start_weights, noise_weights, nesterov, steps, corners[j])
    best = np.argmin(values)
    return corners[best], values[best]
