"""Products with the Gauss-Newton matrix, the Hessian and the gradients' covariance.

Each goes through the data once, chunk by chunk; nothing is kept of a chunk but sums and one number an example. A
Gauss-Newton or covariance product is one forward-mode pass and one gradient, a quadratic form the former alone; a
Hessian product is a gradient and the gradient of that, which takes two more. Where a model has no forward mode, it is
two backward passes.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from batchlens.curvature._objective import (
    Objective,
    output_curvature,
    output_gradient,
    per_example,
)


@dataclass(frozen=True)
class Gradient:
    """The gradient of the mean loss, and the loss of each example."""

    vector: Tensor
    losses: Tensor


def gradient(objective: Objective) -> Gradient:
    """g, and the losses."""
    losses: list[Tensor] = []

    def weigh(inputs: Tensor, outputs: Tensor, targets: Tensor) -> Tensor:
        each, weights = output_gradient(objective.losses, outputs, targets)
        losses.append(each)
        return weights

    vector = _pull(objective, weigh)
    return Gradient(vector, torch.cat(losses))


def gauss_newton_product(objective: Objective, vector: Tensor) -> Tensor:
    """F v."""
    direction = objective.split(vector)
    return _pull(
        objective,
        lambda inputs, outputs, targets: output_curvature(
            objective.losses, outputs, targets, objective.push(inputs, direction)[1]
        ),
    )


def hessian_product(objective: Objective, vector: Tensor) -> Tensor:
    """H v, the gradient of g^T v."""
    direction = objective.split(vector)
    total = objective.new_vector()
    for inputs, targets in objective.chunks():
        with torch.enable_grad(), objective.plain_kernels():
            loss = objective.losses(objective.model(inputs), targets).sum()
            along = objective.slope(loss, None, direction)
        objective.add_gradients(total, along, torch.ones_like(along))
    return total / objective.examples


def covariance_product(objective: Objective, mean: Tensor, vector: Tensor) -> Tensor:
    """C v, where `mean` is the gradient g."""
    direction, middle = objective.split(vector), mean @ vector

    def weigh(inputs: Tensor, outputs: Tensor, targets: Tensor) -> Tensor:
        _, slopes = output_gradient(objective.losses, outputs, targets)
        along = per_example(slopes * objective.push(inputs, direction)[1]) - middle  # (g_n - g)^T v
        return _scale_examples(slopes, along)

    return _pull(objective, weigh) * (objective.examples / (objective.examples - 1))


def signed_gradient(objective: Objective, mean: Tensor, signs: Tensor) -> Tensor:
    """r with E[r r^T] = C over random signs, one for each example: a weighted backward pass."""
    at = iter(signs.split(objective.chunk_size))

    def weigh(inputs: Tensor, outputs: Tensor, targets: Tensor) -> Tensor:
        return _scale_examples(output_gradient(objective.losses, outputs, targets)[1], next(at))

    total = _pull(objective, weigh) * objective.examples
    return (total - signs.sum() * mean) / math.sqrt(objective.examples - 1)


def gauss_newton_form(objective: Objective, vector: Tensor) -> Tensor:
    """v^T F_n v of each example n, whose mean is v^T F v."""
    direction = objective.split(vector)

    def form(inputs: Tensor, targets: Tensor) -> Tensor:
        outputs, tangent = objective.push(inputs, direction)
        return per_example(tangent * output_curvature(objective.losses, outputs, targets, tangent))

    return torch.cat([form(*chunk) for chunk in objective.chunks()])


def slopes(objective: Objective, vector: Tensor) -> Tensor:
    """g_n^T v of each example n."""
    direction = objective.split(vector)

    def slope(inputs: Tensor, targets: Tensor) -> Tensor:
        outputs, tangent = objective.push(inputs, direction)
        return per_example(output_gradient(objective.losses, outputs, targets)[1] * tangent)

    return torch.cat([slope(*chunk) for chunk in objective.chunks()])


def _pull(objective: Objective, weigh: Callable[[Tensor, Tensor, Tensor], Tensor]) -> Tensor:
    """1/N sum_n J_n^T w_n for the weights w that `weigh` gives to inputs, outputs and targets."""
    total = objective.new_vector()
    for inputs, targets in objective.chunks():
        with torch.enable_grad():
            outputs = objective.model(inputs)
        objective.add_gradients(total, outputs, weigh(inputs, outputs, targets))
    return total / objective.examples


def _scale_examples(values: Tensor, by: Tensor) -> Tensor:
    return values * by.view(-1, *(1 for _ in values.shape[1:]))
