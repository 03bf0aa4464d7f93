"""Guided search: where the next round of runs looks, sharing what neighbouring batch sizes know.

A cell is one batch size of one optimizer.  Points scatter about three places in turn: the lowest point of a quadratic
surface fitted to all cells together,

    log steps = intercept(cell) + slope(cell)' x + x' A x / 2,

where A is shared and slopes are a line over log batch size plus a little of each cell's own; the mean of the cell's
best runs, drawn to a line through all cells; and the cell's own best run.  They scatter as far as the surface rises by
a given part, so further along directions that matter little, and less with every round.  Everything is deterministic:
the same runs and seeds give the same points.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from batchlens._arrays import BoolArray, FloatArray, IntArray

Point = tuple[float, ...]
Reach = Sequence[Sequence[tuple[float, float]]]


class Seen(NamedTuple):
    """A run: where it was, in units of the declared ranges, and the logarithm of its steps to the target."""

    point: Point
    log_steps: float  # where censored: of the steps it is known to need more than
    censored: bool


class Ranked(NamedTuple):
    """A run of a cell by its number there, the log steps expected of its setting, and the surface's error in them."""

    number: int
    log_steps: float
    error: float


@dataclass(frozen=True)
class Guide:
    """The constants of guided search; lengths are in units of the declared ranges."""

    rounds: tuple[int, ...] = (14, 5, 5, 5, 5)  # points of a cell in every round, the Sobol round first
    rises: tuple[float, ...] = (0.35, 0.2, 0.12, 0.07)  # log steps that the scatter costs on average, by round
    spreads: tuple[float, ...] = (0.22, 0.15, 0.1)  # the widest scatter, by round
    narrowest: float = 0.15  # the narrowest scatter, as a part of the widest
    leave: float = 1 / 3  # how far points may leave the declared box
    top: int = 4  # how many runs of a cell make its mean
    temperature: float = 0.2  # log steps above the best over which their weight falls by e
    own: float = 0.3  # weight of the cell's own mean beside the line through all
    level: float = 0.5  # prior weight, in runs, of a line without slope
    surface_from: int = 2  # the first round that looks where the surface is lowest
    trust: float = 1.0  # how many times the widest scatter the surface may be away from the mean
    fade: float = 0.5  # log steps above the best over which a run's weight in the surface falls by e
    noise: float = 0.2  # of log steps about the surface
    lift: float = 0.2  # log steps beyond its cap at which a censored run enters
    curvature: float = 8.0  # the prior's A, times the identity
    curvature_sd: float = 50.0
    slope_sd: float = 20.0
    drift_sd: float = 12.0  # of slopes, from the middle to the ends of the batch sizes
    cell_sd: float = 3.0  # of a cell's slope about the line
    shrink: float = 0.7  # weight of the surface's prediction beside the run's own result


DEFAULTS = Guide()


@dataclass(frozen=True)
class _Runs:
    """The runs of all cells in a row."""

    points: FloatArray  # runs x dimensions
    log_steps: FloatArray
    censored: BoolArray
    cell: IntArray
    batch: FloatArray  # of every cell: log batch size, centred and scaled

    def of(self, cell: int) -> IntArray:
        return np.flatnonzero(self.cell == cell)

    def reached(self, cell: int) -> IntArray:
        """A cell's runs that reached the target, best first."""
        own = np.flatnonzero((self.cell == cell) & ~self.censored)
        return own[np.argsort(self.log_steps[own], kind="stable")]


def propose(
    round_: int,
    count: int,
    log_batch: Sequence[float],
    seen: Sequence[Sequence[Seen]],
    reach: Reach,
    seeds: Sequence[int],
    guide: Guide = DEFAULTS,
) -> list[list[Point]]:
    """`count` points for every cell in round 1 or later; round 0 is Sobol's.

    `log_batch`, `seen`, `reach` and `seeds` have an entry for every cell: the logarithm of its batch size, its runs so
    far, the ends (low, high) of every setting that points must stay within, and what its random numbers start from.

    >>> seen = [[Seen((x / 4,), abs(x - 2), False) for x in (1, 2, 3)]]
    >>> round(propose(1, 1, [0.0], seen, [[(0.0, 1.0)]], [0])[0][0][0], 6)
    0.5
    """
    runs = _gather(log_batch, seen, len(reach[0]))
    low, high = _limits(reach, guide)
    means, bests = _means(runs, guide)
    surface = _fit(runs, guide)
    spread = _of_round(guide.spreads, round_)
    lowest = means
    if round_ >= guide.surface_from:
        lowest = _toward(means, surface.minima(), guide.trust * spread * math.sqrt(len(reach[0])))
    root = surface.scatter(_of_round(guide.rises, round_), guide.narrowest * spread, spread)
    proposed = []
    for cell, seed in enumerate(seeds):
        around = np.stack([lowest[cell], means[cell], bests[cell]])[np.arange(count) % 3]
        draws = _normal_draws(count, len(root), (seed, round_))
        away = draws @ root
        if not len(runs.reached(cell)):  # every other point looks far and wide
            away[1::2] = guide.spreads[0] * draws[1::2]
        if not runs.censored.all():  # else the middle is as good as any other point, and would come again
            away[:1] = 0.0
        proposed.append([tuple(point) for point in np.clip(around + away, low[cell], high[cell]).tolist()])
    return proposed


