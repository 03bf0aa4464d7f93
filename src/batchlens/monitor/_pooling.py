"""From what one process saw in a step to the squared gradients of two batch sizes, over all processes.

Small batch k has b_k examples, of which it gives v_k: its squared gradient, or the mean squared contribution of one
example to it. M small batches on R processes make the step, N examples in all, and `.grad` is the sum over the passes
of a process, averaged over processes. To be in units of `.grad`, whatever constant the loss was divided by,

    loss a mean over its examples     a small batch counts M / R times, an example M b_k / R times
    loss a sum over its examples      a small batch counts N / (R b_k) times, an example N / R times

Small batches are averaged evenly in the first case and by examples in the second. The step is then worth
M^2 / sum(1 / b_k) examples in the first case, N in the second.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, distributed, nn
from torch.nn.parallel import DistributedDataParallel

Group = distributed.ProcessGroup


class Pooled(NamedTuple):
    """Of all processes together: `small` is the mean squared gradient of small batches of `small_batch` examples."""

    batches: int
    small: float
    small_batch: float
    large_batch: float
    even: bool
    problems: int
    parts: tuple[float, float]


def group_of(model: nn.Module, given: Group | None) -> Group | None:
    """The processes whose gradients are averaged; None: this one alone."""
    if given is None and isinstance(model, DistributedDataParallel):
        return model.process_group
    if (
        given is None
        and distributed.is_available()
        and distributed.is_initialized()
        and distributed.get_world_size() > 1
    ):
        raise ValueError(
            "`model` must be the DistributedDataParallel model where several processes train together; give "
            "`process_group`, whose processes average their gradients, or a group of one where each trains alone."
        )
    return given


def size_of(group: Group | None) -> int:
    """How many processes there are."""
    return 1 if group is None else max(1, distributed.get_world_size(group))


def pool(
    values: Sequence[float],
    sizes: Sequence[int],
    *,
    by_examples: bool,
    mean: bool,
    group: Group | None,
    device: torch.device,
    problem: bool = False,
    parts: Sequence[float] = (0.0, 0.0),
) -> Pooled:
    """Joins what every process found: v_k and b_k of its small batches, and parts that are averaged as they are."""
    power = 2 * by_examples - (not mean)
    weighted = sum(value * float(size) ** power for value, size in zip(values, sizes, strict=True))
    local = [len(sizes), weighted, sum(1 / size for size in sizes), sum(sizes), float(problem), *parts]
    count, total, inverse, examples, problems, noise, signal = _added_up(local, group, device)
    processes = size_of(group)
    if problems or not count:
        return Pooled(int(count), 0.0, 1.0, 0.0, True, int(problems), (0.0, 0.0))
    large = count**2 / inverse if mean else examples
    return Pooled(
        batches=int(count),
        small=(count if mean else examples) / processes**2 * total,
        small_batch=1.0 if by_examples else large / count,
        large_batch=large,
        even=abs(inverse * examples / count**2 - 1) < 1e-9,
        problems=int(problems),
        parts=(noise / processes, signal / processes),
    )


def _added_up(values: Sequence[float], group: Group | None, device: torch.device) -> list[float]:
    """Each of the values, summed over processes."""
    if size_of(group) == 1:
        return list(values)
    summed: Tensor = torch.tensor(values, dtype=torch.float64, device=device)
    distributed.all_reduce(summed, group=group)
    return [float(value) for value in summed.tolist()]
