"""Guided search: where the next round of runs looks, sharing what neighbouring batch sizes know.

A cell is one batch size of one optimizer.  The centre of a round comes from the best runs of each cell and from a line
through all cells over the logarithm of batch size; later, from a quadratic surface fitted to all cells together:

    log steps = intercept(cell) + (x - m)' A (x - m) / 2,    m linear in log batch size,

where A is shared.  Points scatter about the centre, less with every round, further along directions that matter little.
Everything is deterministic: the same runs and seeds give the same points.
"""

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
    """A run of a cell by its number there, and the log steps expected of its setting."""

    number: int
    log_steps: float


class Guess(NamedTuple):
    """The runs of every cell that reached the target, most promising first, and the noise of one run's log steps."""

    cells: list[list[Ranked]]
    noise: float


@dataclass(frozen=True)
class Guide:
    """The constants of guided search; lengths are in units of the declared ranges."""

    rounds: tuple[int, ...] = (14, 7, 7, 6)
    spreads: tuple[float, ...] = (0.22, 0.12, 0.067)
    leave: float = 1 / 3  # how far points may leave the declared box
    top: int = 4  # how many runs of a cell make its centre
    temperature: float = 0.2  # and how fast their weight falls with log steps
    own: float = 0.5  # weight of the cell's own centre beside the line's
    own_best_every: int = 3  # every so many points, one is around the cell's own best
    roundness: float = 0.5  # part of the identity in the shape of the scatter
    surface_from: int = 2  # the first round whose centre comes from the surface
    fade: float = 1.0  # log steps above the best over which a run loses its weight in the surface
    curvature: float = 8.0  # the prior's A, times the identity
    curvature_sd: float = 20.0
    slope_sd: float = 10.0
    drift_sd: float = 5.0
    noise: float = 0.15  # of a run's log steps about the surface
    trust: float = 1.0  # how many previous spreads the surface may move a centre
    shrink: float = 0.5  # weight of the surface's prediction beside the own result


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
    """`count` points for every cell in round 1 or later."""
    runs = _gather(log_batch, seen, len(reach[0]))
    low, high = _limits(reach, guide)
    spread = guide.spreads[min(round_, len(guide.spreads)) - 1]
    centres, own_best, shape = _centres(runs, guide)
    if round_ >= guide.surface_from:
        before = guide.spreads[min(round_ - 1, len(guide.spreads)) - 1]
        centres = _toward(centres, _Surface.fit(runs, guide).minima(), guide.trust * before * np.sqrt(len(reach[0])))
    proposed = []
    for cell, seed in enumerate(seeds):
        around = np.repeat(centres[cell][None], count, axis=0)
        around[guide.own_best_every - 1 :: guide.own_best_every] = own_best[cell]
        scatter = _normal_draws(count, len(shape), (seed, round_)) @ (spread * shape)
        scatter[0] = 0.0
        proposed.append([tuple(point) for point in np.clip(around + scatter, low[cell], high[cell]).tolist()])
    return proposed


def best_guess(
    log_batch: Sequence[float], seen: Sequence[Sequence[Seen]], reach: Reach, guide: Guide = DEFAULTS
) -> Guess:
    """Ranks every cell's own runs by a mixture of their results and what the surface predicts."""
    runs = _gather(log_batch, seen, len(reach[0]))
    surface = _Surface.fit(runs, guide)
    mixed = (1 - guide.shrink) * runs.log_steps + guide.shrink * surface.predict(runs)
    cells = []
    for cell in range(len(seen)):
        reached, first = runs.reached(cell), runs.of(cell)[:1]
        order = reached[np.argsort(mixed[reached], kind="stable")]
        cells.append([Ranked(int(run - first[0]), float(mixed[run])) for run in order])
    return Guess(cells, surface.scatter(runs))


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


def _centres(runs: _Runs, guide: Guide) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Every cell's centre and own best point, and the shape of the scatter, a symmetric matrix."""
    cells, dimensions = len(runs.batch), runs.points.shape[1]
    means, bests, strength = np.full((cells, dimensions), 0.5), np.zeros((cells, dimensions)), np.zeros(cells)
    products, total = np.zeros((dimensions, dimensions)), 0.0
    for cell in range(cells):
        top = runs.reached(cell)[: guide.top]
        if not len(top):
            continue
        weights = np.exp(-(runs.log_steps[top] - runs.log_steps[top[0]]) / guide.temperature)
        means[cell] = weights @ runs.points[top] / weights.sum()
        bests[cell] = runs.points[top[0]]
        strength[cell] = weights.sum()
        away = runs.points[top] - means[cell]
        products += (weights[:, None] * away).T @ away
        total += weights.sum()
    line = _line(runs.batch, means, strength)
    own = np.where(strength > 0, guide.own, 0.0)[:, None]
    bests = np.where(strength[:, None] > 0, bests, line)
    return own * means + (1 - own) * line, bests, _shape(products / max(total, 1e-9), guide)


