"""A study small enough to be computed in a few seconds, and the report on it, shared by the tests of the report."""

from dataclasses import dataclass
from pathlib import Path

import pytest

from batchlens.report._page.records import Claim
from batchlens.report._paper import write_paper
from batchlens.report._theory.study import Study


@dataclass(frozen=True)
class Report:
    """A report that was written, and what it is about."""

    study: Study
    folder: Path
    claims: list[Claim]
    progress: list[tuple[int, int, str]]


@pytest.fixture(scope="session")
def study() -> Study:
    return Study.of_power_law(dim=50, bins=10, target=0.05)


@pytest.fixture(scope="session")
def report(study: Study, tmp_path_factory: pytest.TempPathFactory) -> Report:
    folder = tmp_path_factory.mktemp("reports") / "report"
    progress: list[tuple[int, int, str]] = []
    claims = write_paper(study, folder, progress=lambda *words: progress.append(words))
    return Report(study, folder, claims, progress)
