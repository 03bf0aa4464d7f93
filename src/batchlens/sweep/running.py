"""Running a sweep: whatever is missing from its store is run, and kept as it ends."""

import os
import platform
import shutil
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from batchlens.checks import require_flag, require_instance, require_whole
from batchlens.errors import BatchlensError
from batchlens.sweep._declaration import Cell, Declaration, Shard
from batchlens.sweep._declare import cell_reach, cell_space
from batchlens.sweep._executors.executor import Crew, Ended
from batchlens.sweep._executors.local import LocalCrew
from batchlens.sweep._progress import Meter, Progress
from batchlens.sweep._queue import Agenda
from batchlens.sweep._results import cell_results
from batchlens.sweep._store import Store
from batchlens.sweep._trial import Key, Task, Trial
from batchlens.training._arguments import check_device
from batchlens.training.workloads import find_workload

# A trial whose process is lost is run again so many times.
RETRIES = 2
# Seconds between two looks at the clock, and between two reports of progress.
_POLL, _WATCH = 1.0, 0.5

Watch = Callable[[Progress], None]


@dataclass(frozen=True)
class Summary:
    """What a run of a sweep did.

    Arguments:
        ran: trials that this run added; `ended` counts all that the store holds.
        retried: how often a trial was run again because its process was lost.
        complete: whether every cell has all its trials; a shard never has.
        steps_saved: at most; for every pruned trial in the store, what was left of its step budget.
    """

    path: Path
    ran: int
    ended: int
    failed: int
    retried: int
    cells_done: int
    cells: int
    complete: bool
    steps_saved: int
    seconds: float


class SweepInterrupted(KeyboardInterrupt):
    """A sweep that was asked to stop."""

    def __init__(self, path: Path, ran: int, ended: int) -> None:
        super().__init__(
            f"stopped: {ended} trials are in {path}, {ran} of them from this run; run the same again to go on"
        )
        self.path, self.ran, self.ended = path, ran, ended


@dataclass(frozen=True)
class _Surroundings:
    """What a run needs beside its task."""

    data_dir: Path | None
    device: str
    threads: int
    checkpoints: Path | None


def run_sweep(
    declaration: Declaration,
    path: Path | str,
    *,
    workers: int | None = None,
    ray: str | None = None,
    cpus: int = 1,
    gpus: float = 0,
    shard: Shard | None = None,
    pruning: bool = True,
    repeats: int = 0,
    extend: bool = False,
    retry_failed: bool = False,
    data_dir: Path | None = None,
    device: str | None = None,
    watch: Watch | None = None,
    shuffle: int | None = None,
) -> Summary:
    """Runs what is missing of a sweep into the store at `path`.

    Arguments:
        workers: processes of this machine; one a core unless given.
        ray: the address of a Ray cluster to run on instead, or "auto".
        cpus, gpus: of each trial; a process of this machine uses so many threads.
        shard: only this part of the trials.
        pruning: whether trials that cannot be among the best any more are ended; the results are the same.
        repeats: with so many other seeds each winner is trained again.
        extend: widens search spaces near whose edge the winner is, and goes on there.
        retry_failed: whether trials that failed in earlier runs are run again.
        data_dir: where data sets are; the usual place unless given.
        device: cpu unless `gpus` are asked for, then cuda.
        watch: called with the progress, twice a second at most.
        shuffle: a seed, to run the trials in random order.
    """
    require_instance("declaration", declaration, Declaration)
    repeats = require_whole("repeats", repeats)
    if shard is not None and (repeats or require_flag("extend", extend)):
        raise ValueError("`repeats` and `extend` need the whole sweep: merge the shards, then run it with them.")
    if ray is not None and workers is not None:
        raise ValueError("`workers` is for this machine and `ray` for a cluster: give one of them.")
    workers = workers if workers is None else require_whole("workers", workers, 1)
    device = device or ("cuda" if gpus else "cpu")
    if ray is None:
        check_device(device)
        if not Path(path).exists():  # what is not there is better said before there is a store
            find_workload(declaration.workload, declaration.size).data(data_dir)
    path = Path(path)
    surroundings = _Surroundings(
        data_dir=data_dir,
        device=device,
        threads=require_whole("cpus", cpus, 1),
        checkpoints=None if ray is not None else path.with_name(f"{path.name}.runs").absolute(),
    )
    with Store.open_to_write(path, declaration, "" if shard is None else str(shard)) as store:
        if retry_failed:
            store.drop_failed()
        spaces = {cell: cell_space(declaration, cell) for cell in declaration.cells}
        agenda = Agenda(
            declaration,
            store.read_trials(),
            store.generations(),
            lambda cell, position: {name: range_.at(position[name]) for name, range_ in spaces[cell].items()},
            shard=shard,
            repeats=repeats,
            shuffle=shuffle,
        )
        reach = {cell: cell_reach(cell, space) for cell, space in spaces.items()} if extend else None
        sweep = _Sweep(store, agenda, surroundings, reach, pruning, watch)
        if agenda.open_count:
            # A search that is short of trials opens them one by one; only what follows it opens more at a time.
            most = declaration.trials * len(declaration.cells) if extend or repeats else agenda.open_count
            with closing(_make_crew(workers, ray, cpus, gpus, most)) as crew, _interruptible(crew) as interrupted:
                sweep.go(crew, interrupted)
        if surroundings.checkpoints is not None:  # what is left there is of runs that have ended
            shutil.rmtree(surroundings.checkpoints, ignore_errors=True)
        return sweep.summary()


