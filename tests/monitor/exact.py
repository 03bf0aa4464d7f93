"""Noise scales from the gradient of every single example, by one backward pass each."""

import copy
from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn


def gradients(
    model: nn.Module, loss: Callable[..., Tensor], examples: Iterable[tuple[Tensor, ...]], names: Iterable[str]
) -> Tensor:
    """(examples, entries): the gradient of each example's loss, of the parameters with these names."""
    model = copy.deepcopy(model)  # hooks stay behind
    own = dict(model.named_parameters())
    rows = []
    for example in examples:
        model.zero_grad(set_to_none=False)
        loss(model, *(part.unsqueeze(0) for part in example)).backward()
        found = [own[name].grad for name in names]
        rows.append(torch.cat([value.flatten() for value in found if value is not None]))
    return torch.stack(rows).double()


def of_data(rows: Tensor, weights: Tensor | float = 1.0) -> float:
    """tr Sigma / |G|^2 of examples drawn from these with replacement, entries of squares weighted."""
    mean = rows.mean(0)
    return float((weights * (rows - mean).square()).sum(1).mean() / (weights * mean.square()).sum())


def of_batch(rows: Tensor, small_batch: int = 1) -> tuple[float, float]:
    """Noise and signal without bias from one batch: variance between small batches, and what is left of the mean."""
    small = rows.unflatten(0, (-1, small_batch)).mean(1)
    variance = float(small.var(0).sum())
    return variance * small_batch, float(rows.mean(0).square().sum()) - variance / len(small)
