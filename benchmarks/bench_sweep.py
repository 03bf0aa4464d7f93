"""Throughput of a sweep with two workers against two bare processes that train the same trials one after the other.

Rounds of the two alternate, so that whatever else the machine does meets both; their ratio is what counts.  Trials use
up their step budget, so that all take the same time; starting processes and loading torch is left out on both sides.

    python benchmarks/bench_sweep.py [--trials 60] [--rounds 3]
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import fmean, median

from batchlens.sweep import _filling as execute
from batchlens.sweep._declare import DeclaredSweep, declare
from batchlens.sweep._progress import Progress
from batchlens.sweep._store import Store

WORKERS = 2
LEAST_RATIO, MOST_COORDINATION = 0.95, 0.02
OUT_OF_REACH = 1.1
BARE = """
import json, sys, time
from batchlens.training.loop import train
from batchlens.training.workloads import find_workload
from dataclasses import replace
from functools import cache

job = json.loads(sys.argv[1])
workload = find_workload("digits")
workload = replace(workload, data=cache(workload.data))
def run(trial):
    train(workload, "momentum", trial["batch_size"], trial["settings"], seed=trial["seed"], threads=1,
          max_steps=job["max_steps"], target=job["target"])
run(job["trials"][0])
print("ready", flush=True)
sys.stdin.readline()
start = time.perf_counter()
for trial in job["trials"]:
    run(trial)
print(time.perf_counter() - start)
"""


def make_declaration(trials: int, steps: int) -> DeclaredSweep:
    return declare(
        "digits",
        ["momentum"],
        batch_sizes=[64],
        trials=trials,
        max_steps=steps,
        target=OUT_OF_REACH,
        keep=1,
        search="sobol",
    )


class Sweeping:
    """Trials an hour, and what the coordinator costs, of one sweep."""

    def __init__(self, sweep: DeclaredSweep, path: Path) -> None:
        self.marks: list[tuple[float, float, int]] = []
        execute._WATCH = 0.0
        execute.fill(sweep, path, workers=WORKERS, pruning=False, watch=self._mark)
        begun = next(mark for mark in self.marks if mark[2] >= WORKERS)
        # From then on a worker has nothing left to do.
        last = sweep.declaration.trials - WORKERS + 1
        ended = next(mark for mark in self.marks if mark[2] >= last)
        self.wall = ended[0] - begun[0]
        self.rate = 3600 * (ended[2] - begun[2]) / self.wall
        self.coordination = (ended[1] - begun[1]) / (WORKERS * self.wall)
        with Store.open(path) as store:
            warm = [trial.seconds for trial in store.read_trials() if trial.key.number >= WORKERS]
        self.idle = 1 - fmean(warm) * (ended[2] - begun[2]) / (WORKERS * self.wall)

    def _mark(self, progress: Progress) -> None:
        self.marks.append((time.perf_counter(), time.process_time(), progress.ended))


def bare_rate(sweep: DeclaredSweep, path: Path) -> float:
    """Trials an hour of two bare processes, which share the trials of a sweep that has ended."""
    import json

    with Store.open(path) as store:
        trials = [
            {"batch_size": trial.key.batch_size, "settings": dict(trial.settings), "seed": trial.seed}
            for trial in store.read_trials()
        ]
    processes = []
    for first in range(WORKERS):
        job = {
            "trials": trials[first::WORKERS],
            "max_steps": sweep.declaration.max_steps[0],
            "target": sweep.declaration.target,
        }
        command = [sys.executable, "-c", BARE, json.dumps(job)]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        processes.append((subprocess.Popen(command, **pipes), len(job["trials"])))  # type: ignore[call-overload, arg-type]
    for process, _ in processes:
        process.stdout.readline()
    for process, _ in processes:
        process.stdin.write("go\n")
        process.stdin.flush()
    return sum(3600 * count / float(process.communicate()[0]) for process, count in processes)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=60)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=400)
    options = parser.parse_args()
    declaration = make_declaration(options.trials, options.steps)
    ratios, costs = [], []
    print(f"{'sweep, trials/h':>16}{'bare, trials/h':>16}{'ratio':>8}{'coordinator':>13}{'between trials':>16}")
    for _ in range(options.rounds):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "sweep.sqlite"
            sweeping = Sweeping(declaration, path)
            bare = bare_rate(declaration, path)
        ratios.append(sweeping.rate / bare)
        costs.append(sweeping.coordination)
        print(f"{sweeping.rate:>16,.0f}{bare:>16,.0f}{ratios[-1]:>8.3f}{costs[-1]:>13.2%}{sweeping.idle:>16.2%}")
    print(f"median ratio {median(ratios):.3f}, limit {LEAST_RATIO}; ", end="")
    print(f"coordinator {median(costs):.2%} of the workers' time, limit {MOST_COORDINATION:.0%}")


if __name__ == "__main__":
    main()
