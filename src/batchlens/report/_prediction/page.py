"""The page about a prediction: for somebody who has never heard of the model."""

import math
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from html import escape
from pathlib import Path

import pandas as pd

from batchlens import __version__
from batchlens.prediction._readings import CHOSEN_ON, INTERVALS_FROM, READINGS
from batchlens.prediction.prediction import PredictedCurve, Prediction
from batchlens.report._page.critical import DEFINITIONS_WORDS
from batchlens.report._page.folder import draw_panel, staged, write_panel
from batchlens.report._page.frame import Section, frame_page, render_table
from batchlens.report._page.numbers import csv_of
from batchlens.report._page.records import PanelPlan, Progress, say_nothing
from batchlens.report._prediction import figures
from batchlens.scaling._intervals import Interval

_LEAD = (
    "Tuning an optimizer at every batch size takes days. This page comes from one short run with plain SGD, after "
    "still shorter ones to find its learning rate: how its loss fell, how sharply the loss surface curves along it, "
    "and how much gradients differ from example to example.\n\n"
    "Near its minimum a loss looks like a bowl, steep in few directions and flat in many, seen through noise that "
    "shrinks as the batch grows. For such a bowl the number of steps to a target can be computed exactly, for any "
    "batch size and optimizer. The bowl here has the curvature and the noise that were measured, and follows the "
    "loss of the run.\n\n"
    "The critical batch size is where larger batches stop paying: well below it, twice the batch halves the steps; "
    "well above it, hardly any step is saved."
)
# What is shown of the reference, and under which name.
_PARAMETERS = {
    "batch_size": "batch size of the run",
    "learning_rate": "learning rate of the run",
    "momentum": "momentum of the run",
    "steps": "steps of the run",
    "top_curvature": "largest curvature at the target",
    "gradient_variance": "variance of gradients at the target",
    "delay": "first steps, in which the loss jumps about, counted as they were (delay)",
    "curvature_exponent": "curvatures fall as rank to the power of minus",
    "loss_exponent": "shares of the initial loss fall as rank to the power of minus",
    "misfit": "root mean square of log losses about the model",
}
_HOW = (
    "Intervals are to hold the truth nine times in ten: the measured numbers are drawn anew, and what comes out is "
    "widened by how far such predictions were off where the truth is known."
)
_SCALES = (
    "B_simple and B_noise are ratios of gradient noise to gradient at the target; they are often taken for critical "
    "batch sizes, and can be far from them."
)
# Names that a newcomer may not know, by what of an optimizer's name they stand for.
_NAMES = {
    "momentum": "momentum adds to each step that part of the last one",
    "nesterov": "nesterov is momentum that looks ahead: the gradient is that of where the last step would lead",
    "+ema": "+ema means that the average of the weights is what counts, of which each step keeps the part that is "
    "listed as averaging",
    "adam": "adam divides each weight's step by how large its gradients are",
    "kfac": "kfac divides steps by an estimate of the curvature",
}
_SETTINGS = {"learning_rate": "Learning rate", "momentum": "Momentum", "averaging": "Averaging"}
_DOCS = "https://github.com/batchlens/batchlens/blob/main/docs/prediction.md"


def write_prediction_report(prediction: Prediction, out: Path, progress: Progress = say_nothing) -> None:
    """Write the page about a prediction into a folder."""
    started = time.perf_counter()
    with staged(out) as folder:
        plans = list(_plan_panels(prediction))
        panels = []
        for plan, frame in plans:
            panels.append(write_panel(plan, frame, *draw_panel(plan, frame), folder))
            progress(len(panels), len(plans), plan.title)
        if prediction.predicted:
            (folder / "prediction.csv").write_text(csv_of(prediction.to_frame()), encoding="utf-8")
        page = frame_page(
            f"How large a batch can {prediction.name or 'this training'} use?",
            f"{_LEAD}\n\n{_trust(prediction)}",
            prediction.sentence,
            [],
            panels,
            _parameters(prediction),
            {"this report": f"batchlens {__version__}"},
            time.perf_counter() - started,
            appendix=list(_sections(prediction)),
        )
        (folder / "index.html").write_text(page, encoding="utf-8")


