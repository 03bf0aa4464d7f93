"""The best update rule for a batch size: the fewest steps to a target, or the least risk on a budget.

The steps that a rule takes jump as its parameters change, so they are not what is minimised.  For a fixed number of
steps t the risk is smooth in the parameters; its least value falls as t grows, and the answer is the smallest t at
which it meets the target.  The minimum over the parameters is made global by a grid over all rules that can matter at
t steps, from whose best basins a simplex descends (see `kernels.quick`).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from scipy.ndimage import minimum_filter

from batchlens._arrays import FloatArray
from batchlens.checks import require_choice, require_instance, require_number, require_sequence, require_whole
from batchlens.optimizers import FAMILIES, base_of, contained_in, is_averaged
from batchlens.scaling.curve import ScalingCurve
from batchlens.theory._arguments import MAX_STEPS, require_batch_size
from batchlens.theory._kernels.quick import HIGHEST, descend, rule_at, scan
from batchlens.theory._kernels.update import rate_limit
from batchlens.theory._lanes import Lanes, into_lanes
from batchlens.theory._search import RESOLUTION, excess_of, fewest_steps
from batchlens.theory._types import Status
from batchlens.theory.bounds import lower_bound_steps
from batchlens.theory.dynamics import risk
from batchlens.theory.hitting import hitting_time
from batchlens.theory.problem import NoisyQuadratic
from batchlens.theory.rule import UpdateRule

# Which dimensions of a point (learning rate, momentum, averaging) a family tunes.
_FREE = {family: (True, base_of(family) != "sgd", is_averaged(family)) for family in FAMILIES}

# Points of the grid along learning rate, momentum and averaging, by the number of free dimensions.
_GRID = {1: (48, 1, 1), 2: (40, 24, 24), 3: (28, 16, 16)}
# Bins in which the grid sees the problem: enough to find the basins, which are then followed on the problem itself.
_COARSE = 32
_BASINS = 4
# Momentum's oscillations ripple the risk along lines of equal effective learning rate: how far to look along them,
# closest by first, and how far beside them.
_ALONG = np.sinh(np.linspace(-4.5, 4.5, 81)) / 18.0
_BESIDE = np.linspace(-0.1, 0.1, 5)
_ROUGH, _FINE = 1e-4, 1e-9
_FEW = 12
# Basins whose risks agree this well are one; those worse than the best by this factor will not overtake it.
_SAME, _IN_THE_RACE = 1e-6, 1.05


@dataclass(frozen=True)
class Tuned:
    """The best rule found, and how it does.

    rule, steps: None where the target is beyond reach.  status: "reached" or "beyond_max_steps".  limits: at which
    edges of the search the optimum lies: "stability" (a larger learning rate would diverge), "momentum" and
    "averaging" (0 is best).
    """

    rule: UpdateRule | None
    steps: int | None
    status: Status
    limits: tuple[str, ...] = ()


@dataclass(frozen=True)
class BestRisk:
    """The rule with the least risk after a given number of steps."""

    rule: UpdateRule
    risk: float
    steps: int
    limits: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Basin:
    """A point of the search and its risk."""

    point: FloatArray
    risk: float


@dataclass(frozen=True)
class _Cell:
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
        rate, momentum, averaging = _FREE[self.family]
        return rate, momentum and self.momentum is None, averaging

    @property
    def contained(self) -> list["_Cell"]:
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

    def descend(self, start: FloatArray, steps: int, widths: Sequence[float], tolerance: float) -> _Basin:
        point, value = descend(
            *self.lanes,
            self.nesterov,
            steps,
            start,
            np.asarray(widths),
            np.asarray(self.free),
            tolerance,
        )
        return _Basin(point, value)

    def survey(self, steps: int) -> list[_Basin]:
        """The best basins of the grid over all rules that can matter at this number of steps, roughly."""
        points = self._grid(steps)
        starts = self._lowest(self.coarse_lanes, points, steps, _BASINS)
        rough = [self.descend(start, steps, (0.5, 0.5, 0.5), _ROUGH) for start in starts]
        return self.refine([basin.point for basin in rough], steps)

    def probe(self, point: FloatArray, steps: int) -> list[_Basin]:
        """The neighbouring basins of a point, across the ripples that momentum makes."""
        tuned = self.free[1]
        along, beside, none = np.meshgrid(_ALONG, _BESIDE if tuned else 0.0, 0.0, indexing="ij")
        growth = np.logaddexp(0.0, -point[0]) - np.logaddexp(0.0, -(point[0] + along))  # of the learning rate
        points = point + np.stack([along, beside - growth if tuned else none, none], axis=-1)
        return self.refine(list(self._lowest(self.lanes, points, steps, 2 * _BASINS)), steps)

    def _lowest(self, lanes: Lanes, points: FloatArray, steps: int, most: int) -> FloatArray:
        """The best local minima of a three-dimensional grid of points, at most so many."""
        risks = scan(*lanes, self.nesterov, steps, points.reshape(-1, 3)).reshape(points.shape[:3])
        lowest = (risks == minimum_filter(risks, size=3, mode="nearest")) & np.isfinite(risks)
        best: FloatArray = points[lowest][np.argsort(risks[lowest])[:most]]
        return best

    def _grid(self, steps: int) -> FloatArray:
        """Points (momentum by averaging by learning rate) from where nothing moves in so many steps to the limit.

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

    def refine(self, starts: Sequence[FloatArray], steps: int) -> list[_Basin]:
        """The distinct basins below given points, the lowest first, without those that are out of the race."""
        found = [self.descend(start, steps, (0.03, 0.03, 0.03), _FINE) for start in starts]
        found.sort(key=lambda basin: basin.risk)
        kept = found[:1]
        for basin in found[1:]:
            if kept[-1].risk * (1 + _SAME) < basin.risk < found[0].risk * _IN_THE_RACE:
                kept.append(basin)
        return kept


