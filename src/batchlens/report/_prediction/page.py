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
from batchlens.prediction.prediction import Prediction
from batchlens.report._page.folder import draw_panel, staged, write_panel
from batchlens.report._page.frame import Section, frame_page, render_table
from batchlens.report._page.numbers import csv_of
from batchlens.report._page.records import PanelPlan, Progress, say_nothing
from batchlens.report._prediction import figures

_LEAD = (
    "Tuning an optimizer at every batch size takes days. This page comes from one short run with plain SGD: how its "
    "loss fell, how sharply the loss surface curves along it, and how much gradients differ from example to "
    "example.\n\n"
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
    "delay": "steps before the model begins (delay)",
    "curvature_exponent": "curvatures fall as rank to the power of minus",
    "loss_exponent": "shares of the initial loss fall as rank to the power of minus",
    "misfit": "root mean square of log losses about the model",
}
_HOW = (
    "Bands are 90% intervals: the measured numbers drawn anew, widened by how far such predictions were off where the "
    "truth is known. Fit: B_crit of steps = S_min (1 + B_crit / B). Knee, overhead and bend read the same curve in "
    "other ways."
)
_SCALES = (
    "B_simple and B_noise are ratios of gradient noise to gradient at the target; they are often taken for critical "
    "batch sizes, and can be far from them."
)


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
            _LEAD,
            prediction.sentence,
            [],
            panels,
            _parameters(prediction),
            {"this report": f"batchlens {__version__}"},
            time.perf_counter() - started,
            appendix=list(_sections(prediction)),
        )
        (folder / "index.html").write_text(page, encoding="utf-8")


def _plan_panels(prediction: Prediction) -> Iterator[tuple[PanelPlan[Prediction], pd.DataFrame]]:
    optimizers = list(prediction.curves)
    stars = " Stars are runs that were trained to confirm it." if prediction.confirmed else ""
    plans = (
        PanelPlan(
            "",
            "Steps to the target",
            "",
            f"To a training loss of {prediction.target_loss:.3g}: each optimizer tuned at each batch size, as "
            "predicted, with 90% bands. Triangles: critical batch sizes by fit. Dotted: perfect scaling. Cross: the "
            f"run.{stars}",
            "steps",
            figures.steps_data,
            partial(figures.draw_steps, optimizers=optimizers),
        ),
        PanelPlan(
            "",
            "Learning rates to use",
            "",
            "The best constant learning rate at each batch size; momentum and averaging are in the numbers.",
            "settings",
            figures.rates_data,
            partial(figures.draw_rates, optimizers=optimizers),
        ),
        PanelPlan(
            "",
            "The run and its model",
            "",
            "Training loss of the run, and of the noisy quadratic that stands for it once the delay is over.",
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


def _sections(prediction: Prediction) -> Iterator[Section]:
    scales = ", ".join(f"{entry.definition} {entry}" for entry in prediction.noise_scales)
    if prediction.reasons:
        items = "".join(f"<li>{escape(reason)}</li>" for reason in prediction.reasons)
        measured = f'\n<p class="remark">{escape(f"{_SCALES} Here: {scales}.")}</p>' if scales else ""
        yield Section("reasons", "Why it cannot be told", f"<ul>{items}</ul>{measured}")
    if prediction.predicted:
        definitions = [entry.definition for entry in prediction.predicted[0].critical_batch_sizes]
        rows = [[entry.optimizer, *map(str, entry.critical_batch_sizes)] for entry in prediction.predicted]
        heads = ("Optimizer", *(name.capitalize() for name in definitions))
        table = render_table("Predicted critical batch sizes", "critical", heads, rows)
        remark = f'<p class="remark">{escape(f"{_HOW} {_SCALES} Here: {scales}. {prediction.apart}")}</p>'
        doubts = "".join(
            f"<li>{escape(f'{entry.optimizer}: {reason}')}</li>"
            for entry in prediction.predicted
            for reason in entry.reasons
        )
        doubts = f"<p>Do not rely on these:</p>\n<ul>{doubts}</ul>\n" if doubts else ""
        of_curves = ((entry.optimizer, note) for entry in prediction.predicted for note in entry.notes)
        notes = "".join(
            f'<p class="remark">{escape(f"{of}: {note}.")}</p>\n'
            for of, note in (*(("Target", note) for note in prediction.notes), *of_curves)
        )
        yield Section("critical", "Critical batch size", f"{table}\n{doubts}{notes}{remark}")
    if prediction.confirmed:
        rows = [
            [cell.optimizer, f"{cell.batch_size:,}", f"{cell.predicted:,.0f} ({cell.interval})", cell.words]
            for cell in prediction.confirmed
        ]
        heads = ("Optimizer", "Batch size", "Predicted steps", "Measured")
        yield Section("confirmed", "Predicted and measured", render_table("Confirmed", "confirmed", heads, rows))


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
