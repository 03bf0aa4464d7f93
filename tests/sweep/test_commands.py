"""`batchlens sweep`, `report` and `merge`: what was promised, one line where something is wrong, and Ctrl-C."""

import csv
import json
import os
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from batchlens.sweep._cells import cell_results
from batchlens.sweep._declaration import Declaration
from batchlens.sweep._store import Store
from batchlens.sweep._trial import Key, Task
from batchlens.sweep.results import read_sweep
from tests.program import run, start
from tests.sweep.simulation import BUDGET, make_declaration, make_trial

SWEEP = (
    "sweep digits --search sobol --optimizers sgd,momentum --batch-sizes 1024,256 --trials 4 --target 0.9 "
    "--max-steps 120 --workers 1 --no-extend"
)
# Takes minutes if it is not stopped.
ENDLESS = (
    "sweep digits --search sobol --optimizers sgd --batch-sizes 64 --trials 500 --target 1 --max-steps 200 --workers 1"
)
POINT = {
    "seconds",
    "batch_size", "status", "steps", "interval", "search_steps", "runs", "winner", "learning_rate",
    "effective_learning_rate", "settings", "complete", "counted", "statuses", "repeats", "flags",
}  # fmt: skip


def document(command: str, capsys: pytest.CaptureFixture[str]) -> Any:
    status, out, err = run(command, capsys)
    assert (status, err, out.count("\n")) == (0, "", 1)
    return json.loads(out)


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    """A store that the command line made, and what it printed."""
    path = tmp_path_factory.mktemp("swept") / "digits.sqlite"
    with start(f"{SWEEP} --store {path} --json", stderr=subprocess.PIPE) as process:
        out, err = process.communicate()
    assert (process.returncode, err) == (0, "")
    return path, json.loads(out)


@pytest.fixture
def made_up(tmp_path: Path) -> Path:
    """A store of one search that is complete and one without any trial."""
    path = tmp_path / "made_up.sqlite"
    fill(path, make_declaration(trials=2), "", [0, 1])
    return path


def fill(path: Path, declaration: Declaration, shard: str, numbers: list[int]) -> None:
    with Store.open_to_write(path, declaration, shard) as store:
        for number in numbers:
            task = Task(Key("sgd", 16, number), {"learning_rate": 0.5}, {"learning_rate": 0.1}, 0, BUDGET)
            store.add(make_trial(task, "reached", 7 + number))


# ---------------------------------------------------------------------------------------------
# sweep
# ---------------------------------------------------------------------------------------------


def test_json(swept: tuple[Path, Any]) -> None:
    path, found = swept
    assert (found["store"], found["complete"], found["cells_done"], found["cells"]) == (str(path), True, 4, 4)
    assert found["ran"] == found["ended"] >= 16
    assert [curve["optimizer"] for curve in found["curves"]] == ["sgd", "momentum"]
    with Store.open(path) as store:
        results = {result.cell: result for result in cell_results(store)}
    for curve in found["curves"]:
        assert curve["critical_batch_size"].keys() == {"value", "relation", "definition"}
        assert [entry["definition"] for entry in curve["critical_batch_sizes"]] == ["knee", "overhead", "fit", "bend"]
        assert [point["batch_size"] for point in curve["points"]] == [256, 1024]
        for point in curve["points"]:
            result = results[curve["optimizer"], point["batch_size"]]  # type: ignore[index]
            assert point.keys() == POINT
            assert point["flags"] == list(result.flags)
            assert point["statuses"] == result.statuses
            if result.winner is not None:
                assert (point["winner"], point["steps"]) == (result.winner.key.number, result.winner.steps)
                assert point["settings"] == result.winner.settings
    assert any(point["steps"] for curve in found["curves"] for point in curve["points"])


