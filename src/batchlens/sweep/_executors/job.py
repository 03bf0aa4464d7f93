"""Runs one trial, in whatever process it is told to."""

import platform
import tempfile
import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from batchlens.errors import BatchlensError
from batchlens.training._checkpoint import DamagedCheckpoint
from batchlens.training._run import Paused, Stop
from batchlens.training.loop import Interrupted, train
from batchlens.training.record import Record
from batchlens.training.workloads import Workload, find_workload

Answer = dict[str, Any]


def run_job(job: Mapping[str, Any], stop: Callable[[int], Stop | None], workload: Workload | None = None) -> Answer:
    """How a trial ended, as `Trial.of` reads it; `workload` is found by its name unless given.

    {"paused": True, ...} where it waits for others, with how it would have ended;
    {"error": ..., "fatal": ...} where it could not be run, fatal where no other could; {"interrupted": True} where it
    was told to stop. "warnings" are lines for the person who runs the sweep.
    """
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", DamagedCheckpoint)
        answer = _run(job, stop, workload)
    for warning in caught:
        if not issubclass(warning.category, DamagedCheckpoint):
            warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)
    said = [str(warning.message) for warning in caught if issubclass(warning.category, DamagedCheckpoint)]
    return {**answer, "warnings": said} if said else answer


def run_saved_job(
    job: Mapping[str, Any], stop: Callable[[int], Stop | None], saved: bytes | None
) -> tuple[Answer, bytes | None]:
    """The same from where it was `saved`, and where it waits for others what it saved: for runs without a folder."""
    with tempfile.TemporaryDirectory() as folder:
        checkpoint = Path(folder) / "run.pt"
        if saved is not None:
            checkpoint.write_bytes(saved)
        answer = run_job({**job, "checkpoint": str(checkpoint)}, stop)
        return answer, checkpoint.read_bytes() if "paused" in answer else None


def _run(job: Mapping[str, Any], stop: Callable[[int], Stop | None], workload: Workload | None) -> Answer:
    try:
        found = workload or _workload(job["workload"], job["size"], job["source"])
        return _answer(_train(job, stop, found))
    except Paused as paused:
        return {"paused": True, **_answer(paused.record)}
    except Interrupted:
        return {"interrupted": True}
    except BatchlensError as error:
        return {"error": str(error), "fatal": True}
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}", "fatal": False}


@cache
def _workload(name: str, size: str, source: str) -> Workload:
    """The workload that the sweep was declared with; its data set is loaded once in a process."""
    workload = find_workload(name, size)
    if workload.source != source:
        file = name.rpartition(":")[0] or name
        raise BatchlensError(f"{file} is not what the sweep was declared with: its content differs.")
    return replace(workload, data=cache(workload.data))


def _train(job: Mapping[str, Any], stop: Callable[[int], Stop | None], workload: Workload) -> Record:
    checkpoint = None if job["checkpoint"] is None else Path(job["checkpoint"])

    def run() -> Record:
        return train(
            workload,
            job["optimizer"],
            job["batch_size"],
            job["settings"],
            seed=job["seed"],
            max_steps=job["max_steps"],
            target=job["target"],
            target_on=job["target_on"],
            also_targets=job["also_targets"],
            confirm_target=job["confirm_target"],
            averages=job["averages"],
            all_targets=job["all_targets"],
            device=job["device"],
            threads=job["threads"],
            data_dir=None if job["data_dir"] is None else Path(job["data_dir"]),
            checkpoint=checkpoint,
            stop=_until(stop, job["pause"]),
        )

    if checkpoint is None or not checkpoint.exists():
        return run()
    try:
        return run()
    except BatchlensError:  # of another version
        checkpoint.unlink(missing_ok=True)
        return run()


def _until(stop: Callable[[int], Stop | None], pause: int | None) -> Callable[[int], Stop | None]:
    """`stop`, and from the step `pause` on a wait for others."""
    if pause is None:
        return stop
    return lambda step: stop(step) or ("paused" if step >= pause else None)


def _answer(record: Record) -> Answer:
    return {
        "status": record.status,
        "steps": record.steps,
        "interpolated": record.steps_interpolated,
        "crossings": {target: dict(found) for target, found in record.crossings.items()},
        "steps_taken": record.steps_taken,
        "metric": record.best_metric,
        "seconds": record.seconds,
        "host": platform.node(),
        "versions": dict(record.versions),
        "reason": record.reason,
        "notes": list(record.notes),
        "history": [[entry.step, entry.metric, entry.relation] for entry in record.history],
    }
