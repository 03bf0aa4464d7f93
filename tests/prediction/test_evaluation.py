"""What predictions are worth on digits is what was asked for, by the benchmark that judges them."""

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from batchlens.prediction import prediction
from batchlens.prediction._readings import READINGS

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "evaluate_predictions.py"


@pytest.fixture(scope="module")
def benchmark() -> ModuleType:
    spec = importlib.util.spec_from_file_location("evaluate_predictions", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def made(benchmark: ModuleType, critical: float | None, bound: str = "", steps: float = 0.0) -> Any:
    return benchmark.Errors(critical, critical, bound, True, False, [steps], [True], [])


@pytest.mark.slow
def test_predictions_of_digits_are_as_close_as_was_asked_for(
    benchmark: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prediction, "_DRAWS", 0)  # intervals are not asked about
    evaluated = benchmark.evaluate(benchmark.read_references("digits"), ("sgd", "momentum", "sgd+ema"))
    missed = [must.verdict(evaluated) for must in benchmark.MUSTS["digits"] if not must.holds(evaluated)]
    assert not missed


@pytest.mark.slow
@pytest.mark.parametrize("sweep", ["fashion_mnist", "resnet8"])
def test_intervals_are_as_wide_as_the_errors_that_were_found(
    benchmark: ModuleType, monkeypatch: pytest.MonkeyPatch, sweep: str
) -> None:
    monkeypatch.setattr(prediction, "_DRAWS", 0)
    for optimizer, found in benchmark.errors_of([sweep], published=True).items():
        reading = READINGS[optimizer]
        assert found["steps_error"] <= reading.steps_error
        assert found.get("critical_error", 0.0) <= reading.critical_error  # none where all are bounds


def test_intervals_are_judged_by_the_errors_of_other_networks_only(benchmark: ModuleType) -> None:
    assert benchmark.musts_of("resnet8", None, None, []) == ()
    assert benchmark.musts_of("resnet8", None, None, ["digits", "resnet8"]) == ()
    assert benchmark.musts_of("resnet8", None, "only", ["digits"]) == benchmark.HELD_OUT
    assert benchmark.musts_of("mnist", None, None, []) == benchmark.MUSTS["mnist"]


def test_a_limit_that_is_missed_fails(benchmark: ModuleType) -> None:
    found = {"sgd": [made(benchmark, 0.1, steps=0.3), made(benchmark, 0.5)]}
    evaluated = benchmark.Evaluated(found, 2, 0, [])
    assert benchmark.close("sgd", 2, 1.0).verdict(evaluated).startswith("pass: sgd: part of critical batch sizes")
    assert benchmark.close("sgd", 1.5, 0.8).verdict(evaluated).startswith("fail")
    assert benchmark.off("sgd", "steps", 1.2).holds(evaluated)
    assert not benchmark.off("sgd", "steps", 1.2, worst=True).holds(evaluated)


def test_bounds_do_not_count_unless_they_contradict(benchmark: ModuleType) -> None:
    agrees, contradicts = made(benchmark, None, "agrees"), made(benchmark, None, "contradicts")
    assert benchmark.within([made(benchmark, 0.1), agrees], 1.5) == 1.0
    assert benchmark.within([made(benchmark, 0.1), contradicts], 1.5) == 0.5


@pytest.mark.parametrize(
    ("relation", "true", "true_relation", "bound", "held"),
    [
        ("=", 50.0, "=", "", True),
        (">=", 50.0, "=", "contradicts", True),
        (">=", 200.0, "=", "agrees", True),
        ("=", 200.0, ">=", "contradicts", None),
        ("=", 200.0, "<=", "agrees", None),
    ],
)
def test_bounds_agree_where_both_can_be_true(
    benchmark: ModuleType, relation: str, true: float, true_relation: str, bound: str, held: bool | None
) -> None:
    fit = {"value": 100.0, "interval": [40.0, None], "relation": relation}
    found = benchmark._critical_errors(fit, true, true_relation)
    assert (found["bound"], found["critical_held"], found["half_open"]) == (bound, held, True)
    assert (found["critical"] is None) == (bound != "")


def test_a_sweep_without_references_ends_in_a_sentence(benchmark: ModuleType) -> None:
    with pytest.raises(SystemExit, match="has no references of vgg11: python benchmarks"):
        benchmark.read_references("vgg11")
