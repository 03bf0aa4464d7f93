"""Figures of a prediction: steps with their bands, settings to use, and how the model follows the reference."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from batchlens._drawing import (
    Line,
    batch_axis,
    draw_critical,
    draw_lines,
    hold_batch_sizes,
    log_axis,
    look_of,
    steps_axis,
)
from batchlens.prediction.prediction import Prediction
from batchlens.report._page.numbers import frame_of, groups


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
        }
        for entry in prediction.predicted
        for size, steps, interval in zip(entry.curve.batch_sizes, entry.curve.steps, entry.curve.intervals, strict=True)
    )


def draw_steps(ax: Axes, data: pd.DataFrame, optimizers: Sequence[str]) -> None:
    """Lines with bands; stars where measured, a cross for the run, perfect scaling dotted, critical sizes below."""
    steps_axis(ax, [*data["steps"], *data["low"], *data["high"], *data["measured"]], written_out=True)
    batch_axis(ax, data["batch_size"])
    hold_batch_sizes(ax, data["batch_size"])
    bottom, _ = ax.get_ylim()
    lines = []
    for (optimizer,), part in groups(data, "optimizer"):
        colour, style, marker = look_of(optimizer, optimizers)
        lines.append(Line(part["batch_size"], part["steps"], optimizer, colour, style, marker))
        ax.fill_between(part["batch_size"], part["low"], part["high"], color=colour, alpha=0.12, linewidth=0)
        critical = part["critical_batch_size"].iloc[0]
        if not pd.isna(critical):
            draw_critical(ax, critical, bottom, colour)
        found = part[part["measured"].notna()]
        ax.plot(found["batch_size"], found["measured"], "*", markersize=11, color=colour, markeredgecolor="white")
    ax.plot(data["run_batch_size"].iloc[:1], data["run_steps"].iloc[:1], "x", markersize=9, color="black", zorder=4)
    first = data[data["optimizer"] == data["optimizer"].iloc[0]]
    limits, start = ax.get_ylim(), first.iloc[0]
    sizes = np.asarray(first["batch_size"], dtype=float)
    ax.plot(sizes, start["steps"] * start["batch_size"] / sizes, ":", color="#888888", linewidth=1.0)
    ax.set_ylim(limits)
    draw_lines(ax, lines)


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
