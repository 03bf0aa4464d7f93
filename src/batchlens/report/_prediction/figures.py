"""Figures of a prediction: steps with their bands, settings to use, and how the model follows the reference."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from batchlens._drawing import (
    FOREGROUND,
    Line,
    batch_axis,
    draw_critical,
    draw_lines,
    hold_batch_sizes,
    log_axis,
    look_of,
    positive,
    steps_axis,
)
from batchlens.prediction.prediction import Prediction
from batchlens.report._page.numbers import frame_of, groups

# The style of lines without momentum, of which nothing is predicted.
_DOUBTFUL = "-."
# Where it is known, its name, its marker and how large that is in a legend.
_MARKS = (("measured", "measured", "*", 9), ("run_steps", "the run", "x", 7),
          ("critical_batch_size", "critical batch size", "^", 6))  # fmt: skip


def steps_data(prediction: Prediction) -> pd.DataFrame:
    """Steps of every optimizer at every batch size, with the interval's ends and what was measured to confirm them."""
    measured = {(cell.optimizer, cell.batch_size): cell for cell in prediction.confirmed}
    return frame_of(
        {
            "optimizer": entry.optimizer,
            "batch_size": size,
            "steps": steps,
            "low": None if interval is None else interval.low,
            "high": None if interval is None else interval.high,
            "critical_batch_size": entry.critical().value if entry.critical().relation == "=" else None,
            "measured": None if (cell := measured.get((entry.optimizer, int(size)))) is None else cell.steps,
            "run_batch_size": prediction.reference.get("batch_size"),
            "run_steps": prediction.reference.get("steps"),
            "doubts": "; ".join(entry.reasons),
        }
        for entry in prediction.predicted
        for size, steps, interval in zip(entry.curve.batch_sizes, entry.curve.steps, entry.curve.intervals, strict=True)
    )


def with_doubts(optimizer: str, doubts: str) -> str:
    """ "kfac (doubtful)" where there are some."""
    return f"{optimizer} (doubtful)" if doubts else optimizer


def draw_steps(ax: Axes, data: pd.DataFrame, optimizers: Sequence[str]) -> None:
    """Lines with bands, dash-dotted where doubtful; stars where measured, a cross for the run, critical sizes below.

    Dotted is perfect scaling.  Less than a step is not shown.
    """
    shown = positive([*data["steps"], *data["low"], *data["high"], *data["measured"]])
    steps_axis(ax, [max(steps, 1.0) for steps in shown], written_out=True)
    batch_axis(ax, data["batch_size"])
    hold_batch_sizes(ax, data["batch_size"])
    bottom, _ = ax.get_ylim()
    lines = []
    for (optimizer, doubts), part in groups(data, "optimizer", "doubts"):
        colour, style, marker = look_of(optimizer, optimizers)
        label, style = with_doubts(optimizer, doubts), _DOUBTFUL if doubts else style
        lines.append(Line(part["batch_size"], part["steps"], label, colour, style, marker))
        ax.fill_between(part["batch_size"], part["low"], part["high"], color=colour, alpha=0.12, linewidth=0)
        critical = part["critical_batch_size"].iloc[0]
        if not pd.isna(critical):
            draw_critical(ax, critical, bottom, colour)
        found = part[part["measured"].notna()]
        ax.plot(found["batch_size"], found["measured"], "*", markersize=11, color=colour, markeredgecolor="white")
    ax.plot(data["run_batch_size"].iloc[:1], data["run_steps"].iloc[:1], "x", markersize=9, color=FOREGROUND, zorder=4)
    first = data[data["optimizer"] == data["optimizer"].iloc[0]]
    limits, start = ax.get_ylim(), first.iloc[0]
    sizes = np.asarray(first["batch_size"], dtype=float)
    ax.plot(sizes, start["steps"] * start["batch_size"] / sizes, ":", color="#888888", linewidth=1.0)
    ax.set_ylim(limits)
    draw_lines(ax, lines)
    _name_marks(ax, data)


def _name_marks(ax: Axes, data: pd.DataFrame) -> None:
    """A legend above the picture of the marks that it has."""
    known = [(label, marker, size) for column, label, marker, size in _MARKS if data[column].notna().any()]
    for label, marker, size in known:
        ax.plot([], [], marker, markersize=size, color=FOREGROUND, label=label)
    if known:
        ax.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=3, fontsize=8, frameon=False, handletextpad=0.1)


def rates_data(prediction: Prediction) -> pd.DataFrame:
    """The learning rates, momentum and averaging to use, where they are in the optimizer's units."""
    return frame_of(
        {
            "optimizer": entry.optimizer,
            "batch_size": size,
            **{name: settings.get(name) for name in ("learning_rate", "momentum", "averaging")},
        }
        for entry in prediction.predicted
        for size, settings in zip(entry.curve.batch_sizes, entry.curve.settings, strict=True)
        if settings.get("learning_rate")
    )


def draw_rates(ax: Axes, data: pd.DataFrame, optimizers: Sequence[str]) -> None:
    """Learning rate against batch size."""
    log_axis(ax, data["learning_rate"], "learning rate")
    batch_axis(ax, data["batch_size"])
    lines = []
    for (optimizer,), part in groups(data, "optimizer"):
        colour, style, marker = look_of(optimizer, optimizers)
        lines.append(Line(part["batch_size"], part["learning_rate"], optimizer, colour, style, marker))
    draw_lines(ax, lines)


def loss_data(prediction: Prediction) -> pd.DataFrame:
    """The reference's losses, and those of the model that stands for it."""
    reference = prediction.reference
    names = ("curve_steps", "curve_losses", "model_losses")
    if not all(name in reference for name in names):
        return frame_of(())
    rows = zip(*(reference[name] for name in names), strict=True)
    first = reference["delay"] + 1 if reference["delay"] else 0  # before it the model has not begun
    return frame_of(
        {"step": step, "loss": loss, "model": model if step >= first else None} for step, loss, model in rows
    )


def draw_loss(ax: Axes, data: pd.DataFrame) -> None:
    """Loss against step."""
    log_axis(ax, [*data["loss"], *data["model"]], "training loss")
    ax.set_xscale("symlog", linthresh=1)
    ax.set_xlabel("step")
    look = look_of("sgd", ["sgd", "momentum"]), look_of("momentum", ["sgd", "momentum"])
    draw_lines(
        ax,
        [
            Line(data["step"], data["loss"], "the run", look[0][0], "", "."),
            Line(data["step"], data["model"], "the model", look[1][0], "-"),
        ],
    )