def _line(batch: FloatArray, means: FloatArray, strength: FloatArray) -> FloatArray:
    """A weighted line through the cells' means; level where there is little to tell a slope by."""
    if not strength.any():
        return means
    design = np.stack([np.ones_like(batch), batch], axis=1)
    normal = (strength[:, None] * design).T @ design + np.diag([1e-6, 0.5])
    offset = np.average(means, axis=0, weights=strength)
    fitted: FloatArray = offset + design @ np.linalg.solve(normal, (strength[:, None] * design).T @ (means - offset))
    return fitted


def _shape(covariance: FloatArray, guide: Guide) -> FloatArray:
    """The symmetric root of a covariance, drawn to the identity and scaled to determinant one."""
    size = np.trace(covariance) / len(covariance)
    mixed = covariance * (1 - guide.roundness) + max(size, 1e-9) * guide.roundness * np.eye(len(covariance))
    values, vectors = np.linalg.eigh(mixed)
    root: FloatArray = (vectors * np.sqrt(values / np.exp(np.log(values).mean()))) @ vectors.T
    return root


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
    """The quadratic surface of all cells."""

    origin: FloatArray
    intercepts: FloatArray
    curvature: FloatArray  # A, positive definite where `minima` uses it
    slope: FloatArray
    drift: FloatArray  # of the slope, over log batch size
    batch: FloatArray
    weights: FloatArray

    @classmethod
    def fit(cls, runs: _Runs, guide: Guide) -> "_Surface":
        """Ridge regression; a censored run enters at its cap, and only while predicted lower."""
        cells, dimensions = len(runs.batch), runs.points.shape[1]
        best = np.array([_best(runs, cell) for cell in range(cells)])
        weights = np.exp(-np.clip(runs.log_steps - best[runs.cell], 0.0, 50.0) / guide.fade)
        sure = weights * ~runs.censored
        origin = np.average(runs.points, axis=0, weights=sure) if sure.any() else np.full(dimensions, 0.5)
        away, batch = runs.points - origin, runs.batch[runs.cell][:, None]
        rows, columns = np.triu_indices(dimensions)
        squares = away[:, rows] * away[:, columns] * np.where(rows == columns, 0.5, 1.0)
        design = np.concatenate([np.eye(cells)[runs.cell], squares, away, batch * away], axis=1)
        prior = np.concatenate([best, guide.curvature * (rows == columns), np.zeros(2 * dimensions)])
        sds = [
            np.ones(cells),
            np.full(len(rows), guide.curvature_sd),
            np.full(dimensions, guide.slope_sd),
            np.full(dimensions, guide.drift_sd),
        ]
        precision = np.diag(1 / np.concatenate(sds) ** 2)
        residual = runs.log_steps - design @ prior
        change = np.zeros(len(prior))
        for _ in range(8):
            active = weights * (~runs.censored | (design @ change < residual)) / guide.noise**2
            weighted = active[:, None] * design
            change = np.linalg.solve(weighted.T @ design + precision, weighted.T @ residual)
        answer = prior + change
        square = np.zeros((dimensions, dimensions))
        square[rows, columns] = square[columns, rows] = answer[cells : cells + len(rows)]
        slope, drift = answer[cells + len(rows) :].reshape(2, dimensions)
        return cls(origin, answer[:cells], square, slope, drift, runs.batch, weights)

    def minima(self) -> FloatArray:
        """Where every cell's surface is lowest."""
        values, vectors = np.linalg.eigh(self.curvature)
        inverse = (vectors / np.maximum(values, 1.0)) @ vectors.T
        lowest: FloatArray = self.origin - (self.slope + self.batch[:, None] * self.drift) @ inverse
        return lowest

    def predict(self, runs: _Runs) -> FloatArray:
        away = runs.points - self.origin
        slope = self.slope + self.batch[runs.cell][:, None] * self.drift
        value: FloatArray = self.intercepts[runs.cell] + ((away @ self.curvature / 2 + slope) * away).sum(axis=1)
        return value

    def scatter(self, runs: _Runs) -> float:
        """The weighted spread of runs that reached the target about the surface."""
        weights = self.weights * ~runs.censored
        freedom = max(weights.sum() - len(self.intercepts) - self.slope.size, 1.0)
        return float(np.sqrt(weights @ (runs.log_steps - self.predict(runs)) ** 2 / freedom))


def _best(runs: _Runs, cell: int) -> float:
    reached, own = runs.reached(cell), runs.log_steps[runs.cell == cell]
    return float(runs.log_steps[reached[0]] if len(reached) else own.max(initial=0.0))
