"""What all figures share: colours, axes of batch sizes and steps, labels beside lines.

Importing this imports matplotlib: do so where something is drawn.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullFormatter, NullLocator

from batchlens.optimizers import base_of, is_averaged

if TYPE_CHECKING:
    import pandas as pd

# Text and axes; a page puts its own colour in its place, so that they can be read in light and in dark mode.
FOREGROUND = "#202124"
# Colours that colour-blind readers tell apart and that stand out (3:1) on white and on black.
BLUE, RED, GREEN, PURPLE, OCHRE = "#0072B2", "#D55E00", "#009E73", "#C770A2", "#A6761D"
PALETTE = (BLUE, RED, GREEN, PURPLE, OCHRE)
# Least distance between two labels, as a share of the axis' height.
_LABEL_GAP = 0.048
# How far a logarithmic axis reaches beyond what it shows, as a factor.
_MARGIN = 1.6
_RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
_OWN_MARKERS = ("D", "P", "^", "v")
# What a legend takes of the axes: its width, its height without entries, and that of an entry.
_LEGEND_WIDTH, _LEGEND_MARGIN, _LEGEND_ROW = 0.42, 0.05, 0.065
# Columns of small pictures, the size of one, and how many ticks of batch sizes it has room for.
_COLUMNS, _SMALL, _MOST_TICKS = 3, (3.6, 2.6), 6

_STYLE: Any = {
    "axes.edgecolor": FOREGROUND,
    "axes.labelcolor": FOREGROUND,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "figure.constrained_layout.use": True,
    "figure.figsize": (5.6, 3.8),
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans", "Verdana", "sans-serif"],
    "font.size": 10,
    "grid.alpha": 0.2,
    "grid.color": FOREGROUND,
    "lines.linewidth": 1.8,
    "lines.markersize": 4.5,
    "savefig.transparent": True,
    "svg.fonttype": "none",
    "svg.hashsalt": "batchlens",
    "text.color": FOREGROUND,
    "xtick.color": FOREGROUND,
    "ytick.color": FOREGROUND,
}


@contextmanager
def figure_style() -> Iterator[None]:
    """The report's look; inside it every figure is drawn the same way, to the byte."""
    with mpl.rc_context({**mpl.rcParamsDefault, **_STYLE}):
        yield


@dataclass(frozen=True)
class Line:
    """One line of a figure."""

    x: "Sequence[float] | pd.Series[Any]"
    y: "Sequence[float] | pd.Series[Any]"
    label: str
    colour: str
    style: str = "-"
    marker: str = ""
    width: float | None = None


def draw_lines(ax: Axes, lines: Sequence[Line]) -> None:
    """Lines with their labels at the right, where their last points are."""
    for line in lines:
        ax.plot(line.x, line.y, line.style, color=line.colour, marker=line.marker or None, linewidth=line.width)
    ax.grid(True)
    label_ends(ax, [line for line in lines if line.label])


def label_ends(ax: Axes, lines: Sequence[Line]) -> None:
    """Labels beside the axis, each behind a stroke like its line, moved apart where they would overlap."""
    ends = []
    for line in lines:
        finite = [y for y in np.array(line.y, dtype=float) if np.isfinite(y)]
        if finite:
            height = ax.transAxes.inverted().transform(ax.transData.transform((1.0, finite[-1])))[1]
            ends.append((min(max(float(height), 0.0), 1.0), line))
    for height, (_, line) in zip(spread([height for height, _ in ends]), ends, strict=True):
        stroke: dict[str, Any] = {
            "color": line.colour,
            "marker": line.marker or None,
            "linewidth": line.width,
            "clip_on": False,
        }
        ax.plot([1.02, 1.055, 1.09], [height] * 3, line.style, markevery=[1], transform=ax.transAxes, **stroke)
        ax.text(1.11, height, line.label, transform=ax.transAxes, va="center", fontsize=9)


