"""The only training loop: one run, from seed to steps-to-target."""

import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Unpack

from batchlens._checks import require_whole
from batchlens.training._arguments import Options, check_arguments, load_data
from batchlens.training._checkpoint import prepare_checkpoint
from batchlens.training._recipes import Recipe
from batchlens.training._run import MOST_PASSES, Interrupted, Progress, Run, Stop, passes_of
from batchlens.training._threads import choose_threads, limit_threads
from batchlens.training.record import Record
from batchlens.training.workloads import Workload

__all__ = ["Interrupted", "Progress", "train"]


def train(
    workload: Workload | str,
    optimizer: Recipe | str,
    batch_size: int | None,
    settings: Mapping[str, float],
    *,
    threads: int | None = None,
    data_dir: Path | None = None,
    checkpoint: Path | None = None,
    watch: Callable[[Progress], None] | None = None,
    stop: Callable[[int], Stop | None] | None = None,
    **options: Unpack[Options],
) -> Record:
    """How many steps a training takes to its target: one run, a function of its arguments and the number of threads.

    Arguments:
        workload: a `Workload`, the name of one, or "my_file.py:name".
        optimizer: a name such as "momentum" or "momentum+ema", or a `Recipe` of one's own.
        batch_size: examples of a step; None with a `batch_schedule`.
        settings: learning_rate, and what else the optimizer and the schedule take.
        data_dir: the folder of the data sets; $BATCHLENS_DATA or else ~/.cache/batchlens by default.
        threads: of torch on the CPU; chosen by a fixed rule of the model and the batch unless given, see the record.
        checkpoint: a file that the run is saved to every few minutes, and picked up from if it exists; gone at the end.
        watch: called after every step.
        stop: called before every step with the steps taken so far; what it returns ends the run.
        size: "laptop" (the default) or "paper", for a workload's name.
        seed: 0 unless given.
        max_steps: the step budget; the workload's unless given.
        micro_batch: gradients are accumulated over slices of this many examples; the update stays the same.
        schedule: constant, linear_decay, cosine, step_decay or warmup_stable_decay; the workload's unless given.
        batch_schedule: batch sizes and learning rates that change on the way: a CSV file with the columns step,
            batch_size and learning_rate, as `BatchSchedule.to_csv` writes it, or such rows; each from its step on.
        target: what counts as trained; the workload's unless given.
        target_on: where it is to be reached: on the "validation" set (the default) or on as many "train" examples, or
            "train-loss" for the loss on the latter.
        also_targets: others, such as "train-loss:0.3", which are noted on the way.
        all_targets: whether the run goes on until those are met too; False unless given.
        confirm_target: whether two evaluations in a row must meet the target; False unless given.
        averages: a ladder of averages of the weights measured beside the run, of which "best" notes the first to meet
            the target and "each" all that have by then; for an optimizer with +ema, they are what counts.
        lazy: whether an evaluation may end as soon as the target is out of reach; True unless given.
        device: cpu (the default), cuda or mps.

    >>> record = train("digits", "momentum", batch_size=64, settings={"learning_rate": 0.1, "momentum": 0.9})
    >>> record.status, record.steps < 200
    ('reached', True)
    """
    checked = check_arguments(workload, optimizer, batch_size, settings, **options)
    asked = None if threads is None else require_whole("threads", threads, 1)
    data = load_data(checked.workload, data_dir)
    if checked.batches.largest > len(data.train):
        warnings.warn(
            f"a batch of {checked.batches.largest:,} is larger than the training set of {len(data.train):,} examples.",
            stacklevel=2,
        )
    if (passes := passes_of(checked, len(data.train))) > MOST_PASSES:
        warnings.warn(
            f"the step budget shows each of the {len(data.train):,} training examples up to {passes:,.0f} times. "
            "Get more data, or lower `max_steps`.",
            stacklevel=2,
        )
    with limit_threads(asked or choose_threads(checked, data)):
        kept = None if checkpoint is None else prepare_checkpoint(Path(checkpoint))
        run = Run(checked, data, kept)
        return run.go(watch or (lambda _: None), stop or (lambda _: None))
