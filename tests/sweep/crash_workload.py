"""Workloads that go wrong, by the learning rate they are given."""

import os
import signal
import time
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


def data_that_forks(folder: Path | None) -> Dataset:
    """Leaves a child that holds whatever its parent had open; CHILDREN is the folder that names it."""
    if not (child := os.fork()):
        time.sleep(600)
        os._exit(0)
    (Path(os.environ["CHILDREN"]) / str(child)).touch()
    return DIGITS.data(folder)


def losses_that_kill_once(outputs: Tensor, targets: Tensor) -> Tensor:
    """Ends the first process that loaded the data."""
    if len(list(Path(os.environ["CHILDREN"]).iterdir())) == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return cross_entropies(outputs, targets)


def losses_that_wait(outputs: Tensor, targets: Tensor) -> Tensor:
    """Never come on a node that has a folder HOSTAGES, once one is wanted there."""
    folder = Path(os.environ.get("HOSTAGES", "nowhere"))
    if (folder / "wanted").exists():
        (folder / "taken").touch()
        time.sleep(600)
    return cross_entropies(outputs, targets)


deadly = replace(DIGITS, loss=losses_that_kill)
faulty = replace(DIGITS, loss=losses_that_raise)
hungry = replace(DIGITS, loss=losses_that_lack_memory)
absent = replace(DIGITS, data=no_data)
parent = replace(DIGITS, data=data_that_forks)
deadly_parent = replace(parent, loss=losses_that_kill_once)
hostage = replace(DIGITS, loss=losses_that_wait)
