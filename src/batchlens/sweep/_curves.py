"""What a sweep's store says, optimizer by optimizer: curves, how sure they are, and what to be wary of.

Intervals are bootstrap percentiles: each resample draws as many trials of every cell as count there, with replacement,
and takes the best.  The best of fewer distinct trials can only be slower, so an interval of steps begins at the steps
found.  One of a critical batch size is widened to what was found, where the percentiles leave that out.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from batchlens._arrays import FloatArray
from batchlens.optimizers import OPTIMIZERS, base_of
from batchlens.scaling._critical import DEFINITIONS, UNFINISHED, Definition
from batchlens.scaling._intervals import Estimate, Interval, critical_ends, interval_of_logs, percentile_interval
from batchlens.scaling.curve import CriticalBatchSize, ScalingCurve
from batchlens.sweep._cells import CellResult
from batchlens.sweep._declaration import Declaration

RESAMPLES = 1000


@dataclass(frozen=True)
class MeasuredCell:
    """One optimizer at one batch size; `interval` is of the steps, None where there are too few trials for one."""

    result: CellResult
    interval: Interval | None

    @property
    def batch_size(self) -> int:
        return self.result.cell.batch_size

    @property
    def steps(self) -> float | None:
        """The winner's, of a guided search the mean of its fresh seeds; None where there is none."""
        if self.result.reported is not None:
            return self.result.reported.steps
        return None if self.result.winner is None else self.result.winner.steps

    @property
    def status(self) -> str:
        """ "unfinished" where no trial has reached the target, but not all have been run."""
        if self.steps is not None:
            return "reached"
        return "not_reached" if self.result.complete else "unfinished"

    @property
    def settings(self) -> Mapping[str, float]:
        """The winner's."""
        return {} if self.result.winner is None else self.result.winner.settings

    @property
    def effective_learning_rate(self) -> float | None:
        """learning_rate / (1 - momentum) where momentum adds gradients up, else the learning rate.

        None where there is no winner, or where the store does not say the momentum because it was not searched.
        """
        rate, momentum = self.settings.get("learning_rate"), self.settings.get("momentum")
        if rate is None or OPTIMIZERS[base_of(self.result.cell.optimizer)].momentum != "adds":
            return rate
        return None if momentum is None else rate / (1 - momentum)


@dataclass(frozen=True)
class MeasuredCurve:
    """One optimizer: its cells by batch size, and the critical batch size by each definition."""

    curve: ScalingCurve
    estimates: tuple[Estimate, ...]
    cells: tuple[MeasuredCell, ...]

    @property
    def optimizer(self) -> str:
        return self.curve.optimizer

    @property
    def complete(self) -> bool:
        """Whether every search of the optimizer has all its trials."""
        return all(cell.result.complete for cell in self.cells)


def measure(optimizer: str, seeded: list[tuple[int, CellResult]], declaration: Declaration) -> MeasuredCurve:
    seeded = sorted(seeded, key=lambda entry: entry[1].cell.batch_size)
    resampled = np.stack([result.bootstrap(RESAMPLES, seed) for seed, result in seeded], axis=1)
    cells = tuple(
        MeasuredCell(result, _steps_interval(result, column, declaration.search))
        for (_, result), column in zip(seeded, resampled.T, strict=True)
    )
    curve = ScalingCurve(
        [cell.batch_size for cell in cells],
        [cell.steps for cell in cells],
        [cell.settings for cell in cells],
        optimizer=optimizer,
        target=declaration.target,
        statuses=[cell.status if cell.result.complete else UNFINISHED for cell in cells],
        intervals=[cell.interval for cell in cells],
    )
    told = all(_is_told(cell) for cell in cells if cell.steps is not None)
    found = [curve.critical_batch_size(definition) for definition in DEFINITIONS]
    estimates = tuple(Estimate(value, _critical_interval(value, curve, resampled) if told else None) for value in found)
    return MeasuredCurve(curve, estimates, cells)


