"""Published curves: the page in docs/ is what its script gives, and predictions hold what was measured."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture(scope="module")
def published() -> ModuleType:
    spec = importlib.util.spec_from_file_location("published_fits", ROOT / "benchmarks" / "published_fits.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_is_what_the_script_gives(published: ModuleType) -> None:
    assert published.PAGE.read_text(encoding="utf-8") == published.write_page()


def test_the_papers_definition_gives_what_the_paper_prints(published: ModuleType) -> None:
    assert {name: round(published.papers_size(name)) for name in published.PRINTED} == published.PRINTED


def test_predictions_far_beyond_the_runs_hold_what_was_measured(published: ModuleType) -> None:
    for steps in published.read_zhang("steps").values():
        (found,) = published.predict_unseen(steps).predictions
        assert found.extrapolated
        assert found.interval.low <= steps[published.UNSEEN] <= found.interval.high
        assert found.interval.high / found.interval.low < 5
