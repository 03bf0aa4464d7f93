"""Figures about one network's curvature: each a function from a measurement to numbers, and one that draws them."""

import math
from collections.abc import Callable

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, to_hex

from batchlens._drawing import BLUE, FOREGROUND, PALETTE, PURPLE, RED, Line, draw_lines, log_axis
from batchlens.curvature.measurement import Measurement, Moment
from batchlens.report._page.numbers import frame_of, groups, rows_of

# Rank at which 1/i is laid through the last spectrum: the middle of the decades where it is said to hold.
_ANCHOR = 30.0


def spectra_data(measurement: Measurement) -> pd.DataFrame:
    """Curvature, variance and second moment by rank at every moment."""
    return frame_of(
        {"step": moment.step, **level._asdict()} for moment in measurement.moments for level in moment.spectrum
    )


def draw_spectra(ax: Axes, data: pd.DataFrame) -> None:
    """Curvature against rank, a line per moment."""
    shown = data[data["curvature"] > 0]
    ax.set_xscale("log")
    largest = shown["curvature"].max()
    log_axis(ax, [value for value in shown["curvature"] if value > 1e-8 * largest], "curvature")
    ax.set_xlabel("rank i")
    lines = [
        Line(part["rank"], part["curvature"], f"step {step:,}", colour)
        for ((step,), part), colour in zip(groups(shown, "step"), _shades(shown["step"].nunique()), strict=True)
    ]
    last = shown[shown["step"] == shown["step"].max()]
    anchor = last.iloc[(np.log(last["rank"].astype(float)) - math.log(_ANCHOR)).abs().argmin()]
    ranks = last["rank"].astype(float)
    law = anchor["curvature"] * anchor["rank"] / ranks
    lines.append(Line(ranks, law, "1/i", FOREGROUND, "--", width=1.0))
    draw_lines(ax, lines)


def decades_data(measurement: Measurement) -> pd.DataFrame:
    """The exponent of curvature against rank in every decade of ranks, at every moment."""
    return frame_of(
        {"step": moment.step, **decade._asdict()} for moment in measurement.moments for decade in moment.decades
    )


def draw_decades(ax: Axes, data: pd.DataFrame) -> None:
    """Exponents along training, a line per decade; -1 is the model's."""
    _step_axis(ax, data["step"])
    ax.set_ylabel("exponent of curvature against rank")
    ax.set_ylim(min(-1.5, data["exponent"].min() - 0.2), max(0.0, data["exponent"].max() + 0.2))
    lines = [
        Line(part["step"], part["exponent"], f"ranks {first:,} to {last:,}", colour, marker="o")
        for ((first, last), part), colour in zip(groups(data, "first", "last"), PALETTE, strict=False)
    ]
    ax.axhline(-1.0, color=FOREGROUND, linewidth=1.0, linestyle="--")
    draw_lines(ax, lines)


def scatter_data(measurement: Measurement) -> pd.DataFrame:
    """Directions of the Kronecker eigenbasis at the first and the last moment."""
    moments = measurement.moments[:: max(1, len(measurement.moments) - 1)]
    return frame_of(
        {
            "step": moment.step,
            **point._asdict(),
            "positions": moment.positions,
            "slope": moment.comparison.slope,
            "correlation": moment.comparison.correlation,
            "ratio": moment.size_ratio,
        }
        for moment in moments
        if moment.comparison is not None
        for point in moment.scatter
    )


def draw_scatter(ax: Axes, data: pd.DataFrame) -> None:
    """Variance of the gradient, times positions, against curvature; the line is where they are equal."""
    times = " times positions" if (data["positions"] > 1).any() else ""

    def words(first: "pd.Series[float]") -> str:
        return f"slope {first['slope']:.2f}, corr. {first['correlation']:.2f}, ratio {first['ratio']:.2g}"

    scaled = data.assign(variance=data["variance"] * data["positions"])
    _draw_pairs(ax, scaled, ("curvature", "curvature"), ("variance", f"variance of the gradient{times}"), words)


def draw_second_moments(ax: Axes, data: pd.DataFrame) -> None:
    """Second moment of the gradient against its variance; the line is where they are equal."""
    x, y = ("variance", "variance of the gradient"), ("second_moment", "second moment of the gradient")
    _draw_pairs(ax, data, x, y, lambda _: "")


def _draw_pairs(
    ax: Axes,
    data: pd.DataFrame,
    x: tuple[str, str],
    y: tuple[str, str],
    words: "Callable[[pd.Series[float]], str]",
) -> None:
    """Dots of two columns, each with its label, a colour per moment, and the line where both are equal."""
    (across, across_label), (up, up_label) = x, y
    shown = data[(data[across] > 0) & (data[up] > 0)]
    ax.set_xscale("log")
    log_axis(ax, shown[up], up_label)
    ax.set_xlabel(across_label)
    ends = [shown[across].min(), shown[across].max()]
    ax.plot(ends, ends, "--", color=FOREGROUND, linewidth=1.0)
    for ((step,), part), colour in zip(groups(shown, "step"), PALETTE, strict=False):
        said = words(part.iloc[0])
        ax.plot(part[across], part[up], ".", color=colour, label=f"step {step:,}{': ' * bool(said)}{said}")
    ax.legend(fontsize=8, loc="upper left")
    ax.grid(True)


