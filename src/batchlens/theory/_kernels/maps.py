"""Maps of many steps.

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

Coordinates go in lanes of `LANES`.  Arrays of lanes hold a map in 18 rows, a state in 9, a coordinate a column.  Loops
over the columns become vector instructions where the rows' number and length are constant and what is read and what is
written are one place, neighbours, or of different arrays.
"""

import numpy as np

from batchlens._arrays import FloatArray
from batchlens.theory._kernels.compiling import LANES, fused_multiply_add, kernel, merged
from batchlens.theory._kernels.update import kick_and_carry, limit_with_tail

Map = tuple[float, ...]
State = tuple[float, ...]

# |entries| of a map below which nothing of the state it is applied to is left, squares included.
VANISHED = 1e-170
# Binary digits of the largest step count.
MOST_LEVELS = 63
MAP_SIZE = 18
STATE_SIZE = 9
DIVERGED: State = (np.inf, np.inf, np.inf, np.inf, np.inf, np.inf, np.inf, np.inf, np.inf)

_limit_with_tail = merged(limit_with_tail)


@merged
def add(x: float, dx: float, y: float, dy: float) -> tuple[float, float]:
    """Double-double sum."""
    total = x + y
    part = total - x
    error = (x - (total - part)) + (y - part) + (dx + dy)
    result = total + error
    return result, error - (result - total)


@merged
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
def one_step(a: float, da: float, momentum: float, nesterov: bool, averaging: float) -> Map:
    """The map of a single step, which `update` tells; a + da is the rate.

    Heavy ball near its limit a = 2 (1 + momentum) has roots near -1, where theta and u nearly cancel in
    theta(t) + theta(t-1) = 2 theta + a u and every digit may be lost.  There phi(t) = (-1)^t theta(t) is followed: it
    moves like a heavy ball of rate 2 (1 + momentum) - a, its average with coefficient -averaging.  The state is
    (phi, p, v) with p = phi(t-1) - phi(t), v up to the same sign.
    """
    fresh = 1.0 - averaging
    if mirrored(a, momentum, nesterov):
        limit, dlimit = _limit_with_tail(momentum, nesterov)
        below, dbelow = add(limit, dlimit, -a, -da)
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
    kick, dkick, carry, dcarry = kick_and_carry(momentum, nesterov)
    kick, dkick = multiply(a, da, kick, dkick)
    carry, dcarry = multiply(a, da, carry, dcarry)
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


@merged
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


@merged
def move_point(step: Map, point: Map) -> Map:
    """(theta, u, v) after the steps of a map, noise off."""
    c11, _, c12, _, c21, _, c22, _, g, _, w1, w2 = step[:12]
    theta, u, v = point
    return c11 * theta + c12 * u, c21 * theta + c22 * u, w1 * theta + w2 * u + g * v


@merged
def move(step: Map, variance: float, state: State) -> State:
    """The state after the steps of a map, under noise of the given variance."""
    q11, q12, q22, q13, q23, q33 = step[12:]
    theta, u, v = move_point(step, state[:3])
    s11, s12, s22, s13, s23, s33 = sandwich(step, state[3:])
    return (
        theta,
        u,
        v,
        s11 + variance * q11,
        s12 + variance * q12,
        s22 + variance * q22,
        s13 + variance * q13,
        s23 + variance * q23,
        s33 + variance * q33,
    )


@merged
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


@merged
def load_map(rows: FloatArray, i: int) -> Map:
    """The map in lane i."""
    return (
        rows[0, i], rows[1, i], rows[2, i], rows[3, i], rows[4, i], rows[5, i], rows[6, i], rows[7, i], rows[8, i],
        rows[9, i], rows[10, i], rows[11, i], rows[12, i], rows[13, i], rows[14, i], rows[15, i], rows[16, i],
        rows[17, i],
    )  # fmt: skip


@merged
def load_state(rows: FloatArray, i: int) -> State:
    """The state in lane i."""
    return (
        rows[0, i], rows[1, i], rows[2, i], rows[3, i], rows[4, i], rows[5, i], rows[6, i], rows[7, i], rows[8, i],
    )  # fmt: skip


@merged
def store_map(step: Map, rows: FloatArray, i: int) -> None:
    """Write a map to lane i."""
    (
        rows[0, i], rows[1, i], rows[2, i], rows[3, i], rows[4, i], rows[5, i], rows[6, i], rows[7, i], rows[8, i],
        rows[9, i], rows[10, i], rows[11, i], rows[12, i], rows[13, i], rows[14, i], rows[15, i], rows[16, i],
        rows[17, i],
    ) = step  # fmt: skip


