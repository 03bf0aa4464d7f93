"""From a measured run to scaling curves with intervals; free of torch."""

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from batchlens._arrays import FloatArray
from batchlens._checks import require_choice, require_instance
from batchlens._results import Result, axes_or_new, short
from batchlens.curvature.measurement import Measurement
from batchlens.optimizers import base_of, is_averaged
from batchlens.prediction._advising import advice, how_far_apart
from batchlens.prediction._judging import (
    LEAST_PLATEAU,
    first_model,
    notes_on_the_fit,
    reasons_against,
    reasons_in_the_fit,
)
from batchlens.prediction._measured import Measured
from batchlens.prediction._model import Model, Reference, fit_model
from batchlens.prediction._readings import BATCH_SIZES, INTERVALS_FROM, OPTIMIZERS, READINGS, Reading, require_asked
from batchlens.scaling._critical import DEFINITIONS, Relation, bound_words, read_curves
from batchlens.scaling._intervals import Interval, open_end
from batchlens.scaling.curve import ScalingCurve
from batchlens.theory._nearby import tune_nearby
from batchlens.theory.problem import NoisyQuadratic
from batchlens.theory.rule import UpdateRule
from batchlens.theory.tuning import scaling_curve

if TYPE_CHECKING:
    import pandas
    from matplotlib.axes import Axes

    from batchlens.prediction._confirming import Confirmed

__all__ = ["PredictedBatchSize", "PredictedCurve", "Prediction", "predict_from"]

# How many times the measured numbers are drawn anew, and the normal quantile of a 90% interval.
_DRAWS, _REACH = 8, 1.645
# Of fewer draws there is no scatter.
_FEWEST_DRAWS = 2
# Learning rate times curvature, over 1 + momentum, of curvatures that are drawn: the run was stable.
_SHARPEST = 1.95

_Status = Literal["predicted", "not_identifiable"]


class PredictedBatchSize(NamedTuple):
    """A critical batch size by one definition, or a noise scale; None where it is not known.

    Arguments:
        definition: "knee", "overhead", "fit", "bend", "B_simple" or "B_noise".
        value: what it comes to, or a bound of it.
        interval: where it lies with 90% probability; an end that is not known is None.
        relation: "=", or ">=" and "<=" where `value` is a bound, since the batch sizes end before or begin after it;
            "unknown" without a value.

    >>> print(PredictedBatchSize("fit", 40.0, Interval(30.0, 60.0)))
    40 (30 to 60)
    >>> print(PredictedBatchSize("fit", 8.0, Interval(4.0, None), ">="))
    at least 8 (4 to ?)
    """

    definition: str
    value: float | None
    interval: Interval | None
    relation: Relation = "="

    def __str__(self) -> str:
        if self.value is None:
            return "unknown"
        return f"{bound_words(self.value, self.relation)}{'' if self.interval is None else f' ({self.interval})'}"


@dataclass(frozen=True, repr=False)
class PredictedCurve(Result):
    """What one optimizer would take.

    Arguments:
        optimizer: its name.
        curve: steps against batch size, with the settings of the theory's optimum; learning rates only where they are
            in the optimizer's own units.
        critical_batch_sizes: by each definition.
        reasons: why this curve should not be relied on; none as a rule.
        disagreement: between candidate models about the log steps at each batch size, from end to end.
        notes: what to know of its numbers.

    >>> curve = ScalingCurve([8, 64], [100, 20], [{"learning_rate": 0.1}, {"learning_rate": 0.4}], "sgd")
    >>> PredictedCurve("sgd", curve, (PredictedBatchSize("fit", 40.0, Interval(30.0, 60.0)),))
    <PredictedCurve: sgd: critical batch size 40 (30 to 60)>
    """

    optimizer: str
    curve: ScalingCurve
    critical_batch_sizes: tuple[PredictedBatchSize, ...]
    reasons: tuple[str, ...] = ()
    disagreement: tuple[float, ...] = ()
    notes: tuple[str, ...] = ()

    def critical(self, definition: str = "fit") -> PredictedBatchSize:
        """The critical batch size by one of the definitions; noise scales are those of the `Prediction`."""
        known = {entry.definition: entry for entry in self.critical_batch_sizes}
        return known[require_choice("definition", definition, list(known))]

    @property
    def headline(self) -> str:
        """The critical batch size, in a line."""
        return f"{self.optimizer}: critical batch size {self.critical()}"

    def to_frame(self) -> "pandas.DataFrame":
        """One row per batch size."""
        import pandas

        rows = []
        for point in self.points():
            low, high = point.pop("interval") or (None, None)
            rows.append({"optimizer": self.optimizer, **point, "low": low, "high": high})
        return pandas.DataFrame(rows)

    def plot(self, ax: "Axes | None" = None) -> "Axes":
        """Steps against batch size with intervals, perfect scaling and the critical batch size."""
        return self.curve.plot(ax)

    def as_document(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "optimizer": self.optimizer,
            "critical_batch_sizes": [_batch_size_document(entry) for entry in self.critical_batch_sizes],
            "reasons": list(self.reasons),
            "notes": list(self.notes),
            "points": list(self.points()),
        }

    def points(self) -> Iterator[dict[str, Any]]:
        """Every batch size, as JSON has it."""
        curve = self.curve
        for size, steps, interval, settings in zip(
            curve.batch_sizes, curve.steps, curve.intervals, curve.settings, strict=True
        ):
            yield {
                "batch_size": short(size),
                "steps": steps,
                "interval": None if interval is None else list(interval),
                **{name: settings.get(name) for name in ("learning_rate", "momentum", "averaging")},
            }


