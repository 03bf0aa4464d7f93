"""Repeats runs that a store reports, from their settings and seeds, and compares their steps.

    python -m evidence.verify digits             ten of them
    python -m evidence.verify digits --runs 30

On the machine and the versions that measured them steps are the same to the bit; elsewhere they should lie within the
90% interval of their cell, give or take the scatter of one seed.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import batchlens as bl
from batchlens.sweep._declaration import Declaration
from batchlens.sweep._trial import Trial
from evidence import digest
from evidence.run import HERE, read_sweeps, say, store_of


class Repeated(NamedTuple):
    """A run that reports, and what it took the second time."""

    trial: Trial
    steps: float | None

    @property
    def same(self) -> bool:
        return self.steps == self.trial.interpolated


def sample(sweep: bl.SweepResult, runs: int) -> list[Trial]:
    """Runs of complete cells that report, drawn at random but always the same ones."""
    found = [trial for cell in sweep.cells if cell.result.complete for trial in cell.result.repeats]
    return random.Random(0).sample(found, min(runs, len(found)))


def repeat(declaration: Declaration, trials: Sequence[Trial]) -> Iterator[Repeated]:
    """Every run again, up to its main target."""
    for trial in trials:
        record = bl.train(
            declaration.workload,
            trial.key.optimizer,
            trial.key.batch_size,
            dict(trial.settings),
            size=declaration.size,
            seed=trial.seed,
            max_steps=max(trial.steps_taken, 1),
            target=declaration.target,
            target_on=declaration.target_on,
            threads=1,
        )
        yield Repeated(trial, record.steps_interpolated)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    sweeps = {sweep["name"]: sweep for sweep in read_sweeps()}
    parser.add_argument("sweep", choices=list(sweeps))
    parser.add_argument("--runs", type=int, default=10)
    asked = parser.parse_args(arguments)
    found = bl.read_sweep(store_of(sweeps[asked.sweep], HERE))
    same = 0
    trials = sample(found, asked.runs)
    for repeated in repeat(found.declaration, trials):
        same += repeated.same
        say(f"{repeated.trial.key}: {repeated.trial.interpolated}, again {repeated.steps}")
    say(f"{same} of {len(trials)} take the same steps, to the bit")
    here = digest.machine() == digest.recorded()["machine"]
    if same < len(trials):
        sys.exit("Not what was measured." if here else "Another machine or other versions: bits may differ there.")


if __name__ == "__main__":
    main()
