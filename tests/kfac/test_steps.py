"""K-FAC's steps: what they solve, what theory says of them, and how damping, momentum and the trust region act."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import batchlens as bl
from batchlens.kfac import KFAC


def inputs_with_curvature(spectrum: Tensor, examples: int, seed: int = 0) -> Tensor:
    """Inputs x with 1/N sum x x^T = diag(spectrum)."""
    random = torch.Generator().manual_seed(seed)
    basis: Tensor = torch.linalg.qr(torch.randn(examples, len(spectrum), generator=random, dtype=torch.float64)).Q
    return basis * (examples * spectrum).sqrt()


def squared_error(outputs: Tensor, targets: Tensor) -> Tensor:
    return (outputs - targets).square().sum(-1).mean() / 2


def test_least_squares_of_condition_a_million_takes_a_handful_of_steps() -> None:
    torch.manual_seed(0)
    spectrum = torch.logspace(0, -6, 20, dtype=torch.float64)
    rotation = torch.linalg.qr(torch.randn(20, 20, dtype=torch.float64)).Q
    inputs = inputs_with_curvature(spectrum, 50) @ rotation
    targets = inputs @ torch.randn(20, 3, dtype=torch.float64) + 1

    def losses(kfac: bool, steps: int) -> list[float]:
        torch.manual_seed(1)
        model = nn.Linear(20, 3).double()
        if kfac:
            optimizer: torch.optim.Optimizer = KFAC(
                model, "squared_error", lr=1.0, momentum=0.0, damping=1e-18, kl_clip=None, fisher="exact"
            )
        else:
            optimizer = torch.optim.SGD(model.parameters(), lr=1.0)  # the curvature is at most 1 (2 with the bias)
        found = []
        for _ in range(steps):
            optimizer.zero_grad()
            outputs = model(inputs)
            if isinstance(optimizer, KFAC):
                optimizer.observe(outputs)
            loss = squared_error(outputs, targets)
            loss.backward()
            optimizer.step()
            found.append(loss.item())
        return found

    assert losses(kfac=True, steps=4)[-1] < 1e-20
    assert losses(kfac=False, steps=3000)[-1] > 1e-8


@pytest.mark.parametrize(("learning_rate", "momentum"), [(0.3, 0.0), (0.1, 0.8)])
def test_mean_risk_is_that_of_the_noisy_quadratic(learning_rate: float, momentum: float) -> None:
    """Fresh label noise at fixed inputs is the theory's gradient noise, c = h, and K-FAC is its power 1.

    Every output is one repeat. Outputs share the inputs, hence A; and S is the identity under the exact Fisher of
    the squared error, so that no repeat sees another.
    """
    d, examples, repeats, steps = 8, 16, 150, [1, 3, 10, 30]
    spectrum = 1 / torch.arange(1, d + 1, dtype=torch.float64)
    inputs = inputs_with_curvature(spectrum, examples)
    random = torch.Generator().manual_seed(0)
    risks: dict[int, list[Tensor]] = {step: [] for step in steps}
    for _ in range(20):
        model = nn.Linear(d, repeats, bias=False).double()
        nn.init.normal_(model.weight, generator=random)
        optimizer = KFAC(
            model,
            "squared_error",
            lr=learning_rate,
            momentum=momentum,
            damping=1e-16,
            kl_clip=None,
            fisher="exact",
            factor_every=1000,
            inverse_every=1000,
            frequent_start=False,
        )
        for step in range(1, max(steps) + 1):
            optimizer.zero_grad()
            outputs = model(inputs)
            optimizer.observe(outputs)
            noise = torch.randn(examples, repeats, generator=random, dtype=torch.float64)
            squared_error(outputs, noise).backward()  # the mean label is 0, the minimum at theta = 0
            optimizer.step()
            if step in risks:
                risks[step].append((spectrum * model.weight.detach().square()).sum(1) / 2)

    ones = np.ones(d)
    problem = bl.NoisyQuadratic(curvature=spectrum.numpy(), noise=spectrum.numpy(), initial=ones)
    rule = bl.UpdateRule(learning_rate=learning_rate, momentum=momentum, power=1.0)
    expected = bl.risk(problem, rule, batch_size=examples, steps=steps)
    for step, risk in zip(steps, expected, strict=True):
        drawn = torch.cat(risks[step])
        error = float(drawn.std()) / math.sqrt(len(drawn))
        assert abs(float(drawn.mean()) - risk) < 3.5 * error
        assert error < 0.05 * risk  # or the interval would hold anything


def one_step(optimizer: KFAC, inputs: Tensor, labels: Tensor) -> Tensor:
    optimizer.zero_grad()
    outputs = optimizer.model(inputs)
    optimizer.observe(outputs)
    loss = functional.cross_entropy(outputs, labels)
    loss.backward()
    optimizer.step()
    return loss.detach()


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3)).double()


def batch(size: int = 32) -> tuple[Tensor, Tensor]:
    random = torch.Generator().manual_seed(0)
    inputs = torch.randn(size, 4, generator=random, dtype=torch.float64)
    return inputs, (inputs[:, :3] + 0.1).argmax(1)


def move(optimizer: KFAC, inputs: Tensor, labels: Tensor) -> Tensor:
    """The change of all weights in one step."""
    before = nn.utils.parameters_to_vector(optimizer.model.parameters()).detach().clone()
    one_step(optimizer, inputs, labels)
    return before - nn.utils.parameters_to_vector(optimizer.model.parameters()).detach()


def test_a_step_is_the_damped_inverse_times_the_gradient() -> None:
    model = network()
    optimizer = KFAC(model, lr=0.3, momentum=0.0, damping=0.04, kl_clip=None)
    inputs, labels = batch()
    gradient = torch.autograd.grad(functional.cross_entropy(model(inputs), labels), list(model[2].parameters()))
    before = [parameter.detach().clone() for parameter in model[2].parameters()]
    one_step(optimizer, inputs, labels)
    A, S = optimizer.factors()["2"]
    pi = math.sqrt((A.trace() / len(A)) / (S.trace() / len(S)))
    damped = torch.kron(S + 0.2 / pi * torch.eye(len(S)), A + pi * 0.2 * torch.eye(len(A)))
    matrix = torch.cat([gradient[0], gradient[1].unsqueeze(1)], 1)
    direction = torch.linalg.solve(damped, matrix.flatten()).reshape(matrix.shape)
    weight, bias = model[2].parameters()
    torch.testing.assert_close(weight.detach(), before[0] - 0.3 * direction[:, :-1])
    torch.testing.assert_close(bias.detach(), before[1] - 0.3 * direction[:, -1])


def test_momentum_is_that_of_sgd() -> None:
    """Damping far above the curvature leaves gradient / damping."""
    damping = 1e16
    ours, theirs = network(), network()
    optimizer = KFAC(ours, lr=0.5 * damping, momentum=0.9, damping=damping, kl_clip=None)
    sgd = torch.optim.SGD(theirs.parameters(), lr=0.5, momentum=0.9)
    inputs, labels = batch()
    for _ in range(20):
        one_step(optimizer, inputs, labels)
        sgd.zero_grad()
        functional.cross_entropy(theirs(inputs), labels).backward()
        sgd.step()
    for one, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("momentum", [0.0, 0.9])  # no matter for a first step
def test_the_trust_region_scales_the_whole_step(momentum: float) -> None:
    inputs, labels = batch()
    free = KFAC(network(), lr=0.3, momentum=0.0, kl_clip=None)
    long = move(free, inputs, labels)
    gradient = nn.utils.parameters_to_vector([p.grad for p in free.model.parameters() if p.grad is not None])
    bound = float(0.3 * long @ gradient)  # lr^2 <direction, gradient>
    for kl_clip in (bound / 25, 4 * bound):
        short = move(KFAC(network(), lr=0.3, momentum=momentum, kl_clip=kl_clip), inputs, labels)
        torch.testing.assert_close(short, long * min(1.0, math.sqrt(kl_clip / bound)))


def test_other_parameters_take_the_gradient_with_the_same_scale() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 5), nn.LayerNorm(5), nn.Linear(5, 3)).double()
    optimizer = KFAC(model, lr=0.3, momentum=0.0, kl_clip=1e-4, other="sgd")
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    one_step(optimizer, *batch())
    moves = {name: (before[name] - parameter.detach()) for name, parameter in model.named_parameters()}
    gradients = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    scales = moves["1.weight"] / (0.3 * gradients["1.weight"])
    scale = float(scales[0])
    assert 0 < scale < 1
    torch.testing.assert_close(scales, torch.full_like(scales, scale))
    # scale^2 lr^2 <direction, gradient> = kl_clip, over all parameters
    reduction = sum(float((moves[name] * gradient).sum()) for name, gradient in gradients.items())
    assert 0.3 * scale * reduction == pytest.approx(1e-4)


def test_a_scheduler_changes_the_step() -> None:
    inputs, labels = batch()
    moves = []
    for scheduled in (False, True):
        optimizer = KFAC(network(), lr=0.1, momentum=0.0, kl_clip=None)
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.1 if scheduled else 1.0)
        move(optimizer, inputs, labels)
        scheduler.step()
        moves.append(move(optimizer, inputs, labels))
    torch.testing.assert_close(moves[1], 0.1 * moves[0])


def test_damping_changes_at_the_next_inverse() -> None:
    inputs, labels = batch()
    lengths = []
    for damping in (0.01, 100.0):
        optimizer = KFAC(network(), lr=1e-6, momentum=0.0, kl_clip=None, inverse_every=2, frequent_start=False)
        move(optimizer, inputs, labels)
        optimizer.param_groups[0]["damping"] = damping
        lengths.append([float(move(optimizer, inputs, labels).norm()) for _ in range(2)])
    assert lengths[0][0] == pytest.approx(lengths[1][0])
    assert lengths[1][1] < 0.1 * lengths[0][1]


@pytest.mark.parametrize("fisher", ["sampled", "empirical", "exact"])
def test_a_small_network_learns(fisher: str) -> None:
    inputs, labels = batch(256)
    optimizer = KFAC(network(), lr=0.3, fisher=fisher, kl_clip=1e-2, factor_every=2, inverse_every=4)
    for _ in range(30):
        optimizer.zero_grad()
        outputs = optimizer.model(inputs)
        optimizer.observe(outputs, labels)
        loss = functional.cross_entropy(outputs, labels)
        loss.backward()
        optimizer.step()
    assert float(loss.detach()) < 0.1
