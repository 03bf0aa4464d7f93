"""Which examples an input factor is made of.

A convolution has many rows an example: thousands of images say no more of a factor with 26 columns than some. So the
first examples of a step all count, and of the others every 17th, in layers where the first alone have rows to spare.
Which examples count depends on their place in the step only, not on how the step is sliced into micro-batches or dealt
out to processes.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from batchlens.kfac._graph import Call

_EVERY = 17  # odd, so that two, four or eight processes have equal shares
_ROWS_TO_COLUMNS = 3


def kept_examples(position: int, count: int, first: int | None, process: int = 0, processes: int = 1) -> Tensor | None:
    """Those of `count` examples from `position` in the step on that count; None: all.

    >>> kept_examples(2, 20, first=4)
    tensor([ 0,  1, 15])
    """
    places = (position + torch.arange(count)) * processes + process
    if first is None or count == 0 or int(places[-1]) < first:
        return None
    return ((places < first) | (places % _EVERY == 0)).nonzero().squeeze(1)


def thin(calls: Sequence[Call], batch: int, kept: Tensor | None, first: int | None) -> tuple[list[Tensor], float]:
    """The inputs of the calls of one layer that count, and which part of the examples they are of."""
    inputs = [call.inputs for call in calls]
    if kept is None or first is None or not all(_has_rows_to_spare(call, batch, first) for call in calls):
        return inputs, 1.0
    return [values[kept.to(values.device)] for values in inputs], len(kept) / batch


def _has_rows_to_spare(call: Call, batch: int, first: int) -> bool:
    if isinstance(call.module, nn.Embedding) or len(call.inputs) != batch:
        return False
    columns = call.block.weight[0].numel()
    return first * call.rows >= _ROWS_TO_COLUMNS * columns * batch