@dataclass(frozen=True, repr=False)
class Prediction(Result):
    """What one run says of every batch size.

    Arguments:
        status: "predicted", or "not_identifiable", and then there are no curves.
        reasons: why nothing can be predicted, each with what would mend it.
        predicted: one entry for each optimizer.
        noise_scales: B_simple and B_noise at the target, which are no predictions of a critical batch size.
        target_loss: the training loss that stands for the target.
        reference: the run that all of it rests on: batch size, learning rate, steps, measured numbers and fit.
        seconds: that it took.
        name: of the workload, where there is one.
        confirmed: cells that were trained at the predicted settings, which the curves then take into account.
        notes: what to know of all curves.

    >>> Prediction("not_identifiable", ("the reference misses the target",), (), (), 0.1, {}, 0.0)
    <Prediction: not identifiable: the reference misses the target>
    """

    status: _Status
    reasons: tuple[str, ...]
    predicted: tuple[PredictedCurve, ...]
    noise_scales: tuple[PredictedBatchSize, ...]
    target_loss: float
    reference: Mapping[str, Any]
    seconds: float
    name: str = ""
    confirmed: "tuple[Confirmed, ...]" = ()
    notes: tuple[str, ...] = ()

    @property
    def curves(self) -> dict[str, PredictedCurve]:
        """By optimizer."""
        return {entry.optimizer: entry for entry in self.predicted}

    @property
    def headline(self) -> str:
        """Every critical batch size, or why there is none."""
        if self.status == "not_identifiable":
            return f"not identifiable: {'; '.join(self.reasons)}"
        return "; ".join(entry.headline for entry in self.predicted)

    @property
    def sentence(self) -> str:
        """Advice in plain words."""
        if self.status == "not_identifiable":
            return f"This run cannot tell: {'; '.join(self.reasons)}."
        return " ".join(advice(self.predicted))

    @property
    def apart(self) -> str:
        """What definitions and noise scales disagree about most, for the first optimizer; empty without two of them."""
        return how_far_apart(self.predicted[0], self.noise_scales) if self.predicted else ""

    def to_frame(self) -> "pandas.DataFrame":
        """One row per optimizer and batch size."""
        import pandas

        frames = [entry.to_frame() for entry in self.predicted]
        return pandas.concat(frames, ignore_index=True) if frames else pandas.DataFrame()

    def plot(self, ax: "Axes | None" = None) -> "Axes":
        """Every optimizer's curve with its intervals."""
        ax = axes_or_new(ax)
        for entry in self.predicted:
            entry.plot(ax)
        return ax

    def as_document(self) -> dict[str, Any]:
        """What `batchlens predict --json` prints."""
        return {
            "status": self.status,
            "reasons": list(self.reasons),
            "sentence": self.sentence,
            "seconds": self.seconds,
            "target_loss": self.target_loss,
            "reference": dict(self.reference),
            "noise_scales": [_batch_size_document(entry) for entry in self.noise_scales],
            "curves": [entry.as_document() for entry in self.predicted],
            "confirmed": [asdict(cell) for cell in self.confirmed],
            "intervals_from": list(INTERVALS_FROM) if self.predicted else [],
            "notes": list(self.notes),
        }


