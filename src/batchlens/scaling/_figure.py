"""What a fit shows: steps against batch size with the fitted curve, and the time to the target beside it.

A figure is drawn from rows, which a report also writes as CSV.  Columns of every one: optimizer, kind, batch_size, the
value (steps or seconds), low, high.  Kinds: "measured"; "fitted", with the ends of the 95% band; "perfect", the line of
perfect scaling; "critical" and "fastest", a batch size without a value, whose ends are batch sizes too.  Rows of a
sweep also say whether they are complete.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from batchlens._drawing import (
    PALETTE,
    Line,
    batch_axis,
    hold_batch_sizes,
    label_ends,
    legend_at_lower_left,
    log_axis,
    plain_ticks,
    steps_axis,
)
from batchlens._results import short
from batchlens.scaling._intervals import Estimate, Interval
from batchlens.scaling._resampling import Prediction

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from batchlens.scaling.curve import ScalingCurve

Row = Mapping[str, Any]
# Colour, line style and marker of an optimizer.
Looks = Mapping[str, tuple[str, str, str]]

_MARKERS = ("o", "s", "D", "P")
# Where the intervals of critical batch sizes are drawn, as parts of the axis' height.
_TOP, _APART = 0.97, 0.045


def steps_rows(curve: "ScalingCurve", band: Sequence[Prediction], critical: Estimate) -> list[dict[str, Any]]:
    """The rows of the figure of steps, of one optimizer."""
    name = curve.optimizer
    intervals = curve.intervals or [None] * len(curve.steps)
    points = zip(curve.batch_sizes, curve.steps, intervals, strict=True)
    rows = [_row(name, "measured", short(size), "steps", steps or None, ends) for size, steps, ends in points]
    rows += [_row(name, "fitted", entry.batch_size, "steps", entry.steps, entry.interval) for entry in band]
    rows += [_row(name, "perfect", size, "steps", steps, None) for size, steps in _perfect(curve, band)]
    found, interval = critical
    if found.value is not None:
        # A bound has no interval of its own on the side that is open.
        low = interval.low if interval is not None else found.value if found.relation == ">=" else None
        high = interval.high if interval is not None else found.value if found.relation == "<=" else None
        rows.append(_row(name, "critical", found.value, "steps", None, Interval(low, high)))
    return rows


def time_rows(
    curve: "ScalingCurve",
    band: Sequence[Prediction],
    seconds: Sequence[float | None],
    fastest: tuple[float, float] | None,
) -> list[dict[str, Any]]:
    """The rows of the figure of seconds: the fitted curve times the seconds of a step, those between points in log-log.

    None where the seconds are not known at two batch sizes or more.
    """
    name = curve.optimizer
    known = [
        (size, steps, taken)
        for size, steps, taken in zip(curve.batch_sizes, curve.steps, seconds, strict=True)
        if steps and taken
    ]
    if len(known) < 2:
        return []
    sizes, steps, taken = np.array(known).T
    rows = [_row(name, "measured", short(size), "seconds", value, None) for size, _, value in known]
    for entry in band:
        if sizes[0] <= entry.batch_size <= sizes[-1] * (1 + 1e-9):
            a_step = float(np.exp(np.interp(np.log(entry.batch_size), np.log(sizes), np.log(taken / steps))))
            ends = None if entry.interval is None else _scaled(entry.interval, a_step)
            rows.append(_row(name, "fitted", entry.batch_size, "seconds", entry.steps * a_step, ends))
    best = float(sizes[np.argmin(taken)])
    return [*rows, _row(name, "fastest", best, "seconds", None, Interval(*(fastest or (best, best))))]


def draw_steps(ax: "Axes", rows: Iterable[Row], looks: Looks | None = None) -> "Axes":
    """Points, the fitted curve (dashed beyond them) with its band, perfect scaling (dotted), critical batch sizes.

    The bars along the upper edge are the intervals of the critical batch sizes, their marks the values.
    """
    listed = list(rows)
    shown = [row for row in listed if row["kind"] in ("measured", "fitted")]
    steps_axis(ax, [row[name] for row in shown for name in ("steps", "low", "high")])
    ax.set_title("dashed: critical batch size (fit)", fontsize="medium", loc="left")
    return _draw(ax, listed, "steps", looks)


def draw_times(ax: "Axes", rows: Iterable[Row], looks: Looks | None = None) -> "Axes":
    """The seconds of each batch size, the fitted curve with its band, and which batch sizes are fastest."""
    listed = list(rows)
    shown = [row for row in listed if row["kind"] in ("measured", "fitted")]
    log_axis(ax, [row[name] for row in shown for name in ("seconds", "low", "high")], "seconds to target")
    ax.set_title("dashed: fastest batch size", fontsize="medium", loc="left")
    return _draw(ax, listed, "seconds", looks)


def _draw(ax: "Axes", rows: list[Row], value: str, looks: Looks | None) -> "Axes":
    sizes = [row["batch_size"] for row in rows if row["kind"] in ("measured", "fitted")]
    batch_axis(ax, sizes)
    hold_batch_sizes(ax, sizes)
    names = list(dict.fromkeys(row["optimizer"] for row in rows))
    lines = []
    for place, name in enumerate(names):
        colour, _, marker = looks[name] if looks else _look(place)
        mine = [row for row in rows if row["optimizer"] == name]
        unfinished = "" if all(row.get("complete", True) for row in mine) else " (unfinished)"
        _draw_points(ax, mine, value, colour, marker, f"measured{unfinished}")
        _draw_curve(ax, mine, value, colour)
        _mark_size(ax, mine, colour, _TOP - _APART * place, named=len(names) == 1)
        heights = [row[value] for row in mine if row["kind"] == "fitted"]
        lines.append(Line([], heights, f"{name}{unfinished}", colour, "-", marker))
    ax.grid(True, alpha=0.2)
    if len(names) > 1:
        label_ends(ax, lines)
    else:
        shown = [row for row in rows if row["kind"] in ("measured", "fitted")]
        legend_at_lower_left(ax, [(row["batch_size"], row[end]) for row in shown for end in (value, "low")], fontsize=9)
    plain_ticks(ax)
    return ax


def _draw_points(ax: "Axes", rows: list[Row], value: str, colour: str, marker: str, label: str) -> None:
    points = [row for row in rows if row["kind"] == "measured"]
    reached = [row for row in points if row[value] is not None]
    for row in reached:
        if row["low"] is not None:
            high = ax.get_ylim()[1] if row["high"] is None else row["high"]
            ax.plot([row["batch_size"]] * 2, [row["low"], high], "-", color=colour, linewidth=1.0)
    heights = [row[value] for row in reached]
    ax.plot([row["batch_size"] for row in reached], heights, marker, color=colour, label=label)
    missed = [row["batch_size"] for row in points if row[value] is None]
    ax.plot(missed, [0.03] * len(missed), "x", color=colour, transform=ax.get_xaxis_transform())


def _draw_curve(ax: "Axes", rows: list[Row], value: str, colour: str) -> None:
    curve = [row for row in rows if row["kind"] == "fitted"]
    measured = [row["batch_size"] for row in rows if row["kind"] == "measured" and row[value] is not None]
    if curve:
        inside = [row for row in curve if measured[0] <= row["batch_size"] <= measured[-1] * (1 + 1e-9)]
        for style, part, label in (("--", curve, None), ("-", inside, "fitted curve")):
            xs, ys = [row["batch_size"] for row in part], [row[value] for row in part]
            ax.plot(xs, ys, style, color=colour, label=label)
    banded = [row for row in curve if row["low"] is not None and row["high"] is not None]
    if banded:
        xs, lows, highs = ([row[name] for row in banded] for name in ("batch_size", "low", "high"))
        ax.fill_between(xs, lows, highs, color=colour, alpha=0.15, linewidth=0, label="its 95% interval")
    perfect = [row for row in rows if row["kind"] == "perfect"]
    limits = ax.get_ylim()
    if perfect:
        xs, ys = [row["batch_size"] for row in perfect], [row[value] for row in perfect]
        ax.plot(xs, ys, ":", color=colour, linewidth=1.2, label="perfect scaling")
    ax.set_ylim(limits)


def _mark_size(ax: "Axes", rows: list[Row], colour: str, height: float, named: bool) -> None:
    """A batch size as a dashed line, its interval as a bar at the upper edge, and where there is room its number."""
    for row in rows:
        if row["kind"] in ("critical", "fastest"):
            left, right = ax.get_xlim()
            low, high = (edge if end is None else end for end, edge in ((row["low"], left), (row["high"], right)))
            label = f"{row['kind']} batch size"
            ax.axvline(row["batch_size"], linestyle="--", linewidth=1.0, color=colour, label=label)
            bar: dict[str, Any] = {"color": colour, "transform": ax.get_xaxis_transform()}
            ax.plot([max(low, left), min(high, right)], [height] * 2, "-", linewidth=3.5, alpha=0.5, **bar)
            ax.plot([row["batch_size"]], [height], "|", markersize=10, **bar)
            if named:
                place: dict[str, Any] = {
                    "xycoords": ax.get_xaxis_transform(),
                    "xytext": (4, -6),
                    "textcoords": "offset points",
                }
                words = f"{row['batch_size']:{',.0f' if row['batch_size'] >= 100 else '.3g'}}"
                ax.annotate(words, (row["batch_size"], height), va="top", color=colour, **place)


def _perfect(curve: "ScalingCurve", band: Sequence[Prediction]) -> list[tuple[float, float]]:
    """Both ends of the line of perfect scaling, as far as the fitted curve goes."""
    parts = zip(curve.batch_sizes, curve.steps, curve.efficiency(), strict=True)
    examples = next((size * steps * part for size, steps, part in parts if steps and part), None)
    if examples is None or not band:
        return []
    return [(size, examples / size) for size in (band[0].batch_size, band[-1].batch_size)]


def _look(place: int) -> tuple[str, str, str]:
    return PALETTE[place % len(PALETTE)], "-", _MARKERS[place // len(PALETTE) % len(_MARKERS)]


def _scaled(interval: Interval, factor: float) -> Interval:
    return Interval(*(None if end is None else end * factor for end in interval))


def _row(
    optimizer: str, kind: str, batch_size: float, name: str, value: float | None, ends: Interval | None
) -> dict[str, Any]:
    low, high = ends or (None, None)
    return {"optimizer": optimizer, "kind": kind, "batch_size": batch_size, name: value, "low": low, "high": high}
