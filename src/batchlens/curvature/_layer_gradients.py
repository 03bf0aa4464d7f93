"""The gradient of each example by the weight of a layer, in a basis of the weight's rows and columns.

The matrix of a block has the weight's orientation, the bias as its last column: (outputs, inputs) for Linear and
convolutions, (vocabulary, features) for Embedding and for a Linear that shares its weight.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge
from torch.nn import functional

from batchlens.kfac._graph import Call, find_calls, leave_call
from batchlens.kfac._layers import Block, extract_patches, is_convolution

# Entries of examples' gradients, and of the rows that they are made of, that are held at once.
_PORTION = 2**22
_KEY = "batchlens.curvature"


class Forward:
    """A forward pass through the model that remembers the calls of the blocks' layers."""

    def __init__(self, model: nn.Module, blocks: Sequence[Block], inputs: Tensor) -> None:
        with _hooks(blocks), torch.enable_grad():
            self.outputs: Tensor = model(inputs)
        _, found = find_calls(self.outputs, _KEY)
        self.calls = list(found.values())
        self._edges = [GradientEdge(node, call.output_number) for node, call in found.items()]

    def differentiate(self, weights: Tensor) -> dict[Block, list[tuple[Call, Tensor]]]:
        """The gradient of the weighted outputs at every call's output, by block."""
        if not self._edges:
            return {}
        gradients = torch.autograd.grad(self.outputs, self._edges, weights, retain_graph=True)
        by_block: dict[Block, list[tuple[Call, Tensor]]] = {}
        for call, gradient in zip(self.calls, gradients, strict=True):
            by_block.setdefault(call.block, []).append((call, gradient))
        return by_block


@contextmanager
def _hooks(blocks: Sequence[Block]) -> Iterator[None]:
    handles = []
    for block in blocks:
        for module in block.modules:
            handles.append(module.register_forward_hook(partial(_leave, block), with_kwargs=True))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _leave(block: Block, module: nn.Module, given: tuple[Any, ...], named: dict[str, Any], output: Tensor) -> None:
    if output.grad_fn is not None:  # not under no_grad
        leave_call(_KEY, block, module, given[0] if given else named["input"], output)


class Basis(NamedTuple):
    """Orthonormal columns for the rows and the columns of a block's matrix; None: as they are."""

    rows: Tensor | None
    columns: Tensor | None


class Outer(NamedTuple):
    """Gradients of examples that are outer products: (examples, rows) and (examples, columns)."""

    left: Tensor
    right: Tensor

    def total(self) -> Tensor:
        return self.left.T @ self.right

    def total_squares(self) -> Tensor:
        return self.left.square().T @ self.right.square()

    def squared_norms(self) -> Tensor:
        return self.left.square().sum(1) * self.right.square().sum(1)


class Full(NamedTuple):
    """Gradients of examples: (examples, rows, columns)."""

    matrices: Tensor

    def total(self) -> Tensor:
        return self.matrices.sum(0)

    def total_squares(self) -> Tensor:
        return self.matrices.square().sum(0)

    def squared_norms(self) -> Tensor:
        return self.matrices.square().sum((1, 2))


def example_gradients(
    block: Block, passes: Sequence[Sequence[tuple[Call, Tensor]]], basis: Basis
) -> Iterator[list[Outer | Full]]:
    """For some examples after the other, their gradients for every backward pass; passes are of the same calls."""
    calls = [call for call, _ in passes[0]]
    examples = len(calls[0].inputs)
    size = examples if _is_outer(calls) else max(1, _PORTION // max(_entries(block, call) for call in calls))
    for first in range(0, examples, size):
        part = slice(first, first + size)
        inputs = [_input_rows(block, call, part, basis) for call in calls]
        yield [_combine(block, one, inputs, part, basis) for one in passes]


def _is_outer(calls: Sequence[Call]) -> bool:
    """Whether each example's gradient is one outer product."""
    return len(calls) == 1 and isinstance(calls[0].module, nn.Linear) and calls[0].inputs.ndim == 2


def _entries(block: Block, call: Call) -> int:
    """Of one example: those of its gradient and of the rows that it is made of."""
    columns = block.weight[0].numel() + (block.bias is not None)
    rows = call.rows if is_convolution(call.module) else call.inputs.numel() // call.inputs.shape[-1]
    return (len(block.weight) + max(1, rows // len(call.inputs))) * columns


def _combine(
    block: Block, calls: Sequence[tuple[Call, Tensor]], inputs: Sequence[Tensor], part: slice, basis: Basis
) -> Outer | Full:
    """The gradients of some examples, summed over calls."""
    total: Tensor | None = None
    for (call, gradient), rows in zip(calls, inputs, strict=True):
        if isinstance(call.module, nn.Embedding):
            matrices = _scatter(call.module, rows, gradient[part], basis)
        else:
            left = _multiply(_gradient_rows(call.module, gradient[part]), basis.rows)
            if _is_outer([call for call, _ in calls]):
                return Outer(left.squeeze(1), rows.squeeze(1))
            matrices = left.transpose(1, 2) @ rows
        total = matrices if total is None else total + matrices
    assert total is not None
    return Full(total)


def _input_rows(block: Block, call: Call, part: slice, basis: Basis) -> Tensor:
    """(examples, rows of the layer, inputs) in the basis; tokens for an Embedding."""
    module, values = call.module, call.inputs[part]
    if isinstance(module, nn.Embedding):
        return values.reshape(len(values), -1)
    if is_convolution(module):
        columns = torch.cat(list(extract_patches(module, values)), 1)
        rows = columns.T.reshape(len(values), -1, len(columns))
    else:
        rows = values.reshape(len(values), -1, values.shape[-1])
    if block.bias is not None:
        rows = functional.pad(rows, (0, 1), value=1.0)
    return _multiply(rows, basis.columns)


def _gradient_rows(module: nn.Module, gradient: Tensor) -> Tensor:
    """(examples, rows of the layer, outputs)"""
    if is_convolution(module):
        return gradient.flatten(2).transpose(1, 2)
    return gradient.reshape(len(gradient), -1, gradient.shape[-1])


def _scatter(module: nn.Embedding, tokens: Tensor, gradient: Tensor, basis: Basis) -> Tensor:
    """Adds the gradient at each token to the row of its word."""
    rows = _multiply(gradient.reshape(*tokens.shape, -1), basis.columns)
    if module.padding_idx is not None:
        rows = rows.masked_fill((tokens == module.padding_idx).unsqueeze(-1), 0)
    words, features = module.weight.shape
    places = tokens + words * torch.arange(len(tokens), device=tokens.device).unsqueeze(1)
    total = rows.new_zeros(len(tokens) * words, features)
    return total.index_add_(0, places.flatten(), rows.flatten(0, 1)).view(len(tokens), words, features)


def _multiply(rows: Tensor, basis: Tensor | None) -> Tensor:
    return rows if basis is None else rows @ basis
