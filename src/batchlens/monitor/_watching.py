"""Hooks that see every backward pass between two steps, before its gradients are added up.

A hook on a parameter sees the gradient of one backward pass, on this process alone: before accumulation and before
DistributedDataParallel averages. It leaves what it found, and a second hook counts it once the gradient is added to
`.grad`: a gradient that was only asked for (torch.autograd.grad) counts nowhere. Passes belong to one micro-batch until
the model is called again or a parameter is reached again. Trainers may never call the model itself but its parts: then
the first part that is called after a backward pass is what begins a micro-batch, and what it is given has the examples.

Where examples are told apart, a hook on a layer hangs the layer's input, which autograd keeps anyway, on its output.
When the backward pass comes there, the two wait for the layer's parameters, which are next, and are let go.
"""

import math
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from batchlens.monitor._ghost import squared_norms, total_gradient
from batchlens.monitor._layers import Call, unusable

# How far the examples' gradients may be from the whole one, as a share of it: rounding of half precision is below.
_TOLERANCE = 0.05

Weights = Callable[[nn.Parameter], Tensor | None]


class Hook:
    """A hook that does not keep its listener alive. With a copied or pickled model goes one that does nothing."""

    def __init__(self, listener: Callable[..., None] | None = None, *first: Any) -> None:
        self._listener = None if listener is None else weakref.WeakMethod(listener)
        self._first = first

    def __call__(self, *values: Any) -> None:
        listener = None if self._listener is None else self._listener()
        if listener is not None:
            listener(*self._first, *values)

    def __reduce__(self) -> tuple[type["Hook"], tuple[()]]:
        return Hook, ()


@dataclass
class MicroBatch:
    """What the backward passes of one micro-batch said.

    `total` is the squared gradient, summed over parameters: (), or (examples,) where they are told apart.
    """

    examples: int | None
    total: Tensor | None = None
    reached: set[nn.Parameter] = field(default_factory=set)


