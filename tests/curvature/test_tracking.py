"""Measuring along a run: the run is the training loop's own, and one that was interrupted goes on."""

import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import batchlens as bl
from batchlens.curvature import _measured_run
from batchlens.errors import BatchlensError
from batchlens.training import _run
from batchlens.training._arguments import check_arguments, load_data
from batchlens.training._threads import choose_threads, limit_threads
from batchlens.training.loop import Interrupted
from tests.program import run, start

RATE = {"learning_rate": 0.5}


def measured(**options: Any) -> bl.Measurement:
    given: dict[str, Any] = {"steps": [0, 5, 12], "examples": 100} | options
    return bl.measure_training("digits", "sgd", 64, RATE, **given)


def losses_of_a_plain_run(steps: int) -> list[float]:
    """The losses of the batches of `bl.train`, from 0 on, by weights after 0, 1, ... steps: what to be equal to."""
    arguments = check_arguments("digits", "sgd", 64, RATE, max_steps=steps + 1)
    data = load_data(arguments.workload, None)
    found = []
    with limit_threads(choose_threads(arguments, data)):
        plain = _run.Run(arguments, data, None)
        chosen = torch.arange(100) * len(data.train) // 100
        prepare = plain.batches.prepare
        inputs, targets = prepare.inputs(data.train.inputs[chosen]), prepare.targets(data.train.targets[chosen])

        def look(_: int) -> None:
            with torch.no_grad():
                found.append(float(arguments.workload.loss(plain.model(inputs), targets).double().mean()))

        plain.go(lambda _: None, look)
    return found


def test_weights_are_those_of_the_training_loop() -> None:
    plain = losses_of_a_plain_run(12)
    found = measured()
    assert [moment.step for moment in found.moments] == [0, 5, 12]
    for moment in found.moments:
        assert moment.loss == pytest.approx(plain[moment.step], rel=1e-12)
    assert found.status == "complete"
    assert found.declaration["settings"] == RATE
    assert [step for step, _ in found.loss_curve][:4] == [0, 1, 2, 3]


def test_an_interrupted_run_goes_on_and_comes_to_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, file = measured(), tmp_path / "digits.json"
    asked: list[None] = []

    def stop() -> bool:
        asked.append(None)
        return len(asked) > 14  # within the training between steps 5 and 12, or the parts of a measurement

    with pytest.raises(Interrupted):
        measured(out=file, stop=stop)
    kept = bl.read_measurement(file)
    assert kept.status == "unfinished"
    assert 1 <= len(kept.moments) < 3
    calls: list[int] = []

    def measure(*given: Any, **how: Any) -> bl.Measurement:
        calls.append(how["step"])
        return bl.measure(*given, **how)

    monkeypatch.setattr(_measured_run, "measure", measure)
    again = measured(out=file)
    assert calls == [0, 5, 12][len(kept.moments) :]
    assert [m.top_curvature for m in again.moments] == [m.top_curvature for m in whole.moments]
    assert again.loss_curve == whole.loss_curve
    assert not list(tmp_path.glob("*checkpoint*"))
    assert bl.read_measurement(file).as_document() == again.as_document()


def test_earlier_steps_can_be_added_later(tmp_path: Path) -> None:
    file = tmp_path / "digits.json"
    measured(out=file, steps=[6])
    found = measured(out=file, steps=[3, 6])
    assert [moment.step for moment in found.moments] == [3, 6]


def test_what_is_complete_is_read_without_its_data_and_left_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "digits.json"
    found = measured(out=file, steps=[0, 2])
    file.write_text(" " + file.read_text())
    monkeypatch.setattr("batchlens.curvature.tracking.load_data", lambda *_: pytest.fail("data were read"))
    assert measured(out=file, steps=[2]).as_document() == found.as_document()
    assert file.read_text().startswith(" ")