@merged
def store_state(state: State, rows: FloatArray, i: int) -> None:
    """Write a state to lane i."""
    (
        rows[0, i], rows[1, i], rows[2, i], rows[3, i], rows[4, i], rows[5, i], rows[6, i], rows[7, i], rows[8, i],
    ) = state  # fmt: skip


@merged
def copy_maps(maps: FloatArray, copies: FloatArray) -> None:
    """Copy a map in every lane."""
    for i in range(LANES):
        store_map(load_map(maps, i), copies, i)


@merged
def copy_states(states: FloatArray, copies: FloatArray) -> None:
    """Copy a state in every lane."""
    for i in range(LANES):
        store_state(load_state(states, i), copies, i)


@merged
def double_maps(maps: FloatArray, doubled: FloatArray) -> None:
    """`double_map` in every lane; a map that outgrows the range of a double ends in infinities and NaNs."""
    for i in range(LANES):
        store_map(double_map(load_map(maps, i)), doubled, i)


@merged
def settled(maps: FloatArray) -> bool:
    """Whether doubling changes no lane any more: nothing is left of A^n, or it is out of range."""
    moving = 0
    for i in range(LANES):
        c11, _, c12, _, c21, _, c22, _, g, _, w1, w2 = load_map(maps, i)[:12]
        size = abs(c11) + abs(c12) + abs(c21) + abs(c22) + abs(g) + abs(w1) + abs(w2)
        moving += VANISHED <= size < np.inf
    return moving == 0


@merged
def advance(maps: FloatArray, variance: float, begin: FloatArray, end: FloatArray) -> None:
    """`move` in every lane, from the states `begin` to `end`; these may be DIVERGED, never NaN."""
    for i in range(LANES):
        state = move(load_map(maps, i), variance, load_state(begin, i))
        store_state(state if abs(state[2]) + state[8] < np.inf else DIVERGED, end, i)


@merged
def weigh(weights: FloatArray, states: FloatArray, sums: FloatArray) -> None:
    """Add risk left of the start (row 0) and risk from noise (row 1) to every lane's sums; no weight, no risk."""
    for i in range(LANES):
        start, noise, v, q = weights[0, i], weights[1, i], states[2, i], states[8, i]
        sums[0, i] += start * v * v if start > 0.0 and v != 0.0 else 0.0
        sums[1, i] += noise * q if noise > 0.0 and q > 0.0 else 0.0


@kernel
def sum_lanes(sums: FloatArray) -> FloatArray:
    """Sums over lanes: start and noise (rows) at each of several moments."""
    totals = np.zeros((2, sums.shape[0]))
    for j in range(sums.shape[0]):
        for row in range(2):
            totals[row, j] = sums[j, row].sum()
    return totals


@merged
def fill_table(most: int, table: FloatArray) -> int:
    """From maps of 1 step those of 2, 4, 8, ...: `most` in all, or until nothing changes any more; how many."""
    levels = 1
    while levels < most and not settled(table[levels - 1]):
        double_maps(table[levels - 1], table[levels])
        levels += 1
    return levels


@merged
def follow(table: FloatArray, levels: int, steps: int, variance: float, states: FloatArray) -> None:
    """Advance the states by any number of steps, in a cost that grows with its logarithm."""
    for level in range(levels):
        rest = steps >> level
        if rest & 1 or (rest > 0 and level == levels - 1):
            advance(table[level], variance, states, states)


@kernel
def digits(steps: int) -> int:
    """How many binary digits a step count has."""
    count = 0
    while steps >> count > 0:
        count += 1
    return count


@merged
def in_lanes(start_weights: FloatArray, noise_weights: FloatArray) -> FloatArray:
    """The weights of start (row 0) and noise (row 1) in every block of lanes; lanes to spare have none."""
    weights = np.zeros((-(-start_weights.size // LANES), 2, LANES))
    for i in range(start_weights.size):
        weights[i // LANES, 0, i % LANES] = start_weights[i]
        weights[i // LANES, 1, i % LANES] = noise_weights[i]
    return weights


@kernel
def set_out(
    rates: FloatArray, rate_tails: FloatArray, momentum: float, nesterov: bool, averaging: float,
    block: int, maps: FloatArray, states: FloatArray,
) -> None:  # fmt: skip
    """Every lane's map of a single step and state before the first; lanes to spare repeat the last coordinate."""
    for i in range(LANES):
        at = min(block * LANES + i, rates.size - 1)
        store_map(one_step(rates[at], rate_tails[at], momentum, nesterov, averaging), maps, i)
        store_state(start_of(mirrored(rates[at], momentum, nesterov)), states, i)
