"""What a workload is."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from torch import nn

from batchlens._checks import require_choice, require_instance, require_sequence, require_whole
from batchlens._shapes import SHAPES
from batchlens.errors import BatchlensError
from batchlens.training.data.loading import Dataset
from batchlens.training.metrics import ACCURACY, Metric, Scores, cross_entropies
from batchlens.training.spaces import Space, search_spaces

SIZES = ("laptop", "paper")


def powers_of_two(low: int, high: int) -> tuple[int, ...]:
    """Every doubling from `low` to `high`."""
    return tuple(low * 2**k for k in range(int(math.log2(high / low)) + 1))


@dataclass(frozen=True, repr=False)
class Workload:
    """What is trained, and when it counts as trained.

    Arguments:
        name: of the workload.
        data: a function from the data folder (None: the usual one) to a `Dataset`.
        model: makes a fresh model, which returns a tensor of outputs; seeded by the run.
        target: of the metric on the validation set.
        train_target: of the metric on a fixed part of the training set.
        train_loss_target: of the loss there, without label smoothing; None where there is no usual one.
        loss: of each example; the training loss is its mean.
        likelihood: "cross_entropy" or "squared_error": the distribution behind the loss, for curvature.
        metric: of each example.
        schedule: the shape of the learning rate, such as "constant" or "linear_decay".
        augment: whether training images are flipped and cropped at random.
        evaluation_examples: on how many examples the metric is measured, at most.
        constraint: what brings the weights back after an update.
        micro_batch: examples that go through the model at a time, at most; it bounds memory, not the result.
        slice_multiple: what micro-batches must be a multiple of.
        max_examples: how many examples a run's step budget uses up,
        min_steps: but at least this many steps.
        defaults: of an optimizer's settings, where they differ from the optimizer's own.
        batch_sizes: which ones a sweep tries unless told otherwise.
        spaces: where it searches settings, by optimizer. A range of `decay_steps` is in parts of the step budget.
        trials: how many it makes of each optimizer and batch size.
        size: "laptop" or "paper".
        source: a digest of the file that it comes from, set when it is read from one.

    >>> import batchlens as bl
    >>> bl.find_workload("digits").max_steps(batch_size=64)
    1563
    """

    name: str
    data: Callable[[Path | None], Dataset]
    model: Callable[[], nn.Module]
    target: float
    train_target: float
    train_loss_target: float | None = None
    loss: Scores = cross_entropies
    likelihood: str = "cross_entropy"
    metric: Metric = ACCURACY
    schedule: str = "constant"
    augment: bool = False
    evaluation_examples: int = 5_000
    constraint: Callable[[nn.Module], None] | None = None
    micro_batch: int = 1_024
    slice_multiple: int = 1
    max_examples: int = 1_000_000
    min_steps: int = 1_000
    batch_sizes: tuple[int, ...] = powers_of_two(16, 4096)
    spaces: Mapping[str, Space] = field(default_factory=search_spaces)
    trials: int = 100
    defaults: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    size: str = "laptop"
    source: str = ""

    def __repr__(self) -> str:
        return f"<Workload: {self.name} ({self.size}), {self.metric.name} of {self.target:g}>"

    def __post_init__(self) -> None:
        if isinstance(self.model, nn.Module):
            raise TypeError(
                f"`model` of a workload must be a function that makes a model, got a {type(self.model).__name__}. "
                "Write lambda: ... around it, so that every run starts anew."
            )
        for name in ("data", "model", "loss"):
            if not callable(getattr(self, name)):
                raise TypeError(
                    f"`{name}` of a workload must be a function, got a {type(getattr(self, name)).__name__}."
                )
        require_instance("name", self.name, str)
        require_instance("metric", self.metric, Metric)
        for size in require_sequence("batch_sizes", self.batch_sizes):
            require_whole("batch_sizes", size, 1)
        require_choice("likelihood", self.likelihood, ("cross_entropy", "squared_error"))
        require_choice("schedule", self.schedule, list(SHAPES))
        require_choice("size", self.size, SIZES)
        for name in ("target", "train_target"):
            self.metric.require_target(name, getattr(self, name))
        for name in ("evaluation_examples", "micro_batch", "slice_multiple", "max_examples", "min_steps", "trials"):
            require_whole(name, getattr(self, name), 1)

    def make_model(self) -> nn.Module:
        """A fresh model, if that is what `model` makes."""
        try:
            model: object = self.model()
        except Exception as error:
            raise BatchlensError(f"the model of {self.name} cannot be made: {type(error).__name__}: {error}") from error
        if not isinstance(model, nn.Module):
            raise TypeError(f"`model` of {self.name} must return a Module, got {model!r}.")
        return model

    def max_steps(self, batch_size: int) -> int:
        """The step budget of a run."""
        return max(math.ceil(self.max_examples / batch_size), self.min_steps)

    def space(self, optimizer: str, max_steps: int) -> Space:
        """Where the settings of an optimizer are searched, for runs of that step budget."""
        space = dict(self.spaces[require_choice("optimizer", optimizer, list(self.spaces))])
        if "decay_steps" in space:
            parts = space["decay_steps"]
            space["decay_steps"] = replace(parts, low=parts.low * max_steps, high=parts.high * max_steps)
        return space