def _trust(prediction: Prediction) -> str:
    """How far such predictions were off, of the optimizers that were tuned somewhere; empty without a prediction."""
    known = {name: READINGS[name] for name in prediction.curves if READINGS[name].has_truth}
    if not known:
        return ""
    held_out = [name for name in INTERVALS_FROM if name not in CHOSEN_ON]
    factors = ", ".join(f"{math.exp(reading.steps_error):.1f} ({name})" for name, reading in known.items())
    return (
        f"How far to trust it: {', '.join(INTERVALS_FROM)} were tuned at every batch size too. On the one that is "
        f"predicted worst, numbers of steps are typically off by a factor of {factors}. {' and '.join(held_out)} were "
        "held out: nobody had looked at them when the way to predict was chosen."
    )


def _plan_panels(prediction: Prediction) -> Iterator[tuple[PanelPlan[Prediction], pd.DataFrame]]:
    optimizers = list(prediction.curves)
    plans = (
        PanelPlan(
            "",
            "Steps to the target",
            None,
            _steps_caption(prediction),
            "steps",
            figures.steps_data,
            partial(figures.draw_steps_apart, optimizers=optimizers),
        ),
        PanelPlan(
            "",
            "Learning rates to use",
            None,
            "The best constant learning rate at each batch size; with momentum or averaging it goes with those of the "
            "tables below. Rates have no intervals: the remarks there say how far they were off. Try smaller ones too.",
            "settings",
            figures.rates_data,
            partial(figures.draw_rates, optimizers=optimizers),
        ),
        PanelPlan(
            "",
            "The run and its model",
            None,
            "Training loss of the run, and of the bowl that stands for it, which begins after the first steps, those "
            "in which the loss jumps about.",
            "reference",
            figures.loss_data,
            figures.draw_loss,
        ),
    )
    number = 0
    for plan in plans:
        frame = plan.data(prediction)
        if len(frame):
            number += 1
            yield replace(plan, number=str(number)), frame


def _steps_caption(prediction: Prediction) -> str:
    others = " Grey, for comparison: the first one's." if len(prediction.predicted) > 1 else ""
    stars = " Stars: runs that were trained to confirm it." if prediction.confirmed else ""
    return (
        f"To a training loss of {prediction.target_loss:.3g}: each optimizer tuned at each batch size, as predicted, "
        f"with 90% bands.{others} Triangles: critical batch sizes by fit. Dotted: perfect scaling, where twice the "
        f"batch halves the steps. {_run_words(prediction)}{stars}"
    )


def _run_words(prediction: Prediction) -> str:
    """What the cross is, and why it does not lie on a curve."""
    run = prediction.reference
    words = f"Cross: the run, at its own learning rate of {run['learning_rate']:.3g}"
    rate = figures.rate_at(prediction, figures.RUN, run["batch_size"])
    return f"{words}." if rate is None else f"{words}; the curve is for the best, {rate:.3g}."


def _sections(prediction: Prediction) -> Iterator[Section]:
    scales = ", ".join(f"{entry.definition} {entry}" for entry in prediction.noise_scales)
    if prediction.reasons:
        items = "".join(f"<li>{escape(reason)}</li>" for reason in prediction.reasons)
        measured = f'\n<p class="remark">{escape(f"{_SCALES} Here: {scales}.")}</p>' if scales else ""
        yield Section("reasons", "Why it cannot be told", f"<ul>{items}</ul>{measured}")
    if prediction.predicted:
        yield Section("critical", "Critical batch size", _critical(prediction, scales))
        yield Section("settings", "Steps and settings to use", _settings(prediction))
    if prediction.confirmed:
        rows = [
            [cell.optimizer, f"{cell.batch_size:,}", f"{cell.predicted:,.0f} ({cell.interval})", cell.words]
            for cell in prediction.confirmed
        ]
        heads = ("Optimizer", "Batch size", "Predicted steps", "Measured")
        yield Section("confirmed", "Predicted and measured", render_table("Confirmed", "confirmed", heads, rows))


