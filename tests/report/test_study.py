"""A study computes each thing once, and what it computes is the library's."""

import pytest

from batchlens import NoisyQuadratic, lower_bound_steps, optimal_schedule, scaling_curve
from batchlens.report._page.numbers import rows_of
from batchlens.report._theory.study import BATCH_SIZES, POWERS, Study, curve_frame


def test_the_default_is_the_papers_problem() -> None:
    study = Study.of_power_law()
    paper = NoisyQuadratic.power_law(dim=10_000).binned(100, rounding="down")
    assert study.problem.curvature.tolist() == paper.curvature.tolist()
    assert study.problem.count.tolist() == paper.count.tolist()
    assert study.target == 0.01
    assert study.batch_sizes == BATCH_SIZES == tuple(4**k for k in range(1, 11))
    assert study.powers == POWERS == (0.0, 0.25, 0.5, 0.75)
    assert study.parameters == {"dim": 10_000, "exponent": 1.0, "bins": 100, "rounding": "down", "target": 0.01}


def test_no_bins_leave_the_spectrum_alone() -> None:
    assert Study.of_power_law(dim=30, exponent=2.0, bins=0, target=0.05).problem.curvature[-1] == 30.0**-2


def test_mean_rounding_keeps_the_trace() -> None:
    study = Study.of_power_law(dim=30, bins=5, rounding="mean", target=0.05)
    assert study.problem.trace == pytest.approx(NoisyQuadratic.power_law(dim=30).trace)


@pytest.mark.parametrize("target", [0.0, -1.0, 3.0, float("nan")])
def test_targets_lie_between_nothing_and_the_start(target: float) -> None:
    with pytest.raises(ValueError, match=r"`target` must be in \(0, "):
        Study.of_power_law(dim=10, bins=0, target=target)


def test_curves_are_computed_once(study: Study) -> None:
    assert study.curve("sgd", 0.5) is study.curve("sgd", 0.5)
    assert study.schedule(64) is study.schedule(64)
    assert study.bounds is study.bounds


def test_curves_are_the_librarys(study: Study) -> None:
    sizes = [4, 256]
    small = Study(study.problem, study.target, batch_sizes=(4, 256))
    for target, momentum in ((None, None), (0.1, None), (None, 0.9)):
        expected = scaling_curve(study.problem, "momentum", sizes, target or 0.05, 0.25, momentum=momentum)
        assert small.curve("momentum", 0.25, target, momentum) == expected


def test_schedules_are_the_librarys(study: Study) -> None:
    found = study.schedule(1024, 0.5)
    expected = optimal_schedule(study.problem, 1024, study.target, power=0.5)
    assert found.learning_rates.tolist() == expected.learning_rates.tolist()


def test_bounds_are_the_librarys(study: Study) -> None:
    for kind in ("mle", "bayes"):
        expected = [lower_bound_steps(study.problem, size, study.target, kind) for size in study.batch_sizes]
        bounds = study.bounds
        assert bounds.loc[bounds["optimizer"] == f"{kind} bound", "steps"].tolist() == expected


def test_steps_have_a_row_for_every_cell(study: Study) -> None:
    frame = study.steps("sgd", "momentum")
    assert len(frame) == 2 * len(study.powers) * len(study.batch_sizes)
    (row,) = rows_of(frame.query("optimizer == 'momentum' and power == 0.5 and batch_size == 64"))
    curve = study.curve("momentum", 0.5)
    place = curve.batch_sizes.index(64)
    assert row["steps"] == curve.steps[place]
    assert row["target"] == 0.05
    assert {name: row[name] for name in ("learning_rate", "momentum", "averaging")} == curve.settings[place]


def test_what_was_not_reached_has_no_settings() -> None:
    frame = curve_frame(scaling_curve(NoisyQuadratic.power_law(10), "sgd", [4, 16], 0.05, max_steps=40))
    assert frame["steps"].isna().tolist() == frame["learning_rate"].isna().tolist() == [True, False]


def test_studies_of_the_same_problem_are_apart(study: Study) -> None:
    other = Study.of_power_law(dim=50, bins=10, target=0.05)
    assert other.curve("sgd", 0.0) is not study.curve("sgd", 0.0)
    assert other.curve("sgd", 0.0) == study.curve("sgd", 0.0)
