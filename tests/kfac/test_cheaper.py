"""What makes K-FAC cheap, against what it stands for: thinned input factors, inverses of low rank."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from batchlens.kfac import KFAC
from batchlens.kfac._inverses import low_rank_inverse, multiply_left, multiply_right
from tests import reference


def factor_with(values: Tensor, seed: int = 0) -> Tensor:
    random = torch.Generator().manual_seed(seed)
    size = len(values)
    basis: Tensor = torch.linalg.qr(torch.randn(size, size, generator=random, dtype=torch.float64)).Q
    return basis @ torch.diag(values) @ basis.T


def dense(inverse: dict[str, Tensor]) -> Tensor:
    return multiply_left(inverse, torch.eye(len(inverse["basis"]), dtype=torch.float64))


# Inverses of low rank ---------------------------------------------------------------------------


def test_an_inverse_of_low_rank_is_exact_where_the_rest_is_one_eigenvalue() -> None:
    values = torch.cat([torch.linspace(1, 5, 6), torch.full((34,), 0.2)]).double()
    factor = factor_with(values)
    inverse = low_rank_inverse(factor, 0.1, 6, None)
    for _ in range(30):
        assert inverse is not None
        inverse = low_rank_inverse(factor, 0.1, 6, inverse["basis"])
    assert inverse is not None
    expected = torch.linalg.inv(factor + 0.1 * torch.eye(40))
    torch.testing.assert_close(dense(inverse), expected, rtol=1e-8, atol=1e-8)
    gradient = torch.randn(3, 40, dtype=torch.float64)
    torch.testing.assert_close(multiply_right(gradient, inverse), gradient @ dense(inverse))


def test_the_first_inverse_of_low_rank_is_close_already() -> None:
    values = 1 / torch.arange(1, 201, dtype=torch.float64) ** 2
    factor = factor_with(values)
    inverse = low_rank_inverse(factor, 1e-2, 25, None)
    assert inverse is not None
    expected = torch.linalg.inv(factor + 1e-2 * torch.eye(200))
    assert float(torch.linalg.matrix_norm(dense(inverse) - expected, 2)) < 0.2 * float(1 / 1e-2)


def test_an_inverse_of_low_rank_keeps_the_trace_of_the_factor() -> None:
    values = 1 / torch.arange(1, 101, dtype=torch.float64)
    inverse = low_rank_inverse(factor_with(values), 0.05, 10, None)
    assert inverse is not None
    restored = torch.linalg.inv(dense(inverse)) - 0.05 * torch.eye(100)
    assert float(restored.trace()) == pytest.approx(float(values.sum()))


def test_a_factor_without_curvature_has_an_inverse_of_low_rank() -> None:
    inverse = low_rank_inverse(torch.zeros(40, 40, dtype=torch.float64), 0.5, 10, None)
    assert inverse is not None
    torch.testing.assert_close(dense(inverse), 2 * torch.eye(40, dtype=torch.float64))


def test_a_factor_that_overflows_has_no_inverse_of_low_rank() -> None:
    assert low_rank_inverse(torch.full((40, 40), 1e308, dtype=torch.float64), 0.5, 10, None) is None


def wide_network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(40, 6), nn.Tanh(), nn.Linear(6, 3)).double()


def wide_batch(seed: int) -> tuple[Tensor, Tensor]:
    random = torch.Generator().manual_seed(seed)
    inputs = torch.randn(32, 40, generator=random, dtype=torch.float64) / torch.arange(1, 41)
    return inputs, inputs[:, :3].argmax(1)


def steps_of(steps: int = 6, **settings: Any) -> tuple[KFAC, Tensor]:
    optimizer = KFAC(wide_network(), **settings)
    for step in range(steps):
        optimizer.zero_grad()
        inputs, labels = wide_batch(step)
        outputs = optimizer.model(inputs)
        optimizer.observe(outputs)
        functional.cross_entropy(outputs, labels).backward()
        optimizer.step()
    return optimizer, nn.utils.parameters_to_vector(optimizer.model.parameters()).detach()


def test_only_large_factors_have_inverses_of_low_rank() -> None:
    optimizer, low = steps_of(rank=10)
    state = optimizer.state[optimizer.model[0].weight]  # type: ignore[index]
    assert isinstance(state["input_inverse"], dict)
    assert isinstance(state["output_inverse"], Tensor)
    full, start = steps_of(rank=None)[1], steps_of(steps=0)[1]
    assert 0 < float((low - full).norm()) < 0.1 * float((full - start).norm())


def test_inverses_of_low_rank_are_saved() -> None:
    optimizer, _ = steps_of(rank=10)
    resumed = KFAC(optimizer.model)
    resumed.load_state_dict(optimizer.state_dict())
    states = [each.state[optimizer.model[0].weight]["input_inverse"] for each in (optimizer, resumed)]  # type: ignore[index]
    assert all(torch.equal(states[0][key], states[1][key]) for key in ("basis", "scales", "floor"))


# Thinned input factors --------------------------------------------------------------------------


def image_network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(32, 3)).double()


def images() -> Tensor:
    random = torch.Generator().manual_seed(0)
    return torch.randn(50, 1, 6, 6, generator=random, dtype=torch.float64)


def factors_of(sizes: list[int], **settings: Any) -> dict[str, tuple[Tensor, Tensor]]:
    optimizer = KFAC(image_network(), fisher="exact", **settings)
    for part in images().split(sizes):
        outputs = optimizer.model(part)
        optimizer.observe(outputs)
        outputs.logsumexp(1).sum().backward()
    optimizer.step()
    return optimizer.factors()


def test_a_thinned_factor_is_that_of_the_examples_that_count() -> None:
    factors = factors_of([50], input_examples=4)
    counted = images()[[0, 1, 2, 3, 17, 34]].numpy()
    expected, _ = reference.conv_factors(counted, np.zeros((1, 6, 2, 4, 4)), (3, 3), (1, 1), (0, 0), (1, 1), bias=True)
    np.testing.assert_allclose(factors["0"][0].numpy(), expected, rtol=1e-10)


def test_only_input_factors_with_rows_to_spare_are_thinned() -> None:
    thinned, whole = factors_of([50], input_examples=4), factors_of([50], input_examples=None)
    assert not torch.equal(thinned["0"][0], whole["0"][0])
    assert torch.equal(thinned["0"][1], whole["0"][1])
    assert torch.equal(thinned["3"][0], whole["3"][0])
    few = factors_of([50], input_examples=1)  # one image has 16 rows, for 9 columns
    assert torch.equal(few["0"][0], whole["0"][0])


def test_micro_batches_do_not_change_which_examples_count() -> None:
    whole = factors_of([50], input_examples=4)
    for sizes in ([25, 25], [3, 2, 1, 10, 30, 1, 3]):
        sliced = factors_of(sizes, input_examples=4)
        for name, pair in whole.items():
            for one, other in zip(pair, sliced[name], strict=True):
                torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-14)
