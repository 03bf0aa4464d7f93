"""Optimal learning rates against batch size, and optimal schedules: figures 3c, 5 and 6."""

import math
from itertools import pairwise

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from batchlens._drawing import FOREGROUND, PALETTE, Line, batch_axis, draw_lines, log_axis, positive, power_colour
from batchlens.report._page.numbers import frame_of, groups, stack
from batchlens.report._theory.study import Study, curve_frame


def tuned_rates_data(study: Study) -> pd.DataFrame:
    """Optimal (effective) learning rate of SGD, of momentum 0.9 and of tuned momentum, at every power."""
    kinds = {"none": ("sgd", None), "0.9": ("momentum", 0.9), "tuned": ("momentum", None)}
    parts = []
    for kind, (family, momentum) in kinds.items():
        for power in study.powers:
            part = curve_frame(study.curve(family, power, momentum=momentum))
            names = ["kind", "power", "batch_size", "learning_rate", "momentum", "effective_learning_rate"]
            effective = part["learning_rate"] / (1.0 - part["momentum"])
            parts.append(part.assign(kind=kind, effective_learning_rate=effective)[names])
    return stack(parts)


def draw_tuned_rates(ax: Axes, data: pd.DataFrame, kind: str = "none") -> None:
    """Effective learning rate of one kind of momentum against batch size, plain SGD's dashed for comparison."""
    lines = []
    for (name, power), part in groups(data, "kind", "power"):
        if name == kind:
            colour = power_colour(power, data["power"])
            lines.append(
                Line(part["batch_size"], part["effective_learning_rate"], f"power {power:g}", colour, marker="o")
            )
        elif name == "none":
            colour = power_colour(power, data["power"])
            lines.append(Line(part["batch_size"], part["effective_learning_rate"], "", colour, "--"))
    label = "learning rate" if kind == "none" else "effective learning rate"
    log_axis(ax, data["effective_learning_rate"], label)
    batch_axis(ax, data["batch_size"])
    draw_lines(ax, lines)


def schedule_data(study: Study) -> pd.DataFrame:
    """The optimal schedules at power 0: learning rate over the course of training, for every batch size."""
    rows = []
    for size in study.batch_sizes:
        plan = study.schedule(size)
        starts = np.concatenate([[0], np.cumsum(plan.lengths)])
        rows += [
            {
                "batch_size": size,
                "start": int(start),
                "end": int(end),
                "steps": plan.steps,
                "learning_rate": float(rate),
            }
            for start, end, rate in zip(starts[:-1], starts[1:], plan.learning_rates, strict=True)
        ]
    return frame_of(rows)


def draw_schedules(ax: Axes, data: pd.DataFrame) -> None:
    """Learning rate against the share of the steps taken, every other batch size."""
    lines = []
    for i, ((size,), part) in enumerate(list(groups(data, "batch_size"))[::2]):
        edges = [0.0, *(part["end"] / part["steps"])]
        x = [edge for pair in pairwise(edges) for edge in pair]
        y = [rate for rate in part["learning_rate"] for _ in (0, 1)]
        lines.append(Line(x, y, f"batch {size:,}", PALETTE[i % len(PALETTE)]))
    rates = positive(data["learning_rate"])
    ax.set_yscale("log")
    ax.set_ylim(min(rates) / 1.5, max(rates) * 1.5)
    ax.set_xlim(0, 1)
    ax.set_xlabel("share of the steps taken")
    ax.set_ylabel("learning rate")
    draw_lines(ax, lines)


def final_rate_data(study: Study) -> pd.DataFrame:
    """The learning rate that the optimal schedule ends with, at every batch size."""
    last = [(size, study.schedule(size).learning_rates[-1]) for size in study.batch_sizes]
    return frame_of({"batch_size": size, "final_learning_rate": float(rate)} for size, rate in last)


def draw_final_rates(ax: Axes, data: pd.DataFrame) -> None:
    """Final learning rate against batch size, beside a straight line through the smallest."""
    sizes, rates = list(data["batch_size"]), list(data["final_learning_rate"])
    linear = [rates[0] * size / sizes[0] for size in sizes]
    shown = [value if value <= 1.6 * max(rates) else math.nan for value in linear]
    lines = [
        Line(sizes, rates, "final rate", PALETTE[0], marker="o"),
        Line(sizes, shown, "proportional", FOREGROUND, "--"),
    ]
    ax.set_yscale("log")
    ax.set_ylim(min(rates) / 1.6, max(rates) * 2)
    ax.set_ylabel("final learning rate")
    batch_axis(ax, sizes)
    draw_lines(ax, lines)
