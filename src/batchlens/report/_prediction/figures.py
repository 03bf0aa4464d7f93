"""Figures of a prediction: steps with their bands, settings to use, and how the model follows the reference."""

from collections.abc import Sequence
from dataclasses import replace

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
from batchlens.report._page.small import share_labels, small_axes, thin_out

# The optimizer of the run that all of it rests on.
RUN = "sgd"
_FAINT = "#888888"
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
    """Lines with bands in one picture, dash-dotted where doubtful; a cross for the run, perfect scaling dotted."""
    _steps_axes(ax, data)
    lines = [_draw_optimizer(ax, part, optimizers) for _, part in groups(data, "optimizer")]
    _draw_run(ax, data)
    _draw_perfect_scaling(ax, data[data["optimizer"] == data["optimizer"].iloc[0]])
    draw_lines(ax, lines)
    _name_marks(ax, data)


def _name_marks(ax: Axes, data: pd.DataFrame) -> None:
    """A legend above the picture of the marks that it has."""
    known = [(label, marker, size) for column, label, marker, size in _MARKS if data[column].notna().any()]
    for label, marker, size in known:
        ax.plot([], [], marker, markersize=size, color=FOREGROUND, label=label)
    if known:
        ax.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=3, fontsize=8, frameon=False, handletextpad=0.1)


def draw_steps_apart(ax: Axes, data: pd.DataFrame, optimizers: Sequence[str]) -> None:
    """A small picture for each optimizer, so that every band is that of its line; the first one's line is in all."""
    axes = small_axes(ax, len(optimizers))
    _steps_axes(axes[0], data)
    thin_out(axes[0])
    first = data[data["optimizer"] == data["optimizer"].iloc[0]]
    for small, ((optimizer, doubts), part) in zip(axes, groups(data, "optimizer", "doubts"), strict=True):
        small.plot(first["batch_size"], first["steps"], color=_FAINT, linewidth=1.0)
        draw_lines(small, [replace(_draw_optimizer(small, part, optimizers), label="")])
        _draw_perfect_scaling(small, part)
        small.set_title(with_doubts(optimizer, doubts), fontsize=10, loc="left")
    _draw_run(axes[optimizers.index(RUN) if RUN in optimizers else 0], data)
    share_labels(axes)


def _steps_axes(ax: Axes, data: pd.DataFrame) -> None:
    """Less than a step is not shown."""
    shown = positive([*data["steps"], *data["low"], *data["high"], *data["measured"]])
    steps_axis(ax, [max(steps, 1.0) for steps in shown], written_out=True)
    batch_axis(ax, data["batch_size"])
    hold_batch_sizes(ax, data["batch_size"])


def _draw_optimizer(ax: Axes, part: pd.DataFrame, optimizers: Sequence[str]) -> Line:
    """Its band, stars where measured and the critical batch size on the lower edge; the line is yet to be drawn."""
    optimizer, doubts = part["optimizer"].iloc[0], part["doubts"].iloc[0]
    colour, style, marker = look_of(optimizer, optimizers)
    ax.fill_between(part["batch_size"], part["low"], part["high"], color=colour, alpha=0.12, linewidth=0)
    critical = part["critical_batch_size"].iloc[0]
    if not pd.isna(critical):
        draw_critical(ax, critical, ax.get_ylim()[0], colour)
    found = part[part["measured"].notna()]
    ax.plot(found["batch_size"], found["measured"], "*", markersize=11, color=colour, markeredgecolor="white")
    style = _DOUBTFUL if doubts else style
    return Line(part["batch_size"], part["steps"], with_doubts(optimizer, doubts), colour, style, marker)


def _draw_run(ax: Axes, data: pd.DataFrame) -> None:
    colour = FOREGROUND
    ax.plot(data["run_batch_size"].iloc[:1], data["run_steps"].iloc[:1], "x", markersize=9, color=colour, zorder=4)


def _draw_perfect_scaling(ax: Axes, part: pd.DataFrame) -> None:
    limits, start = ax.get_ylim(), part.iloc[0]
    sizes = np.asarray(part["batch_size"], dtype=float)
    ax.plot(sizes, start["steps"] * start["batch_size"] / sizes, ":", color=_FAINT, linewidth=1.0)
    ax.set_ylim(limits)


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


def rate_at(prediction: Prediction, optimizer: str, batch_size: float) -> float | None:
    """The learning rate to use there, where it is predicted."""
    entry = prediction.curves.get(optimizer)
    points = () if entry is None else entry.points()
    return next((point["learning_rate"] for point in points if point["batch_size"] == batch_size), None)


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
