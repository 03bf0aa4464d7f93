"""Cells that are trained to confirm a prediction: which, and what they change."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from batchlens.prediction._readings import READINGS
from batchlens.prediction.prediction import PredictedBatchSize, PredictedCurve, Prediction
from batchlens.scaling._intervals import Interval
from batchlens.scaling.curve import ScalingCurve

# How far apart in log batch size errors of a curve still resemble each other, and the scatter of one run's log steps.
_LENGTH, _SCATTER = 2.5, 0.15


@dataclass(frozen=True)
class Confirmed:
    """A cell that was trained at the settings predicted for it; `steps` is None where it missed the target.

    Arguments:
        optimizer: its name.
        batch_size: examples of a step.
        predicted: steps.
        interval: of those.
        steps: that it took.
        given: steps after which it was given up.

    >>> Confirmed("sgd", 64, 50.0, Interval(40.0, 62.5), 60, 500).words
    '60, 1.20 times the prediction'
    """

    optimizer: str
    batch_size: int
    predicted: float
    interval: Interval | None
    steps: float | None
    given: int

    @property
    def words(self) -> str:
        """What it took, beside the prediction."""
        if self.steps is None:
            return f"not within {self.given:,}"
        return f"{self.steps:,.0f}, {self.steps / self.predicted:.2f} times the prediction"


def most_telling(prediction: Prediction, count: int, largest: float = math.inf) -> list[tuple[str, int]]:
    """The cells about which candidate models disagree most, the most first; an optimizer's own ones apart.

    Fewer than `count` where no others have a predicted learning rate, or a batch size of at most `largest`.
    """
    cells = [
        (spread, entry.optimizer, int(size))
        for entry in prediction.predicted
        for size, steps, spread, settings in zip(
            entry.curve.batch_sizes, entry.curve.steps, entry.disagreement, entry.curve.settings, strict=True
        )
        if steps is not None and size <= largest and settings.get("learning_rate") is not None
    ]
    chosen: list[tuple[str, int]] = []
    for _, optimizer, size in sorted(cells, reverse=True):
        near = [other for name, other in chosen if name == optimizer and abs(math.log(other / size)) < _LENGTH / 2]
        if not near and len(chosen) < count:
            chosen.append((optimizer, size))
    return chosen


def update(prediction: Prediction, confirmed: Sequence[Confirmed]) -> Prediction:
    """The prediction with what was measured: errors of a curve resemble each other at neighbouring batch sizes."""
    predicted = tuple(_updated(entry, [c for c in confirmed if c.optimizer == entry.optimizer]) for entry in
                      prediction.predicted)  # fmt: skip
    return replace(prediction, predicted=predicted, confirmed=tuple(confirmed))


def _updated(entry: PredictedCurve, cells: Sequence[Confirmed]) -> PredictedCurve:
    known = [cell for cell in cells if cell.steps or cell.given > cell.predicted]
    if not known:
        return entry
    error = READINGS[entry.optimizer].steps_error
    sizes = np.log(entry.curve.batch_sizes)
    at = np.log([cell.batch_size for cell in known])
    missing = np.log([(cell.steps or cell.given) / cell.predicted for cell in known])  # a miss took as many, at least
    near = error**2 * np.exp(-0.5 * ((at[:, None] - at) / _LENGTH) ** 2) + _SCATTER**2 * np.eye(len(at))
    reach = error**2 * np.exp(-0.5 * ((sizes[:, None] - at) / _LENGTH) ** 2)
    shift = reach @ np.linalg.solve(near, missing)
    left = np.sqrt(np.maximum(error**2 - np.einsum("ij,ji->i", reach, np.linalg.solve(near, reach.T)), 0.0) / error**2)
    curve = entry.curve
    steps = [None if count is None else count * math.exp(by) for count, by in zip(curve.steps, shift, strict=True)]
    updated = ScalingCurve(
        curve.batch_sizes,
        steps,
        curve.settings,
        optimizer=curve.optimizer,
        target=curve.target,
        statuses=curve.statuses,
        intervals=[
            _narrowed(interval, count, float(part))
            for interval, count, part in zip(curve.intervals, steps, left, strict=True)
        ],
    )
    return replace(entry, curve=updated, critical_batch_sizes=_shifted(entry, updated))


def _narrowed(interval: Interval | None, steps: float | None, part: float) -> Interval | None:
    """About the new steps, with the part of the logarithmic width that is left."""
    if interval is None or steps is None or interval.low is None or interval.high is None:
        return interval
    half = 0.5 * math.log(interval.high / interval.low) * max(part, 0.4)
    return Interval(steps * math.exp(-half), steps * math.exp(half))


def _shifted(entry: PredictedCurve, curve: ScalingCurve) -> tuple[PredictedBatchSize, ...]:
    """Critical batch sizes of the new curve, with intervals as wide as before."""
    found = []
    for old in entry.critical_batch_sizes:
        value, relation, _ = curve.critical_batch_size(old.definition)  # type: ignore[arg-type]
        by = 1.0 if not value or not old.value else value / old.value
        ends = None if old.interval is None else Interval(*(None if end is None else end * by for end in old.interval))
        found.append(old._replace(value=value, interval=ends, relation=relation))
    return tuple(found)
