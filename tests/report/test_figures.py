"""The figures: numbers that agree with the library and with plain recursions, and drawings that can be read."""

import math
from itertools import combinations
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure

from batchlens import NoisyQuadratic, lower_bound_steps, optimal_schedule, tune
from batchlens._drawing import FOREGROUND, PALETTE, figure_style
from batchlens.report._page.folder import draw_panel
from batchlens.report._page.numbers import frame_of, groups, rows_of
from batchlens.report._page.records import PanelPlan
from batchlens.report._theory.figures import coordinates, critical, rates, steps
from batchlens.report._theory.panels import PANELS
from batchlens.report._theory.study import Study
from batchlens.scaling._critical import DEFINITIONS
from tests.reference import Setting, path_by_steps, risk_by_steps

EACH_PANEL = pytest.mark.parametrize("plan", PANELS, ids=lambda plan: plan.number)
WITH_BATCHES = {"3a", "3b", "4", "5a", "5b", "5c", "6", "7", "9a", "9b"}


def axis() -> Axes:
    return Figure().add_subplot()


def render(ax: Axes) -> None:
    assert isinstance(ax.figure, Figure)
    ax.figure.draw_without_rendering()


def where(frame: pd.DataFrame, **equal: object) -> pd.DataFrame:
    """The rows whose columns have the given values."""
    for name, value in equal.items():
        frame = frame[frame[name] == value]
    return frame


def column(frame: pd.DataFrame, name: str, **equal: object) -> tuple[Any, ...]:
    return tuple(where(frame, **equal)[name])


# ---------------------------------------------------------------------------------------------
# Numbers
# ---------------------------------------------------------------------------------------------


def test_coordinates_follow_the_plain_recursion(study: Study) -> None:
    table = coordinates.coordinate_data(study)
    assert list(table.columns) == ["coordinate", "curvature", "kind", "step", "risk"]
    best, plan = tune(study.problem, "sgd", 4, study.target), optimal_schedule(study.problem, 4, study.target)
    assert best.rule is not None
    pieces = {"constant": [best.rule.learning_rate], "decay": plan.learning_rates.tolist()}
    lengths = {"constant": [plan.steps], "decay": plan.lengths.tolist()}
    curvatures = study.problem.curvature
    assert {row["coordinate"] for row in rows_of(table)} == {"stiffest", "middle", "flattest"}
    for (name, kind, h), part in groups(table, "coordinate", "kind", "curvature"):
        settings = [Setting(rate) for rate in pieces[kind]]
        expected = path_by_steps(h, h, 1.0, 1.0, settings, [4] * len(settings), lengths[kind])
        np.testing.assert_allclose(part["risk"], expected[list(part["step"])], rtol=1e-9)
        assert part["step"].min() == 0
        assert part["step"].max() == plan.steps
        assert h == {"stiffest": curvatures.max(), "flattest": curvatures.min()}.get(name, h)


def test_middle_coordinate_is_half_way_in_the_logarithm() -> None:
    study = Study(NoisyQuadratic.from_spectrum([1.0, 0.5, 0.1, 0.01]), 0.05, batch_sizes=(4, 16))
    assert column(coordinates.coordinate_data(study), "curvature", coordinate="middle")[0] == 0.1


def test_momentum_numbers_are_those_of_the_roots() -> None:
    table = coordinates.momentum_data()
    assert {"momentum", "gap", "convergence", "effective", "steady_state", "steady_state_plain"} == set(table.columns)
    assert table["gap"].min() == pytest.approx(1e-4)
    assert table["gap"].max() == 1.0
    a = 0.0005
    for row in rows_of(table):
        beta = row["momentum"]
        slowest = max(abs(np.roots([1, -(1 - a + beta), beta])))
        assert row["convergence"] == pytest.approx(1 - slowest, rel=1e-6)
        assert row["steady_state"] == pytest.approx(a * (1 + beta) / (2 * (2 * beta + 2 - a) * (1 - beta)), rel=1e-9)
        effective = a / row["gap"]
        if effective < 2:
            assert row["steady_state_plain"] == pytest.approx(effective / (2 * (2 - effective)), rel=1e-9)
            assert row["effective"] == pytest.approx(1 - abs(1 - effective))
        else:
            assert np.isnan([row["steady_state_plain"], row["effective"]]).all()


