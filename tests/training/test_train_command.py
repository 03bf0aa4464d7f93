"""`batchlens train`: what was promised, one line where something is wrong, and Ctrl-C that loses nothing."""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from batchlens import train
from tests.program import run, start

DIGITS = "train digits --optimizer momentum --batch-size 64 --set learning_rate=0.1 --threads 1"
# Does not reach its target before it is stopped.
ENDLESS = "train digits --optimizer sgd --batch-size 64 --set learning_rate=1e-9 --max-steps 3000 --threads 1"


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))


def test_json(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = run(f"{DIGITS} --set momentum=0.8 --seed 3 --json", capsys)
    found = json.loads(out)
    wanted = train("digits", "momentum", 64, {"learning_rate": 0.1, "momentum": 0.8}, seed=3).as_document()
    clocks = ("seconds", "evaluation_seconds")
    assert (status, err) == (0, "")
    assert found | dict.fromkeys(clocks) == json.loads(json.dumps(wanted)) | dict.fromkeys(clocks)
    assert {"status", "steps", "best_metric", "seconds", "history", "relations"} <= found.keys()


def test_table(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    status, out, err = run(DIGITS, capsys)
    assert (status, err) == (0, "")
    assert out.startswith("digits (laptop), momentum, batch size 64\n")
    assert "reached" in out
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_other_targets_and_averages(capsys: pytest.CaptureFixture[str]) -> None:
    more = "--target-on train-loss --target 0.2 --also-targets train-loss:0.5,validation:0.9 --averages each"
    status, out, err = run(f"{DIGITS} {more}", capsys)
    assert (status, err) == (0, "")
    wanted = train(
        "digits", "momentum", 64, {"learning_rate": 0.1}, target_on="train-loss", target=0.2,
        also_targets=["train-loss:0.5", "validation:0.9"], averages="each",
    )  # fmt: skip
    assert "interpolated" in out
    assert wanted.crossings.keys() == {"train-loss 0.2", "train-loss 0.5", "validation 0.9"}
    (_, table) = out.split("Every target that was met on the way")
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in table.splitlines() if line.startswith("│")]
    assert rows == [
        [target, "plain weights" if name == "plain" else f"average, {name}", f"{steps}", f"{interpolated:.6g}"]
        for target, found in wanted.crossings.items()
        for name, (steps, interpolated) in found.items()
    ]


def test_one_target_has_one_table(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(DIGITS, capsys)
    assert "on the way" not in out


def test_a_confirmed_target_comes_no_sooner(capsys: pytest.CaptureFixture[str]) -> None:
    once, twice = (json.loads(run(f"{DIGITS} --json {more}", capsys)[1]) for more in ("", "--confirm-target"))
    assert twice["status"] == "reached"
    assert twice["steps_taken"] >= once["steps_taken"]


def test_a_run_that_fails_says_why(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    mine = tmp_path / "mine.py"
    mine.write_text(
        "from dataclasses import replace\nfrom torch import nn\nfrom batchlens import find_workload\n"
        "mine = replace(find_workload('digits'), model=lambda: nn.Linear(3, 10))\n"
    )
    status, out, _ = run(f"train {mine}:mine --optimizer sgd --batch-size 8 --set learning_rate=0.1", capsys)
    assert status == 1
    assert "RuntimeError" in out


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("train digit --optimizer sgd --batch-size 8", "WORKLOAD must be one of simple_cnn_mnist, "),
        ("train digits --optimizer sdg --batch-size 8", "--optimizer must be one of sgd, momentum, "),
        ("train digits --optimizer sgd --batch-size 0", "--batch-size must be at least 1, got 0."),
        ("train digits --optimizer sgd --batch-size many", "--batch-size must be a whole number, got many."),
        ("train digits --optimizer sgd --batch-size 8 --set lr=1", "--set of sgd must be among learning_rate, got"),
        ("train digits --optimizer sgd --batch-size 8 --set rate", "--set must be NAME=NUMBER, got rate."),
        ("train digits --optimizer sgd --batch-size 8", "--set must give learning_rate, which sgd needs."),
        (f"{DIGITS} --set momentum=1.5", "--set momentum must be in [0, 1), got 1.5."),
        (f"{DIGITS} --max-steps 0", "--max-steps must be at least 1, got 0."),
        (f"{DIGITS} --also-targets train-loss", "--also-targets must be such as train-loss:0.3, got 'train-loss'."),
        (f"{DIGITS} --also-targets loss:0.3", "--also-targets must be one of validation, train, train-loss, got"),
        (f"{DIGITS} --also-targets train:1.5", "--also-targets must be at most 1, the best accuracy there is, got"),
        (f"{DIGITS} --device gpu", "--device must be one of cpu, cuda, mps, got 'gpu'."),
        (f"{DIGITS} --schedule linear", "--schedule must be one of constant, linear_decay, "),
        ("train vgg11_cifar10 --optimizer sgd --batch-size 64 --micro-batch 20 --set learning_rate=1",
         "--micro-batch must be a multiple of 32, the ghost size, got 20."),
    ],
)  # fmt: skip
def test_bad_input(capsys: pytest.CaptureFixture[str], change: str, message: str) -> None:
    status, out, err = run(change, capsys)
    assert (status, out) == (2, "")
    assert err.startswith(f"batchlens: {message}")
    assert err.count("\n") == 1


def test_no_data_says_how_to_get_it(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    command = "train simple_cnn_mnist --optimizer sgd --batch-size 8 --set learning_rate=0.1 --data-dir"
    status, out, err = run(f"{command} {tmp_path}", capsys)
    assert (status, out) == (1, "")
    assert f"`batchlens data fetch mnist --data-dir {tmp_path}`" in err
    assert err.count("\n") == 1


@pytest.mark.skipif(sys.platform == "win32", reason="has no SIGINT")
@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)])
def test_an_interrupted_run_goes_on_with_the_same_command(number: signal.Signals, tmp_path: Path) -> None:
    terminal, end = os.openpty()
    shown = ""
    with start(ENDLESS, stderr=end) as process:
        os.close(end)
        while "target" not in shown:  # the bar is drawn: the run is under way
            shown += os.read(terminal, 4096).decode()
        time.sleep(0.3)
        process.send_signal(number)
        with suppress(OSError):  # how a terminal says that nobody writes any more
            while text := os.read(terminal, 4096).decode():
                shown += text
    os.close(terminal)
    assert process.returncode == 130
    assert "run the same command again to go on." in shown
    (kept,) = (tmp_path / ".cache/batchlens/runs").iterdir()
    with start(f"{ENDLESS} --json", stderr=subprocess.PIPE) as again:
        out, err = again.communicate()
    found, wanted = json.loads(out), train("digits", "sgd", 64, {"learning_rate": 1e-9}, max_steps=3000, threads=1)
    assert err == f"batchlens: going on with {kept}\n"
    assert (found["status"], found["steps_taken"]) == ("not_reached", 3000)
    assert found["history"] == [[entry.step, entry.metric] for entry in wanted.history]
    assert not kept.exists()


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="has no special files")
@pytest.mark.parametrize("options", ["", "--restart"])
def test_what_is_no_checkpoint_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str], options: str) -> None:
    """A device named as the checkpoint was deleted once: as root, even /dev/null."""
    special, folder, notes = tmp_path / "special", tmp_path / "folder", tmp_path / "notes.txt"
    os.mkfifo(special)
    folder.mkdir()
    notes.write_text("precious")
    for path in (special, folder):
        status, _, err = run(f"{DIGITS} --max-steps 1 --checkpoint {path} {options}", capsys)
        assert (status, err.splitlines()[-1]) == (1, f"batchlens: {path} is no plain file; choose another checkpoint.")
        assert path.exists()
    if options:
        status, _, err = run(f"{DIGITS} --max-steps 1 --checkpoint {notes} {options}", capsys)
        assert (status, notes.read_text()) == (1, "precious")
        assert "is not a checkpoint, and is left alone" in err
