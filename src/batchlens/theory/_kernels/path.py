"""Final risk of a schedule of learning rates and batch sizes, and its exact gradient by both, by the adjoint method.

Notation as in `maps`.  Start and noise move alike here: M is a coordinate's second moment, weighted so that its first
entry is the coordinate's risk, and a piece maps M to C^n M C^nT + N Q(n) / B, N the noise's weight at a batch of one.
Maps are doubled together with their derivatives with respect to the rate a (suffix a) and to momentum (suffix b); then
the sensitivity of the final risk to M is carried back, piece by piece.  The final risk is linear in 1 / B, and its
slope by 1 / B_j is what the noise of piece j comes to at the end, at a batch of one.  Plain SGD needs one number where
momentum needs three, and has kernels of its own.  An update is a row (kick, carry and their slopes in momentum), see
`update`.  Lanes as in `quick`.
"""

import numpy as np

from batchlens._arrays import FloatArray, IntArray
from batchlens.theory._kernels.compiling import LANES, inlined, kernel
from batchlens.theory._kernels.update import kick_and_carry, kick_and_carry_slopes


@inlined
def _sgd_piece(rates: FloatArray, length: int, work: FloatArray) -> None:
    """Rows A = (1 - a)^2n, S = sum of (1 - a)^2p over p < n, and their derivatives, for n = length."""
    for i in range(LANES):
        r = 1.0 - rates[i]
        work[0, i] = r * r
        work[1, i] = 1.0
        work[2, i] = -2.0 * r
        work[3, i] = 0.0
    bits = 0
    while length >> bits > 1:
        bits += 1
    for bit in range(bits - 1, -1, -1):
        for i in range(LANES):
            power, total, power_a, total_a = work[0, i], work[1, i], work[2, i], work[3, i]
            work[0, i] = power * power
            work[1, i] = total + total * power
            work[2, i] = 2.0 * power * power_a
            work[3, i] = total_a + total_a * power + total * power_a
        if (length >> bit) & 1:
            for i in range(LANES):
                r = 1.0 - rates[i]
                work[1, i] += work[0, i]
                work[3, i] += work[2, i]
                work[2, i] = work[2, i] * (r * r) - 2.0 * r * work[0, i]
                work[0, i] *= r * r


@kernel
def sgd_path(
    curvature: FloatArray,
    start_weights: FloatArray,
    noise_weights: FloatArray,
    learning_rates: FloatArray,
    inverse_batches: FloatArray,
    lengths: IntArray,
) -> tuple[float, FloatArray, FloatArray]:
    """Final risk of plain SGD, its gradient by the learning rate of every piece, and by every 1 / B."""
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
            if lengths[j] == 0:
                powers[j] = 1.0
                slopes[j] = 0.0
                noises[j] = 0.0
                continue
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
            rate_slope, inverse_slope = by_rate[j], by_inverse[j]  # two sums side by side, in registers
            for i in range(LANES):
                rate_slope += risks[i] * slopes[j, i]
                inverse_slope += risks[i] * noises[j, i]
                risks[i] *= powers[j, i]
            by_rate[j], by_inverse[j] = rate_slope, inverse_slope
    return total, by_rate, by_inverse


@inlined
def _momentum_piece(rates: FloatArray, momentum: float, update: FloatArray, length: int, work: FloatArray) -> None:
    """Rows C^n (c11, c12, c21, c22) and Q (q11, q12, q22), then their a- and b-derivatives, for n = length."""
    for i in range(LANES):
        kick, carry = rates[i] * update[0], rates[i] * update[1]
        work[0, i], work[1, i], work[2, i], work[3, i] = 1.0 - kick, -carry, 1.0, momentum
        work[4, i], work[5, i], work[6, i] = kick * kick, -kick, 1.0
        kick_a, carry_a = update[0], update[1]
        work[7, i], work[8, i], work[9, i], work[10, i] = -kick_a, -carry_a, 0.0, 0.0
        work[11, i], work[12, i], work[13, i] = 2.0 * kick * kick_a, -kick_a, 0.0
        kick_b, carry_b = rates[i] * update[2], rates[i] * update[3]
        work[14, i], work[15, i], work[16, i], work[17, i] = -kick_b, -carry_b, 0.0, 1.0
        work[18, i], work[19, i], work[20, i] = 2.0 * kick * kick_b, -kick_b, 0.0
    bits = 0
    while length >> bits > 1:
        bits += 1
    for bit in range(bits - 1, -1, -1):
        _double_derivative(work, 7)
        _double_derivative(work, 14)
        _double_values(work)
        if (length >> bit) & 1:
            _step_derivative(rates, momentum, update, work, 7, 1.0)
            _step_derivative(rates, momentum, update, work, 14, 0.0)
            _step_values(rates, momentum, update, work)


