"""A user's own runs: read from CSV, turned into one scaling curve an optimizer, with intervals.

The steps at a batch size are the geometric mean over its repeats (the mean of log steps): noise in steps to a
target is multiplicative, and every definition of the critical batch size works on logarithms.  A batch size where
fewer than half the runs reached the target counts as not reached; else the mean is over those that did.
"""

import csv
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy import stats

from batchlens._arrays import FloatArray
from batchlens.checks import require_number, require_whole
from batchlens.errors import BatchlensError
from batchlens.scaling.curve import (
    CONFIDENCE,
    DEFINITIONS,
    Definition,
    Estimate,
    Interval,
    ScalingCurve,
    critical_ends,
    fit_curves,
    interval_of_logs,
    percentile_interval,
    predict_curves,
)

if TYPE_CHECKING:
    from _csv import Reader as CsvReader

_ENOUGH_REPEATS = 5  # to tell the noise at one batch size from its own runs
_REQUIRED = ("batch_size", "steps")
_COLUMNS = (*_REQUIRED, "optimizer", "seconds", "repeat")


class Run(NamedTuple):
    """One training run; `steps` is None where it did not reach the target, `seconds` is how long it took."""

    batch_size: float
    steps: float | None
    optimizer: str = ""
    seconds: float | None = None
    repeat: str = ""


class Prediction(NamedTuple):
    """Steps that the fitted curve takes at a batch size; `extrapolated` where that is outside those measured."""

    batch_size: float
    steps: float
    interval: Interval | None
    extrapolated: bool


@dataclass(frozen=True)
class FittedRuns:
    """What the runs of one optimizer say.

    curve: geometric mean of the steps at each batch size; runs, reached: how many there were, and how many
    reached the target; seconds: geometric mean duration of those, None where not given.
    estimates: the critical batch size by each definition.
    noise: what the intervals rest on, "repeats" or "residuals"; None where neither suffices.
    least_steps: S_min of steps = S_min (1 + B_crit / B), B_crit being the estimate of "fit"; None where that one is
    only bounded from below, or where fewer than three batch sizes tell.
    predictions: one a batch size asked for; none where fewer than two batch sizes reached the target.
    fastest: the batch size with the least seconds, the smallest of several alike; None where seconds are not given.
    cheapest: the batch size with the fewest examples, the largest of several alike; None where none was reached.
    """

    optimizer: str
    curve: ScalingCurve
    runs: tuple[int, ...]
    reached: tuple[int, ...]
    seconds: tuple[float | None, ...]
    estimates: tuple[Estimate, ...]
    noise: str | None
    least_steps: float | None
    predictions: tuple[Prediction, ...]
    fastest: float | None
    cheapest: float | None

    def estimate(self, definition: Definition) -> Estimate:
        """The estimate by one of the definitions."""
        return self.estimates[DEFINITIONS.index(definition)]


def read_runs(path: str | Path) -> list[Run]:
    """Which runs does a CSV file hold?

    The first line names the columns: batch_size and steps (empty or nan: the target was not reached), and if there
    are any optimizer, seconds (how long the run took) and repeat (a name for each of several runs alike).  Other
    columns are left alone.  A file that cannot be read so raises a BatchlensError that names the line.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "runs.csv"
    ...     _ = path.write_text("batch_size,steps\\n16,800\\n64,\\n")
    ...     [run.steps for run in read_runs(path)]
    [800.0, None]
    """
    try:
        with open(path, encoding="utf-8-sig", newline="") as file:
            return _parse_runs(path, csv.reader(file, strict=True))
    except OSError as error:
        raise BatchlensError(f"{path} cannot be read: {error.strerror or error}.") from None
    except UnicodeDecodeError:
        raise BatchlensError(f"{path} must be UTF-8 text. Save it as CSV in UTF-8.") from None


def _parse_runs(path: str | Path, lines: "CsvReader") -> list[Run]:
    runs: list[Run] = []
    places: list[int | None] | None = None
    width = 0
    seen: dict[Run, int] = {}
    try:
        for cells in lines:
            if not any(cell.strip() for cell in cells):
                continue
            if places is None:
                places, width = _find_columns(path, lines.line_num, [cell.strip() for cell in cells]), len(cells)
                continue
            where = f"{path}, line {lines.line_num}"
            if len(cells) != width:
                raise BatchlensError(f"{where} must have {width} cells, one a column, got {len(cells)}.")
            run = _parse_run(where, *("" if place is None else cells[place].strip() for place in places))
            if run.repeat:
                first = seen.setdefault(run._replace(steps=None, seconds=None), lines.line_num)
                if first != lines.line_num:
                    raise BatchlensError(
                        f"{where} must not have batch size, optimizer and repeat of line {first}. "
                        "Keep one run of each, with the best settings."
                    )
            runs.append(run)
    except csv.Error as error:
        raise BatchlensError(f"{path}, line {lines.line_num} must be CSV: {error}.") from None
    if places is None:
        raise BatchlensError(f"{path} must begin with a line that names the columns batch_size and steps, got nothing.")
    if not runs:
        raise BatchlensError(f"{path} must hold at least one run below the line of column names, got none.")
    return runs


