"""The figures of networks: what is within their limits, and what can be told apart in them."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

import batchlens as bl
from batchlens._drawing import BLUE, FOREGROUND, GREEN, figure_style
from batchlens.optimizers import is_averaged
from batchlens.report._evidence import numbers
from batchlens.report._evidence.figures import (
    RATES,
    bounded_words,
    draw_averaging_ratio,
    draw_predicted,
    draw_rates_apart,
    draw_side_by_side,
    draw_with_and_without,
    rates_side_by_side_data,
    without_bounds,
)
from batchlens.report._evidence.numbers import Numbers
from batchlens.report._evidence.panels import headings_of, plan_network_panels
from batchlens.report._evidence.reading import Declared, Evidence
from batchlens.report._page.frame import WIDE
from batchlens.report._page.numbers import frame_of, rows_of
from batchlens.report._sweep.figures import (
    ARROW,
    averaging_data,
    draw_intervals,
    has_open_bars,
    plain_steps_data,
    sweep_rates_data,
)
from batchlens.report._sweep.thresholds import draw_thresholds, other_set_data, thresholds_data
from batchlens.report._theory.study import Study
from batchlens.sweep import _cells
from batchlens.sweep._store import Store
from tests.sweep.guided_simulation import finish, make_declaration

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
    assert not has_open_bars(frame_of([{"low": 1.0, "high": None, "drawn": False}]))


def test_an_open_bar_ends_at_its_point_with_an_arrow() -> None:
    ax = Figure().add_subplot()
    ax.set_ylim(1, 1000)
    rows: list[dict[str, float | None]] = [
        {"batch_size": 8, "steps": 50.0, "low": 40.0, "high": 60.0},
        {"batch_size": 16, "steps": 30.0, "low": 20.0, "high": None},
    ]
    draw_intervals(ax, frame_of(rows), "black")
    *bars, arrow = ax.lines
    assert [np.asarray(bar.get_ydata()).tolist() for bar in bars] == [[40.0, 60.0], [20.0, 30.0]]
    assert arrow.get_marker() is ARROW
    assert np.asarray(arrow.get_xydata()).tolist() == [[16, 30.0]]


def test_targets_have_no_optimizers_colour_and_those_of_one_set_are_drawn_together(sweep: bl.SweepResult) -> None:
    figure, data = Figure(), thresholds_data(sweep)
    draw_thresholds(figure.add_subplot(), data)
    assert [ax.get_title(loc="left") for ax in figure.axes] == ["sgd", "momentum"]
    for ax in figure.axes:
        assert {to_hex(line.get_color()) for line in ax.lines} == {FOREGROUND}
        named = [line for line in ax.lines if not str(line.get_label()).startswith("_")]
        assert [line.get_label() for line in named] == ["train-loss 0.06", "train-loss 0.1", "train-loss 0.3"]
        assert len({to_hex(line.get_color(), keep_alpha=True) for line in named}) == len(named)
    assert set(data["target"]) > set(data["target"][data["drawn"]])
    assert "validation 0.97" in set(data["target"])


def test_two_sets_with_several_targets_have_pictures_of_their_own() -> None:
    rows = [
        {"optimizer": name, "batch_size": size, "target": target, "steps": 100 / size, "low": None, "high": None,
         "drawn": True}
        for name in ("sgd", "momentum") for target in ("train 0.9", "train 0.8", "validation 0.9", "validation 0.8")
        for size in (8, 16)
    ]  # fmt: skip
    figure = Figure()
    draw_thresholds(figure.add_subplot(), frame_of(rows))
    assert [ax.get_title(loc="left") for ax in figure.axes] == ["sgd", "sgd", "momentum", "momentum"]
    labels = [sorted(ax.get_legend_handles_labels()[1]) for ax in figure.axes]
    assert labels == [["train 0.8", "train 0.9"], ["validation 0.8", "validation 0.9"]] * 2


def test_each_optimizer_has_a_picture_of_what_averaging_saves() -> None:
    rows = [{**row, "optimizer": name} for name in ("sgd", "kfac") for row in ratio_rows({8: 0.7, 16: 1.2})]
    figure = Figure()
    draw_averaging_ratio(figure.add_subplot(), frame_of(rows), ["sgd", "kfac"])
    assert [ax.get_title(loc="left") for ax in figure.axes] == ["sgd", "kfac"]
    colours = [{to_hex(line.get_color()) for line in ax.lines} - {"#888888"} for ax in figure.axes]
    assert colours == [{BLUE.lower()}, {GREEN.lower()}]
    assert len({ax.get_ylim() for ax in figure.axes}) == 1


def texts_of_lines(ax: Axes) -> set[str]:
    return {text.get_text() for text in ax.texts}


def test_learning_rates_of_kfac_stand_beside_the_others_on_the_same_axes(sweep: bl.SweepResult) -> None:
    figure = Figure()
    data = sweep_rates_data(sweep)
    draw_rates_apart(figure.add_subplot(), data, sweep.declaration.optimizers, "learning_rate")
    others, kfac = figure.axes
    assert texts_of_lines(others) == {"sgd", "momentum", "adam", "adam_no_momentum"}
    assert texts_of_lines(kfac) == {"kfac", "kfac_no_momentum"}
    assert others.get_ylim() == kfac.get_ylim()
    figure = Figure()
    draw_rates_apart(figure.add_subplot(), data[data["optimizer"] == "sgd"], ["sgd"], "learning_rate")
    assert [texts_of_lines(ax) for ax in figure.axes] == [{"sgd"}]


def test_each_optimizer_has_a_picture_with_and_without_averaging(sweep: bl.SweepResult) -> None:
    with figure_style():
        figure = Figure()
        draw_with_and_without(figure.add_subplot(), averaging_data(sweep), sweep.declaration.optimizers)
        figure.draw_without_rendering()
        labels = [label.get_window_extent() for label in figure.axes[-1].get_xticklabels() if label.get_text()]
    plain = [name for name in sweep.declaration.optimizers if not is_averaged(name)]
    assert [ax.get_title(loc="left") for ax in figure.axes] == plain
    for ax in figure.axes:
        assert {"plain", "averaged"} <= {line.get_label() for line in ax.lines}
    assert [pair for pair in pairwise(labels) if pair[0].overlaps(pair[1])] == []


def test_what_was_not_reached_has_a_cross_at_the_budget(sweep: bl.SweepResult) -> None:
    data = averaging_data(sweep)
    gone = (data["optimizer"] == "sgd") & (data["batch_size"] == 8)
    columns = ["steps", "low", "high"]
    data = data.assign(status=data["status"].where(~gone, "not_reached"))
    data[columns] = data[columns].where(~gone)
    figure = Figure()
    draw_with_and_without(figure.add_subplot(), data, sweep.declaration.optimizers)
    crosses = [np.asarray(line.get_ydata()).tolist() for line in figure.axes[0].lines if line.get_marker() == "x"]
    assert sorted(crosses) == [[], [sweep.declaration.budget(8)]]


def test_learning_rates_in_theory_and_on_networks_have_the_same_units(
    sweep: bl.SweepResult, study: Study, tmp_path: Path
) -> None:
    without_sgd = paper_size(tmp_path / "paper.sqlite")
    data = rates_side_by_side_data(study, {"digits": sweep, "mnist_paper_size": without_sgd})
    assert list(dict.fromkeys(data["place"])) == ["theory", "digits"]
    critical = sweep.curves()["sgd"].critical_batch_size("fit").value
    rates = {(cell.result.cell.optimizer, cell.batch_size): cell.effective_learning_rate for cell in sweep.cells}
    unit = rates["sgd", max(sweep.declaration.batch_sizes)]
    assert critical is not None
    assert unit is not None
    for row in rows_of(data[data["place"] == "digits"]):
        assert row["relative_batch_size"] == pytest.approx(row["batch_size"] / critical)
        rate = rates[row["optimizer"], row["batch_size"]]
        assert rate is not None
        assert row["relative_rate"] == pytest.approx(rate / unit)
        assert row["relative_low"] <= row["relative_rate"] <= row["relative_high"]
    of_sgd = data[(data["place"] == "theory") & (data["optimizer"] == "sgd")]
    assert of_sgd["relative_rate"].iloc[-1] == pytest.approx(1.0)
    figure = Figure()
    draw_side_by_side(figure.add_subplot(), data, RATES)
    assert [ax.get_title(loc="left") for ax in figure.axes] == ["theory", "digits"]
    assert len({ax.get_ylim() for ax in figure.axes}) == 1


def paper_size(path: Path, cells: Sequence[int] = (128, 512)) -> bl.SweepResult:
    """One optimizer at two batch sizes; those that are not in `cells` lack their fresh seeds."""
    declaration = make_declaration(("nesterov",), sizes=(128, 512), workload="simple_cnn_mnist", size="paper")
    with Store.open_to_write(path, declaration) as store:
        for trial in finish(declaration):
            if trial.key.cell.batch_size in cells or not trial.key.repeat:
                store.add(trial)
    return bl.read_sweep(path)


@pytest.mark.parametrize("cells", [(128,), (128, 512)])
def test_of_two_batch_sizes_steps_are_drawn_and_no_critical_one(
    cells: Sequence[int], tmp_path: Path, study: Study
) -> None:
    small = paper_size(tmp_path / "paper.sqlite", cells)
    assert small.cells_done == len(cells)
    declared = Declared("mnist_paper_size", "simple_cnn_mnist", False, 4.0, small)
    plans = list(plan_network_panels(study, Evidence(tmp_path, (declared,), {})))
    ((plan, frame),) = [pair for pair in plans if pair[0].number.startswith("13")]
    assert plan.numbers == "mnist_paper_size-steps"
    assert "Triangles" not in plan.caption
    assert list(frame["critical_batch_size"]) == [None, None]
    ax = Figure().add_subplot()
    plan.draw(ax, frame)
    assert "^" not in {line.get_marker() for line in ax.lines}


def test_no_two_figures_have_the_same_title(sweep: bl.SweepResult, study: Study, tmp_path: Path) -> None:
    declared = [Declared(name, "digits", False, 4.0, sweep) for name in ("digits", "digits_seed_2")]
    titles = [plan.title for plan, _ in plan_network_panels(study, Evidence(tmp_path, tuple(declared), {}))]
    assert len(set(titles)) == len(titles)
    assert {"digits: best learning rates", "digits_seed_2: best learning rates"} < set(titles)


def test_two_sweeps_of_a_workload_are_told_apart_by_name_and_size(sweep: bl.SweepResult, tmp_path: Path) -> None:
    small = paper_size(tmp_path / "paper.sqlite")
    laptop = replace(small, declaration=replace(small.declaration, size="laptop"))
    assert headings_of({"digits": sweep, "mnist": laptop, "mnist_paper_size": small}) == {
        "digits": "Networks: digits",
        "mnist": "Networks: simple_cnn_mnist (mnist, laptop size)",
        "mnist_paper_size": "Networks: simple_cnn_mnist (mnist_paper_size, paper size)",
    }


def test_critical_batch_sizes_that_misses_make_bounds_are_not_drawn(sweep: bl.SweepResult) -> None:
    transformer = bl.read_sweep(ROOT / "evidence" / "transformer.sqlite")
    known = plain_steps_data(transformer).dropna(subset="critical_batch_size")
    drawn = without_bounds(plain_steps_data, transformer).dropna(subset="critical_batch_size")
    assert set(known["optimizer"]) == {"sgd", "momentum"}
    assert set(drawn["optimizer"]) == {"momentum"}
    pd.testing.assert_frame_equal(without_bounds(plain_steps_data, sweep), plain_steps_data(sweep), check_dtype=False)


def test_the_caption_says_where_the_units_of_sgd_are_bounds(sweep: bl.SweepResult, study: Study) -> None:
    transformer = bl.read_sweep(ROOT / "evidence" / "transformer.sqlite")
    assert bounded_words({"digits": sweep}) == ""
    declared = [Declared(name, name, False, 1.0, found) for name, found in (("d", sweep), ("t", transformer))]
    plans = [plan for plan, _ in plan_network_panels(study, Evidence(ROOT, tuple(declared), {}))]
    for plan in plans[:2]:
        assert "On t SGD's critical batch size and fewest steps are bounds, as seeds missed the target." in plan.caption


def predicted_rows(optimizer: str, doubts: str, **other: float | None) -> list[dict[str, object]]:
    known: dict[str, object] = {"optimizer": optimizer, "doubts": doubts, "steps": 20.0, "low": 0.15, "high": 60.0,
                                "critical_batch_size": None, "measured": None, "run_batch_size": 64, "run_steps": 50,
                                **other}  # fmt: skip
    return [{**known, "batch_size": size} for size in (16, 64)]


def test_a_doubtful_prediction_looks_and_is_named_so() -> None:
    ax = Figure().add_subplot()
    draw_predicted(ax, frame_of([*predicted_rows("sgd", ""), *predicted_rows("kfac", "few steps", measured=40.0)]))
    assert texts_of_lines(ax) == {"sgd", "kfac (doubtful)"}
    lines = [line for line in ax.lines if np.asarray(line.get_ydata()).tolist() == [20.0, 20.0]]
    assert [line.get_linestyle() for line in lines] == ["-", "-."]
    (joined,) = [line for line in ax.lines if np.asarray(line.get_ydata()).tolist() == [40.0] * 2
                 and line.get_linestyle() == "-"]  # fmt: skip
    assert to_hex(joined.get_color()) == GREEN.lower()


def test_less_than_a_step_does_not_widen_the_axis_of_a_prediction() -> None:
    ax = Figure().add_subplot()
    draw_predicted(ax, frame_of(predicted_rows("kfac", "few steps")))
    bottom, _ = ax.get_ylim()
    assert 0.5 < bottom < 1


@pytest.mark.parametrize(
    ("other", "named"),
    [
        ({}, ["the run"]),
        ({"measured": 40.0, "critical_batch_size": 32.0}, ["measured", "the run", "critical batch size"]),
        ({"run_steps": None, "measured": 40.0}, ["measured"]),
        ({"run_steps": None}, []),
    ],
)
def test_marks_of_a_prediction_are_named_where_there_are_some(
    other: Mapping[str, float | None], named: Sequence[str]
) -> None:
    ax = Figure().add_subplot()
    draw_predicted(ax, frame_of(predicted_rows("sgd", "", **other)))
    legend = ax.get_legend()
    assert [text.get_text() for text in (legend.get_texts() if legend else [])] == named


@pytest.mark.parametrize("places", [6, 7, 9])
def test_many_small_pictures_take_both_columns_of_a_page(places: int) -> None:
    rows = [
        {"place": str(place), "optimizer": "sgd", "relative_batch_size": size, "relative_steps": 1 / size,
         "batch_size": size, "relative_low": None, "relative_high": None}
        for place in range(places) for size in (1, 2)
    ]  # fmt: skip
    figure = Figure()
    draw_side_by_side(figure.add_subplot(), frame_of(rows))
    width, height = figure.get_size_inches()
    assert width / height >= WIDE
    assert len(figure.axes) == places
