"""Arguments of a run: what is bad is refused before any data is touched, by name."""

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from batchlens.errors import BatchlensError
from batchlens.training._arguments import Arguments, check_arguments
from batchlens.training._recipes import recipe_named
from batchlens.training.data.loading import Dataset
from batchlens.training.loop import train
from batchlens.training.models import MLP
from batchlens.training.workloads import Workload


def untouched(data_dir: Path | None) -> Dataset:
    raise AssertionError("the data was loaded")


PLAIN = Workload("plain", untouched, MLP, target=0.9, train_target=0.95, max_examples=1_000, min_steps=7)
GHOSTS = replace(PLAIN, slice_multiple=32, schedule="linear_decay")
RATE = {"learning_rate": 0.1}


def call(function: Callable[..., Any], **changes: object) -> Any:
    return function(**{"workload": PLAIN, "optimizer": "sgd", "batch_size": 10, "settings": RATE, **changes})


def check(**changes: object) -> Arguments:
    found = call(check_arguments, **changes)
    assert isinstance(found, Arguments)
    return found


def test_good_arguments_do_load_the_data() -> None:
    """So that the tests below mean something."""
    with pytest.raises(BatchlensError, match="AssertionError: the data was loaded"):
        call(train)


BAD: list[tuple[str, object, type[Exception]]] = [
    ("workload", "no_such_workload", ValueError),
    ("workload", 3, TypeError),
    ("workload", None, TypeError),
    ("optimizer", "sdg", ValueError),
    ("optimizer", "sgd+swa", ValueError),
    ("optimizer", None, TypeError),
    ("batch_size", 0, ValueError),
    ("batch_size", -8, ValueError),
    ("batch_size", 2.5, ValueError),
    ("batch_size", math.nan, ValueError),
    ("batch_size", math.inf, ValueError),
    ("batch_size", "10", TypeError),
    ("batch_size", True, TypeError),
    ("batch_size", None, TypeError),
    ("micro_batch", 0, ValueError),
    ("micro_batch", -1, ValueError),
    ("micro_batch", 1.5, ValueError),
    ("micro_batch", "4", TypeError),
    ("max_steps", 0, ValueError),
    ("max_steps", -5, ValueError),
    ("max_steps", 0.5, ValueError),
    ("max_steps", "many", TypeError),
    ("seed", -1, ValueError),
    ("seed", 0.5, ValueError),
    ("seed", None, TypeError),
    ("seed", 2**70, ValueError),
    ("schedule", "exponential", ValueError),
    ("schedule", 3, ValueError),
    ("target", math.nan, ValueError),
    ("target", math.inf, ValueError),
    ("target", "0.9", TypeError),
    ("target_on", "test", ValueError),
    ("target_on", None, ValueError),
    ("lazy", 1, TypeError),
    ("lazy", None, TypeError),
    ("device", "tpu", ValueError),
    ("device", "", ValueError),
    ("device", None, ValueError),
    ("device", "meta", ValueError),
    ("threads", 0, ValueError),
    ("threads", 1.5, ValueError),
]


@pytest.mark.parametrize(("name", "value", "kind"), BAD)
def test_bad_arguments_are_refused_by_name(name: str, value: object, kind: type[Exception]) -> None:
    with pytest.raises(kind, match=rf"`{name}` must "):
        call(train, **{name: value})