def predict_from(
    measurement: Measurement,
    loss_curve: Sequence[tuple[int, float]],
    batch_size: int,
    learning_rate: float,
    target: float,
    *,
    momentum: float = 0.0,
    optimizers: Sequence[str] = OPTIMIZERS,
    batch_sizes: Sequence[int] = BATCH_SIZES,
    seed: int = 0,
) -> Prediction:
    """How would other batch sizes and optimizers train? From one run with plain SGD to the target, measured on the way.

    A noisy quadratic with power-law spectra is fitted to the run's own losses, with the largest curvature and the
    gradient variance that were measured; the exact theory does the rest. Intervals come from drawing the measured
    numbers anew, and from how far such predictions were off where the truth is known.

    Arguments:
        measurement: of the run, by `measure` at several moments: the last at the target, others shortly before, which
            say how much the largest curvature scatters, and in the first tenth, which say for how long the run was at
            the edge of stability.
        loss_curve: (step, training loss) pairs of the run, step 0 first; what comes after the target does not count.
        batch_size: of the run.
        learning_rate: of the run: the largest that still gives the lowest loss; a timid one misleads.
        target: the training loss to reach.
        momentum: of the run.
        optimizers: of which curves are wanted.
        batch_sizes: at which; rising.
        seed: of the draws behind the intervals.

    >>> import batchlens as bl
    >>> import torch
    >>> model, data = torch.nn.Linear(4, 2), (torch.eye(4), torch.tensor([0, 1, 0, 1]))
    >>> bl.predict_from(bl.measure(model, data), [(0, 0.7), (50, 0.5)], 2, 0.1, target=0.4).status
    'not_identifiable'
    """
    started = time.perf_counter()
    require_instance("measurement", measurement, Measurement)
    if not measurement.moments:
        raise ValueError("`measurement` must have at least one moment, got none.")
    reference = Reference.of(loss_curve, batch_size, learning_rate, momentum, target)
    names, sizes = require_asked(optimizers, batch_sizes)
    numbers = Measured.of(measurement, reference.steps[-1])
    reasons = tuple(reasons_against(reference, measurement, numbers.top))
    last = measurement.moments[-1]
    scales = (
        PredictedBatchSize("B_simple", *_ends(last.noise_scale)),
        PredictedBatchSize("B_noise", *_ends(last.curvature_noise_scale)),
    )
    described: dict[str, Any] = {
        "batch_size": reference.batch_size,
        "learning_rate": reference.learning_rate,
        "momentum": reference.momentum,
        "steps": reference.steps[-1],
        "top_curvature": numbers.top,
        "gradient_variance": numbers.variance,
    }
    model = None if reasons else first_model(reference, numbers)
    reasons = tuple(reasons_in_the_fit(reference, model)) if model else reasons
    if reasons or model is None:
        return Prediction("not_identifiable", reasons, (), scales, target, described, time.perf_counter() - started)
    delay = model.delay
    waits = {name: delay if READINGS[name].delayed else 0 for name in names}
    models = {delay: model} | {
        wait: fit_model(reference, numbers.top, numbers.variance, numbers.loss, wait)
        for wait in {*waits.values()} - {delay}
    }
    fitted = {wait: _fit(reference, numbers, seed, entry) for wait, entry in models.items()}
    shown = [step - delay for step in reference.steps if step > delay]
    described |= {
        "curve_steps": list(reference.steps),
        "curve_losses": list(reference.losses),
        "model_losses": [*reference.losses[: -len(shown)], *model.losses(reference, shown).tolist()],
        "delay": delay,
        "curvature_exponent": model.curvature_exponent,
        "loss_exponent": model.loss_exponent,
        "misfit": model.misfit,
    }
    predicted = tuple(_predict(name, fitted[wait], sizes, target) for name, wait in waits.items())
    notes = tuple(notes_on_the_fit(reference, model))
    taken = time.perf_counter() - started
    return Prediction("predicted", (), predicted, scales, target, described, taken, notes=notes)


class _Fitted(NamedTuple):
    """The model of the numbers as measured, those of numbers drawn anew, and one whose noise is constant."""

    model: Model
    drawn: list[Model]
    other: Model


def _fit(reference: Reference, numbers: Measured, seed: int, model: Model) -> _Fitted:
    """Others beside a model."""
    random = np.random.default_rng(seed)
    stable = _SHARPEST * (1 + reference.momentum) / reference.learning_rate
    drawn = []
    for _ in range(_DRAWS):
        top = min(numbers.top * math.exp(numbers.top_error * random.standard_normal()), stable)
        variance = numbers.variance * math.exp(numbers.variance_error * random.standard_normal())
        drawn.append(fit_model(reference, top, variance, numbers.loss, model.delay, model))
    other = fit_model(reference, numbers.top, numbers.variance, numbers.loss, model.delay, model, constant=1.0)
    return _Fitted(model, drawn, other)


