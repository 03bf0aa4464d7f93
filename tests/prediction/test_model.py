"""The quadratic that stands for a run: what it is made of, and that it finds its own numbers again."""

import numpy as np
import pytest

import batchlens as bl
from batchlens.prediction._model import RANKS, fit_model
from tests.prediction.making import MODEL, TARGET, make_reference


def test_problem_has_what_was_measured() -> None:
    problem = MODEL.problem()
    assert problem.curvature.max() == pytest.approx(MODEL.top)
    assert problem.count.sum() == RANKS
    assert (problem.noise * problem.count).sum() == pytest.approx(MODEL.variance)
    assert np.ptp(problem.noise / problem.curvature) == pytest.approx(0.0, abs=1e-9)
    assert problem.initial_risk == pytest.approx(MODEL.start - MODEL.floor)


def test_early_curvature_limits_the_rate_and_little_else() -> None:
    from dataclasses import replace

    model = replace(MODEL, early=6.0)
    assert model.problem(early=False).curvature.max() == pytest.approx(1.5)
    with_early = model.problem(early=True)
    assert with_early.curvature.max() == pytest.approx(6.0)
    assert with_early.initial_risk == pytest.approx(1.001 * (MODEL.start - MODEL.floor))
    plain, limited = (
        bl.tune(problem, "momentum", 4096, TARGET - MODEL.floor).rule
        for problem in (model.problem(early=False), with_early)
    )
    assert plain is not None
    assert limited is not None
    assert limited.learning_rate <= 2 * (1 + limited.momentum) / 6.0 * 1.01
    assert limited.learning_rate < plain.learning_rate


def test_a_run_of_the_model_gives_its_numbers_back() -> None:
    found = fit_model(make_reference(), MODEL.top, MODEL.variance)
    assert found.misfit < 0.01
    assert found.curvature_exponent == pytest.approx(MODEL.curvature_exponent, rel=0.1)
    assert found.loss_exponent == pytest.approx(MODEL.loss_exponent, abs=0.1)
    again = fit_model(make_reference(), MODEL.top, MODEL.variance, near=found)
    assert again.curvature_exponent == pytest.approx(found.curvature_exponent, rel=0.01)
