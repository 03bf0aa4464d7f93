"""The layers whose inputs and output gradients tell the gradient of every example, and which parameters have none.

A weight matrix gets the gradient sum_rows left right' of an example: for Linear, a row is a position of a sequence,
left the output's gradient and right the input; for a convolution a row is a location and right the patch under the
kernel; for Embedding a row is a token, left is one-hot at it and right the output's gradient. Biases and the gains of
normalisations get a vector.
"""

from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.linear import NonDynamicallyQuantizableLinear

from batchlens.kfac._layers import extract_patches, is_convolution

MATRICES = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.Embedding)
NORMS = (nn.LayerNorm, nn.GroupNorm, nn.RMSNorm)
_FORWARDS = [kind.forward for kind in (*MATRICES, *NORMS)]


@dataclass(eq=False)
class Call:
    """One use of a layer: what it was given, and the gradient of what it returned; both (examples, ...).

    `reason` says why it does not tell examples apart, if it does not.
    """

    module: nn.Module
    inputs: Tensor
    gradients: Tensor
    reason: str | None = None


@dataclass(frozen=True)
class Rows:
    """Gradients of a matrix as sums of outer products; convolutions with groups count as that many examples.

    Arguments:
        left: (examples, rows, outputs), or (examples, rows) where every row is one-hot, at that place.
        right: (examples, rows, inputs).
    """

    left: Tensor
    right: Tensor

    @property
    def is_one_hot(self) -> bool:
        return self.left.ndim == 2


Size: TypeAlias = tuple[int, int, int]


def matrix_size(call: Call) -> Size:
    """How many rows, outputs and inputs an example has; those of all groups of a convolution."""
    module, gradients = call.module, call.gradients
    if isinstance(module, nn.Embedding):
        return gradients[0].numel() // module.embedding_dim, 1, module.embedding_dim
    outputs = len(module.weight)  # type: ignore[arg-type]
    return gradients[0].numel() // outputs, outputs, module.weight[0].numel()  # type: ignore[index]


def matrix_rows(call: Call, part: slice, dtype: torch.dtype) -> Rows:
    """What the examples of `part` give to the weight."""
    module, inputs, gradients = call.module, call.inputs[part], call.gradients[part].to(dtype)
    count = len(inputs)
    if isinstance(module, nn.Embedding):
        tokens, right = inputs.reshape(count, -1), gradients.reshape(count, -1, gradients.shape[-1])
        if module.padding_idx is not None:
            right = right * (tokens != module.padding_idx).unsqueeze(2)
        return Rows(tokens, right)
    inputs = inputs.to(dtype)
    if is_convolution(module):
        patches = [portion.unflatten(1, (-1, gradients[0, 0].numel())) for portion in extract_patches(module, inputs)]
        columns = patches[0] if len(patches) == 1 else torch.cat(patches, 1)  # (channels and kernel, examples, rows)
        groups = module.groups
        right = columns.unflatten(0, (groups, -1)).permute(2, 0, 3, 1).flatten(0, 1)
        left = gradients.flatten(2).unflatten(1, (groups, -1)).transpose(2, 3).flatten(0, 1)
        return Rows(left, right)
    return Rows(gradients.reshape(count, -1, gradients.shape[-1]), inputs.reshape(count, -1, inputs.shape[-1]))


def vector(call: Call, parameter: nn.Parameter, part: slice, dtype: torch.dtype) -> Tensor:
    """(examples, entries): what the examples of `part` give to a bias or gain."""
    module, values = call.module, call.gradients[part].to(dtype)
    if parameter is module.weight:  # a normalisation's gain
        values = values * _normalised(module, call.inputs[part].to(dtype))
    if isinstance(module, nn.GroupNorm) or is_convolution(module):
        return values.flatten(2).sum(2)
    return values.reshape(len(values), -1, parameter.numel()).sum(1)


def _normalised(module: nn.Module, inputs: Tensor) -> Tensor:
    """What the gain of a normalisation is multiplied with."""
    if isinstance(module, nn.GroupNorm):
        return functional.group_norm(inputs, module.num_groups, eps=module.eps)
    if isinstance(module, nn.RMSNorm):
        return functional.rms_norm(inputs, list(module.normalized_shape), eps=module.eps)
    assert isinstance(module, nn.LayerNorm)
    return functional.layer_norm(inputs, list(module.normalized_shape), eps=module.eps)


def is_matrix(module: nn.Module, parameter: nn.Parameter) -> bool:
    """Whether the parameter is a weight with rows, and not a bias or gain."""
    return isinstance(module, MATRICES) and parameter is module.weight


def unusable(call: Call, examples: int | None) -> str | None:
    """Why the call does not tell the examples of the batch apart, or None if it does."""
    inputs, module = call.inputs, call.module
    if isinstance(module, nn.Embedding):
        if inputs.ndim == 1 and len(inputs) > 1 and torch.equal(inputs, torch.arange(len(inputs)).to(inputs)):
            return "looked up at 0, 1, 2, ... for all examples at once"
    elif inputs.ndim < (2 + len(module.kernel_size) if is_convolution(module) else 2):
        return "given no dimension for the batch"
    rows = len(inputs) if inputs.ndim else 0
    return None if rows == examples else f"given {rows} rows for a batch of {examples}"


def refusal(module: nn.Module) -> str | None:
    """Why the parameters of `module` cannot be told example by example, or None if they can."""
    kind = type(module)
    if kind is NonDynamicallyQuantizableLinear:
        return "part of a MultiheadAttention, which never calls it"
    if kind.forward not in _FORWARDS:
        return f"a parameter of {kind.__name__}"
    if is_convolution(module) and module.padding_mode != "zeros":
        return f"a convolution padded by {module.padding_mode!r}"
    if isinstance(module, nn.Embedding):
        for option in ("max_norm", "scale_grad_by_freq", "sparse"):
            if getattr(module, option):
                return f"an embedding with {option}"
    return None


def find_layers(model: nn.Module) -> tuple[list[nn.Module], dict[str, str]]:
    """The layers that are understood, and every trainable parameter that some use of hides, with the reason."""
    reasons: dict[nn.Parameter, str] = {}
    layers = []
    for module in model.modules():
        reason = refusal(module)
        own = list(module.parameters(recurse=False))
        if reason is not None:
            reasons |= dict.fromkeys(own, reason)
        elif own:
            layers.append(module)
    hidden = {name: reasons[parameter] for name, parameter in trainable(model).items() if parameter in reasons}
    return layers, hidden


def trainable(model: nn.Module) -> dict[str, nn.Parameter]:
    """Every parameter that gets a gradient, by name; shared ones once."""
    return {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}


def mixing_layer(model: nn.Module) -> str | None:
    """The name of a batch norm that takes its statistics from the batch, if there is one."""
    for name, module in model.named_modules():
        if isinstance(module, _BatchNorm) and (module.training or module.running_mean is None):
            return name or "model"
    return None
