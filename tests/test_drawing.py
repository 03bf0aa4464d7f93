"""What all figures share: axes that fit what they show, labels that can be read, looks that can be told apart."""

import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from batchlens._drawing import (
    Line,
    batch_axis,
    draw_lines,
    legend_at_lower_left,
    log_axis,
    look_of,
    power_colour,
    spread,
    steps_axis,
)

MANY = ("sgd", "momentum", "nesterov", "adam", "adamw", "kfac", "muon", "sgd+ema", "kfac+ema")


def axis() -> Axes:
    return Figure().add_subplot()


def render(ax: Axes) -> None:
    assert isinstance(ax.figure, Figure)
    ax.figure.draw_without_rendering()


def test_batch_axis_writes_sizes_out() -> None:
    ax = axis()
    ax.plot([4, 4**10], [1, 1])
    batch_axis(ax, [4**k for k in range(1, 11)])
    render(ax)
    assert [label.get_text() for label in ax.get_xticklabels()] == ["4", "64", "1,024", "16,384", "262,144"]
    assert list(ax.get_xticks(minor=True)) == []


@pytest.mark.parametrize("sizes", [(4,), (4, 8), (5, 7, 300), tuple(2**k for k in range(30))])
def test_batch_axis_takes_any_sizes(sizes: tuple[int, ...]) -> None:
    ax = axis()
    ax.plot(sizes, sizes, "o")
    batch_axis(ax, sizes)
    render(ax)
    assert 1 <= len(ax.get_xticks()) <= 10


def test_log_axis_is_around_what_it_can_show() -> None:
    ax = axis()
    log_axis(ax, [0.0, None, math.nan, 16.0, 160.0], "rate")
    assert (ax.get_yscale(), ax.get_ylabel()) == ("log", "rate")
    assert ax.get_ylim() == pytest.approx((10, 256))


def test_log_axis_of_nothing_is_an_axis() -> None:
    ax = axis()
    log_axis(ax, [None], "rate")
    render(ax)
    assert ax.get_ylim()[0] > 0


@pytest.mark.parametrize("steps", [[40, 30, 29, 400], [100, 100, 101], [9, 8, 8, 7, 3000], [1e6, 5e5, 3e5]])
@pytest.mark.parametrize("size", [(6.4, 4.8), (5.6, 3.8)])
def test_a_legend_covers_no_point(steps: list[float], size: tuple[float, float]) -> None:
    ax = Figure(figsize=size, layout="constrained").add_subplot()
    points = [(4.0 * 2**k, count) for k, count in enumerate(steps)]
    for name in ("measured", "fitted curve", "its 95% interval", "perfect scaling", "critical batch size"):
        ax.plot(*zip(*points, strict=True), "o", label=name)
    batch_axis(ax, [at for at, _ in points])
    log_axis(ax, steps, "steps")
    legend_at_lower_left(ax, points)
    render(ax)
    legend = ax.get_legend()
    assert legend is not None
    covered = legend.get_window_extent()
    assert not any(covered.contains(*place) for place in ax.transData.transform(points))


@pytest.mark.parametrize(
    ("values", "written"),
    [([150, 1500], ["100", "200", "500", "1,000", "2,000"]), ([20, 9e4], ["100", "1,000", "10,000", "100,000"])],
)
def test_steps_are_written_out(values: list[float], written: list[str]) -> None:
    ax = axis()
    ax.plot([1, 2], values)
    steps_axis(ax, values, written_out=True)
    render(ax)
    low, high = ax.get_ylim()
    labels = [*ax.yaxis.get_majorticklabels(), *ax.yaxis.get_minorticklabels()]
    shown = {label.get_position()[1]: label.get_text() for label in labels if low <= label.get_position()[1] <= high}
    assert [shown[height] for height in sorted(shown) if shown[height]] == written


def test_a_line_without_any_point_has_no_label() -> None:
    ax = axis()
    ax.set_yscale("log")
    draw_lines(ax, [Line([1, 2], [1, 2], "seen", "red"), Line([1, 2], [math.nan, math.nan], "unseen", "blue")])
    assert [text.get_text() for text in ax.texts] == ["seen"]


def test_labels_stand_where_their_lines_end() -> None:
    ax = axis()
    ax.set_ylim(0, 10)
    draw_lines(ax, [Line([1, 2], [0, 8], "high", "red"), Line([1, 2], [9, 2], "low", "blue")])
    assert {text.get_text(): text.get_position()[1] for text in ax.texts} == pytest.approx({"high": 0.8, "low": 0.2})


@given(st.lists(st.floats(0, 1), max_size=12))
def test_spread_keeps_order_and_distance(heights: list[float]) -> None:
    placed = spread(heights, gap=0.05)
    order = sorted(range(len(heights)), key=lambda i: heights[i])
    assert all(placed[j] - placed[i] >= 0.05 - 1e-9 for i, j in pairwise(order))
    assert sum(placed) == pytest.approx(sum(heights), abs=1e-9)


def test_spread_leaves_alone_what_is_far_apart() -> None:
    assert spread([0.9, 0.1, 0.5], gap=0.1) == pytest.approx([0.9, 0.1, 0.5])
    assert spread([], gap=0.1) == []


def test_powers_have_colours_of_their_own() -> None:
    powers = (0.75, 0.0, 0.25, 0.5, 0.0)
    assert len({power_colour(power, powers) for power in powers}) == 4


def test_every_optimizer_has_a_look_of_its_own() -> None:
    assert len({look_of(name, MANY) for name in MANY}) == len(MANY)
    assert look_of("kfac+ema", MANY)[0] == look_of("kfac", MANY)[0]


@pytest.mark.parametrize("base", ["adam", "kfac"])
def test_an_optimizer_and_the_same_without_momentum_have_other_lines(base: str) -> None:
    names = [base, f"{base}+ema", f"{base}_no_momentum", f"{base}_no_momentum+ema"]
    assert len({look_of(name, names)[1] for name in names}) == len(names)
    assert len({look_of(name, names)[0] for name in names}) == 1
