"""Compiled kernels: scalar code that numba turns into machine code.

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

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba
import numpy as np
from numba.extending import intrinsic
from numba.np.unsafe.ndarray import to_fixed_tuple

from batchlens.theory.arrays import BoolArray, FloatArray, IntArray

_F = TypeVar("_F", bound=Callable[..., Any])

Map = tuple[float, ...]
State = tuple[float, ...]

# |entries| of a map beyond which the risk, which squares them, is about to leave the range of a double.
OVERFLOW = 1e150
# |entries| of a map below which nothing of the state it is applied to is left, squares included.
VANISHED = 1e-170
# 2^MOST_DOUBLINGS steps outlast every decay that a double can tell from none.
MOST_DOUBLINGS = 1100
START: State = (1.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
DIVERGED: State = (np.inf, np.inf, np.inf, np.inf, np.inf, np.inf, np.inf, np.inf, np.inf)


def kernel(function: _F) -> _F:
    """Compile `function` on first use and keep the machine code on disk."""
    compiled: Any = numba.njit(cache=True, error_model="numpy")(function)
    return cast(_F, compiled)


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
def one_step(a: float, da: float, momentum: float, nesterov: bool, averaging: float) -> Map:
    """The map of a single step; a + da is the rate.  Another update rule is another choice of these numbers.

    Heavy ball: theta <- theta - a (momentum u + theta + noise).
    Nesterov: theta <- theta - a (1 + momentum) (theta + noise) - a momentum^2 u.
    """
    kick, dkick = a, da
    carry, dcarry = multiply(a, da, momentum, 0.0)
    if nesterov:
        kick, dkick = add(a, da, carry, dcarry)
        carry, dcarry = multiply(carry, dcarry, momentum, 0.0)
    c11, d11 = add(1.0, 0.0, -kick, -dkick)
    fresh = 1.0 - averaging
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
    return max(core, abs(w1), abs(w2), g)


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
    """Risk left of the start (row 0) and risk from noise (row 1) at each of rising step counts."""
    sums = np.zeros((2, steps.size))
    for i in range(rates.size):
        step = one_step(rates[i], rate_tails[i], momentum, nesterov, averaging)
        state = START
        done = 0
        for j in range(steps.size):
            state = evolve(step, steps[j] - done, 1.0, state)
            done = steps[j]
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
        state = START
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
            state = evolve(step, lengths[j], variances[j], state)
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
        start, noise = weigh(start_weights[i], noise_weights[i], advance(step, size, 1.0, START))
        total += start + noise
    return total


# How the deterministic part of a coordinate moves between two ends of a stretch of steps, so that the least
# |v| in it has a lower bound.  ENDS: the least is at an end (both ends even, or one step apart).  SWING: complex
# roots without averaging, v = rho^j R cos(phi j + psi).  FOLLOW: the average follows a theta whose size is bounded.
# WILD: no bound but 0.
ENDS, SWING, FOLLOW, WILD = 0, 1, 2, 3

REACHED, NEVER, BEYOND, UNDECIDED = 0, 1, 2, 3
# Stretches of at most this many steps are walked step by step where something oscillates.
WALK = 32
# Stretches double at the most this often.
MOST_LEVELS = 63
# A bound this close above the target is not trusted: rounding may have lifted it there.
MARGIN = 1.0 + 1e-12


@kernel
def classify(a: float, momentum: float, nesterov: bool, averaging: float) -> tuple[int, float, float, float]:
    """How a coordinate moves: kind, modulus and argument of its complex roots, sqrt(-discriminant).

    That |v| has its least value at an end follows from the solution from rest, v = (r1^t (r1 - beta) -
    r2^t (r2 - beta)) / (r1 - r2): of one sign and falling where the roots are positive; a difference of two
    exponentials, which rises to one peak at the most, where both are negative; where the signs differ
    (Nesterov beyond a = 1) even steps lie below odd ones and behave like the former.
    """
    if momentum == 0.0:
        return (ENDS if averaging == 0.0 or a <= 1.0 else FOLLOW), 0.0, 0.0, 0.0
    if nesterov:
        trace = (1.0 + momentum) * (1.0 - a)
        product = momentum * (1.0 - a)
        discriminant = (1.0 - a) * ((1.0 - momentum) ** 2 - a * (1.0 + momentum) ** 2)
        overdamped = a < 1.0
    else:
        root = np.sqrt(momentum)
        trace = 1.0 - a + momentum
        product = momentum
        damped = ((1.0 - momentum) / (1.0 + root)) ** 2
        discriminant = (damped - a) * ((1.0 + root) ** 2 - a)
        overdamped = a <= damped
    if discriminant >= 0.0:
        return (ENDS if averaging == 0.0 or overdamped else WILD), 0.0, 0.0, 0.0
    width = np.sqrt(-discriminant)
    kind = SWING if averaging == 0.0 else FOLLOW
    return kind, np.sqrt(product), np.arctan2(width, trace), width


@kernel
def least_size(
    kind: int, keep: float, length: int, modulus: float, turn: float, swing: float,
    begin: State, end: State,
) -> float:  # fmt: skip
    """A lower bound of |v| over a stretch of steps.

    keep: what the average keeps of itself over the stretch.  modulus: that of the complex roots, raised to its
    length.  swing: how far theta may get beyond |theta| at the beginning.
    """
    first, last = abs(begin[2]), abs(end[2])
    if kind == ENDS:
        return min(first, last)
    if kind == SWING:
        if length * turn >= np.pi or begin[2] * end[2] <= 0.0:
            return 0.0
        return min(modulus * first, last)
    if kind == FOLLOW:
        size = max(abs(begin[0]), abs(end[0])) if turn == 0.0 else abs(begin[0]) + swing
        return max(0.0, keep * first - (1.0 - keep) * size)
    return 0.0


@kernel
def noise_risk(noise_weights: FloatArray, states: FloatArray) -> float:
    """Risk from noise over all coordinates."""
    total = 0.0
    for i in range(noise_weights.size):
        total += weigh(0.0, noise_weights[i], as_tuple(states[i], 9))[1]
    return total


@kernel
def total_risk(start_weights: FloatArray, noise_weights: FloatArray, states: FloatArray) -> float:
    """Risk over all coordinates."""
    total = 0.0
    for i in range(noise_weights.size):
        start, noise = weigh(start_weights[i], noise_weights[i], as_tuple(states[i], 9))
        total += start + noise
    return total


@kernel
def advance_all(maps: FloatArray, begin: FloatArray, end: FloatArray) -> None:
    """The states after one map a coordinate."""
    for i in range(begin.shape[0]):
        step = as_tuple(maps[i], 18)
        state = advance(step, largest_entry(step), 1.0, as_tuple(begin[i], 9))
        for j in range(9):
            end[i, j] = state[j]


@kernel
def bound_risk(
    start_weights: FloatArray,
    floor: float,
    target: float,
    kinds: IntArray,
    turns: FloatArray,
    widths: FloatArray,
    traces: FloatArray,
    moduli: FloatArray,
    first: FloatArray,
    maps: FloatArray,
    length: int,
    begin: FloatArray,
    end: FloatArray,
) -> float:
    """A lower bound of the risk over a stretch, of which `floor` is the noise's part; stops above target."""
    total = floor
    for i in range(kinds.size):
        if start_weights[i] > 0.0:
            swing = 0.0
            if kinds[i] == FOLLOW and turns[i] > 0.0:
                # theta_j = rho^j (theta_0 cos phi j + eta sin phi j)
                ahead = first[i, 0] * begin[i, 0] + first[i, 2] * begin[i, 1]
                eta = (2.0 * ahead - traces[i] * begin[i, 0]) / widths[i]
                swing = abs(eta) * min(length * turns[i], 1.0)
            size = least_size(
                kinds[i],
                maps[i, 8],
                length,
                moduli[i],
                turns[i],
                swing,
                as_tuple(begin[i], 9),
                as_tuple(end[i], 9),
            )
            if size > 0.0:
                total += start_weights[i] * size * size
                if total > target * MARGIN:
                    break
    return total


