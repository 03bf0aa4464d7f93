"""One's own runs, turned into one scaling curve per optimizer, with intervals.

The steps at a batch size are the geometric mean over its repeats (the mean of log steps): noise in steps to a
target is multiplicative, and every definition of the critical batch size works on logarithms.  A batch size where
fewer than half the runs reached the target counts as not reached; else the mean is over those that did.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from batchlens._arrays import FloatArray
from batchlens._checks import require_number, require_whole
from batchlens._results import Result, axes_or_new, short
from batchlens.scaling._critical import DEFINITIONS, Definition
from batchlens.scaling._hyperbola import fit_curves
from batchlens.scaling._intervals import Estimate
from batchlens.scaling._logs.choosing import Several
from batchlens.scaling._logs.crossing import Direction
from batchlens.scaling._logs.measuring import Question
from batchlens.scaling._resampling import Prediction, Sharpness, fit_resampled
from batchlens.scaling._runs import Run, collect_runs
from batchlens.scaling._sentences import say_fitted
from batchlens.scaling.curve import ScalingCurve

if TYPE_CHECKING:
    import pandas
    from matplotlib.axes import Axes


@dataclass(frozen=True, repr=False)
class FittedRuns(Result):
    """What the runs of one optimizer say.

    Arguments:
        optimizer: its name; empty where the runs do not say.
        curve: geometric mean of the steps at each batch size.
        runs: how many there were at each batch size.
        reached: how many of them reached the target.
        seconds: geometric mean duration of those; None where not given.
        estimates: the critical batch size by each definition.
        noise: what the intervals rest on, "repeats" or "residuals"; None where neither suffices.
        least_steps: S_min of steps = S_min (1 + B_crit / B), B_crit being the estimate of "fit"; None where that one is
            only bounded from below, or where fewer than three batch sizes tell.
        sharpness: a of the definition "bend" with its interval; None where fewer than three batch sizes tell.
        predictions: one for each batch size asked for; none where fewer than two batch sizes reached the target.
        band: predictions close enough to draw the fitted curve through, over all batch sizes measured or asked for.
        fastest: the batch size with the least seconds, the smallest of several alike; None unless
            every batch size that reached the target has them.
        fastest_range: between which batch sizes around it the runs cannot tell which is faster, at 95% confidence; None
            where the noise is not known.
        cheapest: the batch size with the fewest examples, the largest of several alike; None where none was reached.
        cheapest_range: the same of examples.

    >>> curve = ScalingCurve([4, 16, 64, 256, 1024], [6500, 1700, 500, 200, 125])
    >>> (fitted,) = fit(curve)
    >>> print(fitted.estimate("fit").critical_batch_size)
    256
    >>> print(fitted.sentence.partition(":")[0])
    The critical batch size is about 256 (256 to 256)
    """

    optimizer: str
    curve: ScalingCurve
    runs: tuple[int, ...]
    reached: tuple[int, ...]
    seconds: tuple[float | None, ...]
    estimates: tuple[Estimate, ...]
    noise: str | None
    least_steps: float | None
    sharpness: Sharpness | None
    predictions: tuple[Prediction, ...]
    band: tuple[Prediction, ...]
    fastest: float | None
    fastest_range: tuple[float, float] | None
    cheapest: float | None
    cheapest_range: tuple[float, float] | None

    def estimate(self, definition: Definition) -> Estimate:
        """The estimate by one of the definitions."""
        return self.estimates[DEFINITIONS.index(definition)]

    @property
    def sentence(self) -> str:
        """What the runs say of the batch size, in words: how large, at what cost, and which is fastest."""
        return say_fitted(self)

    @property
    def headline(self) -> str:
        """The critical batch size by the definition "fit", with its interval."""
        found, interval = self.estimate("fit")
        ends = "" if interval is None else f" ({interval})"
        return f"{self.optimizer or 'runs'}: critical batch size {found}{ends} by fit"

    def overhead_batch_size(self, reference: float, tolerance: float = 0.2) -> float | None:
        """Which batch takes at most `tolerance` more examples than the batch size `reference`, on the curve of "fit"?

        (1 + tolerance) reference + tolerance B_crit: with 256 and 20%, the critical batch size as Zhang et al. (2024,
        arXiv:2410.21676) define it.  None where "fit" gives no number.

        >>> (fitted,) = fit(ScalingCurve([4, 16, 64, 256, 1024], [6500, 1700, 500, 200, 125]))
        >>> round(fitted.overhead_batch_size(64))
        128
        """
        reference = require_number("reference", reference, low=0, closed=(False, True))
        tolerance = require_number("tolerance", tolerance, low=0, closed=(False, True))
        found = self.estimate("fit").critical_batch_size
        if found.value is None or found.relation != "=":
            return None
        return (1 + tolerance) * reference + tolerance * found.value

    def to_frame(self) -> "pandas.DataFrame":
        """One row per batch size: runs, steps, efficiency and seconds."""
        frame = self.curve.to_frame()
        frame.insert(2, "runs", self.runs)
        frame.insert(3, "reached", self.reached)
        if any(seconds is not None for seconds in self.seconds):
            frame["seconds"] = self.seconds
        return frame

    def plot(self, ax: "Axes | None" = None) -> "Axes":
        """The measured steps, the fitted curve with its band, perfect scaling and the critical batch size."""
        from batchlens.scaling._figure import draw_steps, steps_rows

        return draw_steps(axes_or_new(ax), steps_rows(self.curve, self.band, self.estimate("fit")))

    def as_document(self) -> dict[str, Any]:
        """What `batchlens fit --json` prints of one optimizer."""
        return {
            "optimizer": self.optimizer,
            "sentence": self.sentence,
            "batch_sizes": [short(size) for size in self.curve.batch_sizes],
            "steps": list(self.curve.steps),
            "efficiency": list(self.curve.efficiency()),
            "critical_batch_sizes": [
                {**found._asdict(), "interval": None if interval is None else list(interval)}
                for found, interval in self.estimates
            ],
            "least_steps": self.least_steps,
            "sharpness": None if self.sharpness is None else self.sharpness._asdict(),
            "predictions": [{**entry._asdict(), "batch_size": short(entry.batch_size)} for entry in self.predictions],
            "fastest": None if self.fastest is None else short(self.fastest),
            "fastest_range": _short(self.fastest_range),
            "cheapest": None if self.cheapest is None else short(self.cheapest),
            "cheapest_range": _short(self.cheapest_range),
        }


@dataclass(frozen=True, repr=False)
class Fit(Result):
    """What runs say, optimizer by optimizer.

    Arguments:
        fits: one for each optimizer, in the order of the runs.
        notes: how the runs were read off their logs: target and smoothing, which settings were the best.

    >>> found = fit(ScalingCurve([4, 16, 64, 256, 1024], [6500, 1700, 500, 200, 125], optimizer="sgd"))
    >>> found
    <Fit: sgd: critical batch size 256 (256 to 256) by fit>
    >>> found["sgd"].fastest is None
    True
    """

    fits: tuple[FittedRuns, ...]
    notes: tuple[str, ...] = ()

    def __iter__(self) -> Iterator[FittedRuns]:
        return iter(self.fits)

    def __len__(self) -> int:
        return len(self.fits)

    def __getitem__(self, optimizer: str) -> FittedRuns:
        found = {fitted.optimizer: fitted for fitted in self.fits}
        if optimizer not in found:
            raise KeyError(f"the runs are of {', '.join(map(repr, found))}, not of {optimizer!r}")
        return found[optimizer]

    @property
    def sentence(self) -> str:
        """What the runs say, optimizer by optimizer, one line each."""
        return "\n".join(fitted.sentence for fitted in self.fits)

    @property
    def headline(self) -> str:
        """The critical batch size of every optimizer."""
        return "; ".join(fitted.headline for fitted in self.fits)

    def to_frame(self) -> "pandas.DataFrame":
        """One row per optimizer and batch size."""
        import pandas

        return pandas.concat([fitted.to_frame() for fitted in self.fits], ignore_index=True)

    def plot(self, ax: "Axes | None" = None) -> "Axes":
        """Every optimizer's curve, each with its critical batch size."""
        from batchlens.scaling._figure import draw_steps, steps_rows

        rows = [steps_rows(entry.curve, entry.band, entry.estimate("fit")) for entry in self.fits]
        return draw_steps(axes_or_new(ax), [row for some in rows for row in some])

    def as_document(self) -> dict[str, Any]:
        """What `batchlens fit --json` prints."""
        return {"fits": [fitted.as_document() for fitted in self.fits], "notes": list(self.notes)}


