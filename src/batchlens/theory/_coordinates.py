"""What a problem's coordinates bring to every question: weights in the risk, and the curvature that a rule sees."""

import numpy as np

from batchlens._arrays import FloatArray, IntArray
from batchlens.theory.problem import NoisyQuadratic

# At a rate below this a coordinate stays where it is however many steps there are, and what the noise adds is
# proportional to the rate's square, which would underflow.  Such a rate is lifted to this size, and the weight of
# noise falls by the square of it.
_LEAST_EXPONENT = -332

Lifts = IntArray | int


def lifts(rates: FloatArray) -> Lifts:
    """By which powers of 2 rates are lifted; 0 for all that can move something.

    >>> lifts(np.array([1.0, 0.0, 2.0**-400])).tolist()
    [0, 0, 67]
    """
    tiny = (rates > 0) & (rates < 2.0**_LEAST_EXPONENT)
    if not tiny.any():
        return 0
    return np.where(tiny, _LEAST_EXPONENT - np.frexp(rates)[1].astype(np.int64), 0)


def lift(values: FloatArray, lifted: Lifts) -> FloatArray:
    """Rates, or what rounding took from them, lifted."""
    return values if isinstance(lifted, int) else np.ldexp(values, lifted)


def weights(problem: NoisyQuadratic, lifted: Lifts = 0) -> tuple[FloatArray, FloatArray]:
    """What a unit of x^2 and of q (see `_kernels.maps`) weigh in the risk, at batch size 1: n h s / 2 and n c / 2 h."""
    return weights_at(problem, 1.0, lifted)


def weights_at(problem: NoisyQuadratic, batch_size: float, lifted: Lifts = 0) -> tuple[FloatArray, FloatArray]:
    """`weights` at a batch size, for rates that are lifted."""
    half = 0.5 * problem.count
    with np.errstate(over="ignore"):
        start = half * (problem.curvature * problem.initial)
        noise = half * (problem.noise / problem.curvature) / batch_size
    careful = ~np.isfinite(noise) | (np.asarray(lifted) != 0)
    if careful.any():
        noise = np.where(careful, _noise_weights(problem, batch_size, lifted), noise)
    if batch_size >= 1.0 and not np.isfinite(noise).all():  # a smaller batch may make the risk infinite by itself
        worst = int(np.argmax(noise))
        got = f"{problem.noise[worst]:g} over {problem.curvature[worst]:g}"
        raise ValueError(f"`noise` over `curvature` must stay below 1.8e+308, got {got}.")
    return start, noise


def _noise_weights(problem: NoisyQuadratic, batch_size: float, lifted: Lifts) -> FloatArray:
    """n c / (2 B h) at lifted rates, exponents apart so that nothing overflows on the way."""
    (n, n2), (c, c2), (h, h2) = (np.frexp(column) for column in (problem.count, problem.noise, problem.curvature))
    b, b2 = np.frexp(batch_size)
    exponent = n2.astype(np.int64) + c2 - h2 - b2 - 2 * np.asarray(lifted)
    with np.errstate(over="ignore", under="ignore"):
        weight: FloatArray = np.ldexp(0.5 * n * (c / h) / b, np.clip(exponent, -2000, 2000).astype(np.int32))
    return weight


def preconditioned(curvature: FloatArray, power: float) -> np.ndarray[tuple[int], np.dtype[np.longdouble]]:
    """h^(1 - power), the curvature that a preconditioned rule sees, in long doubles."""
    exact = curvature.astype(np.longdouble)
    return exact if power == 0 else exact ** (np.longdouble(1.0) - np.longdouble(power))
