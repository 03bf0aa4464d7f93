"""K-FAC's factors against explicit loops, and against the exact Fisher matrix where the two must agree."""

import copy
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from batchlens.kfac import KFAC
from tests import reference

LOSSES = ("cross_entropy", "squared_error")
TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-10}
Factors = tuple[np.ndarray, np.ndarray]


class Tied(nn.Module):
    """Embedding and output layer with one weight."""

    def __init__(self, vocabulary: int = 7, width: int = 3) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.output = nn.Linear(width, vocabulary, bias=False)
        self.output.weight = self.embedding.weight

    def forward(self, tokens: Tensor) -> Tensor:
        return self.output(torch.tanh(self.embedding(tokens)))  # type: ignore[no-any-return]


def frozen(module: nn.Module) -> nn.Module:
    return module.requires_grad_(False)


def head(inputs: int, flat: bool = False) -> nn.Module:
    """From a layer's outputs to five model outputs; without trainable parameters."""
    return nn.Sequential(nn.Tanh(), nn.Flatten() if flat else nn.Identity(), frozen(nn.Linear(inputs, 5)))


@dataclass
class Case:
    layer: nn.Module
    head: nn.Module
    inputs: Tensor
    expected: Callable[[np.ndarray, np.ndarray, int], Factors]


def linear_case(bias: bool, shape: tuple[int, ...], head: nn.Module) -> Case:
    def expected(inputs: np.ndarray, gradients: np.ndarray, examples: int) -> Factors:
        return reference.linear_factors(inputs, gradients, examples, bias)

    return Case(nn.Linear(4, 3, bias=bias), head, torch.randn(*shape, 4), expected)


def conv_case(layer: nn.Conv2d, before: tuple[int, int], channels_last: bool = False) -> Case:
    def expected(inputs: np.ndarray, gradients: np.ndarray, examples: int) -> Factors:
        return reference.conv_factors(
            inputs,
            gradients,
            (layer.kernel_size[0], layer.kernel_size[1]),
            (layer.stride[0], layer.stride[1]),
            before,
            (layer.dilation[0], layer.dilation[1]),
            layer.bias is not None,
        )

    images = torch.randn(3, 2, 7, 6)
    if channels_last:
        layer = layer.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        images = images.to(memory_format=torch.channels_last)
    return Case(layer, head(layer(images)[0].numel(), flat=True), images, expected)


def one_axis_case(layer: nn.Conv1d, before: int) -> Case:
    """As a convolution of images of one row."""

    def expected(inputs: np.ndarray, gradients: np.ndarray, examples: int) -> Factors:
        return reference.conv_factors(
            inputs[:, :, None],
            gradients[:, :, :, None],
            (1, layer.kernel_size[0]),
            (1, layer.stride[0]),
            (0, before),
            (1, layer.dilation[0]),
            layer.bias is not None,
        )

    signals = torch.randn(3, 2, 9)
    return Case(layer, head(layer(signals)[0].numel(), flat=True), signals, expected)


def embedding_case(head: nn.Module) -> Case:
    def expected(tokens: np.ndarray, gradients: np.ndarray, examples: int) -> Factors:
        return reference.embedding_factors(tokens, gradients, examples, vocabulary=6)

    return Case(nn.Embedding(6, 3), head, torch.randint(6, (5, 4)), expected)


