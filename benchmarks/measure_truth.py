"""How many steps digits, or MNIST, really takes: dense settings, many seeds, stored once beside this file.

    python benchmarks/measure_truth.py [--workload digits] [--workers 2]

For every optimizer and batch size: a grid (sgd, momentum) or 300 Sobol points (adam, kfac), one seed each, to a loss of
0.1; the best again with other seeds to the lowest loss, in two rounds; the best of them by the geometric mean, and of
that one the geometric mean over further seeds. Each of the losses is judged by itself. Digits (truth.json: losses 0.3,
0.1 and 0.06, 64 further seeds) takes most of an hour on two cores; so does MNIST (truth_mnist.json: loss 0.1, sgd and
momentum, coarser grids, 12 further seeds). A cell that is stored is not measured again.
"""

import argparse
import json
import math
import multiprocessing
import warnings
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy.stats import qmc

from batchlens.training.loop import train
from batchlens.training.record import Record
from batchlens.training.spaces import Range


class Question(NamedTuple):
    """What is to be known of a workload."""

    workload: str
    store: str
    losses: tuple[float, ...]  # judged, the highest first
    noted: tuple[str, ...]  # other targets, reported of the settings that are best for a loss of FIRST
    batch_sizes: tuple[int, ...]
    grids: Mapping[str, Sequence[Mapping[str, float]]]
    rounds: tuple[tuple[int, int], ...]  # how many settings go on for each loss, and with how many further seeds
    reported: int  # seeds of the best one

    @property
    def judged(self) -> list[str]:
        return [f"train-loss {loss:g}" for loss in self.losses]

    @property
    def targets(self) -> list[str]:
        return [*self.judged, *self.noted]


# The loss that the first runs go to.
FIRST = 0.1
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
# Runs are ended at this multiple of the fourth best so far.
PATIENCE = 1.3


def sgd_grid(low: float, high: float, count: int) -> list[dict[str, float]]:
    return [{"learning_rate": float(rate)} for rate in np.geomspace(low, high, count)]


def momentum_grid(low: float, high: float, count: int, parts: Sequence[float]) -> list[dict[str, float]]:
    """Where momentum leaves less of a step, the rate is lower."""
    return [
        {"learning_rate": float(rate * part**0.7), "momentum": float(1 - part)}
        for rate in np.geomspace(low, high, count)
        for part in parts
    ]


def sobol_points(optimizer: str) -> list[dict[str, float]]:
    space = SPACES[optimizer]
    points = qmc.Sobol(len(space), seed=0).random(DENSE)
    return [{name: space[name].at(float(part)) for name, part in zip(space, point, strict=True)} for point in points]


@cache
def question(workload: str) -> Question:
    if workload == "digits":
        grids = {
            "sgd": sgd_grid(0.01, 3.0, 48),
            "momentum": momentum_grid(0.02, 2.5, 25, np.geomspace(1.0, 0.02, 12).tolist()),
            **{name: sobol_points(name) for name in SPACES},
        }
        sizes = (8, 16, 32, 64, 128, 256, 512, 1024)
        return Question(workload, "truth.json", (0.3, 0.1, 0.06), ("validation 0.97",), sizes, grids,
                        ((10, 4), (3, 10)), 64)  # fmt: skip
    grids = {
        "sgd": sgd_grid(0.03, 0.4, 12),
        "momentum": momentum_grid(0.04, 0.5, 7, np.geomspace(0.7, 0.04, 6).tolist()),
    }
    return Question(workload, "truth_mnist.json", (0.1,), (), (16, 64, 256, 1024), grids, ((6, 3), (3, 6)), 12)


