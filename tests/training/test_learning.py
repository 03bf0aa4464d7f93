"""Every workload trains: one golden run each, and a loss that falls."""

from dataclasses import replace

import pytest

from batchlens.training._published import PUBLISHED as WORKLOADS
from batchlens.training.data._sources import is_present
from batchlens.training.data.loading import Split
from batchlens.training.loop import train
from batchlens.training.workloads import Workload, find_workload

DATA = {
    "simple_cnn_mnist": "mnist",
    "simple_cnn_fashion_mnist": "fashion_mnist",
    "resnet8_cifar10": "cifar10",
    "resnet32_cifar10": "cifar10",
    "vgg11_cifar10": "cifar10",
    "transformer_lm1b": "lm1b",
    "digits": "digits",
}
# Training loss of the third batch of 32 with momentum 0.9, learning rate 0.01 and seed 0.
GOLDEN = {
    "simple_cnn_mnist": 2.30254,
    "simple_cnn_fashion_mnist": 2.42652,
    "resnet8_cifar10": 2.33201,
    "resnet32_cifar10": 2.32704,
    "vgg11_cifar10": 2.29781,
    "transformer_lm1b": 7.46911,
    "digits": 2.27781,
}
# Learning rate with momentum 0.9 at batch 32, and what part of the first loss on 32 examples is left after 30 steps.
LEARNS = {
    "simple_cnn_mnist": (0.03, 0.1),
    "simple_cnn_fashion_mnist": (0.03, 0.3),
    "resnet8_cifar10": (0.007, 0.9),
    "resnet32_cifar10": (0.05, 0.7),
    "vgg11_cifar10": (0.05, 0.7),
    "transformer_lm1b": (0.3, 0.8),
    "digits": (0.1, 0.1),
}


def need_data(workload: str) -> None:
    if not is_present(DATA[workload]):
        pytest.skip(f"the data set {DATA[workload]} is not here: batchlens data fetch {DATA[workload]}")


def loss_after(workload: str | Workload, steps: int, rate: float) -> float:
    record = train(workload, "momentum", 32, {"learning_rate": rate}, max_steps=steps, threads=1)
    assert record.last_loss is not None
    return record.last_loss


@pytest.mark.parametrize("workload", WORKLOADS)
def test_golden_step(workload: str) -> None:
    need_data(workload)
    found = loss_after(workload, 3, 0.01)
    assert found == pytest.approx(GOLDEN[workload], rel=2e-3), (
        f"{workload} trains differently than it did. Where model, data, sampling or loss was meant to change, "
        f"write {found:.5f} into GOLDEN and say in CHANGELOG.md that results do not compare; else it is a mistake."
    )


@pytest.mark.parametrize("workload", WORKLOADS)
def test_loss_falls(workload: str) -> None:
    need_data(workload)
    found = find_workload(workload)
    data = found.data(None)
    few = replace(data, train=Split(data.train.inputs[:32], data.train.targets[:32]))
    rate, part = LEARNS[workload]
    task = replace(found, data=lambda _: few, augment=False, evaluation_examples=32, schedule="constant")
    first, last = (loss_after(task, steps, rate) for steps in (1, 30))
    assert last < part * first