def test_running_it_again_runs_nothing_and_prints_a_table(
    swept: tuple[Path, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    path, found = swept
    content = path.read_bytes()
    status, out, err = run(f"{SWEEP} --store {path}", capsys)
    assert (status, err) == (0, "")
    assert out.startswith("digits (laptop): fewest steps to 0.9 on the validation set\n")
    assert f"0 trials run, {found['ended']} in {path}" in out.replace("\n", " ")
    assert out.endswith(f"More: batchlens report {path}\n")
    with Store.open(path) as store:
        assert len(store.read_trials()) == found["ended"]
    again = document(f"{SWEEP} --store {path} --json", capsys)
    assert again["ran"] == 0
    assert again["curves"] == found["curves"]
    assert len(path.read_bytes()) == len(content)


def test_another_sweep_is_refused(swept: tuple[Path, Any], capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = run(f"{SWEEP} --seed 1 --store {swept[0]}", capsys)
    assert (status, out) == (1, "")
    assert err == f"batchlens: {swept[0]} holds another sweep: seed is 0, not 1.\n"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--optimizers sdg", "--optimizers must be one of sgd, momentum, "),
        ("--optimizers sgd,", "--optimizers must be one of sgd, momentum, "),
        ("--optimizers sgd,sgd", "--optimizers must differ from one another, got sgd twice."),
        ("--optimizers sgd --batch-sizes 0,4", "--batch-sizes must be at least 1, got 0."),
        ("--optimizers sgd --batch-sizes 64..8", "--batch-sizes must be LOW..HIGH with 0 < LOW <= HIGH, got 64..8."),
        ("--optimizers sgd --trials 0", "--trials must be at least 1, got 0."),
        ("--optimizers sgd --trials many", "--trials must be a whole number, got many."),
        ("--optimizers sgd --target nan", "--target must be finite, got nan."),
        ("--optimizers sgd --max-steps 0", "--max-steps must be at least 1, got 0."),
        ("--optimizers sgd --keep 0", "--keep must be at least 1, got 0."),
        ("--optimizers sgd --repeats -1", "--repeats must be at least 0, got -1."),
        ("--optimizers sgd --workers 0", "--workers must be at least 1, got 0."),
        ("--optimizers sgd --cpus 0", "--cpus must be at least 1, got 0."),
        ("--optimizers sgd --gpus -1", "--gpus must be finite and at least 0, got -1.0."),
        ("--optimizers sgd --shard 3/2", "--shard must be I/N with I from 1 to N, got '3/2'."),
        ("--search sobol --optimizers sgd --shard 1/2 --extend", "--repeats and --extend need the whole sweep"),
        ("--optimizers sgd --workers 1 --ray auto", "--workers is for this machine and --ray for a cluster"),
        ("", "Missing option '--optimizers'."),
    ],
)
def test_bad_input(capsys: pytest.CaptureFixture[str], tmp_path: Path, options: str, message: str) -> None:
    status, out, err = run(f"sweep digits --store {tmp_path / 'sweep.sqlite'} {options}", capsys)
    assert (status, out) == (2, "")
    assert err.startswith(f"batchlens: {message}")
    assert err.count("\n") == 1


def test_unknown_workload(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    status, _, err = run(f"sweep digit --optimizers sgd --store {tmp_path / 'sweep.sqlite'}", capsys)
    assert status == 2
    assert err.startswith("batchlens: WORKLOAD must be one of simple_cnn_mnist, ")


def test_missing_torch_says_how_to_get_it(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("raise ImportError('no torch here')")
    command = f"sweep digits --optimizers sgd --store {tmp_path / 'sweep.sqlite'}"
    with start(command, stderr=subprocess.PIPE, env=os.environ | {"PYTHONPATH": str(tmp_path)}) as process:
        out, err = process.communicate()
    assert (process.returncode, out) == (1, "")
    assert err == 'batchlens: torch is not installed: run `pip install "batchlens[train]"`.\n'


@pytest.mark.skipif(sys.platform == "win32", reason="has no SIGINT")
@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)])
def test_an_interrupted_sweep_says_what_is_kept(number: signal.Signals, tmp_path: Path) -> None:
    terminal, end = os.openpty()
    path, shown = tmp_path / "sweep.sqlite", ""
    with start(f"{ENDLESS} --store {path}", stderr=end) as process:
        os.close(end)
        while not re.search(r" [1-9]\d* trials", shown):
            shown += os.read(terminal, 4096).decode(errors="replace")
        process.send_signal(number)
        asked = time.monotonic()
        with suppress(OSError):  # how a terminal says that nobody writes any more
            while text := os.read(terminal, 4096).decode(errors="replace"):
                shown += text
        out, _ = process.communicate()
    os.close(terminal)
    assert time.monotonic() - asked < 5
    assert (process.returncode, out) == (130, "")
    assert "digits: 0 of 1 searches complete, " in shown
    assert "left" in shown
    assert "steps" in shown
    with Store.open(path) as store:
        kept = len(store.read_trials())
    last = shown.splitlines()[-1].rpartition("\x1b[2K")[2]
    assert last == (
        f"batchlens: interrupted with {kept} trials in {path}, {kept} of them from this run; "
        "run the same command again to go on."
    )


