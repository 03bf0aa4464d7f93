"""Repeats runs that a store reports, from their settings and seeds, and compares their steps.

    python -m evidence.verify digits             ten of them
    python -m evidence.verify digits --runs 30

On the kind of processor and the version of torch that measured a run its steps must be the same to the bit. Elsewhere
bits may differ; there each run should lie where one more seed of its cell lies with a probability of 90%, and 7 of 10
must. What came out is kept in verified.json, with the number of runs that the store then had; `batchlens
reproduce` shows it, and how many runs came later.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import NamedTuple

from scipy import stats

import batchlens as bl
from batchlens.sweep._declaration import Declaration
from batchlens.sweep._reporting import LEVEL, log_steps
from batchlens.sweep._trial import Trial
from evidence import digest
from evidence.run import HERE, read_sweeps, say, store_of

# Which share of runs must lie within their range on another machine: fewer do so in 1 of 80 samples of ten.
ENOUGH = 0.7
VERIFIED = HERE / "verified.json"


class Repeated(NamedTuple):
    """A run that reports, what it took the second time, and between which steps another seed would lie."""

    trial: Trial
    steps: float | None
    range: tuple[float, float]
    here: bool  # whether it was measured on a machine like this one

    @property
    def same(self) -> bool:
        """To the bit."""
        return self.steps == self.trial.interpolated

    @property
    def close(self) -> bool:
        """Within its range; a run that missed its target must miss it again."""
        if self.steps is None or self.trial.steps is None:
            return self.same
        return self.range[0] <= self.steps <= self.range[1]


def one_more(reports: Sequence[Trial]) -> tuple[float, float]:
    """Between which steps one more seed of a cell lies, by Student's distribution."""
    logs = log_steps(reports)
    width = float(stats.t.ppf(0.5 + LEVEL / 2, len(logs) - 1)) * stdev(logs) * math.sqrt(1 + 1 / len(logs))
    return math.exp(fmean(logs) - width), math.exp(fmean(logs) + width)


def sample(sweep: bl.SweepResult, runs: int) -> list[tuple[Trial, Sequence[Trial]]]:
    """Runs of complete cells that report, each with all of its cell, drawn at random but always the same ones."""
    cells = [cell.result.repeats for cell in sweep.cells if cell.result.complete]
    found = [(trial, reports) for reports in cells for trial in reports]
    return random.Random(0).sample(found, min(runs, len(found)))


def repeat(declaration: Declaration, sampled: Sequence[tuple[Trial, Sequence[Trial]]]) -> Iterator[Repeated]:
    """Every run again, looking for all its targets: which are looked for decides what is read, and so the last bit."""
    for trial, reports in sampled:
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
            also_targets=list(declaration.also_targets),
            threads=1,
        )
        yield Repeated(trial, record.steps_interpolated, one_more(reports), measured_here(trial))


def measured_here(trial: Trial) -> bool:
    """Whether bits can be compared; runs that do not say their processor are those of the first machine."""
    here, first = digest.machine(), digest.recorded()[0]["machine"]
    then = {"processor": first["processor"], **trial.versions}
    return all(then[name] == here[name] for name in ("torch", "processor"))


def problem_of(repeated: Sequence[Repeated]) -> str:
    """Why the store is not confirmed, empty where it is."""
    if any(run.here and not run.same for run in repeated):
        return "Not what was measured on a machine like this one."
    others = [run for run in repeated if not run.here]
    return "" if sum(run.close for run in others) >= ENOUGH * len(others) else "Too few lie within their range."


def keep(name: str, repeated: Sequence[Repeated], ended: int, path: Path = VERIFIED) -> None:
    """Notes what came out, and of how many runs the store was, in place of what was noted of that sweep before."""
    kept = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    kept[name] = {
        "ended": ended,
        "runs": len(repeated),
        "like_here": sum(run.here for run in repeated),
        "same": sum(run.here and run.same for run in repeated),
        "close": sum(not run.here and run.close for run in repeated),
        "machine": digest.machine(),
    }
    path.write_text(json.dumps(dict(sorted(kept.items())), indent=1) + "\n", encoding="utf-8")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    sweeps = {sweep["name"]: sweep for sweep in read_sweeps()}
    parser.add_argument("sweep", choices=list(sweeps))
    parser.add_argument("--runs", type=int, default=10)
    asked = parser.parse_args(arguments)
    if asked.runs < 1:
        parser.error("--runs must be at least 1")
    store = store_of(sweeps[asked.sweep], HERE)
    if not store.exists():
        parser.error(f"{asked.sweep} has not been run: make evidence SWEEP={asked.sweep}")
    found = bl.read_sweep(store)
    repeated = []
    for run in repeat(found.declaration, sample(found, asked.runs)):
        repeated.append(run)
        low, high = run.range
        say(f"{run.trial.key}: {run.trial.interpolated}, again {run.steps} ({low:.4g} to {high:.4g})")
    say(f"{sum(run.same for run in repeated)} of {len(repeated)} take the same steps, to the bit")
    others = [run.close for run in repeated if not run.here]
    if others:
        say(f"{len(others)} were measured on another processor: {sum(others)} lie within the range of one more seed")
    keep(asked.sweep, repeated, found.ended)
    if problem := problem_of(repeated):
        sys.exit(problem)


if __name__ == "__main__":
    main()
