"""Batch sizes that grow, against one batch size throughout: figure 11."""

import pandas as pd
from matplotlib.axes import Axes

from batchlens._drawing import BLUE, RED, Line, batch_axis, draw_lines, steps_axis
from batchlens.report._page.numbers import frame_of
from batchlens.report._theory.study import Study


def batch_ramp_data(study: Study) -> pd.DataFrame:
    """Steps of the best schedule of one batch size, and of batch sizes optimised along, at the same examples."""
    return frame_of(
        {
            "batch_size": size,
            "examples": size * study.schedule(size).steps,
            "constant_steps": study.schedule(size).steps,
            "ramp_steps": study.batch_schedule(size).steps,
            "saved": 1 - study.batch_schedule(size).steps / study.schedule(size).steps,
            "first_batch_size": float(study.batch_schedule(size).batch_sizes[0]),
            "last_batch_size": float(study.batch_schedule(size).batch_sizes[-1]),
        }
        for size in study.ramp_sizes
    )


def draw_batch_ramps(ax: Axes, data: pd.DataFrame) -> None:
    """Steps against the mean batch size that the constant one has throughout."""
    batch_axis(ax, data["batch_size"])
    steps_axis(ax, [*data["constant_steps"], *data["ramp_steps"]])
    lines = [
        Line(data["batch_size"], data["constant_steps"], "one batch size", RED, "--", "s"),
        Line(data["batch_size"], data["ramp_steps"], "batch grows", BLUE, "-", "o"),
    ]
    draw_lines(ax, lines)
    ax.set_xlabel("batch size whose examples both use")