def tune(
    problem: NoisyQuadratic,
    family: str,
    batch_size: float,
    target: float,
    power: float = 0.0,
    max_steps: int = MAX_STEPS,
    momentum: float | None = None,
) -> Tuned:
    """The stable rule of a family that reaches the target in the fewest steps.

    Every parameter is tuned continuously and globally: learning rate, momentum and averaging, each where the family
    has it.  A family never needs more steps than one that it contains.

    Arguments:
        problem: what is minimised.
        family: "sgd", "momentum", "nesterov", "sgd+ema" or "momentum+ema".
        batch_size: examples a step.
        target: risk to reach.
        power: preconditioning by H^-power.
        max_steps: give up beyond.
        momentum: a value to keep, for families that have it; None tunes it.

    >>> problem = NoisyQuadratic.power_law(dim=10_000).binned(100, rounding="down")
    >>> best = tune(problem, "momentum", batch_size=256, target=0.01)
    >>> best.steps, round(best.rule.momentum, 5)
    (20081, 0.99952)
    """
    cell, target = _check(problem, family, batch_size, power, momentum), _check_target(target)
    max_steps = require_whole("max_steps", max_steps, low=1, high=2**61)
    if problem.initial_risk <= target:
        return Tuned(UpdateRule(0.0, power=cell.power), 0, "reached")
    least = lower_bound_steps(problem, cell.batch_size, target, kind="bayes") - 1
    found = _tune(cell, target, least, max_steps)
    if found is None:
        return Tuned(None, None, "beyond_max_steps")
    steps, point = found
    return Tuned(cell.rule(point), steps, "reached", _limits(cell, point))


def scaling_curve(
    problem: NoisyQuadratic,
    family: str,
    batch_sizes: Sequence[float],
    target: float,
    power: float = 0.0,
    max_steps: int = MAX_STEPS,
    momentum: float | None = None,
) -> ScalingCurve:
    """Steps to the target against batch size, the family tuned at every one; arguments as for `tune`.

    >>> problem = NoisyQuadratic.power_law(dim=10_000).binned(100, rounding="down")
    >>> curve = scaling_curve(problem, "momentum", batch_sizes=[4**k for k in range(1, 11)], target=0.01)
    >>> curve.steps[-3:]
    (182, 159, 152)
    >>> print(curve.critical_batch_size())
    33067
    """
    batch_sizes = require_sequence("batch_sizes", batch_sizes)
    found = [tune(problem, family, size, target, power, max_steps, momentum) for size in batch_sizes]
    settings = [
        {"learning_rate": best.rule.learning_rate, "momentum": best.rule.momentum, "averaging": best.rule.averaging}
        if best.rule is not None
        else {}
        for best in found
    ]
    return ScalingCurve(batch_sizes, [best.steps for best in found], settings, family, power, target)