def _is_told(cell: MeasuredCell) -> bool:
    """Whether resampling says how sure a cell is; seeds that missed the target leave that open."""
    reported = cell.result.reported
    return cell.interval is not None and (reported is None or cell.interval.high is not None)


def _steps_interval(result: CellResult, resampled: FloatArray, search: str) -> Interval | None:
    if search == "guided":  # fresh seeds tell, or nothing does
        return None if result.reported is None else result.reported.interval
    if result.winner is None or result.counted < 2:
        return None
    steps = np.where(np.isnan(resampled), np.inf, resampled)
    low, high = percentile_interval(steps, steps)
    return Interval(low, None if np.isinf(high) else high)


def _critical_interval(found: CriticalBatchSize, curve: ScalingCurve, resampled: FloatArray) -> Interval | None:
    """Of resamples without a winner at some batch sizes, the others tell."""
    if found.value is None:
        return None
    log_low, log_high = _resampled_ends(found.definition, np.log(curve.batch_sizes), resampled)
    interval = interval_of_logs(*percentile_interval(log_low, log_high)) or Interval(None, None)
    low = None if interval.low is None or found.relation == "<=" else min(interval.low, found.value)
    high = None if interval.high is None or found.relation == ">=" else max(interval.high, found.value)
    return None if low is None and high is None else Interval(low, high)


def _resampled_ends(
    definition: Definition, log_batch: FloatArray, resampled: FloatArray
) -> tuple[FloatArray, FloatArray]:
    log_low, log_high = np.full(len(resampled), -np.inf), np.full(len(resampled), np.inf)
    reached = resampled > 0
    for pattern in np.unique(reached, axis=0):
        if pattern.sum() > 1:
            rows = (reached == pattern).all(axis=1)
            curves = np.log(resampled[np.ix_(rows, pattern)])
            log_low[rows], log_high[rows] = critical_ends(definition, log_batch[pattern], curves)
    return log_low, log_high


def curve_document(curve: MeasuredCurve) -> dict[str, Any]:
    """One optimizer, for JSON."""
    return {
        "optimizer": curve.optimizer,
        "target": curve.curve.target,
        "complete": curve.complete,
        "critical_batch_size": curve.estimates[0].critical_batch_size._asdict(),
        "critical_batch_sizes": [
            {**entry.critical_batch_size._asdict(), "interval": _ends(entry.interval)} for entry in curve.estimates
        ],
        "points": [_point_document(cell) for cell in curve.cells],
    }


def _point_document(cell: MeasuredCell) -> dict[str, Any]:
    result = cell.result
    return {
        "batch_size": cell.batch_size,
        "status": cell.status,
        "steps": cell.steps,
        "interval": _ends(cell.interval),
        "search_steps": _search_steps(result),
        **_reported_document(result),
        "winner": None if result.winner is None else result.winner.key.number,
        "learning_rate": cell.settings.get("learning_rate"),
        "effective_learning_rate": cell.effective_learning_rate,
        "settings": dict(cell.settings),
        "complete": result.complete,
        "runs": result.runs,
        "counted": result.counted,
        "statuses": dict(result.statuses),
        "repeats": result.repeat_steps(),
        "flags": list(result.flags),
    }


def _reported_document(result: CellResult) -> dict[str, Any]:
    """What only a guided search says."""
    if result.reported is None:
        return {}
    reported = result.reported
    also = {target: found._asdict() for target, found in reported.also.items()}
    return {"seeds": list(reported.seeds), "weights": reported.weights, "also": also}


def _search_steps(result: CellResult) -> float | None:
    """The fewest steps that a run of the search itself took."""
    if result.reported is not None:
        return result.reported.minimum
    return None if result.winner is None else result.winner.steps


def _ends(interval: Interval | None) -> list[float | None] | None:
    return None if interval is None else list(interval)
