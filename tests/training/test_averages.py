"""Averages of the weights, alone and in a ladder beside a run."""

import copy
import math
from functools import partial

import pytest
import torch
from torch import nn

from batchlens.training import _run as run_module
from batchlens.training._averages import LADDER, Average, Averaging, copy_into, tensors_of
from batchlens.training.loop import train
from batchlens.training.record import Record

SETTINGS = {"learning_rate": 0.3}


def move(model: nn.Module) -> None:
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(torch.randn_like(weight))


def to_loss(target: float, settings: dict[str, float], seed: int, averages: str = "") -> Record:
    return train("digits", "sgd+ema", 8, settings, seed=seed, target_on="train-loss", target=target, averages=averages)


def test_averages_follow_weights_and_buffers() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 2), nn.Unflatten(1, (2, 1, 1)), nn.BatchNorm2d(2))
    gamma = 0.7
    average = Average(Averaging(gamma), model)
    expected = [tensor.detach().clone() for tensor in tensors_of(model)]
    for step in range(1, 6):
        model(torch.randn(6, 3) + step)  # moves the buffers
        move(model)
        average.update(step, tensors_of(model))
        for place, (tensor, known) in enumerate(zip(tensors_of(model), expected, strict=True)):
            real = tensor.is_floating_point()
            expected[place] = gamma * known + (1 - gamma) * tensor.detach() if real else tensor.clone()
            torch.testing.assert_close(average.tensors[place], expected[place])
    assert sum(not tensor.is_floating_point() for tensor in expected) == 1  # the number of batches


def test_a_window_grows_with_the_run() -> None:
    layer = nn.Linear(1, 1, bias=False)
    average = Average(Averaging(window=0.5), layer)
    expected = layer.weight.item()
    for step in range(1, 40):
        move(layer)
        average.update(step, tensors_of(layer))
        weight = min(1.0, 2 / step)
        expected += weight * (layer.weight.item() - expected)
        assert average.tensors[0].item() == pytest.approx(expected, rel=1e-5, abs=1e-6)


@pytest.mark.parametrize("averaging", LADDER)
def test_pauses_keep_the_weight_of_what_came_before(averaging: Averaging) -> None:
    """Of weights that stand still after the first step, a pausing average is what one without pauses is."""
    layer = nn.Linear(1, 1, bias=False)
    one, other = Average(averaging, layer), Average(averaging, layer, pauses=True)
    move(layer)
    updates = 0
    for step in range(1, 400):
        one.update(step, tensors_of(layer))
        before = other.tensors[0].clone()
        other.update(step, tensors_of(layer))
        updates += not torch.equal(before, other.tensors[0]) or other._kept == 1.0
        if other._kept == 1.0:
            torch.testing.assert_close(one.tensors, other.tensors, rtol=1e-5, atol=1e-6)
    if averaging.coefficient >= 0.95 or averaging.window:
        assert updates < 250


@pytest.mark.parametrize("gamma", [0.0, 0.5])
def test_the_first_update_is_no_exception(gamma: float) -> None:
    layer = nn.Linear(1, 1, bias=False)
    nn.init.constant_(layer.weight, 1.0)
    average = Average(Averaging(gamma), layer)
    nn.init.constant_(layer.weight, 3.0)
    assert average.tensors[0].item() == 1.0
    average.update(1, tensors_of(layer))
    assert average.tensors[0].item() == gamma + (1 - gamma) * 3


def test_averages_go_on_from_their_state() -> None:
    layer = nn.Linear(2, 2)
    one, other = (Average(Averaging(0.99), model, pauses=True) for model in (layer, nn.Linear(2, 2)))
    for step in range(1, 30):
        move(layer)
        one.update(step, tensors_of(layer))
        if step == 14:
            other.load_state_dict(copy.deepcopy(one.state_dict()))
        if step > 14:
            other.update(step, tensors_of(layer))
    for value, again in zip(one.tensors, other.tensors, strict=True):
        assert torch.equal(value, again)


def test_a_model_takes_on_what_another_one_was() -> None:
    model, other = nn.BatchNorm2d(2), nn.BatchNorm2d(2)
    model(torch.randn(4, 2, 3, 3))
    copy_into(other, tensors_of(model))
    for one, copied in zip(model.state_dict().values(), other.state_dict().values(), strict=True):
        assert torch.equal(one, copied)


@pytest.mark.parametrize("averaging", [entry for entry in LADDER if entry.coefficient in (0.5, 0.8)])
@pytest.mark.parametrize("seed", range(3))
def test_a_rung_of_the_ladder_is_what_a_run_of_its_own_gives(averaging: Averaging, seed: int) -> None:
    together = to_loss(0.3, SETTINGS, seed, averages="each")
    alone = to_loss(0.3, {**SETTINGS, **averaging.settings}, seed)
    found = together.crossings["train-loss 0.3"].get(str(averaging))
    if found is None:  # it arrives later than the best, by more than a rung
        assert alone.steps is None or alone.steps > together.steps_taken
    else:
        assert found == alone.crossings["train-loss 0.3"][str(averaging)]


@pytest.mark.slow
@pytest.mark.parametrize("averaging", [entry for entry in LADDER if entry.coefficient not in (0.5, 0.8)])
def test_averages_that_pause_arrive_as_those_that_do_not(averaging: Averaging, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over 20 runs, each with and without pauses: in the geometric mean within 1.5%."""
    settings = {**SETTINGS, **averaging.settings}
    alone = [to_loss(0.1, settings, seed).steps_interpolated for seed in range(20)]
    monkeypatch.setattr(run_module, "Average", partial(Average, pauses=True))
    pausing = [to_loss(0.1, settings, seed).steps_interpolated for seed in range(20)]
    ratios = [math.log(one / other) for one, other in zip(pausing, alone, strict=True) if one and other]
    assert len(ratios) == 20
    assert any(ratios)
    assert abs(sum(ratios) / len(ratios)) < 0.015


def test_averaging_leaves_training_alone() -> None:
    plain, beside = (train("digits", "momentum", 32, {"learning_rate": 0.05}, averages=kind) for kind in ("", "best"))
    assert plain.steps_interpolated == beside.steps_interpolated
    assert plain.last_loss == beside.last_loss


@pytest.mark.parametrize("name", ["averaging", "window"])
def test_a_coefficient_beside_the_ladder_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=f"`{name}` must be left out with `averages`"):
        train("digits", "sgd+ema", 64, {"learning_rate": 0.1, name: 0.5}, averages="best")
