"""Other targets, met by the same runs: the effect of the threshold, and of the set that it is measured on."""

import math
from collections.abc import Mapping, Sequence
from statistics import fmean

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from batchlens._drawing import FOREGROUND, Line, batch_axis, draw_lines, hold_batch_sizes, look_of, steps_axis
from batchlens.optimizers import is_averaged
from batchlens.report._page.numbers import frame_of, groups
from batchlens.report._page.small import share_labels, small_axes, thin_out
from batchlens.report._sweep.figures import draw_intervals, draw_perfect_scaling, shifts_of
from batchlens.sweep.results import SweepResult

# Of the optimizers that were swept, these are drawn.
_DRAWN = ("sgd", "momentum")
# Of the text's colour the easiest target has this much: its line still stands out from the ground.
_LIGHTEST = 0.5
_MARKERS = ("o", "s", "^", "D", "v", "P")


def thresholds_data(sweep: SweepResult) -> pd.DataFrame:
    """Steps to every target, where a guided sweep has several on the same set; `drawn` are some optimizers on such."""
    data = targets_data(sweep)
    if not len(data):
        return data
    sets = data["target"].map(_set_of)
    several = data["target"].groupby(sets).transform("nunique") > 1
    names = set(data["optimizer"]) & {*_DRAWN} or {data["optimizer"].iloc[0]}
    return data.assign(drawn=several & data["optimizer"].isin(names)) if several.any() else data[:0]


def _set_of(target: str) -> str:
    """What a target is on: "train-loss 0.1" is on "train-loss"."""
    return target.partition(" ")[0]


def targets_data(sweep: SweepResult) -> pd.DataFrame:
    """Steps to every target of a guided sweep that has several; settings were tuned for the main one.

    Without an upper end of the interval they are a lower bound: a seed missed the target.
    """
    declaration = sweep.declaration
    if not declaration.also_targets:
        return frame_of(())
    rows = []
    for cell in sweep.cells:
        if cell.result.reported is not None:
            main = cell.steps, cell.result.reported.interval
            also = {target: (found.steps, found.interval) for target, found in cell.result.reported.also.items()}
            rows += [
                {
                    "optimizer": cell.result.cell.optimizer,
                    "batch_size": cell.batch_size,
                    "target": target,
                    "main": target == declaration.main_target,
                    "steps": steps,
                    "low": None if interval is None else interval.low,
                    "high": None if interval is None else interval.high,
                    "complete": cell.result.complete,
                }
                for target, (steps, interval) in {declaration.main_target: main, **also}.items()
            ]
    return frame_of(rows)


def draw_thresholds(ax: Axes, data: pd.DataFrame) -> None:
    """A small picture per optimizer, and per set: steps against batch size, from light, the easiest target, to dark."""
    shown = data[data["drawn"] & data["steps"].notna()]
    shown = shown.assign(on=shown["target"].map(_set_of))
    parts = list(groups(shown, "on", "optimizer"))
    axes = small_axes(ax, len(parts))
    steps_axis(axes[0], [*shown["steps"], *shown["low"], *shown["high"]], written_out=True)
    batch_axis(axes[0], data["batch_size"])
    hold_batch_sizes(axes[0], data["batch_size"])
    thin_out(axes[0])
    sizes = sorted(set(data["batch_size"]))
    for small, ((on, optimizer), part) in zip(axes, parts, strict=True):
        _draw_targets(small, sizes, part, looks_of_targets(easiest_first(shown[shown["on"] == on])))
        small.set_title(optimizer, fontsize=10, loc="left")
    share_labels(axes)


def _draw_targets(ax: Axes, sizes: Sequence[int], data: pd.DataFrame, looks: Mapping[str, tuple[str, str]]) -> None:
    """The hardest first, as the lines lie."""
    for target in reversed(list(looks)):
        part, (colour, marker) = data[data["target"] == target], looks[target]
        ax.plot(sizes, _steps_at(sizes, part), "-", color=colour, marker=marker, label=target)
        draw_intervals(ax, part, colour)
    ax.legend(fontsize=8, frameon=False, loc="upper right")
    ax.grid(True)


def looks_of_targets(targets: Sequence[str]) -> dict[str, tuple[str, str]]:
    """Colour and marker of each, from light to dark in the colour of text: no optimizer has it.

    >>> looks_of_targets(["loss 0.3", "loss 0.1"])
    {'loss 0.3': ('#20212480', 'o'), 'loss 0.1': ('#202124ff', 's')}
    """
    shares = np.linspace(_LIGHTEST, 1.0, max(len(targets), 2))
    return {
        name: (f"{FOREGROUND}{round(255 * share):02x}", _MARKERS[place % len(_MARKERS)])
        for place, (name, share) in enumerate(zip(targets, shares, strict=False))
    }


def _steps_at(sizes: Sequence[int], part: pd.DataFrame) -> Sequence[float]:
    """NaN, which leaves a gap in a line, where there are none."""
    known = dict(zip(part["batch_size"], part["steps"], strict=True))
    return [known.get(size, math.nan) for size in sizes]


def easiest_first(data: pd.DataFrame) -> Sequence[str]:
    """Targets by the steps that they take on the whole."""
    means = {target: fmean(np.log(part["steps"])) for (target,), part in groups(data, "target")}
    return sorted(means, key=lambda target: means[target])


def other_set_data(sweep: SweepResult) -> pd.DataFrame:
    """The targets on the other set than the main one, of the optimizers without averaging."""
    data = targets_data(sweep)
    if not len(data):
        return data
    on_training_set = sweep.declaration.target_on != "validation"
    plain = ~data["optimizer"].map(is_averaged)
    other = data["target"].str.startswith("validation") == on_training_set
    return data[plain & other & data["steps"].notna()]


def draw_other_set(ax: Axes, data: pd.DataFrame, optimizers: Sequence[str]) -> None:
    """Steps against batch size, a line per optimizer, to the target that most of them have met."""
    target = data["target"].mode().iloc[0]
    shown = data[data["target"] == target]
    steps_axis(ax, [*shown["steps"], *shown["low"], *shown["high"]], written_out=True)
    batch_axis(ax, data["batch_size"])
    hold_batch_sizes(ax, data["batch_size"])
    draw_perfect_scaling(ax, shown)
    sizes, shifts, lines = sorted(set(data["batch_size"])), shifts_of(shown), []
    for (optimizer,), part in groups(shown, "optimizer"):
        (colour, style, marker), shift = look_of(optimizer, optimizers), shifts[optimizer]
        aside = [size * shift for size in sizes]
        lines.append(Line(aside, _steps_at(sizes, part), optimizer, colour, style, marker))
        draw_intervals(ax, part, colour, shift)
    draw_lines(ax, lines)
    ax.set_title(target, fontsize=10, loc="left")
