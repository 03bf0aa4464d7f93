"""What a sweep of 40 runs a cell finds on digits, against the truth that `measure_truth.py` has stored.

    python benchmarks/compare_with_truth.py [--workers 2] [--seed 0] [--store FOLDER]

For guided search and for plain Sobol points with as many runs: by how much the true mean of the setting that was chosen
(the geometric mean over 64 seeds of its own) is above the true best, in how many cells the 90% interval holds that
mean, and the critical batch sizes ("fit") of what was reported and of the truth. Takes about a quarter of an hour.
"""

import argparse
import json
import math
import multiprocessing
import tempfile
import time
import warnings
from collections.abc import Mapping
from pathlib import Path
from statistics import fmean

import torch

import batchlens as bl
from batchlens.scaling.curve import ScalingCurve
from batchlens.sweep.results import SweepResult
from batchlens.training.loop import train

TRUTH = json.loads(Path(__file__).with_name("truth.json").read_text())
TARGET = "train-loss 0.1"
SEEDS = range(2_000_000, 2_000_064)
RUNS = 40
# What issue and documentation promise: percent above the truth, in the geometric mean over cells and at worst.
LIMITS = {"sgd": (4, 12), "momentum": (7, 17), "adam": (12, 25), "kfac": (12, 25)}


def true_mean(chosen: tuple[str, int, dict[str, float]]) -> float:
    """The geometric mean of the steps that a setting takes; a seed that misses counts as the whole budget."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    optimizer, size, settings = chosen
    logs = []
    for seed in SEEDS:
        record = train("digits", optimizer, size, settings, seed=seed, target_on="train-loss", target=0.1, threads=1)
        logs.append(math.log(record.steps_interpolated or record.max_steps))
    return math.exp(fmean(logs))


def truth_of(optimizer: str) -> dict[int, float]:
    return {int(size): entry[TARGET]["steps"] for size, entry in TRUTH[optimizer].items()}


def critical(curve: Mapping[int, float]) -> float:
    sizes = sorted(curve)
    found = ScalingCurve(sizes, [curve[size] for size in sizes]).critical_batch_size("fit")
    return math.nan if found.value is None else found.value


def run(search: str, folder: Path, workers: int, seed: int) -> SweepResult:
    return bl.run_sweep(
        "digits",
        list(LIMITS),
        sorted(truth_of("sgd")),
        trials=RUNS if search == "sobol" else None,
        store=folder / f"{search}-{seed}.sqlite",
        search=search,
        target_on="train-loss",
        target=0.1,
        workers=workers,
        seed=seed,
        extend=None if search == "guided" else False,
    )


def compare(search: str, folder: Path, workers: int, seed: int) -> None:
    started = time.monotonic()
    sweep = run(search, folder, workers, seed)
    most = max(len(group) for _, group in sweep.trials().groupby(["optimizer", "batch_size"]))
    print(f"\n{search}: {sweep.ended:,} runs, at most {most} a cell, {time.monotonic() - started:.0f} s", flush=True)
    measured = {(optimizer, size) for optimizer in LIMITS for size in truth_of(optimizer)}
    found = [cell for cell in sweep.cells if cell.result.winner is not None]
    cells = [cell for cell in found if (cell.result.cell.optimizer, cell.batch_size) in measured]
    chosen = [(cell.result.cell.optimizer, cell.batch_size, dict(cell.settings)) for cell in cells]
    with multiprocessing.get_context("spawn").Pool(workers) as pool:
        means = dict(zip([entry[:2] for entry in chosen], pool.map(true_mean, chosen, chunksize=1), strict=True))
    held = []
    for optimizer, (mean_limit, worst_limit) in LIMITS.items():
        truth = truth_of(optimizer)
        own = [cell for cell in cells if cell.result.cell.optimizer == optimizer and cell.batch_size in truth]
        above = {cell.batch_size: means[optimizer, cell.batch_size] / truth[cell.batch_size] for cell in own}
        mean = 100 * math.expm1(fmean(map(math.log, above.values())))
        worst = 100 * (max(above.values()) - 1)
        reported = {cell.batch_size: cell.steps for cell in own if cell.steps is not None}
        known = {size: truth[size] for size in reported}
        ratio = critical(reported) / critical(known)
        detail = " ".join(f"{size}:{100 * (value - 1):+.0f}" for size, value in above.items())
        print(
            f"{optimizer:9} {mean:+5.1f}% (limit {mean_limit}), worst {worst:+5.1f}% (limit {worst_limit}); "
            f"critical batch size {critical(reported):.0f}, truth {critical(known):.0f}, ratio {ratio:.2f}; {detail}",
            flush=True,
        )
        for cell in own:
            interval, true = cell.interval, means[optimizer, cell.batch_size]
            if search == "guided" and interval is not None:
                held.append((interval.low or 0) <= true <= (interval.high or math.inf))
    if held:
        print(f"90% intervals hold the true mean in {sum(held)} of {len(held)} cells ({100 * fmean(held):.0f}%)")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--store", type=Path)
    parser.add_argument("--search", choices=("guided", "sobol", "both"), default="both")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for search in ("guided", "sobol") if given.search == "both" else (given.search,):
            compare(search, given.store or Path(folder), given.workers, given.seed)


if __name__ == "__main__":
    main()
