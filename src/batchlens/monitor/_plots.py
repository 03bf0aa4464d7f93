"""How a noise scale is drawn."""

import math
from typing import TYPE_CHECKING

import numpy as np

from batchlens._drawing import BLUE, FOREGROUND, batch_axis

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from batchlens.monitor.noise_estimate import NoiseEstimate


def draw_noise_estimate(ax: "Axes", found: "NoiseEstimate") -> "Axes":
    """Steps in units of the fewest, with the band of the interval; the noise scale dashed, the batch size dotted."""
    low, high = found.interval or (0.0, math.inf)
    known = [end for end in (found.value, low, high, found.batch_size) if end and math.isfinite(end)] or [1.0]
    sizes = np.geomspace(min(known) / 8, max(known) * 8, 200)
    batch_axis(ax, sizes.tolist())
    ax.set_yscale("log")
    ax.set_ylabel("steps, in units of the fewest")
    top = 1 + max(known) / sizes[0]
    ax.fill_between(sizes, 1 + low / sizes, np.minimum(1 + high / sizes, 10 * top), color=BLUE, alpha=0.2, linewidth=0)
    if found.value is not None:
        ax.plot(sizes, 1 + found.value / sizes, color=BLUE)
        ax.axvline(found.value, color=BLUE, linestyle="--", label="noise scale")
    if found.batch_size and math.isfinite(found.batch_size):
        ax.axvline(found.batch_size, color=FOREGROUND, linestyle=":", label="batch size now")
    if found.interval is not None:
        ax.legend(frameon=False)
    ax.set_ylim(1, top)
    ax.grid(True)
    return ax
