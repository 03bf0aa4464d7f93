"""The layers that K-FAC understands, and the two factors of each.

A layer turns rows a into rows s = W a (+ b). Linear has one row for every leading index, a convolution one for every
image and location (a is the patch under the kernel), Embedding one for every token (a is one-hot). Let N be the
number of examples that the loss averages over, T the number of rows, and g the gradient at a row s of the loss summed
over the examples. Then

    input factor   A = 1/N sum_rows a a^T          a gets a last entry 1 if there is a bias
    output factor  S = 1/T sum_rows g g^T          F ~ S kron A

With T = N this is Martens and Grosse. For a convolution T = N |I|, and this is eqn (15) of the paper: A sums over
locations, S averages over them. A Linear on sequences is the same where the loss sees one example a sequence; where
the loss sees every position (N = T), positions are examples.

A weight shared by an Embedding and a Linear has the Embedding's orientation: its input factor is as long as the
vocabulary and takes the one-hot inputs of the Embedding and the output gradients of the Linear, its output factor
takes the output gradients of the Embedding and the inputs of the Linear. Contributions from both uses are pooled as
more examples: the sums are added and divided by the added counts (N for inputs, T for gradients; in a language model
all four are N, so that both factors are divided by 2N). Factors of vocabulary size are diagonal, kept as vectors.
Linear layers that share one weight are pooled in the same way.
"""

import functools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeGuard

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.modules.linear import NonDynamicallyQuantizableLinear

from batchlens.kfac._inverses import Inverse, multiply_left, multiply_right
from batchlens.kfac._moments import Pair

_PORTION = 2**20  # entries of patches held at once
CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
_FORWARDS = [kind.forward for kind in (nn.Linear, nn.Embedding, *CONVOLUTIONS)]


