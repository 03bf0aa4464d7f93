"""Which examples a step sees: a function of the seed and the step alone, so that a run can be picked up anywhere."""

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from batchlens.training._batch_plan import BatchPlan
from batchlens.training.data._crops import apply_crops, draw_crops
from batchlens.training.data.loading import Dataset

# What the random numbers of a run are for; each use has a stream of its own.
MODEL, ORDER, CROPS, OTHER, LABELS = range(5)


def derive_seed(seed: int, use: int, number: int = 0) -> int:
    """A seed for one use of a run's random numbers, such as the order of its third epoch."""
    state = np.random.SeedSequence((seed, use, number)).generate_state(1, np.uint64)
    return int(state[0] >> np.uint64(2))


def _generator(seed: int, use: int, number: int) -> torch.Generator:
    return torch.Generator().manual_seed(derive_seed(seed, use, number))


class Order:
    """Examples in the order in which they are seen: a new permutation every epoch, one after the other."""

    def __init__(self, examples: int, seed: int) -> None:
        self.examples, self.seed = examples, seed
        self._epochs: dict[int, Tensor] = {}

    def between(self, first: int, last: int) -> Tensor:
        """The examples at positions first, first + 1, ..., last - 1 since the run began."""
        epochs = range(first // self.examples, (last - 1) // self.examples + 1)
        self._epochs = {
            epoch: self._epochs[epoch] if epoch in self._epochs else self._permutation(epoch) for epoch in epochs
        }
        parts = [
            order[max(first - epoch * self.examples, 0) : last - epoch * self.examples]
            for epoch, order in self._epochs.items()
        ]
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def _permutation(self, epoch: int) -> Tensor:
        return torch.randperm(self.examples, generator=_generator(self.seed, ORDER, epoch))


class Preparation:
    """Turns stored examples into what a model takes: bytes into normalised images, tokens into indices."""

    def __init__(self, data: Dataset, device: torch.device) -> None:
        self.device = device
        mean, std = torch.tensor(data.mean), torch.tensor(data.std)
        self.scale, self.shift = ((part.view(-1, 1, 1)).to(device) for part in (1 / (255 * std), -mean / std))

    def inputs(self, stored: Tensor) -> Tensor:
        """Inputs as the model takes them."""
        if stored.dtype == torch.uint8 and stored.dim() == 4:
            images = stored.to(self.device, torch.float32, memory_format=torch.channels_last)
            return images.mul_(self.scale).add_(self.shift)
        return self.targets(stored)

    def targets(self, stored: Tensor) -> Tensor:
        """Targets as the loss takes them."""
        return stored.to(self.device, stored.dtype if stored.is_floating_point() else torch.int64)


class Batches:
    """Batches of a training set, in slices of at most `micro_batch` examples."""

    def __init__(
        self, data: Dataset, plan: BatchPlan, micro_batch: int, seed: int, augment: bool, device: torch.device
    ) -> None:
        self.plan, self.micro_batch, self.seed, self.augment = plan, micro_batch, seed, augment
        self.order = Order(len(data.train), seed)
        self.stored_inputs, self.stored_targets = data.train.inputs.to(device), data.train.targets.to(device)
        self.prepare = Preparation(data, device)

    def slices(self, step: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Inputs and targets of a step's batch; random crops belong to the examples, not to the slices."""
        chosen = self.order.between(self.plan.examples(step), self.plan.examples(step + 1))
        crops = draw_crops(len(chosen), _generator(self.seed, CROPS, step)) if self.augment else None
        for first in range(0, len(chosen), self.micro_batch):
            part = slice(first, first + self.micro_batch)
            examples = chosen[part].to(self.stored_inputs.device)
            inputs = self.stored_inputs[examples]
            if crops is not None:
                rows, columns, flips = (draw[part] for draw in crops)
                inputs = apply_crops(inputs, rows, columns, flips)
            yield self.prepare.inputs(inputs), self.prepare.targets(self.stored_targets[examples])
