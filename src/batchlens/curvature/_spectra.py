"""What is kept of the directions of a Kronecker eigenbasis: by rank, beside 1/i, and variance against curvature."""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from batchlens._arrays import BoolArray, FloatArray, IntArray

# Directions with less than this part of the largest curvature say nothing in logarithms but how small numbers round.
SMALLEST = 1e-6
# Ranks up to this one are kept one by one, further ones in bins of this many a decade.
_SINGLE, _PER_DECADE = 10, 16
# Points of a decade of ranks that a line is fitted to, evenly spaced in its logarithm.
_POINTS = 21
# Directions of a scatter plot that are kept.
_SCATTERED = 300


class Level(NamedTuple):
    """Some directions of similar rank: their number, and the means of what was measured in them."""

    rank: float  # geometric mean; the largest curvature has rank 1
    directions: int
    curvature: float
    variance: float
    second_moment: float


class Direction(NamedTuple):
    """One direction of one layer."""

    layer: str
    rank: int
    curvature: float
    variance: float
    second_moment: float


class Decade(NamedTuple):
    """How curvature falls with its rank i within a decade of ranks: as i^exponent."""

    first: int
    last: int
    exponent: float


class Comparison(NamedTuple):
    """Variance of the gradient against curvature, over directions: log-log slope and correlation, and ratios."""

    slope: float
    correlation: float
    ratio: float  # of the traces
    median_ratio: float
    directions: int  # those that slope, correlation and median are of


class Directions(NamedTuple):
    """Everything measured in the directions of a basis; one entry each."""

    layers: Sequence[str]
    layer: IntArray  # number of the layer
    curvature: FloatArray
    variance: FloatArray
    second_moment: FloatArray

    def by_curvature(self) -> "Directions":
        """The same, the largest curvature first."""
        order = np.argsort(-self.curvature, kind="stable")
        sides = (values[order] for values in (self.curvature, self.variance, self.second_moment))
        return Directions(self.layers, self.layer[order], *sides)


def levels(directions: Directions) -> tuple[Level, ...]:
    """The spectrum by rank. `directions` are sorted."""
    size = len(directions.curvature)
    if size == 0:
        return ()
    decades = max(np.log10(size / _SINGLE), 0.0)
    ends = np.geomspace(_SINGLE, max(size, _SINGLE), int(np.ceil(decades * _PER_DECADE)) + 1)
    edges = np.unique(np.minimum([*range(_SINGLE), *np.round(ends).astype(int), size], size))
    return tuple(
        Level(
            float(np.exp(np.mean(np.log(np.arange(low + 1, high + 1))))),
            int(high - low),
            *(float(values[low:high].mean()) for values in directions[2:]),
        )
        for low, high in pairwise(edges)
    )


def scatter(directions: Directions) -> tuple[Direction, ...]:
    """Some directions, evenly spaced in the logarithm of their rank. `directions` are sorted."""
    kept = int(np.count_nonzero(is_telling(directions.curvature)))
    if kept == 0:
        return ()
    ranks = np.unique(np.round(np.geomspace(1, kept, min(kept, _SCATTERED))).astype(int))
    return tuple(
        Direction(
            directions.layers[int(directions.layer[rank - 1])],
            int(rank),
            *(float(values[rank - 1]) for values in directions[2:]),
        )
        for rank in ranks
    )


def is_telling(curvature: FloatArray) -> BoolArray:
    """Which curvatures are large enough for a logarithm."""
    telling: BoolArray = curvature > SMALLEST * curvature.max(initial=0.0)
    return telling


def decades(curvature: FloatArray) -> tuple[Decade, ...]:
    """The exponent in each whole decade of ranks, as far as curvature is telling. `curvature` is sorted.

    >>> [round(decade.exponent, 6) for decade in decades(1 / np.arange(1.0, 101.0))]
    [-1.0, -1.0]
    """
    kept = curvature[is_telling(curvature)]
    found, first = [], 1
    while 10 * first <= len(kept):
        at = np.linspace(np.log(first), np.log(10 * first), _POINTS)
        heights = np.interp(at, np.log(np.arange(1, len(kept) + 1)), np.log(kept))
        found.append(Decade(first, 10 * first, float(np.polyfit(at, heights, 1)[0])))
        first *= 10
    return tuple(found)


def compare(curvature: FloatArray, variance: FloatArray) -> Comparison | None:
    """How variance follows curvature; None where fewer than three directions can say.

    >>> compare(np.array([1.0, 2.0, 4.0]), np.array([0.5, 1.0, 2.0])).ratio
    0.5
    """
    telling = is_telling(curvature) & (variance > 0)
    x, y = np.log(curvature[telling]), np.log(variance[telling])
    if len(x) < 3 or np.ptp(x) == 0 or np.ptp(y) == 0:
        return None
    return Comparison(
        float(np.polyfit(x, y, 1)[0]),
        float(np.corrcoef(x, y)[0, 1]),
        float(variance.sum() / curvature.sum()),
        float(np.exp(np.median(y - x))),
        len(x),
    )
