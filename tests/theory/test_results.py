"""Results at home in a notebook: one line, a table, a drawing, a document."""

import json
import subprocess
import sys
from collections.abc import Iterator
from io import BytesIO

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pytest

import batchlens as bl
from batchlens._results import Result

mpl.use("Agg")

PROBLEM = bl.NoisyQuadratic.power_law(dim=100)
BINNED = bl.NoisyQuadratic.power_law(dim=10_000).binned(100, rounding="down")
RULE = bl.UpdateRule(0.5, 0.5)
TERMS = bl.risk_terms(PROBLEM, RULE, batch_size=16, steps=[0, 10, 100])
PLAN = bl.Schedule(np.array([1.0, 0.25, 0.0]), np.array([10, 5, 1]), 0.1, 0.9)
TUNED = bl.Tuned(RULE, 1234, "reached", ("momentum",))
MISSED = bl.Tuned(None, None, "beyond_max_steps")
BEST = bl.BestRisk(bl.UpdateRule(0.1, averaging=0.99, power=0.5), 0.25, 100)
RESULTS: list[Result] = [PROBLEM, BINNED, TERMS, PLAN, TUNED, MISSED, BEST]


@pytest.fixture(autouse=True)
def closed_figures() -> Iterator[None]:
    yield
    plt.close("all")


HEADLINES = {
    "<NoisyQuadratic: 100 coordinates, curvature 1 to 0.01, trace 5.187, initial risk 2.594>": PROBLEM,
    "<NoisyQuadratic: 10,000 coordinates in 84 bins, curvature 1 to 0.0001, trace 9.405, initial risk 4.702>": BINNED,
    "<Schedule: 16 steps in 3 pieces to risk 0.1, learning rates from 1 to 0, momentum 0.9>": PLAN,
    "<Tuned: 1,234 steps to the target by momentum, learning rate 0.5, momentum 0.5, at the edge of momentum>": TUNED,
    "<Tuned: no rule found: beyond_max_steps>": MISSED,
    "<BestRisk: risk 0.25 after 100 steps by sgd+ema, learning rate 0.1, averaging 0.99, power 0.5>": BEST,
}


@pytest.mark.parametrize(("line", "result"), HEADLINES.items())
def test_a_result_prints_as_one_line(line: str, result: Result) -> None:
    assert repr(result) == line


@pytest.mark.parametrize("result", RESULTS, ids=lambda result: type(result).__name__)
def test_a_result_is_a_table_a_drawing_and_a_document(result: Result) -> None:
    assert "<table" in result._repr_html_()
    assert len(result.to_frame()) >= 1
    ax = result.plot()
    assert result.plot(ax) is ax
    plt.savefig(BytesIO())
    assert json.loads(json.dumps(result.as_document())) == result.as_document()


def test_documents_have_the_keys_of_the_command_line() -> None:
    assert list(TERMS.as_document()) == ["steps", "risk", "deterministic", "noise"]
    assert list(PLAN.as_document()) == ["steps", "risk", "lengths", "learning_rates", "momentum"]
    assert list(TUNED.as_document()) == ["steps", "learning_rate", "momentum", "averaging", "status", "limits"]
    assert MISSED.as_document() == {
        "steps": None, "learning_rate": None, "momentum": None, "averaging": None, "status": "beyond_max_steps",
        "limits": [],
    }  # fmt: skip


def test_risk_terms_keep_their_steps() -> None:
    assert TERMS.steps.tolist() == [0, 10, 100]
    assert TERMS.as_document()["risk"] == TERMS.total.tolist()
    single = bl.risk_terms(PROBLEM, RULE, batch_size=16, steps=10)
    assert single.steps.shape == single.total.shape == ()
    assert single.as_document()["steps"] == [10]
    assert repr(single) == f"<RiskTerms: risk {float(single.total):.4g} after 10 steps>"


def test_a_schedule_is_one_row_per_piece_and_a_staircase() -> None:
    frame = PLAN.to_frame()
    assert frame["first_step"].tolist() == [0, 10, 15]
    assert frame["length"].tolist() == [10, 5, 1]
    assert frame["learning_rate"].tolist() == [1.0, 0.25, 0.0]
    ax = PLAN.plot()
    assert ax.get_yscale() == "log"
    (stairs,) = ax.patches
    assert stairs.get_data().edges.tolist() == [0, 10, 15, 16]  # type: ignore[attr-defined]


def test_a_schedule_of_no_steps_is_a_result_too() -> None:
    plan = bl.optimal_schedule(PROBLEM, batch_size=16, target=100.0)
    assert repr(plan) == "<Schedule: 0 steps in 0 pieces to risk 2.594>"
    plan.plot()
    assert len(plan.to_frame()) == 0


def test_a_spectrum_is_drawn_against_rank() -> None:
    problem = bl.NoisyQuadratic([0.1, 1.0], [1.0, 1.0], [1.0, 1.0], count=[9, 3])
    (line,) = problem.plot().lines
    assert line.get_xdata().tolist() == [1, 3, 12]  # type: ignore[union-attr]
    assert line.get_ydata().tolist() == [1.0, 1.0, 0.1]  # type: ignore[union-attr]


def test_a_table_of_a_problem_has_its_columns() -> None:
    assert list(BINNED.to_frame()) == ["curvature", "noise", "initial", "count"]
    assert BINNED.to_frame()["curvature"].tolist() == BINNED.curvature.tolist()


def test_printing_a_result_loads_neither_pandas_nor_matplotlib() -> None:
    code = (
        "import sys, batchlens as bl; problem = bl.NoisyQuadratic.power_law(dim=10);"
        "print(problem, bl.risk_terms(problem, bl.UpdateRule(0.1), 1, [0, 1]), bl.UpdateRule(0.1));"
        "assert not {'pandas', 'matplotlib'} & sys.modules.keys()"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
