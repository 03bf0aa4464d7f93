"""How many steps digits really takes: dense settings, many seeds, stored once in benchmarks/truth.json.

    python benchmarks/measure_truth.py [--workers 2]

For every optimizer and batch size: a grid (sgd, momentum) or 300 Sobol points (adam, kfac), one seed each, to a loss of
0.1; the best again with other seeds to 0.06, in two rounds; the best of them by the geometric mean, and of that one the
geometric mean over 64 further seeds. Each of the losses is judged by itself. Takes most of an hour on two cores; a cell
that is stored is not measured again.
"""

import argparse
import json
import math
import multiprocessing
import warnings
from collections.abc import Iterable
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import numpy as np
import torch
from scipy.stats import qmc

from batchlens.training.loop import train
from batchlens.training.record import Record
from batchlens.training.spaces import Range

STORE = Path(__file__).with_name("truth.json")
LOSSES = (0.3, 0.1, 0.06)
TARGETS = (*(f"train-loss {loss:g}" for loss in LOSSES), "validation 0.97")
BATCH_SIZES = (8, 16, 32, 64, 128, 256, 512, 1024)
SPACES = {
    "adam": {
        "learning_rate": Range(1e-4, 3e-1),
        "beta1": Range(0.0, 0.97, "log_one_minus"),
        "beta2": Range(0.9, 0.9999, "log_one_minus"),
        "epsilon": Range(1e-10, 1e-3),
    },
    "kfac": {
        "learning_rate": Range(1e-2, 10.0),
        "momentum": Range(0.0, 0.97, "log_one_minus"),
        "damping": Range(1e-4, 1e-1),
        "kl_clip": Range(1e-4, 1.0),
        "factor_decay": Range(0.8, 0.99, "log_one_minus"),
    },
}
DENSE = 300
# How many settings go on for each loss, and with how many further seeds.
ROUNDS = ((10, 4), (3, 10))
REPORTED = 64
# Runs are ended at this multiple of the fourth best so far.
PATIENCE = 1.3


def dense_settings(optimizer: str) -> list[dict[str, float]]:
    """Where to look."""
    if optimizer == "sgd":
        return [{"learning_rate": float(rate)} for rate in np.geomspace(0.01, 3.0, 48)]
    if optimizer == "momentum":
        kept = np.geomspace(1.0, 0.02, 12)
        return [
            {"learning_rate": float(rate * part**0.7), "momentum": float(1 - part)}
            for rate in np.geomspace(0.02, 2.5, 25)
            for part in kept
        ]
    space = SPACES[optimizer]
    points = qmc.Sobol(len(space), seed=0).random(DENSE)
    return [{name: space[name].at(float(part)) for name, part in zip(space, point, strict=True)} for point in points]


class Runs:
    """Runs of one optimizer at one batch size, and what they took."""

    def __init__(self, optimizer: str, batch_size: int) -> None:
        self.optimizer, self.batch_size = optimizer, batch_size
        self.settings = dense_settings(optimizer)
        self.taken: dict[str, dict[int, list[float]]] = {target: {} for target in TARGETS}

    def run(self, number: int, seed: int, loss: float) -> None:
        """One run to a loss, and what it meets on the way."""
        main = f"train-loss {loss:g}"
        known = sorted(min(found) for found in self.taken[main].values())
        limit = math.inf if len(known) < 4 else PATIENCE * known[3]
        record: Record = train(
            "digits",
            self.optimizer,
            self.batch_size,
            self.settings[number],
            seed=seed,
            target_on="train-loss",
            target=loss,
            also_targets=list(TARGETS),
            threads=1,
            stop=lambda step: "pruned" if step > limit else None,
        )
        for target in TARGETS:
            found = record.crossings.get(target, {}).get("plain")
            self.taken[target].setdefault(number, []).append(math.inf if found is None else found.interpolated)

    def best(self, target: str, count: int) -> list[int]:
        """The settings with the fewest steps, by the geometric mean over their seeds."""
        means = {number: geometric_mean(steps) for number, steps in self.taken[target].items()}
        return sorted(means, key=lambda number: means[number])[:count]

    def again(self, numbers: Iterable[int], seeds: Iterable[int]) -> None:
        """Only these from here on, with other seeds."""
        numbers = list(dict.fromkeys(numbers))
        self.taken = {target: {} for target in TARGETS}
        for seed in seeds:
            for number in numbers:
                self.run(number, seed, LOSSES[2])


def geometric_mean(steps: list[float]) -> float:
    return math.exp(fmean(map(math.log, steps)))


def measure(cell: tuple[str, int]) -> tuple[tuple[str, int], dict[str, dict[str, Any]]]:
    """The truth of one optimizer and batch size."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    runs, seed = Runs(*cell), 1_000_000
    for number in range(len(runs.settings)):
        runs.run(number, seed, LOSSES[1])
    for count, seeds in ROUNDS:
        told = [target for target in TARGETS[:3] if any(min(found) < math.inf for found in runs.taken[target].values())]
        chosen = [number for target in told for number in runs.best(target, count)]
        runs.again(chosen, range(seed + 1, seed + 1 + seeds))
        seed += seeds
    best = {target: runs.best(target, 1)[0] for target in TARGETS[:3]}
    runs.again(best.values(), range(seed + 1, seed + 1 + REPORTED))
    found = {target: _document(runs, target, number) for target, number in best.items()}
    # The accuracy is of the settings that are best for the middle loss: reported, not judged.
    found[TARGETS[3]] = _document(runs, TARGETS[3], best[TARGETS[1]])
    return cell, found


def _document(runs: Runs, target: str, number: int) -> dict[str, Any]:
    steps = [value for value in runs.taken[target][number] if math.isfinite(value)]
    return {
        "settings": runs.settings[number],
        "steps": geometric_mean(steps),
        "scatter": stdev(map(math.log, steps)),
        "reached": len(steps),
        "seeds": REPORTED,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, default=2)
    workers = parser.parse_args().workers
    stored = json.loads(STORE.read_text()) if STORE.exists() else {}
    cells = [(optimizer, size) for optimizer in ("sgd", "momentum", "adam", "kfac") for size in BATCH_SIZES]
    missing = [cell for cell in cells if str(cell[1]) not in stored.get(cell[0], {})]
    with multiprocessing.get_context("spawn").Pool(workers) as pool:
        for (optimizer, size), found in pool.imap_unordered(measure, missing):
            stored.setdefault(optimizer, {})[str(size)] = found
            STORE.write_text(json.dumps(stored, indent=1) + "\n")
            print(optimizer, size, {target: round(entry["steps"], 1) for target, entry in found.items()}, flush=True)


if __name__ == "__main__":
    main()
