"""The quadratic that stands for a run: what it is made of, and that it finds its own numbers again."""

import numpy as np
import pytest

from batchlens.prediction._measured import Measured
from batchlens.prediction._model import RANKS, fit_model
from tests.prediction.making import MODEL, TARGET, make_reference


def test_problem_has_what_was_measured() -> None:
    problem = MODEL.problem()
    assert problem.curvature.max() == pytest.approx(MODEL.top)
    assert problem.count.sum() == RANKS
    at_target = problem.noise + problem.noise_growth * TARGET
    assert (at_target * problem.count).sum() == pytest.approx(MODEL.variance)
    assert np.ptp(problem.noise / problem.curvature) == pytest.approx(0.0, abs=1e-9)
    assert problem.noise_follows_loss
    assert problem.initial_risk == pytest.approx(MODEL.start)


def test_a_run_of_the_model_gives_its_numbers_back() -> None:
    found = fit_model(make_reference(), MODEL.top, MODEL.variance, TARGET)
    assert found.misfit < 0.01
    assert found.curvature_exponent == pytest.approx(MODEL.curvature_exponent, rel=0.1)
    assert found.loss_exponent == pytest.approx(MODEL.loss_exponent, abs=0.1)
    again = fit_model(make_reference(), MODEL.top, MODEL.variance, TARGET, near=found)
    assert again.curvature_exponent == pytest.approx(found.curvature_exponent, rel=0.01)


def test_the_variance_is_that_of_the_loss_where_it_was_measured() -> None:
    """At half the target it is less than at the target, by what follows the loss."""
    found = fit_model(make_reference(), MODEL.top, MODEL.variance, 0.5 * TARGET)
    problem = found.problem()
    at_half = problem.noise + problem.noise_growth * 0.5 * TARGET
    assert (at_half * problem.count).sum() == pytest.approx(MODEL.variance)


def test_losses_after_a_delay_begin_where_the_run_was() -> None:
    whole = make_reference()
    later = whole.after(10)
    assert later.steps[0] == 0
    assert later.steps[-1] == whole.steps[-1] - 10
    assert later.losses[-1] == whole.losses[-1]
    assert later.losses[0] == pytest.approx(np.interp(10, whole.steps, whole.losses), rel=0.02)
    assert whole.after(0) is whole


def test_a_delay_is_counted_and_the_rest_fitted() -> None:
    """The second half of a run of the model is a run of the same model from a lower loss."""
    whole = make_reference()
    found = fit_model(whole, MODEL.top, MODEL.variance, TARGET, delay=12)
    assert found.delay == 12
    assert found.start < MODEL.start
    assert found.misfit < 0.03


@pytest.mark.parametrize(
    ("limit", "steps"),
    [(60.0, 0), (20.0, 14), (6.0, 50), (4.0, 100)],  # below from the start; between; later; never, so a tenth
)
def test_steps_at_the_edge_of_stability(limit: float, steps: int) -> None:
    numbers = Measured(5.0, 0.1, 1.0, 0.1, 0.1, {0: 50.0, 10: 40.0, 20: 10.0, 50: 6.0, 900: 5.0, 1000: 5.0})
    assert numbers.steps_at_the_edge(limit) == steps


def test_without_an_early_moment_there_is_no_edge() -> None:
    assert Measured(5.0, 0.1, 1.0, 0.1, 0.1, {900: 5.0, 1000: 5.0}).steps_at_the_edge(1.0) == 0
