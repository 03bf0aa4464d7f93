"""The paper's workloads: data, model, loss, metric, targets, schedule and search spaces, each declared in one place."""

import hashlib
import importlib.util
import math
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from torch import nn

from batchlens.checks import require_choice
from batchlens.errors import BatchlensError
from batchlens.training.data.loading import Dataset, load
from batchlens.training.metrics import (
    ACCURACY,
    CROSS_ENTROPY,
    Metric,
    Scores,
    cross_entropies,
    smoothed_cross_entropies,
)
from batchlens.training.models import MLP, VGG11, ResNet, SimpleCNN, Transformer
from batchlens.training.models._normalization import GHOST_SIZE, hold_channels_at_norm_one
from batchlens.training.spaces import Range, Space, search_spaces

SIZES = ("laptop", "paper")
Targets = Mapping[str, tuple[float, float]]


def powers_of_two(low: int, high: int) -> tuple[int, ...]:
    """Every doubling from `low` to `high`."""
    return tuple(low * 2**k for k in range(int(math.log2(high / low)) + 1))


@dataclass(frozen=True)
class Workload:
    """What is trained, and when it counts as trained.

    Arguments:
        data: from the data folder (None: the usual one) to the data set.
        model: makes a fresh model; seeded by the run.
        target: of the metric on the validation set; `train_target` the one on a fixed part of the training set.
        loss: of each example; the training loss is its mean.
        likelihood: "cross_entropy" or "squared_error": the distribution behind the loss, for curvature.
        metric: of each example.
        schedule: the shape of the learning rate, such as "constant" or "linear_decay".
        augment: whether training images are flipped and cropped at random.
        evaluation_examples: on how many examples the metric is measured, at most.
        constraint: what brings the weights back after an update.
        micro_batch: examples that go through the model at a time, at most; it bounds memory, not the result.
        slice_multiple: what micro-batches must be a multiple of.
        max_examples, min_steps: a run's step budget uses up so many examples, but is at least so many steps.
        defaults: of an optimizer's settings, where they differ from the optimizer's own.
        batch_sizes, spaces, trials: what a sweep tries unless told otherwise. A range of `decay_steps` is in parts of
            the step budget.
        source: a digest of the file that it comes from, set when it is read from one.
    """

    name: str
    data: Callable[[Path | None], Dataset]
    model: Callable[[], nn.Module]
    target: float
    train_target: float
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
    spaces: Mapping[str, Space] = field(default_factory=dict)
    trials: int = 100
    defaults: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    size: str = "laptop"
    source: str = ""

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


Sizes = dict[str, Workload]

# The factors of paper-size layers are inverted rarely: one of 3,137 rows takes as long as some steps.
_RARE_INVERSES = {name: {"inverse_every": 100} for name in ("kfac", "kfac_no_momentum")}
_DECAY = {"final_fraction": Range(1e-3, 0.1), "decay_steps": Range(0.02, 1.0)}


def _laptop(
    paper: Workload,
    narrow: Callable[[], nn.Module],
    targets: tuple[float, float],
    evaluation_examples: int,
    largest_batch: int,
) -> Workload:
    """The same on images, narrower and with easier targets."""
    return replace(
        paper,
        model=narrow,
        target=targets[0],
        train_target=targets[1],
        evaluation_examples=evaluation_examples,
        defaults={},
        max_examples=500_000,
        min_steps=500,
        batch_sizes=powers_of_two(16, largest_batch),
        size="laptop",
    )


def _mnist_like(name: str, data: str, targets: Targets, evaluation_examples: int) -> Sizes:
    paper = Workload(
        name=name,
        data=partial(load, data),
        model=SimpleCNN,
        target=targets["paper"][0],
        train_target=targets["paper"][1],
        defaults=_RARE_INVERSES,
        max_examples=5_500_000,
        min_steps=5_000,
        batch_sizes=powers_of_two(16, 65_536),
        spaces=search_spaces(Range(1e-3, 1.0), Range(1e-4, 1.0), Range(1e-5, 1e-1), Range(1e-3, 10.0)),
        size="paper",
    )
    narrow = partial(SimpleCNN, channels=(8, 16), hidden=128)
    return {"paper": paper, "laptop": _laptop(paper, narrow, targets["laptop"], evaluation_examples, 4096)}


def _cifar10(
    name: str,
    model: Callable[[], nn.Module],
    narrow: Callable[[], nn.Module],
    targets: Targets,
    evaluation_examples: int = 400,
) -> Sizes:
    paper = Workload(
        name=name,
        data=partial(load, "cifar10"),
        model=model,
        target=targets["paper"][0],
        train_target=targets["paper"][1],
        augment=True,
        micro_batch=512,
        defaults=_RARE_INVERSES,
        max_examples=22_500_000,
        min_steps=10_000,
        batch_sizes=powers_of_two(16, 65_536),
        spaces=search_spaces(Range(1e-3, 1.0), Range(1e-4, 1.0), Range(1e-5, 1e-1), Range(1e-3, 10.0)),
        size="paper",
    )
    return {"paper": paper, "laptop": _laptop(paper, narrow, targets["laptop"], evaluation_examples, 2048)}


def _normalized(sizes: Sizes) -> Sizes:
    """With label smoothing, convolution channels of norm 1, ghosts and a learning rate that decays."""
    spaces = search_spaces(Range(1e-2, 10.0), Range(1e-3, 10.0), Range(1e-5, 1e-1), Range(1e-3, 10.0), _DECAY)
    return {
        size: replace(
            workload,
            loss=smoothed_cross_entropies(0.1),
            schedule="linear_decay",
            constraint=hold_channels_at_norm_one,
            slice_multiple=GHOST_SIZE,
            spaces=spaces,
            trials=200,
        )
        for size, workload in sizes.items()
    }


