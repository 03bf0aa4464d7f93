"""K-FAC with groups of parameters, weight decay and examples that the loss leaves out."""

import copy
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from batchlens.kfac import KFAC


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3)).double()


def batch(size: int = 32) -> tuple[Tensor, Tensor]:
    random = torch.Generator().manual_seed(0)
    inputs = torch.randn(size, 4, generator=random, dtype=torch.float64)
    return inputs, (inputs[:, :3] + 0.1).argmax(1)


def moves(optimizer: KFAC) -> dict[str, Tensor]:
    """How far one step moves every parameter."""
    model = optimizer.model
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    optimizer.zero_grad()
    outputs = model(batch()[0])
    optimizer.observe(outputs)
    functional.cross_entropy(outputs, batch()[1]).backward()
    optimizer.step()
    return {name: before[name] - parameter.detach() for name, parameter in model.named_parameters()}


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_weight_decay_is_apart_from_the_step(momentum: float) -> None:
    plain = moves(KFAC(network(), lr=0.2, momentum=momentum))
    decayed = moves(KFAC(network(), lr=0.2, momentum=momentum, weight_decay=0.5))
    for name, parameter in network().named_parameters():
        torch.testing.assert_close(decayed[name], plain[name] + 0.2 * 0.5 * parameter.detach())


def test_groups_have_their_own_rates() -> None:
    model = network()
    groups: list[dict[str, Any]] = [
        {"params": model[2].parameters(), "lr": 0.05},
        {"params": model[0].bias, "weight_decay": 0.5},
    ]
    found = moves(KFAC(model, lr=0.2, momentum=0.0, kl_clip=None, groups=groups))
    plain = moves(KFAC(network(), lr=0.2, momentum=0.0, kl_clip=None))
    start = dict(network().named_parameters())["0.bias"].detach()
    torch.testing.assert_close(found["0.weight"], plain["0.weight"])
    torch.testing.assert_close(found["2.weight"], plain["2.weight"] / 4)
    torch.testing.assert_close(found["0.bias"], plain["0.bias"] + 0.1 * start)


def test_the_trust_region_counts_every_group_with_its_rate() -> None:
    model = network()
    optimizer = KFAC(model, lr=0.2, momentum=0.0, kl_clip=1e-4, groups=[{"params": model[2].parameters(), "lr": 0.05}])
    found = moves(optimizer)
    free = moves(KFAC(network(), lr=1.0, momentum=0.0, kl_clip=None))
    rates = {"0.weight": 0.2, "0.bias": 0.2, "2.weight": 0.05, "2.bias": 0.05}
    reduction = 0.0
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None
        reduction += rates[name] ** 2 * float((free[name] * parameter.grad).sum())
    scale = (1e-4 / reduction) ** 0.5
    assert scale < 1
    for name, rate in rates.items():
        torch.testing.assert_close(found[name], scale * rate * free[name])


def test_groups_are_saved_and_copied() -> None:
    def make() -> KFAC:
        model = network()
        return KFAC(model, lr=0.2, groups=[{"params": [model[0].bias, model[2].bias], "lr": 0.05}])

    optimizer, resumed = make(), make()
    moves(optimizer)
    resumed.model.load_state_dict(optimizer.model.state_dict())
    resumed.load_state_dict(optimizer.state_dict())
    copied = copy.deepcopy(optimizer)
    expected = moves(optimizer)
    for other in (resumed, copied):
        assert [group["lr"] for group in other.param_groups] == [0.2, 0.05]
        found = moves(other)
        assert all(torch.equal(found[name], expected[name]) for name in expected)


@pytest.mark.parametrize(
    ("group", "message"),
    [
        ({"lr": 0.1}, 'as "params"'),
        ({"params": [], "damping": 1.0}, "can set lr, momentum, weight_decay, which are its own, got damping"),
        ({"params": [nn.Parameter(torch.zeros(1))]}, "trainable parameters of `model`, each of them once"),
        ({"params": [], "weight_decay": -1.0}, "`weight_decay` must be finite and at least 0, got -1.0."),
    ],
)
def test_bad_groups_are_named(group: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError) as error:  # noqa: PT011
        KFAC(network(), groups=[group])
    assert message in str(error.value)


# Examples that the loss leaves out --------------------------------------------------------------


@pytest.mark.parametrize("fisher", ["sampled", "empirical", "exact"])
def test_examples_that_are_left_out_leave_the_loss(fisher: str) -> None:
    """A sums over all rows and S averages over them; only N counts what is in the loss, so that S kron A is right."""
    inputs = torch.ones(12, 4, dtype=torch.float64)
    labels = torch.arange(12) % 3
    kept = torch.arange(12) % 4 == 0
    optimizer = KFAC(nn.Linear(4, 3).double(), fisher=fisher, ignore_index=-7)
    outputs = optimizer.model(inputs)
    optimizer.observe(outputs, labels.masked_fill(~kept, -7))
    functional.cross_entropy(outputs, labels).backward()
    optimizer.param_groups[0]["lr"] = 0.0
    optimizer.step()
    A, S = optimizer.factors()["model"]
    torch.testing.assert_close(A, torch.full((5, 5), 12 / 3, dtype=torch.float64))
    expected = np.zeros((3, 3))
    for place in kept.nonzero().flatten().tolist():
        p = torch.softmax(outputs[place].detach(), -1).numpy()
        gradient = p - np.eye(3)[int(labels[place])]
        expected += np.outer(gradient, gradient) if fisher == "empirical" else np.diag(p) - np.outer(p, p)
    if fisher == "sampled":  # right on average only
        assert 0.1 * expected.trace() < 12 * float(S.trace()) < 10 * expected.trace()
    else:
        np.testing.assert_allclose(S.numpy(), expected / 12, rtol=1e-10, atol=1e-15)


def test_left_out_positions_change_nothing_in_the_others() -> None:
    """A sampled label does not depend on which other labels are left out."""
    factors = []
    for left_out in (0, 4):
        optimizer = KFAC(network(), lr=0.0)
        inputs, labels = batch(8)
        labels[8 - left_out :] = -100
        outputs = optimizer.model(inputs)
        optimizer.observe(outputs, labels)
        functional.cross_entropy(outputs, labels).backward()
        optimizer.step()
        factors.append(optimizer.factors()["2"])
    torch.testing.assert_close(factors[1][0], 2 * factors[0][0])
    assert float(factors[1][1].trace()) < float(factors[0][1].trace())
