"""Steps to a target against batch size, as plans need them: the curve, and curves as other runs might have given them.

Sources: runs (`fit`), a sweep's store, a prediction, a curve.  Where steps = S_min (1 + B_crit / B) is within 10% of
the curve (rms of log steps) the steps at any batch size are those of the fit, else log steps is taken to be linear in
log B between the batch sizes that are known.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from batchlens._arrays import FloatArray
from batchlens._checks import require_path
from batchlens.errors import BatchlensError
from batchlens.scaling._bend import fit_bends, predict_bends
from batchlens.scaling._critical import reached
from batchlens.scaling._intervals import CONFIDENCE
from batchlens.scaling._resampling import resample
from batchlens.scaling._runs import Run, collect_runs
from batchlens.scaling.curve import ScalingCurve
from batchlens.scaling.fitting import fit
from batchlens.sweep.results import SweepResult, read_sweep

# Beyond this misfit (rms, relative) the fitted curve does not stand for the curve.
_MISFIT = 0.1


@dataclass(frozen=True, eq=False)
class StepsSource:
    """Steps against batch size.

    Arguments:
        optimizer: its name, "" where it has none.
        log_batch: of the batch sizes that reached the target.
        log_steps: there.
        noisy: curves as other runs might have given them, one in each row; None where nothing tells how sure they are.
    """

    optimizer: str
    log_batch: FloatArray
    log_steps: FloatArray
    noisy: FloatArray | None

    @property
    def misfit(self) -> float:
        """Of the fitted curve: rms of log steps."""
        bends = fit_bends(self.log_batch, self.log_steps[None])
        fitted = np.log(predict_bends(np.exp(self.log_batch), bends))[0]
        return float(np.sqrt(np.mean((fitted - self.log_steps) ** 2)))

    @property
    def is_fitted(self) -> bool:
        """Whether steps come from the fit, else from interpolation."""
        return self.log_batch.size > 2 and self.misfit <= _MISFIT

    def steps(self, batch_sizes: FloatArray, noisy: bool = False) -> FloatArray:
        """Steps at batch sizes, one curve in each row."""
        rows = self.log_steps[None] if not noisy or self.noisy is None else self.noisy
        if self.is_fitted:
            return predict_bends(batch_sizes, fit_bends(self.log_batch, rows))
        return np.exp([np.interp(np.log(batch_sizes), self.log_batch, row) for row in rows])


def find_source(curve: Any, optimizer: str | None, resamples: int, random: np.random.Generator) -> StepsSource:
    """Whatever holds steps against batch size, for one optimizer."""
    if isinstance(curve, str | Path):
        curve = _open(require_path("curve", curve))
    if isinstance(curve, SweepResult):
        curve = curve.curves()
    if isinstance(curve, ScalingCurve) and any(curve.intervals):
        return _of_curve(curve, resamples, random)
    if isinstance(curve, Mapping):
        return _of_curve(_choose(curve, optimizer), resamples, random)
    runs = collect_runs(curve).runs
    by_optimizer: dict[str, list[Run]] = {}
    for run in runs:
        by_optimizer.setdefault(run.optimizer, []).append(run)
    return _of_runs(_choose(by_optimizer, optimizer), resamples, random)


def _choose(found: Mapping[str, Any], optimizer: str | None) -> Any:
    if optimizer is None and len(found) == 1:
        return next(iter(found.values()))
    if optimizer is not None and optimizer in found:
        return found[optimizer]
    names = ", ".join(found) or "none"
    raise ValueError(f"`optimizer` must be one of {names}, got {'none' if optimizer is None else optimizer}.")


def _open(path: Path) -> Any:
    """What a file holds: a sweep's store, a prediction (curves by optimizer), or runs (the path itself)."""
    try:
        with open(path, "rb") as file:
            head = file.read(64)
    except OSError as error:
        raise BatchlensError(f"{path} cannot be read: {error.strerror or error}.") from None
    if head.startswith(b"SQLite format 3\0"):
        return read_sweep(path)
    if head.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{"):
        return _read_prediction(path)
    return path


def _read_prediction(path: Path) -> dict[str, ScalingCurve]:
    try:
        document = json.loads(path.read_text(encoding="utf-8-sig"))
        curves = {}
        for entry in document["curves"]:
            points = sorted(entry["points"], key=lambda point: point["batch_size"])
            curves[entry["optimizer"]] = ScalingCurve(
                [point["batch_size"] for point in points],
                [point["steps"] for point in points],
                optimizer=entry["optimizer"],
                intervals=[point.get("interval") for point in points],
            )
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise BatchlensError(
            f"{path} must be what `batchlens predict --json` prints, with curves of points that have a batch_size, "
            f"steps and an interval, got {_wrong(error)}."
        ) from None
    if not curves:
        why = "; ".join(map(str, document.get("reasons", []))) or "no curves"
        raise BatchlensError(f"{path} must hold at least one curve to plan by, got {why}.")
    return curves


def _wrong(error: Exception) -> str:
    """What is wrong with a document, in words."""
    return f"no {error.args[0]}" if isinstance(error, KeyError) else str(error).rstrip(".")


def _of_runs(runs: list[Run], resamples: int, random: np.random.Generator) -> StepsSource:
    (fitted,) = fit(runs, resamples=100)  # its intervals are not used
    told = {size for size, steps in zip(fitted.curve.batch_sizes, fitted.curve.steps, strict=True) if steps}
    logs = [
        np.log([run.steps for run in runs if run.batch_size == size and run.steps is not None]) for size in sorted(told)
    ]
    log_batch, log_steps = _require_two(fitted.curve)
    noisy, _ = resample(log_batch, logs, resamples, random)
    return StepsSource(fitted.optimizer, log_batch, log_steps, noisy)


def _of_curve(curve: ScalingCurve, resamples: int, random: np.random.Generator) -> StepsSource:
    """With log steps as uncertain as the intervals say, each side by itself."""
    if not any(curve.intervals):
        return _of_runs(collect_runs(curve).runs, resamples, random)
    log_batch, log_steps = _require_two(curve)
    ends = [ends for steps, ends in zip(curve.steps, curve.intervals, strict=True) if steps]
    below, above = (np.array([_side(ends[i], log, side) for i, log in enumerate(log_steps)]) for side in (0, 1))
    below, above = (np.where(np.isnan(spread), np.nanmax([*spread, 0.0]), spread) for spread in (below, above))
    normal = random.standard_normal((resamples, log_steps.size)) / stats.norm.ppf((1 + CONFIDENCE) / 2)
    return StepsSource(curve.optimizer, log_batch, log_steps, log_steps + np.where(normal < 0, below, above) * normal)


def _side(ends: tuple[float | None, float | None] | None, log_steps: float, side: int) -> float:
    """How far the interval reaches to one side; nan where that is open."""
    end = None if ends is None else ends[side]
    return math.nan if not end else abs(math.log(end) - log_steps)


def _require_two(curve: ScalingCurve) -> tuple[FloatArray, FloatArray]:
    log_batch, log_steps = reached(curve.batch_sizes, curve.steps)
    if log_batch.size < 2:
        raise ValueError(f"`curve` must tell the steps of at least two batch sizes, got {log_batch.size}.")
    return log_batch, log_steps
