"""Trials in this very process, one after the other: for a workload that no other process could find."""

import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from typing import Any

from batchlens.sweep._declaration import Cell
from batchlens.sweep._executors.executor import Ended
from batchlens.sweep._executors.job import run_job
from batchlens.sweep._trial import Key
from batchlens.training._run import Stop
from batchlens.training.workloads import Workload


class InProcessExecutor:
    """An `Executor` of one trial at a time, which `wait` runs to its end; `beat` is called at every step."""

    size = 1

    def __init__(self, workload: Workload, meanwhile: Callable[[int], None]) -> None:
        self._meanwhile = meanwhile
        self._workload = replace(workload, data=cache(workload.data))
        self._waiting: tuple[Key, Mapping[str, Any]] | None = None
        self._limit: int | None = None
        self._woken = threading.Event()

    @property
    def has_room(self) -> bool:
        """Whether no trial waits to be run."""
        return self._waiting is None

    def start(self, key: Key, job: Mapping[str, Any], limit: int | None) -> None:
        """Keeps a trial for `wait`."""
        self._waiting, self._limit = (key, job), limit

    def set_limit(self, cell: Cell, limit: int) -> None:
        """Nothing runs while the limit changes."""
        if self._waiting is not None and self._waiting[0].cell == cell and not self._waiting[0].repeat:
            self._limit = limit

    def wait(self, seconds: float) -> Ended | None:
        """Runs the trial that waits; None where it was interrupted."""
        if self._waiting is None:
            return None
        (key, job), self._waiting = self._waiting, None
        answer = run_job(job, self._stop, self._workload)
        return None if "interrupted" in answer else Ended(key, answer)

    def _stop(self, step: int) -> Stop | None:
        self._meanwhile(self.size)
        if self._woken.is_set():
            return "interrupted"
        return "pruned" if self._limit is not None and step > self._limit else None

    def wake(self) -> None:
        """Ends the trial that runs."""
        self._woken.set()

    def close(self) -> None:
        """Nothing is left running."""
