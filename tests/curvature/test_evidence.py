"""What evidence/ declares and keeps of curvature."""

from pathlib import Path

import numpy as np
import pytest

import batchlens as bl
from batchlens.curvature.tracking import _check, _declaration
from batchlens.report._curvature.claims import SETTLED, judge_measurement, log_change
from evidence.curvature_run import file_of, read_runs

RUNS = {run["workload"]: run for run in read_runs()}
KEPT = [name for name, run in RUNS.items() if file_of(run).exists()]


def test_five_networks_are_declared_with_six_moments_each() -> None:
    assert set(RUNS) == {
        "digits",
        "simple_cnn_mnist",
        "simple_cnn_fashion_mnist",
        "resnet8_cifar10",
        "transformer_lm1b",
    }
    assert all(len(run["steps"]) == 6 for run in RUNS.values())


@pytest.mark.parametrize("name", KEPT)
def test_what_is_kept_is_what_was_declared(name: str) -> None:
    run = RUNS[name]
    found = bl.read_measurement(file_of(run))
    arguments = _check(name, run["optimizer"], run["batch_size"], run["settings"], max(run["steps"]), {})
    assert _declaration(arguments).items() <= found.declaration.items()
    assert {moment.step for moment in found.moments} <= set(run["steps"])
    assert found.moments[0].examples == run["examples"]
    assert file_of(run).stat().st_size < 300_000


@pytest.mark.parametrize("name", KEPT)
def test_a_complete_measurement_can_be_judged_on_all_three_claims(name: str) -> None:
    found = bl.read_measurement(file_of(RUNS[name]))
    if found.status == "complete":
        assert [claim.name for claim in judge_measurement(found)] == [
            f"{name} {claim}" for claim in ("spectrum", "spectrum_settles", "covariance")
        ]


def numbers_of(found: bl.Measurement) -> dict[str, str]:
    """What docs/curvature.md says of a network, from its file."""
    moments, last = found.moments, found.moments[-1]
    exponents = {decade.first: f"{decade.exponent:.2f}" for decade in last.decades}
    settled = next(moment for moment in moments if moment.step == SETTLED)
    change = log_change(settled, last)
    slopes = [moment.comparison.slope for moment in moments if moment.comparison]
    return {
        "exponent, ranks 1 to 10": exponents[1],
        "exponent, ranks 10 to 100": exponents[10],
        "exponent, ranks 100 to 1,000": exponents[100],
        "median factor from 200 to 800": f"{np.exp(np.median(np.abs(change))):.2f}",
        "the same in shape": f"{np.exp(np.median(np.abs(change - np.median(change)))):.2f}",
        "log-log slope": f"{min(slopes):.2f} to {max(slopes):.2f}",
        "correlation, least": f"{min(m.comparison.correlation for m in moments if m.comparison):.2f}",
        "true top over largest in the basis, step 800": (
            f"{last.top_curvature.value / last.spectrum[0].curvature:.1f}"
        ),
    }


def test_the_table_in_the_docs_is_what_was_measured() -> None:
    text = (Path(__file__).parents[2] / "docs" / "curvature.md").read_text(encoding="utf-8")
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if line.startswith("|")]
    table = {row[0]: row[1:] for row in rows}
    networks = ("digits", "simple_cnn_mnist", "simple_cnn_fashion_mnist", "transformer_lm1b", "resnet8_cifar10")
    found = [numbers_of(bl.read_measurement(file_of(RUNS[name]))) for name in networks]
    for row in found[0]:
        assert table[row] == [numbers[row] for numbers in found], row


def test_files_are_beside_their_declaration() -> None:
    assert all(file_of(run, Path("x")) == Path("x") / f"{name}.json" for name, run in RUNS.items())
