"""The first step that reaches a target, by branch and bound over stretches of steps; notation as in `maps`."""

import numpy as np

from batchlens._arrays import FloatArray
from batchlens.theory._kernels.compiling import LANES, kernel, merged
from batchlens.theory._kernels.maps import (
    MAP_SIZE,
    MOST_LEVELS,
    STATE_SIZE,
    advance,
    copy_maps,
    copy_states,
    digits,
    double_maps,
    fill_table,
    follow,
    in_lanes,
    load_map,
    load_state,
    mirrored,
    move_point,
    set_out,
    sum_lanes,
    weigh,
)
from batchlens.theory._kernels.update import characteristic

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

_characteristic = merged(characteristic)


@kernel
def classify(a: float, momentum: float, nesterov: bool, averaging: float) -> tuple[int, float, float, float]:
    """How a coordinate moves: kind, modulus and argument of its complex roots, 1 / sqrt(-discriminant).

    That |v| has its least value at an end follows from the solution from rest, v = (r1^t (r1 - beta) -
    r2^t (r2 - beta)) / (r1 - r2): of one sign and falling where the roots are positive; a difference of two
    exponentials, which rises to one peak at the most, where both are negative; where the signs differ
    (Nesterov beyond a = 1) even steps lie below odd ones and behave like the former.
    """
    if momentum == 0.0:
        return (ENDS if averaging == 0.0 or a <= 1.0 else FOLLOW), 0.0, 0.0, 0.0
    trace, product, damping, other = _characteristic(a, momentum, nesterov)
    discriminant = damping * other
    if discriminant >= 0.0:
        return (ENDS if averaging == 0.0 or damping >= 0.0 else WILD), 0.0, 0.0, 0.0
    width = np.sqrt(-discriminant)
    kind = SWING if averaging == 0.0 else FOLLOW
    if mirrored(a, momentum, nesterov):
        trace = -trace
    return kind, np.sqrt(product), np.arctan2(width, trace), 1.0 / width


@merged
def least_size(
    kind: float, keep: float, length: int, modulus: float, turn: float, swing: float,
    theta: float, first: float, theta_end: float, last: float,
) -> float:  # fmt: skip
    """A lower bound of |v| over a stretch of steps, from theta and v at its ends.

    keep: what the average keeps of itself over the stretch.  modulus: that of the complex roots, raised to its
    length.  swing: how far theta may get beyond |theta| at the beginning.
    """
    if kind == ENDS:
        return min(abs(first), abs(last))
    if kind == SWING:
        together = length * turn < np.pi and first * last > 0.0
        return min(modulus * abs(first), abs(last)) if together else 0.0
    if kind == FOLLOW:
        size = max(abs(theta), abs(theta_end)) if turn == 0.0 else abs(theta) + swing
        return keep * abs(first) - (1.0 - keep) * size
    return 0.0


@merged
def sum_risks(weights: FloatArray, states: FloatArray) -> tuple[float, float]:
    """Risk left of the start and risk from noise, over all coordinates."""
    sums = np.zeros((2, LANES))
    for block in range(states.shape[0]):
        weigh(weights[block], states[block], sums)
    return sums[0].sum(), sums[1].sum()


@merged
def bound_risk(
    weights: FloatArray,
    motions: FloatArray,
    moduli: FloatArray,
    first: FloatArray,
    maps: FloatArray,
    length: int,
    begin: FloatArray,
    end: FloatArray,
) -> float:
    """A lower bound, over a stretch of steps, of the risk that is left of the start."""
    bounds = np.zeros(LANES)
    for block in range(begin.shape[0]):
        for i in range(LANES):
            kind, turn, slope = motions[block, 0, i], motions[block, 1, i], motions[block, 2, i]
            theta, u = begin[block, 0, i], begin[block, 1, i]
            # theta_j = rho^j (theta_0 cos phi j + eta sin phi j)
            eta = ((first[block, 0, i] - first[block, 6, i]) * theta + 2.0 * first[block, 2, i] * u) * slope
            swing = abs(eta) * min(length * turn, 1.0)
            size = least_size(
                kind,
                abs(maps[block, 8, i]),
                length,
                moduli[block, i],
                turn,
                swing,
                theta,
                begin[block, 2, i],
                end[block, 0, i],
                end[block, 2, i],
            )
            weight = weights[block, 0, i]
            bounds[i] += weight * size * size if weight > 0.0 and size > 0.0 else 0.0
    return float(bounds.sum())