def _transformer_spaces() -> dict[str, Space]:
    """As in the paper, K-FAC's momentum and the decay of its factors are not searched."""
    spaces = search_spaces(Range(1e-2, 10.0), Range(1e-3, 10.0), Range(1e-5, 1e-1), Range(1e-3, 10.0))
    fixed = ("momentum", "factor_decay")
    return {
        name: {key: found for key, found in space.items() if key not in fixed} if name.startswith("kfac") else space
        for name, space in spaces.items()
    }


def _transformer() -> Sizes:
    paper = Workload(
        name="transformer_lm1b",
        data=partial(load, "lm1b"),
        model=Transformer,
        target=3.9,
        train_target=3.9,
        metric=CROSS_ENTROPY,
        micro_batch=32,
        defaults={name: {**_RARE_INVERSES[name], "factor_decay": 0.99} for name in _RARE_INVERSES},
        max_examples=60_000_000,
        min_steps=10_000,
        batch_sizes=powers_of_two(16, 16_384),
        spaces=_transformer_spaces(),
        size="paper",
    )
    laptop = replace(
        paper,
        data=partial(load, "lm1b", vocabulary=1024, length=32),
        model=partial(Transformer, vocabulary=1024, width=64, heads=4, hidden=256, length=32),
        target=5.0,
        train_target=5.0,
        evaluation_examples=96,
        micro_batch=256,
        defaults={name: {"factor_decay": 0.99} for name in _RARE_INVERSES},
        max_examples=200_000,
        min_steps=500,
        batch_sizes=powers_of_two(16, 1024),
        size="laptop",
    )
    return {"paper": paper, "laptop": laptop}


def _digits() -> Sizes:
    laptop = Workload(
        name="digits",
        data=partial(load, "digits"),
        model=MLP,
        target=0.97,
        train_target=0.99,
        max_examples=100_000,
        min_steps=300,
        batch_sizes=powers_of_two(8, 1024),
        spaces=search_spaces(Range(1e-3, 3.0), Range(1e-4, 3.0), Range(1e-5, 3e-1), Range(1e-3, 10.0)),
    )
    return {"laptop": laptop, "paper": replace(laptop, size="paper")}


_WORKLOADS: dict[str, Sizes] = {
    sizes["paper"].name: sizes
    for sizes in (
        _mnist_like("simple_cnn_mnist", "mnist", {"paper": (0.99, 0.995), "laptop": (0.98, 0.98)}, 2_000),
        _mnist_like("simple_cnn_fashion_mnist", "fashion_mnist", {"paper": (0.90, 0.95), "laptop": (0.87, 0.87)}, 500),
        _cifar10("resnet8_cifar10", ResNet, partial(ResNet, width=8), {"paper": (0.70, 0.70), "laptop": (0.45, 0.45)}),
        _normalized(
            _cifar10(
                "resnet32_cifar10",
                partial(ResNet, blocks=5, normalized=True),
                partial(ResNet, blocks=5, normalized=True, width=8),
                {"paper": (0.90, 0.95), "laptop": (0.40, 0.40)},
                evaluation_examples=200,
            )
        ),
        _normalized(
            _cifar10("vgg11_cifar10", VGG11, partial(VGG11, width=8), {"paper": (0.88, 0.95), "laptop": (0.55, 0.55)})
        ),
        _transformer(),
        _digits(),
    )
}
WORKLOADS = tuple(_WORKLOADS)


def find_workload(name: str, size: str = "laptop") -> Workload:
    """The workload of that name, or `workload` of `my_file.py:workload`.

    >>> find_workload("digits").target
    0.97
    """
    size = require_choice("size", size, SIZES)
    file, colon, attribute = name.rpartition(":")
    if colon:
        return _workload_in(Path(file), attribute, size)
    if name not in _WORKLOADS:
        known = ", ".join(WORKLOADS)
        raise ValueError(f"`workload` must be one of {known}, or FILE.py:NAME for one of your own, got {name!r}.")
    return _WORKLOADS[name][size]


def _workload_in(path: Path, attribute: str, size: str) -> Workload:
    """The workload that a Python file calls `attribute`: a `Workload`, or a dictionary of one a size."""
    if not path.is_file():
        raise BatchlensError(f"{path} is not a file: a workload of your own is named FILE.py:NAME.")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise BatchlensError(f"{path} is not a Python file: a workload of your own is named FILE.py:NAME.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module  # where dataclasses and pickle look for it
    sys.path.insert(0, str(path.parent.resolve()))  # where a script finds its neighbours
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise BatchlensError(f"{path} does not run: {type(error).__name__}: {error}") from error
    finally:
        sys.path.pop(0)
    found = getattr(module, attribute, None)
    if isinstance(found, Mapping):
        if size not in found:
            raise BatchlensError(f"{path} has {attribute} in size {', '.join(map(str, found))}, not {size}.")
        found = found[size]
    if not isinstance(found, Workload):
        what = "has nothing called" if found is None else f"has a {type(found).__name__}, not a Workload, called"
        raise BatchlensError(f"{path} {what} {attribute}.")
    if found.size != size:
        raise BatchlensError(f"{path} has {attribute} in size {found.size} only, not {size}.")
    return replace(found, source=hashlib.sha256(path.read_bytes()).hexdigest())
