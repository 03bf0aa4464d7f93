"""Every optimizer against its update written out, and what a run needs of them: settings, state and averages."""

import copy
import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest
import torch
from torch import Tensor, nn

from batchlens.training._recipes import (
    RECIPES,
    Setting,
    Stepper,
    Task,
    Together,
    check_settings,
    recipe_named,
)
from batchlens.training.models import Transformer

Array = npt.NDArray[np.float64]
FIRST_ORDER = ("sgd", "momentum", "nesterov", "adam", "adam_no_momentum", "adamw", "muon")
CONTIGUOUS, CHANNELS_LAST = torch.contiguous_format, torch.channels_last


def build(name: str, model: nn.Module, **given: float) -> Stepper:
    recipe = recipe_named(name)
    return recipe.build(model, check_settings(recipe.settings, given, name), Task())


# ---------------------------------------------------------------------------------------------
# Updates, written out
# ---------------------------------------------------------------------------------------------

# From the weights at every step so far and the gradients there to the next weights.
Update = Callable[[Array, list[Array]], Array]


def by_sgd(weights: Array, gradients: list[Array]) -> Array:
    return weights - 0.1 * gradients[-1]


def velocity(gradients: list[Array], momentum: float) -> Array:
    """sum_k momentum^k g(t - k)."""
    total = np.zeros_like(gradients[0])
    for age, gradient in enumerate(reversed(gradients)):
        total += momentum**age * gradient
    return total


def by_momentum(weights: Array, gradients: list[Array]) -> Array:
    return weights - 0.1 * velocity(gradients, 0.8)


def by_nesterov(weights: Array, gradients: list[Array]) -> Array:
    return weights - 0.1 * (gradients[-1] + 0.8 * velocity(gradients, 0.8))


def adam_direction(gradients: list[Array], beta1: float, beta2: float, epsilon: float) -> Array:
    """Weighted means of gradients and their squares, whose weights sum to 1: that is what bias correction does."""

    def mean(values: list[Array], beta: float) -> Array:
        shares = np.array([beta**age for age in reversed(range(len(values)))])
        return np.asarray(np.tensordot(shares / shares.sum(), np.stack(values), axes=1))

    square = mean([gradient**2 for gradient in gradients], beta2)
    return np.asarray(mean(gradients, beta1) / (np.sqrt(square) + epsilon))


def by_adam(weights: Array, gradients: list[Array]) -> Array:
    return weights - 0.1 * adam_direction(gradients, 0.7, 0.95, 0.01)


def by_adam_without_momentum(weights: Array, gradients: list[Array]) -> Array:
    return weights - 0.1 * adam_direction(gradients, 0.0, 0.95, 0.01)


def by_adamw(weights: Array, gradients: list[Array]) -> Array:
    return weights * (1 - 0.1 * 0.3) - 0.1 * adam_direction(gradients, 0.7, 0.95, 0.01)


ADAM = {"beta2": 0.95, "epsilon": 0.01}


@pytest.mark.parametrize(
    ("name", "given", "update"),
    [
        ("sgd", {}, by_sgd),
        ("momentum", {"momentum": 0.8}, by_momentum),
        ("momentum", {"momentum": 0.0}, by_sgd),
        ("nesterov", {"momentum": 0.8}, by_nesterov),
        ("nesterov", {"momentum": 0.0}, by_sgd),
        ("adam", {"beta1": 0.7, **ADAM}, by_adam),
        ("adam", {"beta1": 0.0, **ADAM}, by_adam_without_momentum),
        ("adam_no_momentum", ADAM, by_adam_without_momentum),
        ("adamw", {"beta1": 0.7, "weight_decay": 0.3, **ADAM}, by_adamw),
        ("adamw", {"beta1": 0.7, "weight_decay": 0.0, **ADAM}, by_adam),
    ],
)
def test_updates_are_those_of_the_formula(name: str, given: dict[str, float], update: Update) -> None:
    """On 1/2 (w - 1)^T A (w - 1), whose gradient A (w - 1) is known."""
    torch.manual_seed(0)
    model = nn.Linear(3, 2).double()
    curvature = np.array([3.0, 1.0, 0.2, 2.0, 0.5, 4.0])
    optimizer = build(name, model, learning_rate=0.1, **given)
    weights, gradients = model.weight.detach().numpy().flatten().copy(), list[Array]()
    bias, of_bias = model.bias.detach().numpy().copy(), list[Array]()
    for _ in range(7):
        optimizer.zero_grad()
        loss = (torch.tensor(curvature) * (model.weight.flatten() - 1) ** 2).sum() / 2 + (model.bias**2).sum()
        loss.backward()
        optimizer.step()
        gradients.append(curvature * (weights - 1))
        weights = update(weights, gradients)
        of_bias.append(2 * bias)
        bias = update(bias, of_bias)
        np.testing.assert_allclose(model.weight.detach().numpy().flatten(), weights, rtol=1e-9)
        np.testing.assert_allclose(model.bias.detach().numpy(), bias, rtol=1e-9)


