"""Small pictures in the place of one: they share their axes and the labels of these."""

import math
from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator

_COLUMNS = 3
_SIZE = (3.6, 2.6)
_MOST_TICKS = 6


def small_axes(ax: Axes, count: int) -> list[Axes]:
    """In two rows at most: a page has room for what is wide.  One picture alone stays as large as it is."""
    if count == 1:
        return [ax]
    figure = ax.figure
    assert isinstance(figure, Figure)
    ax.remove()
    columns = min(count, max(_COLUMNS, math.ceil(count / 2)))
    rows = math.ceil(count / columns)
    figure.set_size_inches(_SIZE[0] * columns, _SIZE[1] * rows)
    axes = list(figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False).ravel())
    for above, unused in zip(axes[count - columns :], axes[count:], strict=False):
        above.tick_params(labelbottom=True)
        unused.remove()
    return axes[:count]


def share_labels(axes: Sequence[Axes]) -> None:
    """The labels of the first picture's axes, once for all."""
    first, *others = axes
    if others:
        first.figure.supxlabel(first.get_xlabel(), fontsize=10)
        first.figure.supylabel(first.get_ylabel(), fontsize=10)
        first.set(xlabel="", ylabel="")


def thin_out(ax: Axes) -> None:
    """Every second tick of batch sizes, where a small picture has no room for all labels."""
    ticks = ax.get_xticks().tolist()
    if len(ticks) > _MOST_TICKS:
        ax.xaxis.set_major_locator(FixedLocator(ticks[::2]))