def best_risk(
    problem: NoisyQuadratic,
    family: str,
    batch_size: float,
    examples: float | None = None,
    steps: int | None = None,
    power: float = 0.0,
    momentum: float | None = None,
) -> BestRisk:
    """The rule of a family with the least risk on a budget of examples, or of steps.

    >>> problem = NoisyQuadratic.power_law(dim=10_000).binned(100, rounding="down")
    >>> best = best_risk(problem, "momentum", batch_size=256, examples=1_000_000)
    >>> best.steps, round(best.risk, 4)
    (3906, 0.0395)
    """
    cell = _check(problem, family, batch_size, power, momentum)
    if (examples is None) == (steps is None):
        raise ValueError(f"`examples` or `steps` must be given, one of them, got {examples} and {steps}.")
    if examples is not None:
        budget = require_number("examples", examples, low=cell.batch_size)
        steps = int(budget // cell.batch_size)
    steps = require_whole("steps", steps, low=1)
    best = _best_at(cell, steps)
    rule = cell.rule(best.point)
    return BestRisk(rule, risk(problem, rule, batch_size, steps), steps, _limits(cell, best.point))


def best_constant(
    problem: NoisyQuadratic, family: str, batch_size: float, steps: int, power: float, momentum: float | None
) -> UpdateRule:
    """The rule with the least risk after so many steps, for searches that start from it."""
    cell = _Cell(problem, family, batch_size, power, momentum)
    return cell.rule(_best_at(cell, steps).point)


def _check(problem: NoisyQuadratic, family: str, batch_size: float, power: float, momentum: float | None) -> _Cell:
    require_instance("problem", problem, NoisyQuadratic)
    require_choice("family", family, FAMILIES)
    batch_size = require_batch_size(batch_size)
    power = require_number("power", power, 0, 1)
    if momentum is not None:
        if not _FREE[family][1]:
            raise ValueError(f"`momentum` must be left out for {family}, got {momentum}.")
        momentum = require_number("momentum", momentum, 0, 1, closed=(True, False))
    return _Cell(problem, family, batch_size, power, momentum)


def _check_target(target: float) -> float:
    return require_number("target", target, low=0, closed=(False, True))


def _best_at(cell: _Cell, steps: int) -> _Basin:
    """The global minimum of the risk at one number of steps, contained families included."""
    inner = [_best_at(contained, steps) for contained in cell.contained]
    starts = _mix([basin.point for basin in sorted(inner, key=lambda basin: basin.risk)])
    best = min([*cell.survey(steps), *cell.refine(starts, steps), *inner], key=lambda basin: basin.risk)
    while best.point[1] > 0.0:
        beside = cell.probe(best.point, steps)[0]
        if beside.risk >= best.risk * (1 - _SAME):
            break
        best = beside
    return best


def _limits(cell: _Cell, point: FloatArray) -> tuple[str, ...]:
    """Edges of the search at which a point lies."""
    at_edge = {
        "stability": point[0] > np.log(100.0),
        "momentum": cell.free[1] and point[1] < 1e-6,
        "averaging": cell.free[2] and point[2] < 1e-6,
    }
    return tuple(name for name, there in at_edge.items() if there)


def _tune(cell: _Cell, target: float, least: int, max_steps: int) -> tuple[int, FloatArray] | None:
    """Fewest steps and the point that takes them; no number of steps up to `least` can do."""
    inner = [_tune(contained, target, least, max_steps) for contained in cell.contained]
    known = [result for result in inner if result is not None]
    if known:
        steps = min(result[0] for result in known)
        seeds = _mix([result[1] for result in sorted(known, key=lambda result: result[0])])
    else:
        start = _first_success(cell, target, least, max_steps)
        if start is None:
            return None
        least, steps, point = start
        seeds = [point]
    seeds += [basin.point for basin in cell.survey(steps)]
    while True:
        steps, point = _shrink(cell, target, least, steps, seeds)
        # Was a better basin missed?  Then go on from there.
        fewer = steps - 1 - int(steps * RESOLUTION)
        if fewer <= least:
            break
        others = cell.survey(fewer)
        if point[1] > 0.0:
            others += cell.probe(point, fewer)
        seeds = [basin.point for basin in others if basin.risk <= target]
        if not seeds:
            break
        steps = fewer
    if steps <= _FEW:
        # So few steps may do where one more does not: look at each number.
        for fewer in range(least + 1, steps):
            best = _best_at(cell, fewer)
            if best.risk <= target:
                steps, point = fewer, best.point
                break
    found = _confirm(cell, target, steps, point)
    return min([*known, *([found] if found else [])], key=lambda result: result[0], default=None)


def _mix(points: list[FloatArray]) -> list[FloatArray]:
    """Points to start from: those of contained families, and where there are two, one's momentum with the other's
    averaging."""
    if len(points) < 2:
        return points
    both = np.maximum(points[0], points[1])
    return [*points, np.array([min(points[0][0], points[1][0]), both[1], both[2]])]


def _first_success(cell: _Cell, target: float, least: int, max_steps: int) -> tuple[int, int, FloatArray] | None:
    """A number of steps that does not do, a larger one that does, and the point at which it does."""
    steps = least + 1
    while True:
        steps = min(steps, max_steps)
        best = cell.survey(steps)[0] if steps < max_steps else _best_at(cell, steps)
        if best.risk <= target:
            return least, steps, best.point
        if steps == max_steps:
            return None
        least, steps = steps, 4 * steps


def _shrink(cell: _Cell, target: float, low: int, high: int, seeds: list[FloatArray]) -> tuple[int, FloatArray]:
    """The smallest number of steps that does, in (low, high], following the basins below the seeds."""
    basins = cell.refine(seeds, high)
    point = basins[0].point

    def excess(steps: int) -> float:
        nonlocal basins, point
        basins = cell.refine([basin.point for basin in basins], steps)
        if basins[0].risk <= target:
            point = basins[0].point
        return excess_of(basins[0].risk, target)

    return fewest_steps(excess, low, high, excess_of(basins[0].risk, target)), point


def _confirm(cell: _Cell, target: float, steps: int, point: FloatArray) -> tuple[int, FloatArray] | None:
    """The exact first hit of the rule found; a step or two more where rounding let the search stop too early."""
    for _ in range(20):
        most = int(steps * (1 + RESOLUTION)) + 1
        exact = hitting_time(cell.problem, cell.rule(point), cell.batch_size, target, most).steps
        if exact is not None:
            return exact, point
        steps += 1 + int(steps * RESOLUTION)
        point = cell.descend(point, steps, (0.01, 0.01, 0.01), _FINE / 100).point
    return None
