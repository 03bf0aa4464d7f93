"""What a sweep measured: figures 5 to 8 of the paper, and how much the number of trials matters."""

import math
from collections.abc import Collection, Sequence
from itertools import pairwise

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.path import Path
from matplotlib.ticker import MaxNLocator

from batchlens._drawing import (
    Line,
    batch_axis,
    draw_critical,
    draw_lines,
    hold_batch_sizes,
    log_axis,
    look_of,
    plain_ticks,
    shows_few_decades,
    steps_axis,
)
from batchlens.optimizers import averaged, base_of, is_averaged
from batchlens.report._page.numbers import frame_of, groups, known_rows, rows_of
from batchlens.scaling._critical import DEFINITIONS
from batchlens.scaling._figure import draw_steps, draw_times, steps_rows, time_rows
from batchlens.sweep._curves import MeasuredCurve, effective_rate
from batchlens.sweep.results import SweepResult

# The best of n trials is drawn where the chance that it is known to reach the target is at least this.
LIKELY = 0.9
# From a mark upward, as a marker; of its size half is above the mark.
_MOVE, _LINE = Path.MOVETO, Path.LINETO
ARROW = Path([(0, 0), (0, 1), (-0.3, 0.6), (0, 1), (0.3, 0.6)], [_MOVE, _LINE, _MOVE, _LINE, _LINE])
_ARROW_SIZE = 24.0


def sweep_steps_data(sweep: SweepResult) -> pd.DataFrame:
    """Steps to the target of every optimizer at every batch size, with the interval's ends, and the critical one."""
    return frame_of(
        {
            "optimizer": curve.optimizer,
            "batch_size": cell.batch_size,
            "status": cell.status,
            "steps": cell.steps,
            "low": None if cell.interval is None else cell.interval.low,
            "high": None if cell.interval is None else cell.interval.high,
            "max_steps": sweep.declaration.budget(cell.batch_size),
            "complete": cell.result.complete,
            "critical_batch_size": _critical(curve),
        }
        for curve in sweep.measured
        for cell in curve.cells
    )


def _critical(curve: MeasuredCurve) -> float | None:
    """By "fit", where that is a number and no bound."""
    found = curve.estimates[DEFINITIONS.index("fit")].critical_batch_size
    return found.value if found.relation == "=" else None


def draw_sweep_steps(ax: Axes, data: pd.DataFrame, optimizers: Sequence[str]) -> None:
    """Steps against batch size, one line per optimizer; a cross at the step budget where none reached the target.

    Dotted is perfect scaling; a mark at the lower edge is the critical batch size of the line of its colour.
    """
    shifts = shifts_of(data)
    missed = data[data["status"] == "not_reached"]
    steps_axis(ax, [*data["steps"], *data["low"], *data["high"], *missed["max_steps"]], written_out=True)
    batch_axis(ax, data["batch_size"])
    hold_batch_sizes(ax, data["batch_size"])
    bottom, _ = ax.get_ylim()
    draw_perfect_scaling(ax, data)
    lines = []
    for (optimizer,), part in groups(data, "optimizer"):
        colour, style, marker = look_of(optimizer, optimizers)
        reached = part["steps"].notna().any()
        shift = shifts[optimizer]
        if reached:
            sizes = part["batch_size"] * shift
            lines.append(Line(sizes, part["steps"], _label(optimizer, part), colour, style, marker))
        critical = part["critical_batch_size"].iloc[0]
        if not pd.isna(critical):
            draw_critical(ax, critical, bottom, colour)
        draw_intervals(ax, part, colour, shift)
        crosses = part[part["status"] == "not_reached"]
        if len(crosses):
            label = "" if reached else f"{optimizer} (not reached)"
            lines.append(Line(crosses["batch_size"] * shift, crosses["max_steps"], label, colour, " ", "x"))
    draw_lines(ax, lines)