def test_first_term_follows_the_plain_recursion() -> None:
    table = coordinates.first_term_data()
    assert list(table.columns) == ["gap", "steps", "momentum", "sgd"]
    gaps = sorted(set(table["gap"]))
    for gap in (gaps[0], gaps[30], gaps[-1]):
        rules = {"momentum": Setting(0.0005, 1 - gap), "sgd": Setting(0.0005 / gap)}
        for name, setting in rules.items():
            path = 2 * risk_by_steps(1.0, 0.0, 1.0, 1.0, setting, 1, 3000)
            part = where(table, gap=gap)
            np.testing.assert_allclose(part[name], path[list(part["steps"])], rtol=1e-6, atol=1e-12)


def test_steps_are_tuned(study: Study) -> None:
    table = steps.tuned_steps_data(study)
    assert list(table.columns) == ["optimizer", "power", "batch_size", "steps"]
    assert len(table) == (2 * len(study.powers) + 2) * len(study.batch_sizes)
    for name, power, size in (("momentum", 0.0, 64), ("sgd", 0.75, 4), ("momentum", 0.5, 1024)):
        found = column(table, "steps", optimizer=name, power=power, batch_size=size)
        assert found == (tune(study.problem, name, size, study.target, power).steps,)
    for kind in ("mle", "bayes"):
        bound = tuple(lower_bound_steps(study.problem, size, study.target, kind) for size in study.batch_sizes)
        assert column(table, "steps", optimizer=f"{kind} bound") == bound


def test_steps_of_chosen_families_without_bounds(study: Study) -> None:
    table = steps.tuned_steps_data(study, families=("nesterov",), bounds=False)
    assert set(table["optimizer"]) == {"nesterov"}


def test_schedule_steps(study: Study) -> None:
    table = steps.schedule_steps_data(study)
    for power, size in ((0.0, 4), (0.5, 256)):
        found = column(table, "steps", optimizer="sgd+schedule", power=power, batch_size=size)
        assert found == (optimal_schedule(study.problem, size, study.target, power=power).steps,)
    assert {"sgd+schedule", "sgd", "mle bound", "bayes bound"} == set(table["optimizer"])


def test_targets(study: Study) -> None:
    table = steps.target_data(study)
    assert sorted(set(table["target"])) == pytest.approx([0.005, 0.015, 0.05, 0.15, 0.5])
    target = max(table["target"])
    assert column(table, "steps", target=target, batch_size=16) == (tune(study.problem, "sgd", 16, target).steps,)


def test_targets_that_are_met_at_the_start_are_left_out() -> None:
    study = Study.of_power_law(dim=20, bins=5, target=0.5)
    assert max(steps.target_data(study)["target"]) < study.problem.initial_risk


def test_combinations_close_the_way_from_sgd_to_the_bound(study: Study) -> None:
    table = steps.combination_data(study)
    names = {
        "sgd",
        "sgd+ema",
        "momentum",
        "momentum+ema",
        "sgd+schedule",
        "momentum+schedule",
        "mle bound",
        "bayes bound",
    }
    assert set(table["optimizer"]) == names
    assert set(column(table, "closed", optimizer="sgd")) == {0.0}
    known = [part for part in column(table, "closed", optimizer="bayes bound") if not math.isnan(part)]
    assert known == pytest.approx([1.0] * len(known))
    cell = {"batch_size": 4}
    sgd, other, bound = (
        column(table, "steps", optimizer=name, **cell)[0] for name in ("sgd", "momentum+ema", "bayes bound")
    )
    expected = math.log(sgd / other) / math.log(sgd / bound)
    assert column(table, "closed", optimizer="momentum+ema", **cell) == (pytest.approx(expected),)
    handful = column(table, "batch_size", optimizer="momentum+schedule")
    assert 3 <= len(handful) <= 6
    best = optimal_schedule(study.problem, handful[0], study.target, momentum="tuned")
    assert column(table, "steps", optimizer="momentum+schedule")[0] == best.steps


