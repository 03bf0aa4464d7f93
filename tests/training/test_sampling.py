"""Which examples a step sees, and in which form."""

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from batchlens.training._batch_plan import BatchPlan
from batchlens.training._sampling import CROPS, MODEL, ORDER, OTHER, Batches, Order, Preparation, derive_seed
from batchlens.training.data.loading import Dataset, Split

CPU = torch.device("cpu")
MEAN, STD = (0.5, 0.25, 0.1), (0.2, 0.3, 0.4)


def images(count: int, side: int = 6) -> Dataset:
    """Images of random bytes; the target of an image is its number."""
    random = torch.Generator().manual_seed(0)
    pixels = torch.randint(256, (count, 3, side, side), generator=random, dtype=torch.uint8)
    split = Split(pixels, torch.arange(count))
    return Dataset("images", split, split, count, MEAN, STD)


def batches(
    data: Dataset, batch_size: int, micro_batch: int | None = None, seed: int = 0, augment: bool = False
) -> Batches:
    return Batches(data, BatchPlan.constant(batch_size), micro_batch or batch_size, seed, augment, CPU)


def examples_of(found: Batches, step: int) -> list[int]:
    return [int(number) for _, targets in found.slices(step) for number in targets]


# ---------------------------------------------------------------------------------------------
# Order
# ---------------------------------------------------------------------------------------------


@given(examples=st.integers(1, 40), seed=st.integers(0, 2**62), cuts=st.lists(st.integers(1, 90), max_size=8))
@settings(deadline=None)
def test_epochs_are_permutations_however_they_are_cut(examples: int, seed: int, cuts: list[int]) -> None:
    order = Order(examples, seed)
    seen: list[int] = []
    for length in [*cuts, examples]:
        part = order.between(len(seen), len(seen) + length)
        assert len(part) == length
        seen += part.tolist()
    for start in range(0, len(seen) - examples + 1, examples):
        assert sorted(seen[start : start + examples]) == list(range(examples))
    tail = seen[len(seen) - len(seen) % examples :]
    assert len(set(tail)) == len(tail)
    assert order.between(0, len(seen)).tolist() == seen


@given(examples=st.integers(1, 30), spans=st.lists(st.tuples(st.integers(0, 200), st.integers(1, 50)), min_size=1))
@settings(deadline=None)
def test_any_position_can_be_asked_for_at_any_time(examples: int, spans: list[tuple[int, int]]) -> None:
    everything = Order(examples, 3).between(0, 250).tolist()
    order = Order(examples, 3)
    for first, length in spans:
        assert order.between(first, first + length).tolist() == everything[first : first + length]


def test_epochs_and_seeds_differ() -> None:
    order = Order(100, 0)
    epochs = [order.between(100 * k, 100 * (k + 1)).tolist() for k in range(5)]
    epochs += [Order(100, seed).between(0, 100).tolist() for seed in (1, 2, 2**40)]
    assert all(one != other for one, other in itertools.combinations([*epochs, list(range(100))], 2))


def test_every_position_is_as_likely_for_every_example() -> None:
    counts = torch.zeros(4, 4)
    for seed in range(2_000):
        for position, example in enumerate(Order(4, seed).between(0, 4).tolist()):
            counts[position, example] += 1
    # Each is binomial(2000, 1/4): a standard deviation of 19.4.
    assert float((counts - 500).abs().max()) < 5 * 19.4


def test_seeds_of_different_uses_differ() -> None:
    uses = [
        (seed, use, number) for seed in (0, 1, 2**62) for use in (MODEL, ORDER, CROPS, OTHER) for number in (0, 1, 9)
    ]
    found = [derive_seed(*use) for use in uses]
    assert len(set(found)) == len(uses)
    assert all(0 <= seed < 2**63 for seed in found)
    assert found == [derive_seed(*use) for use in uses]


# ---------------------------------------------------------------------------------------------
# Batches
# ---------------------------------------------------------------------------------------------


def test_steps_go_through_the_epochs_without_a_gap() -> None:
    found = batches(images(10), 4)
    seen = [number for step in range(10) for number in examples_of(found, step)]
    for epoch in range(4):
        assert sorted(seen[10 * epoch : 10 * epoch + 10]) == list(range(10))
    assert seen == Order(10, 0).between(0, 40).tolist()


def test_batches_larger_than_the_data() -> None:
    found = batches(images(5), 13)
    seen = examples_of(found, 0) + examples_of(found, 1)
    assert len(seen) == 26
    assert all(sorted(seen[k : k + 5]) == list(range(5)) for k in range(0, 25, 5))


@pytest.mark.parametrize("augment", [False, True])
@pytest.mark.parametrize("micro_batch", [1, 3, 4, 8, 11, 12, 20])
def test_slices_make_up_the_batch(micro_batch: int, augment: bool) -> None:
    data = images(9)
    for step in (0, 1, 5):
        ((whole, targets),) = batches(data, 12, augment=augment).slices(step)
        parts = list(batches(data, 12, micro_batch, augment=augment).slices(step))
        sizes = [len(part) for part, _ in parts]
        assert sizes == [min(micro_batch, 12 - k) for k in range(0, 12, micro_batch)]
        assert torch.equal(torch.cat([part for part, _ in parts]), whole)
        assert torch.equal(torch.cat([part for _, part in parts]), targets)