def draw_intervals(ax: Axes, part: pd.DataFrame, colour: str, shift: float = 1.0, value: str = "steps") -> None:
    """Through the points of one line; without an upper end up to the point, and from there an arrow."""
    for row in rows_of(part.dropna(subset="low")):
        size, is_open = row["batch_size"] * shift, pd.isna(row["high"])
        ax.plot([size] * 2, [row["low"], row[value if is_open else "high"]], "-", color=colour, linewidth=1.0)
        if is_open:
            ax.plot(size, row[value], marker=ARROW, markersize=_ARROW_SIZE, fillstyle="none", color=colour)


def has_open_bars(data: pd.DataFrame) -> bool:
    """Whether some interval that is drawn has no upper end."""
    data = data[data["drawn"]] if "drawn" in data else data
    ends = [(name, name.replace("low", "high")) for name in ("low", "relative_low") if name in data]
    return any(bool((data[low].notna() & data[high].isna()).any()) for low, high in ends)


def draw_perfect_scaling(ax: Axes, data: pd.DataFrame) -> None:
    """From the most steps at the smallest batch size on."""
    known = data.dropna(subset="steps")
    if len(known):
        smallest = known[known["batch_size"] == known["batch_size"].min()]
        ends = pd.Series([smallest["batch_size"].iloc[0], data["batch_size"].max()])
        ax.plot(ends, smallest["steps"].max() * ends.iloc[0] / ends, ":", color="#888888", linewidth=1.0)


def plain_steps_data(sweep: SweepResult) -> pd.DataFrame:
    """The steps of the optimizers without averaging."""
    data = sweep_steps_data(sweep)
    return data[~data["optimizer"].map(is_averaged)]


def steps_alone_data(sweep: SweepResult) -> pd.DataFrame:
    """The same without critical batch sizes, which few batch sizes do not tell."""
    return plain_steps_data(sweep).assign(critical_batch_size=None)


def fitted_data(sweep: SweepResult, with_averaging: bool) -> pd.DataFrame:
    """Steps, fitted curves, perfect scaling and critical batch sizes of the optimizers with averaging or without."""
    return frame_of(
        {**row, "complete": _is_complete(curve, row["batch_size"])}
        for curve in sweep.measured
        if is_averaged(curve.optimizer) == with_averaging and curve.band
        for row in steps_rows(curve.curve, curve.band, curve.estimates[DEFINITIONS.index("fit")])
    )


def times_data(sweep: SweepResult, with_averaging: bool) -> pd.DataFrame:
    """Seconds to the target, the fitted curve in seconds, and the fastest batch sizes, with averaging or without."""
    return frame_of(
        {**row, "complete": _is_complete(curve, row["batch_size"])}
        for curve in sweep.measured
        if is_averaged(curve.optimizer) == with_averaging
        for row in time_rows(curve.curve, curve.band, [cell.seconds for cell in curve.cells], curve.fastest_range)
    )


def _is_complete(curve: MeasuredCurve, batch_size: float) -> bool:
    """Whether the search at a batch size is, elsewhere every one of the optimizer."""
    return next((cell.result.complete for cell in curve.cells if cell.batch_size == batch_size), curve.complete)


def draw_fitted(ax: Axes, data: pd.DataFrame, optimizers: Sequence[str]) -> None:
    """As for one's own runs, in the colours of the other figures."""
    draw_steps(ax, known_rows(data), {name: look_of(name, optimizers) for name in optimizers})


def draw_sweep_times(ax: Axes, data: pd.DataFrame, optimizers: Sequence[str]) -> None:
    """As for one's own runs, in the colours of the other figures."""
    draw_times(ax, known_rows(data), {name: look_of(name, optimizers) for name in optimizers})


def averaging_data(sweep: SweepResult) -> pd.DataFrame:
    """The steps of the optimizers that were swept both with averaging and without."""
    names = sweep.declaration.optimizers
    paired = {name for name in names if averaged(name) in names and base_of(name) in names}
    data = sweep_steps_data(sweep)
    return data[data["optimizer"].isin(paired)]


