"""Whether a saved state belongs to a model."""

from collections.abc import Sequence
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