def best_guess(
    log_batch: Sequence[float], seen: Sequence[Sequence[Seen]], reach: Reach, guide: Guide = DEFAULTS
) -> list[list[Ranked]]:
    """Every cell's runs that reached the target, most promising first, by result and by what the surface predicts."""
    runs = _gather(log_batch, seen, len(reach[0]))
    surface = _fit(runs, guide)
    mixed = (1 - guide.shrink) * runs.log_steps + guide.shrink * surface.predicted
    cells = []
    for cell in range(len(seen)):
        reached, first = runs.reached(cell), runs.of(cell)[:1]
        order = reached[np.argsort(mixed[reached], kind="stable")]
        cells.append([Ranked(int(run - first[0]), float(mixed[run]), float(surface.errors[run])) for run in order])
    return cells


def _gather(log_batch: Sequence[float], seen: Sequence[Sequence[Seen]], dimensions: int) -> _Runs:
    rows = [run for cell in seen for run in cell]
    batch = np.asarray(log_batch, dtype=float) - np.mean(log_batch)
    return _Runs(
        np.array([run.point for run in rows], dtype=float).reshape(len(rows), dimensions),
        np.array([run.log_steps for run in rows], dtype=float),
        np.array([run.censored for run in rows], dtype=bool),
        np.repeat(np.arange(len(seen)), [len(cell) for cell in seen]),
        batch / max(float(np.abs(batch).max()), 1e-9),
    )


def _limits(reach: Reach, guide: Guide) -> tuple[FloatArray, FloatArray]:
    """Where the points of every cell must lie."""
    ends = np.asarray(reach, dtype=float)
    low = np.maximum(ends[..., 0], np.minimum(-guide.leave, ends[..., 1]))
    return low, np.maximum(np.minimum(ends[..., 1], 1 + guide.leave), low)


def _of_round(values: Sequence[float], round_: int) -> float:
    return values[min(round_, len(values)) - 1]


def _means(runs: _Runs, guide: Guide) -> tuple[FloatArray, FloatArray]:
    """Every cell's mean of its best runs, drawn to the line through all cells, and its best run.

    Both are on the line where no run of the cell reached the target.
    """
    shape = len(runs.batch), runs.points.shape[1]
    means, bests, strength = np.full(shape, 0.5), np.full(shape, 0.5), np.zeros(shape[0])
    for cell in range(shape[0]):
        if len(top := runs.reached(cell)[: guide.top]):
            weights = np.exp((runs.log_steps[top[0]] - runs.log_steps[top]) / guide.temperature)
            means[cell] = weights @ runs.points[top] / weights.sum()
            bests[cell] = runs.points[top[0]]
            strength[cell] = weights.sum()
    line = _line(runs.batch, means, strength, guide)
    reached = strength[:, None] > 0
    return line + np.where(reached, guide.own * (means - line), 0.0), np.where(reached, bests, line)


def _line(batch: FloatArray, means: FloatArray, strength: FloatArray, guide: Guide) -> FloatArray:
    """A weighted line through the cells' means; level where there is little to tell a slope by."""
    if not strength.any():
        return means
    design = np.stack([np.ones_like(batch), batch], axis=1)
    normal = (strength[:, None] * design).T @ design + np.diag([1e-6, guide.level])
    offset = np.average(means, axis=0, weights=strength)
    fitted: FloatArray = offset + design @ np.linalg.solve(normal, (strength[:, None] * design).T @ (means - offset))
    return fitted


def _toward(start: FloatArray, goal: FloatArray, most: float) -> FloatArray:
    """From start to goal, no further than `most`."""
    step = goal - start
    length = np.linalg.norm(step, axis=1, keepdims=True)
    moved: FloatArray = start + step * np.minimum(1.0, most / np.maximum(length, 1e-12))
    return moved


