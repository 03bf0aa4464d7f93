"""What `measure` is given, and whether it can be measured."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd

from batchlens._checks import require_choice, require_flag, require_number, require_whole
from batchlens.curvature._objective import Losses, Objective
from batchlens.kfac._labels import check_targets
from batchlens.training.metrics import cross_entropies, squared_errors


def _cross_entropies(outputs: Tensor, targets: Tensor) -> Tensor:
    check_targets("cross_entropy", outputs, targets)
    return cross_entropies(outputs, targets)


_LOSSES: dict[str, Losses] = {"cross_entropy": _cross_entropies, "squared_error": squared_errors}
_BY_MODE = (_BatchNorm, _DropoutNd, nn.RReLU)
# Is told how many parts are done, of how many, and which comes next.
Progress = Callable[[int, int, str], None]
_SHAPE = "a pair of tensors (inputs, targets), or an iterable of such pairs, as a DataLoader is"


@dataclass(frozen=True)
class Plan:
    """How something is measured."""

    hessian: bool
    error: float
    density_probes: int
    step: int
    seed: int


def check_plan(chunk_size: int, hessian: bool, error: float, density_probes: int, step: int, seed: int) -> Plan:
    """The options of `measure`, checked."""
    require_whole("chunk_size", chunk_size, 1)
    if require_whole("density_probes", density_probes) == 1:
        raise ValueError("`density_probes` must be 0 or at least 2, which an interval takes, got 1.")
    return Plan(
        require_flag("hessian", hessian),
        require_number("error", error, 0, 1, closed=(False, True)),
        density_probes,
        require_whole("step", step),
        require_whole("seed", seed),
    )


def read_loss(loss: str | Callable[[Tensor, Tensor], Tensor]) -> Losses:
    """The loss of each example."""
    return loss if callable(loss) else _LOSSES[require_choice("loss", loss, list(_LOSSES))]


def trained_parameters(model: nn.Module) -> list[nn.Parameter]:
    """Those that can be trained, of one precision."""
    parameters = [weight for weight in model.parameters() if weight.requires_grad]
    if not parameters:
        raise ValueError("`model` must have a parameter with requires_grad, got one without.")
    kinds = {str(weight.dtype).removeprefix("torch.") for weight in parameters}
    if kinds not in ({"float32"}, {"float64"}):
        raise ValueError(
            f"`model` must have parameters of float32 or of float64, got {' and '.join(sorted(kinds))}: call "
            "model.float() on a copy of it."
        )
    return parameters


def read_data(data: Any, examples: int | None, like: Tensor) -> tuple[Tensor, Tensor]:
    """Inputs and targets in one piece, where the model is."""
    most = None if examples is None else require_whole("examples", examples, 2)
    inputs, targets = _in_one_piece(data, most)
    if len(inputs) != len(targets):
        raise ValueError(f"`data` must have as many targets as inputs, got {len(targets)} and {len(inputs)}.")
    if len(inputs) < 2:
        count = "none" if len(inputs) == 0 else "one"
        raise ValueError(f"`data` must have two examples at least, which a variance takes, got {count}.")
    return inputs[:most].to(like.device), targets[:most].to(like.device)


def _in_one_piece(data: Any, most: int | None) -> tuple[Tensor, Tensor]:
    if _is_pair(data):
        return data[0], data[1]
    if isinstance(data, Tensor | str) or not isinstance(data, Iterable):
        raise TypeError(f"`data` must be {_SHAPE}, got a {type(data).__name__}.")
    parts: list[tuple[Tensor, Tensor]] = []
    count = 0
    for batch in data:
        if not _is_pair(batch):
            raise TypeError(f"`data` must be {_SHAPE}, got an iterable of a {type(batch).__name__}.")
        parts.append((batch[0], batch[1]))
        count += len(batch[0])
        if most is not None and count >= most:
            break
    if not parts:
        raise ValueError("`data` must have two examples at least, which a variance takes, got none.")
    return torch.cat([part[0] for part in parts]), torch.cat([part[1] for part in parts])


def _is_pair(value: Any) -> bool:
    return isinstance(value, tuple | list) and len(value) == 2 and all(isinstance(part, Tensor) for part in value)


def require_measurable(objective: Objective) -> None:
    """Raises where the loss is not one number for each example, or examples are not on their own."""
    inputs, targets = objective.inputs[:4], objective.targets[:4]
    with torch.no_grad(), objective.plain_kernels():
        outputs: object = _outputs(objective, inputs)
        if not isinstance(outputs, Tensor):
            raise TypeError(
                f"`model` must return a tensor of outputs, got a {type(outputs).__name__}. Wrap it in a module that "
                "returns the outputs."
            )
        losses: object = objective.losses(outputs, targets)
    if not isinstance(losses, Tensor) or losses.shape != (len(inputs),):
        got = f"the shape {tuple(losses.shape)}" if isinstance(losses, Tensor) else f"a {type(losses).__name__}"
        raise ValueError(
            f"`loss` must give one number for each of {len(inputs)} examples, got {got}. torch's losses do so with "
            'reduction="none".'
        )
    if any(module.training for module in objective.model.modules()):
        _require_no_mode(objective, inputs, outputs)
    _require_examples_apart(objective, inputs, outputs)


def _require_no_mode(objective: Objective, inputs: Tensor, outputs: Tensor) -> None:
    """A model in training mode, or with a part that is, is taken where that changes nothing."""
    modules = list(objective.model.modules())
    modes = [module.training for module in modules]
    objective.model.eval()
    try:
        with torch.no_grad(), objective.plain_kernels():  # others are for evaluation alone, and round otherwise
            same = torch.allclose(objective.model(inputs), outputs, rtol=0, atol=0, equal_nan=True)
    finally:
        for module, mode in zip(modules, modes, strict=True):  # parts may be in another mode than the whole
            module.training = mode
    if not same:
        kinds = {type(module).__name__ for module in modules if isinstance(module, _BY_MODE) and module.training}
        named = f" ({', '.join(sorted(kinds))})" if kinds else ""
        raise ValueError(
            f"`model` must be in evaluation mode, got one in training mode, where its outputs differ{named}: call "
            "model.eval(). With dropout or batch normalisation over the batch an example has no gradient of its own."
        )


def _require_examples_apart(objective: Objective, inputs: Tensor, outputs: Tensor) -> None:
    """Raises where the outputs of an example change with the others beside it, also in evaluation mode."""
    some = len(inputs) // 2
    with torch.no_grad(), objective.plain_kernels():
        fewer = _outputs(objective, inputs[:some])
    if float((fewer - outputs[:some]).abs().max()) > 1e-3 * float(outputs.abs().max()):  # not where one is not finite
        raise ValueError(
            "`model` must give the same outputs for an example whatever is beside it, got others among "
            f"{some} than among {len(inputs)}: with normalisation over the batch, as that without running statistics, "
            "an example has no gradient of its own."
        )


def _outputs(objective: Objective, inputs: Tensor) -> Any:
    """The outputs; running statistics of normalisations stay as they are."""
    buffers = {name: buffer.clone() for name, buffer in objective.model.named_buffers()}
    return torch.func.functional_call(objective.model, buffers, (inputs,))
