"""What a problem's coordinates bring to every question: weights in the risk, and the curvature that a rule sees."""

import numpy as np

from batchlens._arrays import FloatArray
from batchlens.theory.problem import NoisyQuadratic


def weights(problem: NoisyQuadratic) -> tuple[FloatArray, FloatArray]:
    """What a unit of x^2 and of q (see `kernels`) weigh in the risk, at batch size 1: n h s / 2 and n c / 2 h."""
    half = 0.5 * problem.count
    with np.errstate(over="ignore"):
        return half * (problem.curvature * problem.initial), half * (problem.noise / problem.curvature)


def weights_at(problem: NoisyQuadratic, batch_size: float) -> tuple[FloatArray, FloatArray]:
    """`weights` at a batch size."""
    start, noise = weights(problem)
    with np.errstate(over="ignore"):
        return start, noise / batch_size


def preconditioned(curvature: FloatArray, power: float) -> np.ndarray[tuple[int], np.dtype[np.longdouble]]:
    """h^(1 - power), the curvature that a preconditioned rule sees, in long doubles."""
    exact = curvature.astype(np.longdouble)
    return exact if power == 0 else exact ** (np.longdouble(1.0) - np.longdouble(power))
