"""The figures of networks: what is within their limits, and what can be told apart in them."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

import batchlens as bl
from batchlens._drawing import FOREGROUND
from batchlens.report._evidence import numbers
from batchlens.report._evidence.figures import draw_averaging_ratio
from batchlens.report._evidence.numbers import Numbers
from batchlens.report._page.numbers import frame_of, rows_of
from batchlens.report._sweep.figures import has_open_bars
from batchlens.report._sweep.thresholds import draw_thresholds, other_set_data, thresholds_data
from batchlens.sweep import _cells

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def sweep() -> bl.SweepResult:
    """One with several targets, some of which a few seeds missed."""
    return bl.read_sweep(ROOT / "evidence" / "digits.sqlite")


def ratio_rows(
    ratios: Mapping[int, float], spread: float = 1.1, high: float | None = None
) -> Sequence[dict[str, object]]:
    return [
        {"optimizer": "sgd", "batch_size": size, "ratio": ratio, "low": ratio / spread, "high": high or ratio * spread}
        for size, ratio in ratios.items()
    ]


@pytest.mark.parametrize("ratios", [(0.55, 0.72, 0.8), (1.2, 1.3, 1.5), (0.8, 1.0, 1.3)])
@pytest.mark.parametrize("high", [None, math.inf])
def test_the_line_where_averaging_saves_nothing_is_in_the_picture(ratios: Sequence[float], high: float | None) -> None:
    ax = Figure().add_subplot()
    draw_averaging_ratio(ax, frame_of(ratio_rows(dict(zip((16, 64, 256), ratios, strict=True)), high=high)), ["sgd"])
    low, top = ax.get_ylim()
    assert low < min(*ratios, 1.0)
    assert max(*ratios, 1.0) < top


def test_what_claims_rest_on_is_drawn_to_other_targets_too(sweep: bl.SweepResult) -> None:
    assert _cells.LEAST_REACHED == numbers.LEAST_REACHED
    data, found = other_set_data(sweep), Numbers(sweep)
    kfac = data[data["optimizer"] == "kfac"]
    assert list(kfac["batch_size"]) == list(sweep.declaration.batch_sizes)
    assert kfac["high"].isna().sum() > 0
    for row in rows_of(data):
        expected = found.steps_at("other", row["optimizer"], row["batch_size"])[0]
        assert row["steps"] == pytest.approx(expected)


def test_open_bars_are_known() -> None:
    rows: list[dict[str, float | None]] = [{"low": 1.0, "high": 2.0}, {"low": None, "high": None}]
    assert not has_open_bars(frame_of(rows))
    assert has_open_bars(frame_of([*rows, {"low": 1.0, "high": None}]))
    assert has_open_bars(frame_of([{"relative_low": 1.0, "relative_high": None}]))
    assert not has_open_bars(frame_of([{"learning_rate_low": 1.0, "learning_rate_high": None}]))


def test_targets_have_no_optimizers_colour(sweep: bl.SweepResult) -> None:
    ax = Figure().add_subplot()
    draw_thresholds(ax, thresholds_data(sweep))
    assert {to_hex(line.get_color()) for line in ax.lines} == {FOREGROUND}
    shades = {to_hex(line.get_color(), keep_alpha=True) for line in ax.lines}
    assert len(shades) == 1 + len(sweep.declaration.also_targets)
