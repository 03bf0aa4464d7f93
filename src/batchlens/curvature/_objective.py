"""The mean loss of a model on a data set, taken in chunks, as a function of one vector of its trainable parameters."""

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import cache, cached_property

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.func import functional_call
from torch.nn.attention import SDPBackend, sdpa_kernel

from batchlens.curvature._lanczos import random_vector
from batchlens.errors import BatchlensError

Losses = Callable[[Tensor, Tensor], Tensor]
# Examples on which dual numbers are held against gradients.
_CHECKED = 4


class Objective:
    """A model, the examples it is measured on, and the loss of each of them."""

    def __init__(self, model: nn.Module, inputs: Tensor, targets: Tensor, losses: Losses, chunk_size: int) -> None:
        self.model, self.inputs, self.targets, self.losses = model, inputs, targets, losses
        self.chunk_size, self.examples = chunk_size, len(inputs)
        named = {name: weight for name, weight in model.named_parameters() if weight.requires_grad}
        self.names, self.parameters = list(named), list(named.values())
        self.size = sum(weight.numel() for weight in self.parameters)
        _prepare_dual_numbers()

    def chunks(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Inputs and targets, some examples at a time."""
        return zip(self.inputs.split(self.chunk_size), self.targets.split(self.chunk_size), strict=True)

    def half(self, first: bool) -> "Objective":
        """The same on every other example."""
        part = slice(0 if first else 1, None, 2)
        return Objective(self.model, self.inputs[part], self.targets[part], self.losses, self.chunk_size)

    def new_vector(self) -> Tensor:
        """Zeros, one for each parameter."""
        return self.parameters[0].new_zeros(self.size)

    def split(self, vector: Tensor) -> list[Tensor]:
        """A vector as one tensor for each parameter tensor."""
        parts = vector.split([weight.numel() for weight in self.parameters])
        return [part.view(weight.shape) for part, weight in zip(parts, self.parameters, strict=True)]

    def plain_kernels(self) -> AbstractContextManager[None]:
        """Inside, the model has second derivatives and dual numbers."""
        return _plain_kernels(self.model)

    def push(self, inputs: Tensor, direction: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        """The outputs, and J v: how they change along `direction`."""
        push = self._push_dual_numbers if self._has_dual_numbers else self._push_by_gradients
        return push(inputs, direction)

    @cached_property
    def _has_dual_numbers(self) -> bool:
        """Whether dual numbers say what gradients say: v^T J^T J v is |J v|^2.

        Not where an operation has none, and not where a part of the model is under no_grad, which they do not heed.
        """
        inputs = self.inputs[:_CHECKED]
        vector = random_vector(self.new_vector(), torch.Generator().manual_seed(0))
        try:
            _, tangent = self._push_dual_numbers(inputs, self.split(vector))
        except NotImplementedError:
            return False
        with torch.enable_grad():
            outputs = self.model(inputs)
        pulled = self.new_vector()
        self.add_gradients(pulled, outputs, tangent)
        square = float(tangent.double().square().sum())
        return not abs(float(pulled.double() @ vector.double()) - square) > 1e-3 * square

    def _push_dual_numbers(self, inputs: Tensor, direction: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        with torch.no_grad(), self.plain_kernels(), forward_ad.dual_level():
            pairs = zip(self.names, self.parameters, direction, strict=True)
            duals = {name: forward_ad.make_dual(weight.detach(), along) for name, weight, along in pairs}
            primal, tangent = forward_ad.unpack_dual(functional_call(self.model, duals, (inputs,)))
            return primal, torch.zeros_like(primal) if tangent is None else tangent

    def _push_by_gradients(self, inputs: Tensor, direction: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        """The same in more time: v^T J^T u is linear in u, and its gradient is J v."""
        with torch.enable_grad(), self.plain_kernels():
            outputs = self.model(inputs)
            weights = torch.zeros_like(outputs, requires_grad=True)
            try:
                (tangent,) = torch.autograd.grad(self.slope(outputs, weights, direction), weights)
            except NotImplementedError as error:
                reason = str(error).partition("\n")[0]
                raise BatchlensError(f"the model can be differentiated neither forward nor twice: {reason}") from None
        return outputs.detach(), tangent

    def slope(self, outputs: Tensor, weights: Tensor | None, direction: Sequence[Tensor]) -> Tensor:
        """v^T J^T `weights`, to be differentiated further; a loss takes no weights."""
        gradients = torch.autograd.grad(outputs, self.parameters, weights, create_graph=True, materialize_grads=True)
        pairs = zip(gradients, direction, strict=True)
        return torch.stack([(gradient * along).sum() for gradient, along in pairs]).sum()

    def add_gradients(self, total: Tensor, outputs: Tensor, weights: Tensor) -> None:
        """Adds J^T `weights` to `total`; the graph of `outputs` is used up."""
        gradients = torch.autograd.grad(outputs, self.parameters, weights, materialize_grads=True)
        total += torch.cat([gradient.flatten() for gradient in gradients])


@cache
def _prepare_dual_numbers() -> None:
    """The first dual number makes torch compile some derivatives, in a way that it calls deprecated itself."""
    with warnings.catch_warnings(), forward_ad.dual_level():
        warnings.simplefilter("ignore", DeprecationWarning)
        forward_ad.make_dual(torch.zeros(1), torch.zeros(1))


@contextmanager
def _plain_kernels(model: nn.Module) -> Iterator[None]:
    """Attention and LSTMs by plain operations: fused kernels have first derivatives at most, and no dual numbers."""
    fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with ExitStack() as stack:
            stack.enter_context(sdpa_kernel(SDPBackend.MATH))
            if any(isinstance(module, nn.LSTM) for module in model.modules()):
                stack.enter_context(warnings.catch_warnings())  # of what torch sets on the way
                warnings.simplefilter("ignore")
                stack.enter_context(torch.backends.mkldnn.flags(enabled=False))
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)


def output_gradient(losses: Losses, outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """The loss of each example, and their derivatives by the outputs."""
    at = outputs.detach().requires_grad_()
    with torch.enable_grad():
        each = losses(at, targets)
        (gradient,) = torch.autograd.grad(each.sum(), at)
    return each.detach(), gradient


def output_curvature(losses: Losses, outputs: Tensor, targets: Tensor, tangent: Tensor) -> Tensor:
    """(d^2 l / dz^2) `tangent`: the only second derivative that a Gauss-Newton matrix has."""
    at = outputs.detach().requires_grad_()
    with torch.enable_grad():
        (gradient,) = torch.autograd.grad(losses(at, targets).sum(), at, create_graph=True)
        if not gradient.requires_grad:  # a loss that is linear in the outputs
            return torch.zeros_like(tangent)
        (curved,) = torch.autograd.grad(gradient, at, tangent)
    return curved


def per_example(values: Tensor) -> Tensor:
    """Sums over all but the first dimension."""
    return values.reshape(len(values), -1).sum(1)
