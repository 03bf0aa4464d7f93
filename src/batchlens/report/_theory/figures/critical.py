"""Critical batch size against preconditioning power and optimizer: figure 10."""

import pandas as pd
from matplotlib.axes import Axes

from batchlens._drawing import PALETTE, Line, draw_lines, positive
from batchlens.report._page.numbers import frame_of, groups, rows_of
from batchlens.report._theory.study import Study
from batchlens.scaling._critical import DEFINITIONS

OPTIMIZERS = ("sgd", "sgd+ema", "momentum", "nesterov", "momentum+ema")


def critical_data(study: Study) -> pd.DataFrame:
    """Critical batch size of every optimizer at every power, by every definition."""
    rows = []
    for optimizer in OPTIMIZERS:
        for power in study.powers:
            curve = study.curve(optimizer, power)
            for definition in DEFINITIONS:
                found = curve.critical_batch_size(definition)
                rows.append({"optimizer": optimizer, "power": power, **found._asdict()})
    return frame_of(rows)


def draw_critical(ax: Axes, data: pd.DataFrame, definition: str = "knee") -> None:
    """Critical batch size by one definition against power; hollow markers are bounds."""
    part = data[data["definition"] == definition]
    lines = []
    for i, ((optimizer,), some) in enumerate(groups(part, "optimizer")):
        colour = PALETTE[i % len(PALETTE)]
        lines.append(Line(some["power"], some["value"], optimizer, colour))
        for row in rows_of(some.dropna(subset="value")):
            face = colour if row["relation"] == "=" else "none"
            marker = {"=": "o", ">=": "^"}.get(row["relation"], "v")
            ax.plot(row["power"], row["value"], marker, color=colour, markerfacecolor=face)
    values = positive(data["value"])
    ax.set_yscale("log", base=2)
    ax.set_ylim(min(values) / 2, max(values) * 2)
    ax.set_xticks(sorted(set(part["power"])))
    ax.set_xlabel("preconditioning power")
    ax.set_ylabel("critical batch size")
    draw_lines(ax, lines)