# ---------------------------------------------------------------------------------------------
# report and merge
# ---------------------------------------------------------------------------------------------


def test_report(swept: tuple[Path, Any], capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path, found = swept
    status, out, err = run(f"report {path} --out {tmp_path / 'page'} --csv {tmp_path / 'tables'}", capsys)
    assert (status, err) == (0, "")
    assert out.startswith("Critical batch size (95% interval)\n")
    for word in ("knee", "overhead", "fit", "95% interval", "flags", "1,024"):
        assert word in out
    assert out.endswith(f"Page: {tmp_path / 'page/index.html'}\n")
    assert sorted(file.name for file in (tmp_path / "tables").iterdir()) == [
        "histories.csv", "results.csv", "trials.csv",
    ]  # fmt: skip
    rows = list(csv.DictReader((tmp_path / "tables/results.csv").read_text().splitlines()))
    points = {
        (curve["optimizer"], point["batch_size"]): point for curve in found["curves"] for point in curve["points"]
    }
    assert len(rows) == len(points)
    for row in rows:
        point = points[row["optimizer"], int(row["batch_size"])]
        assert row["steps"] == ("" if point["steps"] is None else str(point["steps"]))
        if point["steps"] is not None:
            assert float(row["learning_rate"]) == point["learning_rate"]


def test_report_as_json(swept: tuple[Path, Any], capsys: pytest.CaptureFixture[str]) -> None:
    path, found = swept
    told = document(f"report {path} --json", capsys)
    assert told["page"] == str(path.with_name("digits-report") / "index.html")
    assert Path(told["page"]).is_file()
    assert told["csv"] == []
    assert told["curves"] == found["curves"]


def test_report_shows_searches_without_a_winner(made_up: Path, capsys: pytest.CaptureFixture[str]) -> None:
    points = document(f"report {made_up} --json", capsys)["curves"][0]["points"]
    assert [point["status"] for point in points] == ["reached", "unfinished"]
    assert [point["steps"] for point in points] == [7, None]
    assert points[0]["interval"] == [7.0, 8.0]
    assert points[0]["flags"] == []
    _, out, _ = run(f"report {made_up}", capsys)
    assert "unfinished" in out


def test_merge(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    parts = [tmp_path / f"part{index}.sqlite" for index in (1, 2)]
    for index, part in enumerate(parts, start=1):
        fill(part, make_declaration(trials=2), f"{index}/2", [index - 1])
    out = tmp_path / "all.sqlite"
    status, told, err = run(f"merge {out} {parts[0]} {parts[1]}", capsys)
    assert (status, err) == (0, "")
    assert told.startswith(f"{out}: 2 trials; 1 of 2 searches are complete.\nWhat is missing: batchlens sweep digits")
    assert read_sweep(out).to_frame()["steps"].tolist()[0] == 7
    again = tmp_path / "again.sqlite"
    found = document(f"merge {again} {parts[0]} {parts[1]} --json", capsys)
    wanted = {"store": str(again), "ended": 2, "cells_done": 1, "cells": 2, "complete": False}
    assert {name: found[name] for name in wanted} == wanted


@pytest.mark.parametrize(
    ("command", "status", "message"),
    [
        ("report {0}/absent.sqlite", 1, "{0}/absent.sqlite is not a file."),
        ("report {0}/text", 1, "{0}/text is not a sweep's store."),
        ("report {0}/made_up.sqlite --out {0}/text", 1, "{0}/text is a file; the report needs a folder."),
        ("report {0}/made_up.sqlite --csv {0}/text", 1, "{0}/text cannot be written to: File exists."),
        ("report", 2, "Missing argument 'FILE'."),
        ("merge {0}/new.sqlite", 2, "Missing argument 'IN...'."),
        ("merge {0}/text {0}/made_up.sqlite", 1, "{0}/text is there already."),
        ("merge {0}/new.sqlite {0}/text", 1, "{0}/text is not a sweep's store."),
    ],
)
def test_what_cannot_be_read_or_written(
    made_up: Path, capsys: pytest.CaptureFixture[str], command: str, status: int, message: str
) -> None:
    folder = made_up.parent
    (folder / "text").write_text("hello, this is not a database, and long enough to show it" * 20)
    ended, out, err = run(command.format(folder), capsys)
    assert (ended, out) == (status, "")
    assert err.startswith(f"batchlens: {message.format(folder)}")
    assert err.count("\n") == 1
    assert not (folder / "new.sqlite").exists()
