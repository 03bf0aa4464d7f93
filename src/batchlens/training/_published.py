"""The paper's workloads, and one small enough for a first try, each in two sizes."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

from torch import nn

from batchlens.training._workload import Workload, powers_of_two
from batchlens.training.data.loading import load
from batchlens.training.metrics import CROSS_ENTROPY, smoothed_cross_entropies
from batchlens.training.models import MLP, VGG11, ResNet, SimpleCNN, Transformer
from batchlens.training.models._normalization import GHOST_SIZE, hold_channels_at_norm_one
from batchlens.training.spaces import Range, Space, search_spaces

# By size: on the validation set, on the training set, and of the training loss.
Targets = Mapping[str, tuple[float, float, float]]
Sizes = dict[str, Workload]

# The factors of paper-size layers are inverted rarely: one of 3,137 rows takes as long as some steps. In full, as steps
# are what is counted: of low rank they cost less time and a fifth more steps.
_RARE_INVERSES = {name: {"inverse_every": 100, "rank": 0} for name in ("kfac", "kfac_no_momentum")}
_DECAY = {"final_fraction": Range(1e-3, 0.1), "decay_steps": Range(0.02, 1.0)}


def _laptop(
    paper: Workload,
    narrow: Callable[[], nn.Module],
    targets: tuple[float, float, float],
    largest_batch: int,
) -> Workload:
    """The same on images, narrower and with easier targets; the budget is five tuned runs and more."""
    return replace(
        paper,
        model=narrow,
        target=targets[0],
        train_target=targets[1],
        train_loss_target=targets[2],
        defaults={},
        max_examples=600_000,
        min_steps=1_000,
        batch_sizes=powers_of_two(16, largest_batch),
        size="laptop",
    )


def _mnist_like(name: str, data: str, targets: Targets) -> Sizes:
    paper = Workload(
        name=name,
        data=partial(load, data),
        model=SimpleCNN,
        target=targets["paper"][0],
        train_target=targets["paper"][1],
        train_loss_target=targets["paper"][2],
        defaults=_RARE_INVERSES,
        max_examples=5_500_000,
        min_steps=5_000,
        batch_sizes=powers_of_two(16, 65_536),
        spaces=search_spaces(Range(1e-3, 1.0), Range(1e-4, 1.0), Range(1e-5, 1e-1), Range(1e-2, 10.0)),
        size="paper",
    )
    narrow = partial(SimpleCNN, channels=(8, 16), hidden=128)
    return {"paper": paper, "laptop": _laptop(paper, narrow, targets["laptop"], 4096)}


def _cifar10(
    name: str,
    model: Callable[[], nn.Module],
    narrow: Callable[[], nn.Module],
    targets: Targets,
) -> Sizes:
    paper = Workload(
        name=name,
        data=partial(load, "cifar10"),
        model=model,
        target=targets["paper"][0],
        train_target=targets["paper"][1],
        train_loss_target=targets["paper"][2],
        augment=True,
        micro_batch=512,
        defaults=_RARE_INVERSES,
        max_examples=22_500_000,
        min_steps=10_000,
        batch_sizes=powers_of_two(16, 65_536),
        spaces=search_spaces(Range(1e-3, 1.0), Range(1e-4, 1.0), Range(1e-5, 1e-1), Range(1e-3, 10.0)),
        size="paper",
    )
    return {"paper": paper, "laptop": _laptop(paper, narrow, targets["laptop"], 2048)}


def _normalized(sizes: Sizes) -> Sizes:
    """With label smoothing, convolution channels of norm 1, ghosts and a learning rate that decays.

    Batches are whole ghosts: in a smaller batch the ghost would be smaller too, and the training objective another.
    """
    spaces = search_spaces(Range(1e-2, 10.0), Range(1e-3, 10.0), Range(1e-5, 1e-1), Range(1e-3, 10.0), _DECAY)
    return {
        size: replace(
            workload,
            loss=smoothed_cross_entropies(0.1),
            schedule="linear_decay",
            constraint=hold_channels_at_norm_one,
            slice_multiple=GHOST_SIZE,
            batch_sizes=tuple(batch for batch in workload.batch_sizes if batch >= GHOST_SIZE),
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
        train_loss_target=3.9,
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
        target=4.3,
        train_target=4.3,
        train_loss_target=4.3,
        evaluation_examples=512,
        micro_batch=256,
        defaults={name: {"factor_decay": 0.99} for name in _RARE_INVERSES},
        max_examples=300_000,
        min_steps=1_000,
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
        train_loss_target=0.1,
        max_examples=100_000,
        min_steps=300,
        batch_sizes=powers_of_two(8, 1024),
        spaces=search_spaces(Range(1e-3, 3.0), Range(1e-4, 3.0), Range(1e-5, 3e-1), Range(1e-2, 10.0)),
    )
    return {"laptop": laptop, "paper": replace(laptop, size="paper")}


PUBLISHED: dict[str, Sizes] = {
    sizes["paper"].name: sizes
    for sizes in (
        _mnist_like("simple_cnn_mnist", "mnist", {"paper": (0.99, 0.995, 0.02), "laptop": (0.985, 0.985, 0.1)}),
        _mnist_like(
            "simple_cnn_fashion_mnist", "fashion_mnist", {"paper": (0.90, 0.95, 0.15), "laptop": (0.89, 0.89, 0.3)}
        ),
        _cifar10(
            "resnet8_cifar10",
            ResNet,
            partial(ResNet, width=8),
            {"paper": (0.70, 0.70, 0.85), "laptop": (0.50, 0.50, 1.4)},
        ),
        _normalized(
            _cifar10(
                "resnet32_cifar10",
                partial(ResNet, blocks=5, normalized=True, preactivated=False),
                partial(ResNet, blocks=5, normalized=True, preactivated=False, width=8),
                {"paper": (0.90, 0.95, 0.3), "laptop": (0.40, 0.40, 1.7)},
            )
        ),
        _normalized(
            _cifar10(
                "vgg11_cifar10",
                VGG11,
                partial(VGG11, width=8),
                {"paper": (0.88, 0.95, 0.3), "laptop": (0.60, 0.60, 1.2)},
            )
        ),
        _transformer(),
        _digits(),
    )
}
