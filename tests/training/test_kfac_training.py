"""K-FAC in the training loop, and against momentum SGD."""

import math
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional

import batchlens
from batchlens.training._published import PUBLISHED as WORKLOADS
from batchlens.training.data._sources import is_present
from batchlens.training.loop import Interrupted, train
from batchlens.training.models import ResNet
from batchlens.training.record import Record
from batchlens.training.workloads import find_workload
from tests.training.test_learning import need_data
from tests.training.test_loop import TINY_VGG, final_weights, largest_difference, outcome, stop_at

DIGITS = find_workload("digits")
# The same number of settings each, at the intervals that benchmarks/bench_kfac.py times.
KFAC = [
    (0.1, 1e-2, 1e-3),
    (0.3, 1e-2, 1e-2),
    (1.0, 1e-1, 1e-2),
    (0.3, 1e-1, 1e-2),
    (0.1, 1e-2, 1e-2),
    (0.3, 3e-2, 3e-3),
]
MOMENTUM = [(0.01, 0.95), (0.03, 0.9), (0.03, 0.95), (0.1, 0.9), (0.1, 0.95), (0.3, 0.9)]


def fewest_steps(records: list[Record]) -> float:
    return min((record.steps for record in records if record.steps is not None), default=math.inf)


@pytest.mark.slow
@pytest.mark.parametrize("workload", ["digits", "simple_cnn_mnist"])
def test_fewer_steps_than_momentum_at_batch_512(workload: str, capsys: pytest.CaptureFixture[str]) -> None:
    if workload != "digits" and not is_present("mnist"):
        pytest.skip("the data set mnist is not here: batchlens data fetch mnist")
    run = partial(train, workload, batch_size=512, target=0.97)
    kfac = [
        run(optimizer="kfac", settings={"learning_rate": rate, "damping": damping, "kl_clip": clip}, max_steps=100)
        for rate, damping, clip in KFAC
    ]
    momentum = [
        run(optimizer="momentum", settings={"learning_rate": rate, "momentum": beta}, max_steps=200)
        for rate, beta in MOMENTUM
    ]
    default = fewest_steps([run(optimizer="kfac", settings={"learning_rate": 0.1}, max_steps=100)])
    with capsys.disabled():
        found = f"kfac {fewest_steps(kfac)} steps, by default {default}, momentum {fewest_steps(momentum)} steps"
        print(f"\n{workload}, batch 512: {found}")
    assert max(fewest_steps(kfac), default) < fewest_steps(momentum) < math.inf


@pytest.mark.parametrize(
    "workload", [pytest.param(name, marks=[pytest.mark.slow] * (name == "resnet32_cifar10")) for name in WORKLOADS]
)
def test_every_workload_trains_with_kfac(workload: str) -> None:
    need_data(workload)
    record = train(
        workload, "kfac", 32, {"learning_rate": 0.01}, max_steps=3, target=1.0 if "lm1b" not in workload else 0
    )
    assert (record.status, record.reason) == ("not_reached", "")


@pytest.mark.parametrize("preactivated", [False, True])
@pytest.mark.parametrize("normalized", [False, True])
def test_residual_networks_have_factors_for_all_but_their_norms(normalized: bool, preactivated: bool) -> None:
    torch.manual_seed(0)
    model = ResNet(1, normalized, width=2, preactivated=preactivated)
    optimizer = batchlens.KFAC(model, lr=0.1, other="sgd")
    norms = [name for name, module in model.named_modules() if isinstance(module, nn.BatchNorm2d)]
    assert set(optimizer.unfactored) == {f"{name}.{part}" for name in norms for part in ("weight", "bias")}
    images, targets = torch.randn(8, 3, 32, 32), torch.arange(8)
    losses = []
    for _ in range(8):
        optimizer.zero_grad()
        outputs = model(images)
        optimizer.observe(outputs)
        loss = functional.cross_entropy(outputs, targets)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0]