class Watch:
    """What was seen since the last step; `active` on steps that are measured."""

    def __init__(self, model: nn.Module, parameters: Mapping[str, nn.Parameter], batch_size: int | None) -> None:
        self.names = {parameter: name for name, parameter in parameters.items()}
        self.batch_size, self.active, self._model = batch_size, True, model
        self._holders = _find_holders(model, self.names)
        self._witness = min(self.names, key=Tensor.numel)
        self.left_out: dict[str, str] = {}
        self.kept: dict[nn.Parameter, Tensor] | None = None
        self.measure: Callable[[nn.Parameter, Tensor], Tensor | None] | None = None
        handles: list[RemovableHandle] = [
            *(
                module.register_forward_pre_hook(Hook(self._called, module), with_kwargs=True)
                for module in _open_modules(model, self.names)
            ),
            *(parameter.register_hook(Hook(self._found, parameter)) for parameter in self.names),
            *(parameter.register_post_accumulate_grad_hook(Hook(self._added)) for parameter in self.names),
        ]
        self.close = weakref.finalize(self, _remove, handles)
        self.restart(True)

    def restart(self, active: bool) -> None:
        """Forgets what was seen; whether the next step is measured."""
        self.active = active
        self.micro_batches: list[MicroBatch] = []
        self._versions: dict[nn.Parameter, int] = {}
        self._witnessed: Tensor | None = None
        self.leftover: Tensor | None = None
        self.problem: str | None = None
        self._pending: dict[nn.Parameter, Tensor | None] = {}
        self._calls: Counter[nn.Module] = Counter()
        self._reached: Counter[nn.Parameter] = Counter()
        self._fresh = self._passed = True
        self._examples = self.batch_size
        if self.kept is not None:
            self.kept = {}

    @property
    def counted(self) -> list[nn.Parameter]:
        """The parameters that count."""
        return [parameter for parameter, name in self.names.items() if name not in self.left_out]

    def was_changed(self) -> bool:
        """Whether gradients were changed since they were added up."""
        written = {
            -1 if parameter.grad is None else parameter.grad._version - version
            for parameter, version in self._versions.items()
        }
        touched = written not in (set(), {0})
        if self._witnessed is None or self._witness.grad is None:
            return touched
        # GradScaler.unscale_ does not count as a version: one small gradient was kept for comparison.
        now = self._witness.grad.detach()
        same = torch.equal(self._witnessed.nan_to_num(), now.nan_to_num())
        if touched and len(written) == 1 and -1 not in written:
            # All were written alike, as clipping to no norm at all does: by what factor, the one that was kept tells.
            return not (same and bool(now.any())) and bool(now.isfinite().all())
        return touched or not same

    def examples_of(self, inputs: Tensor) -> int | None:
        """How many examples the forward pass has; where the model was not told, what its first layer is given."""
        if self._examples is None and inputs.ndim:
            self._examples = len(inputs)
        return self._examples

    def _called(self, module: nn.Module, _: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if not (self.active and torch.is_grad_enabled()):
            return
        self._calls[module] += 1
        if module is self._model or self._begins_pass():
            self._fresh, self._passed = True, False
            if self.batch_size is None:
                self._examples = _first_length([*args, *kwargs.values()])

    def _begins_pass(self) -> bool:
        """Whether a part of the model that is called is the first: not by the model, nor by a backward pass."""
        if self._model in self._calls or torch._C._current_graph_task_id() != -1:
            return self._examples is None
        return self._passed or self._examples is None

    def _found(self, parameter: nn.Parameter, gradient: Tensor) -> None:
        if not self.active:
            return
        if parameter.grad is not None and not self.micro_batches and self.leftover is None:
            self.leftover = parameter.grad.detach().any()
        if self.kept is not None:
            self._pending[parameter] = gradient.detach().clone()
            return
        with torch.no_grad(), torch.autocast(gradient.device.type, enabled=False):
            self._pending[parameter] = None if self.measure is None else self.measure(parameter, gradient.detach())

    def _added(self, parameter: nn.Parameter) -> None:
        if not self.active or parameter not in self._pending:
            return
        if self._fresh or parameter in self.micro_batches[-1].reached:
            self.micro_batches.append(MicroBatch(self._examples))
            self._fresh = False
        batch, found = self.micro_batches[-1], self._pending.pop(parameter)
        batch.reached.add(parameter)
        self._passed = True
        self._count(parameter)
        if self.kept is not None and found is not None:
            self.kept[parameter] = found
        elif found is not None:
            batch.total = found if batch.total is None else batch.total + found.to(batch.total.device)
        assert parameter.grad is not None
        self._versions[parameter] = parameter.grad._version
        if parameter is self._witness:
            self._witnessed = parameter.grad.detach().clone()

    def _count(self, parameter: nn.Parameter) -> None:
        """More backward passes than calls of the parameter's layers: one forward pass had several losses."""
        self._reached[parameter] += 1
        calls = sum(self._calls[module] for module in self._holders.get(parameter, ()))
        if 0 < calls < self._reached[parameter] and self.problem is None:
            self.problem = (
                f"`{self.names[parameter]}` had {self._reached[parameter]} backward passes and {calls} forward: "
                "several losses of one forward pass are no micro-batches of their own. Add them up, and call "
                "backward() once."
            )


@dataclass(eq=False)
class _Use:
    """A layer's input, hung on its output until all its parameters have their gradients."""

    module: nn.Module
    inputs: Tensor | None
    examples: int | None
    call: Call | None = None
    waiting: set[nn.Parameter] = field(default_factory=set)


class LayerWatch:
    """The gradients of single examples, from the inputs of layers and the gradients of their outputs."""

    def __init__(self, watch: Watch, layers: Iterable[nn.Module], examples: int | None, weights: Weights) -> None:
        self.watch, self.most, self.weights = watch, examples, weights
        self._arrived: dict[nn.Parameter, list[_Use]] = {}
        self._checked: set[nn.Parameter] = set()
        self._layers = {
            layer: [parameter for parameter in layer.parameters(recurse=False) if parameter in watch.names]
            for layer in layers
        }
        handles = [layer.register_forward_hook(Hook(self._called), with_kwargs=True) for layer in self._layers]
        self.close = weakref.finalize(self, _remove, handles)

    def restart(self) -> None:
        """Forgets gradients whose parameters never came."""
        self._arrived = {}

    def _called(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Tensor) -> None:
        # A copy of the model brings its hooks along, and its layers are not ours.
        if not (self.watch.active and torch.is_grad_enabled() and self._layers.get(module) and output.requires_grad):
            return
        inputs = args[0] if args else kwargs["input"]
        examples = self.watch.examples_of(inputs)
        output.register_hook(Hook(self._came, _Use(module, inputs.detach(), examples)))

    def _came(self, use: _Use, gradient: Tensor) -> None:
        """The gradient of an output is there: its parameters come next. Only the last one before them counts."""
        if use.call is not None:
            use.call.gradients = gradient.detach()
        elif use.inputs is not None:
            use.call = Call(use.module, use.inputs, gradient.detach())
            use.call.reason = unusable(use.call, use.examples)
            use.waiting = set(self._layers[use.module])
            for parameter in use.waiting:
                self._arrived.setdefault(parameter, []).append(use)

    def measure(self, parameter: nn.Parameter, gradient: Tensor) -> Tensor | None:
        """(examples,): the squared gradient of each; None for a parameter that is left out."""
        uses, name = self._arrived.pop(parameter, []), self.watch.names[parameter]
        calls = [use.call for use in uses if use.call is not None]
        if name not in self.watch.left_out:
            self._judge(parameter, calls, gradient)
        found = None
        if calls and name not in self.watch.left_out and self.watch.problem is None:
            count = len(calls[0].gradients)
            examples = count if self.most is None else min(count, self.most)
            found = squared_norms(parameter, calls, examples, self.weights(parameter))
        for use in uses:
            use.waiting.discard(parameter)
            if not use.waiting:  # the graph may live on, what hangs on it need not
                use.inputs = use.call = None
        return found

    def _judge(self, parameter: nn.Parameter, calls: list[Call], gradient: Tensor) -> None:
        """Leaves the parameter out where its examples cannot be told; that they add up is tried once."""
        reason = next((call.reason for call in calls if call.reason is not None), None)
        if not calls and parameter in self._checked:
            self.watch.problem = (
                f"`{self.watch.names[parameter]}` got a gradient that no forward pass of its layer explains: a second "
                'backward pass through the same graph cannot be told by examples. Use by="micro_batches".'
            )
            return
        sizes = {len(call.gradients) for call in calls}
        if len(sizes) > 1 and reason is None:
            self.watch.problem = (
                f"One backward pass had forward passes of {' and '.join(map(str, sorted(sizes)))} examples, which "
                "cannot be told by examples: each must have its gradient from one place in every one of them."
            )
            return
        if not calls:
            reason = "used outside its layer"
        elif reason is None and parameter not in self._checked:
            apart = total_gradient(parameter, calls) - gradient
            off, size = (float(torch.linalg.vector_norm(value)) for value in (apart, gradient))
            if math.isfinite(off):  # or it is tried again
                self._checked.add(parameter)
            reason = "used outside its layer as well" if off > _TOLERANCE * size else None
        if reason is not None:
            self.watch.left_out[self.watch.names[parameter]] = reason


def find_problem(watch: Watch, alone: bool) -> str | None:
    """Why what was seen in a step cannot be right, if it cannot; `alone`: no other process changes gradients."""
    if not watch.micro_batches:
        return "There was no backward pass of the model since the last step()."
    if watch.leftover is not None and bool(watch.leftover):
        return (
            "There were gradients already before the first backward pass: call step() once for each step of the "
            "optimizer, after all its backward passes, and set the gradients to zero after it."
        )
    if alone and watch.was_changed():
        return "Gradients were changed after backward(): call step() before they are clipped, unscaled or used."
    if any(batch.examples is None for batch in watch.micro_batches):
        return "The number of examples is not known: the model was given no tensor. Give `batch_size`."
    return watch.problem


def _find_holders(model: nn.Module, names: Mapping[nn.Parameter, str]) -> dict[nn.Parameter, list[nn.Module]]:
    """The layers that each parameter is of, several where it is shared."""
    holders: dict[nn.Parameter, list[nn.Module]] = {}
    for module in _open_modules(model, names):
        for parameter in module.parameters(recurse=False):
            holders.setdefault(parameter, []).append(module)
    return holders


def _open_modules(model: nn.Module, names: Mapping[nn.Parameter, str]) -> list[nn.Module]:
    """The model and its parts with parameters that get gradients; nothing inside a part that is compiled."""
    found, waiting = {model: None}, [model]
    while waiting:
        module = waiting.pop()
        if hasattr(module, "_orig_mod") or getattr(module, "_compiled_call_impl", None) is not None:
            continue
        parts = [part for part in module.children() if part not in found and any(p in names for p in part.parameters())]
        found |= dict.fromkeys(parts)
        waiting += parts
    return list(found)


def _remove(handles: Iterable[RemovableHandle]) -> None:
    for handle in handles:
        handle.remove()


def _first_length(values: Any) -> int | None:
    """The first dimension of the first tensor that has one."""
    for value in values:
        if isinstance(value, Tensor):
            if value.ndim:
                return len(value)
            continue
        inner = value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else ()
        found = _first_length(inner)
        if found is not None:
            return found
    return None