def _normal_draws(count: int, dimensions: int, entropy: tuple[int, int]) -> FloatArray:
    """Quasi-random normal numbers: a shifted Kronecker sequence through the inverse normal distribution."""
    ratio = 2.0
    for _ in range(60):
        ratio = (1 + ratio) ** (1 / (dimensions + 1))
    shift = np.random.default_rng(np.random.SeedSequence(entropy)).random(dimensions)
    uniform = (shift + np.outer(np.arange(count), ratio ** -np.arange(1.0, dimensions + 1))) % 1.0
    inverse = NormalDist().inv_cdf
    return np.array([[inverse(min(max(u, 1e-3), 1 - 1e-3)) for u in row] for row in uniform.tolist()])


@dataclass(frozen=True)
class _Surface:
    """The quadratic surface of all cells, about `origin`."""

    origin: FloatArray
    slopes: FloatArray  # cells x dimensions
    curvature: FloatArray  # A
    predicted: FloatArray  # log steps of every run
    errors: FloatArray  # standard errors of those, from the scatter of the runs about the surface

    def minima(self) -> FloatArray:
        """Where every cell's surface is lowest, if it curved upwards everywhere."""
        values, vectors = np.linalg.eigh(self.curvature)
        lowest: FloatArray = self.origin - (self.slopes @ vectors / np.maximum(values, 1.0)) @ vectors.T
        return lowest

    def scatter(self, rise: float, narrowest: float, widest: float) -> FloatArray:
        """The symmetric root of the covariance that costs `rise` on average, alike in every direction."""
        values, vectors = np.linalg.eigh(self.curvature)
        lengths = np.sqrt(2 * rise / len(values) / np.maximum(values, 1e-9))
        root: FloatArray = (vectors * np.clip(lengths, narrowest, widest)) @ vectors.T
        return root


def _fit(runs: _Runs, guide: Guide) -> _Surface:
    """Ridge regression; a censored run enters just beyond its cap, and only while predicted lower."""
    cells, dimensions = len(runs.batch), runs.points.shape[1]
    best = np.array([_best(runs, cell) for cell in range(cells)])
    weights = np.exp(-np.clip(runs.log_steps - best[runs.cell], 0.0, 50.0) / guide.fade)
    sure = weights * ~runs.censored
    origin = np.average(runs.points, axis=0, weights=sure) if sure.any() else np.full(dimensions, 0.5)
    rows, columns = np.triu_indices(dimensions)
    design = _design(runs, runs.points - origin, rows, columns)
    groups = [cells, len(rows), dimensions, dimensions, cells * dimensions]
    sds = np.repeat([1.0, guide.curvature_sd, guide.slope_sd, guide.drift_sd, guide.cell_sd], groups)
    prior = np.concatenate([best, guide.curvature * (rows == columns), np.zeros((2 + cells) * dimensions)])
    missing = runs.log_steps + guide.lift * runs.censored - design @ prior
    change = np.zeros(len(prior))
    for _ in range(8):  # more change little
        active = weights * (~runs.censored | (design @ change < missing)) / guide.noise**2
        weighted = active[:, None] * design
        normal = weighted.T @ design + np.diag(sds**-2.0)
        change = np.linalg.solve(normal, weighted.T @ missing)
    variances = (design * np.linalg.solve(normal, design.T).T).sum(axis=1)  # if the noise were the guide's
    noise = math.sqrt(sure @ (missing - design @ change) ** 2 / max(sure @ (1 - active * variances), 1e-9))
    _, bends, slope, drift, own = np.split(prior + change, np.cumsum(groups)[:-1])
    curvature = np.zeros((dimensions, dimensions))
    curvature[rows, columns] = curvature[columns, rows] = bends
    slopes = slope + np.outer(runs.batch, drift) + own.reshape(cells, dimensions)
    errors = np.sqrt(variances) * noise / guide.noise
    return _Surface(origin, slopes, curvature, design @ (prior + change), errors)


def _design(runs: _Runs, away: FloatArray, rows: IntArray, columns: IntArray) -> FloatArray:
    """What the surface is linear in: intercepts, A's upper triangle, slope, its drift, and each cell's own slope."""
    member = np.eye(len(runs.batch))[runs.cell]
    squares = away[:, rows] * away[:, columns] * np.where(rows == columns, 0.5, 1.0)
    own = (member[:, :, None] * away[:, None, :]).reshape(len(away), member.shape[1] * away.shape[1])
    return np.concatenate([member, squares, away, runs.batch[runs.cell][:, None] * away, own], axis=1)


def _best(runs: _Runs, cell: int) -> float:
    """The fewest log steps of a cell; where none reached the target, the most that are known to fall short."""
    reached = runs.reached(cell)
    return float(runs.log_steps[reached[0]] if len(reached) else runs.log_steps[runs.of(cell)].max(initial=0.0))
