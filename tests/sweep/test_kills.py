"""Sweeps and workers that are killed at random moments lose nothing that was reported, and find the same winners."""

import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from random import Random

import pytest

from batchlens.sweep._cells import cell_results
from batchlens.sweep._declare import DeclaredSweep, declare
from batchlens.sweep._filling import fill
from batchlens.sweep._store import Store

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")]

KILLS = 20
ARGUMENTS = """dict(
    optimizers=["sgd", "momentum"], batch_sizes=[128, 512], trials=8, keep=3, target=0.95, max_steps=400
)"""
PROGRAM = f"""
import sys
from batchlens.sweep import _filling as execute
from batchlens.sweep._declare import declare

execute._WATCH = 0.0
execute.RETRIES = {KILLS}  # one trial may be hit three times, and that it fails then is for test_filling.py to show
sweep = declare("digits", search=sys.argv[2], **{ARGUMENTS})
execute.fill(sweep, sys.argv[1], workers=2, watch=lambda progress: print(progress.ended, flush=True))
"""


def declared(search: str) -> DeclaredSweep:
    return declare("digits", search=search, **eval(ARGUMENTS))


class Running:
    """A sweep in a process of its own, and how many trials it has reported as done."""

    def __init__(self, path: Path, log: Path, search: str) -> None:
        self.log = log
        with log.open("w") as output:
            self.process = subprocess.Popen([sys.executable, "-c", PROGRAM, str(path), search], stdout=output)

    def reported(self) -> int:
        lines = self.log.read_text().split("\n")[:-1]
        return int(lines[-1]) if lines else 0

    def workers(self) -> list[int]:
        """Children that have been started as workers."""
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
                command = (folder / "cmdline").read_text()
            except OSError:
                continue
            if parent == self.process.pid and "batchlens.sweep._executors.worker" in command:
                found.append(int(folder.name))
        return found

    def wait_for_progress(self, trials: int) -> None:
        while self.process.poll() is None and self.reported() < trials:
            time.sleep(0.01)


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def check_file(path: Path) -> int:
    """How many trials the store holds."""
    if not path.exists() or not path.stat().st_size:
        return 0
    connection = sqlite3.connect(path)
    assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    (count,) = connection.execute("SELECT count(*) FROM trials").fetchone()
    connection.close()
    return int(count)


def outcome(path: Path) -> list[object]:
    """Which trials there are, and which of them are the best; of a guided search those that report."""
    with Store.open(path) as store:
        results = cell_results(store)
        trials = store.read_trials()
    keys = [trial.key for trial in trials]
    assert [(trial.key, trial.reason) for trial in trials if trial.status == "failed"] == []
    assert all(result.complete for result in results)
    assert len(set(keys)) == len(keys)
    best = [[(trial.key, trial.steps) for trial in (result.winner, *result.runners_up, *result.repeats) if trial]
            for result in results]  # fmt: skip
    return [keys, best]


@pytest.fixture(scope="module", params=["sobol", "guided"])
def search(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def undisturbed(search: str, tmp_path_factory: pytest.TempPathFactory) -> list[object]:
    path = tmp_path_factory.mktemp("undisturbed") / "sweep.sqlite"
    fill(declared(search), path, workers=2)
    return outcome(path)


def test_sweep_killed_at_random_moments(tmp_path: Path, search: str, undisturbed: list[object]) -> None:
    random, kills, rounds = Random(1), 0, 0
    while kills < KILLS // 2:
        path, done = tmp_path / f"sweep{rounds}.sqlite", False
        while kills < KILLS // 2 and not done:
            before = check_file(path)
            running = Running(path, tmp_path / "log", search)
            if random.random() < 0.8:  # else also while it starts
                running.wait_for_progress(before + 1)
            time.sleep(random.uniform(0, 1.5))
            workers = running.workers()
            done = running.process.poll() is not None
            running.process.kill()
            running.process.wait()
            kills += not done
            assert check_file(path) >= running.reported()
            deadline = time.monotonic() + 30
            while any(map(is_alive, workers)) and time.monotonic() < deadline:
                time.sleep(0.05)
            assert not any(map(is_alive, workers))
        rounds += 1
        fill(declared(search), path, workers=2)
        assert outcome(path) == undisturbed
    print(f"killed {kills} times in {rounds} sweeps")


def test_workers_killed_at_random_moments(tmp_path: Path, search: str, undisturbed: list[object]) -> None:
    random, kills, rounds = Random(2), 0, 0
    while kills < KILLS // 2:
        path = tmp_path / f"sweep{rounds}.sqlite"
        running = Running(path, tmp_path / "log", search)
        running.wait_for_progress(1)
        while running.process.poll() is None:
            time.sleep(random.uniform(0, 2))
            if kills < KILLS // 2 and (workers := running.workers()):
                os.kill(random.choice(workers), signal.SIGKILL)
                kills += 1
        rounds += 1
        assert running.process.returncode == 0
        check_file(path)
        assert outcome(path) == undisturbed
    print(f"killed {kills} workers in {rounds} sweeps")
