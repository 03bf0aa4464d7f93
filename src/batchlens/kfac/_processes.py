"""Several processes that train one model, each on its part of the batch, as under DistributedDataParallel."""

from collections.abc import Iterable

import torch
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel

from batchlens.kfac._layers import Block
from batchlens.kfac._moments import Sums

Group = distributed.ProcessGroup


def group_of(model: nn.Module, given: Group | None) -> Group | None:
    """The processes to pool with; None: all that there are."""
    return model.process_group if given is None and isinstance(model, DistributedDataParallel) else given


def place(group: Group | None) -> tuple[int, int]:
    """The number of this process and how many there are."""
    if not (distributed.is_available() and distributed.is_initialized()):
        return 0, 1
    return max(0, distributed.get_rank(group)), max(1, distributed.get_world_size(group))


def pool(sums: Sums, blocks: Iterable[Block], group: Group | None) -> None:
    """Adds up the sums of all processes, so that each has those of the whole batch."""
    if place(group)[1] == 1:
        return
    moments = []
    for block in blocks:
        pair = sums.of(block.weight)
        for moment, shape in zip((pair.inputs, pair.outputs), block.factor_shapes, strict=True):
            if moment.total is None:  # every process takes part in every sum
                moment.total = block.weight.new_zeros(shape)
            moments.append(moment)
            distributed.all_reduce(moment.total, group=group)
    if moments:
        assert moments[0].total is not None
        counts = torch.tensor([float(moment.count) for moment in moments], device=moments[0].total.device)
        distributed.all_reduce(counts, group=group)
        for moment, count in zip(moments, counts.tolist(), strict=True):
            moment.count = count