@kernel
def walk(
    start_weights: FloatArray,
    noise_weights: FloatArray,
    floor: float,
    target: float,
    kinds: IntArray,
    maps: FloatArray,
    length: int,
    begin: FloatArray,
    end: FloatArray,
) -> int:
    """First of `length` steps whose risk is at or below the target, or 0; `floor` is the noise's part of it.

    Only coordinates that oscillate are walked, noise off; the others are bounded by their ends, and a step that
    might do is looked at in full.
    """
    n = kinds.size
    moving = np.empty((9, n))
    used = 0
    for i in range(n):
        if start_weights[i] == 0.0:
            continue
        if kinds[i] == ENDS:
            size = min(abs(begin[i, 2]), abs(end[i, 2]))
            floor += start_weights[i] * size * size
        else:
            moving[0:3, used] = begin[i, 0:3]
            moving[3, used] = maps[i, 0]
            moving[4, used] = maps[i, 2]
            moving[5, used] = maps[i, 6]
            moving[6, used] = maps[i, 8]
            moving[7, used] = 1.0 - maps[i, 8]
            moving[8, used] = start_weights[i]
            used += 1
    sizes = np.empty(used)
    states = np.empty((n, 9))
    for step in range(1, length + 1):
        for i in range(used):
            theta = moving[0, i]
            u = moving[1, i]
            moving[1, i] = theta + moving[5, i] * u
            theta = moving[3, i] * theta + moving[4, i] * u
            moving[0, i] = theta
            v = moving[6, i] * moving[2, i] + moving[7, i] * theta
            moving[2, i] = v
            sizes[i] = moving[8, i] * v * v
        if floor + sizes.sum() <= target * MARGIN:
            for i in range(n):
                state = evolve(as_tuple(maps[i], 18), step, 1.0, as_tuple(begin[i], 9))
                for j in range(9):
                    states[i, j] = state[j]
            if total_risk(start_weights, noise_weights, states) <= target:
                return step
    return 0