def fit(
    runs: "str | Path | Sequence[str | Path] | IO[Any] | pandas.DataFrame | ScalingCurve | Sequence[Run]",
    *,
    metric: str | None = None,
    target: float | None = None,
    direction: Direction | None = None,
    batch_size_from: str | None = None,
    smoothing: float = 0.1,
    several: Several = "best",
    predict: float | Sequence[float] = (),
    resamples: int = 1000,
    seed: int = 0,
) -> Fit:
    r"""What do measured runs say about the critical batch size, optimizer by optimizer?

    A table of runs has the columns batch_size and steps (empty or nan: the target was not reached), and if there are
    any optimizer, seconds (how long the run took) and repeat (a name for each of several runs alike).

    Anything else is the log of a run, and `metric` and `target` say when it has reached its target: the file of a
    `Monitor`, Lightning's metrics.csv, a CSV export of Weights & Biases, Hugging Face's trainer_state.json,
    TensorBoard's event files, or any CSV with a column of steps.  The steps are those of the first crossing of the
    smoothed curve, interpolated between records; a run that never gets there counts as not having reached the target.

    The intervals are bootstrap percentiles.  Each resample puts noise anew on the log steps of every batch size: the
    mean of as many deviations as it has repeats, drawn from its own where it has five or more, else from those of
    all batch sizes.  Without repeats, the noise is drawn from the residuals of the fit S_min (1 + B_crit / B).
    Deviations are scaled up by sqrt(n / (n - p)), p means or parameters having been taken from n of them, and by
    the ratio of Student's quantile to the normal one, without which few runs would look too certain.  Fewer than two
    degrees of freedom give no interval.  A resample that only bounds the value leaves that side open.

    Steps are predicted by the curve of the definition "bend".  For its intervals each resample draws the centre of
    the prior of log a anew as well, so that they widen where it is the sharpness of the bend that is not known: beyond
    the batch sizes measured.

    Arguments:
        runs: one or several paths of files, patterns such as "runs/*.jsonl" or folders; an open file, a DataFrame,
            or a `ScalingCurve`.
        metric: which metric of the logs has a target.
        target: the value that it must reach.
        direction: "up" where a larger value is better, "down"; by default towards the target from where runs start.
        batch_size_from: a regular expression whose group is the batch size in the path, r"b(\d+)", the last match
            counting; further named groups are settings: r"b(\d+)-lr(?P<learning_rate>[\d.]+)". By default the batch
            size is that of the log.
        smoothing: the running median is over the records within this part of a step, in [0, 1]; 0: as logged.
        several: of runs at one batch size whose settings differ by more than a seed, "best": those of the settings
            with the least mean steps count, "mean": all do.
        predict: one or several batch sizes at which to predict steps, above 0.
        resamples: how many resamples the intervals rest on, at least 100.
        seed: of the resampling; the same seed gives the same intervals, in whatever order the runs come.

    >>> sizes = [4, 16, 64, 256, 1024, 4096, 16384]
    >>> curve = ScalingCurve(sizes, [100 * (1 + 256 / size) for size in sizes])
    >>> (fitted,) = fit(curve, predict=[512])
    >>> print(fitted.estimate("fit").critical_batch_size, round(fitted.predictions[0].steps))
    256 150
    """
    resamples = require_whole("resamples", resamples, low=100, high=10**6)
    seed = require_whole("seed", seed)
    sizes = [predict] if np.ndim(predict) == 0 else list(predict)  # type: ignore[arg-type]
    wanted = [require_number("predict", size, low=0, closed=(False, True)) for size in sizes]
    by_optimizer: dict[str, list[Run]] = {}
    collected = collect_runs(runs, Question(metric, target, direction, batch_size_from, smoothing, several))
    for run in collected.runs:
        require_number("batch_size", run.batch_size, low=0, closed=(False, True))
        for name, value in (("steps", run.steps), ("seconds", run.seconds)):
            if value is not None:
                require_number(name, value, low=0, closed=(False, True))
        by_optimizer.setdefault(run.optimizer, []).append(run)
    if not by_optimizer:
        raise ValueError("`runs` must hold at least one run, got none.")
    fits = tuple(_fit_optimizer(name, mine, wanted, resamples, seed) for name, mine in by_optimizer.items())
    return Fit(fits, collected.notes)


