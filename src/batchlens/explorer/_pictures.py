"""Where in the spectrum the risk is along training, and why: still to be learnt, or noise."""

from typing import Any

import numpy as np

from batchlens._arrays import FloatArray, IntArray
from batchlens.theory._by_coordinate import risk_by_coordinate
from batchlens.theory.problem import NoisyQuadratic
from batchlens.theory.rule import UpdateRule


def picture(
    problem: NoisyQuadratic, rule: UpdateRule, batch_size: float, moments: IntArray, bands: int
) -> dict[str, Any]:
    """For each band of curvature, the largest first: its parts of the risk at every moment, in thousandths.

    >>> import batchlens as bl
    >>> seen = picture(NoisyQuadratic.power_law(2), bl.UpdateRule(1.0), 1, np.array([0, 1]), bands=2)
    >>> seen["curvature"], seen["learning"], seen["noise"]
    ([1.0, 0.5], [[667, 333], [0, 91]], [[0, 0], [727, 182]])
    """
    left, noise = risk_by_coordinate(problem, rule, batch_size, moments)
    order = np.argsort(-problem.curvature, kind="stable")
    band = _bands(problem.curvature[order], bands)
    starts = np.flatnonzero(np.diff(band, prepend=-1))
    with np.errstate(over="ignore", invalid="ignore"):
        totals = (left + noise).sum(axis=1, keepdims=True)
    count = np.add.reduceat(problem.count[order], starts)
    curvature = np.add.reduceat((problem.count * problem.curvature)[order], starts) / count
    return {
        "curvature": [float(f"{value:.4g}") for value in curvature],
        "coordinates": [float(f"{value:.6g}") for value in count],
        "learning": _thousandths(left[:, order], totals, starts),
        "noise": _thousandths(noise[:, order], totals, starts),
    }


def _bands(curvature: FloatArray, bands: int) -> IntArray:
    """To which band each of falling curvatures belongs, equal parts of the logarithmic range."""
    logs = np.log(curvature)
    width = (logs[0] - logs[-1]) / bands or 1.0
    band: IntArray = np.minimum(((logs[0] - logs) / width).astype(np.int64), bands - 1)
    return band


def _thousandths(risks: FloatArray, totals: FloatArray, starts: IntArray) -> list[list[int]]:
    """Parts of the whole, band by band; 0 where the whole is 0 or endless."""
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        parts = np.add.reduceat(risks, starts, axis=1) / totals
    parts = np.where(np.isfinite(parts), parts, 0.0)
    rounded: list[list[int]] = np.rint(1000 * parts).astype(np.int64).tolist()
    return rounded


def reduced(document: dict[str, Any]) -> dict[str, Any]:
    """A document about a training with fewer digits, for a page that holds many of them."""
    lines = {name: [float(f"{value:.4g}") for value in document[name]] for name in ("risk", "deterministic", "noise")}
    return document | lines
