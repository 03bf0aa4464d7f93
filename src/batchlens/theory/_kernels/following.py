"""Noise that follows the loss: coordinates share it, so that steps are taken one by one.

Notation as in `maps`.  The gradient of an example has variance c_i + g_i L at loss L.  Second moments stay linear, and
exact in expectation, but no coordinate moves by itself: the noise of a step is that of the whole loss before it.

A coordinate's state is its second moments, weighted so that the first one is its part of the loss:

    rows 0 to 2    theta theta, theta u, u u
    rows 3 to 5    average theta, average u, average average

Lanes as in `quick`.
"""

import numpy as np

from batchlens._arrays import FloatArray, IntArray
from batchlens.theory._kernels.compiling import LANES, inlined, kernel
from batchlens.theory._kernels.update import kick_and_carry

# How a search ends.
REACHED, GROWN, BEYOND = 0, 1, 2
# A loss that has grown by this factor will not come back.
_GROWN = 1e6


@inlined
def _sum_row(moments: FloatArray, row: int) -> float:
    """Over all coordinates, in lanes."""
    sums = np.zeros(LANES)
    for first in range(0, moments.shape[1], LANES):
        for i in range(LANES):
            sums[i] += moments[row, first + i]
    return float(sums.sum())


@inlined
def _step(
    moments: FloatArray,
    rates: FloatArray,
    noise_weights: FloatArray,
    growth_weights: FloatArray,
    momentum: float,
    kick: float,
    carry: float,
    averaging: float,
    loss: float,
) -> None:
    """One step of every coordinate, `loss` being that before it; without momentum the buffer is left alone."""
    tt, tu, uu, at, au, aa = moments[0], moments[1], moments[2], moments[3], moments[4], moments[5]
    fresh = 1.0 - averaging
    if momentum == 0.0:
        for i in range(rates.size):
            stays = 1.0 - rates[i]
            at[i] *= stays
            tt[i] = stays * stays * tt[i] + rates[i] * rates[i] * (noise_weights[i] + growth_weights[i] * loss)
    else:
        for i in range(rates.size):
            noise = noise_weights[i] + growth_weights[i] * loss
            moved, pull = rates[i] * kick, rates[i] * carry
            stays = 1.0 - moved
            with_theta, theta, mixed, buffer = at[i], tt[i], tu[i], uu[i]
            at[i] = stays * with_theta - pull * au[i]
            au[i] = with_theta + momentum * au[i]
            tt[i] = stays * stays * theta - 2.0 * stays * pull * mixed + pull * pull * buffer + moved * moved * noise
            tu[i] = stays * theta + (stays * momentum - pull) * mixed - pull * momentum * buffer - moved * noise
            uu[i] = theta + 2.0 * momentum * mixed + momentum * momentum * buffer + noise
    if averaging > 0.0:
        for i in range(rates.size):
            aa[i] = averaging * averaging * aa[i] + 2.0 * averaging * fresh * at[i] + fresh * fresh * tt[i]
            at[i] = averaging * at[i] + fresh * tt[i]
            au[i] = averaging * au[i] + fresh * tu[i]


@inlined
def _begin(start_weights: FloatArray) -> FloatArray:
    """The average starts where the iterate does, the buffer at 0."""
    moments = np.zeros((6, start_weights.size))
    moments[0] = start_weights
    moments[3] = start_weights
    moments[5] = start_weights
    return moments


@kernel
def risks_along(
    rates: FloatArray,
    start_weights: FloatArray,
    noise_weights: FloatArray,
    growth_weights: FloatArray,
    momentum: float,
    nesterov: bool,
    averaging: float,
    steps: IntArray,
) -> FloatArray:
    """Risk after each of rising numbers of steps."""
    kick, _, carry, _ = kick_and_carry(momentum, nesterov)
    moments = _begin(start_weights)
    counted = 5 if averaging > 0.0 else 0
    found = np.empty(steps.size)
    step = 0
    for place in range(steps.size):
        while step < steps[place]:
            loss = _sum_row(moments, 0)
            _step(moments, rates, noise_weights, growth_weights, momentum, kick, carry, averaging, loss)
            step += 1
        found[place] = _sum_row(moments, counted)
    return found


@kernel
def first_hit(
    rates: FloatArray,
    start_weights: FloatArray,
    noise_weights: FloatArray,
    growth_weights: FloatArray,
    momentum: float,
    nesterov: bool,
    averaging: float,
    target: float,
    max_steps: int,
) -> tuple[int, float, int]:
    """The first step whose risk is at or below the target, where between it and the step before, and the ending.

    Where it is, is read off the logarithm of the risk: a number that changes smoothly with the rule, as steps do not.
    """
    kick, _, carry, _ = kick_and_carry(momentum, nesterov)
    moments = _begin(start_weights)
    loss = risk = begun = _sum_row(moments, 0)
    for step in range(1, max_steps + 1):
        before = risk
        _step(moments, rates, noise_weights, growth_weights, momentum, kick, carry, averaging, loss)
        loss = _sum_row(moments, 0)
        risk = _sum_row(moments, 5) if averaging > 0.0 else loss
        if risk <= target:
            fall = np.log(before) - np.log(max(risk, 1e-300))
            return step, step - 1 + (np.log(before) - np.log(target)) / fall, REACHED
        if not loss < _GROWN * begun:
            return 0, 0.0, GROWN
    return 0, 0.0, BEYOND