def test_steps_of_the_top_eigenvalue_alone(tmp_path: Path) -> None:
    file = tmp_path / "digits.json"
    first = measured(out=file, steps=[4], top_steps=[2, 4])
    assert ([m.step for m in first.moments], [step for step, _ in first.top_curvatures]) == ([4], [2])
    again = measured(out=file, steps=[2, 4], top_steps=[3])  # what was found in passing is now measured
    assert ([m.step for m in again.moments], [step for step, _ in again.top_curvatures]) == ([2, 4], [2, 3])
    assert again.moments[0].top_curvature.value == pytest.approx(first.top_curvatures[0][1], rel=0.03)


def test_a_file_that_cannot_be_written_is_refused_before_anything_is_done(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("")

    def progress(*_: object) -> None:
        pytest.fail("something was done")

    with pytest.raises(BatchlensError, match=r"one.json cannot be written \(.*\); choose another file"):
        measured(out=tmp_path / "text" / "one.json", progress=progress)


def test_a_checkpoint_of_a_later_step_is_not_used(tmp_path: Path) -> None:
    file = tmp_path / "digits.json"

    def stop() -> bool:
        return bool(file.exists())  # after the first moment

    with pytest.raises(Interrupted):
        measured(out=file, steps=[8, 12], stop=stop)
    found = measured(out=file, steps=[3])
    assert [moment.step for moment in found.moments] == [3, 8]
    assert found.moments[0].loss == pytest.approx(losses_of_a_plain_run(3)[3], rel=1e-12)


def test_a_file_of_another_run_is_refused(tmp_path: Path) -> None:
    measured(out=tmp_path / "digits.json", steps=[0])
    with pytest.raises(BatchlensError, match=r"another measurement \(seed 0, not 1\)"):
        measured(out=tmp_path / "digits.json", steps=[0], seed=1)


def test_a_run_that_diverges_says_so() -> None:
    found = bl.measure_training("digits", "sgd", 64, {"learning_rate": 1e6}, steps=[0, 30], examples=50)
    assert found.status == "diverged"
    assert [moment.step for moment in found.moments] == [0]
    assert found.reason
    assert "diverged" in repr(found)


def test_a_run_that_fails_is_not_said_to_have_diverged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, take = tmp_path / "digits.json", _run.Run._take_step

    def fail(self: _run.Run) -> str:
        if self.step == 7:
            raise RuntimeError("out of memory")
        return take(self)

    monkeypatch.setattr(_run.Run, "_take_step", fail)
    with pytest.raises(BatchlensError, match=r"the run failed after 7 steps \(RuntimeError: out of memory\)"):
        measured(out=file)
    kept = bl.read_measurement(file)
    assert ([moment.step for moment in kept.moments], kept.status) == ([0, 5], "unfinished")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"steps": []}, "`steps` must have one step at least"),
        ({"steps": [-1]}, "`steps` must be at least 0"),
        ({"examples": 1}, "`examples` must be at least 2"),
        ({"target": 0.1}, "`target` is not known"),
        ({"max_steps": 12}, "`max_steps` must be more than the last of `steps`, 12, got 12"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any], says: str) -> None:
    with pytest.raises((ValueError, TypeError), match=says):
        measured(**options)


# The command line --------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_command_measures_and_writes_file_and_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, page = tmp_path / "digits.json", tmp_path / "page"
    command = f"measure digits --set learning_rate=0.5 --steps 0,4 --examples 60 --out {file} --page {page}"
    status, out, _ = run(command, capsys)
    assert status == 0
    assert "top" in out
    assert (page / "index.html").exists()
    status, out, err = run(f"{command} --json", capsys)  # nothing is left to do
    assert (status, err) == (0, "")
    assert '"moments": [{"step": 0' in out
    status, out, _ = run(f"report {file} --out {tmp_path / 'again'}", capsys)
    assert status == 0
    assert f"Page: {tmp_path / 'again' / 'index.html'}" in out


