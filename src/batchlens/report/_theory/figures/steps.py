"""Steps to a target against batch size: figures 3a, 3b, 4, 7 and 9."""

import math
from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes

from batchlens.report._page.drawing import (
    BLUE,
    PALETTE,
    RED,
    Line,
    batch_axis,
    draw_lines,
    power_colour,
)
from batchlens.report._page.svg import FOREGROUND
from batchlens.report._page.table import Table, concatenate
from batchlens.report._theory.study import Study, curve_table

SCHEDULED = "sgd+schedule"
# Of the batch sizes, momentum is combined with an optimal schedule at every so many: each takes seconds.
_HANDFUL = 3


def steps_data(study: Study, families: Sequence[str] = ("momentum", "sgd"), bounds: bool = True) -> Table:
    """Tuned steps of several optimizers at every power and batch size, and the lower bounds."""
    tables = [_essence(study.steps(*families))]
    return concatenate([*tables, study.bounds] if bounds else tables)


def draw_steps(ax: Axes, data: Table) -> None:
    """Steps against batch size: colour is the power; the first optimizer is solid, the second dashed."""
    powers = [power for power in data["power"] if power is not None]
    optimizers = list(dict.fromkeys(row["optimizer"] for row in data.rows() if row["power"] is not None))
    lines = []
    for (optimizer, power), part in data.groups("optimizer", "power"):
        if power is None:
            lines.append(_bound_line(optimizer, part))
            continue
        first = optimizer == optimizers[0]
        label = f"power {power:g}" if first else ""
        colour = power_colour(power, powers)
        lines.append(
            Line(part["batch_size"], part["steps"], label, colour, "-" if first else "--", "o" if first else "")
        )
    _steps_axes(ax, data)
    draw_lines(ax, lines)
    others = ", ".join(optimizers[1:])
    ax.set_title(f"solid: {optimizers[0]}" + (f"; dashed: {others}" if others else ""), fontsize=10, loc="left")


def schedule_steps_data(study: Study) -> Table:
    """Steps with an optimal schedule and with the best constant learning rate, at every power."""
    scheduled = Table.from_rows(
        {"optimizer": SCHEDULED, "power": power, "batch_size": size, "steps": study.schedule(size, power).steps}
        for power in study.powers
        for size in study.batch_sizes
    )
    return concatenate([scheduled, _essence(study.steps("sgd")), study.bounds])


def target_data(study: Study) -> Table:
    """Tuned SGD's steps for targets from ten times as loose to ten times as tight."""
    return concatenate([curve_table(study.curve("sgd", 0.0, target)) for target in study.targets])


def draw_targets(ax: Axes, data: Table) -> None:
    """Steps against batch size, one line a target."""
    lines = [
        Line(part["batch_size"], part["steps"], f"target {target:.2g}", PALETTE[i % len(PALETTE)], marker="o")
        for i, ((target,), part) in enumerate(data.groups("target"))
    ]
    _steps_axes(ax, data)
    draw_lines(ax, lines)


def combination_data(study: Study) -> Table:
    """Every choice at power 0: how much of the way from tuned SGD to the Bayes bound each one goes.

    `closed` is log(sgd / steps) / log(sgd / bound): 0 for SGD itself, 1 at the bound.
    """
    table = concatenate(
        [_essence(curve_table(study.curve(name, 0.0))) for name in ("sgd", "sgd+ema", "momentum", "momentum+ema")]
    )
    sizes = study.batch_sizes[1::_HANDFUL]
    scheduled = [(SCHEDULED, 0.0, study.batch_sizes), ("momentum+schedule", "tuned", sizes)]
    rows = [
        {"optimizer": name, "power": 0.0, "batch_size": size, "steps": study.schedule(size, 0.0, momentum).steps}
        for name, momentum, some in scheduled
        for size in some
    ]
    everything = concatenate([table, Table.from_rows(rows), study.bounds])
    plain = dict(zip(study.batch_sizes, study.curve("sgd", 0.0).steps, strict=True))
    bayes = study.bounds.where(optimizer="bayes bound")
    least = dict(zip(bayes["batch_size"], bayes["steps"], strict=True))
    return Table.from_rows(
        {**row, "closed": _closed(plain[row["batch_size"]], row["steps"], least[row["batch_size"]])}
        for row in everything.rows()
    )


def draw_combinations(ax: Axes, data: Table) -> None:
    """Steps against batch size, one line a choice."""
    lines = [
        _bound_line(optimizer, part)
        if optimizer.endswith("bound")
        else _choice_line(optimizer, part["batch_size"], part["steps"])
        for (optimizer,), part in data.groups("optimizer")
    ]
    _steps_axes(ax, data)
    draw_lines(ax, lines)


def draw_closed(ax: Axes, data: Table) -> None:
    """Which part of the way from tuned SGD to the Bayes bound each choice goes, against batch size."""
    lines = [
        _choice_line(optimizer, part["batch_size"], part["closed"])
        for (optimizer,), part in data.groups("optimizer")
        if not optimizer.endswith("bound") and optimizer != "sgd"
    ]
    ax.set_ylim(-0.05, 1.05)
    ax.set_ylabel("part of the way from SGD to the bound")
    batch_axis(ax, data["batch_size"])
    draw_lines(ax, lines)


def _choice_line(optimizer: str, sizes: Sequence[float], values: Sequence[float]) -> Line:
    """Base optimizer by colour; averaging dashed, a schedule dotted."""
    colour = RED if optimizer.startswith("momentum") else BLUE
    style = "--" if optimizer.endswith("ema") else ":" if optimizer.endswith("schedule") else "-"
    return Line(sizes, values, optimizer, colour, style, "o")


def _bound_line(name: str, part: Table) -> Line:
    """The Bayes bound is dotted and wide, so that it shows where the other one, a thin line, lies on it."""
    bayes = name.startswith("bayes")
    return Line(part["batch_size"], part["steps"], name, FOREGROUND, ":" if bayes else "-", width=2.6 if bayes else 0.8)


def _essence(table: Table) -> Table:
    """The columns that say what was tuned and how many steps it takes."""
    names = ("optimizer", "power", "batch_size", "steps")
    return Table({name: table[name] for name in names})


def _closed(plain: Any, steps: Any, least: int) -> float | None:
    if not plain or not steps or plain <= least or least < 1:
        return None
    return math.log(plain / steps) / math.log(plain / least)


def _steps_axes(ax: Axes, data: Table) -> None:
    steps = [step for step in data["steps"] if step]
    ax.set_yscale("log")
    ax.set_ylim(min(steps) / 1.6, max(steps) * 1.6)
    ax.set_ylabel("steps to target")
    batch_axis(ax, data["batch_size"])
