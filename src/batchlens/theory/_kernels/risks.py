"""The exact risk, summed over coordinates; notation as in `maps`."""

import numpy as np

from batchlens._arrays import BoolArray, FloatArray, IntArray
from batchlens.theory._kernels.compiling import LANES, kernel
from batchlens.theory._kernels.maps import (
    MAP_SIZE,
    MOST_LEVELS,
    STATE_SIZE,
    State,
    advance,
    copy_states,
    digits,
    fill_table,
    follow,
    in_lanes,
    load_state,
    mirrored,
    set_out,
    start_of,
    store_state,
    sum_lanes,
    weigh,
)

# 2^MOST_DOUBLINGS steps outlast every decay that a double can tell from none.
MOST_DOUBLINGS = 1100


@kernel
def rescale(scale: float, state: State) -> State:
    """The state where u is counted in another unit."""
    theta, u, v, s11, s12, s22, s13, s23, s33 = state
    return theta, u * scale, v, s11, s12 * scale, s22 * scale * scale, s13, s23 * scale, s33


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
    weights = in_lanes(start_weights, noise_weights)
    sums = np.zeros((steps.size, 2, LANES))
    table = np.empty((MOST_LEVELS, MAP_SIZE, LANES))
    begin, states = np.empty((STATE_SIZE, LANES)), np.empty((STATE_SIZE, LANES))
    most = digits(steps.max())
    for block in range(weights.shape[0]):
        set_out(rates, rate_tails, momentum, nesterov, averaging, block, table[0], begin)
        levels = fill_table(most, table)
        for j in range(steps.size):
            copy_states(begin, states)
            follow(table, levels, steps[j], 1.0, states)
            weigh(weights[block], states, sums[j])
    return sum_lanes(sums)


@kernel
def risk_by_coordinate(
    rates: FloatArray,
    rate_tails: FloatArray,
    start_weights: FloatArray,
    noise_weights: FloatArray,
    momentum: float,
    nesterov: bool,
    averaging: float,
    steps: IntArray,
) -> FloatArray:
    """`sum_risk` before the sum: start and noise (first axis), step count, coordinate."""
    n = rates.size
    weights = in_lanes(start_weights, noise_weights)
    found = np.empty((2, steps.size, n))
    table = np.empty((MOST_LEVELS, MAP_SIZE, LANES))
    begin, states = np.empty((STATE_SIZE, LANES)), np.empty((STATE_SIZE, LANES))
    most = digits(steps.max())
    for block in range(weights.shape[0]):
        set_out(rates, rate_tails, momentum, nesterov, averaging, block, table[0], begin)
        levels = fill_table(most, table)
        for j in range(steps.size):
            copy_states(begin, states)
            follow(table, levels, steps[j], 1.0, states)
            risks = np.zeros((2, LANES))
            weigh(weights[block], states, risks)
            for i in range(min(LANES, n - block * LANES)):
                found[0, j, block * LANES + i] = risks[0, i]
                found[1, j, block * LANES + i] = risks[1, i]
    return found


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
    weights = in_lanes(start_weights, noise_weights)
    sums = np.zeros((pieces, 2, LANES))
    table = np.empty((MOST_LEVELS, MAP_SIZE, LANES))
    begin, states = np.empty((STATE_SIZE, LANES)), np.empty((STATE_SIZE, LANES))
    for block in range(weights.shape[0]):
        for i in range(LANES):
            store_state(start_of(False), states, i)
        for j in range(pieces):
            set_out(rates[j], rate_tails[j], momenta[j], nesterov[j], averagings[j], block, table[0], begin)
            for i in range(LANES):
                at = min(block * LANES + i, n - 1)
                state = rescale(buffer_scales[j, at], load_state(states, i))
                if mirrored(rates[j, at], momenta[j], nesterov[j]):
                    state = reflect(rates[j, at], state)
                store_state(state, states, i)
            levels = fill_table(digits(lengths[j]), table)
            follow(table, levels, lengths[j], variances[j], states)
            for i in range(LANES):
                at = min(block * LANES + i, n - 1)
                if mirrored(rates[j, at], momenta[j], nesterov[j]):
                    state = load_state(states, i)
                    store_state(reflect_back(rates[j, at], lengths[j] & 1 == 1, state), states, i)
            weigh(weights[block], states, sums[j])
    return sum_lanes(sums)


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
    weights = in_lanes(start_weights, noise_weights)
    sums = np.zeros((2, LANES))
    table = np.empty((MOST_DOUBLINGS, MAP_SIZE, LANES))
    states = np.empty((STATE_SIZE, LANES))
    for block in range(weights.shape[0]):
        set_out(rates, rate_tails, momentum, nesterov, averaging, block, table[0], states)
        levels = fill_table(MOST_DOUBLINGS, table)
        advance(table[levels - 1], 1.0, states, states)
        weigh(weights[block], states, sums)
    return float(sums.sum())
