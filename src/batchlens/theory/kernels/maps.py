"""Maps of many steps, and the exact risk that they give.

Notation, per coordinate:
    a       dimensionless rate, learning_rate * h^(1 - power)
    theta   the parameter; u = m / h^(1 - power), the momentum buffer in theta's units; v, the average
    z       the state (theta, u, v); one step is z <- A z + b * noise, with noise of variance c / (B h^2)
    x       v after t steps from z = (1, 0, 1), noise off: the deterministic risk is h s x^2 / 2
    q       variance of v after t steps from z = 0, unit noise: the noise risk is c q / (2 B h)

A has the block form [[C, 0], [w, g]]: the 2x2 core C of (theta, u) drives the average, which drives nothing.
A map stands for n steps.  It holds C^n and g^n in double-double (a value and what rounding took from it:
1 - 1e-12 raised to the 10^12 is wrong in its fourth digit in plain doubles), then w, then the covariance that
n steps of unit noise build up from nothing:

    (c11, d11, c12, d12, c21, d21, c22, d22, g, dg, w1, w2, q11, q12, q22, q13, q23, q33)

Only C and g need the second double: an error in them grows with the number of steps, one in w or q only with
the number of doublings.  A state is a tuple (theta, u, v, s11, s12, s22, s13, s23, s33): what the starting point
has become, and the covariance that the noise has built up.
"""

from typing import Any

import numba
import numpy as np
from numba.extending import intrinsic
from numba.np.unsafe.ndarray import to_fixed_tuple

from batchlens.theory.arrays import BoolArray, FloatArray, IntArray
from batchlens.theory.kernels.compiling import kernel

Map = tuple[float, ...]
State = tuple[float, ...]

# |entries| of a map beyond which the risk, which squares them, is about to leave the range of a double.
OVERFLOW = 1e150
# |entries| of a map below which nothing of the state it is applied to is left, squares included.
VANISHED = 1e-170
# 2^MOST_DOUBLINGS steps outlast every decay that a double can tell from none.
MOST_DOUBLINGS = 1100
# Step counts have at most so many binary digits.
MOST_LEVELS = 63
MAP_SIZE = 18
DIVERGED: State = (np.inf, np.inf, np.inf, np.inf, np.inf, np.inf, np.inf, np.inf, np.inf)


