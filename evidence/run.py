"""Runs what is missing of the declared sweeps, one after the other.

    make evidence                                all of them that are not for left-over time
    make evidence SWEEP=digits WORKERS=1         one
    make evidence TIME_BUDGET=3600               for an hour
    make evidence SWEEP=digits INTO=again        one from the start, into another folder
    make evidence SWEEP=digits MORE_SEEDS=600    of a complete one, seeds for ten minutes where intervals are widest

Ctrl-C loses at most the runs in flight; the same again goes on.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import threading
import time
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import batchlens as bl
from batchlens.sweep._cells import cell_results
from batchlens.sweep._declaration import Declaration
from batchlens.sweep._declare import declare
from batchlens.sweep._guided import Guided
from batchlens.sweep._store import Store
from batchlens.sweep.running import SweepInterrupted
from evidence import digest

if TYPE_CHECKING:
    from batchlens.sweep._progress import Progress

HERE = Path(__file__).parent
DECLARATIONS, CLAIMS = HERE / "declarations.toml", HERE / "claims.toml"
# What `run_sweep` is given as it stands.
_AS_DECLARED = ("workload", "size", "optimizers", "batch_sizes", "target_on", "target", "trials", "seeds", "seed")
# Seconds between two lines of progress.
_PAUSE = 60.0

Sweep = dict[str, Any]


def read_sweeps(path: Path = DECLARATIONS) -> list[Sweep]:
    """As declared, in order."""
    sweeps: list[Sweep] = tomllib.loads(path.read_text(encoding="utf-8"))["sweeps"]
    return sweeps


def arguments_of(sweep: Mapping[str, Any]) -> dict[str, Any]:
    """What `run_sweep` and `declare` take; a target without a value is the workload's own."""
    workload = bl.find_workload(sweep["workload"], sweep["size"])
    usual = {"validation": workload.target, "train": workload.train_target, "train-loss": workload.train_loss_target}
    also = [text if ":" in text else f"{text}:{usual[text]!r}" for text in sweep["also_targets"]]
    return {**{name: sweep[name] for name in _AS_DECLARED if name in sweep}, "also_targets": also, "search": "guided"}


def store_of(sweep: Mapping[str, Any], folder: Path) -> Path:
    """Where a sweep is kept."""
    return folder / f"{sweep['name']}.sqlite"


def slim(path: Path) -> None:
    """Keeps of the histories only those of runs that report; refused while a sweep holds the store."""
    result = bl.read_sweep(path)
    with Store.open_to_write(path, result.declaration, result.shard) as store:
        reports = {trial.key for cell in cell_results(store) for trial in cell.repeats}
        store.keep_histories(reports)


def left(sweep: Mapping[str, Any], store: Path) -> str:
    """What is left of a sweep, in words."""
    cells = len(sweep["optimizers"]) * len(sweep["batch_sizes"])
    if not store.exists():
        return f"none of {cells} cells complete, about {sweep['core_hours']:g} core-hours left"
    result = bl.read_sweep(store)
    if result.complete:
        return f"all {cells} cells complete"
    guided = Guided(result.declaration, [])
    planned = sum(guided.planned(cell) for cell in result.declaration.cells)
    hours = sweep["core_hours"] if not result.ended else result.seconds / result.ended * planned / 3600
    part = 1 - min(result.ended / planned, 1.0)
    return f"{result.cells_done} of {cells} cells complete, about {hours * part:.2g} core-hours left"


def run(sweep: Mapping[str, Any], folder: Path, workers: int, more_seeds: float | None = None) -> None:
    """Fills a sweep's store, and makes it slim; `more_seeds` are seconds for seeds where intervals are widest.

    Verdicts rest on every cell, so that the widest of all is the widest of those they rest on.
    """
    name, store = sweep["name"], store_of(sweep, folder)
    say(f"{name}: {left(sweep, store)}")
    arguments = arguments_of(sweep)
    if not store.exists():
        write_resolved(declare(**arguments).declaration, store)
    try:
        result = bl.run_sweep(**arguments, store=store, workers=workers, watch=Lines(name), time_budget=more_seeds)
    except SweepInterrupted:
        slim(store)
        raise
    slim(store)
    write_resolved(result.declaration, store)
    say(f"{name}: {result.cells_done} of {len(result.cells)} cells, {result.seconds / 3600:.2f} core-hours so far")


def write_resolved(declaration: Declaration, store: Path) -> None:
    """What a sweep came to be, with the workload's own values."""
    store.with_suffix(".json").write_text(json.dumps(asdict(declaration), indent=1) + "\n", encoding="utf-8")


class Lines:
    """A line of progress a minute."""

    def __init__(self, name: str) -> None:
        self.name, self.said = name, time.monotonic()

    def __call__(self, progress: Progress) -> None:
        if time.monotonic() - self.said < _PAUSE:
            return
        self.said = time.monotonic()
        rest = "" if progress.seconds_left is None else f", about {progress.seconds_left / 3600:.1f} h left"
        say(f"{self.name}: {progress.cells_done} of {len(progress.cells)} cells, {progress.ended} runs{rest}")


def say(line: str) -> None:
    print(line, flush=True)


def begin() -> None:
    """Holds training to what it is when the first sweep starts."""
    if not digest.is_recorded():
        say("Recording the digest and the golden steps; commit evidence/digest.txt and evidence/golden.json.")
        digest.write()
    elif problem := digest.check():
        sys.exit(problem)


def stop_after(seconds: float) -> None:
    """As Ctrl-C would."""
    timer = threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGINT))
    timer.daemon = True
    timer.start()


def main(arguments: Sequence[str] | None = None) -> None:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    sweeps = {sweep["name"]: sweep for sweep in read_sweeps()}
    parser.add_argument("--sweep", choices=list(sweeps), default="", help="only this one")
    parser.add_argument("--workers", type=int, default=2, help="processes (2)")
    parser.add_argument("--time-budget", type=float, help="seconds after which to stop")
    parser.add_argument("--more-seeds", type=float, help="seconds for further seeds, where intervals are widest")
    parser.add_argument("--into", type=Path, default=HERE, help="folder of the stores (evidence/)")
    parser.add_argument("--list", action="store_true", help="say what is left, and run nothing")
    asked = parser.parse_args(arguments)
    chosen = [sweeps[asked.sweep]] if asked.sweep else [s for s in sweeps.values() if "if_time_is_left" not in s]
    if asked.list:
        for sweep in chosen:
            say(f"{sweep['name']}: {left(sweep, store_of(sweep, asked.into))}")
        return
    asked.into.mkdir(parents=True, exist_ok=True)
    for number in (signal.SIGINT, signal.SIGTERM):  # also where a shell's background jobs ignore Ctrl-C
        signal.signal(number, signal.default_int_handler)
    if asked.time_budget is not None:
        stop_after(asked.time_budget)
    try:
        begin()
        for sweep in chosen:
            run(sweep, asked.into, asked.workers, asked.more_seeds)
    except SweepInterrupted as stopped:
        say(str(stopped))
        sys.exit(130)
    except KeyboardInterrupt:
        say("stopped; run the same again to go on")
        sys.exit(130)


if __name__ == "__main__":
    main()