def averaging_words(data: pd.DataFrame) -> str:
    """What averaging did to the steps of each optimizer, at the smallest and at the largest batch size of both."""
    found = []
    for base in dict.fromkeys(map(base_of, data["optimizer"])):
        steps = [
            {row["batch_size"]: row["steps"] for row in known_rows(data[data["optimizer"] == name]) if row["steps"]}
            for name in (averaged(base), base)
        ]
        sizes = sorted(steps[0].keys() & steps[1].keys())
        parts = [f"{steps[0][size] / steps[1][size]:.2f} at {size:,}" for size in dict.fromkeys(sizes[:1] + sizes[-1:])]
        if parts:
            found.append(f"{averaged(base)} takes {' and '.join(parts)}")
    return f" Here, as parts of the steps without averaging: {'; '.join(found)}." if found else ""


def sweep_rates_data(sweep: SweepResult) -> pd.DataFrame:
    """The winners' learning rates, for the optimizers that have winners.

    Effective ones are learning_rate / (1 - momentum) where momentum adds up.  From low to high are those of trials that
    fresh seeds cannot tell from the winner.
    """
    return frame_of(
        {
            "optimizer": curve.optimizer,
            "batch_size": cell.batch_size,
            "learning_rate": cell.settings.get("learning_rate"),
            **_range("learning_rate", [settings.get("learning_rate") for settings in cell.good_settings]),
            "momentum": cell.settings.get("momentum"),
            "effective_learning_rate": cell.effective_learning_rate,
            **_range(
                "effective_learning_rate",
                [effective_rate(curve.optimizer, settings) for settings in cell.good_settings],
            ),
            "near_edge": " ".join(f"{edge.setting}:{edge.side}" for edge in cell.result.edges),
            "complete": cell.result.complete,
        }
        for curve in sweep.measured
        for cell in curve.cells
        if any("learning_rate" in other.settings for other in curve.cells)
    )


def _range(name: str, rates: Sequence[float | None]) -> dict[str, float | None]:
    """The lowest and the highest, where there are several."""
    known = [rate for rate in rates if rate is not None]
    several = len(known) > 1
    return {f"{name}_low": min(known) if several else None, f"{name}_high": max(known) if several else None}


def draw_sweep_rates(
    ax: Axes,
    data: pd.DataFrame,
    optimizers: Sequence[str],
    column: str = "effective_learning_rate",
    shown: Collection[str] | None = None,
) -> None:
    """Learning rate against batch size; ringed where a setting is near an end of its range.

    Axes are those of all numbers, also where only some optimizers are shown.
    """
    data = data.rename(columns={f"{column}_low": "low", f"{column}_high": "high"})
    sizes, data = data["batch_size"], data[data.groupby("optimizer")[column].transform("count") > 0]
    log_axis(ax, [*data[column], *data["low"], *data["high"]], column.replace("_", " "))
    if shows_few_decades(ax):
        plain_ticks(ax)
    batch_axis(ax, sizes)
    hold_batch_sizes(ax, sizes)
    data = data if shown is None else data[data["optimizer"].isin(shown)]
    shifts, lines = shifts_of(data), []
    for (optimizer,), part in groups(data, "optimizer"):
        colour, style, marker = look_of(optimizer, optimizers)
        shift = shifts[optimizer]
        x, y = part["batch_size"] * shift, part[column]
        lines.append(Line(x, y, _label(optimizer, part), colour, style, marker))
        draw_intervals(ax, part, colour, shift)
        ringed = part[part[column].notna() & (part["near_edge"] != "")]
        for size, rate in zip(ringed["batch_size"], ringed[column], strict=True):
            ax.plot(size * shift, rate, "o", color=colour, markerfacecolor="none", markersize=9)
    draw_lines(ax, lines)


