"""How scaling curves are drawn."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from batchlens._drawing import BLUE, PALETTE, batch_axis, steps_axis

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from batchlens.scaling.curve import ScalingCurve


def draw_curve(ax: "Axes", curve: "ScalingCurve", colour: str = BLUE) -> "Axes":
    """Steps against batch size, the line of perfect scaling (dotted) and the critical batch size (dashed)."""
    known = [(size, steps) for size, steps in zip(curve.batch_sizes, curve.steps, strict=True) if steps]
    ends = [end for interval in curve.intervals if interval is not None for end in interval]
    steps_axis(ax, [*(steps for _, steps in known), *ends])
    batch_axis(ax, curve.batch_sizes)
    name = curve.optimizer or "steps"
    ax.plot(
        [size for size, _ in known],
        [steps for _, steps in known],
        "o-",
        color=colour,
        label=f"{name}, power {curve.power:g}" if curve.power else name,
    )
    for size, interval in zip(curve.batch_sizes, curve.intervals, strict=False):
        if interval is not None and interval.low is not None:
            high = ax.get_ylim()[1] if interval.high is None else interval.high
            ax.plot([size, size], [interval.low, high], "-", color=colour, linewidth=1.0)
    _draw_perfect_scaling(ax, curve, colour)
    _mark_critical(ax, curve, colour)
    ax.grid(True, alpha=0.2)
    ax.legend(loc="lower left")
    return ax


def draw_curves(ax: "Axes", curves: Sequence["ScalingCurve"]) -> "Axes":
    """Several curves on the same axes, which hold them all."""
    sizes = sorted({size for curve in curves for size in curve.batch_sizes})
    for place, curve in enumerate(curves):
        draw_curve(ax, curve, PALETTE[place % len(PALETTE)])
    batch_axis(ax, sizes)
    steps_axis(ax, [steps for curve in curves for steps in curve.steps])
    return ax


def _draw_perfect_scaling(ax: "Axes", curve: "ScalingCurve", colour: str) -> None:
    """The steps that perfect scaling would take, as far as the axis goes."""
    perfect = [
        (size, steps * part)
        for size, steps, part in zip(curve.batch_sizes, curve.steps, curve.efficiency(), strict=True)
        if steps and part is not None
    ]
    bottom = ax.get_ylim()[0]
    ax.plot(
        [size for size, _ in perfect],
        [steps for _, steps in perfect],
        ":",
        color=colour,
        linewidth=1.0,
        label="perfect scaling",
    )
    ax.set_ylim(bottom=bottom)


def _mark_critical(ax: "Axes", curve: "ScalingCurve", colour: str) -> None:
    critical = curve.critical_batch_size()
    if critical.value is None:
        return
    ax.axvline(critical.value, linestyle="--", linewidth=1.0, color=colour)
    ax.annotate(
        f"critical batch size {critical}",
        (critical.value, 0.98),
        xycoords=ax.get_xaxis_transform(),
        xytext=(4, 0),
        textcoords="offset points",
        va="top",
        color=colour,
    )
