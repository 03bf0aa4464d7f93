"""Running a sweep: whatever is missing from its store is run, and kept as it ends."""

import math
import platform
import shutil
import signal
import threading
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import Any

from batchlens._checks import require_flag, require_number, require_path, require_whole
from batchlens.errors import BatchlensError
from batchlens.sweep._declaration import Cell, Declaration, Shard
from batchlens.sweep._declare import DeclaredSweep
from batchlens.sweep._executors.executor import Ended, Executor
from batchlens.sweep._executors.local import LocalExecutor
from batchlens.sweep._guided import Guided
from batchlens.sweep._guided_queue import GuidedQueue
from batchlens.sweep._progress import Progress, meter_of
from batchlens.sweep._queue import Queue
from batchlens.sweep._store import Store
from batchlens.sweep._trial import Key, Task, Trial
from batchlens.training._arguments import check_device, load_data
from batchlens.training._threads import count_cores
from batchlens.training.spaces import Range

# How often a trial whose process is lost is run again.
RETRIES = 2
# Seconds between two looks at the clock, and between two reports of progress.
_POLL, _WATCH = 1.0, 0.5

AnyQueue = Queue | GuidedQueue
Watch = Callable[[Progress], None]


@dataclass(frozen=True)
class Summary:
    """What a run of a sweep did.

    Arguments:
        ran: trials that it added.
        failed: trials in the store that failed.
        retried: how often a trial was run again because its process was lost.
        seconds: how long it took.
    """

    ran: int
    failed: int
    retried: int
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


def fill(
    sweep: DeclaredSweep,
    path: Path | str,
    *,
    workers: int | None = None,
    ray: str | None = None,
    cpus: int = 1,
    gpus: float = 0,
    shard: Shard | None = None,
    pruning: bool = True,
    repeats: int = 0,
    extend: bool | None = None,
    precision: float | None = None,
    time_budget: float | None = None,
    retry_failed: bool = False,
    take_over: bool = False,
    data_dir: Path | None = None,
    device: str | None = None,
    watch: Watch | None = None,
    shuffle: int | None = None,
) -> Summary:
    """Runs what is missing of a declared sweep into the store at `path`; arguments as for `run_sweep`."""
    guided = sweep.declaration.search == "guided"
    extend = (guided or shard is None) if extend is None else require_flag("extend", extend)
    path = require_path("store", path)
    declaration = replace(
        sweep.declaration, precision=precision, leave=extend or not guided, steady=guided and _chooses_steadily(path)
    )
    repeats = require_whole("repeats", repeats)
    pruning, retry_failed = require_flag("pruning", pruning), require_flag("retry_failed", retry_failed)
    _check_search(declaration, shard, repeats, extend, precision, time_budget)
    if ray is not None and workers is not None:
        raise ValueError("`workers` is for this machine and `ray` for a cluster: give one of them.")
    workers = workers if workers is None else require_whole("workers", workers, 1)
    if not sweep.named and (ray is not None or (workers or 1) > 1):
        raise ValueError(
            "`workload` must be a name where several processes run it: a Workload made in this one is trained in this "
            "one. Put it into a file and name it FILE.py:NAME."
        )
    device = device or ("cuda" if gpus else "cpu")
    if ray is None:
        check_device(device)
        if not path.exists():  # what is not there is better said before there is a store
            load_data(sweep.workload, data_dir)
    surroundings = _Surroundings(
        data_dir=data_dir,
        device=device,
        threads=require_whole("cpus", cpus, 1),
        checkpoints=None if ray is not None else path.with_name(f"{path.name}.runs").absolute(),
    )
    take_over = require_flag("take_over", take_over)
    with Store.open_to_write(path, declaration, "" if shard is None else str(shard), take_over) as store:
        if retry_failed:
            store.drop(_to_retry(declaration, store.read_trials()))
        spaces = {cell: sweep.space(cell) for cell in declaration.cells}
        reach = {cell: sweep.reach(cell) for cell in declaration.cells}
        endless = time_budget is not None and precision is None
        queue: AnyQueue
        if guided:
            queue = GuidedQueue(
                declaration, store.read_trials(), spaces, reach,
                shard=shard, pruning=pruning, endless=endless, shuffle=shuffle,
            )  # fmt: skip
        else:
            queue = _sobol_queue(store, spaces, shard=shard, repeats=repeats, shuffle=shuffle)
        running = _Sweep(store, queue, surroundings, reach if extend else None, pruning, watch, time_budget)
        if queue.open_count:
            # A search that is short of trials opens them one by one; only what follows it opens more at a time.
            most = declaration.trials * len(declaration.cells) if extend or repeats or guided else queue.open_count
            executor = _make_executor(sweep, workers, ray, cpus, gpus, most, running.look_around)
            with closing(executor), _interruptible(executor) as interrupted:
                running.go(executor, interrupted)
        if surroundings.checkpoints is not None and not queue.open_count:  # what is there is of runs that have ended
            shutil.rmtree(surroundings.checkpoints, ignore_errors=True)
        return running.summary()