@inlined
def _double_values(work: FloatArray) -> None:
    """C <- C C, Q <- Q + C Q C^T."""
    for i in range(LANES):
        c11, c12, c21, c22 = work[0, i], work[1, i], work[2, i], work[3, i]
        q11, q12, q22 = work[4, i], work[5, i], work[6, i]
        p11 = c11 * q11 + c12 * q12
        p12 = c11 * q12 + c12 * q22
        p21 = c21 * q11 + c22 * q12
        p22 = c21 * q12 + c22 * q22
        work[4, i] += p11 * c11 + p12 * c12
        work[5, i] += p11 * c21 + p12 * c22
        work[6, i] += p21 * c21 + p22 * c22
        trace = c11 + c22
        cross = c12 * c21
        work[0, i] = c11 * c11 + cross
        work[1, i] = c12 * trace
        work[2, i] = c21 * trace
        work[3, i] = c22 * c22 + cross


@inlined
def _double_derivative(work: FloatArray, row: int) -> None:
    """The derivative of `_double_values` in the rows from `row` on; goes before it."""
    for i in range(LANES):
        c11, c12, c21, c22 = work[0, i], work[1, i], work[2, i], work[3, i]
        q11, q12, q22 = work[4, i], work[5, i], work[6, i]
        d11, d12, d21, d22 = work[row, i], work[row + 1, i], work[row + 2, i], work[row + 3, i]
        r11, r12, r22 = work[row + 4, i], work[row + 5, i], work[row + 6, i]
        # P = C Q, and dP = dC Q + C dQ; then d(C Q C^T) = dP C^T + P dC^T
        p11 = c11 * q11 + c12 * q12
        p12 = c11 * q12 + c12 * q22
        p21 = c21 * q11 + c22 * q12
        p22 = c21 * q12 + c22 * q22
        e11 = d11 * q11 + d12 * q12 + (c11 * r11 + c12 * r12)
        e12 = d11 * q12 + d12 * q22 + (c11 * r12 + c12 * r22)
        e21 = d21 * q11 + d22 * q12 + (c21 * r11 + c22 * r12)
        e22 = d21 * q12 + d22 * q22 + (c21 * r12 + c22 * r22)
        work[row + 4, i] += e11 * c11 + e12 * c12 + (p11 * d11 + p12 * d12)
        work[row + 5, i] += e11 * c21 + e12 * c22 + (p11 * d21 + p12 * d22)
        work[row + 6, i] += e21 * c21 + e22 * c22 + (p21 * d21 + p22 * d22)
        trace = c11 + c22
        slope = d11 + d22
        cross = d12 * c21 + c12 * d21
        work[row, i] = 2.0 * c11 * d11 + cross
        work[row + 1, i] = d12 * trace + c12 * slope
        work[row + 2, i] = d21 * trace + c21 * slope
        work[row + 3, i] = 2.0 * c22 * d22 + cross


@inlined
def _step_values(rates: FloatArray, momentum: float, update: FloatArray, work: FloatArray) -> None:
    """One step more: C <- C_1 C, Q <- Q + (C b)(C b)^T with b = (-kick, 1)."""
    for i in range(LANES):
        kick, carry = rates[i] * update[0], rates[i] * update[1]
        c11, c12, c21, c22 = work[0, i], work[1, i], work[2, i], work[3, i]
        y1, y2 = c12 - kick * c11, c22 - kick * c21
        work[4, i] += y1 * y1
        work[5, i] += y1 * y2
        work[6, i] += y2 * y2
        work[0, i] = (1.0 - kick) * c11 - carry * c21
        work[1, i] = (1.0 - kick) * c12 - carry * c22
        work[2, i] = c11 + momentum * c21
        work[3, i] = c12 + momentum * c22


