"""K-FAC in two processes that train one model: the steps of one process with the whole batch."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, distributed, nn
from torch.multiprocessing.spawn import spawn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

from batchlens.kfac import KFAC

STEPS, EXAMPLES, PROCESSES = 12, 36, 2
SETTINGS: dict[str, Any] = {"lr": 0.3, "factor_every": 2, "inverse_every": 3, "seed": 5}


def make_model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 3, 3), nn.ReLU(), nn.Flatten(), nn.Linear(48, 6), nn.LayerNorm(6), nn.Linear(6, 4)
    )


def batch(step: int) -> tuple[Tensor, Tensor]:
    random = torch.Generator().manual_seed(step)
    images = torch.randn(EXAMPLES, 1, 6, 6, generator=random)
    return images, images.flatten(1)[:, :4].argmax(1)


def train(model: nn.Module, part: slice, slices: int, **settings: Any) -> Tensor:
    """The weights after some steps on that part of every batch."""
    optimizer = KFAC(model, other="sgd", **SETTINGS | settings)
    for step in range(STEPS):
        optimizer.zero_grad()
        for images, labels in zip(*(whole[part].chunk(slices) for whole in batch(step)), strict=True):
            outputs = model(images)
            optimizer.observe(outputs, labels)
            (functional.cross_entropy(outputs, labels) / slices).backward()
        optimizer.step()
    return nn.utils.parameters_to_vector(model.parameters()).detach()


def work(rank: int, folder: Path, slices: int, settings: dict[str, Any]) -> None:
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=PROCESSES)
    model = DistributedDataParallel(make_model())
    torch.save(train(model, slice(rank, None, PROCESSES), slices, **settings), folder / f"{rank}.pt")
    alone = distributed.new_group([0])
    if rank == 0:
        torch.save(train(make_model(), slice(None), 1, **settings, process_group=alone), folder / "alone.pt")
    distributed.barrier()
    distributed.destroy_process_group()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("slices", "settings"),
    [(1, {}), (1, {"fisher": "empirical"}), (3, {})],
    ids=["sampled", "empirical", "micro-batches"],
)
def test_two_processes_take_the_steps_of_one(tmp_path: Path, slices: int, settings: dict[str, Any]) -> None:
    spawn(work, (tmp_path, slices, settings), nprocs=PROCESSES)
    first, second, alone = (torch.load(tmp_path / f"{name}.pt") for name in ("0", "1", "alone"))
    whole = train(make_model(), slice(None), 1, **settings)
    assert torch.equal(first, second)
    torch.testing.assert_close(first, whole, rtol=0, atol=1e-5)
    assert torch.equal(alone, whole)
    assert float((whole - nn.utils.parameters_to_vector(make_model().parameters())).detach().norm()) > 0.1