def noise_data(measurement: Measurement) -> pd.DataFrame:
    """Noise scales with their intervals at every moment."""
    rows = [
        {"step": moment.step, "definition": name, "value": ratio.value, "low": low, "high": high}
        for moment in measurement.moments
        for name, ratio in (("B_simple", moment.noise_scale), ("B_noise", moment.curvature_noise_scale))
        for low, high in [_ends(ratio.interval)]
    ]
    return frame_of(rows)


def draw_noise(ax: Axes, data: pd.DataFrame) -> None:
    """Noise scales along training, those of the second definition a little to the right of the first."""
    linear = _step_axis(ax, data["step"])
    log_axis(ax, [value for name in ("value", "low", "high") for value in data[name].dropna()], "examples")
    lines = []
    for number, (((name,), part), colour) in enumerate(zip(groups(data, "definition"), PALETTE, strict=False)):
        at = part["step"] + 0.05 * number * part["step"].clip(lower=linear)
        lines.append(Line(at, part["value"].astype(float), name, colour, marker="o"))
        for place, row in zip(at, rows_of(part), strict=True):
            low, high = (row["low"] or ax.get_ylim()[0]), row["high"]
            ax.plot([place] * 2, [low, ax.get_ylim()[1] if pd.isna(high) else high], color=colour, linewidth=1.0)
    draw_lines(ax, lines)


def sizes_data(measurement: Measurement) -> pd.DataFrame:
    """Top curvature, traces and loss at every moment, with 90% intervals."""
    return frame_of(row for moment in measurement.moments for row in _sizes(moment))


def _sizes(moment: Moment) -> list[dict[str, object]]:
    top = moment.spectrum[0].curvature if moment.spectrum else None
    rows: list[dict[str, object]] = [
        {"step": moment.step, "quantity": "loss", "value": moment.loss, "low": None, "high": None},
        {"step": moment.step, "quantity": "largest in the basis", "value": top, "low": None, "high": None},
    ]
    for name, estimate in (
        ("top curvature", moment.top_curvature),
        ("trace of curvature", moment.curvature_trace),
        ("trace of covariance", moment.gradient_variance),
    ):
        low, high = estimate.interval()
        rows.append({"step": moment.step, "quantity": name, "value": estimate.value, "low": low, "high": high})
    return rows


def draw_sizes(ax: Axes, data: pd.DataFrame) -> None:
    """How large everything is along training."""
    _step_axis(ax, data["step"])
    log_axis(ax, data["value"].dropna(), "")
    lines = []
    for ((name,), part), colour in zip(groups(data, "quantity"), PALETTE, strict=True):
        lines.append(Line(part["step"], part["value"].astype(float), name, colour, marker="o"))
        for row in rows_of(part.dropna(subset=["low"])):
            low = max(float(row["low"]), ax.get_ylim()[0])
            ax.plot([row["step"]] * 2, [low, row["high"]], color=colour, linewidth=1.0)
    draw_lines(ax, lines)


def density_data(measurement: Measurement) -> pd.DataFrame:
    """Eigenvalues per decade at every moment that has them."""
    return frame_of(
        {
            "step": moment.step,
            "curvature": point.curvature,
            "per_decade": point.per_decade,
            "low": point.interval[0],
            "high": point.interval[1],
        }
        for moment in measurement.moments
        for point in moment.density
    )


def draw_density(ax: Axes, data: pd.DataFrame) -> None:
    """Eigenvalues per decade against curvature, a line per moment, the last with its interval."""
    ax.set_xscale("log")
    log_axis(ax, [value for value in data["per_decade"] if value > 0.1], "eigenvalues per decade")
    ax.set_xlabel("curvature")
    last = data[data["step"] == data["step"].max()]
    low, high = ax.get_ylim()
    shades = _shades(data["step"].nunique())
    inside = last["low"].clip(low, high), last["high"].clip(low, high)
    ax.fill_between(last["curvature"], *inside, color=shades[-1], alpha=0.2, linewidth=0)
    draw_lines(
        ax,
        [
            Line(part["curvature"], part["per_decade"].clip(lower=low), f"step {step:,}", colour)
            for ((step,), part), colour in zip(groups(data, "step"), shades, strict=True)
        ],
    )


def _ends(interval: tuple[float, float] | None) -> tuple[float | None, float | None]:
    low, high = interval or (None, None)
    return low, None if high is None or math.isinf(high) else high


def _step_axis(ax: Axes, steps: "pd.Series[int]") -> float:
    """An axis that is linear up to the first step after 0, which is returned, and logarithmic from there."""
    linear = max(1.0, min((step for step in steps if step > 0), default=1.0))
    ax.set_xscale("symlog", linthresh=linear)
    ax.set_xlabel("steps")
    return linear


def _shades(count: int) -> list[str]:
    """One colour for each moment, from blue to red as training goes on."""
    scale = LinearSegmentedColormap.from_list("training", [BLUE, PURPLE, RED])
    return [to_hex(shade) for shade in scale(np.linspace(0, 1, max(count, 2)))][:count]
