"""Examples as tensors: what the files say, split once and for all, and moved as a loop over examples would."""

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional

from batchlens.errors import BatchlensError
from batchlens.training.data._crops import apply_crops, draw_crops
from batchlens.training.data._sources import is_present, list_shards
from batchlens.training.data.loading import Dataset, _draw_validation, load
from tests.training.tiny_sources import cifar_files, idx_files, pack, shard_files, shrink, write

SIZES = {"mnist": (55_000, 5_000), "fashion_mnist": (55_000, 5_000), "cifar10": (45_000, 5_000), "digits": (1_500, 297)}
SHAPES = {"mnist": (1, 28, 28), "fashion_mnist": (1, 28, 28), "cifar10": (3, 32, 32), "digits": (1, 8, 8)}


def load_real(name: str) -> Dataset:
    if not is_present(name):
        pytest.skip(f"{name} is not in the data folder: run `batchlens data fetch {name}`")
    return load(name)


# ---------------------------------------------------------------------------------------------
# The real data
# ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SIZES)
def test_real_images(name: str) -> None:
    found = load_real(name)
    assert found.name == name
    assert found.classes == 10
    for split, size in zip((found.train, found.validation), SIZES[name], strict=True):
        assert len(split) == size
        assert split.inputs.shape == (size, *SHAPES[name])
        assert split.inputs.dtype == torch.uint8
        assert split.inputs.is_contiguous()
        assert split.targets.shape == (size,)
        assert split.targets.dtype == torch.int64
        # Every class about as often as the others.
        assert int(split.targets.bincount(minlength=10).min()) > 0.6 * size / 10
        assert len(split.targets.unique()) == 10
    assert (int(found.train.inputs.min()), int(found.train.inputs.max())) == (0, 255)
    # Row by row, so that no set is ever there as float64.
    counts = [torch.bincount(found.train.inputs[:, channel].flatten(), minlength=256).double()
              for channel in range(SHAPES[name][0])]  # fmt: skip
    values = torch.arange(256, dtype=torch.float64) / 255
    means = [float((count * values).sum() / count.sum()) for count in counts]
    squares = [float((count * values**2).sum() / count.sum()) for count in counts]
    assert found.mean == pytest.approx(means, abs=1e-6)
    assert found.std == pytest.approx([(s - m * m) ** 0.5 for s, m in zip(squares, means, strict=True)], abs=1e-6)


def test_real_text(tmp_path: Path) -> None:
    shards = [path for name, path in list_shards().items() if "heldout" in name][:4]
    if len(shards) < 2:
        pytest.skip("LM1B is not in the data folder: run `batchlens data fetch lm1b`")
    write(tmp_path / "lm1b", {path.name: path.read_bytes() for path in shards})
    found = load("lm1b", tmp_path)
    assert found.classes == 32_768
    assert (found.mean, found.std) == ((), ())
    for split in (found.train, found.validation):
        assert split.inputs.dtype == split.targets.dtype == torch.int32
        assert split.inputs.shape == split.targets.shape == (len(split), 64)
        assert torch.equal(split.inputs.flatten()[1:], split.targets.flatten()[:-1])
        assert int(split.inputs.min()) >= 0
        assert int(split.inputs.max()) < found.classes
    assert len(found.train) > len(found.validation)


def test_digits_are_one_to_one_with_the_counts() -> None:
    images = load("digits").train.inputs
    assert images.unique().tolist() == [round(255 * count / 16) for count in range(17)]


# ---------------------------------------------------------------------------------------------
# Splits
# ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("examples", "count", "first", "digest"),
    [
        (60_000, 5_000, [3048, 19563, 58303, 8870, 40228], "cec09930721186f8"),
        (50_000, 5_000, [11841, 19602, 45519, 25747, 42642], "6bc58f8926f80f0b"),
        (1_797, 297, [1081, 1707, 927, 713, 262], "afc7c009ca937b63"),
    ],
)
def test_split_never_changes(examples: int, count: int, first: list[int], digest: str) -> None:
    """Who changes this split makes every earlier result of this data set incomparable."""
    drawn = _draw_validation(examples, count)
    assert len(set(drawn.tolist())) == count
    assert drawn[:5].tolist() == first
    assert hashlib.sha256(drawn.astype("<i8").tobytes()).hexdigest()[:16] == digest


def test_split_ignores_the_seed_of_the_run() -> None:
    torch.manual_seed(1)
    first = load("digits")
    torch.manual_seed(2)
    second = load("digits")
    assert torch.equal(first.train.inputs, second.train.inputs)
    assert torch.equal(first.validation.targets, second.validation.targets)


# ---------------------------------------------------------------------------------------------
# Formats, on small files
# ---------------------------------------------------------------------------------------------


def test_idx_files_are_read_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = idx_files()
    shrink(monkeypatch, "mnist", files)
    write(tmp_path / "mnist", files)
    found = load("mnist", tmp_path)
    images = np.frombuffer(files["train-images-idx3-ubyte"][16:], np.uint8).reshape(-1, 1, 28, 28)
    labels = np.frombuffer(files["train-labels-idx1-ubyte"][8:], np.uint8)
    validates = sorted(_draw_validation(40, 5).tolist())
    trains = [k for k in range(40) if k not in validates]
    for split, chosen in ((found.train, trains), (found.validation, validates)):
        assert np.array_equal(split.inputs.numpy(), images[chosen])
        assert np.array_equal(split.targets.numpy(), labels[chosen])


