"""Sweeps and workers that are ended at random moments: nothing is lost or doubled, and the winners are the same."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from random import Random

from batchlens.sweep._declare import DeclaredSweep
from batchlens.sweep._filling import fill
from tests.attack.nursery import SWEEP
from tests.attack.tally import Tally
from tests.sweep.test_kills import Running, check_file, declared, is_alive, outcome

LARGER = declared("sobol")

# The part of all kills that must find a sweep which has trained since it was started.
LEAST_AMID = 0.5
SIGNALS = (signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGINT)


class Nursery:
    """A process that forks sweeps."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.attack.nursery"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def start(self, store: Path, log: Path) -> int:
        """The number of the process."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps([str(store), str(log)]), file=self._process.stdin, flush=True)
        return int(self._process.stdout.readline())

    def close(self) -> None:
        """No sweep is left."""
        self._process.communicate()


def undisturbed(sweep: DeclaredSweep, path: Path) -> list[object]:
    """What a sweep finds where nobody ends it; in a process of its own, as torch's random numbers are a process's."""
    fill(sweep, path, workers=1)
    return outcome(path)


def kill_sweeps(count: int, random: Random, folder: Path, tally: Tally) -> None:
    """Of sweeps that train in their own process, run again until each is complete."""
    wanted = undisturbed(SWEEP, folder / "undisturbed.sqlite")
    nursery, kills, amid, rounds = Nursery(), 0, 0, 0
    try:
        while kills < count:
            path, log = folder / f"killed{rounds}.sqlite", folder / f"log{rounds}"
            while kills < count:
                number, before = random.choice(SIGNALS), _state(path)
                process = nursery.start(path, log)
                ended = _end(process, number, random.uniform(0.01, 1.5))
                problem = _look(path, log)
                if not ended:
                    break  # it was complete before
                kills += 1
                amid += _state(path) != before
                tally.count(f"{number.name} to a sweep", problem)
            _end(nursery.start(path, log), None, 120)
            last = log.read_text().split("\n")[-2]
            same = last == "complete" and outcome(path) == wanted
            tally.count("sweep after its kills", "" if same else f"round {rounds}: {last}, or others won")
            rounds += 1
    finally:
        nursery.close()
    enough = amid >= LEAST_AMID * kills
    tally.count("kills that hit training", "" if enough else f"{amid} of {kills}: the others show nothing")
    print(f"{amid} of {kills} kills hit a sweep that had trained, in {rounds} sweeps")


def _state(path: Path) -> tuple[int, set[tuple[str, int]]]:
    """What a run leaves once it trains: trials in its store, and checkpoints beside it."""
    files = path.with_name(f"{path.name}.runs").glob("*.pt")
    return check_file(path), {(file.name, file.stat().st_mtime_ns) for file in files}


def kill_workers(count: int, random: Random, folder: Path, tally: Tally) -> None:
    """Of sweeps that have two workers, which go on."""
    wanted = undisturbed(LARGER, folder / "undisturbed.sqlite")
    kills, rounds = 0, 0
    while kills < count:
        path = folder / f"workers{rounds}.sqlite"
        running = Running(path, folder / "log", "sobol")
        running.wait_for_progress(1)
        while running.process.poll() is None:
            time.sleep(random.uniform(0, 1))
            if kills < count and (workers := running.workers()):
                os.kill(random.choice(workers), random.choice([signal.SIGKILL, signal.SIGTERM]))
                kills += 1
                tally.count("signal to a worker")
        check_file(path)
        same = running.process.returncode == 0 and outcome(path) == wanted
        tally.count("sweep after its workers' kills", "" if same else f"round {rounds}: others won")
        rounds += 1


def _end(process: int, number: signal.Signals | None, seconds: float) -> bool:
    """Whether the process was alive after `seconds`; it is not any more."""
    deadline = time.monotonic() + seconds
    while is_alive(process) and time.monotonic() < deadline:
        time.sleep(0.01)
    if not is_alive(process):
        return False
    os.kill(process, number or signal.SIGKILL)
    deadline = time.monotonic() + 30
    while is_alive(process) and time.monotonic() < deadline:
        time.sleep(0.01)
    if is_alive(process):
        os.kill(process, signal.SIGKILL)
    return True


def _look(path: Path, log: Path) -> str:
    """What is wrong with a store after a kill, if anything is."""
    lines = log.read_text().split("\n")[:-1] if log.exists() else []
    reported = max((int(line) for line in lines if line.isdecimal()), default=0)
    try:
        kept = check_file(path)
    except Exception as error:
        return f"the store cannot be read: {error}"
    if kept < reported:
        return f"{reported} trials were reported, {kept} are kept"
    strange = [line for line in lines if not line.isdecimal() and line not in ("complete", "interrupted")]
    return "" if not strange else f"the sweep ended with {strange[-1]}"
