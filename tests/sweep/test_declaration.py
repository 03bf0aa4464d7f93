from dataclasses import replace

import pytest

from batchlens.sweep._declaration import Declaration, Shard
from tests.sweep.simulation import make_declaration

SWEEP = make_declaration(optimizers=("sgd", "momentum"))


def test_json_gives_the_same_declaration_back() -> None:
    assert Declaration.from_json(SWEEP.as_json()) == SWEEP


def test_cells_are_every_optimizer_at_every_batch_size() -> None:
    assert SWEEP.cells == [("sgd", 16), ("sgd", 64), ("momentum", 16), ("momentum", 64)]


def test_differences_are_named() -> None:
    spaces = {**SWEEP.spaces, "sgd": {"learning_rate": (0.1, 1.0, "log"), "momentum": (0.0, 1.0, "linear")}}
    other = replace(SWEEP, seed=1, batch_sizes=(16, 32), spaces=spaces)
    assert SWEEP.differences(other) == [
        "batch_sizes is 16,64, not 16,32",
        "seed is 0, not 1",
        "the range of learning_rate for sgd is 0.01,1.0,log, not 0.1,1.0,log",
    ]


def test_more_trials_are_no_difference() -> None:
    assert SWEEP.differences(replace(SWEEP, trials=100)) == []


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("optimizers", (), "`optimizers` must have at least one entry, got none."),
        ("batch_sizes", (16, 16), "`batch_sizes` must differ from one another, got 16 twice."),
        ("trials", 0, "`trials` must be at least 1, got 0."),
        ("keep", 0, "`keep` must be at least 1, got 0."),
        ("target", float("nan"), "`target` must be finite, got nan."),
    ],
)
def test_bad_value_is_named(name: str, value: object, message: str) -> None:
    with pytest.raises(ValueError, match=r"must") as caught:
        replace(SWEEP, **{name: value})  # type: ignore[arg-type]
    assert str(caught.value) == message


@pytest.mark.parametrize("text", ["0/2", "3/2", "2", "a/b", "1/", "-1/2"])
def test_bad_shard_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="`shard` must be I/N with I from 1 to N"):
        Shard.parse(text)


def test_every_position_belongs_to_one_shard() -> None:
    shards = [Shard(index, 3) for index in (1, 2, 3)]
    assert [sum(shard.owns(position) for shard in shards) for position in range(9)] == [1] * 9
