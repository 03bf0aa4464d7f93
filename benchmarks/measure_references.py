"""Runs and measures the references that predictions are judged by, each stored in benchmarks/references/.

    python benchmarks/measure_references.py [--sweep digits] [--references 20] [--workers 2]
    python benchmarks/measure_references.py --target-on validation --references 10

Each follows from its own range test: seeds, batch sizes 64 and 128 and targets in turn; on digits the targets are
training losses of 0.1 and 0.06, or with `--target-on validation` an accuracy of 0.97, elsewhere the sweep's own. Truth
and references have seeds of their own. What is stored already is not measured again. `evaluate_predictions.py` says
what they are worth.
"""

import argparse
import json
import multiprocessing
import sys
import time
import warnings
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import batchlens as bl
from batchlens._results import finite
from batchlens.curvature.measurement import Measurement
from batchlens.prediction._reference import Plan, run_reference

sys.path.insert(0, str(Path(__file__).parents[1]))
from evidence.run import arguments_of, read_sweeps

FOLDER = Path(__file__).with_name("references")
SIZES = (64, 128)
FIRST_SEED = 300


class Task(NamedTuple):
    """A reference of the workload of a sweep."""

    sweep: str
    seed: int
    batch_size: int
    target: float | None  # the workload's where None
    target_on: str

    @property
    def file(self) -> Path:
        on = "" if self.target_on == "train-loss" else f"{self.target_on}-"
        target = "" if self.target is None else f"-{on}{self.target:g}"
        return FOLDER / f"{self.sweep}-{self.batch_size}{target}-{self.seed}.json"


# Those of digits by where they are measured.
DIGITS = {"train-loss": (0.1, 0.06), "validation": (0.97,)}


def tasks(name: str, count: int, target_on: str | None) -> list[Task]:
    (sweep,) = (sweep for sweep in read_sweeps() if sweep["name"] == name)
    on = target_on or sweep["target_on"]
    targets = DIGITS[on] if name == "digits" else (sweep.get("target"),)
    cells = [(size, target) for size in SIZES for target in targets]
    return [Task(name, FIRST_SEED + number // len(cells), *cells[number % len(cells)], on) for number in range(count)]


def measure(task: Task) -> tuple[Task, str]:
    """Runs one, and says how it went."""
    warnings.simplefilter("ignore")
    if task.file.exists():
        return task, "is there"
    (sweep,) = (sweep for sweep in read_sweeps() if sweep["name"] == task.sweep)
    arguments, started = arguments_of(sweep), time.process_time()
    workload = bl.find_workload(arguments["workload"], arguments["size"])
    plan = Plan(workload, task.batch_size, None, task.target_on, task.target, None, task.seed, None,
                {"threads": 1})  # fmt: skip
    found = run_reference(plan, lambda *_: None)
    seconds = time.process_time() - started
    measured = {} if found.measurement is None else slim(found.measurement).as_document()
    about = found._replace(measurement=None)._asdict() | {"sweep": task.sweep, "seed": task.seed}
    about |= {"batch_size": task.batch_size, "target_on": task.target_on, "target": task.target, "seconds": seconds}
    FOLDER.mkdir(exist_ok=True)
    task.file.write_text(json.dumps(finite(measured | {"reference": about}), indent=1) + "\n", encoding="utf-8")
    return task, f"{found.steps} steps at learning rate {found.learning_rate:.3g}, {seconds:.0f} s"


def slim(measurement: Measurement) -> Measurement:
    """Without spectra, which predictions do not use."""
    moments = (
        replace(moment, spectrum=(), scatter=(), decades=(), comparison=None, density=())
        for moment in measurement.moments
    )
    return replace(measurement, moments=tuple(moments))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sweep", default="digits", help="one of evidence/ (digits)")
    parser.add_argument("--references", type=int, default=20)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--target-on", choices=list(DIGITS), help="of digits; the sweep's otherwise")
    asked = parser.parse_args()
    with multiprocessing.get_context("spawn").Pool(asked.workers) as pool:
        for task, words in pool.imap(measure, tasks(asked.sweep, asked.references, asked.target_on)):
            print(f"{task.file.stem}: {words}", flush=True)


if __name__ == "__main__":
    main()
