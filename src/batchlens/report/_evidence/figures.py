"""Figures of networks: theory and networks side by side, and what averaging saves.

Side by side, steps and batch sizes are in units of SGD's own plateau and critical batch size.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullFormatter, NullLocator

from batchlens._drawing import (
    Line,
    batch_axis,
    draw_lines,
    hold_batch_sizes,
    log_axis,
    look_of,
    name_all_axes,
    small_axes,
    steps_axis,
    thin_out,
)
from batchlens.optimizers import averaged, base_of, is_averaged
from batchlens.report._evidence.numbers import NotMeasuredError, Numbers, widest
from batchlens.report._evidence.tables import IN_THEORY
from batchlens.report._page.numbers import frame_of, groups, known_rows, stack
from batchlens.report._prediction.figures import draw_steps
from batchlens.report._sweep.figures import (
    draw_intervals,
    draw_perfect_scaling,
    draw_sweep_rates,
    shifts_of,
    sweep_rates_data,
)
from batchlens.report._theory.study import Study, curve_frame
from batchlens.scaling._critical import reached
from batchlens.scaling._hyperbola import fit_curves
from batchlens.scaling.curve import ScalingCurve
from batchlens.sweep.results import SweepResult

THEORY = "theory"
# Which optimizers are drawn beside the theory.
_DRAWN = ("sgd", "momentum", "adam", "kfac")
# Of these Adam's rates have another scale, and K-FAC's KL clip sets the length of its steps.
_RATES_DRAWN = ("sgd", "momentum")
# Whose predictions are drawn.
_PREDICTED = ("sgd", "momentum", "kfac")
_RELATIVE = {"relative_batch_size": "batch_size", "relative_low": "low", "relative_high": "high"}
_RATES_SIZE = (9.2, 3.8)
# Ticks of averaged over plain steps.
_RATIOS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1, 1.2, 1.5, 2, 3, 5)
# How many times beyond the ratios themselves their intervals are drawn.
_BEYOND = 1.5


class Side(NamedTuple):
    """What stands side by side: a column, and a line of that slope to hold it against."""

    value: str
    label: str
    line: str
    slope: float


STEPS = Side("relative_steps", "steps over the fewest of SGD", "perfect scaling", -1.0)
RATES = Side("relative_rate", "effective learning rate over SGD's at its largest batch", "proportional", 1.0)


def side_by_side_data(study: Study, sweeps: Mapping[str, SweepResult]) -> pd.DataFrame:
    """Steps over SGD's plateau against batch size over SGD's critical batch size, by "fit", with 90% intervals."""
    theory = {name: study.curve(*IN_THEORY[name]) for name in _DRAWN}
    curves = {THEORY: theory, **{name: sweep.curves() for name, sweep in sweeps.items()}}
    return frame_of(row for place, found in curves.items() for row in _relative(place, found))


def _relative(place: str, curves: Mapping[str, ScalingCurve]) -> Iterator[dict[str, Any]]:
    units = _units(curves.get("sgd"))
    if units is None:
        return
    log_critical, log_least = units
    for name in _DRAWN:
        if name in curves:
            curve = curves[name]
            intervals = curve.intervals or [None] * len(curve.steps)
            for size, steps, interval in zip(curve.batch_sizes, curve.steps, intervals, strict=True):
                low, high = interval or (None, None)
                yield {
                    "place": place,
                    "optimizer": name,
                    "batch_size": size,
                    "steps": steps,
                    "relative_batch_size": size * math.exp(-log_critical),
                    "relative_steps": _over(steps, log_least),
                    "relative_low": _over(low, log_least),
                    "relative_high": _over(high, log_least),
                }


def _units(curve: ScalingCurve | None) -> tuple[float, float] | None:
    """Critical batch size and fewest steps of SGD by "fit", their logarithms; None where there is too little."""
    log_batch, log_steps = reached(curve.batch_sizes, curve.steps) if curve else ((), ())
    if len(log_batch) < 3:
        return None
    log_critical, log_least = fit_curves(np.asarray(log_batch), np.asarray(log_steps)[None])
    return float(log_critical[0]), float(log_least[0])


def rates_side_by_side_data(study: Study, sweeps: Mapping[str, SweepResult]) -> pd.DataFrame:
    """Effective learning rates over SGD's at its largest batch size, against batch size over SGD's critical one."""
    found = {THEORY: (_rates_in_theory(study), study.curve(*IN_THEORY["sgd"]))}
    measured = {name: (sweep_rates_data(sweep), sweep.curves().get("sgd")) for name, sweep in sweeps.items()}
    return frame_of(
        row for place, (rates, sgd) in {**found, **measured}.items() for row in _relative_rates(place, rates, sgd)
    )


def _rates_in_theory(study: Study) -> pd.DataFrame:
    parts = [curve_frame(study.curve(*IN_THEORY[name])).assign(optimizer=name) for name in _RATES_DRAWN]
    rates = stack(parts)
    effective = rates["learning_rate"] / (1 - rates["momentum"])
    return rates.assign(
        effective_learning_rate=effective, effective_learning_rate_low=None, effective_learning_rate_high=None
    )


def _relative_rates(place: str, rates: pd.DataFrame, sgd: ScalingCurve | None) -> Iterator[dict[str, Any]]:
    units = _units(sgd)
    known = known_rows(rates.dropna(subset="effective_learning_rate")) if units else []
    of_sgd = {row["batch_size"]: row["effective_learning_rate"] for row in known if row["optimizer"] == "sgd"}
    if units is None or not of_sgd:
        return
    log_unit = math.log(of_sgd[max(of_sgd)])
    for row in known:
        if row["optimizer"] in _RATES_DRAWN:
            yield {
                "place": place,
                "optimizer": row["optimizer"],
                "batch_size": row["batch_size"],
                "effective_learning_rate": row["effective_learning_rate"],
                "relative_batch_size": row["batch_size"] * math.exp(-units[0]),
                "relative_rate": _over(row["effective_learning_rate"], log_unit),
                "relative_low": _over(row["effective_learning_rate_low"], log_unit),
                "relative_high": _over(row["effective_learning_rate_high"], log_unit),
            }


def _over(steps: float | None, log_unit: float) -> float | None:
    return steps * math.exp(-log_unit) if steps else None


def draw_side_by_side(ax: Axes, data: pd.DataFrame, side: Side = STEPS) -> None:
    """A small picture for the theory and for each workload, all with the same axes and colours."""
    places = list(dict.fromkeys(data["place"]))
    axes = small_axes(ax, len(places))
    figure = axes[0].figure
    networks = data[data["place"] != THEORY]
    sizes = _limits((networks if len(networks) else data)["relative_batch_size"])
    shown = data[data["relative_batch_size"].between(*sizes)]
    limits = {"relative_batch_size": sizes, side.value: _limits(shown[side.value])}
    for small, place in zip(axes, places, strict=True):
        _draw_place(small, place, data[data["place"] == place], limits, side)
    _draw_legend(axes)
    figure.supxlabel("batch size over the critical batch size of SGD", fontsize=10)
    figure.supylabel(side.label, fontsize=10)


def _draw_legend(axes: Sequence[Axes]) -> None:
    """In the first picture, of all that some picture has; as networks are drawn, where they are."""
    found = {label: handle for ax in axes for handle, label in zip(*ax.get_legend_handles_labels(), strict=True)}
    labels = sorted(found, key=lambda label: (*_DRAWN, label).index(label))
    axes[0].legend([found[label] for label in labels], labels, fontsize=8, frameon=False)


def _limits(values: "pd.Series[Any]") -> tuple[float, float]:
    known = np.array([value for value in values if value is not None and value > 0], dtype=float)
    return float(known.min()) / 1.5, float(known.max()) * 1.5


def _draw_place(
    ax: Axes, place: str, data: pd.DataFrame, limits: Mapping[str, tuple[float, float]], side: Side
) -> None:
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.set_xlim(limits["relative_batch_size"])
    ax.set_ylim(limits[side.value])
    for (optimizer,), part in groups(data, "optimizer"):
        colour, style, marker = look_of(optimizer, list(_DRAWN))
        known = part[part[side.value].notna()]
        small = "" if place == THEORY else marker
        ax.plot(known["relative_batch_size"], known[side.value], style, color=colour, marker=small, label=optimizer)
        if place != THEORY:
            draw_intervals(ax, part.drop(columns="batch_size").rename(columns=_RELATIVE), colour)
    ends = np.array(limits["relative_batch_size"])
    ax.plot(ends, ends**side.slope, ":", color="#888888", linewidth=1.0, label=side.line)
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_locator(LogLocator(base=10))
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axis.set_minor_formatter(NullFormatter())
    ax.set_title(place, fontsize=10, loc="left")
    ax.grid(True)


def draw_predicted(ax: Axes, data: pd.DataFrame) -> None:
    """The optimizers whose curves lie apart; the others are in the numbers."""
    draw_steps(ax, data[data["optimizer"].isin(_PREDICTED)], _PREDICTED)


def draw_with_and_without(ax: Axes, data: pd.DataFrame, optimizers: Sequence[str]) -> None:
    """A small picture per optimizer: its steps against batch size, dashed and hollow where it is averaged."""
    bases = list(dict.fromkeys(map(base_of, data["optimizer"])))
    axes = small_axes(ax, len(bases))
    missed = data[data["status"] == "not_reached"]
    steps_axis(axes[0], [*data["steps"], *data["low"], *data["high"], *missed["max_steps"]], written_out=True)
    batch_axis(axes[0], data["batch_size"])
    hold_batch_sizes(axes[0], data["batch_size"])
    thin_out(axes[0])
    for small, base in zip(axes, bases, strict=True):
        _draw_pair(small, base, data[data["optimizer"].map(base_of) == base], optimizers)
    axes[0].legend(fontsize=8, frameon=False, loc="lower left")
    name_all_axes(axes)


def _draw_pair(ax: Axes, base: str, data: pd.DataFrame, optimizers: Sequence[str]) -> None:
    bottom, _ = ax.get_ylim()
    draw_perfect_scaling(ax, data)
    shifts = shifts_of(data)
    for (optimizer,), part in groups(data, "optimizer"):
        (colour, _, marker), shift = look_of(optimizer, optimizers), shifts[optimizer]
        style, face, label = ("--", "none", "averaged") if is_averaged(optimizer) else ("-", colour, "plain")
        sizes = part["batch_size"] * shift
        ax.plot(sizes, part["steps"], style, color=colour, marker=marker, markerfacecolor=face, label=label)
        draw_intervals(ax, part, colour, shift)
        crosses = part[part["status"] == "not_reached"]
        ax.plot(crosses["batch_size"] * shift, crosses["max_steps"], "x", color=colour)
        ax.plot(
            part["critical_batch_size"][:1], [bottom], "^", color=colour, markerfacecolor=face, markersize=8,
            clip_on=False, zorder=3,
        )  # fmt: skip
    ax.set_title(base, fontsize=10, loc="left")
    ax.grid(True)


def draw_rates_apart(ax: Axes, data: pd.DataFrame, optimizers: Sequence[str], column: str) -> None:
    """Learning rates without averaging; K-FAC's, which jump, in a picture beside the others, with the same axes."""
    plain = data[~data["optimizer"].map(is_averaged)]
    names = dict.fromkeys(plain["optimizer"][plain[column].notna()])
    parts = [[name for name in names if name.startswith("kfac") == is_kfac] for is_kfac in (False, True)]
    if not all(parts):
        draw_sweep_rates(ax, plain, optimizers, column)
        return
    figure = ax.figure
    assert isinstance(figure, Figure)
    ax.remove()
    figure.set_size_inches(*_RATES_SIZE)
    for small, part in zip(figure.subplots(1, 2, sharex=True, sharey=True), parts, strict=True):
        draw_sweep_rates(small, plain, optimizers, column, part)
        thin_out(small)
        small.label_outer()


