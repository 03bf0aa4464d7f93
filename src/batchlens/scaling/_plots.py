"""How scaling curves are drawn: one or several on the same axes."""

from typing import TYPE_CHECKING

import numpy as np

from batchlens._drawing import (
    PALETTE,
    batch_axis,
    hold_batch_sizes,
    legend_at_lower_left,
    plain_ticks,
    shows_few_decades,
    steps_axis,
)
from batchlens.scaling._critical import UNFINISHED

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.lines import Line2D

    from batchlens.scaling.curve import ScalingCurve

# How a curve is known again when another one comes to the same axes.
_CURVE = "batchlens-curve"


def draw_curve(ax: "Axes", curve: "ScalingCurve") -> "Axes":
    """Steps against batch size, the line of perfect scaling (dotted) and the critical batch size (dashed).

    Axes that hold curves already are widened to hold this one too, which gets the next colour.
    """
    others: list[Line2D] = [line for line in ax.lines if line.get_gid() == _CURVE]
    colour = PALETTE[len(others) % len(PALETTE)]
    known = [(size, steps) for size, steps in zip(curve.batch_sizes, curve.steps, strict=True) if steps]
    sizes, steps = [size for size, _ in known], [count for _, count in known]
    ends = [end for interval in curve.intervals if interval is not None for end in interval]
    earlier = np.concatenate([np.empty((0, 2)), *(np.asarray(line.get_xydata(), dtype=float) for line in others)])
    steps_axis(ax, [*steps, *ends, *earlier[:, 1].tolist()])
    batch_axis(ax, [*curve.batch_sizes, *earlier[:, 0].tolist()])
    name = curve.optimizer or "steps"
    label = f"{name}, power {curve.power:g}" if curve.power else name
    label += " (unfinished)" if UNFINISHED in curve.statuses else ""
    ax.plot(sizes, steps, "o-", color=colour, label=label, gid=_CURVE)
    _mark_missed(ax, curve, colour)
    hold_batch_sizes(ax, [*curve.batch_sizes, *earlier[:, 0].tolist()])
    _draw_intervals(ax, curve, colour)
    _draw_perfect_scaling(ax, curve, colour)
    _mark_critical(ax, curve, colour, len(others))
    ax.grid(True, alpha=0.2)
    low = [(size, interval.low) for size, interval in zip(curve.batch_sizes, curve.intervals, strict=False) if interval]
    legend_at_lower_left(ax, [*known, *low, *map(tuple, earlier.tolist())])
    if shows_few_decades(ax):
        plain_ticks(ax)
    return ax


def _mark_missed(ax: "Axes", curve: "ScalingCurve", colour: str) -> None:
    """A cross at the upper edge where the target was not reached."""
    missed = [size for size, steps in zip(curve.batch_sizes, curve.steps, strict=True) if steps is None]
    if missed:
        ax.plot(missed, [0.97] * len(missed), "x", color=colour, transform=ax.get_xaxis_transform())


def _draw_intervals(ax: "Axes", curve: "ScalingCurve", colour: str) -> None:
    for size, interval in zip(curve.batch_sizes, curve.intervals, strict=False):
        if interval is not None and interval.low is not None:
            high = ax.get_ylim()[1] if interval.high is None else interval.high
            ax.plot([size, size], [interval.low, high], "-", color=colour, linewidth=1.0)


def _draw_perfect_scaling(ax: "Axes", curve: "ScalingCurve", colour: str) -> None:
    """The steps that perfect scaling would take, as far as the axis goes."""
    perfect = [
        (size, steps * part)
        for size, steps, part in zip(curve.batch_sizes, curve.steps, curve.efficiency(), strict=True)
        if steps and part is not None
    ]
    limits = ax.get_ylim()
    named = "perfect scaling" in ax.get_legend_handles_labels()[1]
    ax.plot(
        [size for size, _ in perfect],
        [steps for _, steps in perfect],
        ":",
        color=colour,
        linewidth=1.0,
        label=None if named else "perfect scaling",
    )
    ax.set_ylim(limits)


def _mark_critical(ax: "Axes", curve: "ScalingCurve", colour: str, place: int) -> None:
    critical = curve.critical_batch_size()
    if critical.value is None:
        return
    ax.axvline(critical.value, linestyle="--", linewidth=1.0, color=colour)
    # Beside the line, on the side that has room.
    left, right = np.log(ax.get_xlim())
    late = np.log(critical.value) > (left + right) / 2
    ax.annotate(
        f"{critical}",
        (critical.value, 0.93 - 0.07 * place),
        xycoords=ax.get_xaxis_transform(),
        xytext=(-4 if late else 4, 0),
        textcoords="offset points",
        ha="right" if late else "left",
        va="top",
        color=colour,
        bbox={
            "facecolor": ax.get_facecolor(),
            "edgecolor": "none",
            "alpha": 0.8,
            "pad": 1.0,
        },  # over other curves' dashed lines
    )
    if place == 0:
        ax.set_title("dashed: critical batch size (knee)", fontsize="medium", loc="left")