def _chooses_steadily(path: Path) -> bool:
    """As the sweep did when its store was made; new ones do."""
    if not path.exists():
        return True
    try:
        with Store.open(path) as store:
            return store.declaration.steady
    except BatchlensError:  # what is wrong with it is said where it is opened to write
        return True


def _sobol_queue(store: Store, spaces: Mapping[Cell, Mapping[str, Range]], **options: Any) -> Queue:
    def locate(cell: Cell, position: Mapping[str, float]) -> dict[str, float]:
        return {name: range_.at(position[name]) for name, range_ in spaces[cell].items()}

    return Queue(store.declaration, store.read_trials(), store.generations(), locate, **options)


def _to_retry(declaration: Declaration, trials: Sequence[Trial]) -> set[Key]:
    """The trials that failed, and of a guided search what followed from them."""
    failed = {trial.key for trial in trials if trial.status == "failed"}
    return failed | Guided(declaration, trials).following(failed) if declaration.search == "guided" else failed


def _make_executor(
    sweep: DeclaredSweep,
    workers: int | None,
    ray: str | None,
    cpus: int,
    gpus: float,
    most: int,
    meanwhile: Callable[[int], None],
) -> Executor:
    if not sweep.named:
        from batchlens.sweep._executors.in_process import InProcessExecutor

        return InProcessExecutor(sweep.workload, meanwhile)
    if ray is not None:
        from batchlens.sweep._executors.ray_cluster import RayExecutor

        return RayExecutor(ray, cpus, gpus)
    count = max(count_cores() // cpus, 1) if workers is None else workers
    return LocalExecutor(min(count, most), cpus)


@contextmanager
def _interruptible(executor: Executor) -> Iterator[threading.Event]:
    """Ctrl-C and SIGTERM set the event, so that a transaction is never cut in two."""
    interrupted = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield interrupted
        return

    def interrupt(number: int, frame: FrameType | None) -> None:
        interrupted.set()
        executor.wake()

    before = {number: signal.signal(number, interrupt) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield interrupted
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _check_search(
    declaration: Declaration,
    shard: Shard | None,
    repeats: int,
    extend: bool,
    precision: float | None,
    time_budget: float | None,
) -> None:
    if declaration.search == "guided":
        families = len(declaration.families)
        if shard is not None and shard.count > families:
            raise ValueError(
                f"`shard` must be one of at most {families}, got {shard}: rounds of a guided search need all results "
                "of a family, such as sgd, momentum and nesterov; sobol shards by trial."
            )
        if repeats:
            raise ValueError("`repeats` is for sobol; guided search reports `seeds` fresh ones.")
    elif shard is not None and (repeats or extend):
        raise ValueError("`repeats` and `extend` need the whole sweep: merge the shards, then run it with them.")
    elif precision is not None:
        raise ValueError("`precision` needs guided search.")
    if precision is not None:
        require_number("precision", precision, low=0, high=1, closed=(False, False))
    if time_budget is not None:
        require_number("time_budget", time_budget, low=0, closed=(False, False))


class _Sweep:
    """One run of a sweep."""

    def __init__(
        self,
        store: Store,
        queue: AnyQueue,
        surroundings: _Surroundings,
        reach: Mapping[Cell, Mapping[str, tuple[float, float]]] | None,
        pruning: bool,
        watch: Watch | None,
        time_budget: float | None,
    ) -> None:
        self.store, self.queue, self.surroundings = store, queue, surroundings
        self.meter = meter_of(queue)
        self.reach, self.pruning, self.watch = reach, pruning, watch
        self.started, self.shown = time.monotonic(), -1.0
        self.ran, self.attempts = 0, Counter[Key]()
        self.saved: dict[Key, Any] = {}  # trials that wait, by whoever ran them
        self.retried = 0
        self.deadline = math.inf if time_budget is None else self.started + time_budget
        for cell in store.declaration.cells:
            self._settle(cell)

    def go(self, executor: Executor, interrupted: threading.Event) -> None:
        """Until nothing is left to run."""
        while self.queue.running or (self._has_time and self.queue.open_count):
            self._hand_out(executor)
            ended = executor.wait(_POLL)
            if ended is not None:
                self._take_in(executor, ended)
            if interrupted.is_set():
                raise SweepInterrupted(self.store.path, self.ran, len(self.queue.ended))
            self.look_around(executor.size)
        self._show(executor.size, 0.0)

    @property
    def _has_time(self) -> bool:
        return time.monotonic() < self.deadline

    def look_around(self, workers: int) -> None:
        """Shows a sign of life and the progress, where it is time to."""
        self.store.beat()
        self._show(workers, _WATCH)

    def summary(self) -> Summary:
        """What this run has done."""
        failed = sum(trial.status == "failed" for trial in self.queue.ended.values())
        return Summary(self.ran, failed, self.retried, time.monotonic() - self.started)

    def _hand_out(self, executor: Executor) -> None:
        while executor.has_room and self._has_time and (task := self.queue.take()) is not None:
            key = task.key
            limit = self.queue.limit(key.cell) if self.pruning and not key.repeat else None
            executor.start(key, self._job(task), task.limit if limit is None else limit)

    def _take_in(self, executor: Executor, ended: Ended) -> None:
        task = self.queue.running[ended.key]
        for line in (ended.answer or {}).get("warnings", ()):
            warnings.warn(f"{ended.key}: {line}", stacklevel=2)
        if (ended.answer or {}).get("paused"):
            assert ended.answer is not None
            self.queue.pause(ended.key, ended.answer)
            self.saved[ended.key] = ended.saved
            self._cut()
            return
        trial = self._judge(task, ended)
        if trial is None:
            self.retried += 1
            self.queue.give_back(ended.key)
            return
        before = self.queue.limit(ended.key.cell)
        self.queue.end(trial)
        limit = self.queue.limit(ended.key.cell)
        self._cut()
        self._hand_out(executor)  # before the disk is waited for
        if self.pruning and limit is not None and limit != before:
            executor.set_limit(ended.key.cell, limit)
        self.store.add(trial)
        self.ran += 1
        self._settle(ended.key.cell)

    def _judge(self, task: Task, ended: Ended) -> Trial | None:
        """How a trial ended; None where it has to be run again."""
        answer, host = ended.answer, platform.node()
        if answer is not None and "error" in answer:
            # An error in the very first trial is most likely to be in every one.
            if answer["fatal"] or not self.queue.ended:
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
        generation = self.queue.settle(cell, None if self.reach is None else self.reach[cell])
        if generation is not None:
            self.store.add_generation(cell, generation)

    def _cut(self) -> None:
        """Ends trials that wait for others and have lost."""
        for trial in self.queue.cut():
            self.queue.end(trial)
            self.store.add(trial)
            self.ran += 1
            self.saved.pop(trial.key, None)
            if (checkpoint := self._checkpoint(trial.key)) is not None:
                checkpoint.unlink(missing_ok=True)

    def _checkpoint(self, key: Key) -> Path | None:
        folder = self.surroundings.checkpoints
        name = f"{key.optimizer}-{key.batch_size}-{key.number}-{key.repeat}.pt"
        return None if folder is None else folder / name

    def _job(self, task: Task) -> dict[str, Any]:
        declaration, around, key = self.queue.declaration, self.surroundings, task.key
        checkpoint = self._checkpoint(key)
        return {
            "workload": declaration.workload,
            "source": declaration.source,
            "size": declaration.size,
            "optimizer": key.optimizer,
            "batch_size": key.batch_size,
            "settings": dict(task.settings),
            "seed": task.seed,
            "max_steps": task.max_steps,
            "target": declaration.target,
            "target_on": declaration.target_on,
            "device": around.device,
            "threads": around.threads,
            "data_dir": None if around.data_dir is None else str(around.data_dir),
            "checkpoint": None if checkpoint is None else str(checkpoint),
            "also_targets": list(declaration.also_targets),
            "confirm_target": declaration.confirm_target,
            "averages": task.averages,
            "all_targets": task.all_targets,
            "pause": task.pause,
            "saved": self.saved.pop(key, None),
        }

    def _show(self, workers: int, pause: float) -> None:
        now = time.monotonic()
        if self.watch is not None and now - self.shown >= pause:
            self.shown = now
            self.watch(self.meter.measure(workers, self.ran, now - self.started))


def _lacked_memory(answer: Mapping[str, Any]) -> bool:
    return answer.get("status") == "failed" and "memory" in answer["reason"].lower()