def averaging_ratio_data(sweep: SweepResult) -> pd.DataFrame:
    """Averaged over plain steps, paired by seed, of the optimizers that were swept both ways.

    Where a seed missed the target, the interval has all that may be.
    """
    numbers, names = Numbers(sweep), sweep.declaration.optimizers
    rows = []
    for name in (name for name in names if averaged(name) in names and averaged(name) != name):
        for size in numbers.batch_sizes:
            try:
                ratios = [found.paired(averaged(name), name, size) for found in (numbers, numbers.later)]
            except NotMeasuredError:
                continue
            low, high = widest(ratios, numbers.seeds)
            rows.append({"optimizer": name, "batch_size": size, "ratio": float(ratios[0][0]), "low": low, "high": high})
    return frame_of(rows)


def _ratio_limits(data: pd.DataFrame) -> tuple[float, float]:
    """Around all ratios and 1; around their intervals as long as these do not go far beyond."""
    least, most = min(data["ratio"].min(), 1.0), max(data["ratio"].max(), 1.0)
    low, high = min(data["low"].min(), least), max(data["high"].max(), most)
    return max(low, least / _BEYOND) / 1.05, min(high, most * _BEYOND) * 1.05


def draw_averaging_ratio(ax: Axes, data: pd.DataFrame, optimizers: Sequence[str]) -> None:
    """Ratios against batch size, one line per optimizer."""
    log_axis(ax, [*data["ratio"], 1.0], "averaged over plain steps")
    ax.set_ylim(_ratio_limits(data))
    ax.yaxis.set_major_locator(FixedLocator(_RATIOS))
    ax.yaxis.set_minor_locator(NullLocator())
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    batch_axis(ax, data["batch_size"])
    hold_batch_sizes(ax, data["batch_size"])
    ax.axhline(1.0, color="#888888", linewidth=1.0)
    shifts = shifts_of(data)
    lines = []
    for (optimizer,), part in groups(data, "optimizer"):
        colour, style, marker = look_of(optimizer, optimizers)
        lines.append(Line(part["batch_size"] * shifts[optimizer], part["ratio"], optimizer, colour, style, marker))
        draw_intervals(ax, part, colour, shifts[optimizer])
    draw_lines(ax, lines)