def _find_columns(path: str | Path, line: int, names: list[str]) -> list[int | None]:
    """Where each known column stands."""
    for name in _COLUMNS:
        if names.count(name) > 1:
            raise BatchlensError(
                f"{path}, line {line} must name the column {name} once, got {names.count(name)} times."
            )
    if missing := [name for name in _REQUIRED if name not in names]:
        raise BatchlensError(
            f"{path}, line {line} must name {' and '.join(missing)}, got {', '.join(names)}. "
            "Separate columns by commas."
        )
    return [names.index(name) if name in names else None for name in _COLUMNS]


def _parse_run(where: str, batch_size: str, steps: str, optimizer: str, seconds: str, repeat: str) -> Run:
    def parse(name: str, text: str, remedy: str = "") -> float:
        try:
            return require_number(name, float(text), low=0, closed=(False, True))
        except ValueError:
            got = text or "nothing"
            raise BatchlensError(f"{where}: `{name}` must be finite and above 0, got {got}.{remedy}") from None

    def parse_or_none(name: str, text: str, remedy: str) -> float | None:
        return None if text.lower() in ("", "nan") else parse(name, text, remedy)

    return Run(
        parse("batch_size", batch_size),
        parse_or_none("steps", steps, " Leave it empty where the target was not reached."),
        optimizer,
        parse_or_none("seconds", seconds, " Leave it empty where it is not known."),
        repeat,
    )


def fit_runs(
    runs: Iterable[Run],
    batch_sizes: Sequence[float] = (),
    resamples: int = 1000,
    seed: int = 0,
) -> list[FittedRuns]:
    """What do measured runs say about the critical batch size, optimizer by optimizer?

    The intervals are bootstrap percentiles.  Each resample puts noise anew on the log steps of every batch size: the
    mean of as many deviations as it has repeats, drawn from its own where it has five or more, else from those of
    all batch sizes.  Without repeats, the noise is drawn from the residuals of the fit S_min (1 + B_crit / B).
    Deviations are scaled up by sqrt(n / (n - p)), p means or parameters having been taken from n of them, and by
    the ratio of Student's quantile to the normal one, without which few runs would look too certain.  Fewer than two
    degrees of freedom give no interval.  A resample that only bounds the value leaves that side open.

    Arguments:
        runs: as `read_runs` gives them.
        batch_sizes: where to predict steps, above 0.
        resamples: how many, at least 100.
        seed: of the resampling; the same seed gives the same intervals, in whatever order the runs come.

    >>> runs = [Run(size, 100 * (1 + 256 / size)) for size in (4, 16, 64, 256, 1024, 4096, 16384)]
    >>> (fitted,) = fit_runs(runs, batch_sizes=[512])
    >>> print(fitted.estimate("fit").critical_batch_size, round(fitted.predictions[0].steps))
    256 150
    """
    resamples = require_whole("resamples", resamples, low=100, high=10**6)
    seed = require_whole("seed", seed)
    wanted = [require_number("batch_sizes", size, low=0, closed=(False, True)) for size in batch_sizes]
    by_optimizer: dict[str, list[Run]] = {}
    for run in runs:
        require_number("batch_size", run.batch_size, low=0, closed=(False, True))
        for name, value in (("steps", run.steps), ("seconds", run.seconds)):
            if value is not None:
                require_number(name, value, low=0, closed=(False, True))
        by_optimizer.setdefault(run.optimizer, []).append(run)
    if not by_optimizer:
        raise ValueError("`runs` must hold at least one run, got none.")
    return [_fit_optimizer(name, mine, wanted, resamples, seed) for name, mine in by_optimizer.items()]