class Runs:
    """Runs of one optimizer at one batch size, and what they took."""

    def __init__(self, asked: Question, optimizer: str, batch_size: int) -> None:
        self.asked, self.optimizer, self.batch_size = asked, optimizer, batch_size
        self.settings = asked.grids[optimizer]
        self.taken: dict[str, dict[int, list[float]]] = {target: {} for target in asked.targets}

    def run(self, number: int, seed: int, loss: float) -> None:
        """One run to a loss, and what it meets on the way."""
        main = f"train-loss {loss:g}"
        known = sorted(min(found) for found in self.taken[main].values())
        limit = math.inf if len(known) < 4 else PATIENCE * known[3]
        record: Record = train(
            self.asked.workload,
            self.optimizer,
            self.batch_size,
            self.settings[number],
            seed=seed,
            target_on="train-loss",
            target=loss,
            also_targets=self.asked.targets,
            threads=1,
            stop=lambda step: "pruned" if step > limit else None,
        )
        for target in self.asked.targets:
            found = record.crossings.get(target, {}).get("plain")
            self.taken[target].setdefault(number, []).append(math.inf if found is None else found.interpolated)

    def best(self, target: str, count: int) -> list[int]:
        """The settings with the fewest steps, by the geometric mean over their seeds."""
        means = {number: geometric_mean(steps) for number, steps in self.taken[target].items()}
        return sorted(means, key=lambda number: means[number])[:count]

    def again(self, numbers: Iterable[int], seeds: Iterable[int]) -> None:
        """Only these from here on, with other seeds."""
        numbers = list(dict.fromkeys(numbers))
        self.taken = {target: {} for target in self.asked.targets}
        for seed in seeds:
            for number in numbers:
                self.run(number, seed, min(self.asked.losses))


def geometric_mean(steps: list[float]) -> float:
    return math.exp(fmean(map(math.log, steps)))


def measure(cell: tuple[str, str, int]) -> tuple[tuple[str, str, int], dict[str, dict[str, Any]]]:
    """The truth of one optimizer and batch size of a workload."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    asked = question(cell[0])
    runs, seed = Runs(asked, *cell[1:]), 1_000_000
    for number in range(len(runs.settings)):
        runs.run(number, seed, FIRST)
    for count, seeds in asked.rounds:
        told = [
            target for target in asked.judged if any(min(found) < math.inf for found in runs.taken[target].values())
        ]
        chosen = [number for target in told for number in runs.best(target, count)]
        runs.again(chosen, range(seed + 1, seed + 1 + seeds))
        seed += seeds
    best = {target: runs.best(target, 1)[0] for target in asked.judged}
    runs.again(best.values(), range(seed + 1, seed + 1 + asked.reported))
    found = {target: _document(runs, target, number) for target, number in best.items()}
    return cell, found | {target: _document(runs, target, best[f"train-loss {FIRST:g}"]) for target in asked.noted}


def _document(runs: Runs, target: str, number: int) -> dict[str, Any]:
    steps = [value for value in runs.taken[target][number] if math.isfinite(value)]
    return {
        "settings": runs.settings[number],
        "steps": geometric_mean(steps),
        "scatter": stdev(map(math.log, steps)),
        "reached": len(steps),
        "seeds": runs.asked.reported,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workload", choices=["digits", "simple_cnn_mnist"], default="digits")
    parser.add_argument("--workers", type=int, default=2)
    arguments = parser.parse_args()
    asked = question(arguments.workload)
    store = Path(__file__).with_name(asked.store)
    stored = json.loads(store.read_text()) if store.exists() else {}
    cells = [(asked.workload, optimizer, size) for optimizer in asked.grids for size in asked.batch_sizes]
    missing = [cell for cell in cells if str(cell[2]) not in stored.get(cell[1], {})]
    with multiprocessing.get_context("spawn").Pool(arguments.workers) as pool:
        for (_, optimizer, size), found in pool.imap_unordered(measure, missing):
            stored.setdefault(optimizer, {})[str(size)] = found
            store.write_text(json.dumps(stored, indent=1) + "\n")
            print(optimizer, size, {target: round(entry["steps"], 1) for target, entry in found.items()}, flush=True)


if __name__ == "__main__":
    main()
