"""Critical batch size against preconditioning power and optimizer: figure 10."""

from matplotlib.axes import Axes

from batchlens.report._page.drawing import PALETTE, Line, draw_lines
from batchlens.report._page.table import Table
from batchlens.report._theory.study import Study
from batchlens.scaling._critical import DEFINITIONS

OPTIMIZERS = ("sgd", "sgd+ema", "momentum", "nesterov", "momentum+ema")


def critical_data(study: Study) -> Table:
    """Critical batch size of every optimizer at every power, by every definition."""
    rows = []
    for optimizer in OPTIMIZERS:
        for power in study.powers:
            curve = study.curve(optimizer, power)
            for definition in DEFINITIONS:
                found = curve.critical_batch_size(definition)
                rows.append({"optimizer": optimizer, "power": power, **found._asdict()})
    return Table.from_rows(rows)


def draw_critical(ax: Axes, data: Table, definition: str = "knee") -> None:
    """Critical batch size by one definition against power; hollow markers are bounds."""
    part = data.where(definition=definition)
    lines = []
    for i, ((optimizer,), some) in enumerate(part.groups("optimizer")):
        lines.append(Line(some["power"], some["value"], optimizer, PALETTE[i % len(PALETTE)]))
        for row in some.rows():
            if row["value"] is not None:
                exact = row["relation"] == "="
                face = PALETTE[i % len(PALETTE)] if exact else "none"
                marker = {"=": "o", ">=": "^"}.get(row["relation"], "v")
                ax.plot(row["power"], row["value"], marker, color=PALETTE[i % len(PALETTE)], markerfacecolor=face)
    values = [value for value in data["value"] if value]
    ax.set_yscale("log", base=2)
    ax.set_ylim(min(values) / 2, max(values) * 2)
    ax.set_xticks(sorted(set(part["power"])))
    ax.set_xlabel("preconditioning power")
    ax.set_ylabel("critical batch size")
    draw_lines(ax, lines)