def _fit_optimizer(optimizer: str, runs: list[Run], wanted: list[float], resamples: int, seed: int) -> FittedRuns:
    sizes = sorted({run.batch_size for run in runs})
    groups = [[run for run in runs if run.batch_size == size] for size in sizes]
    logs = [np.log(np.sort([run.steps for run in group if run.steps is not None])) for group in groups]
    told = [2 * len(log) >= len(group) for log, group in zip(logs, groups, strict=True)]
    steps = [_mean([run.steps for run in group]) if tells else None for group, tells in zip(groups, told, strict=True)]
    seconds = [_mean_seconds(group) if tells else None for group, tells in zip(groups, told, strict=True)]
    curve = ScalingCurve(sizes, steps, optimizer=optimizer)
    examples = [None if count is None else size * count for size, count in zip(sizes, steps, strict=True)]

    log_batch = np.log([size for size, tells in zip(sizes, told, strict=True) if tells])
    noisy, noise = None, None
    least_steps, predictions = None, []
    if log_batch.size > 1:
        kept = [log for log, tells in zip(logs, told, strict=True) if tells]
        noisy, noise = _resample(log_batch, kept, resamples, np.random.default_rng(seed))
        log_steps = np.array([[log.mean() for log in kept]])
        fit = fit_curves(log_batch, log_steps)
        if log_batch.size > 2 and curve.critical_batch_size("fit").relation != ">=":
            least_steps = math.exp(fit[1][0])
        predictions = _predict(log_batch, fit, noisy, wanted)
    return FittedRuns(
        optimizer=optimizer,
        curve=curve,
        runs=tuple(map(len, groups)),
        reached=tuple(map(len, logs)),
        seconds=tuple(seconds),
        estimates=tuple(
            Estimate(
                curve.critical_batch_size(definition),
                None if noisy is None else _critical_interval(definition, log_batch, noisy),
            )
            for definition in DEFINITIONS
        ),
        noise=noise,
        least_steps=least_steps,
        predictions=tuple(predictions),
        fastest=next(iter(_where_least(sizes, seconds)), None),
        cheapest=next(reversed(_where_least(sizes, examples)), None),
    )


def _resample(
    log_batch: FloatArray, logs: list[FloatArray], resamples: int, random: np.random.Generator
) -> tuple[FloatArray | None, str | None]:
    """Curves as other runs might have given them, one a row, and what their noise was drawn from."""
    log_steps = np.array([log.mean() for log in logs])
    counts = [len(log) for log in logs]
    freedom = sum(counts) - len(counts)
    if freedom >= 2:
        noise = "repeats"
        own = [(log - log.mean()) * math.sqrt(len(log) / max(len(log) - 1, 1)) for log in logs]
        everyone = np.concatenate([deviations for deviations in own if len(deviations) > 1])
        sources = [mine if len(mine) >= _ENOUGH_REPEATS else everyone for mine in own]
    else:
        noise = "residuals"
        counts = [1] * len(logs)
        freedom = len(logs) - 2
        if freedom < 2:
            return None, None
        log_critical, log_least = fit_curves(log_batch, log_steps[None])
        residuals = log_steps - log_least - np.logaddexp(0, log_critical - log_batch)
        sources = [residuals * math.sqrt(len(logs) / freedom)] * len(logs)
    tail = (1 + CONFIDENCE) / 2
    widening = stats.t.ppf(tail, freedom) / stats.norm.ppf(tail)
    columns = [
        random.choice(source, size=(resamples, count)).mean(axis=1)
        for source, count in zip(sources, counts, strict=True)
    ]
    return log_steps + widening * np.stack(columns, axis=1), noise


def _critical_interval(definition: Definition, log_batch: FloatArray, noisy: FloatArray) -> Interval | None:
    return interval_of_logs(*percentile_interval(*critical_ends(definition, log_batch, noisy)))


def _predict(
    log_batch: FloatArray,
    fit: tuple[FloatArray, FloatArray],
    noisy: FloatArray | None,
    wanted: list[float],
) -> list[Prediction]:
    predictions: list[Prediction] = []
    if not wanted:
        return predictions
    noisy_fits = None if noisy is None else fit_curves(log_batch, noisy)
    for size in wanted:
        log_size = np.log([size])
        interval = None
        if noisy_fits is not None:
            log_steps = np.log(predict_curves(log_size, *noisy_fits)[:, 0])
            interval = interval_of_logs(*percentile_interval(log_steps, log_steps))
        outside = not log_batch[0] <= log_size[0] <= log_batch[-1]
        predictions.append(Prediction(size, float(predict_curves(log_size, *fit)[0, 0]), interval, outside))
    return predictions


def _mean_seconds(group: list[Run]) -> float | None:
    """Over the runs that reached the target, where all of them have it."""
    seconds = [run.seconds for run in group if run.steps is not None]
    return None if None in seconds else _mean(seconds)


def _mean(values: Sequence[float | None]) -> float | None:
    """Geometric mean of what is known; a single value as it is."""
    known = sorted(value for value in values if value is not None)
    if len(known) < 2:
        return known[0] if known else None
    return math.exp(np.log(known).mean())


def _where_least(sizes: list[float], values: Sequence[float | None]) -> list[float]:
    """The batch sizes with the least value, all that are alike to rounding."""
    known = [(value, size) for value, size in zip(values, sizes, strict=True) if value is not None]
    return [size for value, size in known if value <= min(known)[0] * (1 + 1e-9)]
