"""Dense matrices of small models, one example, output and parameter at a time, in float64; and the models."""

import copy
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional


class Dense(NamedTuple):
    """Per example: gradients (n, p), Gauss-Newton and Hessian matrices (n, p, p); their losses."""

    losses: Tensor
    gradients: Tensor
    gauss_newton: Tensor
    hessian: Tensor

    @property
    def covariance(self) -> Tensor:
        away = self.gradients - self.gradients.mean(0)
        return away.T @ away / (len(away) - 1)


def dense(model: nn.Module, inputs: Tensor, targets: Tensor, loss: str) -> Dense:
    """Everything, by plain loops of first derivatives."""
    model = copy.deepcopy(model).double()
    inputs = inputs.double() if inputs.is_floating_point() else inputs
    targets = targets.double() if targets.is_floating_point() else targets
    weights = [weight for weight in model.parameters() if weight.requires_grad]
    parts: list[tuple[Tensor, Tensor, Tensor, Tensor]] = []
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        for one, target in zip(inputs, targets, strict=True):
            outputs = model(one.unsqueeze(0))[0]
            value, output_curvature = loss_of(outputs, target, loss)
            gradient = flat_gradient(value, weights, create_graph=True)
            hessian = torch.stack([flat_gradient(entry, weights) for entry in gradient])
            jacobian = torch.stack([flat_gradient(entry, weights) for entry in outputs.flatten()])
            gauss_newton = jacobian.T @ output_curvature @ jacobian
            parts.append((value.detach(), gradient.detach(), gauss_newton, hessian))
    return Dense(*(torch.stack(column) for column in zip(*parts, strict=True)))


def loss_of(outputs: Tensor, target: Tensor, loss: str) -> tuple[Tensor, Tensor]:
    """The loss of an example, and its second derivative by its outputs, from the formulas."""
    if loss == "squared_error":
        return 0.5 * (outputs - target).square().sum(), torch.eye(outputs.numel(), dtype=outputs.dtype)
    rows = outputs.reshape(-1, outputs.shape[-1])
    labels = target.reshape(-1)
    value = sum(-functional.log_softmax(row, 0)[label] for row, label in zip(rows, labels, strict=True)) / len(rows)
    assert isinstance(value, Tensor)
    blocks = []
    for row in rows.detach():
        p = row.softmax(0)
        blocks.append((torch.diag(p) - torch.outer(p, p)) / len(rows))
    return value, torch.block_diag(*blocks)


def flat_gradient(value: Tensor, weights: list[nn.Parameter], create_graph: bool = False) -> Tensor:
    if not value.requires_grad:
        return torch.cat([torch.zeros_like(weight).flatten() for weight in weights])
    gradients = torch.autograd.grad(
        value, weights, retain_graph=True, create_graph=create_graph, materialize_grads=True
    )
    return torch.cat([gradient.flatten() for gradient in gradients])


class Tied(nn.Module):
    """A language model with attention whose embedding is also the output's weight."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(5, 4)
        self.query, self.value = nn.Linear(4, 4, bias=False), nn.Linear(4, 4)
        self.norm = nn.LayerNorm(4)
        self.output = nn.Linear(4, 5, bias=False)
        self.output.weight = self.embedding.weight

    def forward(self, tokens: Tensor) -> Tensor:
        hidden = self.embedding(tokens)
        mixed = functional.scaled_dot_product_attention(
            self.query(hidden)[:, None], hidden[:, None], self.value(hidden)[:, None], is_causal=True
        )
        outputs: Tensor = self.output(self.norm(hidden + mixed[:, 0]))
        return outputs


class Words(nn.Module):
    """A bag of words with an embedding of its own, and one layer that is called twice."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.twice, self.output = nn.Embedding(6, 3), nn.Linear(3, 3), nn.Linear(3, 2)

    def forward(self, tokens: Tensor) -> Tensor:
        hidden = self.embedding(tokens).mean(1)
        outputs: Tensor = self.output(torch.tanh(self.twice(torch.tanh(self.twice(hidden)))))
        return outputs