@pytest.mark.parametrize("augment", [False, True])
def test_a_step_can_be_taken_out_of_turn(augment: bool) -> None:
    data = images(9)
    sequential = batches(data, 4, augment=augment)
    expected = [next(sequential.slices(step)) for step in range(8)]
    random_access = batches(data, 4, augment=augment)
    for step in (6, 0, 7, 3, 3):
        inputs, targets = next(random_access.slices(step))
        assert torch.equal(inputs, expected[step][0])
        assert torch.equal(targets, expected[step][1])


def test_batches_do_not_touch_the_global_random_numbers() -> None:
    torch.manual_seed(0)
    before = torch.get_rng_state()
    next(batches(images(9), 4, augment=True).slices(2))
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(1)
    one = next(batches(images(9), 4, augment=True).slices(2))
    torch.manual_seed(2)
    assert torch.equal(next(batches(images(9), 4, augment=True).slices(2))[0], one[0])


def test_other_seeds_are_other_batches() -> None:
    data = images(50)
    assert examples_of(batches(data, 20, seed=1), 0) != examples_of(batches(data, 20, seed=2), 0)


def test_inputs_and_targets_belong_together() -> None:
    data = images(9)
    for inputs, targets in batches(data, 7, 3).slices(1):
        for image, number in zip(inputs, targets, strict=True):
            assert torch.equal(image, Preparation(data, CPU).inputs(data.train.inputs[number][None])[0])


def test_augmented_images_are_crops_of_their_own() -> None:
    data = images(4, side=12)
    shown, changed = set(), 0
    plain = Preparation(data, CPU)
    for step in range(20):
        for inputs, targets in batches(data, 4, augment=True).slices(step):
            for image, number in zip(inputs, targets, strict=True):
                original = data.train.inputs[number]
                padded = torch.nn.functional.pad(original, (4,) * 4)
                crops = {
                    (row, column, flip): (padded.flip(2) if flip else padded)[:, row : row + 12, column : column + 12]
                    for row in range(9)
                    for column in range(9)
                    for flip in (False, True)
                }
                ways = [way for way, crop in crops.items() if torch.equal(plain.inputs(crop[None])[0], image)]
                assert len(ways) == 1
                shown.add((int(number), *ways[0]))
                changed += ways[0] != (4, 4, False)
    # 80 draws of 162 ways each: nearly all are different, and few are the image itself.
    assert len(shown) > 50
    assert changed > 70


def test_crops_are_drawn_per_step() -> None:
    data = images(4, side=12)
    found = batches(data, 4, augment=True)
    pictures = [
        {int(number): image for image, number in zip(*next(found.slices(step)), strict=True)} for step in range(6)
    ]
    for number in range(4):
        assert len({picture[number].contiguous().numpy().tobytes() for picture in pictures}) > 3


def test_without_augmentation_images_are_as_they_are() -> None:
    data = images(4)
    for inputs, targets in batches(data, 4).slices(3):
        assert torch.equal(inputs, Preparation(data, CPU).inputs(data.train.inputs)[targets])


# ---------------------------------------------------------------------------------------------
# Preparation
# ---------------------------------------------------------------------------------------------


def test_bytes_are_normalised_channel_by_channel() -> None:
    data = images(3)
    found = Preparation(data, CPU).inputs(data.train.inputs)
    assert found.dtype == torch.float32
    assert found.is_contiguous(memory_format=torch.channels_last)
    for channel in range(3):
        for byte, value in zip(
            data.train.inputs[:, channel].flatten().tolist(), found[:, channel].flatten(), strict=True
        ):
            assert float(value) == pytest.approx((byte / 255 - MEAN[channel]) / STD[channel], abs=2e-6)


def test_preparation_leaves_what_is_stored_alone() -> None:
    data = images(3)
    before = data.train.inputs.clone()
    Preparation(data, CPU).inputs(data.train.inputs)
    assert torch.equal(data.train.inputs, before)


def text(tokens: Tensor) -> Dataset:
    split = Split(tokens[:, :-1], tokens[:, 1:])
    return Dataset("text", split, split, 100, (), ())


def test_tokens_become_indices() -> None:
    data = text(torch.arange(20, dtype=torch.int32).view(4, 5))
    for inputs, targets in batches(data, 3, 2).slices(0):
        assert inputs.dtype == targets.dtype == torch.int64
        assert torch.equal(inputs + 1, targets)


@pytest.mark.parametrize("kind", [torch.float32, torch.float64])
def test_numbers_pass(kind: torch.dtype) -> None:
    stored = torch.randn(4, 2, generator=torch.Generator().manual_seed(0)).to(kind)
    data = Dataset("numbers", Split(stored, stored), Split(stored, stored), 1, (), ())
    prepare = Preparation(data, CPU)
    for found in (prepare.inputs(stored), prepare.targets(stored)):
        assert found.dtype == kind
        assert torch.equal(found, stored)
