"""One step of a training: what the small batches are, and noise and signal from what its backward passes said."""

import math
from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.amp.grad_scaler import GradScaler

from batchlens.errors import BatchlensError
from batchlens.monitor._estimator import Parts, two_sizes
from batchlens.monitor._geometry import Geometry, l1_parts
from batchlens.monitor._layers import find_layers, mixing_layer, trainable
from batchlens.monitor._pooling import Group, Pooled, pool, size_of
from batchlens.monitor._watching import LayerWatch, Watch, find_problem

_NOTHING = torch.tensor(math.nan)


class Measuring:
    """The hooks of a noise scale, and what they make of a step."""

    def __init__(
        self,
        model: nn.Module,
        by: str,
        geometry: Geometry,
        *,
        mean: bool,
        examples: int | None,
        batch_size: int | None,
        scaler: GradScaler | None,
        group: Group | None,
    ) -> None:
        self.by, self._model, self._geometry, self._mean = by, model, geometry, mean
        self._examples, self._scaler, self._group = examples, scaler, group
        parameters = trainable(model)
        _check_model(model, parameters)
        self._watch = Watch(model, parameters, batch_size)
        self._layers: LayerWatch | None = None
        for name, parameter in parameters.items():
            if not geometry.holds(parameter):
                self.left_out[name] = "not in the optimizer"
        if by == "auto" and (size_of(group) > 1 or geometry.name == "l1"):
            by = "micro_batches"
        if by != "auto":
            try:
                self.prepare(by)
            except BatchlensError as error:
                self.close()
                raise ValueError(str(error)) from None

    @property
    def left_out(self) -> dict[str, str]:
        """Parameters that do not count, with the reason."""
        return self._watch.left_out

    @property
    def is_active(self) -> bool:
        """Whether the step that is under way is measured."""
        return self._watch.active

    def leave_out(self, found: Mapping[str, str]) -> None:
        """What was found before not to count; names of another model are passed over."""
        names = set(self._watch.names.values())
        self.left_out.update({name: reason for name, reason in found.items() if name in names})

    def restart(self, active: bool) -> None:
        """Before the next step; whether it is measured."""
        self._geometry.forget()
        self._watch.restart(active)
        if self._layers is not None:
            self._layers.restart()

    def close(self) -> None:
        """Takes the hooks off."""
        self._watch.close()
        if self._layers is not None:
            self._layers.close()

    def prepare(self, by: str) -> None:
        """Sets the hooks to what the small batches are."""
        if by == "examples":
            self._tell_examples_apart()
        elif self._geometry.name == "l1":
            self._watch.kept = {}
        else:
            self._watch.measure = self._squared
        self.by = by

    def _squared(self, parameter: nn.Parameter, gradient: Tensor) -> Tensor | None:
        counts = self._watch.names[parameter] not in self.left_out
        return self._geometry.squared(parameter, gradient) if counts else None

    def _tell_examples_apart(self) -> None:
        if self._geometry.name == "l1":
            raise BatchlensError('geometry="l1" needs micro-batches: of single examples, only squares are known.')
        if hasattr(self._model, "_orig_mod"):
            raise BatchlensError('A compiled model hides its layers: use by="micro_batches", or the model itself.')
        self._require_no_mixing()
        layers, hidden = find_layers(self._model)
        if len(hidden) == len(self._watch.names):
            raise BatchlensError('No parameter is of a layer whose examples can be told apart: use by="micro_batches".')
        self.left_out.update(hidden)
        self._layers = LayerWatch(self._watch, layers, self._examples, self._geometry.weights)
        self._watch.measure = self._layers.measure

    def _require_no_mixing(self) -> None:
        name = mixing_layer(self._model)
        if name is not None:
            raise BatchlensError(
                f"`{name}` is a batch norm, which mixes the examples of a batch: none has a gradient of its own. "
                'Accumulate gradients of micro-batches or train on several processes (by="micro_batches").'
            )

    def detect(self) -> None:
        """Decides by the step that was just seen: of several backward passes, or of one."""
        problem = find_problem(self._watch, alone=True)
        if problem is not None:
            raise BatchlensError(problem)
        self.prepare("micro_batches" if len(self._watch.micro_batches) > 1 else "examples")

    def parts(self, measured_before: bool) -> Parts | None:
        """Noise and signal of the step; None where it cannot tell them."""
        if self.by == "examples":
            self._require_no_mixing()
        problem = find_problem(self._watch, alone=size_of(self._group) == 1)
        counted = [parameter for parameter in self._watch.counted if parameter.grad is not None]
        if problem is None and not counted:
            problem = "No parameter is left that counts; `left_out` says why."
        found = self._pool(counted, problem)
        if found.problems:
            raise BatchlensError(problem or "Another process could not take down its step, and says why.")
        if self.by == "micro_batches" and found.batches < 2 and not measured_before:
            raise BatchlensError(
                "A step of one backward pass on one process has nothing to be compared with: accumulate gradients of "
                'several micro-batches, train on several processes, or use by="examples".'
            )
        if found.large_batch <= found.small_batch or not self._geometry.is_ready(counted):
            return None
        scale = 1.0 if self._scaler is None else self._scaler.get_scale()
        if self._geometry.name == "l1":
            noise, signal = found.parts
            return Parts(noise / scale, signal / scale, found.large_batch) if found.even else None
        large = sum(_numbers([self._geometry.squared(parameter, _gradient(parameter)) for parameter in counted]))
        return two_sizes(found.small / scale**2, large / scale**2, found.small_batch, found.large_batch)

    def _pool(self, counted: list[nn.Parameter], problem: str | None) -> Pooled:
        """What all processes saw."""
        seen = [] if problem is not None else self._watch.micro_batches
        sizes = [batch.examples or 1 for batch in seen]
        values, parts = [0.0] * len(seen), (0.0, 0.0)
        if self._watch.kept is None:
            values = _numbers([_NOTHING if batch.total is None else batch.total.mean() for batch in seen])
        else:
            processes = size_of(self._group)
            if len(seen) * processes > 1:
                pairs = [
                    (self._watch.kept[parameter], _gradient(parameter))
                    for parameter in counted
                    if parameter in self._watch.kept
                ]
                parts = l1_parts(pairs, len(seen) * processes, processes, sum(sizes) / len(sizes))
        return pool(
            values,
            sizes,
            by_examples=self.by == "examples",
            mean=self._mean,
            group=self._group,
            device=next(self._model.parameters()).device,
            problem=problem is not None,
            parts=parts,
        )


def _numbers(values: list[Tensor]) -> list[float]:
    """Tensors without dimensions as numbers, with one wait for the device where it is one."""
    if not values:
        return []
    numbers: list[float] = torch.stack([value.to(values[0].device, torch.float64) for value in values]).tolist()
    return numbers


def _gradient(parameter: nn.Parameter) -> Tensor:
    assert parameter.grad is not None
    return parameter.grad.detach()


def _check_model(model: nn.Module, parameters: dict[str, nn.Parameter]) -> None:
    if not parameters:
        raise ValueError("`model` must have parameters that get gradients, got none.")
    if isinstance(model, nn.DataParallel):
        raise ValueError("`model` must not be a DataParallel, whose copies are not seen; use DistributedDataParallel.")
    if any(hasattr(parameter, "device_mesh") for parameter in parameters.values()):
        raise ValueError("`model` must not be sharded: each process sees a part of the gradient only.")