CASES: dict[str, Callable[[], Case]] = {
    "linear": lambda: linear_case(True, (6,), head(3)),
    "linear without bias": lambda: linear_case(False, (6,), head(3)),
    "linear, every position in the loss": lambda: linear_case(True, (3, 4), head(3)),
    "linear, positions mixed": lambda: linear_case(True, (2, 4), nn.Sequential(Mixing(4), head(3))),
    "linear, one example a sequence": lambda: linear_case(True, (3, 4), head(12, flat=True)),
    "conv": lambda: conv_case(nn.Conv2d(2, 3, 3), (0, 0)),
    "conv, every option": lambda: conv_case(
        nn.Conv2d(2, 3, (3, 2), stride=(2, 1), padding=(1, 2), dilation=(1, 2)), (1, 2)
    ),
    "conv, dilation and stride": lambda: conv_case(nn.Conv2d(2, 3, 2, stride=3, dilation=2, bias=False), (0, 0)),
    "conv, same": lambda: conv_case(nn.Conv2d(2, 3, (2, 3), padding="same", dilation=(1, 2)), (0, 2)),
    "conv, valid": lambda: conv_case(nn.Conv2d(2, 3, 3, padding="valid"), (0, 0)),
    "conv, channels last": lambda: conv_case(nn.Conv2d(2, 3, (3, 2), padding=1), (1, 1), channels_last=True),
    "conv of one axis": lambda: one_axis_case(nn.Conv1d(2, 3, 3, stride=2, padding=1, dilation=2), 1),
    "embedding": lambda: embedding_case(head(3)),
    "embedding, one example a sequence": lambda: embedding_case(head(12, flat=True)),
}


class Mixing(nn.Module):
    """Every position of a sequence sees the earlier ones, as in attention."""

    def __init__(self, length: int) -> None:
        super().__init__()
        self.register_buffer("mix", torch.rand(length, length).tril())

    def forward(self, values: Tensor) -> Tensor:
        return self.mix @ values  # type: ignore[operator]


def relative_error(found: Tensor, expected: np.ndarray) -> float:
    assert found.shape == expected.shape
    return float(np.abs(found.double().numpy() - expected).max() / np.abs(expected).max())


def observed(model: nn.Module, inputs: Tensor, loss: str, fisher: str, targets: Tensor | None = None) -> KFAC:
    """An optimizer that has taken in one batch; its step is of no interest."""
    optimizer = KFAC(model, loss, fisher=fisher)
    outputs = model(inputs)
    optimizer.observe(outputs, targets)
    outputs.sum().backward()
    optimizer.step()
    return optimizer


def draw_targets(outputs: Tensor, loss: str) -> Tensor:
    if loss == "squared_error":
        return torch.randn_like(outputs)
    return torch.randint(outputs.shape[-1], outputs.shape[:-1])


def summed_loss(outputs: Tensor, targets: Tensor, loss: str) -> Tensor:
    if loss == "squared_error":
        return (outputs - targets).square().sum() / 2
    return functional.cross_entropy(outputs.flatten(0, -2), targets.flatten(), reduction="sum")


def gradients_at(values: list[Tensor], outputs: Tensor, loss: str, targets: Tensor | None) -> list[np.ndarray]:
    """For each of `values`: gradients of every backward pass, stacked. Without targets: the exact Fisher's."""
    scalars = reference.fisher_scalars(outputs, loss) if targets is None else [summed_loss(outputs, targets, loss)]
    passes = [torch.autograd.grad(scalar, values, retain_graph=True) for scalar in scalars]
    return [np.stack([one_pass[i].numpy() for one_pass in passes]) for i in range(len(values))]