class Still(nn.Module):
    """Takes features from a layer without gradients, as one does from a trained network, and names an argument."""

    def __init__(self) -> None:
        super().__init__()
        self.features, self.twice, self.output = nn.Linear(3, 3), nn.Linear(3, 3), nn.Linear(3, 3)

    def forward(self, inputs: Tensor) -> Tensor:
        with torch.no_grad():
            features = torch.tanh(self.features(inputs))
            also = self.twice(features)
        outputs: Tensor = self.output(input=torch.tanh(self.twice(features)) + also)
        return outputs


class Square(torch.autograd.Function):
    """An operation of one's own, which dual numbers do not know."""

    @staticmethod
    def forward(ctx: Any, values: Tensor) -> Tensor:
        ctx.save_for_backward(values)
        return values.square()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        (values,) = ctx.saved_tensors
        gradient: Tensor = 2 * values * gradients[0]
        return gradient


class Squared(nn.Module):
    def forward(self, values: Tensor) -> Tensor:
        squared: Tensor = Square.apply(values)  # type: ignore[no-untyped-call]
        return squared


class Case(NamedTuple):
    """A model, how its data are drawn and its loss."""

    model: Callable[[], nn.Module]
    inputs: Callable[[int], Tensor]
    targets: Callable[[int], Tensor]
    loss: str


def classes(count: int, *shape: int) -> Callable[[int], Tensor]:
    return lambda examples: torch.randint(count, (examples, *shape))


def normal(*shape: int) -> Callable[[int], Tensor]:
    return lambda examples: torch.randn(examples, *shape)


CASES = {
    "dense": Case(lambda: nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 3)), normal(3), classes(3),
                  "cross_entropy"),
    "values": Case(lambda: nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2, bias=False)), normal(3), normal(2),
                   "squared_error"),
    "positions": Case(lambda: nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 3)), normal(4, 2), classes(3, 4),
                      "cross_entropy"),
    "convolution": Case(
        lambda: nn.Sequential(nn.Conv2d(2, 3, 3, stride=2, padding=1), nn.ReLU(),
                              nn.Conv2d(3, 2, 2, dilation=2, bias=False),
                              nn.Flatten(), nn.Linear(2, 3)),
        normal(2, 5, 5), classes(3), "cross_entropy"),
    "convolution of lines": Case(
        lambda: nn.Sequential(nn.Conv1d(2, 3, 3, padding="same"), nn.Tanh(), nn.Flatten(), nn.Linear(12, 2)),
        normal(2, 4), normal(2), "squared_error"),
    "normalised": Case(
        lambda: nn.Sequential(nn.Conv2d(1, 2, 2), nn.BatchNorm2d(2), nn.Tanh(), nn.Flatten(), nn.Linear(8, 3)),
        normal(1, 3, 3), classes(3), "cross_entropy"),
    "pictures": Case(
        lambda: nn.Sequential(nn.Conv2d(1, 2, 3, padding=1), nn.Tanh(), nn.Conv2d(2, 1, 3, padding=1)),
        normal(1, 3, 2), normal(1, 3, 2), "squared_error"),
    "one value": Case(lambda: nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1), nn.Flatten(0)), normal(3),
                      normal(), "squared_error"),
    "partly without gradients": Case(Still, normal(3), classes(3), "cross_entropy"),
    "without dual numbers": Case(lambda: nn.Sequential(nn.Linear(3, 4), Squared(), nn.Linear(4, 3)), normal(3),
                                 classes(3), "cross_entropy"),
    "words": Case(Words, classes(6, 3), classes(2), "cross_entropy"),
    "tied": Case(Tied, classes(5, 3), classes(5, 3), "cross_entropy"),
}  # fmt: skip
