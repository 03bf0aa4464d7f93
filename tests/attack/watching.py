"""Attempts in a process of their own: whatever hangs there is ended, whatever crashes is started anew."""

import json
import os
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

from batchlens.sweep._declare import declare
from batchlens.sweep._filling import fill
from tests.attack.tally import Tally
from tests.sweep.test_damaged_stores import make_store

# Seconds after which an attempt counts as hanging.
PATIENCE = 60.0


def attack(kind: str, seed: int, count: int, folder: Path, tally: Tally, deadline: float = float("inf")) -> None:
    """`count` attempts of a kind, or as many as there is time for."""
    prepare(folder)
    done = 0
    while done < count and time.monotonic() < deadline:
        done = _watch(kind, seed, done, count, folder, tally, deadline)


def prepare(folder: Path) -> None:
    """Files for those that need some."""
    make_store(folder / "store.sqlite")
    sweep = declare("digits", ["sgd"], batch_sizes=[64], trials=1, max_steps=2, search="sobol")
    fill(replace(sweep, named=False), folder / "done.sqlite")
    (folder / "runs.csv").write_text("batch_size,steps\n4,100\n16,30\n64,20\n")


def _watch(kind: str, seed: int, first: int, count: int, folder: Path, tally: Tally, deadline: float) -> int:
    """Until the process ends; the number of the next attempt."""
    command = [sys.executable, "-m", "tests.attack.victim", kind, str(seed), str(first), str(count), str(folder)]
    around = {**os.environ, "HOME": str(folder), "BATCHLENS_DATA": str(folder / "data"), "OMP_NUM_THREADS": "1"}
    with (folder / "log").open("w+") as log:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, env=around)
        lines: SimpleQueue[dict[str, Any] | None] = SimpleQueue()
        threading.Thread(target=_listen, args=(process, lines), daemon=True).start()
        number, what = first, "its start"
        try:
            while time.monotonic() < deadline:
                line = lines.get(timeout=PATIENCE)
                if line is None:
                    break
                number, what = line["number"], line.get("what", what)
                if "problem" in line:
                    tally.count(kind, line["problem"] and f"{what}: {line['problem']}")
                    number += 1
            else:
                return count
        except Empty:
            tally.count(kind, f"{what}: no answer in {PATIENCE:.0f} s")
            return number + 1
        finally:
            process.kill()
            process.wait()
        if number < count:
            log.seek(0)
            tally.count(kind, f"{what}: the process ended with status {process.returncode}: {log.read()[-300:]}")
            number += 1
        return number


def _listen(process: subprocess.Popen[str], lines: SimpleQueue[dict[str, Any] | None]) -> None:
    assert process.stdout is not None
    with process.stdout as output:
        for line in output:
            lines.put(json.loads(line))
    lines.put(None)
