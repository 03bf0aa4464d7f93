"""Every workload trains: one golden run each, and a loss that falls."""

import pytest

from batchlens.training.loop import train
from batchlens.training.sources import is_present
from batchlens.training.workloads import WORKLOADS, find_workload

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
    "simple_cnn_mnist": 2.43458,
    "simple_cnn_fashion_mnist": 2.28728,
    "resnet8_cifar10": 2.39086,
    "resnet32_cifar10": 4.09261,
    "vgg11_cifar10": 2.56943,
    "transformer_lm1b": 7.45276,
    "digits": 3.16519,
}
# Learning rate with momentum 0.9 at batch 32, and what part of the first loss is left after so many steps.
LEARNS = {
    "simple_cnn_mnist": (0.03, 30, 0.5),
    "simple_cnn_fashion_mnist": (0.03, 30, 0.6),
    "resnet8_cifar10": (0.02, 60, 0.85),
    "resnet32_cifar10": (0.1, 40, 0.75),
    "vgg11_cifar10": (0.05, 60, 0.85),
    "transformer_lm1b": (0.3, 30, 0.9),
    "digits": (0.1, 30, 0.3),
}


def need_data(workload: str) -> None:
    if not is_present(DATA[workload]):
        pytest.skip(f"the data set {DATA[workload]} is not here: batchlens data fetch {DATA[workload]}")


def loss_after(workload: str, steps: int, rate: float) -> float:
    record = train(find_workload(workload), "momentum", 32, {"learning_rate": rate}, max_steps=steps, threads=1)
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
    rate, steps, part = LEARNS[workload]
    assert loss_after(workload, steps, rate) < part * loss_after(workload, 1, rate)
