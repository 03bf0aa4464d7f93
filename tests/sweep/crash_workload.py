"""Workloads that go wrong, by the learning rate they are given."""

import os
import signal
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from batchlens.errors import BatchlensError
from batchlens.training.data.loading import Dataset
from batchlens.training.metrics import cross_entropies
from batchlens.training.workloads import find_workload

DIGITS = find_workload("digits")


def losses_that_kill(outputs: Tensor, targets: Tensor) -> Tensor:
    """Ends the process once weights are large, as a lack of memory would."""
    if outputs.detach().abs().max() > 50:
        os.kill(os.getpid(), signal.SIGKILL)
    return cross_entropies(outputs, targets)


def losses_that_raise(outputs: Tensor, targets: Tensor) -> Tensor:
    raise KeyError("no such class")


def losses_that_lack_memory(outputs: Tensor, targets: Tensor) -> Tensor:
    if torch.is_grad_enabled():
        raise MemoryError("no memory left")
    return cross_entropies(outputs, targets)


def no_data(folder: Path | None) -> Dataset:
    raise BatchlensError("the data set is not there")


deadly = replace(DIGITS, loss=losses_that_kill)
faulty = replace(DIGITS, loss=losses_that_raise)
hungry = replace(DIGITS, loss=losses_that_lack_memory)
absent = replace(DIGITS, data=no_data)
