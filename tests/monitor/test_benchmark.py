"""The benchmark of the noise scale says by its status whether the limits hold."""

import importlib.util
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "bench_noise_scale.py"


@pytest.mark.parametrize(("ratio", "status"), [(1.04, 0), (1.1, 1)])
def test_a_default_above_its_limit_fails(ratio: float, status: int, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = importlib.util.spec_from_file_location("bench_noise_scale", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "measure", lambda by, settings, rounds: (0.1, 9.0 if settings else ratio))
    monkeypatch.setattr(sys, "argv", ["bench_noise_scale.py"])
    assert module.main() == status