def _make_crew(workers: int | None, ray: str | None, cpus: int, gpus: float, most: int) -> Crew:
    if ray is not None:
        from batchlens.sweep._executors.ray_cluster import RayCrew

        return RayCrew(ray, cpus, gpus)
    count = max(_cores() // cpus, 1) if workers is None else workers
    return LocalCrew(min(count, most), cpus)


def _cores() -> int:
    """Those that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def _interruptible(crew: Crew) -> Iterator[threading.Event]:
    """Ctrl-C and SIGTERM set the event, so that a transaction is never cut in two."""
    interrupted = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield interrupted
        return

    def interrupt(number: int, frame: FrameType | None) -> None:
        interrupted.set()
        crew.wake()

    before = {number: signal.signal(number, interrupt) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield interrupted
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class _Sweep:
    """One run of a sweep."""

    def __init__(
        self,
        store: Store,
        agenda: Agenda,
        surroundings: _Surroundings,
        reach: Mapping[Cell, Mapping[str, tuple[float, float]]] | None,
        pruning: bool,
        watch: Watch | None,
    ) -> None:
        self.store, self.agenda, self.surroundings = store, agenda, surroundings
        self.meter = Meter(agenda)
        self.reach, self.pruning, self.watch = reach, pruning, watch
        self.started, self.shown = time.monotonic(), -1.0
        self.ran, self.attempts = 0, Counter[Key]()
        self.retried = 0
        for cell in store.declaration.cells:
            self._settle(cell)

    def go(self, crew: Crew, interrupted: threading.Event) -> None:
        """Until nothing is left to run."""
        while self.agenda.running or self.agenda.open_count:
            self._hand_out(crew)
            ended = crew.wait(_POLL)
            if ended is not None:
                self._take_in(crew, ended)
            if interrupted.is_set():
                raise SweepInterrupted(self.store.path, self.ran, len(self.agenda.ended))
            self.store.beat()
            self._show(crew, _WATCH)
        self._show(crew, 0.0)

    def summary(self) -> Summary:
        """What this run has done."""
        results = cell_results(self.store)
        return Summary(
            path=self.store.path,
            ran=self.ran,
            ended=len(self.agenda.ended),
            failed=sum(trial.status == "failed" for trial in self.agenda.ended.values()),
            retried=self.retried,
            cells_done=sum(result.complete for result in results),
            cells=len(results),
            complete=all(result.complete for result in results),
            steps_saved=sum(result.steps_saved for result in results),
            seconds=time.monotonic() - self.started,
        )

    def _hand_out(self, crew: Crew) -> None:
        while crew.has_room and (task := self.agenda.take()) is not None:
            key = task.key
            limit = self.agenda.limit(key.cell) if self.pruning and not key.repeat else None
            crew.start(key, self._job(task), limit)

    def _take_in(self, crew: Crew, ended: Ended) -> None:
        task = self.agenda.running[ended.key]
        trial = self._judge(task, ended)
        if trial is None:
            self.retried += 1
            self.agenda.give_back(ended.key)
            return
        before = self.agenda.limit(ended.key.cell)
        self.agenda.end(trial)
        limit = self.agenda.limit(ended.key.cell)
        self._hand_out(crew)  # before the disk is waited for
        if self.pruning and limit is not None and limit != before:
            crew.set_limit(ended.key.cell, limit)
        self.store.add(trial)
        self.ran += 1
        self._settle(ended.key.cell)

    def _judge(self, task: Task, ended: Ended) -> Trial | None:
        """How a trial ended; None where it has to be run again."""
        answer, host = ended.answer, platform.node()
        if answer is not None and "error" in answer:
            # An error in the very first trial is most likely to be in every one.
            if answer["fatal"] or not self.agenda.ended:
                raise BatchlensError(answer["error"] if answer["fatal"] else f"{task.key}: {answer['error']}")
            return Trial.failed(task, answer["error"], host)
        if answer is not None and not _lacked_memory(answer):
            return Trial.of(task, answer)
        self.attempts[task.key] += 1
        if self.attempts[task.key] <= RETRIES:
            return None
        reason = ended.reason if answer is None else answer["reason"]
        return Trial.failed(task, f"{reason}, {self.attempts[task.key]} times", host)

    def _settle(self, cell: Cell) -> None:
        """What follows from a cell's search being complete."""
        if self.agenda.searches[cell].length is None:
            return
        generation = None if self.reach is None else self.agenda.extension(cell, self.reach[cell])
        if generation is not None:
            self.store.add_generation(cell, generation)
            self.agenda.extend(cell, generation)
        else:
            self.agenda.repeat(cell)

    def _job(self, task: Task) -> dict[str, Any]:
        declaration, around, key = self.agenda.declaration, self.surroundings, task.key
        name = f"{key.optimizer}-{key.batch_size}-{key.number}-{key.repeat}.pt"
        return {
            "workload": declaration.workload,
            "size": declaration.size,
            "optimizer": key.optimizer,
            "batch_size": key.batch_size,
            "settings": dict(task.parameters),
            "seed": task.seed,
            "max_steps": task.max_steps,
            "target": declaration.target,
            "target_on": declaration.target_on,
            "device": around.device,
            "threads": around.threads,
            "data_dir": None if around.data_dir is None else str(around.data_dir),
            "checkpoint": None if around.checkpoints is None else str(around.checkpoints / name),
        }

    def _show(self, crew: Crew, pause: float) -> None:
        now = time.monotonic()
        if self.watch is not None and now - self.shown >= pause:
            self.shown = now
            self.watch(self.meter.measure(crew.size, self.ran, now - self.started))


def _lacked_memory(answer: Mapping[str, Any]) -> bool:
    return answer.get("status") == "failed" and "memory" in answer["reason"].lower()
