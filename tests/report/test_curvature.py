"""The page about measured curvature: its claims, its figures and their numbers."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure

import batchlens as bl
from batchlens.curvature._spectra import Directions, compare, decades, levels, scatter
from batchlens.curvature.measurement import DensityPoint, Estimate, Moment, Ratio
from batchlens.report._curvature.claims import judge_measurement, log_change
from batchlens.report._curvature.page import plan_panels


def moment(step: int, exponent: float = -1.0, scale: float = 1.0, ratio: float = 1.0, size: int = 3000) -> Moment:
    """A moment whose spectrum is scale * i^exponent, with variances of `ratio` times curvature."""
    curvature = scale * np.arange(1.0, size + 1) ** exponent
    directions = Directions(["layer"], np.zeros(size, dtype=np.int64), curvature, ratio * curvature, curvature)
    return Moment(
        step=step,
        loss=1.0,
        examples=100,
        parameters=size,
        positions=1,
        top_curvature=Estimate(scale, 0.1),
        top_residual=0.01,
        top_halves=(scale, scale),
        top_eigenvalues=(scale,),
        hessian_top=None,
        curvature_trace=Estimate(float(curvature.sum()), 0.2, 9),
        gradient_variance=Estimate(ratio * float(curvature.sum()), 0.3),
        squared_gradient=Estimate(0.1, 0.01),
        noise_scale=Ratio(20.0, (10.0, math.inf)),
        curvature_noise_scale=Ratio(None, None),
        spectrum=levels(directions),
        scatter=scatter(directions),
        decades=decades(curvature),
        comparison=compare(curvature, ratio * curvature),
        density=(DensityPoint(0.1, 10.0, (8.0, 12.0)), DensityPoint(1.0, 2.0, (1.0, 3.0))),
    )


def measurement(*moments: Moment) -> bl.Measurement:
    return bl.Measurement(moments, "network", {"settings": {"learning_rate": 0.1}, "seed": 0})


def verdicts(*moments: Moment) -> dict[str, str]:
    return {claim.name: claim.verdict for claim in judge_measurement(measurement(*moments))}


def test_a_network_as_the_model_has_it_meets_all_claims() -> None:
    start = moment(0, exponent=-2.0, scale=5.0)
    assert verdicts(start, moment(200), moment(800)) == {
        "network spectrum": "holds",
        "network spectrum_settles": "holds",
        "network covariance": "holds",
    }


@pytest.mark.parametrize(
    ("exponent", "verdict"), [(-0.8, "holds"), (-1.4, "holds with a limit"), (-0.45, "fails"), (-1.6, "fails")]
)
def test_the_spectrum_is_judged_by_its_exponents(exponent: float, verdict: str) -> None:
    assert verdicts(moment(800, exponent=exponent))["network spectrum"] == verdict


@pytest.mark.parametrize(
    ("last", "verdict"),
    [
        (moment(800, scale=1.4), "holds"),
        (moment(800, scale=1.8), "holds with a limit"),
        (moment(800, exponent=-0.6, scale=3.0), "fails"),
    ],
)
def test_settling_is_judged_by_what_changes_later(last: Moment, verdict: str) -> None:
    start = moment(0, exponent=-2.0, scale=5.0)
    assert verdicts(start, moment(200), last)["network spectrum_settles"] == verdict


def test_settling_needs_moments_before_and_after() -> None:
    assert "network spectrum_settles" not in verdicts(moment(0), moment(200))
    assert "network spectrum_settles" not in verdicts(moment(300), moment(800))


@pytest.mark.parametrize(
    ("ratio", "verdict"), [(0.8, "holds"), (0.4, "holds with a limit"), (0.05, "holds with a limit")]
)
def test_covariance_is_judged_in_shape_and_in_size(ratio: float, verdict: str) -> None:
    (claim,) = [c for c in judge_measurement(measurement(moment(800, ratio=ratio))) if c.name.endswith("covariance")]
    assert claim.verdict == verdict
    assert f"ratio {ratio:.2f} (step 800)" in claim.found
    assert ("ratio fails" in claim.note) == (ratio < 0.3)


def test_positions_count_in_the_ratio() -> None:
    sequence = replace(moment(800, ratio=1 / 32), positions=32)
    assert verdicts(sequence)["network covariance"] == "holds"


def test_change_is_that_of_equal_ranks() -> None:
    assert log_change(moment(0), moment(1, scale=2.0)) == pytest.approx(math.log(2.0))


def test_levels_keep_the_trace_and_the_top() -> None:
    found = moment(0)
    total = sum(level.directions * level.curvature for level in found.spectrum)
    assert total == pytest.approx(found.curvature_trace.value, rel=1e-12)
    assert sum(level.directions for level in found.spectrum) == 3000
    assert [level.curvature for level in found.spectrum[:3]] == pytest.approx([1.0, 1 / 2, 1 / 3])


def test_exponents_stop_where_curvature_is_too_small_to_tell() -> None:
    spectrum = np.concatenate([1 / np.arange(1.0, 101.0), np.full(900, 1e-9)])
    assert [decade.first for decade in decades(spectrum)] == [1, 10]


def test_comparison_is_of_logarithms() -> None:
    random = np.random.default_rng(0)
    curvature = np.exp(random.normal(size=4000))
    found = compare(curvature, 0.5 * curvature**0.8 * np.exp(0.1 * random.normal(size=4000)))
    assert found is not None
    assert found.slope == pytest.approx(0.8, abs=0.01)
    assert found.correlation == pytest.approx(0.8 / math.hypot(0.8, 0.1), abs=0.005)
    assert compare(np.zeros(5), np.zeros(5)) is None


BARE = replace(moment(0), spectrum=(), scatter=(), decades=(), comparison=None, density=())


def test_the_page_has_every_figure_its_numbers_and_the_claims(tmp_path: Path) -> None:
    found = measurement(moment(0, exponent=-2.0, scale=5.0), moment(200), moment(800, ratio=0.1))
    page = bl.write_report([found, replace(found, name="other", moments=(BARE,))], tmp_path / "page")
    text = page.read_text(encoding="utf-8")
    assert text.count("<figure ") == 9
    assert "network: The spectrum settles after 200 steps." in text
    names = {path.name for path in page.parent.iterdir()}
    for figure in ("spectra", "decades", "scatter", "noise", "sizes", "density"):
        assert f"network-{figure}.csv" in names
    assert "other-noise.csv" in names
    assert len((page.parent / "moments.csv").read_text().splitlines()) == 5


def test_a_sequence_is_drawn_as_it_is_judged() -> None:
    """Its loss is a mean over positions, so its variance is times their number everywhere."""
    found = measurement(replace(moment(0, ratio=1 / 32), positions=32))
    drawn = {plan.title: (plan, frame) for plan, frame in plan_panels([found])}
    plan, frame = drawn["network: Variance against curvature"]
    ax = Figure().add_subplot()
    plan.draw(ax, frame)
    _, dots = ax.get_lines()
    assert np.asarray(dots.get_ydata()) == pytest.approx(np.asarray(dots.get_xdata()))
    assert str(dots.get_label()).endswith("ratio 1")
    assert ax.get_ylabel() == "variance of the gradient times positions"


def test_what_the_basis_leaves_out_is_told_once_a_network(tmp_path: Path) -> None:
    some = replace(moment(0), left_out={"a.gain": "a parameter of LayerNorm", "b.gain": "a parameter of LayerNorm"})
    page = bl.write_report([measurement(some, replace(some, step=5))], tmp_path / "page")
    assert page.read_text(encoding="utf-8").count("a parameter of LayerNorm: a.gain, b.gain") == 1


def test_a_moment_without_a_basis_has_the_figures_that_need_none() -> None:
    assert [plan.title for plan, _ in plan_panels([measurement(BARE)])] == [
        "network: Noise scales",
        "network: Curvature, noise and loss",
    ]


def test_several_measurements_ask_for_a_folder() -> None:
    with pytest.raises(ValueError, match="`out` must be given"):
        bl.write_report([measurement(moment(0))])
