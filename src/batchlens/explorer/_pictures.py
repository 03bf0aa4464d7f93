"""Where in the spectrum the risk is along training, and why: still to be learnt, or noise."""

from typing import Any

import numpy as np

from batchlens._arrays import FloatArray, IntArray
from batchlens.theory._by_coordinate import risk_by_coordinate
from batchlens.theory.problem import NoisyQuadratic
from batchlens.theory.rule import UpdateRule

# Step counts that each moment stands for: momentum's oscillations are quicker than moments follow each other.
_AROUND = 3
# Up to this number of entries a problem is seen entry by entry, or by a number of entries; beyond, by curvature.
_FEW = 128


def picture(
    problem: NoisyQuadratic, rule: UpdateRule, batch_size: float, moments: IntArray, bands: int
) -> dict[str, Any]:
    """For each band of curvature, the largest first: its parts of the risk around every moment, in ten-thousandths.

    >>> import batchlens as bl
    >>> seen = picture(NoisyQuadratic.power_law(2), bl.UpdateRule(1.0), 1, np.array([1]), bands=2)
    >>> seen["curvature"], seen["learning"], seen["noise"]
    ([1.0, 0.5], [[0, 909]], [[7273, 1818]])
    """
    steps = _around(moments)
    left, noise = risk_by_coordinate(problem, rule, batch_size, steps.reshape(-1))
    order = np.argsort(-problem.curvature, kind="stable")
    starts = _first_of_bands(problem.curvature[order], bands)
    count = np.add.reduceat(problem.count[order], starts)
    curvature = np.add.reduceat((problem.count * problem.curvature)[order], starts) / count
    with np.errstate(over="ignore", invalid="ignore"):
        mean_left, mean_noise = (part.reshape(*steps.shape, -1).sum(axis=1)[:, order] for part in (left, noise))
        totals = (mean_left + mean_noise).sum(axis=1, keepdims=True)
    return {
        "curvature": [float(f"{value:.4g}") for value in curvature],
        "coordinates": [float(f"{value:.6g}") for value in count],
        "learning": _parts(mean_left, totals, starts),
        "noise": _parts(mean_noise, totals, starts),
    }


def _around(moments: IntArray) -> IntArray:
    """Some step counts around each moment, halfway to its neighbours at the most."""
    if moments.size == 1:
        return moments[:, None]
    factor = (moments[-1] / moments[0]) ** (0.5 / (moments.size - 1))
    spread = factor ** np.linspace(-0.8, 0.8, _AROUND)
    steps: IntArray = np.maximum(np.rint(moments[:, None] * spread), 1).astype(np.int64)
    return steps


def _first_of_bands(curvature: FloatArray, bands: int) -> IntArray:
    """Where each band of falling curvatures begins: a number of entries alike, or of many entries parts of log h."""
    if curvature.size <= _FEW:
        return np.arange(0, curvature.size, -(-curvature.size // bands))
    logs = np.log(curvature)
    width = (logs[0] - logs[-1]) / bands or 1.0
    band = np.minimum(((logs[0] - logs) / width).astype(np.int64), bands - 1)
    return np.flatnonzero(np.diff(band, prepend=-1))


def _parts(risks: FloatArray, totals: FloatArray, starts: IntArray) -> list[list[int]]:
    """Parts of the whole, band by band; 0 where the whole is 0 or endless."""
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        parts = np.add.reduceat(risks, starts, axis=1) / totals
    parts = np.where(np.isfinite(parts), parts, 0.0)
    rounded: list[list[int]] = np.rint(10_000 * parts).astype(np.int64).tolist()
    return rounded


def reduced(document: dict[str, Any]) -> dict[str, Any]:
    """A document about a training with fewer digits, for a page that holds many of them."""
    lines = {name: [float(f"{value:.4g}") for value in document[name]] for name in ("risk", "deterministic", "noise")}
    return document | lines