def test_defaults() -> None:
    """Those of the papers: Kingma and Ba for Adam, and 0.9 of the velocity."""
    adam = {"beta1": 0.9, "beta2": 0.999, "epsilon": 1e-8}
    expected: dict[str, dict[str, float]] = {
        "sgd": {},
        "momentum": {"momentum": 0.9},
        "nesterov": {"momentum": 0.9},
        "adam": adam,
        "adam_no_momentum": {"beta2": 0.999, "epsilon": 1e-8},
        "adamw": {**adam, "weight_decay": 0.01},
        "muon": {**adam, "weight_decay": 0.01, "momentum": 0.95},
    }
    assert tuple(expected) == FIRST_ORDER
    for name, values in expected.items():
        found = check_settings(recipe_named(name).settings, {"learning_rate": 0.5}, name)
        assert found == {"learning_rate": 0.5, **values}


@pytest.mark.parametrize("name", FIRST_ORDER)
def test_learning_rates_are_set_through_the_groups(name: str) -> None:
    model = convolutional()
    optimizer = build(name, model, learning_rate=0.1, **({"weight_decay": 0.0} if name in ("adamw", "muon") else {}))
    assert [group["lr"] for group in optimizer.param_groups] == [0.1] * len(optimizer.param_groups)
    before = copy.deepcopy(model.state_dict())
    backward(model)
    for group in optimizer.param_groups:
        group["lr"] = 0.0
    optimizer.step()
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    for group in optimizer.param_groups:
        group["lr"] = 0.1
    optimizer.step()
    assert not any(torch.equal(value, before[name]) for name, value in model.state_dict().items())


@pytest.mark.parametrize("name", FIRST_ORDER)
def test_gradients_are_cleared(name: str) -> None:
    model = convolutional()
    optimizer = build(name, model, learning_rate=0.1)
    backward(model)
    optimizer.zero_grad()
    assert all(weight.grad is None or not weight.grad.any() for weight in model.parameters())


# ---------------------------------------------------------------------------------------------
# One kernel for all weights
# ---------------------------------------------------------------------------------------------


class Rearranged(nn.Module):
    """A convolution whose weight's gradient comes in another layout than the weight."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, 3, 5, 5).contiguous(memory_format=torch.channels_last))

    def forward(self, images: Tensor) -> Tensor:
        return (self.weight.contiguous() * images).permute(1, 0, 2, 3).contiguous().square()


class Gaps(nn.Module):
    """Every other column of a matrix as a weight."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, 8)[:, ::2])

    def forward(self, inputs: Tensor) -> Tensor:
        return inputs @ self.weight.T


