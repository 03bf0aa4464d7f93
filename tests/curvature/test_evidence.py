"""What evidence/ declares and keeps of curvature."""

from pathlib import Path

import pytest

import batchlens as bl
from batchlens.curvature.tracking import _check, _declaration
from batchlens.report._curvature.claims import judge_measurement
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


def test_files_are_beside_their_declaration() -> None:
    assert all(file_of(run, Path("x")) == Path("x") / f"{name}.json" for name, run in RUNS.items())