def test_a_paper_size_factor_is_inverted_every_hundred_steps() -> None:
    for name in WORKLOADS:
        found = find_workload(name, "paper")
        assert found.defaults.get("kfac", {}).get("inverse_every", 20) == (20 if name == "digits" else 100)


def test_micro_batches_give_the_same_step(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {"learning_rate": 0.1, "factor_every": 2, "inverse_every": 2}
    whole, sliced = (
        final_weights(
            monkeypatch, partial(train, "digits", "kfac", 100, settings, max_steps=3, target=1.0, micro_batch=size)
        )[1]
        for size in (None, 33)
    )
    assert 0 < largest_difference(whole, sliced) < 1e-4


def test_micro_batches_of_whole_ghosts_give_the_same_step(monkeypatch: pytest.MonkeyPatch) -> None:
    whole, sliced = (
        final_weights(
            monkeypatch, partial(train, TINY_VGG, "kfac", 112, {"learning_rate": 0.01}, max_steps=1, micro_batch=size)
        )[1]
        for size in (112, 32)
    )
    assert largest_difference(whole, sliced) < 1e-5


def test_convolutions_are_picked_up_to_the_bit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {"learning_rate": 0.01, "factor_every": 2, "inverse_every": 4}
    run = partial(train, TINY_VGG, "kfac", 48, settings, max_steps=6)
    never_stopped = final_weights(monkeypatch, run)
    with pytest.raises(Interrupted):
        run(checkpoint=tmp_path / "run.pt", stop=stop_at(3))
    picked_up = final_weights(monkeypatch, partial(run, checkpoint=tmp_path / "run.pt"))
    assert outcome(picked_up[0]) == outcome(never_stopped[0])
    assert all(torch.equal(a, b) for a, b in zip(picked_up[1], never_stopped[1], strict=True))


def test_a_run_is_picked_up_to_the_bit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = partial(train, replace(DIGITS, target=0.9999), "kfac+ema", 32, {"learning_rate": 0.05}, max_steps=40)
    never_stopped = final_weights(monkeypatch, run)
    with pytest.raises(Interrupted):
        run(checkpoint=tmp_path / "run.pt", stop=stop_at(15))
    picked_up = final_weights(monkeypatch, partial(run, checkpoint=tmp_path / "run.pt"))
    assert outcome(picked_up[0]) == outcome(never_stopped[0])
    assert all(torch.equal(a, b) for a, b in zip(picked_up[1], never_stopped[1], strict=True))


def test_a_learning_rate_that_reaches_zero_is_no_accident() -> None:
    settings = {"learning_rate": 0.1, "total_steps": 10}
    assert train("digits", "kfac", 64, settings, schedule="cosine", max_steps=20, target=1.0).status == "not_reached"


def test_a_learning_rate_that_rises_keeps_steps_clipped() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 4))
    inputs, targets = torch.randn(64, 8), torch.randint(4, (64,))
    optimizer = batchlens.KFAC(model, lr=0.0, momentum=0.9, damping=1e-3, kl_clip=1e-3)

    def step(rate: float) -> float:
        before = [weight.detach().clone() for weight in model.parameters()]
        optimizer.param_groups[0]["lr"] = rate
        optimizer.zero_grad()
        outputs = model(inputs)
        optimizer.observe(outputs)
        functional.cross_entropy(outputs, targets).backward()
        optimizer.step()
        return math.hypot(*(float((a.detach() - b).norm()) for a, b in zip(model.parameters(), before, strict=True)))

    moves = [step(rate) for rate in (0.0, 0.0, 0.0, 1.0, 1.0)]
    assert moves[:3] == [0.0, 0.0, 0.0]
    assert moves[4] < 3 * moves[3] < 3.0


def test_a_run_that_blows_up_has_diverged() -> None:
    settings = {"learning_rate": 1e30, "kl_clip": 1e30, "damping": 1e-12}
    assert train("digits", "kfac", 64, settings, max_steps=50).status == "diverged"
