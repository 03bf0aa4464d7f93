"""What a sweep's store says, optimizer by optimizer: curves, how sure they are, and what to be wary of.

Intervals are bootstrap percentiles: each resample draws as many trials of every cell as count there, with replacement,
and takes the best.  The best of fewer distinct trials can only be slower, so an interval of steps begins at the steps
found.  One of a critical batch size is widened to what was found, where the percentiles leave that out.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any, NamedTuple

import numpy as np

from batchlens._arrays import FloatArray
from batchlens._results import short
from batchlens.optimizers import OPTIMIZERS, base_of
from batchlens.scaling._bend import Bends, fit_bends, resample_bends
from batchlens.scaling._critical import DEFINITIONS, UNFINISHED, reached
from batchlens.scaling._intervals import Estimate, Interval, critical_ends, interval_of_logs, percentile_interval
from batchlens.scaling._resampling import FittedCurve, Prediction
from batchlens.scaling.curve import CriticalBatchSize, ScalingCurve
from batchlens.sweep._cells import CellResult
from batchlens.sweep._declaration import Declaration
from batchlens.sweep._reporting import most_steps, seed_steps

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
    def seconds(self) -> float | None:
        """To the target: its steps times the median seconds of a step over all runs; None where they were not timed."""
        runs = (*self.result.members, *self.result.repeats)
        paces = [run.seconds / run.steps_taken for run in runs if run.seconds > 0 and run.steps_taken > 0]
        return None if self.steps is None or not paces else self.steps * median(paces)

    @property
    def effective_learning_rate(self) -> float | None:
        """The winner's; None where there is none, or where it is not known."""
        return effective_rate(self.result.cell.optimizer, self.settings)

    @property
    def good_settings(self) -> list[Mapping[str, float]]:
        """The winner's, and those of trials that took no more steps than one more seed of it might."""
        most = None if self.result.reported is None else most_steps(self.result.repeats)
        as_good = [] if most is None else [run for run in self.result.members if (seed_steps(run) or math.inf) <= most]
        return [self.settings, *(run.settings for run in as_good)]


def effective_rate(optimizer: str, settings: Mapping[str, float]) -> float | None:
    """learning_rate / (1 - momentum) where momentum adds gradients up, else the learning rate.

    None where there is no rate, or where it is not said what the momentum is, because it was not searched.
    """
    rate, momentum = settings.get("learning_rate"), settings.get("momentum")
    if rate is None or OPTIMIZERS[base_of(optimizer)].momentum != "adds":
        return rate
    return None if momentum is None else rate / (1 - momentum)


@dataclass(frozen=True)
class MeasuredCurve:
    """One optimizer: its cells by batch size, the critical batch size by each definition, and the fitted curve."""

    curve: ScalingCurve
    estimates: tuple[Estimate, ...]
    cells: tuple[MeasuredCell, ...]
    band: tuple[Prediction, ...]
    fastest_range: tuple[float, float] | None

    @property
    def optimizer(self) -> str:
        return self.curve.optimizer

    @property
    def fastest(self) -> int | None:
        """The batch size with the least seconds; None where fewer than two were timed."""
        timed = [(cell.seconds, cell.batch_size) for cell in self.cells if cell.seconds is not None]
        return min(timed)[1] if len(timed) > 1 else None

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
    resamples = _group_resamples(curve, resampled) if told else []
    found = [curve.critical_batch_size(definition) for definition in DEFINITIONS]
    estimates = tuple(Estimate(value, _critical_interval(value, resamples)) for value in found)
    fitted = _fit_bend(curve, resamples)
    return MeasuredCurve(
        curve,
        estimates,
        cells,
        band=() if fitted is None else fitted.band(),
        fastest_range=None if fitted is None else fitted.tied_range({cell.batch_size: cell.seconds for cell in cells}),
    )


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


class _Resamples(NamedTuple):
    """Resamples with a winner at the same batch sizes, two of them or more, and their bends."""

    log_batch: FloatArray
    log_steps: FloatArray
    bends: Bends


def _group_resamples(curve: ScalingCurve, resampled: FloatArray) -> list[_Resamples]:
    """Of resamples without a winner at some batch sizes, the others tell; a rest that tells nothing is left out."""
    log_batch, won = np.log(curve.batch_sizes), resampled > 0
    groups = []
    for pattern in np.unique(won, axis=0):
        if pattern.sum() > 1:
            log_steps = np.log(resampled[np.ix_((won == pattern).all(axis=1), pattern)])
            groups.append(_Resamples(log_batch[pattern], log_steps, resample_bends(log_batch[pattern], log_steps)))
    return groups


def _critical_interval(found: CriticalBatchSize, resamples: list[_Resamples]) -> Interval | None:
    if found.value is None or not resamples:
        return None
    ends = [critical_ends(found.definition, *group) for group in resamples]
    silent = np.full(RESAMPLES - sum(len(group.log_steps) for group in resamples), np.inf)
    log_low = np.concatenate([*(low for low, _ in ends), -silent])
    log_high = np.concatenate([*(high for _, high in ends), silent])
    interval = interval_of_logs(*percentile_interval(log_low, log_high)) or Interval(None, None)
    low = None if interval.low is None or found.relation == "<=" else min(interval.low, found.value)
    high = None if interval.high is None or found.relation == ">=" else max(interval.high, found.value)
    return None if low is None and high is None else Interval(low, high)


def _fit_bend(curve: ScalingCurve, resamples: list[_Resamples]) -> FittedCurve | None:
    """The curve through the winners, with the bends of the resamples that have a winner wherever it has."""
    log_batch, log_steps = reached(curve.batch_sizes, curve.steps)
    if log_batch.size < 2:
        return None
    whole = next((group for group in resamples if np.array_equal(group.log_batch, log_batch)), None)
    sizes = np.array([size for size, steps in zip(curve.batch_sizes, curve.steps, strict=True) if steps])
    return FittedCurve(
        sizes,
        log_steps,
        fit_bends(log_batch, log_steps[None]),
        noise=None,
        noisy=None if whole is None else whole.log_steps,
        bends=None if whole is None else whole.bends,
    )


def curve_document(curve: MeasuredCurve) -> dict[str, Any]:
    """One optimizer, for JSON."""
    return {
        "optimizer": curve.optimizer,
        "target": curve.curve.target,
        "complete": curve.complete,
        "critical_batch_size": curve.estimates[0].critical_batch_size._asdict(),
        "fastest": curve.fastest,
        "fastest_range": None if curve.fastest_range is None else list(map(short, curve.fastest_range)),
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
        "seconds": cell.seconds,
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
