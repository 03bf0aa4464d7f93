"""Whether the model is still the one that the optimizer was made for, and a saved state is of it."""

from collections.abc import Mapping, Sequence
from typing import Any

from torch import nn

from batchlens.errors import BatchlensError
from batchlens.kfac._layers import Block


def require_same_model(
    saved: dict[str, Any], parameters: Sequence[tuple[nn.Parameter, str]], blocks: Sequence[Block]
) -> None:
    """Raises unless every tensor of the state has the shape that it has with these parameters."""
    numbers = [number for group in saved["param_groups"] for number in group["params"]]
    if len(numbers) != len(parameters):
        raise BatchlensError(
            f"`state_dict` is of another model: it has {len(numbers)} parameters, this one {len(parameters)}."
        )
    shapes = {block.weight: block.factor_shapes for block in blocks}
    for number, (parameter, name) in zip(numbers, parameters, strict=True):
        inputs, outputs = shapes.get(parameter, (None, None))
        wanted = {"momentum_buffer": tuple(parameter.shape), "input_factor": inputs, "output_factor": outputs}
        for key, value in saved["state"].get(number, {}).items():
            if key in wanted and wanted[key] != tuple(value.shape):
                is_here = "none" if wanted[key] is None else f"one of the shape {wanted[key]}"
                raise BatchlensError(
                    f"`state_dict` is of another model: its {key.replace('_', ' ')} for {name} has the shape "
                    f"{tuple(value.shape)}, and here there is {is_here}."
                )


def require_known(model: nn.Module, names: Mapping[nn.Parameter, str], blocks: Sequence[Block]) -> None:
    """Raises if a parameter was unfrozen, or half a layer frozen, since the optimizer was made for `names`."""
    for name, parameter in model.named_parameters():
        if parameter.grad is not None and parameter not in names:
            raise BatchlensError(
                f"{name} has a gradient, but did not require one when this KFAC was made: make a new KFAC."
            )
    for block in blocks:
        frozen = [names[parameter] for parameter in block.parameters if not parameter.requires_grad]
        if 0 < len(frozen) < len(block.parameters):
            raise BatchlensError(
                f"{frozen[0]} was frozen after this KFAC was made, and shares factors with the rest of its layer: "
                "freeze the whole layer, or make a new KFAC."
            )
