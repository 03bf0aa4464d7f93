"""How advice is drawn."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from batchlens._drawing import BLUE, FOREGROUND, OCHRE, PALETTE, RED, batch_axis, hold_batch_sizes, log_axis
from batchlens._results import short
from batchlens.advice._rules import RATE_RULES
from batchlens.advice._units import count_in_words, money, time_unit
from batchlens.optimizers import OPTIMIZERS, base_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from batchlens.advice._step_times import StepTimes
    from batchlens.advice.plan import Plan
    from batchlens.advice.transfer import Transfer

# Lines of equal cost, and by how much the fastest must cost more than the cheapest for them to be drawn.
_COST_LINES, _COST_STEP = 4, 1.2


def draw_transfer(ax: "Axes", moved: "Transfer") -> "Axes":
    """Factors of the learning rate against batch size, logarithmic both ways."""
    b0, b1 = moved.from_batch, moved.to_batch
    sizes = np.geomspace(min(b0, b1), max(b0, b1) if b0 != b1 else 2 * b0, 100)
    batch_axis(ax, sizes.tolist())
    drawn = {"linear": ":", "square_root": "--"} | {moved.rule: "-"}
    heights = []
    for name, style in drawn.items():
        factors = [RATE_RULES[name].factor(b0, size, moved.critical_batch_size or 1.0) for size in sizes]
        mine = name == moved.rule
        colour = BLUE if mine else "0.5"
        ax.plot(sizes, factors, style, color=colour, label=name.replace("_", " ") + (" (used)" if mine else ""))
        heights += factors if mine else []
    if moved.theory is not None and moved.theory.batch_sizes:
        theory = moved.theory
        ax.plot([b0, *theory.batch_sizes], [1.0, *theory.rate_factors], "o", color=RED, label="theory, tuned")
        heights += theory.rate_factors
    if moved.critical_batch_size is not None:
        ax.axvline(moved.critical_batch_size, linestyle="--", linewidth=1.0, color=OCHRE, label="critical batch size")
    adds = OPTIMIZERS[base_of(moved.optimizer)].momentum == "adds"
    log_axis(ax, [*heights, 1.0], "learning rate / (1 - momentum), relative" if adds else "learning rate, relative")
    hold_batch_sizes(ax, sizes.tolist())
    ax.grid(True, alpha=0.2)
    ax.legend(loc="best")
    return ax


def draw_step_times(ax: "Axes", times: "StepTimes") -> "Axes":
    """Seconds of a step against batch size, measured and fitted, for each number of devices."""
    batch_axis(ax, times.batch_sizes)
    for place, count in enumerate(sorted(set(times.devices))):
        colour = PALETTE[place % len(PALETTE)]
        mine = [i for i, other in enumerate(times.devices) if other == count]
        sizes = [times.batch_sizes[i] for i in mine]
        label = f"{count:,} device{'s' * (count > 1)}" if times.knows_synchronisation else "measured"
        ax.plot(sizes, [times.seconds[i] for i in mine], "o", color=colour, label=label)
        line = np.geomspace(min(sizes), max(sizes), 100)
        fitted = "" if place else "overhead + B / throughput"
        ax.plot(line, times.model.seconds(line, np.array(float(count))), "-", color=colour, label=fitted or None)
    if times.largest is not None:
        ax.axvline(times.largest, linestyle="--", linewidth=1.0, color="0.4", label="largest that fits")
    log_axis(ax, times.seconds, "seconds a step")
    hold_batch_sizes(ax, times.batch_sizes)
    ax.grid(True, alpha=0.2)
    ax.legend(loc="upper left")
    return ax


def draw_plan(ax: "Axes", plan: "Plan") -> "Axes":
    """Time against examples: a curve per number of devices, lines of equal cost, the frontier."""
    unit, seconds = time_unit([option.seconds for option in plan.options])
    ax.set_xscale("log")
    ax.set_yscale("log")
    for place, count in enumerate(_few(plan.planner.counts)):
        mine = [option for option in plan.options if option.devices == count]
        examples = [option.batch_size * option.steps for option in mine]
        colour = PALETTE[place % len(PALETTE)]
        label = f"{count:,} device{'s' * (count > 1)}"
        ax.plot(examples, [option.seconds / seconds for option in mine], "o-", color=colour, linewidth=1.0, label=label)
    _draw_costs(ax, plan, seconds)
    frontier = sorted(plan.frontier, key=lambda option: option.seconds)
    points = [(option.batch_size * option.steps, option.seconds / seconds) for option in frontier]
    if len(points) > 1:
        (line,) = ax.plot(*zip(*points, strict=True), "o-", color=FOREGROUND, label="frontier", zorder=1)
        line.set(linewidth=3.0, markersize=8.0, alpha=0.35)
    _mark_best(ax, plan, seconds)
    if plan.deadline is not None:
        ax.axhline(plan.deadline / seconds, linestyle="--", linewidth=1.0, color="0.4", label="deadline")
    ax.use_sticky_edges = False
    ax.margins(0.08)
    _written_out(ax)
    ax.set_xlabel("examples to the target")
    ax.set_ylabel(f"time to the target, {unit}")
    ax.grid(True, alpha=0.2)
    ax.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), fontsize="small")
    return ax


def _few(counts: Sequence[int]) -> list[int]:
    """At most as many as there are colours, the first and the last among them."""
    places = np.unique(np.linspace(0, len(counts) - 1, min(len(counts), len(PALETTE))).round().astype(int))
    return [counts[place] for place in places]


def _draw_costs(ax: "Axes", plan: "Plan", unit: float) -> None:
    """Lines of equal cost over all numbers of devices, slices counted in parts, up to what the fastest costs."""
    planner, least, most = plan.planner, plan.cheapest.option.cost, plan.fastest.option.cost
    counts = np.geomspace(planner.counts[0], planner.counts[-1], 60)[:, None]
    sizes = np.geomspace(max(plan.cheapest.option.batch_size / 2, planner.sizes[0]), planner.sizes[-1], 120)
    if counts[0] == counts[-1] or sizes[0] >= sizes[-1] or most < _COST_STEP * least:
        return
    steps = planner.source.steps(sizes)[0]
    seconds = steps * planner.smooth_seconds(sizes, counts)
    lines = ax.contour(
        np.broadcast_to(sizes * steps, seconds.shape),
        seconds / unit,
        np.where(sizes >= counts, seconds * counts * planner.price, np.nan),
        levels=np.geomspace(least, most, _COST_LINES + 2)[1:-1],
        colors="0.45",
        linestyles=":",
        linewidths=1.2,
    )
    for level, segments in zip(lines.levels, lines.allsegs, strict=True):
        if segments:
            place = max((point for segment in segments for point in segment.tolist()), key=lambda point: point[0])
            ax.annotate(money(level, plan.price), place, xytext=(3, -3), textcoords="offset points", fontsize=8)
    ax.plot([], [], ":", color="0.45", label="equal cost")


def _mark_best(ax: "Axes", plan: "Plan", unit: float) -> None:
    fastest, cheapest = plan.fastest.option, plan.cheapest.option
    marked = [("fastest", fastest, (-6, -14)), ("cheapest", cheapest, (6, 8))]
    for name, option, offset in marked if fastest != cheapest else [("fastest and cheapest", fastest, (8, -14))]:
        place = option.batch_size * option.steps, option.seconds / unit
        ax.plot(*place, "*", color=FOREGROUND, markersize=11)
        ax.annotate(
            f"{name}: {short(option.batch_size):,}",
            place,
            xytext=offset,
            textcoords="offset points",
            ha="left" if offset[0] > 0 else "right",
            fontsize="small",
        )


def _written_out(ax: "Axes") -> None:
    """20M and 0.5 for powers of ten, as close as a short axis needs them."""
    for axis in (ax.xaxis, ax.yaxis):
        low, high = axis.get_view_interval()
        axis.set_major_formatter(FuncFormatter(lambda value, _: count_in_words(value)))
        axis.set_minor_locator(LogLocator(subs=(2, 5) if high / low > 8 else (1.5, 2, 3, 4, 5, 6, 7, 8)))
        axis.set_minor_formatter(
            FuncFormatter(lambda value, _: count_in_words(value)) if high / low < 300 else NullFormatter()
        )
