"""Gradients at the outputs of a model whose second moment is the Fisher matrix of its loss.

The loss of one example, with outputs z, says how its label is distributed under the model:

    cross_entropy    -log softmax(z)[y]          y ~ softmax(z)           Fisher diag(p) - p p^T
    squared_error    1/2 ||z - y||^2             y ~ N(z, I)              Fisher I

Label smoothing changes what the loss asks for, not what the model predicts: the Fisher stays as it is.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from itertools import product
from types import MappingProxyType

import torch
from torch import Tensor
from torch.nn import functional

FISHERS = ("sampled", "empirical", "exact")


class Uniforms:
    """Uniform numbers in [0, 1), served in order: how a step is sliced does not change who gets which.

    They are drawn in blocks of one size, since torch draws other numbers for 64 at once than for 4 times 16.
    What is left of a block ends with the step. Of several processes with one seed, each takes its turn: example i of
    process r gets what example i * processes + r would get in one process.
    """

    _BLOCK = 4096

    def __init__(self, seed: int) -> None:
        self.generator = torch.Generator().manual_seed(seed)
        self._left = torch.empty(0, dtype=torch.float64)
        self.process, self.processes = 0, 1

    def take(self, examples: int, each: int = 1) -> Tensor:
        """`each` numbers for every example."""
        count = examples * self.processes * each
        missing = max(0, count - len(self._left))
        blocks = [
            torch.rand(self._BLOCK, generator=self.generator, dtype=torch.float64)
            for _ in range(-(-missing // self._BLOCK))
        ]
        served = torch.cat([self._left, *blocks])
        self._left = served[count:]
        return served[:count].reshape(examples, self.processes, each)[:, self.process].flatten()

    def end_step(self) -> None:
        self._left = self._left[:0]


def check_targets(loss: str, outputs: Tensor, targets: Tensor) -> None:
    """Class numbers for cross_entropy, values for squared_error."""
    shape = outputs.shape[:-1] if loss == "cross_entropy" else outputs.shape
    if targets.shape == shape:
        return
    hint = ""
    if outputs.ndim > 2 and targets.shape == outputs.shape[:1] + outputs.shape[2:]:
        hint = " Classes come last: observe outputs.movedim(1, -1)."
    raise ValueError(f"`targets` must have the shape {tuple(shape)}, got {tuple(targets.shape)}.{hint}")


def ignored_examples(targets: Tensor | None, outputs: Tensor, ignore_index: int) -> Tensor | None:
    """Where class numbers say that the loss leaves an example out; None if it leaves out none."""
    if targets is None or targets.is_floating_point() or targets.shape != outputs.shape[:-1]:
        return None
    ignored = targets == ignore_index
    return ignored if bool(ignored.any()) else None


def output_gradients(
    loss: str,
    fisher: str,
    outputs: Tensor,
    targets: Tensor | None,
    uniforms: Uniforms,
    ignored: Tensor | None = None,
) -> Iterator[Tensor]:
    """Gradients of the summed loss with respect to `outputs`; one backward pass is due for each.

    "exact" yields one for every output of an example. Positions of one example may influence each other,
    so that each position has its own; the examples (the first dimension) share a pass.
    """
    values = outputs.detach()
    if values.dtype in (torch.float16, torch.bfloat16):
        values = values.float()
    if ignored is not None and targets is not None:
        targets = targets.masked_fill(ignored, 0)
    for gradient in _gradients(loss, fisher, values, targets, uniforms):
        if ignored is not None:
            gradient.masked_fill_(ignored.unsqueeze(-1), 0)
        yield gradient.to(outputs.dtype)


def _gradients(loss: str, fisher: str, values: Tensor, targets: Tensor | None, uniforms: Uniforms) -> Iterator[Tensor]:
    if fisher == "sampled":
        yield LOSSES[loss][0](values, uniforms)
    elif fisher == "empirical":
        assert targets is not None
        yield LOSSES[loss][1](values, targets)
    else:
        for place in product(*(range(size) for size in values.shape[1:-1])):
            here: tuple[slice | int, ...] = (slice(None), *place)
            for column in LOSSES[loss][2](values[here]):
                gradient = torch.zeros_like(values)
                gradient[here] = column
                yield gradient


def _sample_class(logits: Tensor, uniforms: Uniforms) -> Tensor:
    probabilities = logits.softmax(-1)
    cumulative = probabilities.cumsum(-1)
    uniform = uniforms.take(len(logits), math.prod(logits.shape[1:-1])).to(logits.dtype).to(logits.device)
    thresholds = uniform.reshape(logits.shape[:-1]).unsqueeze(-1) * cumulative[..., -1:]
    label = torch.searchsorted(cumulative, thresholds, right=True).clamp_(max=logits.shape[-1] - 1)
    return probabilities.scatter_add_(-1, label, -torch.ones_like(thresholds))


def _sample_normal(outputs: Tensor, uniforms: Uniforms) -> Tensor:
    uniform = uniforms.take(len(outputs), math.prod(outputs.shape[1:])).to(outputs.dtype)
    smallest = torch.finfo(outputs.dtype).eps / 2
    normal: Tensor = torch.special.ndtri(uniform.clamp_(smallest, 1 - smallest))
    return normal.to(outputs.device).reshape(outputs.shape)


def _given_class(logits: Tensor, targets: Tensor) -> Tensor:
    return logits.softmax(-1) - functional.one_hot(targets, logits.shape[-1])


def _given_values(outputs: Tensor, targets: Tensor) -> Tensor:
    return outputs - targets


def _class_columns(logits: Tensor) -> Iterator[Tensor]:
    """sum_k p_k (e_k - p)(e_k - p)^T = diag(p) - p p^T."""
    probabilities = logits.softmax(-1)
    for k in range(logits.shape[-1]):
        column = -probabilities
        column[..., k] += 1
        yield column * probabilities[..., k, None].sqrt()


def _unit_columns(outputs: Tensor) -> Iterator[Tensor]:
    for k in range(outputs.shape[-1]):
        column = torch.zeros_like(outputs)
        column[..., k] = 1
        yield column


_Sample = Callable[[Tensor, Uniforms], Tensor]
_Given = Callable[[Tensor, Tensor], Tensor]
_Columns = Callable[[Tensor], Iterator[Tensor]]
# loss -> (gradient at a drawn label, gradient at a given label, columns of a square root of the Fisher)
LOSSES: Mapping[str, tuple[_Sample, _Given, _Columns]] = MappingProxyType(
    {
        "cross_entropy": (_sample_class, _given_class, _class_columns),
        "squared_error": (_sample_normal, _given_values, _unit_columns),
    }
)