def _predict(name: str, fitted: _Fitted, sizes: Sequence[int], target: float) -> PredictedCurve:
    reading, model = READINGS[name], fitted.model
    delay = model.delay
    curve = scaling_curve(_problem(model, reading), reading.family, sizes, target, reading.power)
    steps = delay + _as_array([curve.steps, *(_steps_beside(curve, other, reading) for other in fitted.drawn)])
    others = np.concatenate([steps, delay + _as_array([_steps_beside(curve, fitted.other, reading)])])
    intervals = [_interval(column, reading.steps_error) for column in steps.T]
    found = ScalingCurve(
        sizes,
        [None if count is None else count + delay for count in curve.steps],
        [_settings(entry, reading) for entry in curve.settings],
        optimizer=name,
        target=target,
        statuses=curve.statuses,
        intervals=intervals,
    )
    apart = tuple((np.nanmax(np.log(others), axis=0) - np.nanmin(np.log(others), axis=0)).tolist())
    return PredictedCurve(
        optimizer=name,
        curve=found,
        critical_batch_sizes=_critical(found, steps, reading),
        reasons=tuple(_doubts(found, reading)),
        disagreement=apart,
        notes=reading.notes,
    )


def _problem(model: Model, reading: Reading) -> NoisyQuadratic:
    return replace(model, variance=reading.noise * model.variance).problem()


def _steps_beside(curve: ScalingCurve, model: Model, reading: Reading) -> list[float | None]:
    """What another model, which is nearly that of the curve, says of the same batch sizes."""
    problem = _problem(model, reading)
    found: list[float | None] = []
    for size, steps, settings in zip(curve.batch_sizes, curve.steps, curve.settings, strict=True):
        near = None
        if steps and curve.target is not None:
            rule = UpdateRule(**settings, nesterov=reading.family == "nesterov")
            near = tune_nearby(problem, reading.family, size, curve.target, reading.power, rule, round(steps))
        found.append(None if near is None else near[0])
    return found


def _as_array(steps: Sequence[Sequence[float | None]]) -> FloatArray:
    return np.array([[math.nan if count is None else float(count) for count in row] for row in steps])


def _settings(settings: Mapping[str, float], reading: Reading) -> dict[str, float]:
    """Those of the theory's optimum that the optimizer has, as far as they are in its units."""
    if not reading.has_rates:
        return {}
    names = ["learning_rate"]
    names += ["momentum"] if base_of(reading.family) != "sgd" else []
    names += ["averaging"] if is_averaged(reading.family) else []
    return {name: settings[name] for name in names if settings.get(name) is not None}


def _interval(drawn: FloatArray, error: float) -> Interval | None:
    """About the first number, from the scatter of the others and the error that such predictions had."""
    logs = np.log(drawn[np.isfinite(drawn) & (drawn > 0)])
    if not math.isfinite(drawn[0]) or len(logs) < 1 + _FEWEST_DRAWS:
        return None
    reach = _REACH * math.hypot(error, float(np.std(logs[1:], ddof=1)))
    return Interval(float(drawn[0]) * math.exp(-reach), float(drawn[0]) * math.exp(reach))


def _critical(curve: ScalingCurve, steps: FloatArray, reading: Reading) -> tuple[PredictedBatchSize, ...]:
    """Those of the curve, with intervals from the draws that say something of all its batch sizes.

    `steps` has one row per draw, that of the curve first.
    """
    reached = steps[0] > 0
    whole = steps[:, reached][(steps[:, reached] > 0).all(axis=1)]
    found = []
    for definition in DEFINITIONS:
        value, relation, _ = curve.critical_batch_size(definition)
        interval = None
        if value is not None:
            log_values, _ = read_curves(definition, np.log(curve.batch_sizes)[reached], np.log(whole))
            drawn = _interval(np.concatenate([[value], np.exp(log_values[1:])]), reading.critical_error)
            interval = None if drawn is None else open_end(drawn, relation)
        found.append(PredictedBatchSize(definition, value, interval, relation))
    return tuple(found)


def _doubts(curve: ScalingCurve, reading: Reading) -> Iterator[str]:
    """Of a curve whose steps have the delay in them: that was measured, and is no matter of the model."""
    if reading.doubt:
        yield reading.doubt
    last = curve.steps[-1]
    if last is not None and last < LEAST_PLATEAU:
        yield f"its plateau of {last:g} steps is under {LEAST_PLATEAU}: the model is not about a few large steps"


def _ends(ratio: Any) -> tuple[float | None, Interval | None]:
    if ratio.interval is None:
        return ratio.value, None
    low, high = (None if math.isinf(end) else end for end in ratio.interval)
    return ratio.value, Interval(low, high)


def _batch_size_document(entry: PredictedBatchSize) -> dict[str, Any]:
    return {**entry._asdict(), "interval": None if entry.interval is None else list(entry.interval)}
