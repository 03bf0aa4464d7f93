"""The public door: a file in, the path of a page out."""

from pathlib import Path

import pytest

from batchlens import BatchlensError, write_report
from tests.report.test_sweeps import fill


def test_the_page_stands_beside_the_store(tmp_path: Path) -> None:
    fill(tmp_path / "my.sweep.sqlite", optimizers=("sgd",), sizes=(16, 64))
    page = write_report(str(tmp_path / "my.sweep.sqlite"))
    assert page == tmp_path / "my.sweep-report" / "index.html"
    assert "How large a batch can digits use" in page.read_text(encoding="utf-8")


def test_another_folder_and_progress(tmp_path: Path) -> None:
    fill(tmp_path / "sweep.sqlite", optimizers=("sgd",), sizes=(16, 64))
    seen: list[tuple[int, int, str]] = []
    page = write_report(tmp_path / "sweep.sqlite", tmp_path / "here", lambda *words: seen.append(words))
    assert page == tmp_path / "here" / "index.html"
    assert page.is_file()
    assert [(done, total) for done, total, _ in seen] == [(number, 5) for number in range(1, 6)]


def test_what_is_no_store_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    for name in ("nothing.sqlite", "notes.txt"):
        with pytest.raises(BatchlensError, match=name):
            write_report(tmp_path / name)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]
