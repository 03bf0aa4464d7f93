"""Progress on standard error: lines where nobody is looking, bars where a person is."""

import sys
import time
from pathlib import Path

import pytest

from batchlens.cli import progress
from tests.program import run


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """A line as often as it is asked for."""
    monkeypatch.setattr(progress, "PAUSE", 0.0)


def test_the_first_line_comes_after_a_minute(capsys: pytest.CaptureFixture[str]) -> None:
    with progress.progress_bar("Working") as tell:
        tell(1, 2, "one")
        tell(2, 2, "two")
    assert capsys.readouterr().err == ""


@pytest.mark.usefixtures("quick")
def test_lines_tell_what_and_how_far(capsys: pytest.CaptureFixture[str]) -> None:
    with progress.progress_bar("Drawing") as tell:
        tell(3, 7, "a figure")
    assert list(progress.track(["a"], "Reading")) == ["a"]
    assert capsys.readouterr().err.splitlines() == [
        "batchlens: Drawing: a figure, 3 of 7 (0:00:00)",
        "batchlens: Reading: a, 1 of 1 (0:00:00)",
    ]


def test_waiting_tells_that_it_goes_on(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(progress, "PAUSE", 0.02)
    with progress.waiting("Optimising"):
        time.sleep(0.3)
    lines = capsys.readouterr().err.splitlines()
    assert lines
    assert all(line.startswith("batchlens: Optimising (0:00:0") for line in lines)


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("steps --optimizer sgd --batch-sizes 4,16 --target 0.1 --dim 100", "batchlens: Tuning: "),
        (
            "train digits --optimizer sgd --batch-size 64 --set learning_rate=0.1 --max-steps 3 --checkpoint {0}/run",
            "batchlens: step 1 of at most 3, accuracy ",
        ),
        (
            "sweep digits --optimizers sgd --batch-sizes 64 --trials 1 --max-steps 3 --workers 1 --store {0}/a.sqlite",
            "batchlens: digits: 0 of 1 searches complete, 0 trials",
        ),
    ],
)
def test_long_work_writes_lines_without_a_terminal(
    command: str, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, out, err = run(command.format(tmp_path), capsys)
    assert status == 0
    assert out
    assert any(line.startswith(words) for line in err.splitlines())


def test_bars_where_a_person_is_looking(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    with progress.progress_bar("Working") as tell:
        tell(1, 2, "[/red] one")
    with progress.waiting("Optimising"):
        pass
    shown = capsys.readouterr().err
    assert "[/red] one" in shown
    assert "Optimising" in shown
