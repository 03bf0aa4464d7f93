"""Cells that are trained to confirm a prediction: which, and what they change."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from batchlens._arrays import FloatArray
from batchlens.prediction._readings import READINGS
from batchlens.prediction.prediction import PredictedBatchSize, PredictedCurve, Prediction
from batchlens.scaling._intervals import Interval, open_end
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
        steps: that it took to the target.
        given: steps after which it was to be given up.
        status: how the run ended: "reached", "not_reached", "diverged" or "failed".
        taken: steps until then.

    >>> Confirmed("sgd", 64, 50.0, Interval(40.0, 62.5), 60, 500, "reached", 60).words
    '60, 1.20 times the prediction'
    >>> Confirmed("sgd", 64, 50.0, Interval(40.0, 62.5), None, 500, "diverged", 3).words
    'diverged after 3 steps: the predicted learning rate is too large'
    """

    optimizer: str
    batch_size: int
    predicted: float
    interval: Interval | None
    steps: float | None
    given: int
    status: str
    taken: int

    @property
    def words(self) -> str:
        """What it took, beside the prediction."""
        if self.status == "diverged":
            return f"diverged after {self.taken:,} steps: the predicted learning rate is too large"
        if self.status == "failed":
            return f"failed after {self.taken:,} steps"
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
    """The prediction with what was measured: errors of a curve resemble each other at neighbouring batch sizes.

    A run that diverged says nothing of steps, and that its learning rate is not one to use.
    """
    predicted = []
    for entry in prediction.predicted:
        own = [cell for cell in confirmed if cell.optimizer == entry.optimizer]
        predicted.append(_without_diverged(_moved_to(entry, own), own))
    return replace(prediction, predicted=tuple(predicted), confirmed=tuple(confirmed))


def _without_diverged(entry: PredictedCurve, cells: Sequence[Confirmed]) -> PredictedCurve:
    """Without the settings with which a run diverged, which is a reason not to rely on the curve."""
    curve, settings, reasons = entry.curve, [*entry.curve.settings], [*entry.reasons]
    for cell in cells:
        if cell.status == "diverged":
            place = curve.batch_sizes.index(cell.batch_size)
            rate = settings[place]["learning_rate"]
            settings[place] = {}
            reasons.append(f"at batch size {cell.batch_size:,} its predicted learning rate of {rate:.3g} diverged")
    return replace(entry, curve=replace(curve, settings=tuple(settings)), reasons=tuple(reasons))


def _moved_to(entry: PredictedCurve, cells: Sequence[Confirmed]) -> PredictedCurve:
    """The curve as those that arrived, or took longer than predicted, move it."""
    known = [cell for cell in cells if cell.steps or (cell.status == "not_reached" and cell.given > cell.predicted)]
    if not known:
        return entry
    curve = entry.curve
    shift = _shift(np.log(curve.batch_sizes), known, READINGS[entry.optimizer].steps_error)
    steps = [None if count is None else count * math.exp(by) for count, by in zip(curve.steps, shift, strict=True)]
    intervals = [_moved(interval, by) for interval, by in zip(curve.intervals, shift, strict=True)]
    for cell in known:
        if not cell.steps:
            place = curve.batch_sizes.index(cell.batch_size)
            steps[place], intervals[place] = float(cell.given), Interval(float(cell.given), None)
    updated = replace(curve, steps=tuple(steps), intervals=tuple(intervals))
    return replace(entry, curve=updated, critical_batch_sizes=_shifted(entry, updated))


def _shift(log_sizes: FloatArray, known: Sequence[Confirmed], error: float) -> FloatArray:
    """By how much the log steps at each batch size are expected to be off, given what was measured at some.

    A run that missed the target took as many steps as it was given, at least: that is no matter of its seed.
    """
    at = np.log([cell.batch_size for cell in known])
    off = np.log([(cell.steps or cell.given) / cell.predicted for cell in known])
    scatter = np.array([_SCATTER if cell.steps else 0.0 for cell in known])
    near = error**2 * np.exp(-0.5 * ((at[:, None] - at) / _LENGTH) ** 2) + np.diag(scatter**2)
    reach = error**2 * np.exp(-0.5 * ((log_sizes[:, None] - at) / _LENGTH) ** 2)
    shift: FloatArray = reach @ np.linalg.solve(near, off)
    return shift


def _moved(interval: Interval | None, by: float) -> Interval | None:
    """Along with the steps, as wide as before."""
    return None if interval is None else Interval(*(None if end is None else end * math.exp(by) for end in interval))


def _shifted(entry: PredictedCurve, curve: ScalingCurve) -> tuple[PredictedBatchSize, ...]:
    """Critical batch sizes of the new curve, with intervals as wide as before; those of bounds are open."""
    found = []
    for old in entry.critical_batch_sizes:
        value, relation, _ = curve.critical_batch_size(old.definition)  # type: ignore[arg-type]
        ends = _moved(old.interval, math.log(value / old.value)) if value and old.value else None
        interval = None if ends is None else open_end(ends, relation)
        found.append(old._replace(value=value, interval=interval, relation=relation))
    return tuple(found)