@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel lengths")
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("fisher", ["exact", "empirical"])
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("name", CASES)
def test_factors_are_those_of_explicit_loops(name: str, loss: str, fisher: str, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    case = CASES[name]()
    model = nn.Sequential(case.layer, case.head).to(dtype)
    inputs = case.inputs.to(dtype) if case.inputs.is_floating_point() else case.inputs
    targets = draw_targets(model(inputs), loss) if fisher == "empirical" else None
    optimizer = observed(copy.deepcopy(model), inputs, loss, fisher, targets)

    exact = model.double()
    exact_inputs = inputs.double() if inputs.is_floating_point() else inputs
    values = exact[0](exact_inputs).detach().requires_grad_()
    outputs = exact[1](values)
    exact_targets = targets.double() if targets is not None and targets.is_floating_point() else targets
    (gradients,) = gradients_at([values], outputs, loss, exact_targets)
    expected = case.expected(exact_inputs.numpy(), gradients, outputs.numel() // outputs.shape[-1])
    for found, wanted in zip(optimizer.factors()["0"], expected, strict=True):
        assert relative_error(found, wanted) < TOLERANCE[dtype]


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("fisher", ["exact", "empirical"])
def test_a_shared_weight_pools_both_uses(fisher: str, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    model = Tied().to(dtype)
    tokens = torch.randint(7, (4, 3))
    targets = torch.randint(7, (4, 3)) if fisher == "empirical" else None
    optimizer = observed(copy.deepcopy(model), tokens, "cross_entropy", fisher, targets)

    model = model.double()
    embedded = model.embedding(tokens).detach().requires_grad_()
    hidden = torch.tanh(embedded)
    outputs = hidden @ model.embedding.weight.detach().T
    token_gradients, gradients = gradients_at([embedded, outputs], outputs, "cross_entropy", targets)
    expected = reference.tied_factors(tokens.numpy(), token_gradients, hidden.detach().numpy(), gradients, vocabulary=7)
    for found, wanted in zip(optimizer.factors()["embedding"], expected, strict=True):
        assert relative_error(found, wanted) < TOLERANCE[dtype]


def test_a_layer_called_twice_has_more_rows() -> None:
    """Two calls are two positions of one example: A sums over them, S averages."""
    torch.manual_seed(0)
    layer = nn.Linear(3, 3).double()

    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = layer

        def forward(self, values: Tensor) -> Tensor:
            return layer(input=torch.tanh(layer(values)))  # type: ignore[no-any-return]

    inputs, targets = torch.randn(5, 3, dtype=torch.float64), torch.randint(3, (5,))
    first = layer(inputs).detach().requires_grad_()
    outputs = layer(torch.tanh(first))
    at_first, at_second = gradients_at([first, outputs], outputs, "cross_entropy", targets)
    rows = np.concatenate([inputs.numpy(), torch.tanh(first).detach().numpy()])
    gradients = np.concatenate([at_first, at_second], axis=1)
    expected = reference.linear_factors(rows, gradients, examples=5, bias=True)
    factors = observed(Twice(), inputs, "cross_entropy", "empirical", targets).factors()["layer"]
    for found, wanted in zip(factors, expected, strict=True):
        assert relative_error(found, wanted) < 1e-10


def test_layers_that_share_a_weight_are_pooled_as_examples() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 3, bias=False), nn.Tanh(), nn.Linear(3, 3, bias=False)).double()
    model[2].weight = model[0].weight
    inputs, targets = torch.randn(5, 3, dtype=torch.float64), torch.randint(3, (5,))
    first = model[0](inputs).detach().requires_grad_()
    outputs = model[2](torch.tanh(first))
    gradients = np.concatenate(gradients_at([first, outputs], outputs, "cross_entropy", targets), axis=1)
    rows = np.concatenate([inputs.numpy(), torch.tanh(first).detach().numpy()])
    expected = reference.linear_factors(rows, gradients, examples=10, bias=False)
    factors = observed(model, inputs, "cross_entropy", "empirical", targets).factors()["0"]
    for found, wanted in zip(factors, expected, strict=True):
        assert relative_error(found, wanted) < 1e-10


def kronecker(optimizer: KFAC, name: str) -> np.ndarray:
    inputs, outputs = optimizer.factors()[name]
    return torch.kron(outputs, inputs).numpy()


@pytest.mark.parametrize(
    ("layers", "examples", "loss"),
    [
        ([nn.Linear(3, 2)], 8, "squared_error"),
        ([nn.Linear(3, 4), nn.Linear(4, 3, bias=False), nn.Linear(3, 2)], 8, "squared_error"),
        ([nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 3)], 1, "cross_entropy"),
        ([nn.Conv2d(1, 2, 3), nn.Tanh(), nn.Flatten(), nn.Linear(2, 3)], 1, "cross_entropy"),
    ],
    ids=["linear", "deep linear", "one example", "one example, one location"],
)
def test_k_fac_is_exact_where_inputs_and_gradients_are_independent(
    layers: list[nn.Module], examples: int, loss: str
) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(*copy.deepcopy(layers)).double()
    shape = (1, 3, 3) if isinstance(layers[0], nn.Conv2d) else (3,)
    inputs = torch.randn(examples, *shape, dtype=torch.float64)
    outputs = model(inputs)
    optimizer = observed(copy.deepcopy(model), inputs, loss, "exact")
    for name, layer in model.named_children():
        if isinstance(layer, nn.Linear | nn.Conv2d):
            fisher = reference.dense_fisher(outputs, layer.weight, layer.bias, loss)
            np.testing.assert_allclose(kronecker(optimizer, name), fisher, rtol=1e-10, atol=1e-12)


