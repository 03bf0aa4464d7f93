"""What `predict` says of a workload, against what dense tuning or the sweeps of evidence/ found.

    python benchmarks/evaluate_predictions.py [--sweep digits] [--references 20] [--workers 2] [--keep FOLDER]

Each reference follows from its range test: seeds, batch sizes 64 and 128 and targets in turn. On digits the truth is
that of `measure_truth.py`, at training losses of 0.1 and 0.06; elsewhere, and for sgd+ema, it is what the sweep
reports, at its own target. Truth and references have seeds of their own. Prints how far critical batch sizes, steps and
learning rates are off, how many intervals hold the truth, and how many references were refused. `--keep` has every
prediction and what was measured for it as JSON, and those that are there already are not made again.
"""

import argparse
import json
import math
import multiprocessing
import time
import warnings
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import batchlens as bl

ROOT = Path(__file__).parents[1]
TRUTH: Mapping[str, Any] = json.loads((ROOT / "benchmarks" / "truth.json").read_text(encoding="utf-8"))
OPTIMIZERS = ("sgd", "momentum", "sgd+ema", "momentum+ema", "adam", "kfac")
REFERENCE_SIZES = (64, 128)
FIRST_SEED = 300


class Task(NamedTuple):
    """A reference of the workload of a sweep."""

    sweep: str
    seed: int
    batch_size: int
    target: float
    keep: Path | None

    @property
    def file(self) -> Path | None:
        name = f"{self.sweep}-{self.batch_size}-{self.target:g}-{self.seed}.json"
        return None if self.keep is None else self.keep / name


@cache
def sweep_of(name: str) -> bl.SweepResult:
    return bl.read_sweep(ROOT / "evidence" / f"{name}.sqlite")


def tasks(sweep: str, count: int, keep: Path | None) -> list[Task]:
    targets = (0.1, 0.06) if sweep == "digits" else (sweep_of(sweep).declaration.target,)
    cells = [(size, target) for size in REFERENCE_SIZES for target in targets]
    return [
        Task(sweep, FIRST_SEED + number // len(cells), *cells[number % len(cells)], keep) for number in range(count)
    ]


def predict(task: Task) -> tuple[Task, dict[str, Any], float]:
    warnings.simplefilter("ignore")
    if task.file is not None and task.file.exists():
        return task, *json.loads(task.file.read_text(encoding="utf-8"))
    declaration, started = sweep_of(task.sweep).declaration, time.process_time()
    if task.file is not None:
        task.file.parent.mkdir(parents=True, exist_ok=True)
    document = bl.predict(
        declaration.workload,
        optimizers=[name for name in OPTIMIZERS if name in declaration.optimizers],
        batch_sizes=declaration.batch_sizes,
        target_on=declaration.target_on,
        target=task.target,
        batch_size=task.batch_size,
        size=declaration.size,
        seed=task.seed,
        out=None if task.file is None else task.file.with_suffix(".measured.json"),
        threads=1,
    ).as_document()
    seconds = time.process_time() - started
    if task.file is not None:
        task.file.write_text(json.dumps([document, seconds]), encoding="utf-8")
    return task, document, seconds


def truth_of(optimizer: str, task: Task) -> dict[int, dict[str, Any]]:
    """Steps and settings by batch size, as far as they are known."""
    sweep = sweep_of(task.sweep)
    if task.sweep == "digits" and optimizer in TRUTH:
        place = f"train-loss {task.target:g}"
        return {size: TRUTH[optimizer][str(size)][place] for size in sweep.declaration.batch_sizes}
    curve = sweep.curves().get(optimizer)
    if curve is None or task.target != sweep.declaration.target:
        return {}
    entries = zip(curve.batch_sizes, curve.steps, curve.settings, strict=True)
    return {int(size): {"steps": steps, "settings": settings} for size, steps, settings in entries if steps is not None}


def errors(optimizer: str, document: Mapping[str, Any], task: Task) -> dict[str, Any] | None:
    """Logarithms of prediction over truth, and whether intervals hold the truth."""
    truth = truth_of(optimizer, task)
    if len(truth) < 3:
        return None
    (curve,) = (entry for entry in document["curves"] if entry["optimizer"] == optimizer)
    critical = bl.ScalingCurve(list(truth), [entry["steps"] for entry in truth.values()]).critical_batch_size("fit")
    (fit,) = (entry for entry in curve["critical_batch_sizes"] if entry["definition"] == "fit")
    pairs = [(point, truth[point["batch_size"]]) for point in curve["points"] if point["batch_size"] in truth]
    rates = [(p["learning_rate"], t["settings"].get("learning_rate")) for p, t in pairs]
    value = math.nan if critical.value is None else critical.value
    return {
        "critical": math.log(fit["value"] / value),
        "critical held": _holds(fit["interval"], value),
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
    parser.add_argument("--sweep", default="digits", help="one of evidence/ (digits)")
    parser.add_argument("--references", type=int, default=20)
    parser.add_argument("--keep", type=Path, help="folder of predictions")
    parser.add_argument("--workers", type=int, default=2)
    asked = parser.parse_args()
    documents: list[tuple[Task, dict[str, Any], float]] = []
    with multiprocessing.get_context("spawn").Pool(asked.workers) as pool:
        for task, document, seconds in pool.imap(predict, tasks(asked.sweep, asked.references, asked.keep)):
            documents.append((task, document, seconds))
            named = f"seed {task.seed}, batch size {task.batch_size}, target {task.target:g}"
            print(f"{named}: {document['status']} {'; '.join(document['reasons'])} ({seconds:.1f} s)", flush=True)
    predicted = [(task, document) for task, document, _ in documents if document["status"] == "predicted"]
    print(f"{len(documents) - len(predicted)} of {len(documents)} references refused")
    for optimizer in OPTIMIZERS:
        found = [entry for task, document in predicted if (entry := errors(optimizer, document, task))]
        print(report(found, optimizer) if found else f"{optimizer}: no truth")
    print(f"processor seconds of a prediction: {np.mean([seconds for *_, seconds in documents]):.1f}")


if __name__ == "__main__":
    main()