def spread(heights: Sequence[float], gap: float = _LABEL_GAP) -> list[float]:
    """Heights moved as little as it takes to lie `gap` apart.

    >>> [round(height, 3) for height in spread([0.5, 0.5], gap=0.1)]
    [0.45, 0.55]
    """
    order = sorted(range(len(heights)), key=lambda i: heights[i])
    blocks: list[tuple[float, int]] = []  # (centre, size): labels that touch move as one
    for i in order:
        centre, size = heights[i], 1
        while blocks and blocks[-1][0] + gap * (blocks[-1][1] + size) / 2 > centre:
            other, other_size = blocks.pop()
            centre = (centre * size + other * other_size) / (size + other_size)
            size += other_size
        blocks.append((centre, size))
    placed = [centre + gap * (j - (size - 1) / 2) for centre, size in blocks for j in range(size)]
    result = [0.0] * len(heights)
    for i, height in zip(order, placed, strict=True):
        result[i] = height
    return result


def batch_axis(ax: Axes, sizes: "Sequence[float] | pd.Series[Any]") -> None:
    """A log2 axis of batch sizes, ticks at powers of two that are not too close for their labels."""
    ax.set_xscale("log", base=2)
    exponents = np.unique(np.round(np.log2(np.asarray(sizes, dtype=float))))
    gap, ticks = (exponents[-1] - exponents[0]) / 8, [float(exponents[0])]
    for exponent in exponents[:: max(1, len(exponents) // 5)]:
        if exponent - ticks[-1] >= gap > 0:
            ticks.append(float(exponent))
    ax.xaxis.set_major_locator(FixedLocator([2.0**exponent for exponent in ticks]))
    ax.xaxis.set_minor_locator(NullLocator())
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    ax.set_xlabel("batch size")


def hold_batch_sizes(ax: Axes, sizes: "Sequence[float] | pd.Series[Any]") -> None:
    """Widens the axis to all batch sizes, also to those at which nothing is drawn."""
    low, high = np.log(min(sizes)), np.log(max(sizes))
    margin = 0.05 * (high - low) or 0.5
    ax.set_xlim(np.exp(low - margin), np.exp(high + margin))


def log_axis(ax: Axes, values: "Iterable[float | None]", label: str) -> None:
    """A logarithmic axis of heights around the values that it can show."""
    shown = positive(values) or [1.0]
    ax.set_yscale("log")
    ax.set_ylim(min(shown) / _MARGIN, max(shown) * _MARGIN)
    ax.set_ylabel(label)
    if not shows_few_decades(ax):
        powers_of_ten(ax.yaxis)


def powers_of_ten(axis: Axis) -> None:
    """Labels such as 10⁻³ in plain text, which takes a tenth of the time of a formula's."""
    axis.set_major_formatter(FuncFormatter(lambda value, _: "10" + str(round(np.log10(value))).translate(_RAISED)))
    axis.set_minor_formatter(NullFormatter())


def steps_axis(ax: Axes, values: "Iterable[float | None]", written_out: bool = False) -> None:
    """A logarithmic axis of steps.

    Arguments:
        ax: whose heights are steps.
        values: the steps that are to be seen; those that are missing do not count.
        written_out: 2,000 for powers of ten, with more ticks where less than two decades or so are shown.
    """
    log_axis(ax, values, "steps to target")
    if written_out:
        plain_ticks(ax)


def draw_critical(ax: Axes, batch_size: float, bottom: float, colour: str) -> None:
    """A triangle on the lower edge."""
    ax.plot([batch_size], [bottom], marker="^", color=colour, markersize=8, clip_on=False, zorder=3)


def shows_few_decades(ax: Axes) -> bool:
    """Whether powers of ten alone would be too few ticks for the heights."""
    low, high = ax.get_ylim()
    return bool(high / low < 300)


def plain_ticks(ax: Axes) -> None:
    """2,000 for powers of ten, with more ticks where less than two decades or so are shown."""
    plain = FuncFormatter(lambda value, _: f"{value:,.0f}" if value >= 1 else f"{value:g}")
    few = shows_few_decades(ax)
    ax.yaxis.set_major_formatter(plain)
    if few:
        ax.yaxis.set_minor_locator(LogLocator(subs=(2, 5)))
    ax.yaxis.set_minor_formatter(plain if few else NullFormatter())


def small_axes(ax: Axes, count: int) -> list[Axes]:
    """In the place of one picture small ones that share their axes.

    They are in two rows at most: a page has room for what is wide.
    """
    figure = ax.figure
    assert isinstance(figure, Figure)
    ax.remove()
    columns = min(count, max(_COLUMNS, math.ceil(count / 2)))
    rows = math.ceil(count / columns)
    figure.set_size_inches(_SMALL[0] * columns, _SMALL[1] * rows)
    axes = list(figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False).ravel())
    for above, unused in zip(axes[count - columns :], axes[count:], strict=False):
        above.tick_params(labelbottom=True)
        unused.remove()
    return axes[:count]


def name_all_axes(axes: Sequence[Axes]) -> None:
    """The labels of the first small picture's axes, once for all of them."""
    figure = axes[0].figure
    figure.supxlabel(axes[0].get_xlabel(), fontsize=10)
    figure.supylabel(axes[0].get_ylabel(), fontsize=10)
    axes[0].set(xlabel="", ylabel="")


def thin_out(ax: Axes) -> None:
    """Every second tick of batch sizes, where a small picture has no room for all labels."""
    ticks = ax.get_xticks().tolist()
    if len(ticks) > _MOST_TICKS:
        ax.xaxis.set_major_locator(FixedLocator(ticks[::2]))


def legend_at_lower_left(
    ax: Axes, points: "Iterable[tuple[float, float | None]]", fontsize: float | None = None
) -> None:
    """A legend at the lower left of logarithmic axes, which reach further down where it would cover points."""
    rows = len(ax.get_legend_handles_labels()[1])
    share = min(_LEGEND_MARGIN + _LEGEND_ROW * rows, 0.6)
    left, right = np.log(ax.get_xlim())
    edge = np.exp(left + _LEGEND_WIDTH * (right - left))
    heights = positive(height for size, height in points if size < edge)
    low, high = np.log(ax.get_ylim())
    if heights:
        low = min(low, (np.log(min(heights)) - share * high) / (1 - share))
    ax.set_ylim(np.exp(low), np.exp(high))
    ax.legend(loc="lower left", fontsize=fontsize)


def positive(values: "Iterable[float | None]") -> list[float]:
    """The values that a logarithmic axis can show.

    >>> positive([2.0, None, 0, float("nan")])
    [2.0]
    """
    return [value for value in values if value is not None and value > 0]


# Colour and marker of the usual optimizers: the same in every figure of every page.
_LOOKS = {
    "sgd": (BLUE, "o"), "momentum": (RED, "o"), "nesterov": (RED, "s"),
    "adam": (PURPLE, "o"), "adam_no_momentum": (PURPLE, "s"), "adamw": (OCHRE, "o"), "muon": (OCHRE, "s"),
    "kfac": (GREEN, "o"), "kfac_no_momentum": (GREEN, "s"),
}  # fmt: skip

# By averaging, and by whether momentum was taken away.
_STYLES = {(False, False): "-", (True, False): "--", (False, True): "-.", (True, True): ":"}


def look_of(optimizer: str, optimizers: Sequence[str]) -> tuple[str, str, str]:
    """Colour, line style and marker of an optimizer; averaging is dashed, without momentum dash-dotted, both dotted.

    Arguments:
        optimizer: whose look it is.
        optimizers: all that are shown: those of one's own have looks by their order.

    >>> look_of("sgd+ema", ["momentum", "sgd+ema", "sgd"])
    ('#0072B2', '--', 'o')
    """
    base = base_of(optimizer)
    style = _STYLES[is_averaged(optimizer), base.endswith("_no_momentum")]
    if base in _LOOKS:
        colour, marker = _LOOKS[base]
        return colour, style, marker
    own = [name for name in dict.fromkeys(map(base_of, optimizers)) if name not in _LOOKS]
    place = own.index(base)
    return PALETTE[place % len(PALETTE)], style, _OWN_MARKERS[place // len(PALETTE) % len(_OWN_MARKERS)]


def power_colour(power: float, powers: Iterable[float]) -> str:
    """One colour for each preconditioning power."""
    return PALETTE[sorted(set(powers)).index(power) % len(PALETTE)]
