"""How many threads a run takes: by a fixed rule of model and batch, never by timing.

Threads that have too little to do wait for each other, at many times the cost of one. So each must have enough work in
the forward pass of a slice; more than the machine has cores are never taken. The number changes how sums are rounded,
so a record says it.
"""

import os
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress

import torch
from torch.utils.flop_counter import FlopCounterMode

from batchlens.training._arguments import Arguments
from batchlens.training._sampling import Preparation
from batchlens.training.data.loading import Dataset

# Floating-point operations of a slice's forward pass that make another thread worth its while.
WORK_OF_A_THREAD = 5e8
# Examples on which the work is counted.
_COUNTED = 32


def choose_threads(arguments: Arguments, data: Dataset) -> int:
    """The threads that a run takes unless it is told."""
    slice_size = min(arguments.batches.largest, arguments.micro_batch)
    return max(1, min(int(slice_size * work_of_an_example(arguments, data) / WORK_OF_A_THREAD), count_cores()))


def work_of_an_example(arguments: Arguments, data: Dataset) -> float:
    """Floating-point operations of one example's forward pass.

    Fused kernels hide theirs from the counter, so that the model runs as it is trained, and without oneDNN.
    """
    inputs = Preparation(data, torch.device("cpu")).inputs(data.train.inputs[:_COUNTED])
    counter = FlopCounterMode(display=False)
    with ExitStack() as stack:
        stack.enter_context(torch.random.fork_rng(devices=[]))
        stack.enter_context(limit_threads(1))
        stack.enter_context(suppress(RuntimeError))  # a model that breaks says so when it is trained
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")
        stack.enter_context(torch.backends.mkldnn.flags(enabled=False))
        stack.enter_context(counter)
        arguments.workload.make_model()(inputs)
    return float(counter.get_total_flops()) / len(inputs)


def count_cores() -> int:
    """Those that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def limit_threads(count: int) -> Iterator[None]:
    """Torch with this many threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
