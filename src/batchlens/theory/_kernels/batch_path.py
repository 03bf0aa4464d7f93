"""Final risk of a schedule of learning rates and batch sizes, and its exact gradient by both.

As `path`, with a batch size of its own for every piece: noise enters a piece as N / B, so that the final risk is linear
in 1 / B, and its slope by 1 / B_j is what the noise of piece j comes to at the end, at a batch of one.
"""

import numpy as np

from batchlens._arrays import FloatArray, IntArray
from batchlens.theory._kernels.compiling import LANES, kernel
from batchlens.theory._kernels.path import _momentum_piece, _sense, _sgd_piece
from batchlens.theory._kernels.update import kick_and_carry, kick_and_carry_slopes


@kernel
def sgd_batch_path(
    curvature: FloatArray,
    start_weights: FloatArray,
    noise_weights: FloatArray,
    learning_rates: FloatArray,
    inverse_batches: FloatArray,
    lengths: IntArray,
) -> tuple[float, FloatArray, FloatArray]:
    """Final risk of plain SGD, its gradient by every learning rate, and by every 1 / B; weights are at a batch of 1."""
    pieces = lengths.size
    by_rate, by_inverse = np.zeros(pieces), np.zeros(pieces)
    total = 0.0
    work = np.empty((4, LANES))
    rates = np.empty(LANES)
    powers = np.empty((pieces, LANES))
    slopes = np.empty((pieces, LANES))
    noises = np.empty((pieces, LANES))
    risks = np.empty(LANES)
    for first in range(0, curvature.size, LANES):
        for i in range(LANES):
            risks[i] = start_weights[first + i]
        for j in range(pieces):
            for i in range(LANES):
                rates[i] = learning_rates[j] * curvature[first + i]
            _sgd_piece(rates, lengths[j], work)
            for i in range(LANES):
                a = rates[i]
                gain = 2.0 * a * work[1, i] + a * a * work[3, i]
                noise = noise_weights[first + i] * inverse_batches[j]
                powers[j, i] = work[0, i]
                slopes[j, i] = (work[2, i] * risks[i] + noise * gain) * curvature[first + i]
                noises[j, i] = noise_weights[first + i] * (a * a * work[1, i])
                risks[i] = work[0, i] * risks[i] + noises[j, i] * inverse_batches[j]
        for i in range(LANES):
            total += risks[i]
            risks[i] = 1.0  # from here on: sensitivity of the final risk
        for j in range(pieces - 1, -1, -1):
            for i in range(LANES):
                by_rate[j] += risks[i] * slopes[j, i]
                by_inverse[j] += risks[i] * noises[j, i]
                risks[i] *= powers[j, i]
    return total, by_rate, by_inverse


@kernel
def momentum_batch_path(
    curvature: FloatArray,
    start_weights: FloatArray,
    noise_weights: FloatArray,
    learning_rates: FloatArray,
    momentum: float,
    inverse_batches: FloatArray,
    lengths: IntArray,
) -> tuple[float, FloatArray, FloatArray]:
    """Final risk of momentum SGD, its gradient by every learning rate and then by momentum, and by every 1 / B."""
    pieces = lengths.size
    by_rate, by_inverse = np.zeros(pieces + 1), np.zeros(pieces)
    total = 0.0
    rates = np.empty(LANES)
    work = np.empty((21, LANES))
    maps = np.empty((pieces, 21, LANES))
    moments = np.empty((pieces + 1, 3, LANES))
    senses = np.empty((3, LANES))
    slopes = np.empty((2, LANES))
    weights = np.empty(LANES)
    kick, _, carry, _ = kick_and_carry(momentum, False)
    update = np.array((kick, carry, *kick_and_carry_slopes(momentum, False)))
    for first in range(0, curvature.size, LANES):
        for i in range(LANES):
            moments[0, 0, i] = start_weights[first + i]
            moments[0, 1, i] = 0.0
            moments[0, 2, i] = 0.0
        for j in range(pieces):
            for i in range(LANES):
                rates[i] = learning_rates[j] * curvature[first + i]
            _momentum_piece(rates, momentum, update, lengths[j], work)
            maps[j] = work
            for i in range(LANES):
                c11, c12, c21, c22 = work[0, i], work[1, i], work[2, i], work[3, i]
                m11, m12, m22 = moments[j, 0, i], moments[j, 1, i], moments[j, 2, i]
                weight = noise_weights[first + i] * inverse_batches[j]
                p11 = c11 * m11 + c12 * m12
                p12 = c11 * m12 + c12 * m22
                p21 = c21 * m11 + c22 * m12
                p22 = c21 * m12 + c22 * m22
                moments[j + 1, 0, i] = p11 * c11 + p12 * c12 + weight * work[4, i]
                moments[j + 1, 1, i] = p11 * c21 + p12 * c22 + weight * work[5, i]
                moments[j + 1, 2, i] = p21 * c21 + p22 * c22 + weight * work[6, i]
        for i in range(LANES):
            total += moments[pieces, 0, i]
            senses[0, i] = 1.0
            senses[1, i] = 0.0
            senses[2, i] = 0.0
        for j in range(pieces - 1, -1, -1):
            for i in range(LANES):
                noise = senses[0, i] * maps[j, 4, i] + 2.0 * senses[1, i] * maps[j, 5, i] + senses[2, i] * maps[j, 6, i]
                by_inverse[j] += noise_weights[first + i] * noise
                weights[i] = noise_weights[first + i] * inverse_batches[j]
            _sense(maps[j], moments[j], weights, senses, slopes)
            for i in range(LANES):
                by_rate[j] += slopes[0, i] * curvature[first + i]
                by_rate[pieces] += slopes[1, i]
    return total, by_rate, by_inverse