def best_of_data(sweep: SweepResult) -> pd.DataFrame:
    """What the best of fewer trials, drawn at random from a search, would have been.

    `chance` is how likely it is to be known to reach the target; `steps` the expected steps if so.  The trials of a
    guided search are not alike, and nothing is drawn from them.
    """
    if sweep.declaration.search == "guided":
        return frame_of(())
    return frame_of(
        {
            "optimizer": curve.optimizer,
            "batch_size": cell.batch_size,
            **best._asdict(),
            "complete": cell.result.complete,
        }
        for curve in sweep.measured
        for cell in curve.cells
        if cell.steps is not None
        for best in cell.result.best_of()
    )


def draw_best_of(ax: Axes, data: pd.DataFrame, optimizers: Sequence[str]) -> None:
    """Expected steps of the best of n trials against n, at a batch size in the middle."""
    size = middle_batch_size(data)
    part = data[(data["batch_size"] == size) & (data["chance"] >= LIKELY)]
    steps_axis(ax, part["steps"], written_out=True)
    ax.set_xlabel("trials")
    ax.set_xlim(0.5, part["trials"].max() + 0.5)
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    lines = []
    for (optimizer,), some in groups(part, "optimizer"):
        colour, style, marker = look_of(optimizer, optimizers)
        lines.append(Line(some["trials"], some["steps"], _label(optimizer, some), colour, style, marker))
    draw_lines(ax, lines)
    ax.set_title(f"batch size {size:,}", fontsize=10, loc="left")


def middle_batch_size(data: pd.DataFrame) -> int:
    """Of the batch sizes at which most optimizers have a winner, the one in the middle."""
    counts = data.groupby("batch_size")["optimizer"].nunique()
    candidates = counts.index[counts == counts.max()]
    return int(candidates[len(candidates) // 2])


def repeats_data(sweep: SweepResult) -> pd.DataFrame:
    """Steps of the winners' repeats with other seeds, as repeat 0 the winner itself, of a guided search the mean."""
    rows = []
    for curve in sweep.measured:
        for cell in curve.cells:
            reported = cell.result.reported
            steps = [cell.steps, *(cell.result.repeat_steps() if reported is None else reported.seeds)]
            rows += [
                {
                    "optimizer": curve.optimizer,
                    "batch_size": cell.batch_size,
                    "repeat": repeat,
                    "steps": count,
                    "complete": cell.result.complete,
                }
                for repeat, count in enumerate(steps)
                if cell.result.repeats
            ]
    return frame_of(rows)


def draw_repeats(ax: Axes, data: pd.DataFrame, optimizers: Sequence[str]) -> None:
    """The winners' steps as lines, those of their repeats as dots."""
    steps_axis(ax, data["steps"], written_out=True)
    batch_axis(ax, data["batch_size"])
    lines = []
    for (optimizer,), part in groups(data, "optimizer"):
        colour, style, marker = look_of(optimizer, optimizers)
        winners = part[part["repeat"] == 0]
        lines.append(Line(winners["batch_size"], winners["steps"], _label(optimizer, part), colour, style))
        again = part[(part["repeat"] > 0) & part["steps"].notna()]
        ax.plot(again["batch_size"], again["steps"], marker, color=colour, markerfacecolor="none")
    draw_lines(ax, lines)


def _label(optimizer: str, part: pd.DataFrame) -> str:
    """The optimizer's name, and whether a search behind its line is not complete."""
    return optimizer if part["complete"].all() else f"{optimizer} (unfinished)"


def shifts_of(data: pd.DataFrame) -> dict[str, float]:
    """By which the marks of each optimizer are moved aside, so that bars at one batch size can be told apart.

    By a hundredth of the axis each, all together by no more than its margin nor half the way to the next batch size.
    """
    names, sizes = list(dict.fromkeys(data["optimizer"])), sorted(set(data["batch_size"]))
    gaps = [math.log(larger / smaller) for smaller, larger in pairwise(sizes)]
    apart = min(0.01 * sum(gaps), 0.08 * sum(gaps) / len(names), 0.5 * min(gaps) / len(names)) if gaps else 0.0
    return {name: math.exp(apart * (place - (len(names) - 1) / 2)) for place, name in enumerate(names)}
