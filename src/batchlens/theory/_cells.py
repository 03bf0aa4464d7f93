"""The best rules for a fixed number of steps: a grid over all that can matter, and descents from its best basins.

A point of the search is a rule in the coordinates of `_kernels.quick`.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from scipy.ndimage import minimum_filter

from batchlens._arrays import FloatArray
from batchlens.optimizers import FAMILIES, base_of, contained_in, is_averaged
from batchlens.theory._kernels.quick import HIGHEST, LOWEST, descend, rule_at, scan
from batchlens.theory._kernels.update import rate_limit
from batchlens.theory._lanes import Lanes, into_lanes
from batchlens.theory.problem import NoisyQuadratic
from batchlens.theory.rule import UpdateRule

# Which dimensions of a point (learning rate, momentum, averaging) a family tunes.
FREE = {family: (True, base_of(family) != "sgd", is_averaged(family)) for family in FAMILIES}

# Points of the grid along learning rate, momentum and averaging, by the number of free dimensions.
_GRID = {1: (48, 1, 1), 2: (40, 24, 24), 3: (28, 16, 16)}
# Bins in which the grid sees the problem: enough to find the basins, which are then followed on the problem itself.
_COARSE = 32
_BASINS = 4
# Momentum's oscillations ripple the risk along lines of equal effective learning rate: how far to look along them,
# closest by first, and how far beside them.
_ALONG = np.sinh(np.linspace(-4.5, 4.5, 81)) / 18.0
_BESIDE = np.linspace(-0.1, 0.1, 5)
_ROUGH, FINE = 1e-4, 1e-9
# Basins whose risks agree this well are one; those worse than the best by this factor will not overtake it.
SAME, _IN_THE_RACE = 1e-6, 1.05


@dataclass(frozen=True)
class Basin:
    """A point of the search and its risk."""

    point: FloatArray
    risk: float


@dataclass(frozen=True)
class Cell:
    """One problem, family, batch size and power, ready for the kernels; momentum None is to be tuned."""

    problem: NoisyQuadratic
    family: str
    batch_size: float
    power: float
    momentum: float | None = None

    @property
    def nesterov(self) -> bool:
        return self.family == "nesterov"

    @property
    def free(self) -> tuple[bool, bool, bool]:
        rate, momentum, averaging = FREE[self.family]
        return rate, momentum and self.momentum is None, averaging

    @property
    def contained(self) -> list["Cell"]:
        """The cells of the families that this one contains."""
        if self.momentum is not None:
            return []
        return [replace(self, family=family) for family in contained_in(self.family)]

    @cached_property
    def lanes(self) -> Lanes:
        return into_lanes(self.problem, self.power, self.batch_size)

    @cached_property
    def coarse_lanes(self) -> Lanes:
        coarse = self.problem.binned(_COARSE) if self.problem.curvature.size > _COARSE else self.problem
        return into_lanes(coarse, self.power, self.batch_size)

    def rule(self, point: FloatArray) -> UpdateRule:
        learning_rate, momentum, averaging = rule_at(point, self.lanes[0].max(), self.nesterov)
        return UpdateRule(learning_rate, momentum, self.nesterov, averaging, self.power)

    def point(self, rule: UpdateRule) -> FloatArray:
        """The point of a rule; the last one before the stability limit for a rule beyond it."""
        share = rule.learning_rate * self.lanes[0].max() / rate_limit(rule.momentum, self.nesterov)
        height = math.log(share / (1.0 - share)) if share < 1.0 else HIGHEST[0]
        point = np.array([height, -math.log1p(-rule.momentum), -math.log1p(-rule.averaging)])
        inside: FloatArray = np.clip(point, LOWEST, HIGHEST)
        return inside

    def descend(self, start: FloatArray, steps: int, widths: Sequence[float], tolerance: float) -> Basin:
        point, value = descend(
            *self.lanes,
            self.nesterov,
            steps,
            start,
            np.asarray(widths),
            np.asarray(self.free),
            tolerance,
        )
        return Basin(point, value)

    def survey(self, steps: int) -> list[Basin]:
        """The best basins of the grid over all rules that can matter at this number of steps, roughly."""
        points = self._grid(steps)
        starts = self._lowest(self.coarse_lanes, points, steps, _BASINS)
        rough = [self.descend(start, steps, (0.5, 0.5, 0.5), _ROUGH) for start in starts]
        return self.refine([basin.point for basin in rough], steps)

    def probe(self, point: FloatArray, steps: int) -> list[Basin]:
        """The neighbouring basins of a point, across the ripples that momentum makes."""
        points = self._beside(point, _BESIDE if self.free[1] else np.zeros(1))
        return self.refine(list(self._lowest(self.lanes, points, steps, 2 * _BASINS)), steps)

    def across_ripples(self, point: FloatArray, steps: int) -> FloatArray:
        """The lowest point along the line through a point on which the ripples lie; the point itself, where it is."""
        points = np.concatenate([point[None], self._beside(point, np.zeros(1)).reshape(-1, 3)])
        lowest: FloatArray = points[np.argmin(scan(*self.lanes, self.nesterov, steps, points))]
        return lowest

    def _beside(self, point: FloatArray, beside: FloatArray) -> FloatArray:
        """Points along the line of equal effective learning rate through a point, and beside that line."""
        along, across, none = np.meshgrid(_ALONG, beside, 0.0, indexing="ij")
        growth = np.logaddexp(0.0, -point[0]) - np.logaddexp(0.0, -(point[0] + along))  # of the learning rate
        points: FloatArray = point + np.stack([along, across - growth if self.free[1] else none, none], axis=-1)
        return points

    def _lowest(self, lanes: Lanes, points: FloatArray, steps: int, most: int) -> FloatArray:
        """The best local minima of a three-dimensional grid of points, `most` at the most."""
        risks = scan(*lanes, self.nesterov, steps, points.reshape(-1, 3)).reshape(points.shape[:3])
        lowest = (risks == minimum_filter(risks, size=3, mode="nearest")) & np.isfinite(risks)
        best: FloatArray = points[lowest][np.argsort(risks[lowest])[:most]]
        return best

    def _grid(self, steps: int) -> FloatArray:
        """Points (momentum by averaging by learning rate) from where nothing moves in all the steps to the limit.

        Lines of equal effective learning rate, alpha / (1 - momentum), run along the grid; points beyond the stability
        limit are outside the search, and have an infinite risk.
        """
        sizes = _GRID[sum(self.free)]
        slowest = min(np.log(50.0 * steps), HIGHEST[1])
        fixed = -math.log1p(-(self.momentum or 0.0)), 0.0
        axes = [np.linspace(0.0, slowest, sizes[d]) if self.free[d] else np.full(1, fixed[d - 1]) for d in (1, 2)]
        effective = np.linspace(-np.log(20.0 * steps), axes[0][-1] + np.log(2.0), sizes[0])
        y, z, level = np.meshgrid(*axes, effective, indexing="ij")
        share = level - y - np.log(rate_limit(-np.expm1(-y), self.nesterov))
        inside = np.minimum(share, -1e-3)
        logit = np.where(share < 0.0, inside - np.log(-np.expm1(inside)), np.inf)
        return np.stack([logit, y, z], axis=-1)

    def refine(self, starts: Sequence[FloatArray], steps: int) -> list[Basin]:
        """The distinct basins below given points, the lowest first, without those that are out of the race."""
        found = [self.descend(start, steps, (0.03, 0.03, 0.03), FINE) for start in starts]
        found.sort(key=lambda basin: basin.risk)
        kept = found[:1]
        for basin in found[1:]:
            if kept[-1].risk * (1 + SAME) < basin.risk < found[0].risk * _IN_THE_RACE:
                kept.append(basin)
        return kept


def best_at(cell: Cell, steps: int) -> Basin:
    """The global minimum of the risk at one number of steps, contained families included."""
    inner = [best_at(contained, steps) for contained in cell.contained]
    starts = mix([basin.point for basin in sorted(inner, key=lambda basin: basin.risk)])
    best = min([*cell.survey(steps), *cell.refine(starts, steps), *inner], key=lambda basin: basin.risk)
    while best.point[1] > 0.0:
        beside = cell.probe(best.point, steps)[0]
        if beside.risk >= best.risk * (1 - SAME):
            break
        best = beside
    return best


def mix(points: list[FloatArray]) -> list[FloatArray]:
    """Points to start from: those of contained families, and where there are two, one's momentum with the other's
    averaging."""
    if len(points) < 2:
        return points
    both = np.maximum(points[0], points[1])
    return [*points, np.array([min(points[0][0], points[1][0]), both[1], both[2]])]


def limits(cell: Cell, point: FloatArray) -> tuple[str, ...]:
    """Edges of the search at which a point lies."""
    at_edge = {
        "stability": point[0] > np.log(100.0),
        "momentum": cell.free[1] and point[1] < 1e-6,
        "averaging": cell.free[2] and point[2] < 1e-6,
    }
    return tuple(name for name, there in at_edge.items() if there)


def best_constant(
    problem: NoisyQuadratic, family: str, batch_size: float, steps: int, power: float, momentum: float | None
) -> UpdateRule:
    """The rule with the least risk after a number of steps, for searches that start from it."""
    cell = Cell(problem, family, batch_size, power, momentum)
    return cell.rule(best_at(cell, steps).point)
