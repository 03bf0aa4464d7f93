"""Two processes that train one model: what one process with the whole batch finds."""

import math
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, distributed, nn
from torch.multiprocessing.spawn import spawn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

from batchlens.monitor.noise_scale import NoiseScale

STEPS, BATCH, PROCESSES = 5, 32, 2
# By examples, or by micro-batches with as many backward passes on each process; l1 takes a part of them.
WAYS: dict[str, tuple[int, dict[str, Any]]] = {
    "examples": (1, {"by": "examples", "examples": None}),
    "ranks": (1, {}),
    "ranks and micro-batches": (2, {}),
    "sums": (2, {"by": "micro_batches", "reduction": "sum"}),
    "l1": (1, {"geometry": "l1"}),
}


def make_model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv1d(1, 3, 3), nn.ReLU(), nn.Flatten(), nn.Linear(18, 4))


def train(model: nn.Module, processes: int, rank: int, way: str, alone_until_last: bool = False) -> list[list[float]]:
    """What every step says, where this process has every so many-th small batch; the weights move."""
    passes, settings = WAYS[way]
    noise = NoiseScale(model, **{"by": "micro_batches"} | settings)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    mean = settings.get("reduction") != "sum"
    for step in range(STEPS):
        random = torch.Generator().manual_seed(step)
        inputs = torch.randn(BATCH, 1, 8, generator=random)
        labels = inputs[:, 0, :4].argmax(1)
        small = list(zip(*(part.chunk(passes * PROCESSES) for part in (inputs, labels)), strict=True))
        mine = small[rank::processes]
        optimizer.zero_grad()
        for given, wanted in mine:
            last = given is mine[-1][0]
            with nullcontext() if last or not alone_until_last else model.no_sync():  # type: ignore[operator]
                whole = functional.cross_entropy(model(given), wanted, reduction="mean" if mean else "sum")
                (whole / (len(mine) if mean else BATCH / processes)).backward()
        noise.step()
        optimizer.step()
    return [list(parts) for parts in noise._records]


def work(rank: int, folder: Path, port_file: str) -> None:
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", init_method=f"file://{port_file}", rank=rank, world_size=PROCESSES)
    found: dict[str, Any] = {}
    for way in WAYS:
        for view in (True, False):
            model = DistributedDataParallel(make_model(), gradient_as_bucket_view=view)
            found[f"{way}, {view}"] = train(model, PROCESSES, rank, way, alone_until_last=view)
    try:
        NoiseScale(make_model())
    except ValueError as error:
        found["refused"] = str(error)
    noise = NoiseScale(DistributedDataParallel(make_model()), by="micro_batches")
    try:
        noise.step()
    except Exception as error:
        found["nothing"] = str(error)
    found["broken"] = step_twice(DistributedDataParallel(make_model()), torch.inf if rank == 0 else 1.0)
    torch.save(found, folder / f"{rank}.pt")
    distributed.barrier()
    distributed.destroy_process_group()


def step_twice(model: nn.Module, value: float) -> tuple[int, int]:
    """How many steps were measured and how many skipped, the inputs of the second being `value` times as large."""
    noise = NoiseScale(model)
    for factor in (1.0, value):
        model.zero_grad()
        inputs: Tensor = torch.randn(8, 1, 8) * factor
        model(inputs).square().mean().backward()
        noise.step()
    return noise.estimate().steps, noise.skipped


def first_l1_parts() -> tuple[float, float]:
    """Noise and signal of the first step from the two gradients themselves; b = 16 examples each."""
    inputs = torch.randn(BATCH, 1, 8, generator=torch.Generator().manual_seed(0))
    gradients = []
    for part in inputs.chunk(2):
        model = make_model()
        functional.cross_entropy(model(part), part[:, 0, :4].argmax(1)).backward()
        gradients.append(torch.cat([own.grad.flatten() for own in model.parameters() if own.grad is not None]))
    one, other = gradients
    noise = math.sqrt(math.pi / 2) * float((one - other).abs().sum()) / math.sqrt(1 / 16 + 1 / 16)
    return noise, float((one.sign() @ other + other.sign() @ one) / 2)


@pytest.mark.slow
def test_two_processes_find_what_one_finds(tmp_path: Path) -> None:
    spawn(work, (tmp_path, str(tmp_path / "meeting")), nprocs=PROCESSES)
    first, second = (torch.load(tmp_path / f"{rank}.pt", weights_only=False) for rank in range(PROCESSES))
    assert first == second
    for way in WAYS:
        for view in (True, False):
            found = torch.tensor(first[f"{way}, {view}"])
            if way == "l1":  # each process compares its own small batch with the other's
                assert found[0, :2].tolist() == pytest.approx(first_l1_parts(), rel=1e-4)
                continue
            alone = torch.tensor(train(make_model(), 1, 0, way))
            torch.testing.assert_close(found, alone, rtol=1e-3, atol=1e-6)
    assert "must be the DistributedDataParallel model" in first["refused"]
    assert "no backward pass" in first["nothing"]
    assert first["broken"] == (1, 1)
