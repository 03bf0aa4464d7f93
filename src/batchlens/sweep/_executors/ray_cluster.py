"""Trials as tasks of a Ray cluster: Ray decides where each runs."""

import time
from collections.abc import Mapping
from typing import Any, Literal

from batchlens._extras import import_extra
from batchlens.errors import BatchlensError
from batchlens.sweep._declaration import Cell
from batchlens.sweep._executors.executor import Ended
from batchlens.sweep._trial import Key

# Seconds between a task's two questions for its limit, and between two looks at the size of the cluster.
_ASK, _LOOK = 1.0, 5.0
# Trials queued beyond those that run, as a part of them, so that no node waits for the coordinator.
_QUEUED = 0.25


def _import_ray() -> Any:
    """Ray, of which nothing is known where types are checked without it."""
    import_extra("ray.util.scheduling_strategies")
    return import_extra("ray")


class _Limits:
    """The pruning limit of every cell; an actor beside the coordinator."""

    def __init__(self) -> None:
        self._limits: dict[Cell, int] = {}

    def get(self, cell: Cell) -> int | None:
        return self._limits.get(cell)

    def set(self, cell: Cell, limit: int) -> None:
        self._limits[cell] = limit


class _Stop:
    """For `train`, in a task: asks for the limit now and then, and never waits for the answer."""

    def __init__(self, cell: Cell, limit: int | None, limits: Any) -> None:
        self._ray, self._cell, self._limit, self._limits = _import_ray(), cell, limit, limits
        self._asked, self._question = time.monotonic(), None

    def __call__(self, step: int) -> Literal["pruned"] | None:
        if self._limits is not None and time.monotonic() - self._asked > _ASK:
            self._ask()
        return "pruned" if self._limit is not None and step > self._limit else None

    def _ask(self) -> None:
        if self._question is not None:
            answered, _ = self._ray.wait([self._question], timeout=0)
            if not answered:
                return
            try:
                limit = self._ray.get(self._question)
            except self._ray.exceptions.RayError:  # a trial ends well without knowing
                self._limits = None
                return
            self._limit = self._limit if limit is None else limit
        self._question, self._asked = self._limits.get.remote(self._cell), time.monotonic()


def _run(job: Mapping[str, Any], cell: Cell, limit: int | None, limits: Any) -> tuple[Mapping[str, Any], bytes | None]:
    from batchlens.sweep._executors.job import run_saved_job
    from batchlens.training._memory import keep_freed_memory

    keep_freed_memory()
    return run_saved_job({**job, "saved": None}, _Stop(cell, limit, limits), _fetch(job["saved"]))


def _fetch(saved: Any) -> bytes | None:
    """What a trial saved before it waited; None where that went with its node, and the trial starts anew."""
    ray = _import_ray()
    try:
        found: bytes | None = None if saved is None else ray.get(saved)
    except ray.exceptions.RayError:
        return None
    return found


class RayExecutor:
    """An `Executor` of a Ray cluster's nodes."""

    def __init__(self, address: str, cpus: int, gpus: float) -> None:
        self._ray = ray = _import_ray()
        self._began = not ray.is_initialized()
        if self._began:
            try:
                ray.init(address=address, log_to_driver=False)
            except (ConnectionError, ValueError, RuntimeError) as error:
                raise BatchlensError(f"no Ray cluster at {address}: {_first_line(error)}") from error
        self._cpus, self._gpus = cpus, gpus
        # Lost processes are run again by the coordinator, which counts how often.
        # What a trial saves stays on its node until another one asks for it.
        self._task = ray.remote(num_cpus=cpus, num_gpus=gpus, max_retries=0, num_returns=2)(_run)
        here = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(
            ray.get_runtime_context().get_node_id(), soft=False
        )
        self._limits = ray.remote(num_cpus=0, scheduling_strategy=here)(_Limits).remote()
        self._running: dict[Any, tuple[Key, Any]] = {}  # by the answer to come, with what will be saved
        self._looked, self._slots = 0.0, 1

    @property
    def size(self) -> int:
        """How many trials the cluster has resources for."""
        if time.monotonic() - self._looked > _LOOK:
            self._looked, self._slots = time.monotonic(), self._count_slots()
        return self._slots

    @property
    def has_room(self) -> bool:
        """Whether another trial may be queued."""
        return len(self._running) < self.size + max(1, int(_QUEUED * self.size))

    def start(self, key: Key, job: Mapping[str, Any], limit: int | None) -> None:
        """Queues a trial."""
        limits = None if key.repeat else self._limits
        answer, saved = self._task.remote(job, key.cell, limit, limits)
        self._running[answer] = key, saved

    def set_limit(self, cell: Cell, limit: int) -> None:
        """Tasks ask for it."""
        self._limits.set.remote(cell, limit)

    def wait(self, seconds: float) -> Ended | None:
        """The next task that has ended."""
        if not self._running:
            time.sleep(seconds)
            return None
        ready, _ = self._ray.wait(list(self._running), timeout=seconds)
        if not ready:
            return None
        key, saved = self._running.pop(ready[0])
        try:
            return Ended(key, self._ray.get(ready[0]), saved=saved)
        except self._ray.exceptions.RayTaskError as error:  # batchlens is missing there, for instance
            raise BatchlensError(f"{key}: {_first_line(error.cause)}") from error
        except self._ray.exceptions.RayError as error:
            return Ended(key, None, f"{type(error).__name__}: {_first_line(error)}")

    def wake(self) -> None:
        """A `wait` is short."""

    def close(self) -> None:
        """Cancels what runs."""
        for task in self._running:
            self._ray.cancel(task, force=True)
        self._ray.kill(self._limits)
        if self._began:
            self._ray.shutdown()

    def _count_slots(self) -> int:
        """What fits on each node, summed up."""
        return max(sum(self._fits(node["Resources"]) for node in self._ray.nodes() if node["Alive"]), 1)

    def _fits(self, resources: Mapping[str, float]) -> int:
        fits = resources.get("CPU", 0) / self._cpus
        return int(min(fits, resources.get("GPU", 0) / self._gpus) if self._gpus else fits)


def _first_line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0]