def _fused_multiply_add(_context: Any, x: Any, y: Any, z: Any) -> Any:
    """x * y + z with one rounding (an instruction of the processor)."""
    float64 = numba.types.float64

    def generate(_codegen: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.fma(*arguments)

    return float64(float64, float64, float64), generate


fused_multiply_add: Any = intrinsic(_fused_multiply_add)
as_tuple: Any = to_fixed_tuple


@kernel
def add(x: float, dx: float, y: float, dy: float) -> tuple[float, float]:
    """Double-double sum."""
    total = x + y
    part = total - x
    error = (x - (total - part)) + (y - part) + (dx + dy)
    result = total + error
    return result, error - (result - total)


@kernel
def multiply(x: float, dx: float, y: float, dy: float) -> tuple[float, float]:
    """Double-double product."""
    product = x * y
    error = fused_multiply_add(x, y, -product) + (x * dy + dx * y)
    result = product + error
    return result, error - (result - product)


@kernel
def mirrored(a: float, momentum: float, nesterov: bool) -> bool:
    """Whether a coordinate is followed as (-1)^t z, see `one_step`."""
    return not nesterov and a > 1.0 + momentum


@kernel
def start_of(mirror: bool) -> State:
    """The state before the first step: theta = v = 1, u = 0."""
    return (1.0, -2.0 if mirror else 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)


@kernel
def reflect(a: float, state: State) -> State:
    """(theta, u, v) as the (phi, p, v) of `one_step`."""
    theta, u, v, s11, s12, s22, s13, s23, s33 = state
    return (
        theta,
        -(2.0 * theta + a * u),
        v,
        s11,
        -(2.0 * s11 + a * s12),
        4.0 * s11 + 4.0 * a * s12 + a * a * s22,
        s13,
        -(2.0 * s13 + a * s23),
        s33,
    )


@kernel
def reflect_back(a: float, odd: bool, state: State) -> State:
    """(phi, p, v) after an odd or even number of steps as (theta, u, v)."""
    phi, p, v, s11, s12, s22, s13, s23, s33 = state
    sign = -1.0 if odd else 1.0
    return (
        sign * phi,
        -sign * (2.0 * phi + p) / a,
        sign * v,
        s11,
        -(2.0 * s11 + s12) / a,
        (4.0 * s11 + 4.0 * s12 + s22) / a / a,
        s13,
        -(2.0 * s13 + s23) / a,
        s33,
    )


@kernel
def one_step(a: float, da: float, momentum: float, nesterov: bool, averaging: float) -> Map:
    """The map of a single step; a + da is the rate.  Another update rule is another choice of these numbers.

    Heavy ball: theta <- theta - a (momentum u + theta + noise).
    Nesterov: theta <- theta - a (1 + momentum) (theta + noise) - a momentum^2 u.

    Heavy ball near its limit a = 2 (1 + momentum) has roots near -1, where theta and u nearly cancel in
    theta(t) + theta(t-1) = 2 theta + a u and every digit may be lost.  There phi(t) = (-1)^t theta(t) is followed: it
    moves like a heavy ball of rate 2 (1 + momentum) - a, its average with coefficient -averaging.  The state is
    (phi, p, v) with p = phi(t-1) - phi(t), v up to the same sign.
    """
    fresh = 1.0 - averaging
    if mirrored(a, momentum, nesterov):
        below, dbelow = add(2.0, 0.0, 2.0 * momentum, 0.0)
        below, dbelow = add(below, dbelow, -a, -da)
        c11, d11 = add(1.0, 0.0, -below, -dbelow)
        b3 = -fresh * a
        return (
            c11,
            d11,
            -momentum,
            0.0,
            below,
            dbelow,
            momentum,
            0.0,
            -averaging,
            0.0,
            fresh * c11,
            -fresh * momentum,
            a * a,
            -a * a,
            a * a,
            -a * b3,
            a * b3,
            b3 * b3,
        )
    kick, dkick = a, da
    carry, dcarry = multiply(a, da, momentum, 0.0)
    if nesterov:
        kick, dkick = add(a, da, carry, dcarry)
        carry, dcarry = multiply(carry, dcarry, momentum, 0.0)
    c11, d11 = add(1.0, 0.0, -kick, -dkick)
    b3 = -fresh * kick
    return (
        c11,
        d11,
        -carry,
        -dcarry,
        1.0,
        0.0,
        momentum,
        0.0,
        averaging,
        0.0,
        fresh * c11,
        -fresh * carry,
        kick * kick,
        -kick,
        1.0,
        -kick * b3,
        b3,
        b3 * b3,
    )


@kernel
def sandwich(step: Map, s: State) -> State:
    """A^n S A^nT for a covariance S = (s11, s12, s22, s13, s23, s33)."""
    c11, _, c12, _, c21, _, c22, _, g, _, w1, w2 = step[:12]
    s11, s12, s22, s13, s23, s33 = s
    p11 = c11 * s11 + c12 * s12
    p12 = c11 * s12 + c12 * s22
    p13 = c11 * s13 + c12 * s23
    p21 = c21 * s11 + c22 * s12
    p22 = c21 * s12 + c22 * s22
    p23 = c21 * s13 + c22 * s23
    p31 = w1 * s11 + w2 * s12 + g * s13
    p32 = w1 * s12 + w2 * s22 + g * s23
    p33 = w1 * s13 + w2 * s23 + g * s33
    return (
        p11 * c11 + p12 * c12,
        p11 * c21 + p12 * c22,
        p21 * c21 + p22 * c22,
        p11 * w1 + p12 * w2 + p13 * g,
        p21 * w1 + p22 * w2 + p23 * g,
        p31 * w1 + p32 * w2 + p33 * g,
    )


@kernel
def move(step: Map, variance: float, state: State) -> State:
    """The state after the steps of a map, under noise of the given variance."""
    c11, _, c12, _, c21, _, c22, _, g, _, w1, w2, q11, q12, q22, q13, q23, q33 = step
    theta, u, v = state[:3]
    s11, s12, s22, s13, s23, s33 = sandwich(step, state[3:])
    return (
        c11 * theta + c12 * u,
        c21 * theta + c22 * u,
        w1 * theta + w2 * u + g * v,
        s11 + variance * q11,
        s12 + variance * q12,
        s22 + variance * q22,
        s13 + variance * q13,
        s23 + variance * q23,
        s33 + variance * q33,
    )


@kernel
def double_map(step: Map) -> Map:
    """The map of twice as many steps."""
    c11, d11, c12, d12, c21, d21, c22, d22, g, dg, w1, w2, q11, q12, q22, q13, q23, q33 = step
    s11, s12, s22, s13, s23, s33 = sandwich(step, step[12:])
    w1, w2 = w1 * (c11 + g) + w2 * c21, w2 * (c22 + g) + w1 * c12
    trace, dtrace = add(c11, d11, c22, d22)
    cross, dcross = multiply(c12, d12, c21, d21)
    c11, d11 = multiply(c11, d11, c11, d11)
    c11, d11 = add(c11, d11, cross, dcross)
    c22, d22 = multiply(c22, d22, c22, d22)
    c22, d22 = add(c22, d22, cross, dcross)
    c12, d12 = multiply(c12, d12, trace, dtrace)
    c21, d21 = multiply(c21, d21, trace, dtrace)
    g, dg = multiply(g, dg, g, dg)
    return (
        c11,
        d11,
        c12,
        d12,
        c21,
        d21,
        c22,
        d22,
        g,
        dg,
        w1,
        w2,
        q11 + s11,
        q12 + s12,
        q22 + s22,
        q13 + s13,
        q23 + s23,
        q33 + s33,
    )


@kernel
def largest_entry(step: Map) -> float:
    """The largest magnitude in A^n."""
    c11, _, c12, _, c21, _, c22, _, g, _, w1, w2 = step[:12]
    core = max(abs(c11), abs(c12), abs(c21), abs(c22))
    return max(core, abs(w1), abs(w2), abs(g))


@kernel
def advance(step: Map, size: float, variance: float, state: State) -> State:
    """`move` that ends in DIVERGED, never in a NaN; `size` is the map's largest entry."""
    if size < OVERFLOW:
        state = move(step, variance, state)
        if abs(state[2]) + state[8] < np.inf:
            return state
    return DIVERGED


@kernel
def evolve(step: Map, steps: int, variance: float, state: State) -> State:
    """The state after any number of steps, in a cost that grows with its logarithm."""
    while steps > 0:
        size = largest_entry(step)
        settled = size < VANISHED or not size < OVERFLOW
        if steps & 1 or settled:
            state = advance(step, size, variance, state)
        if settled or state[2] == np.inf:
            break
        steps >>= 1
        if steps > 0:
            step = double_map(step)
    return state


@kernel
def weigh(start_weight: float, noise_weight: float, state: State) -> tuple[float, float]:
    """Risk that is left of the start and risk that the noise has added; no weight, no risk."""
    start = start_weight * state[2] * state[2] if start_weight > 0.0 and state[2] != 0.0 else 0.0
    noise = noise_weight * state[8] if noise_weight > 0.0 and state[8] > 0.0 else 0.0
    return start, noise


@kernel
def fill_table(step: Map, longest: int, table: FloatArray) -> int:
    """Maps of 1, 2, 4, ... steps, up to `longest` or until nothing changes any more; how many there are."""
    levels = 0
    while True:
        for j in range(MAP_SIZE):
            table[levels, j] = step[j]
        levels += 1
        size = largest_entry(step)
        if longest >> levels == 0 or size < VANISHED or not size < OVERFLOW:
            return levels
        step = double_map(step)


@kernel
def follow(table: FloatArray, levels: int, steps: int, state: State) -> State:
    """As `evolve`, under unit noise, from a table of maps."""
    for level in range(levels):
        rest = steps >> level
        if rest & 1 or (rest > 0 and level == levels - 1):
            step = as_tuple(table[level], MAP_SIZE)
            state = advance(step, largest_entry(step), 1.0, state)
            if state[2] == np.inf:
                break
    return state


@kernel
def sum_risk(
    rates: FloatArray,
    rate_tails: FloatArray,
    start_weights: FloatArray,
    noise_weights: FloatArray,
    momentum: float,
    nesterov: bool,
    averaging: float,
    steps: IntArray,
) -> FloatArray:
    """Risk left of the start (row 0) and risk from noise (row 1) at each of several step counts."""
    sums = np.zeros((2, steps.size))
    table = np.empty((MOST_LEVELS, MAP_SIZE))
    longest = steps.max()
    for i in range(rates.size):
        step = one_step(rates[i], rate_tails[i], momentum, nesterov, averaging)
        begin = start_of(mirrored(rates[i], momentum, nesterov))
        levels = fill_table(step, longest, table)
        for j in range(steps.size):
            state = follow(table, levels, steps[j], begin)
            start, noise = weigh(start_weights[i], noise_weights[i], state)
            sums[0, j] += start
            sums[1, j] += noise
    return sums


@kernel
def sum_risk_path(
    rates: FloatArray,
    rate_tails: FloatArray,
    buffer_scales: FloatArray,
    start_weights: FloatArray,
    noise_weights: FloatArray,
    momenta: FloatArray,
    nesterov: BoolArray,
    averagings: FloatArray,
    variances: FloatArray,
    lengths: IntArray,
) -> FloatArray:
    """As `sum_risk`, after each of several pieces.

    `buffer_scales` turns u of the piece before into u of this one (m itself is what lives on).
    """
    pieces, n = rates.shape
    sums = np.zeros((2, pieces))
    for i in range(n):
        state = start_of(False)
        for j in range(pieces):
            scale = buffer_scales[j, i]
            if scale != 1.0 and state[2] != np.inf:
                theta, u, v, s11, s12, s22, s13, s23, s33 = state
                state = (
                    theta,
                    u * scale,
                    v,
                    s11,
                    s12 * scale,
                    s22 * scale * scale,
                    s13,
                    s23 * scale,
                    s33,
                )
            step = one_step(rates[j, i], rate_tails[j, i], momenta[j], nesterov[j], averagings[j])
            mirror = mirrored(rates[j, i], momenta[j], nesterov[j])
            if mirror and state[2] != np.inf:
                state = reflect(rates[j, i], state)
            state = evolve(step, lengths[j], variances[j], state)
            if mirror and state[2] != np.inf:
                state = reflect_back(rates[j, i], lengths[j] & 1 == 1, state)
            start, noise = weigh(start_weights[i], noise_weights[i], state)
            sums[0, j] += start
            sums[1, j] += noise
    return sums


@kernel
def sum_steady_state(
    rates: FloatArray,
    rate_tails: FloatArray,
    start_weights: FloatArray,
    noise_weights: FloatArray,
    momentum: float,
    nesterov: bool,
    averaging: float,
) -> float:
    """Limit of the risk over endless steps."""
    total = 0.0
    for i in range(rates.size):
        step = one_step(rates[i], rate_tails[i], momentum, nesterov, averaging)
        size = largest_entry(step)
        for _ in range(MOST_DOUBLINGS):
            if size < VANISHED or not size < OVERFLOW:
                break
            step = double_map(step)
            size = largest_entry(step)
        state = advance(step, size, 1.0, start_of(mirrored(rates[i], momentum, nesterov)))
        start, noise = weigh(start_weights[i], noise_weights[i], state)
        total += start + noise
    return total