def test_the_command_takes_the_middle_of_the_search_space_unless_told(capsys: pytest.CaptureFixture[str]) -> None:
    status, _, err = run("measure digits --steps 0 --examples 20 --json", capsys)
    assert status == 0
    assert err == "batchlens: --set learning_rate=0.055, the middle of its search space\n"


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ("--steps 0,x", "--steps must be a whole number, got x."),
        ("--examples 1", "--examples must be at least 2, got 1."),
        ("--set learning_rate=-1", "--set learning_rate must be finite and at least 0, got -1.0."),
        ("--set a=1 --set a=2", "--set must give a setting once, got a 2 times."),
        ("--optimizer newton", "--optimizer must be one of"),
        ("--error 2", "--error must be in (0, 1], got 2.0."),
        ("--density-probes 1", "--density-probes must be 0 or at least 2"),
    ],
)
def test_the_command_names_what_is_wrong(options: str, says: str, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = run(f"measure digits --steps 0 {options}", capsys)
    assert (status, out) == (2, "")
    assert says in err.splitlines()[-1]


@pytest.mark.parametrize(
    ("page", "says"),
    [
        ("{0}/text", "{0}/text is a file; the report needs a folder. Choose another --page."),
        (
            "{0}/text/page",
            "would be inside {0}/text, which is a file; the report needs a folder. Choose another --page.",
        ),
    ],
)
def test_a_page_that_cannot_be_written_is_told_before_anything_is_measured(
    page: str, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "text").write_text("")
    command = f"measure digits --steps 0 --out {tmp_path}/one.json --page {page.format(tmp_path)}"
    status, out, err = run(command, capsys)
    assert (status, out) == (1, "")
    assert err.endswith(f"{says.format(tmp_path)}\n")
    assert [path.name for path in tmp_path.iterdir()] == ["text"]


LONG = "measure digits --set learning_rate=0.5 --steps 0,1400 --examples 1500 --density-probes 4 --threads 1"
GOES_ON = "run the same command again to go on.\n"


def interrupted(command: str, ready: Callable[[], bool], times: int = 1) -> tuple[int, str, str]:
    """Presses Ctrl-C once `ready` says so, once or several times."""
    with start(command, stderr=subprocess.PIPE) as process:
        deadline = time.monotonic() + 100
        while not ready() and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.02)
        for _ in range(times):
            process.send_signal(signal.SIGINT)
            time.sleep(0.2)
        out, err = process.communicate(timeout=100)
    return process.returncode, out, err


def test_ctrl_c_in_an_import_has_the_same_status(tmp_path: Path) -> None:
    """A file of one's own that presses it inside `exec`, as imports do."""
    press = "import os, signal, time; os.kill(os.getpid(), signal.SIGINT); time.sleep(30)"
    (tmp_path / "own.py").write_text(f"exec({press!r})")
    status, out, err = interrupted(f"measure {tmp_path}/own.py:one --out {tmp_path}/one.json", lambda: True, times=0)
    assert (status, out) == (130, "")
    assert err.endswith(f"batchlens: interrupted before the end; {GOES_ON}")


@pytest.mark.slow
@pytest.mark.parametrize("times", [1, 3])
@pytest.mark.parametrize("waits_for", ["one.json.checkpoint", "one.json"])
def test_ctrl_c_at_any_stage_says_how_to_go_on(tmp_path: Path, waits_for: str, times: int) -> None:
    """Within the first measurement and within the training after it, once and in impatience."""
    status, out, err = interrupted(f"{LONG} --out {tmp_path}/one.json", (tmp_path / waits_for).exists, times)
    assert (status, out) == (130, "")
    assert err.endswith(GOES_ON)
    status, _, err = interrupted(LONG.replace("1400", "3") + f" --out {tmp_path}/one.json", lambda: True, times=0)
    assert (status, err) == (0, "")


@pytest.mark.slow
def test_ctrl_c_without_a_file_says_what_would_keep_the_run(tmp_path: Path) -> None:
    began = time.monotonic()
    longer = LONG.replace("1400", "1400000")  # no processor is done with that in six seconds
    status, out, err = interrupted(longer, lambda: time.monotonic() > began + 6)
    assert (status, out) == (130, "")
    assert err.endswith("; with --out it would be kept.\n")