@kernel
def first_hit(
    rates: FloatArray,
    rate_tails: FloatArray,
    start_weights: FloatArray,
    noise_weights: FloatArray,
    momentum: float,
    nesterov: bool,
    averaging: float,
    target: float,
    max_steps: int,
    budget: int,
) -> tuple[int, int]:
    """First step whose risk is at or below the target, and how the search ended.

    Stretches of steps, each twice as long as the one before, are searched from the left: one whose risk has a
    lower bound above the target is passed over, any other is halved.  The noise's part of the risk only grows, so
    its value at the beginning is its lower bound, and once it exceeds the target the search is over.
    """
    n = rates.size
    kinds = np.empty(n, np.int64)
    turns = np.empty(n)
    widths = np.empty(n)
    traces = np.empty(n)
    maps = np.empty((MOST_LEVELS, n, 18))
    moduli = np.empty((MOST_LEVELS, n))
    states = np.empty((MOST_LEVELS + 1, n, 9))  # states[0]: where the search stands; then a stack of ends
    levels = np.empty(MOST_LEVELS + 1, np.int64)
    swinging = False
    for i in range(n):
        kinds[i], moduli[0, i], turns[i], widths[i] = classify(rates[i], momentum, nesterov, averaging)
        swinging = swinging or (kinds[i] != ENDS and start_weights[i] > 0.0)
        step = one_step(rates[i], rate_tails[i], momentum, nesterov, averaging)
        traces[i] = step[0] + step[6]
        for j in range(18):
            maps[0, i, j] = step[j]
        for j in range(9):
            states[0, i, j] = START[j]
    here = states[0]
    if total_risk(start_weights, noise_weights, here) <= target:
        return 0, REACHED
    built = 0
    at = 0
    top = 0
    work = 0
    while at < max_steps or top > 0:
        floor = noise_risk(noise_weights, here)
        if floor > target:
            return 0, NEVER
        if work > budget:
            return 0, UNDECIDED
        if top == 0:
            level = 0
            while at >> (level + 1) > 0:
                level += 1
            if level > built:
                for i in range(n):
                    step = double_map(as_tuple(maps[built, i], 18))
                    for j in range(18):
                        maps[level, i, j] = step[j]
                    moduli[level, i] = moduli[built, i] ** 2
                built = level
            top = 1
            levels[1] = level
            advance_all(maps[level], here, states[1])
        level = levels[top]
        length = 1 << level
        end = states[top]
        work += n
        if level == 0:
            if total_risk(start_weights, noise_weights, end) <= target:
                return (at + 1, REACHED) if at < max_steps else (0, BEYOND)
        elif (
            bound_risk(
                start_weights,
                floor,
                target,
                kinds,
                turns,
                widths,
                traces,
                moduli[level],
                maps[0],
                maps[level],
                length,
                here,
                end,
            )
            <= target * MARGIN
        ):
            if not (swinging and length <= WALK):
                levels[top] = level - 1
                top += 1
                levels[top] = level - 1
                advance_all(maps[level - 1], here, states[top])
                continue
            work += n * length
            found = walk(
                start_weights,
                noise_weights,
                floor,
                target,
                kinds,
                maps[0],
                length,
                here,
                end,
            )
            if found > 0:
                return (at + found, REACHED) if at + found <= max_steps else (0, BEYOND)
        here[:] = end
        at += length
        top -= 1
    return 0, BEYOND


def warm_up() -> None:
    """Compile every kernel that the library calls, so that the machine code is on disk."""
    one = np.ones(1)
    none = np.zeros(1)
    steps = np.ones(1, np.int64)
    sum_risk(one, none, one, one, 0.5, False, 0.5, steps)
    rule = (one, np.zeros(1, np.bool_), one)
    sum_risk_path(one[None], none[None], one[None], one, one, *rule, one, steps)
    sum_steady_state(one, none, one, one, 0.5, False, 0.5)
    first_hit(one, none, one, one, 0.5, False, 0.5, 1.0, 1, 1)


if __name__ == "__main__":
    warm_up()
