"""What `predict` says of digits, against the truth that `measure_truth.py` has stored.

    python benchmarks/evaluate_predictions.py [--references 20] [--workers 2]

Each reference follows from its range test: seeds, batch sizes 64 and 128, targets 0.1 and 0.06 in turn. The truth has
seeds of its own. For sgd+ema the truth is what the sweep of evidence/ reports, at 0.1 only. Prints how far critical
batch sizes, steps and learning rates are off, how many intervals hold the truth, and how many references were refused.
"""

import argparse
import json
import math
import multiprocessing
import time
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import batchlens as bl

ROOT = Path(__file__).parents[1]
TRUTH: Mapping[str, Any] = json.loads((ROOT / "benchmarks" / "truth.json").read_text(encoding="utf-8"))
SIZES = (8, 16, 32, 64, 128, 256, 512, 1024)
OPTIMIZERS = ("sgd", "momentum", "sgd+ema", "adam", "kfac")
FIRST_SEED = 300


class Task(NamedTuple):
    """A reference."""

    seed: int
    batch_size: int
    target: float


def tasks(count: int) -> list[Task]:
    cells = [(size, target) for size in (64, 128) for target in (0.1, 0.06)]
    return [Task(FIRST_SEED + number // 4, *cells[number % 4]) for number in range(count)]


def predict(task: Task) -> tuple[Task, dict[str, Any], float]:
    warnings.simplefilter("ignore")
    started = time.process_time()
    found = bl.predict(
        "digits",
        optimizers=OPTIMIZERS,
        batch_sizes=SIZES,
        target_on="train-loss",
        target=task.target,
        batch_size=task.batch_size,
        seed=task.seed,
        threads=1,
    )
    return task, found.as_document(), time.process_time() - started


def truth_of(optimizer: str, target: float) -> list[dict[str, Any]] | None:
    """Steps and settings at every batch size."""
    if optimizer in TRUTH:
        return [TRUTH[optimizer][str(size)][f"train-loss {target:g}"] for size in SIZES]
    if target != 0.1:
        return None
    curve = bl.read_sweep(ROOT / "evidence" / "digits.sqlite").curves()[optimizer]
    return [{"steps": steps, "settings": {}} for steps in curve.steps]


def errors(optimizer: str, document: Mapping[str, Any], target: float) -> dict[str, Any] | None:
    """Logarithms of prediction over truth, and whether intervals hold the truth."""
    truth = truth_of(optimizer, target)
    if truth is None:
        return None
    (curve,) = (entry for entry in document["curves"] if entry["optimizer"] == optimizer)
    steps = [entry["steps"] for entry in truth]
    critical = bl.ScalingCurve(SIZES, steps).critical_batch_size("fit").value or math.nan
    (fit,) = (entry for entry in curve["critical_batch_sizes"] if entry["definition"] == "fit")
    pairs = list(zip(curve["points"], truth, strict=True))
    rates = [(p["learning_rate"], t["settings"].get("learning_rate")) for p, t in pairs]
    return {
        "critical": math.log(fit["value"] / critical),
        "critical held": _holds(fit["interval"], critical),
        "steps": [math.log(p["steps"] / t["steps"]) for p, t in pairs],
        "steps held": [_holds(p["interval"], t["steps"]) for p, t in pairs],
        "rates": [math.log(mine / true) for mine, true in rates if optimizer == "sgd" and mine and true],
    }


def _holds(interval: list[float | None], truth: float) -> bool:
    low, high = interval
    return (low or 0.0) <= truth <= (high or math.inf)


def report(found: list[dict[str, Any]], optimizer: str) -> str:
    critical = np.abs([entry["critical"] for entry in found])
    steps = np.array([entry["steps"] for entry in found])
    rates = np.abs(np.concatenate([entry["rates"] for entry in found]))
    held = np.mean([entry["steps held"] for entry in found])
    told = f", rates {math.exp(rates.mean()):.2f}" if len(rates) else ""
    return (
        f"{optimizer:9} critical batch size within 1.5 in {np.mean(critical <= math.log(1.5)):.0%}, 2 in "
        f"{np.mean(critical <= math.log(2)):.0%} (median factor {math.exp(float(np.median(critical))):.2f}); steps "
        f"{math.exp(np.abs(steps).mean()):.2f} in the geometric mean, {math.exp(np.abs(steps).max()):.2f} at worst"
        f"{told}; "
        f"rms of logs: critical {np.sqrt(np.mean(critical**2)):.2f}, steps {np.sqrt(np.mean(steps**2)):.2f}; 90% "
        f"intervals hold {held:.0%} of steps, {np.mean([entry['critical held'] for entry in found]):.0%} of critical "
        "batch sizes"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--references", type=int, default=20)
    parser.add_argument("--workers", type=int, default=2)
    asked = parser.parse_args()
    documents: list[tuple[Task, dict[str, Any], float]] = []
    with multiprocessing.get_context("spawn").Pool(asked.workers) as pool:
        for task, document, seconds in pool.imap(predict, tasks(asked.references)):
            documents.append((task, document, seconds))
            print(f"{task}: {document['status']} {'; '.join(document['reasons'])} ({seconds:.1f} s)", flush=True)
    predicted = [(task, document) for task, document, _ in documents if document["status"] == "predicted"]
    print(f"{len(documents) - len(predicted)} of {len(documents)} references refused")
    for optimizer in OPTIMIZERS:
        found = [entry for task, document in predicted if (entry := errors(optimizer, document, task.target))]
        print(report(found, optimizer) if found else f"{optimizer}: no truth")
    print(f"processor seconds of a prediction: {np.mean([seconds for *_, seconds in documents]):.1f}")


if __name__ == "__main__":
    main()