@inlined
def _step_derivative(
    rates: FloatArray, momentum: float, update: FloatArray, work: FloatArray, row: int, by_rate: float
) -> None:
    """The derivative of `_step_values`, by the rate (by_rate 1) or by momentum (0); goes before it."""
    by_momentum = 1.0 - by_rate
    for i in range(LANES):
        kick, carry = rates[i] * update[0], rates[i] * update[1]
        kick_slope = update[0] * by_rate + rates[i] * update[2] * by_momentum
        carry_slope = update[1] * by_rate + rates[i] * update[3] * by_momentum
        c11, c12, c21, c22 = work[0, i], work[1, i], work[2, i], work[3, i]
        d11, d12, d21, d22 = work[row, i], work[row + 1, i], work[row + 2, i], work[row + 3, i]
        y1, y2 = c12 - kick * c11, c22 - kick * c21
        z1 = d12 - kick * d11 - kick_slope * c11
        z2 = d22 - kick * d21 - kick_slope * c21
        work[row + 4, i] += 2.0 * y1 * z1
        work[row + 5, i] += y1 * z2 + z1 * y2
        work[row + 6, i] += 2.0 * y2 * z2
        work[row, i] = (1.0 - kick) * d11 - carry * d21 - (kick_slope * c11 + carry_slope * c21)
        work[row + 1, i] = (1.0 - kick) * d12 - carry * d22 - (kick_slope * c12 + carry_slope * c22)
        work[row + 2, i] = d11 + momentum * d21 + by_momentum * c21
        work[row + 3, i] = d12 + momentum * d22 + by_momentum * c22


@inlined
def _sense(
    work: FloatArray, moments: FloatArray, noise_weights: FloatArray, senses: FloatArray, slopes: FloatArray
) -> None:
    """Carry the sensitivity L of the final risk (d risk = L11 dM11 + 2 L12 dM12 + L22 dM22) back over a piece.

    On the way, `slopes` gets the derivatives by the piece's rate and by momentum: with G = M C^T L they are
    2 tr(G dC) + N (L11 dQ11 + 2 L12 dQ12 + L22 dQ22).
    """
    for i in range(LANES):
        c11, c12, c21, c22 = work[0, i], work[1, i], work[2, i], work[3, i]
        m11, m12, m22 = moments[0, i], moments[1, i], moments[2, i]
        l11, l12, l22 = senses[0, i], senses[1, i], senses[2, i]
        s11, s12 = c11 * l11 + c21 * l12, c11 * l12 + c21 * l22
        s21, s22 = c12 * l11 + c22 * l12, c12 * l12 + c22 * l22
        g11, g12 = m11 * s11 + m12 * s21, m11 * s12 + m12 * s22
        g21, g22 = m12 * s11 + m22 * s21, m12 * s12 + m22 * s22
        weight = noise_weights[i]
        by_map = g11 * work[7, i] + g21 * work[8, i] + (g12 * work[9, i] + g22 * work[10, i])
        by_noise = l11 * work[11, i] + 2.0 * l12 * work[12, i] + l22 * work[13, i]
        slopes[0, i] = 2.0 * by_map + weight * by_noise
        by_map = g11 * work[14, i] + g21 * work[15, i] + (g12 * work[16, i] + g22 * work[17, i])
        by_noise = l11 * work[18, i] + 2.0 * l12 * work[19, i] + l22 * work[20, i]
        slopes[1, i] = 2.0 * by_map + weight * by_noise
        senses[0, i] = s11 * c11 + s12 * c21
        senses[1, i] = s11 * c12 + s12 * c22
        senses[2, i] = s21 * c12 + s22 * c22


@kernel
def momentum_path(
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