def test_k_fac_is_an_approximation_elsewhere() -> None:
    """The last test would be empty if the dense Fisher were always a Kronecker product."""
    torch.manual_seed(0)
    model = nn.Linear(3, 2).double()
    inputs = torch.randn(8, 3, dtype=torch.float64)
    fisher = reference.dense_fisher(model(inputs), model.weight, model.bias, "cross_entropy")
    approximation = kronecker(observed(model, inputs, "cross_entropy", "exact"), "model")
    assert np.abs(approximation - fisher).max() > 0.01 * np.abs(fisher).max()


@pytest.mark.parametrize("loss", LOSSES)
def test_the_sampled_fisher_converges_as_the_root_of_examples(loss: str) -> None:
    torch.manual_seed(0)
    model = nn.Linear(3, 4).double()
    inputs = torch.randn(4, 3, dtype=torch.float64)
    exact = observed(copy.deepcopy(model), inputs, loss, "exact").factors()["model"][1]
    sizes, errors = [2**k for k in range(6, 15, 2)], []
    for size in sizes:
        squares = []
        for seed in range(20):
            optimizer = KFAC(copy.deepcopy(model), loss, seed=seed)
            outputs = optimizer.model(inputs.repeat(size // 4, 1))
            optimizer.observe(outputs)
            outputs.sum().backward()
            optimizer.step()
            squares.append(float((optimizer.factors()["model"][1] - exact).square().sum()))
        errors.append(np.sqrt(np.mean(squares)))
    slope = np.polyfit(np.log(sizes), np.log(errors), 1)[0]
    assert slope == pytest.approx(-0.5, abs=0.08)


def test_eigenvalues_are_those_of_the_fisher_block() -> None:
    torch.manual_seed(0)
    model = nn.Linear(3, 2).double()
    optimizer = observed(model, torch.randn(8, 3, dtype=torch.float64), "squared_error", "exact")
    products = torch.outer(*optimizer.eigenvalues()["model"]).flatten().sort().values
    np.testing.assert_allclose(products, np.linalg.eigvalsh(kronecker(optimizer, "model")), atol=1e-12)


def test_factors_average_with_the_first_estimate_in_full() -> None:
    torch.manual_seed(0)
    model = nn.Linear(3, 2, bias=False).double()
    optimizer = KFAC(model, "squared_error", fisher="exact", factor_decay=0.8, factor_every=1, lr=0.0)
    moments = []
    for _ in range(3):
        inputs = torch.randn(5, 3, dtype=torch.float64)
        moments.append(inputs.T @ inputs / 5)
        outputs = model(inputs)
        optimizer.observe(outputs)
        outputs.sum().backward()
        optimizer.step()
    weights = torch.tensor([0.64, 0.8, 1.0], dtype=torch.float64)
    expected = sum(w * m for w, m in zip(weights, moments, strict=True)) / weights.sum()
    torch.testing.assert_close(optimizer.factors()["model"][0], expected)


def test_activations_in_place_change_nothing() -> None:
    torch.manual_seed(0)
    inputs, factors = torch.randn(6, 4), []
    plain = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))
    for inplace in (False, True):
        model = copy.deepcopy(plain)
        model[1] = nn.ReLU(inplace=inplace)
        factors.append(observed(model, inputs, "cross_entropy", "exact").factors())
    assert torch.equal(factors[0]["0"][1], factors[1]["0"][1])
    assert torch.equal(factors[0]["2"][0], factors[1]["2"][0])