def test_learning_rates(study: Study) -> None:
    table = rates.tuned_rates_data(study)
    assert set(table["kind"]) == {"none", "0.9", "tuned"}
    effective = table["learning_rate"] / (1 - table["momentum"])
    np.testing.assert_allclose(table["effective_learning_rate"], effective, rtol=1e-12)
    assert set(column(table, "momentum", kind="none")) == {0.0}
    assert set(column(table, "momentum", kind="0.9")) == {0.9}
    best = tune(study.problem, "momentum", 64, study.target, power=0.25, momentum=0.9)
    assert best.rule is not None
    found = column(table, "learning_rate", kind="0.9", power=0.25, batch_size=64)
    assert found == (best.rule.learning_rate,)


def test_schedules_follow_each_other_without_gaps(study: Study) -> None:
    table = rates.schedule_data(study)
    assert list(table.columns) == ["batch_size", "start", "end", "steps", "learning_rate"]
    assert tuple(dict.fromkeys(table["batch_size"])) == study.batch_sizes
    for (size,), part in groups(table, "batch_size"):
        plan = optimal_schedule(study.problem, size, study.target)
        assert part["learning_rate"].tolist() == plan.learning_rates.tolist()
        assert part["start"].tolist() == [0, *part["end"][:-1]]
        assert {part["end"].max(), *part["steps"]} == {plan.steps}
    final = rates.final_rate_data(study)
    last = [column(table, "learning_rate", batch_size=size)[-1] for size in study.batch_sizes]
    assert final["final_learning_rate"].tolist() == last


def test_critical_batch_sizes(study: Study) -> None:
    table = critical.critical_data(study)
    assert list(table.columns) == ["optimizer", "power", "value", "relation", "definition"]
    assert len(table) == len(critical.OPTIMIZERS) * len(study.powers) * len(DEFINITIONS)
    for definition in DEFINITIONS:
        found = study.curve("nesterov", 0.5).critical_batch_size(definition)
        (row,) = rows_of(where(table, optimizer="nesterov", power=0.5, definition=definition))
        assert (row["value"], row["relation"]) == (found.value, found.relation)


# ---------------------------------------------------------------------------------------------
# Drawings
# ---------------------------------------------------------------------------------------------


@EACH_PANEL
def test_panel_can_be_drawn_on_anyones_axis(study: Study, plan: PanelPlan[Study]) -> None:
    with mpl.rc_context(mpl.rcParamsDefault):
        figure = Figure()
        _, ax = figure.subplots(1, 2)
        plan.draw(ax, plan.data(study))
        figure.draw_without_rendering()
    assert ax.lines
    assert ax.get_xlabel()
    assert ax.get_ylabel()
    assert ax.texts


@EACH_PANEL
def test_everything_is_on_the_canvas_and_labels_do_not_overlap(study: Study, plan: PanelPlan[Study]) -> None:
    with figure_style():
        figure = Figure()
        ax = figure.add_subplot()
        plan.draw(ax, plan.data(study))
        figure.draw_without_rendering()
        width, height = figure.get_size_inches()
        inside = figure.get_tightbbox()
        boxes = [text.get_window_extent() for text in ax.texts]
    assert inside.x0 > -0.01
    assert inside.y0 > -0.01
    assert inside.x1 < width + 0.01
    assert inside.y1 < height + 0.01
    assert len(boxes) == len({text.get_text() for text in ax.texts})
    assert [pair for pair in combinations(boxes, 2) if pair[0].overlaps(pair[1])] == []
    assert all(not box.overlaps(ax.bbox) for box in boxes)


