"""The first step that reaches a target, by branch and bound over stretches of steps; notation as in `maps`."""

import numpy as np

from batchlens.theory.arrays import FloatArray, IntArray
from batchlens.theory.kernels.compiling import kernel
from batchlens.theory.kernels.maps import (
    MAP_SIZE,
    MOST_LEVELS,
    State,
    advance,
    as_tuple,
    double_map,
    evolve,
    largest_entry,
    mirrored,
    one_step,
    start_of,
    weigh,
)

# How the deterministic part of a coordinate moves between two ends of a stretch of steps, so that the least
# |v| in it has a lower bound.  ENDS: the least is at an end (both ends even, or one step apart).  SWING: complex
# roots without averaging, v = rho^j R cos(phi j + psi).  FOLLOW: the average follows a theta whose size is bounded.
# WILD: no bound but 0.
ENDS, SWING, FOLLOW, WILD = 0, 1, 2, 3

REACHED, NEVER, BEYOND, UNDECIDED = 0, 1, 2, 3
# Stretches of at most this many steps are walked step by step where something oscillates.
WALK = 32
# What looking at a stretch costs a coordinate, in steps of a walk.
LOOK = 16
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
    if mirrored(a, momentum, nesterov):
        trace = -trace
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
        step = as_tuple(maps[i], MAP_SIZE)
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
                abs(maps[i, 8]),
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
    moving = np.empty((10, n))
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
            moving[7, used] = 1.0 - abs(maps[i, 8])
            moving[8, used] = start_weights[i]
            moving[9, used] = maps[i, 4]
            used += 1
    sizes = np.empty(used)
    states = np.empty((n, 9))
    for step in range(1, length + 1):
        for i in range(used):
            theta = moving[0, i]
            u = moving[1, i]
            moving[1, i] = moving[9, i] * theta + moving[5, i] * u
            theta = moving[3, i] * theta + moving[4, i] * u
            moving[0, i] = theta
            v = moving[6, i] * moving[2, i] + moving[7, i] * theta
            moving[2, i] = v
            sizes[i] = moving[8, i] * v * v
        if floor + sizes.sum() <= target * MARGIN:
            for i in range(n):
                state = evolve(as_tuple(maps[i], MAP_SIZE), step, 1.0, as_tuple(begin[i], 9))
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
    maps = np.empty((MOST_LEVELS, n, MAP_SIZE))
    moduli = np.empty((MOST_LEVELS, n))
    states = np.empty((MOST_LEVELS + 1, n, 9))  # states[0]: where the search stands; then a stack of ends
    levels = np.empty(MOST_LEVELS + 1, np.int64)
    swinging = False
    for i in range(n):
        kinds[i], moduli[0, i], turns[i], widths[i] = classify(rates[i], momentum, nesterov, averaging)
        swinging = swinging or (kinds[i] != ENDS and start_weights[i] > 0.0)
        step = one_step(rates[i], rate_tails[i], momentum, nesterov, averaging)
        traces[i] = step[0] + step[6]
        for j in range(MAP_SIZE):
            maps[0, i, j] = step[j]
        state = start_of(mirrored(rates[i], momentum, nesterov))
        for j in range(9):
            states[0, i, j] = state[j]
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
                    step = double_map(as_tuple(maps[built, i], MAP_SIZE))
                    for j in range(MAP_SIZE):
                        maps[level, i, j] = step[j]
                    moduli[level, i] = moduli[built, i] ** 2
                built = level
            top = 1
            levels[1] = level
            advance_all(maps[level], here, states[1])
        level = levels[top]
        length = 1 << level
        end = states[top]
        work += LOOK * (n + 2)
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