@pytest.mark.parametrize("form", ["plain", "unpacked", "packed"])
def test_cifar10_is_read_from_every_form(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str) -> None:
    files = cifar_files()
    shrink(monkeypatch, "cifar10", files)
    folder = tmp_path / "cifar10"
    if form == "packed":
        packed = pack({f"cifar-10-batches-bin/{name}": content for name, content in files.items()})
        write(folder, {"cifar-10-binary.tar.gz": packed})
    else:
        write(folder / ("cifar-10-batches-bin" if form == "unpacked" else ""), files)
    found = load("cifar10", tmp_path)
    batch = np.frombuffer(files["data_batch_3.bin"], np.uint8).reshape(10, 3073)
    validates = _draw_validation(50, 5).tolist()
    position = [k for k in range(50) if k not in validates].index(27)
    assert np.array_equal(found.train.inputs[position].numpy().ravel(), batch[7, 1:])
    assert int(found.train.targets[position]) == 7


def test_text_is_cut_into_runs_without_padding(tmp_path: Path) -> None:
    write(tmp_path / "lm1b", shard_files())
    found = load("lm1b", tmp_path, vocabulary=60, length=16)
    longer = load("lm1b", tmp_path, vocabulary=60, length=17)
    assert found.train.inputs.shape[1:] == (16,)
    assert found.classes == 60
    stream = found.train.inputs.flatten()
    shared = min(len(stream), longer.train.inputs.numel())
    assert torch.equal(stream[:shared], longer.train.inputs.flatten()[:shared])
    assert torch.equal(stream[1:], found.train.targets.flatten()[:-1])


# ---------------------------------------------------------------------------------------------
# What goes wrong
# ---------------------------------------------------------------------------------------------


def test_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(
        ValueError, match="`name` must be one of mnist, fashion_mnist, cifar10, lm1b, digits, got 'svhn'"
    ):
        load("svhn")


@pytest.mark.parametrize("options", [{"vocabulary": 1}, {"vocabulary": 2.5}, {"length": 0}])
def test_bad_options_are_named(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=f"`{next(iter(options))}` must be "):
        load("digits", **options)


def test_a_length_beyond_the_text_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "lm1b", shard_files())
    with pytest.raises(ValueError, match=r"`length` must be at most \d+, the training tokens less one, got 1000000"):
        load("lm1b", tmp_path, vocabulary=60, length=1_000_000)


@pytest.mark.parametrize("name", ["mnist", "fashion_mnist", "cifar10", "lm1b"])
def test_missing_data_names_the_command(name: str, tmp_path: Path) -> None:
    with pytest.raises(BatchlensError) as error:
        load(name, tmp_path)
    assert str(error.value).startswith(str(tmp_path / name))
    assert str(error.value).endswith(f"run `batchlens data fetch {name} --data-dir {tmp_path}`.")
    assert "\n" not in str(error.value)


# ---------------------------------------------------------------------------------------------
# Augmentation
# ---------------------------------------------------------------------------------------------


def crop_one_by_one(images: Tensor, rows: Tensor, columns: Tensor, flips: Tensor, padding: int) -> Tensor:
    height, width = images.shape[2:]
    moved = []
    for image, row, column, flip in zip(images, rows.tolist(), columns.tolist(), flips.tolist(), strict=True):
        mirrored = image.flip(-1) if flip else image
        padded = functional.pad(mirrored, (padding,) * 4)
        moved.append(padded[:, row : row + height, column : column + width])
    return torch.stack(moved)


@pytest.mark.parametrize(("shape", "padding"), [((64, 3, 32, 32), 4), ((7, 1, 5, 9), 2), ((1, 3, 4, 4), 0)])
def test_crops_as_one_by_one(shape: tuple[int, ...], padding: int) -> None:
    images = torch.randint(256, shape, dtype=torch.uint8, generator=torch.Generator().manual_seed(3))
    draws = draw_crops(len(images), torch.Generator().manual_seed(4), padding)
    found = apply_crops(images, *draws, padding=padding)
    assert found.dtype == torch.uint8
    assert found.is_contiguous()
    assert torch.equal(found, crop_one_by_one(images, *draws, padding))


def test_a_crop_in_the_middle_changes_nothing() -> None:
    images = torch.randint(256, (5, 3, 8, 8), dtype=torch.uint8)
    middle, never = torch.full((5,), 4), torch.zeros(5, dtype=torch.bool)
    assert torch.equal(apply_crops(images, middle, middle, never), images)


def test_augmentation_is_a_function_of_the_seed() -> None:
    images = torch.randint(256, (32, 3, 32, 32), dtype=torch.uint8)
    first, again, other = (
        apply_crops(images, *draw_crops(len(images), torch.Generator().manual_seed(seed))) for seed in (5, 5, 6)
    )
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_parts_of_a_batch_get_the_draws_of_their_examples() -> None:
    images = torch.randint(256, (32, 3, 32, 32), dtype=torch.uint8)
    whole = apply_crops(images, *draw_crops(len(images), torch.Generator().manual_seed(5)))
    rows, columns, flips = draw_crops(32, torch.Generator().manual_seed(5))
    parts = [
        apply_crops(images[part], rows[part], columns[part], flips[part]) for part in (slice(0, 20), slice(20, 32))
    ]
    assert torch.equal(whole, torch.cat(parts))


def test_draws_are_even() -> None:
    rows, columns, flips = draw_crops(90_000, torch.Generator().manual_seed(0))
    for offsets in (rows, columns):
        assert offsets.bincount().tolist() == pytest.approx([10_000] * 9, rel=0.05)
    assert float(flips.float().mean()) == pytest.approx(0.5, abs=0.01)
