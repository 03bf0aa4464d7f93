"""Running a sweep: whatever is missing from its store is run, and kept as it ends."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from batchlens._checks import require_instance, require_number, require_sequence
from batchlens.sweep._declaration import Shard
from batchlens.sweep._declare import declare
from batchlens.sweep._filling import SweepInterrupted, fill
from batchlens.sweep.results import SweepResult, read_sweep
from batchlens.training.spaces import Space
from batchlens.training.workloads import Workload

if TYPE_CHECKING:
    from batchlens.sweep._progress import Progress

__all__ = ["SweepInterrupted", "run_sweep"]


def run_sweep(
    workload: str | Workload,
    optimizers: Sequence[str],
    batch_sizes: Sequence[int] | None = None,
    trials: int | None = None,
    *,
    store: Path | str,
    size: str = "laptop",
    seed: int = 0,
    target: float | None = None,
    target_on: str = "validation",
    max_steps: int | None = None,
    keep: int = 5,
    spaces: Mapping[str, Space] | None = None,
    pruning: bool = True,
    repeats: int = 0,
    search: str = "guided",
    seeds: int | None = None,
    also_targets: Sequence[str] = (),
    confirm_target: bool = False,
    extend: bool | None = None,
    precision: float | None = None,
    time_budget: float | None = None,
    retry_failed: bool = False,
    take_over: bool = False,
    workers: int | None = None,
    ray: str | None = None,
    cpus: int = 1,
    gpus: float = 0,
    shard: str | None = None,
    device: str | None = None,
    data_dir: Path | None = None,
    watch: "Callable[[Progress], None] | None" = None,
) -> SweepResult:
    """Tunes every optimizer at every batch size: which settings reach the target in the fewest steps?

    The sweep is kept in one file, and running it means filling in what is missing: after Ctrl-C or a crash run the same
    again. More trials add only those; anything else that differs is refused.

    Arguments:
        workload: a name, "my_file.py:name", or a `Workload`; one that is made in this process and found by no name is
            trained in this process, one trial after the other.
        optimizers: names such as "momentum" or "momentum+ema".
        batch_sizes: the workload's unless given.
        trials: of each optimizer and batch size: 29 in a guided search, to which finalists and seeds come; else the
            workload's, those that diverge early not counted.
        store: the file that keeps the sweep, made where there is none.
        size: "laptop" or "paper", for a workload's name.
        seed: of the search and of the runs.
        target: what counts as trained; the workload's unless given.
        target_on: where it is to be reached, on the "validation" or the "train" set, or "train-loss".
        max_steps: the step budget of every run; the workload's unless given.
        keep: how many of the best trials of a cell are known exactly; slower ones may be pruned.
        spaces: ranges that replace the workload's, by optimizer and setting.
        pruning: whether trials that cannot be among the best any more are ended; the results are the same.
        repeats: with how many other seeds each winner of a sobol search is trained again.
        search: "guided" for rounds that learn from the ones before, finalists, and fresh seeds that report; "sobol" for
            independent points, of which the best is reported, as in the paper.
        seeds: with how many fresh seeds a guided search trains what it has chosen; 5 unless given.
        also_targets: others, such as "train-loss:0.3", noted on the way.
        confirm_target: whether two evaluations in a row must meet the target.
        extend: whether a search may leave its space: guided points by a third of it, sobol by wider boxes near whose
            edge the winner is; True unless given, of a shard of a sobol search False.
        precision: half the interval of a cell's log steps that is enough, such as 0.05: as many seeds as that takes.
        time_budget: seconds after which no trial is started; a complete sweep uses what is left for more seeds where
            the intervals are widest.
        retry_failed: whether trials that failed in earlier runs are run again.
        take_over: takes the store from a sweep that holds it, without watching it for a sign of life; that one can
            write no more.
        workers: processes of this machine; one per core unless given.
        ray: the address of a Ray cluster to run on instead, or "auto".
        cpus: of each trial; a process of this machine uses as many threads.
        gpus: of each trial.
        shard: "I/N" for only every N-th trial, from the I-th on, of a guided search every N-th family of optimizers;
            `merge_sweeps` joins the stores.
        device: cpu unless `gpus` are asked for, then cuda.
        data_dir: where data sets are; $BATCHLENS_DATA or else ~/.cache/batchlens by default.
        watch: called with the progress, twice a second at most.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     store = Path(folder) / "digits.sqlite"
    ...     result = run_sweep("digits", ["sgd"], batch_sizes=[64], trials=2, store=store, workers=1)
    >>> result.complete, result.curves()["sgd"].batch_sizes
    (True, (64.0,))
    """
    sizes = None if batch_sizes is None else sorted(set(require_sequence("batch_sizes", batch_sizes)))
    sweep = declare(
        workload,
        optimizers,
        size=size,
        batch_sizes=sizes,
        trials=trials,
        seed=seed,
        target=target,
        target_on=target_on,
        max_steps=max_steps,
        keep=keep,
        spaces=spaces,
        search=search,
        seeds=seeds,
        also_targets=also_targets,
        confirm_target=confirm_target,
    )
    summary = fill(
        sweep,
        store,
        workers=workers,
        ray=ray,
        cpus=cpus,
        gpus=require_number("gpus", gpus, low=0),
        shard=None if shard is None else Shard.parse(require_instance("shard", shard, str)),
        pruning=pruning,
        repeats=repeats,
        extend=extend,
        precision=precision,
        time_budget=time_budget,
        retry_failed=retry_failed,
        take_over=take_over,
        data_dir=data_dir,
        device=device,
        watch=watch,
    )
    return replace(read_sweep(store), summary=summary)