@merged
def walk(
    weights: FloatArray,
    target: float,
    maps: FloatArray,
    level: int,
    begin: FloatArray,
) -> int:
    """First of 2^level steps whose risk is at or below the target, or 0.

    What the noise has built up at the beginning stands for what it will have; a step that might do is looked at in
    full.
    """
    blocks = begin.shape[0]
    walked = np.empty((blocks, STATE_SIZE, LANES))
    there = np.empty((blocks, STATE_SIZE, LANES))
    for block in range(blocks):
        copy_states(begin[block], walked[block])
    for step in range(1, (1 << level) + 1):
        for block in range(blocks):
            for i in range(LANES):
                point = load_state(walked[block], i)[:3]
                theta, u, v = move_point(load_map(maps[0, block], i), point)
                walked[block, 0, i], walked[block, 1, i], walked[block, 2, i] = theta, u, v
        if sum(sum_risks(weights, walked)) <= target * MARGIN:
            for block in range(blocks):
                copy_states(begin[block], there[block])
                for bit in range(level + 1):
                    if step >> bit & 1:
                        advance(maps[bit, block], 1.0, there[block], there[block])
            if sum(sum_risks(weights, there)) <= target:
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
    weights = in_lanes(start_weights, noise_weights)
    blocks = weights.shape[0]
    motions = np.empty((blocks, 3, LANES))
    moduli = np.empty((MOST_LEVELS, blocks, LANES))
    maps = np.empty((MOST_LEVELS, blocks, MAP_SIZE, LANES))
    doubled = np.empty((MAP_SIZE, LANES))  # on its way into `maps`
    here = np.empty((blocks, STATE_SIZE, LANES))  # where the search stands
    ends = np.empty((MOST_LEVELS, blocks, STATE_SIZE, LANES))  # a stack of stretches, from 1 on
    levels = np.empty(MOST_LEVELS, np.int64)
    swinging = False
    for block in range(blocks):
        set_out(rates, rate_tails, momentum, nesterov, averaging, block, maps[0, block], here[block])
        for i in range(LANES):
            rate = rates[min(block * LANES + i, n - 1)]
            kind, moduli[0, block, i], turn, slope = classify(rate, momentum, nesterov, averaging)
            motions[block, 0, i], motions[block, 1, i], motions[block, 2, i] = kind, turn, slope
            swinging = swinging or (kind != ENDS and weights[block, 0, i] > 0.0)
    built = at = top = work = 0
    halve = False
    start, floor = sum_risks(weights, here)
    while not start + floor <= target:
        if at >= max_steps and top == 0:
            return 0, BEYOND
        if floor > target:
            return 0, NEVER
        if work > budget:
            return 0, UNDECIDED
        if top == 0 or halve:
            level = levels[top] - 1 if halve else max(digits(at) - 1, 0)
            halve = False
            levels[top] = level  # the second half, which waits
            top += 1
            levels[top] = level
            for block in range(blocks):
                if level > built:
                    double_maps(maps[built, block], doubled)
                    copy_maps(doubled, maps[level, block])
                    for i in range(LANES):
                        moduli[level, block, i] = moduli[built, block, i] ** 2
                advance(maps[level, block], 1.0, here[block], ends[top, block])
            built = max(built, level)
        level = levels[top]
        work += LOOK * (n + 2)
        if level > 0:
            bound = floor + bound_risk(
                weights, motions, moduli[level], maps[0], maps[level], 1 << level, here, ends[top]
            )
            halve = bound <= target * MARGIN and not (swinging and 1 << level <= WALK)
            if halve:
                continue
            if bound <= target * MARGIN:
                work += n << level
                found = walk(weights, target, maps, level, here)
                if found > 0:
                    return (at + found, REACHED) if at + found <= max_steps else (0, BEYOND)
        for block in range(blocks):
            copy_states(ends[top, block], here[block])
        at += 1 << level
        top -= 1
        start, floor = sum_risks(weights, here)
    return (at, REACHED) if at <= max_steps else (0, BEYOND)


@kernel
def look_along(
    rates: FloatArray,
    rate_tails: FloatArray,
    start_weights: FloatArray,
    noise_weights: FloatArray,
    momentum: float,
    nesterov: bool,
    averaging: float,
    begin: int,
    level: int,
    stretches: int,
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Risk left of the start and risk from noise at moments 2^level steps apart, from `begin` on, and lower bounds of
    the former over the stretches between them.

    Block by block: memory does not grow with the number of coordinates.
    """
    n = rates.size
    sums = np.zeros((stretches + 1, 2, LANES))
    bounds = np.zeros(stretches)
    weights = np.empty((1, 2, LANES))
    motions = np.empty((1, 3, LANES))
    moduli = np.empty((1, LANES))
    table = np.empty((MOST_LEVELS, MAP_SIZE, LANES))
    here, there = np.empty((1, STATE_SIZE, LANES)), np.empty((1, STATE_SIZE, LANES))
    most = max(digits(begin), level + 1)
    for block in range(-(-n // LANES)):
        set_out(rates, rate_tails, momentum, nesterov, averaging, block, table[0], here[0])
        for i in range(LANES):
            at = block * LANES + i
            weights[0, 0, i] = start_weights[at] if at < n else 0.0
            weights[0, 1, i] = noise_weights[at] if at < n else 0.0
            kind, modulus, turn, slope = classify(rates[min(at, n - 1)], momentum, nesterov, averaging)
            motions[0, 0, i], motions[0, 1, i], motions[0, 2, i] = kind, turn, slope
            for _ in range(level):
                modulus *= modulus
            moduli[0, i] = modulus
        levels = fill_table(most, table)
        follow(table, levels, begin, 1.0, here[0])
        stride = min(level, levels - 1)
        for j in range(stretches):
            weigh(weights[0], here[0], sums[j])
            advance(table[stride], 1.0, here[0], there[0])
            if level > 0:
                maps = table[stride : stride + 1]
                bounds[j] += bound_risk(weights, motions, moduli, table[:1], maps, 1 << level, here, there)
            copy_states(there[0], here[0])
        weigh(weights[0], here[0], sums[stretches])
    risks = sum_lanes(sums)
    return risks[0], risks[1], bounds
