"""Problems in bins, as the command line and the explorer take them."""

from batchlens._checks import require_whole
from batchlens.theory._types import Rounding
from batchlens.theory.problem import NoisyQuadratic


def power_law(dim: int, exponent: float, bins: int, rounding: Rounding) -> NoisyQuadratic:
    """The paper's problem in bins; 0: no binning.

    >>> power_law(10_000, 1.0, 100, "down").curvature.size
    84
    """
    bins = require_whole("bins", bins)
    problem = NoisyQuadratic.power_law(dim, exponent)
    return problem if bins == 0 else problem.binned(bins, rounding)


def quantised(problem: NoisyQuadratic, bins: int, rounding: Rounding) -> NoisyQuadratic:
    """A problem of one's own: in bins where it has more entries than there are bins, else as it is.

    >>> quantised(NoisyQuadratic([1.0, 0.3], [1.0, 0.3], [1.0, 1.0]), 100, "down").curvature.tolist()
    [1.0, 0.3]
    """
    bins = require_whole("bins", bins)
    return problem.binned(bins, rounding) if 0 < bins < problem.curvature.size else problem