@dataclass(eq=False)
class Block:
    """A weight, its bias, and the layers that use it."""

    names: tuple[str, ...]
    modules: tuple[nn.Module, ...]
    weight: nn.Parameter
    bias: nn.Parameter | None

    @property
    def name(self) -> str:
        return self.names[0]

    @property
    def parameters(self) -> list[nn.Parameter]:
        return [self.weight] if self.bias is None else [self.weight, self.bias]

    @property
    def is_embedding(self) -> bool:
        """Whether the rows of the weight belong to inputs (Embedding) and not to outputs (Linear, convolutions)."""
        return any(isinstance(module, nn.Embedding) for module in self.modules)

    @property
    def factor_shapes(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Shapes of the input and the output factor."""
        rows, columns = self.weight.shape[0], self.weight[0].numel()
        if self.is_embedding:
            return (rows,), (columns, columns)
        columns += self.bias is not None
        return (columns, columns), (rows, rows)

    def accumulate_inputs(self, sums: Pair, module: nn.Module, inputs: Iterable[Tensor], examples: float) -> None:
        """Adds the rows that `module` was given; `examples` is N."""
        side = sums.outputs if self.is_embedding and isinstance(module, nn.Linear) else sums.inputs
        side.add(sum_tensors(self._input_total(module, values) for values in inputs), examples)

    def accumulate_gradients(self, sums: Pair, module: nn.Module, gradients: Tensor, first_pass: bool) -> None:
        """Adds the gradients at the rows that `module` returned; later backward passes are of the same rows."""
        tied = self.is_embedding and isinstance(module, nn.Linear)
        rows = _rows(module, gradients.to(self.weight.dtype))
        total = rows.square().sum(0) if tied else rows.T @ rows
        (sums.inputs if tied else sums.outputs).add(total, len(rows) if first_pass else 0)

    def _input_total(self, module: nn.Module, values: Tensor) -> Tensor:
        if isinstance(module, nn.Embedding):
            return torch.bincount(values.flatten(), minlength=len(self.weight)).to(self.weight.dtype)
        values = values.to(self.weight.dtype)
        portions = extract_patches(module, values) if is_convolution(module) else [_rows(module, values).T]
        size = self.weight[0].numel() + (self.bias is not None)
        return _second_moment(portions, values.new_zeros(size, size))

    def gradient(self) -> Tensor | None:
        """The gradient as one matrix, the bias as its last column; None where backward() did not reach it."""
        if all(parameter.grad is None for parameter in self.parameters):
            return None
        weight, *bias = (
            torch.zeros_like(parameter) if parameter.grad is None else parameter.grad for parameter in self.parameters
        )
        matrix = weight.reshape(len(weight), -1)
        return torch.cat([matrix, bias[0].unsqueeze(1)], 1) if bias else matrix

    def split(self, matrix: Tensor) -> list[Tensor]:
        """The inverse of `gradient`: one tensor for each of the parameters."""
        if self.bias is None:
            return [matrix.reshape(self.weight.shape)]
        return [matrix[:, :-1].reshape(self.weight.shape), matrix[:, -1]]

    def precondition(self, gradient: Tensor, input_inverse: Inverse, output_inverse: Inverse) -> Tensor:
        """S^-1 gradient A^-1 (A^-1 gradient S^-1 for an Embedding)."""
        left, right = (input_inverse, output_inverse) if self.is_embedding else (output_inverse, input_inverse)
        return multiply_right(multiply_left(left, gradient), right)


def _second_moment(portions: Iterable[Tensor], moment: Tensor) -> Tensor:
    """`moment` plus the sum of a a^T over the columns a of all portions, each with an entry 1 more if that fits."""
    for columns in portions:
        size = len(columns)
        moment[:size, :size].addmm_(columns, columns.T)
        if size < len(moment):
            sums = columns.sum(1)
            moment[:size, -1] += sums
            moment[-1, :size] += sums
            moment[-1, -1] += columns.shape[1]
    return moment


def sum_tensors(tensors: Iterable[Tensor]) -> Tensor:
    return functools.reduce(torch.add, tensors)


def is_convolution(module: nn.Module) -> TypeGuard[nn.Conv1d | nn.Conv2d | nn.Conv3d]:
    return isinstance(module, CONVOLUTIONS)


def _rows(module: nn.Module, values: Tensor) -> Tensor:
    """(rows, features)"""
    if is_convolution(module):
        values = values.movedim(-1 - len(module.kernel_size), -1)
    return values.reshape(-1, values.shape[-1])


def extract_patches(module: nn.Conv1d | nn.Conv2d | nn.Conv3d, images: Tensor) -> Iterator[Tensor]:
    """(channels * kernel size, images * locations): what the kernel saw at every location.

    Comes in portions of some images each, since patches take kernel size times as much memory.
    """
    axes = range(len(module.kernel_size))
    images = functional.pad(images, [zeros for axis in reversed(axes) for zeros in _padding(module, axis)])
    images = images if images.ndim == 2 + len(axes) else images.unsqueeze(0)
    # Views cost nothing and one copy puts them in order: twice as fast as functional.unfold.
    for axis in axes:
        span = module.dilation[axis] * (module.kernel_size[axis] - 1) + 1
        images = images.unfold(2 + axis, span, module.stride[axis])[..., :: module.dilation[axis]]
    for portion in images.split(max(1, _PORTION // images[0].numel())):
        # from image, channel, location, place in the kernel
        patches = portion.permute(1, *(2 + len(axes) + axis for axis in axes), 0, *(2 + axis for axis in axes))
        yield patches.reshape(math.prod(patches.shape[: 1 + len(axes)]), -1)


def _padding(module: nn.Conv1d | nn.Conv2d | nn.Conv3d, axis: int) -> tuple[int, int]:
    """Zeros before and after; an odd number of them for "same" has the larger half after."""
    if not isinstance(module.padding, str):
        return module.padding[axis], module.padding[axis]
    total = module.dilation[axis] * (module.kernel_size[axis] - 1) if module.padding == "same" else 0
    return total // 2, total - total // 2


def refusal(module: nn.Module) -> str | None:
    """Why the weight of `module` has no factors, or None if it has."""
    kind = type(module)
    if kind is NonDynamicallyQuantizableLinear:
        return "part of a MultiheadAttention, which never calls it"
    if kind.forward not in _FORWARDS:
        return f"a parameter of {kind.__name__}"
    if is_convolution(module):
        if module.groups != 1:
            return f"a convolution with {module.groups} groups"
        if module.padding_mode != "zeros":
            return f"a convolution padded by {module.padding_mode!r}"
    if isinstance(module, nn.Embedding):
        for option in ("max_norm", "scale_grad_by_freq", "sparse"):
            if getattr(module, option):
                return f"an embedding with {option}"
    return None


def find_blocks(model: nn.Module) -> tuple[list[Block], dict[str, tuple[nn.Parameter, str]]]:
    """The blocks of `model`, and every other trainable parameter by name, with the reason."""
    users: dict[nn.Parameter, list[tuple[str, nn.Module]]] = {}
    for name, module in model.named_modules():
        for parameter in module.parameters(recurse=False):
            users.setdefault(parameter, []).append((name or "model", module))
    blocks: list[Block] = []
    others: dict[str, tuple[nn.Parameter, str]] = {}
    taken: set[nn.Parameter] = set()
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad or parameter in taken:
            continue
        layers = [module for _, module in users[parameter]]
        reason = _shared_refusal(parameter, layers)
        if reason is not None:
            others[name] = (parameter, reason)
            continue
        bias = getattr(layers[0], "bias", None)
        if bias is not None and not (bias.requires_grad and len(layers) == len(users[bias]) == 1):
            bias = None
        block = Block(tuple(name for name, _ in users[parameter]), tuple(layers), parameter, bias)
        taken.update(block.parameters)
        blocks.append(block)
    return blocks, {name: entry for name, entry in others.items() if entry[0] not in taken}


def _shared_refusal(parameter: nn.Parameter, layers: Sequence[nn.Module]) -> str | None:
    for layer in layers:
        reason = refusal(layer)
        if reason is not None:
            return reason
        if parameter is not layer.weight:
            return f"the bias of a {type(layer).__name__} whose weight is shared, frozen or has no factors"
    if len(layers) > 1 and any(is_convolution(layer) for layer in layers):
        return "a convolution with a shared weight"
    return None