def _fit_optimizer(optimizer: str, runs: list[Run], wanted: list[float], resamples: int, seed: int) -> FittedRuns:
    sizes = sorted({run.batch_size for run in runs})
    groups = [[run for run in runs if run.batch_size == size] for size in sizes]
    logs = [np.log(np.sort([run.steps for run in group if run.steps is not None])) for group in groups]
    told = [2 * len(log) >= len(group) for log, group in zip(logs, groups, strict=True)]
    steps = [_mean([run.steps for run in group]) if tells else None for group, tells in zip(groups, told, strict=True)]
    seconds = [_mean_seconds(group) if tells else None for group, tells in zip(groups, told, strict=True)]
    timed = all(took is not None for took, count in zip(seconds, steps, strict=True) if count is not None)
    examples = [None if count is None else size * count for size, count in zip(sizes, steps, strict=True)]
    curve = ScalingCurve(sizes, steps, optimizer=optimizer)
    known = {size: log for size, log, tells in zip(sizes, logs, told, strict=True) if tells}
    fitted = fit_resampled(known, resamples, seed) if len(known) > 1 else None
    return FittedRuns(
        optimizer=optimizer,
        curve=curve,
        runs=tuple(map(len, groups)),
        reached=tuple(map(len, logs)),
        seconds=tuple(seconds),
        estimates=tuple(
            Estimate(curve.critical_batch_size(definition), None if fitted is None else fitted.interval(definition))
            for definition in DEFINITIONS
        ),
        noise=None if fitted is None else fitted.noise,
        least_steps=_least_steps(curve, known),
        sharpness=None if fitted is None else fitted.sharpness(),
        predictions=() if fitted is None else fitted.predict(wanted),
        band=() if fitted is None else fitted.band(wanted),
        fastest=next(iter(_where_least(sizes, seconds)), None) if timed else None,
        fastest_range=None if fitted is None else fitted.tied_range(dict(zip(sizes, seconds, strict=True))),
        cheapest=next(reversed(_where_least(sizes, examples)), None),
        cheapest_range=None if fitted is None else fitted.tied_range(dict(zip(sizes, examples, strict=True))),
    )


def _least_steps(curve: ScalingCurve, known: Mapping[float, FloatArray]) -> float | None:
    if len(known) < 3 or curve.critical_batch_size("fit").relation == ">=":
        return None
    _, log_least = fit_curves(np.log(list(known)), np.array([[log.mean() for log in known.values()]]))
    return math.exp(log_least[0])


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


def _short(ends: tuple[float, float] | None) -> list[float] | None:
    return None if ends is None else [short(end) for end in ends]