def _critical(prediction: Prediction, scales: str) -> str:
    """A table of critical batch sizes, what not to rely on, and how to read it."""
    definitions = [entry.definition for entry in prediction.predicted[0].critical_batch_sizes]
    rows = [[entry.optimizer, *map(str, entry.critical_batch_sizes)] for entry in prediction.predicted]
    heads = ("Optimizer", *(name.capitalize() for name in definitions))
    table = render_table("Predicted critical batch sizes", "critical", heads, rows)
    known = (f"{entry.optimizer}: {reason}" for entry in prediction.predicted for reason in entry.reasons)
    doubts = "".join(f"<li>{escape(words)}</li>" for words in known)
    doubts = f"<p>Do not rely on these:</p>\n<ul>{doubts}</ul>\n" if doubts else ""
    notes = "".join(_remark(f"{note[0].upper()}{note[1:]}.") for note in prediction.notes)
    words = f"{DEFINITIONS_WORDS}{_HOW} {_SCALES} Here: {scales}. {prediction.apart}"
    return f'{table}\n{doubts}{notes}{_remark(words)}<p class="remark"><a href="{_DOCS}">How it works</a></p>'


def _settings(prediction: Prediction) -> str:
    """A table per optimizer, each with what to know of its numbers."""
    names = (words for part, words in _NAMES.items() if any(part in name for name in prediction.curves))
    legend = "; ".join(names)
    tables = (
        f"<h3>{escape(entry.optimizer)}</h3>\n{_table_of(entry)}\n"
        + "".join(_remark(f"{entry.optimizer}: {note}.") for note in (*entry.notes, *_without_rates(entry)))
        for entry in prediction.predicted
    )
    return (_remark(f"{legend[0].upper()}{legend[1:]}.") if legend else "") + "".join(tables)


def _without_rates(entry: PredictedCurve) -> Iterator[str]:
    if not READINGS[entry.optimizer].has_rates:
        yield "its learning rate has other units than that of SGD, and is not predicted"


def _table_of(entry: PredictedCurve) -> str:
    points = list(entry.points())
    used = [name for name in _SETTINGS if any(point[name] is not None for point in points)]
    rows = [
        [f"{point['batch_size']:,}", _steps_words(point["steps"], interval), *(_number(point[name]) for name in used)]
        for point, interval in zip(points, entry.curve.intervals, strict=True)
    ]
    heads = ("Batch size", "Steps (90% interval)", *(_SETTINGS[name] for name in used))
    return render_table(f"Steps and settings of {entry.optimizer}", "settings", heads, rows)


def _steps_words(steps: float | None, interval: Interval | None) -> str:
    if steps is None:
        return "not reached"
    return f"{steps:,.0f}" if interval is None else f"{steps:,.0f} ({interval})"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}"


def _remark(words: str) -> str:
    return f'<p class="remark">{escape(words)}</p>\n'


def _parameters(prediction: Prediction) -> dict[str, str]:
    """The target, and the run that all of it rests on, in words."""
    reference = prediction.reference
    found = {_PARAMETERS[name]: f"{reference[name]:.4g}" for name in _PARAMETERS if reference.get(name) is not None}
    return {"target": _target_words(prediction), **found}


def _target_words(prediction: Prediction) -> str:
    """The training loss, or what was asked for where no loss stands for it."""
    if math.isfinite(prediction.target_loss):
        return f"a training loss of {prediction.target_loss:.3g}"
    place = {"train": "on training examples"}.get(prediction.reference["target_on"], "on the validation set")
    return f"{prediction.reference['target']:g} {place}"
