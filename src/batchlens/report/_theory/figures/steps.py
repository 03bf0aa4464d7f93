"""Steps to a target against batch size: figures 3a, 3b, 4, 7 and 9."""

import math
from collections.abc import Sequence

import pandas as pd
from matplotlib.axes import Axes

from batchlens._drawing import (
    BLUE,
    FOREGROUND,
    PALETTE,
    RED,
    Line,
    batch_axis,
    draw_lines,
    power_colour,
    steps_axis,
)
from batchlens.report._page.numbers import frame_of, groups, rows_of, stack
from batchlens.report._theory.study import Study, curve_frame

SCHEDULED = "sgd+schedule"
# Momentum is combined with an optimal schedule at every third batch size only, as each takes seconds.
_HANDFUL = 3


def tuned_steps_data(study: Study, families: Sequence[str] = ("momentum", "sgd"), bounds: bool = True) -> pd.DataFrame:
    """Tuned steps of several optimizers at every power and batch size, and the lower bounds."""
    tuned = _essence(study.steps(*families))
    return stack([tuned, study.bounds]) if bounds else tuned


def draw_tuned_steps(ax: Axes, data: pd.DataFrame) -> None:
    """Steps against batch size: colour is the power; the first optimizer is solid, the second dashed."""
    tuned = data.dropna(subset="power")
    optimizers = list(dict.fromkeys(tuned["optimizer"]))
    lines = []
    for (optimizer, power), part in groups(data, "optimizer", "power"):
        if pd.isna(power):
            lines.append(_bound_line(optimizer, part))
            continue
        first = optimizer == optimizers[0]
        label = f"power {power:g}" if first else ""
        colour = power_colour(power, tuned["power"])
        lines.append(
            Line(part["batch_size"], part["steps"], label, colour, "-" if first else "--", "o" if first else "")
        )
    _steps_axes(ax, data)
    draw_lines(ax, lines)
    others = ", ".join(optimizers[1:])
    ax.set_title(f"solid: {optimizers[0]}" + (f"; dashed: {others}" if others else ""), fontsize=10, loc="left")


def schedule_steps_data(study: Study) -> pd.DataFrame:
    """Steps with an optimal schedule and with the best constant learning rate, at every power."""
    scheduled = frame_of(
        {"optimizer": SCHEDULED, "power": power, "batch_size": size, "steps": study.schedule(size, power).steps}
        for power in study.powers
        for size in study.batch_sizes
    )
    return stack([scheduled, _essence(study.steps("sgd")), study.bounds])


def target_data(study: Study) -> pd.DataFrame:
    """Tuned SGD's steps for targets from ten times as loose to ten times as tight."""
    return stack([curve_frame(study.curve("sgd", 0.0, target)) for target in study.targets])


def draw_targets(ax: Axes, data: pd.DataFrame) -> None:
    """Steps against batch size, one line per target."""
    lines = [
        Line(part["batch_size"], part["steps"], f"target {target:.2g}", PALETTE[i % len(PALETTE)], marker="o")
        for i, ((target,), part) in enumerate(groups(data, "target"))
    ]
    _steps_axes(ax, data)
    draw_lines(ax, lines)


def combination_data(study: Study) -> pd.DataFrame:
    """Every choice at power 0: how much of the way from tuned SGD to the Bayes bound each one goes.

    `closed` is log(sgd / steps) / log(sgd / bound): 0 for SGD itself, 1 at the bound.
    """
    tuned = stack(
        [_essence(curve_frame(study.curve(name, 0.0))) for name in ("sgd", "sgd+ema", "momentum", "momentum+ema")]
    )
    sizes = study.batch_sizes[1::_HANDFUL]
    scheduled = [(SCHEDULED, 0.0, study.batch_sizes), ("momentum+schedule", "tuned", sizes)]
    rows = [
        {"optimizer": name, "power": 0.0, "batch_size": size, "steps": study.schedule(size, 0.0, momentum).steps}
        for name, momentum, some in scheduled
        for size in some
    ]
    everything = stack([tuned, frame_of(rows), study.bounds])
    plain = dict(zip(study.batch_sizes, study.curve("sgd", 0.0).steps, strict=True))
    bayes = study.bounds[study.bounds["optimizer"] == "bayes bound"]
    least = dict(zip(bayes["batch_size"], bayes["steps"], strict=True))
    return frame_of(
        {**row, "closed": _closed(plain[row["batch_size"]], row["steps"], least[row["batch_size"]])}
        for row in rows_of(everything)
    )


def draw_combinations(ax: Axes, data: pd.DataFrame) -> None:
    """Steps against batch size, one line per choice."""
    lines = [
        _bound_line(optimizer, part)
        if optimizer.endswith("bound")
        else _choice_line(optimizer, part["batch_size"], part["steps"])
        for (optimizer,), part in groups(data, "optimizer")
    ]
    _steps_axes(ax, data)
    draw_lines(ax, lines)


def draw_closed(ax: Axes, data: pd.DataFrame) -> None:
    """Which part of the way from tuned SGD to the Bayes bound each choice goes, against batch size."""
    lines = [
        _choice_line(optimizer, part["batch_size"], part["closed"])
        for (optimizer,), part in groups(data, "optimizer")
        if not optimizer.endswith("bound") and optimizer != "sgd"
    ]
    ax.set_ylim(-0.05, 1.05)
    ax.set_ylabel("part of the way from SGD to the bound")
    batch_axis(ax, data["batch_size"])
    draw_lines(ax, lines)


def _choice_line(optimizer: str, sizes: "pd.Series[float]", values: "pd.Series[float]") -> Line:
    """Base optimizer by colour; averaging dashed, a schedule dotted."""
    colour = RED if optimizer.startswith("momentum") else BLUE
    style = "--" if optimizer.endswith("ema") else ":" if optimizer.endswith("schedule") else "-"
    return Line(sizes, values, optimizer, colour, style, "o")


def _bound_line(name: str, part: pd.DataFrame) -> Line:
    """The Bayes bound is dotted and wide, so that it shows where the other one, a thin line, lies on it."""
    bayes = name.startswith("bayes")
    return Line(part["batch_size"], part["steps"], name, FOREGROUND, ":" if bayes else "-", width=2.6 if bayes else 0.8)


def _essence(frame: pd.DataFrame) -> pd.DataFrame:
    """The columns that say what was tuned and how many steps it takes."""
    return frame[["optimizer", "power", "batch_size", "steps"]]


def _closed(plain: float | None, steps: float | None, least: float) -> float | None:
    if not plain or not steps or math.isnan(steps) or plain <= least or least < 1:
        return None
    return math.log(plain / steps) / math.log(plain / least)


def _steps_axes(ax: Axes, data: pd.DataFrame) -> None:
    steps_axis(ax, data["steps"])
    batch_axis(ax, data["batch_size"])