@pytest.mark.parametrize("plan", [plan for plan in PANELS if plan.number in WITH_BATCHES], ids=lambda plan: plan.number)
def test_batch_axes_are_log2(study: Study, plan: PanelPlan[Study]) -> None:
    ax = axis()
    plan.draw(ax, plan.data(study))
    assert ax.get_xlabel() == "batch size"
    assert ax.get_xscale() == "log"
    assert getattr(ax.xaxis.get_transform(), "base", None) == 2
    exponents = np.log2(ax.get_xticks())
    np.testing.assert_array_equal(exponents, exponents.round())
    assert len(exponents) >= 4
    low, high = ax.get_xlim()
    assert low <= min(study.batch_sizes)
    assert high >= max(study.batch_sizes)


def holey(frame: pd.DataFrame, every: int = 3) -> pd.DataFrame:
    """The frame with every third number of steps missing, and what was measured with it."""
    names = {"steps", "learning_rate", "effective_learning_rate", "value", "closed", "momentum"}
    return frame_of(
        {name: None if name in names and i % every == 0 else value for name, value in row.items()}
        for i, row in enumerate(rows_of(frame))
    )


@pytest.mark.parametrize("number", ["3a", "3b", "4", "5a", "5b", "5c", "7", "9a", "9b", "10a", "10b", "10c"])
@pytest.mark.parametrize("every", [2, 3])
def test_batch_sizes_that_never_reach_the_target_are_left_out(study: Study, number: str, every: int) -> None:
    (plan,) = (plan for plan in PANELS if plan.number == number)
    ax = axis()
    plan.draw(ax, holey(plan.data(study), every))
    render(ax)
    assert ax.lines


def test_hollow_markers_are_bounds() -> None:
    row = {"optimizer": "sgd", "definition": "knee"}
    cells = [(0.0, 64.0, "="), (0.25, 128.0, ">="), (0.5, 256.0, "<="), (0.75, None, "unknown")]
    table = frame_of({**row, "power": p, "value": v, "relation": r} for p, v, r in cells)
    ax = axis()
    critical.draw_critical(ax, table, "knee")
    points = [line for line in ax.lines if len(np.atleast_1d(line.get_xdata())) == 1]
    assert [point.get_marker() for point in points] == ["o", "^", "v"]
    assert [point.get_markerfacecolor() == "none" for point in points] == [False, True, True]


# ---------------------------------------------------------------------------------------------
# Looks
# ---------------------------------------------------------------------------------------------

WHITE, DARK = "#ffffff", "#15171a"


def contrast(colour: str, ground: str) -> float:
    """The contrast ratio of WCAG 2."""

    def luminance(name: str) -> float:
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in to_rgb(name)]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    light, dark = sorted((luminance(colour), luminance(ground)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def test_contrast_of_black_on_white() -> None:
    assert contrast("#000000", WHITE) == pytest.approx(21)


@pytest.mark.parametrize("colour", PALETTE)
def test_palette_stands_out_in_both_modes(colour: str) -> None:
    assert contrast(colour, WHITE) >= 3
    assert contrast(colour, DARK) >= 3


@pytest.mark.parametrize(
    "plan",
    PANELS,
    ids=lambda plan: plan.number,
)
def test_every_line_stands_out_in_both_modes(study: Study, plan: PanelPlan[Study]) -> None:
    ax = axis()
    plan.draw(ax, plan.data(study))
    used = {to_hex(line.get_color()) for line in ax.lines} - {FOREGROUND}
    assert {colour for colour in used if min(contrast(colour, WHITE), contrast(colour, DARK)) < 3} == set()


def test_style_ends_with_its_context_and_ignores_the_users() -> None:
    plan = PANELS[1]
    table = plan.data(Study.of_power_law(dim=10, bins=0, target=0.05))
    usual = draw_panel(plan, table)
    with mpl.rc_context({"font.size": 23, "axes.facecolor": "red", "savefig.dpi": 12, "svg.fonttype": "path"}):
        before = dict(mpl.rcParams)
        assert draw_panel(plan, table) == usual
        assert dict(mpl.rcParams) == before