@pytest.mark.parametrize(
    ("optimizer", "settings", "says"),
    [
        ("sgd", {}, "learning_rate"),
        ("sgd", {**RATE, "momentum": 0.9}, "momentum"),
        ("sgd", {**RATE, "decay_steps": 10}, "decay_steps"),
        ("sgd", {**RATE, "averaging": 0.9}, "averaging"),
        ("sgd", {"learning_rate": -0.1}, "learning_rate"),
        ("sgd", {"learning_rate": math.nan}, "learning_rate"),
        ("momentum", {**RATE, "momentum": 1.0}, "momentum"),
        ("momentum+ema", {**RATE, "averaging": 1.0}, "averaging"),
        ("adam", {**RATE, "beta2": 1.0}, "beta2"),
    ],
)
def test_bad_settings_are_refused_by_name(optimizer: str, settings: Mapping[str, float], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        call(train, optimizer=optimizer, settings=settings)


@pytest.mark.parametrize("setting", ["decay_steps", "total_steps"])
@pytest.mark.parametrize("value", [0, -10, math.nan])
def test_schedules_take_more_than_no_steps(setting: str, value: float) -> None:
    schedule = "linear_decay" if setting == "decay_steps" else "cosine"
    with pytest.raises(ValueError, match=f"{setting}` must be"):
        call(train, schedule=schedule, settings={**RATE, setting: value})


def test_fractions_are_not_negative() -> None:
    with pytest.raises(ValueError, match="final_fraction` must be"):
        call(train, schedule="cosine", settings={**RATE, "final_fraction": -0.1})


@pytest.mark.parametrize(
    ("device", "there"), [("cuda", torch.cuda.is_available), ("mps", torch.backends.mps.is_available)]
)
def test_devices_that_are_not_there(device: str, there: Callable[[], bool]) -> None:
    if there():
        pytest.skip(f"this machine has {device}")
    for name in (device, f"{device}:0"):
        with pytest.raises(ValueError, match=rf"`device` must be one that this machine has \(cpu.*\), got {name}"):
            call(train, device=name)


@pytest.mark.parametrize("micro_batch", [1, 16, 33, 48, 63])
def test_micro_batches_do_not_cut_ghosts(micro_batch: int) -> None:
    with pytest.raises(ValueError, match="`micro_batch` must be a multiple of 32"):
        call(train, workload=GHOSTS, batch_size=64, micro_batch=micro_batch)
    assert check(batch_size=64, micro_batch=micro_batch).micro_batch == micro_batch  # without ghosts it may


@pytest.mark.parametrize(
    ("batch_size", "micro_batch", "expected"),
    [
        (64, 32, 32),
        (96, 64, 64),
        (64, None, 64),
        (64, 64, 64),
        (64, 70, 64),
        (20, None, 20),
        (20, 24, 20),
        (48, 48, 48),
    ],
)
def test_micro_batches_are_at_most_the_batch(batch_size: int, micro_batch: int | None, expected: int) -> None:
    found = check(workload=GHOSTS, batch_size=batch_size, micro_batch=micro_batch)
    assert found.micro_batch == expected


def test_what_is_missing_comes_from_the_workload() -> None:
    found = check()
    assert found.workload is PLAIN
    assert found.recipe is recipe_named("sgd")
    assert found.settings == RATE
    assert (found.batch_size, found.micro_batch, found.max_steps, found.seed) == (10, 10, 100, 0)
    assert (found.schedule, found.target, found.target_on, found.lazy) == ("constant", 0.9, "validation", True)
    assert found.device == torch.device("cpu")
    assert found == check(max_steps=None, micro_batch=None, schedule=None, target=None)
    assert check(batch_size=900).max_steps == 7
    assert check(workload="digits").workload.name == "digits"
    assert check(workload="digits", size="paper").workload.size == "paper"


def test_what_is_given_is_taken() -> None:
    found = check(seed=3, max_steps=5, micro_batch=4, schedule="cosine", target=0.5, target_on="train", lazy=False)
    assert (found.seed, found.max_steps, found.micro_batch, found.schedule) == (3, 5, 4, "cosine")
    assert (found.target, found.target_on, found.lazy) == (0.5, "train", False)
    assert check(target=0).target == 0
    assert check(batch_size=16.0).batch_size == 16
    own = replace(recipe_named("adam"), name="mine")
    assert check(optimizer=own).recipe is own
    assert check(optimizer="momentum+ema").settings == {
        "learning_rate": 0.1,
        "momentum": 0.9,
        "averaging": 0.9,
        "window": 0.0,
    }


def test_targets_on_the_training_set_have_their_own_value() -> None:
    assert check(target_on="train").target == 0.95


def test_schedules_last_the_budget_unless_told() -> None:
    found = check(workload=GHOSTS, max_steps=50)
    assert found.settings == {"learning_rate": 0.1, "final_fraction": 0.0, "decay_steps": 50}
    factor = found.learning_rate_factor()
    assert [factor(step) for step in (0, 25, 50, 80)] == pytest.approx([1, 0.5, 0, 0])
    told = check(workload=GHOSTS, max_steps=50, settings={**RATE, "decay_steps": 10, "final_fraction": 0.5})
    assert [told.learning_rate_factor()(step) for step in (5, 10, 20)] == pytest.approx([0.75, 0.5, 0.5])
    assert check().learning_rate_factor()(10**6) == 1


CHANGES: list[dict[str, object]] = [
    {"workload": replace(PLAIN, name="other")},
    {"workload": replace(PLAIN, size="paper")},
    {"optimizer": "momentum"},
    {"optimizer": "sgd+ema"},
    {"batch_size": 11},
    {"settings": {"learning_rate": 0.2}},
    {"seed": 1},
    {"max_steps": 99},
    {"micro_batch": 5},
    {"schedule": "cosine"},
    {"target": 0.8},
    {"target_on": "train"},
    {"lazy": False},
]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: next(iter(change)))
def test_runs_that_differ_have_different_identities(change: dict[str, object]) -> None:
    assert check(**change).identity() != check().identity()
    assert check(**change).identity() == check(**change).identity()