class Waves(nn.Module):
    """A weight of complex numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, dtype=torch.complex64))

    def forward(self, inputs: Tensor) -> Tensor:
        return (inputs * self.weight).abs()


@pytest.mark.parametrize("name", ["adam", "adam_no_momentum", "adamw"])
@pytest.mark.parametrize(
    ("make", "inputs", "fused"),
    [
        (lambda: convolutional(CONTIGUOUS), torch.randn(8, 1, 6, 6), True),
        (lambda: convolutional(CHANNELS_LAST), torch.randn(8, 1, 6, 6), True),
        (lambda: convolutional(CHANNELS_LAST).double(), torch.randn(8, 1, 6, 6).double(), True),
        (lambda: Transformer(7, 4, 1, 1, 6, 3), torch.tensor([[1, 2, 3]]), True),
        (Rearranged, torch.randn(4, 3, 5, 5), True),
        (Gaps, torch.randn(5, 4), None),
        (Waves, torch.randn(5, 4), None),
    ],
    ids=["contiguous", "channels_last", "float64", "tied", "rearranged", "gaps", "complex"],
)
def test_adam_is_that_of_torch_weight_by_weight(
    name: str, make: Callable[[], nn.Module], inputs: Tensor, fused: bool | None
) -> None:
    """In one kernel where weights have no gaps; against torch's loop over weights, up to rounding."""
    torch.manual_seed(0)
    model = make()
    twin = copy.deepcopy(model)
    if isinstance(model, Gaps):
        assert not model.weight.is_contiguous()
    optimizer = build(name, model, learning_rate=0.1, epsilon=0.01)
    assert [group["fused"] for group in optimizer.param_groups] == [fused]
    kind = torch.optim.AdamW if name == "adamw" else torch.optim.Adam
    betas = (0.0 if name == "adam_no_momentum" else 0.9, 0.999)
    other = kind(twin.parameters(), lr=0.1, betas=betas, eps=0.01, foreach=False)
    for _ in range(4):
        for one, stepper in ((model, optimizer), (twin, other)):
            stepper.zero_grad()
            for part in (inputs, inputs):  # as with micro-batches
                one(part).square().mean().backward()
            stepper.step()
    for weight, expected in zip(model.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(weight, expected)


# ---------------------------------------------------------------------------------------------
# Muon
# ---------------------------------------------------------------------------------------------


def convolutional(layout: torch.memory_format = CONTIGUOUS) -> nn.Sequential:
    """With convolutions of one input channel and of 1x1, whose layout is both."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(1, 6, 3, padding=1), nn.ReLU(), nn.Conv2d(6, 4, 3), nn.ReLU(), nn.Conv2d(4, 5, 1), nn.Flatten(),
        nn.Linear(5 * 16, 3),
    )  # fmt: skip
    return model.to(memory_format=layout)  # type: ignore[call-overload, no-any-return]


def backward(model: nn.Module, seed: int = 0) -> None:
    images = torch.randn(8, 1, 6, 6, generator=torch.Generator().manual_seed(seed))
    model(images).square().mean().backward()


def flat(weight: Tensor, layout: torch.memory_format) -> Tensor:
    """An output channel a row, its values in the order of the layout."""
    if weight.dim() == 4 and layout is CHANNELS_LAST:
        weight = weight.permute(0, 2, 3, 1)
    return weight.detach().reshape(len(weight), -1).clone().contiguous()


@pytest.mark.parametrize("model_layout", [CONTIGUOUS, CHANNELS_LAST])
@pytest.mark.parametrize("order", [CONTIGUOUS, CHANNELS_LAST])
def test_muon_is_that_of_torch_on_flat_copies(model_layout: torch.memory_format, order: torch.memory_format) -> None:
    model = convolutional(model_layout)
    optimizer = build("muon", model, learning_rate=0.1, momentum=0.9, weight_decay=0.1)
    copies = [nn.Parameter(flat(weight, order)) for weight in model.parameters() if weight.dim() > 1]
    start = [matrix.detach().clone() for matrix in copies]
    vectors = [nn.Parameter(weight.detach().clone()) for weight in model.parameters() if weight.dim() == 1]
    assert (len(copies), len(vectors)) == (4, 4)
    muon = torch.optim.Muon(copies, lr=0.1, momentum=0.9, weight_decay=0.1, adjust_lr_fn="match_rms_adamw")
    adamw = torch.optim.AdamW(vectors, lr=0.1, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.1, fused=True)
    for step in range(4):
        optimizer.zero_grad()
        backward(model, seed=step)
        matrices = iter(copies)
        others = iter(vectors)
        for weight in model.parameters():
            assert weight.grad is not None
            if weight.dim() > 1:
                next(matrices).grad = flat(weight.grad, order)
            else:
                next(others).grad = weight.grad.clone()
        optimizer.step()
        muon.step()
        adamw.step()
    # In the same order to the bit; else up to the rounding of bfloat16, in which Muon orthogonalises.
    tolerance = 0.0 if model_layout is order else 0.05
    for vector, twin in zip((weight for weight in model.parameters() if weight.dim() == 1), vectors, strict=True):
        assert torch.equal(vector, twin)
    weights = [weight for weight in model.parameters() if weight.dim() > 1]
    for weight, matrix, initial in zip(weights, copies, start, strict=True):
        moved = float((matrix.detach() - initial).norm())
        assert moved > 0.05 * float(initial.norm())
        assert float((flat(weight, order) - matrix.detach()).norm()) <= tolerance * moved


def test_muon_orthogonalises_the_gradient() -> None:
    """With one step from zero momentum, singular values of the update are all near 0.2 sqrt(max(m, n)) lr."""
    torch.manual_seed(0)
    layer = nn.Conv2d(3, 8, 3, bias=False)
    before = layer.weight.detach().clone()
    optimizer = build("muon", layer, learning_rate=0.1, momentum=0.0, weight_decay=0.0)
    layer(torch.randn(4, 3, 6, 6)).square().mean().backward()
    gradient = layer.weight.grad
    assert gradient is not None
    spread = torch.linalg.svdvals(gradient.flatten(1))
    assert float(spread[0] / spread[-1]) > 3
    optimizer.step()
    update = (before - layer.weight.detach()).flatten(1)
    found = torch.linalg.svdvals(update) / (0.1 * 0.2 * math.sqrt(27))
    assert float(found.min()) > 0.5
    assert float(found.max()) < 1.5
    assert float((update * gradient.flatten(1)).sum()) > 0  # downhill


@pytest.mark.parametrize("output", ["tied", "table"])
def test_muon_leaves_tables_to_adamw(output: str) -> None:
    torch.manual_seed(0)
    model: nn.Module
    if output == "tied":
        model = Transformer(vocabulary=7, width=4, layers=1, heads=1, hidden=6, length=3)
        name = "embedding.weight"
    else:
        model = nn.Sequential(nn.Embedding(7, 4), nn.Linear(4, 5))
        name = "0.weight"
    table = dict(model.named_parameters())[name]
    twin = nn.Parameter(table.detach().clone())
    adamw = torch.optim.AdamW([twin], lr=0.1, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.05, fused=True)
    optimizer = build("muon", model, learning_rate=0.1, weight_decay=0.05)
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.tensor([[1, 2, 3]])).square().mean().backward()
        assert table.grad is not None
        twin.grad = table.grad.clone()
        optimizer.step()
        adamw.step()
    assert torch.equal(table, twin)


def test_every_weight_has_one_optimizer() -> None:
    model = Transformer(vocabulary=7, width=4, layers=2, heads=1, hidden=6, length=3)
    optimizer = build("muon", model, learning_rate=0.1)
    sizes = [sum(weight.numel() for weight in group["params"]) for group in optimizer.param_groups]
    assert len(sizes) == 2
    assert sum(sizes) == sum(weight.numel() for weight in model.parameters())


# ---------------------------------------------------------------------------------------------
# State
# ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("layout", [CONTIGUOUS, CHANNELS_LAST])
@pytest.mark.parametrize("name", FIRST_ORDER)
def test_a_run_that_is_picked_up_goes_on_to_the_bit(name: str, layout: torch.memory_format) -> None:
    model = convolutional(layout)
    optimizer = build(name, model, learning_rate=0.05)

    def train(model: nn.Module, optimizer: Stepper, first: int) -> None:
        for step in range(first, first + 3):
            for group in optimizer.param_groups:
                group["lr"] = 0.05 / (1 + step)
            optimizer.zero_grad()
            backward(model, seed=step)
            optimizer.step()

    train(model, optimizer, 0)
    weights, state = copy.deepcopy(model.state_dict()), copy.deepcopy(optimizer.state_dict())
    train(model, optimizer, 3)
    other = convolutional(layout)
    again = build(name, other, learning_rate=0.05)
    other.load_state_dict(weights)
    again.load_state_dict(state)
    train(other, again, 3)
    for (place, one), two in zip(model.named_parameters(), other.parameters(), strict=True):
        assert torch.equal(one, two), place
        assert not torch.equal(one, weights[place]), place


@pytest.mark.parametrize("name", ["momentum", "muon"])
def test_groups_are_live_after_loading(name: str) -> None:
    model = convolutional()
    optimizer = build(name, model, learning_rate=0.05)
    optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    before = copy.deepcopy(model.state_dict())
    backward(model)
    for group in optimizer.param_groups:
        group["lr"] = 0.0
    optimizer.step()
    for place, value in model.state_dict().items():
        assert torch.equal(value, before[place]), place


def test_together_steps_and_clears_both() -> None:
    one, other = (nn.Parameter(torch.tensor([1.0])) for _ in range(2))
    both = Together(torch.optim.SGD([one], lr=0.1), torch.optim.SGD([other], lr=0.2))
    (2 * one + 3 * other).sum().backward()
    both.step()
    assert [one.item(), other.item()] == pytest.approx([1 - 0.2, 1 - 0.6])
    assert [group["lr"] for group in both.param_groups] == [0.1, 0.2]
    both.zero_grad()
    assert one.grad is None
    assert other.grad is None


# ---------------------------------------------------------------------------------------------
# Names and settings
# ---------------------------------------------------------------------------------------------


def test_all_names_are_there() -> None:
    assert set(FIRST_ORDER) <= set(RECIPES)
    for name in RECIPES:
        plain, averaged = recipe_named(name), recipe_named(f"{name}+ema")
        assert (plain.name, plain.averaged) == (name, False)
        assert (averaged.name, averaged.averaged) == (f"{name}+ema", True)
        assert set(averaged.settings) == {*plain.settings, "averaging", "window"}
        assert "averaging" not in plain.settings
        assert averaged.build is plain.build


@pytest.mark.parametrize("name", ["sdg", "", "+ema", "sgd+", "sgd+swa", "sgd+ema+ema", "SGD", "sgd "])
def test_unknown_names_list_the_known(name: str) -> None:
    with pytest.raises(ValueError, match="`optimizer` must be one of") as error:
        recipe_named(name)
    assert all(known in str(error.value) for known in (*RECIPES, "+ema", repr(name)))


def test_unknown_settings_list_the_known() -> None:
    with pytest.raises(ValueError, match=r"`settings` .*adam.*got momentum") as error:
        build("adam", nn.Linear(1, 1), learning_rate=0.1, momentum=0.9)
    assert all(known in str(error.value) for known in ("learning_rate", "beta1", "beta2", "epsilon"))


@pytest.mark.parametrize("name", [*FIRST_ORDER, "sgd+ema"])
def test_the_learning_rate_must_be_given(name: str) -> None:
    with pytest.raises(ValueError, match="`settings` must give learning_rate"):
        check_settings(recipe_named(name).settings, {}, name)


@pytest.mark.parametrize(
    ("name", "setting", "value"),
    [
        ("momentum", "momentum", 1.0),
        ("momentum", "momentum", -0.1),
        ("nesterov", "momentum", 1.0),
        ("muon", "momentum", 1.0),
        ("adam", "beta1", 1.0),
        ("adam", "beta2", 1.0),
        ("adam", "beta2", -0.5),
        ("adam", "epsilon", -1e-8),
        ("adamw", "weight_decay", -0.1),
        ("sgd", "learning_rate", -0.1),
        ("sgd", "learning_rate", math.inf),
        ("sgd", "learning_rate", math.nan),
        ("sgd+ema", "averaging", 1.0),
        ("sgd+ema", "averaging", -0.1),
    ],
)
def test_settings_out_of_range_are_refused(name: str, setting: str, value: float) -> None:
    with pytest.raises(ValueError, match=f"{setting}` must be"):
        check_settings(recipe_named(name).settings, {"learning_rate": 0.1, setting: value}, name)


@pytest.mark.parametrize("value", ["0.1", True, [0.1], 1j])
def test_settings_are_numbers(value: object) -> None:
    with pytest.raises(TypeError, match="learning_rate` must be a number"):
        check_settings(recipe_named("sgd").settings, {"learning_rate": value}, "sgd")


def test_ends_of_ranges() -> None:
    known = {"inside": Setting(0.5, low=-1.0, high=1.0, closed=(False, True)), "open": Setting()}
    assert check_settings(known, {"open": 0}, "mine") == {"inside": 0.5, "open": 0.0}
    assert check_settings(known, {"open": 0, "inside": 1}, "mine")["inside"] == 1.0
    with pytest.raises(ValueError, match=r"inside` must be in \(-1, 1\]"):
        check_settings(known, {"open": 0, "inside": -1}, "mine")
