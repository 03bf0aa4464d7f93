"""How long real steps take: seconds of a step against batch size, and the largest batch that fits."""

import math
import statistics
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from batchlens._checks import require_sequence, require_whole
from batchlens._extras import import_extra
from batchlens.advice._memory import limited_memory, says_out_of_memory
from batchlens.advice._step_times import StepTimes
from batchlens.errors import BatchlensError

if TYPE_CHECKING:
    from batchlens.training.recipes import Recipe
    from batchlens.training.workloads import Workload

__all__ = ["StepTimes", "time_steps"]

# Steps before the clock counts: caches, allocators and lazy state settle.
_WARM_UP = 3
# Weights hardly move at this rate, so that no run arrives or diverges while its steps are timed.
_SMALL_RATE = 1e-6
# The largest batch that fits is found to this part.
_RESOLUTION = 1 / 16


def time_steps(
    workload: "Workload | str",
    batch_sizes: Sequence[int],
    optimizer: "Recipe | str" = "momentum",
    settings: Mapping[str, float] | None = None,
    *,
    steps: int = 20,
    memory: float | None = None,
    data_dir: Path | None = None,
    progress: Callable[[int, int, str], None] | None = None,
    **options: Any,
) -> StepTimes:
    """How long do steps of a training take, by batch size, and which is the largest batch that fits?

    Steps of the training loop itself are timed, each batch in one piece; evaluations do not count.  Where a batch does
    not fit into memory, larger ones are left out and the largest that fits is looked for.

    Arguments:
        workload: a `Workload`, the name of one, or "my_file.py:name".
        batch_sizes: at least two.
        optimizer: a name such as "adamw", or a `Recipe`.
        settings: of the optimizer, where they matter for time; the learning rate does not.
        steps: timed at every batch size, after three to warm up; their lower quartile counts.
        memory: bytes that steps may take on the CPU, beside what is in use already; None: what the system has left.
        data_dir: the folder of the data sets.
        progress: told after each batch size how many are done, of how many, and which was the last.
        options: others of `train`, such as size, device, threads and micro_batch.

    >>> times = time_steps("digits", [8, 1024, 8192], steps=5)
    >>> times.throughput > 1000, times.largest is None
    (True, True)
    """
    import_extra("torch")
    sizes = sorted({require_whole("batch_sizes", size, 1) for size in require_sequence("batch_sizes", batch_sizes)})
    if len(sizes) < 2:
        raise ValueError(f"`batch_sizes` must be at least two, to tell overhead from throughput, got {len(sizes)}.")
    steps = require_whole("steps", steps, low=1)
    chosen = {"learning_rate": _SMALL_RATE, **(settings or {})}
    found: dict[int, float] = {}
    largest: int | None = None

    def seconds_of(size: int, count: int) -> list[float] | None:
        return _time(workload, optimizer, size, chosen, count, memory, data_dir, options)

    for size in sizes:
        times = seconds_of(size, steps)
        if times is None:
            largest = _largest(max(found, default=0), size, lambda middle: seconds_of(middle, 1) is not None)
            break
        found[size] = _typical(times)
        if progress is not None:
            progress(len(found), len(sizes), f"batch size {size:,}")
    if len(found) < 2:
        most = "none" if not largest else f"at most {largest:,}"
        raise BatchlensError(f"the steps of two batch sizes must fit into memory, got {most}.")
    name = workload if isinstance(workload, str) else workload.name
    what = f"{name}, {optimizer if isinstance(optimizer, str) else optimizer.name}"
    return StepTimes(list(found), list(found.values()), largest=largest, what=what)


def _typical(times: list[float]) -> float:
    """The lower quartile: what else a machine does can only slow steps."""
    return statistics.quantiles(times, n=4, method="inclusive")[0] if len(times) > 1 else times[0]


def _largest(low: int, high: int, fits: Callable[[int], bool]) -> int:
    """The largest batch that fits, to a sixteenth: `low` does, `high` does not."""
    while high - low > max(1, int(low * _RESOLUTION)):
        middle = round(math.sqrt(low * high)) if low > 1 else (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def _time(
    workload: "Workload | str",
    optimizer: "Recipe | str",
    batch_size: int,
    settings: Mapping[str, float],
    steps: int,
    memory: float | None,
    data_dir: Path | None,
    options: Mapping[str, Any],
) -> list[float] | None:
    """Seconds of some steps; None where the batch does not fit."""
    from batchlens.training.loop import train

    clock = _StepClock(str(options.get("device", "cpu")))
    arguments: dict[str, Any] = {"micro_batch": batch_size, **options, "max_steps": _WARM_UP + steps}
    try:
        with limited_memory(memory), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about training sets and budgets, which do not matter here
            record = train(
                workload,
                optimizer,
                batch_size,
                settings,
                data_dir=data_dir,
                watch=clock.end,
                stop=clock.begin,
                **arguments,
            )
    except (MemoryError, RuntimeError) as error:  # while the run is set up
        if not says_out_of_memory(f"{type(error).__name__}: {error}"):
            raise
        return None
    if record.status == "failed":
        if says_out_of_memory(record.reason):
            return None
        raise BatchlensError(f"a step of {batch_size:,} examples failed: {record.reason}")
    if len(clock.seconds) <= _WARM_UP:
        raise BatchlensError(f"the run at batch size {batch_size:,} ended after {len(clock.seconds)} steps.")
    return clock.seconds[_WARM_UP:]


class _StepClock:
    """Seconds between the start of a step and its end, the device having finished."""

    def __init__(self, device: str) -> None:
        self.kind = device.partition(":")[0]
        self.seconds: list[float] = []
        self.started = 0.0

    def begin(self, _: int) -> None:
        self._finish()
        self.started = time.perf_counter()

    def end(self, _: object) -> None:
        self._finish()
        self.seconds.append(time.perf_counter() - self.started)

    def _finish(self) -> None:
        import torch

        if self.kind != "cpu":
            getattr(torch, self.kind).synchronize()
