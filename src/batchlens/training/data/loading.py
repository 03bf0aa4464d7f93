"""Training and validation examples of every data set, as tensors.

Images are uint8 of shape (N, C, H, W) with ink or light at 255, targets are int64 classes; `x / 255`, then
`(x - mean) / std` per channel, normalises any of them. Text is int32 tokens of shape (N, length).

Which examples validate is drawn once and for all, so that runs of every seed share them.
"""

from collections.abc import Callable
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from batchlens._checks import require_choice, require_whole
from batchlens.training.data._catalogue import NAMES
from batchlens.training.data._sources import read_files

_Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class Split:
    """Examples and what is to be said of each.

    Arguments:
        inputs: one example in each row.
        targets: what the model should say of it, a class number or values.

    >>> len(Split(torch.zeros(3, 2), torch.zeros(3, dtype=torch.long)))
    3
    """

    inputs: Tensor
    targets: Tensor

    def __len__(self) -> int:
        return len(self.inputs)


@dataclass(frozen=True)
class Dataset:
    """A data set, split into examples to train on and examples to validate with.

    Arguments:
        name: of the data set.
        train: examples to train on.
        validation: examples that decide whether the target is reached.
        classes: how many different targets there are.
        mean: of the training images in [0, 1], one per channel; empty where inputs are taken as they are.
        std: likewise, the standard deviation.

    >>> points = Split(torch.zeros(3, 2), torch.zeros(3, dtype=torch.long))
    >>> Dataset("points", points, points, classes=2).classes
    2
    """

    name: str
    train: Split
    validation: Split
    classes: int
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()


class _Images(NamedTuple):
    """What the code knows of a set of images: their shape, how many validate, and how bright the others are."""

    shape: tuple[int, int, int]
    validation: int
    mean: tuple[float, ...]
    std: tuple[float, ...]


_IMAGES = {
    "mnist": _Images((1, 28, 28), 5_000, (0.130637,), (0.308075,)),
    "fashion_mnist": _Images((1, 28, 28), 5_000, (0.286053,), (0.352930,)),
    "cifar10": _Images((3, 32, 32), 5_000, (0.491477, 0.482285, 0.446548), (0.247099, 0.243463, 0.261584)),
    "digits": _Images((1, 8, 8), 297, (0.305438,), (0.376017,)),
}


def load(name: str, data_dir: Path | str | None = None, *, vocabulary: int = 32_768, length: int = 64) -> Dataset:
    """The examples of a data set, checked against the official files and split as in the paper.

    Arguments:
        name: mnist, fashion_mnist (55,000 to train on and 5,000 to validate), cifar10 (45,000 and 5,000), digits (1,500
            and 297, part of batchlens) or lm1b.
        data_dir: where the files lie; $BATCHLENS_DATA or else ~/.cache/batchlens by default.
        vocabulary: of lm1b, the largest number of different tokens.
        length: of lm1b, the number of tokens in an example; its targets are its inputs one token later.

    >>> digits = load("digits")
    >>> digits.train.inputs.shape, digits.validation.inputs.shape, digits.classes
    (torch.Size([1500, 1, 8, 8]), torch.Size([297, 1, 8, 8]), 10)
    """
    require_choice("name", name, NAMES)
    vocabulary = require_whole("vocabulary", vocabulary, 2)
    length = require_whole("length", length, 1)
    if name == "lm1b":
        return _load_text(data_dir, vocabulary, length)
    known = _IMAGES[name]
    pixels, labels = _READERS[name](name, data_dir)
    validates = np.zeros(len(pixels), dtype=bool)
    validates[_draw_validation(len(pixels), known.validation)] = True
    train, validation = (
        Split(
            torch.from_numpy(pixels[chosen]).view(-1, *known.shape),
            torch.from_numpy(labels[chosen].astype(np.int64)),
        )
        for chosen in (~validates, validates)
    )
    return Dataset(name, train, validation, 10, known.mean, known.std)


def _draw_validation(examples: int, count: int) -> npt.NDArray[np.int64]:
    """Which `count` of the examples validate: always the same ones.

    >>> _draw_validation(10, 3)
    array([2, 8, 4])
    """
    # Of numpy's streams this is the one that is promised never to change.
    return np.random.RandomState(0).permutation(examples)[:count]


def _read_idx(name: str, data_dir: Path | str | None) -> tuple[_Bytes, _Bytes]:
    images, labels = read_files(name, ["train-images-idx3-ubyte", "train-labels-idx1-ubyte"], data_dir)
    # Sixteen and eight bytes say the shape, which the checksum has settled.
    return np.frombuffer(images, np.uint8, offset=16).reshape(-1, 28 * 28), np.frombuffer(labels, np.uint8, offset=8)


def _read_cifar10(name: str, data_dir: Path | str | None) -> tuple[_Bytes, _Bytes]:
    batches = read_files(name, [f"data_batch_{k}.bin" for k in range(1, 6)], data_dir)
    records = np.frombuffer(b"".join(batches), np.uint8).reshape(-1, 1 + 3 * 32 * 32)
    return records[:, 1:], records[:, 0]


def _read_digits(name: str, _: Path | str | None) -> tuple[_Bytes, _Bytes]:
    (text,) = read_files(name, ["digits.csv"])
    table = np.loadtxt(BytesIO(text), dtype=np.uint8, delimiter=",")
    # A pixel counts 0 to 16 dots of ink; full ink becomes 255, as in the other sets. No two counts become one.
    return np.round(table[:, :64] * (255 / 16)).astype(np.uint8), table[:, 64]


_READERS: dict[str, Callable[[str, Path | str | None], tuple[_Bytes, _Bytes]]] = {
    "mnist": _read_idx,
    "fashion_mnist": _read_idx,
    "cifar10": _read_cifar10,
    "digits": _read_digits,
}


def _load_text(data_dir: Path | str | None, vocabulary: int, length: int) -> Dataset:
    from batchlens.training.data._tokens import read_tokens

    train, validation = (
        _cut(tokens, length, part)
        for part, tokens in zip(("training", "validation"), read_tokens(vocabulary, data_dir), strict=True)
    )
    return Dataset("lm1b", train, validation, vocabulary, (), ())


def _cut(tokens: npt.NDArray[np.int32], length: int, part: str) -> Split:
    """Runs of `length` tokens one after the other; views, so that targets cost no memory of their own."""
    count = (len(tokens) - 1) // length
    if count < 1:
        raise ValueError(f"`length` must be at most {len(tokens) - 1}, the {part} tokens less one, got {length}.")
    stream = torch.from_numpy(tokens)
    end = count * length
    return Split(stream[:end].view(count, length), stream[1 : end + 1].view(count, length))
