"""One run: the record, and that it is a function of the arguments alone."""

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from batchlens import BatchlensError
from batchlens.training import _looking as looking_module
from batchlens.training import _run as run_module
from batchlens.training._arguments import check_arguments
from batchlens.training._recipes import RECIPES, Recipe, Task
from batchlens.training._run import DIVERGENCE_WINDOW
from batchlens.training.data._sources import is_present
from batchlens.training.data.loading import Dataset, Split, load
from batchlens.training.loop import Interrupted, Progress, train
from batchlens.training.models import VGG11
from batchlens.training.record import Record
from batchlens.training.workloads import Workload, find_workload

DIGITS = find_workload("digits")
GOOD = {"learning_rate": 0.1, "momentum": 0.9}


def outcome(record: Record) -> dict[str, Any]:
    """What must not depend on the clock."""
    return {name: value for name, value in vars(record).items() if "seconds" not in name}


def final_weights(monkeypatch: pytest.MonkeyPatch, run: Callable[[], Record]) -> tuple[Record, list[Tensor]]:
    """A run's record and the weights it ended with."""
    made: list[nn.Module] = []
    make = run_module._make_model

    def keep(arguments: Any) -> nn.Module:
        made.append(make(arguments))
        return made[-1]

    with monkeypatch.context() as patch:
        patch.setattr(run_module, "_make_model", keep)
        record = run()
    return record, [weight.detach().clone() for weight in made[0].state_dict().values()]


def largest_difference(first: list[Tensor], second: list[Tensor]) -> float:
    return max(float((a.double() - b.double()).abs().max()) for a, b in zip(first, second, strict=True))


def test_a_run_reaches_its_target() -> None:
    record = train("digits", "momentum", 64, GOOD)
    assert record.status == "reached"
    # The run went on to the next rung, and the crossing was found between that one and the last.
    assert record.steps is not None
    assert record.steps <= record.steps_taken == record.history[-1].step <= 1.55 * record.steps
    assert record.examples == 64 * record.steps_taken
    assert record.best_metric == max(entry.metric for entry in record.history if entry.exact)
    by_step = {entry.step: entry for entry in record.history}
    assert by_step[record.steps].exact
    assert by_step[record.steps].metric >= record.target == DIGITS.target
    assert all(entry.metric < record.target for entry in record.history if entry.step < record.steps)
    earlier = max(step for step in by_step if step < record.steps)
    assert record.steps_interpolated is not None
    assert earlier <= record.steps_interpolated <= record.steps
    assert 0 < record.evaluation_seconds < record.seconds
    assert record.settings == GOOD
    assert record.versions["torch"] == torch.__version__


def test_the_same_seed_gives_the_same_record_and_another_a_different_one() -> None:
    first, second, other = (train("digits", "momentum", 64, GOOD, seed=seed) for seed in (3, 3, 4))
    assert outcome(first) == outcome(second)
    assert first.history != other.history


def test_reading_everything_changes_no_decision() -> None:
    for seed in range(5):
        lazy, full = (train("digits", "momentum", 32, GOOD, seed=seed, lazy=lazy) for lazy in (True, False))
        truth = {entry.step: entry.metric for entry in full.history}
        assert all(entry.exact for entry in full.history)
        assert any(not entry.exact for entry in lazy.history)
        assert full.steps == full.history[-1].step  # the first point of the grid that meets the target
        assert lazy.steps is not None
        assert full.steps <= lazy.steps  # a dip between rungs may be missed
        for entry in lazy.history:
            if entry.step in truth:
                assert entry.metric == truth[entry.step] if entry.exact else entry.metric >= truth[entry.step]


def test_a_budget_that_is_too_small_ends_with_an_exact_metric() -> None:
    record = train("digits", "sgd", 64, {"learning_rate": 1e-4}, max_steps=7)
    assert (record.status, record.steps, record.steps_taken) == ("not_reached", None, 7)
    assert record.history[-1].step == 7
    assert record.history[-1].exact
    assert record.best_metric == record.history[-1].metric


@pytest.mark.parametrize("rate", [1e3, 1e30])
def test_divergence_is_a_result_and_found_quickly(rate: float) -> None:
    record = train("digits", "sgd", 64, {"learning_rate": rate}, max_steps=100_000)
    assert (record.status, record.steps) == ("diverged", None)
    assert record.steps_taken <= 2 * DIVERGENCE_WINDOW
    assert "loss" in record.reason


def test_a_loss_that_is_high_now_and_then_has_not_diverged() -> None:
    losses = iter([1.0] + 10 * ([3.0] * (DIVERGENCE_WINDOW - 1) + [1.9]))

    def scripted(outputs: Tensor, targets: Tensor) -> Tensor:
        return outputs.sum(1) * 0 + next(losses)

    record = train(replace(DIGITS, loss=scripted), "sgd", 8, {"learning_rate": 0.0}, max_steps=150)
    assert record.status == "not_reached"


def test_divergence_that_a_checkpoint_looked_at_is_not_forgotten() -> None:
    watch = run_module._LossWatch(torch.device("meta"))  # reads several losses at a time, as on an accelerator
    watch.initial = 1.0
    for _ in range(DIVERGENCE_WINDOW):
        watch.unread.append(torch.tensor(3.0))
    watch.read()
    watch.unread.append(torch.tensor(3.0))
    assert "above twice its initial value" in watch.read()


def test_a_model_that_breaks_has_failed() -> None:
    record = train(replace(DIGITS, model=lambda: nn.Linear(3, 10)), "sgd", 8, {"learning_rate": 0.1})
    assert record.status == "failed"
    assert "RuntimeError" in record.reason


@pytest.mark.parametrize("optimizer", ["momentum", "adam", "sgd+ema"])
def test_micro_batches_give_the_same_update(monkeypatch: pytest.MonkeyPatch, optimizer: str) -> None:
    whole, sliced = (
        final_weights(
            monkeypatch,
            partial(
                train, "digits", optimizer, 100, {"learning_rate": 0.01}, max_steps=5, target=1.0, micro_batch=size
            ),
        )[1]
        for size in (None, 33)
    )
    assert 0 < largest_difference(whole, sliced) < 1e-5


def images(count: int = 160) -> Dataset:
    """A few of the digits, blown up to 32x32 and three channels."""
    digits = load("digits")
    large = digits.train.inputs[:count].repeat_interleave(4, 2).repeat_interleave(4, 3).repeat(1, 3, 1, 1)
    split = Split(large, digits.train.targets[:count])
    return Dataset("images", split, split, 10, 3 * digits.mean, 3 * digits.std)


TINY_VGG = replace(
    find_workload("vgg11_cifar10"), name="tiny", data=lambda _: images(), model=partial(VGG11, width=2), target=1.0
)


def test_micro_batches_of_whole_ghosts_give_the_same_update(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {"learning_rate": 0.01, "momentum": 0.9, "final_fraction": 0.1, "decay_steps": 3.0}
    whole, sliced = (
        final_weights(monkeypatch, partial(train, TINY_VGG, "momentum", 112, settings, max_steps=1, micro_batch=size))[
            1
        ]
        for size in (None, 32)
    )
    assert largest_difference(whole, sliced) < 1e-5
    conv = next(weight for weight in whole if weight.dim() == 4)
    assert torch.allclose(conv.flatten(1).norm(dim=1), torch.ones(len(conv)))


def test_averaged_weights_are_evaluated_with_channels_of_norm_one() -> None:
    seen: list[nn.Module] = []

    class Spy(VGG11):
        def forward(self, pictures: Tensor) -> Tensor:
            if not self.training:
                seen.append(self)
            return super().forward(pictures)

    workload = replace(TINY_VGG, model=partial(Spy, width=2))
    train(workload, "sgd+ema", 32, {"learning_rate": 1.0, "averaging": 0.9}, max_steps=3)
    weight = next(module for module in seen[-1].modules() if isinstance(module, nn.Conv2d)).weight
    assert torch.allclose(weight.flatten(1).norm(dim=1), torch.ones(len(weight)))


def test_a_batch_may_exceed_the_data() -> None:
    with pytest.warns(UserWarning, match="a batch of 4,000 is larger than the training set of 1,500 examples"):
        record = train("digits", "momentum", 4_000, GOOD, max_steps=10)
    assert record.status == "not_reached"
    assert record.examples == 40_000
    assert record.notes == ("a batch of 4,000 repeats examples: the training set has 1,500",)


def few_digits(examples: int) -> Workload:
    """Of a budget of 100,000 examples."""
    data = load("digits")
    few = replace(data, train=Split(data.train.inputs[:examples], data.train.targets[:examples]))
    return replace(DIGITS, data=lambda _: few, target=0.2)


def test_a_budget_that_shows_examples_too_often_is_warned_of() -> None:
    said = "the step budget shows each of the 50 training examples up to 2,000 times"
    with pytest.warns(UserWarning, match=f"^{said}. Get more data, or lower `max_steps`.$"):
        record = train(few_digits(50), "momentum", 10, GOOD)
    assert record.notes == (said,)


def test_a_budget_that_shows_examples_often_enough_is_not() -> None:
    assert train(few_digits(100), "momentum", 10, GOOD).notes == ()  # exactly 1,000 times
    assert train(few_digits(50), "momentum", 10, GOOD, max_steps=5_000).notes == ()
    # The least number of steps is no budget of examples, nor is one that was asked for.
    assert train(few_digits(512), "momentum", 512, GOOD, max_steps=100_000).notes == ()


@pytest.mark.parametrize(
    ("name", "examples"),
    [("simple_cnn_mnist", 55_000), ("simple_cnn_fashion_mnist", 55_000), ("resnet8_cifar10", 45_000),
     ("resnet32_cifar10", 45_000), ("vgg11_cifar10", 45_000), ("digits", 1_500)],
)  # fmt: skip
def test_whole_data_sets_are_large_enough(name: str, examples: int) -> None:
    for size in ("laptop", "paper"):
        for batch_size in find_workload(name, size).batch_sizes:
            arguments = check_arguments(name, "sgd", batch_size, {"learning_rate": 0.1}, size=size)
            assert run_module.passes_of(arguments, examples) <= run_module.MOST_PASSES


def test_four_shards_of_lm1b_are_too_few_at_paper_size() -> None:
    arguments = check_arguments("transformer_lm1b", "sgd", 64, {"learning_rate": 0.1}, size="paper")
    assert run_module.passes_of(arguments, 8_200) > 7_000


def test_a_target_on_the_training_set() -> None:
    record = train("digits", "momentum", 64, GOOD, target_on="train")
    assert (record.status, record.target, record.target_on) == ("reached", DIGITS.train_target, "train")


def test_the_schedule_sets_the_learning_rate() -> None:
    rates: list[float] = []

    def build(model: nn.Module, settings: Any, task: Task) -> Any:
        optimizer = torch.optim.SGD(model.parameters(), lr=settings["learning_rate"])
        optimizer.register_step_pre_hook(lambda *_: rates.append(optimizer.param_groups[0]["lr"]))
        return optimizer

    settings = {"learning_rate": 0.5, "final_fraction": 0.2, "decay_steps": 4.0}
    train("digits", Recipe("spied", build), 8, settings, schedule="linear_decay", max_steps=6)
    assert rates == pytest.approx([0.5, 0.4, 0.3, 0.2, 0.1, 0.1])


def test_threads_are_set_for_the_run_only() -> None:
    before, seen = torch.get_num_threads(), set()
    train("digits", "sgd", 8, {"learning_rate": 0.1}, max_steps=3, threads=1,
          watch=lambda _: seen.add(torch.get_num_threads()))  # fmt: skip
    assert seen == {1}
    assert torch.get_num_threads() == before


def test_what_the_caller_draws_is_not_disturbed() -> None:
    torch.manual_seed(5)
    wanted = torch.rand(1)
    torch.manual_seed(5)
    train("digits", "sgd", 8, {"learning_rate": 0.1}, max_steps=3)
    assert torch.equal(torch.rand(1), wanted)


def test_progress_is_told_after_every_step() -> None:
    seen: list[Progress] = []
    train("digits", "sgd", 8, {"learning_rate": 0.1}, max_steps=5, watch=seen.append)
    assert [progress.step for progress in seen] == [1, 2, 3, 4, 5]
    assert {(progress.max_steps, progress.metric, progress.target) for progress in seen} == {(5, "accuracy", 0.97)}


class Dropping(nn.Module):
    """A model that draws random numbers while it trains."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.Dropout(0.3), nn.ReLU(), nn.Linear(32, 10))

    def forward(self, pictures: Tensor) -> Tensor:
        logits: Tensor = self.layers(pictures)
        return logits


def stop_at(step: int) -> Callable[[int], Any]:
    return lambda taken: "interrupted" if taken == step else None


@pytest.mark.parametrize("optimizer", [*RECIPES, "momentum+ema"])
def test_a_run_that_is_picked_up_goes_on_to_the_bit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, optimizer: str
) -> None:
    workload = replace(DIGITS, model=Dropping, target=0.999)
    run = partial(train, workload, optimizer, 32, {"learning_rate": 0.02}, max_steps=60, schedule="cosine")
    never_stopped = final_weights(monkeypatch, run)
    saved = tmp_path / "run.pt"
    for step in (13, 37):
        with pytest.raises(Interrupted) as stopped:
            run(checkpoint=saved, stop=stop_at(step))
        assert (stopped.value.step, stopped.value.checkpoint) == (step, saved)
    picked_up = final_weights(monkeypatch, partial(run, checkpoint=saved))
    assert outcome(picked_up[0]) == outcome(never_stopped[0])
    assert all(torch.equal(a, b) for a, b in zip(picked_up[1], never_stopped[1], strict=True))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("optimizer", ["muon+ema", "adam", "adamw+ema"])
def test_convolutions_are_picked_up_to_the_bit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, optimizer: str) -> None:
    run = partial(train, TINY_VGG, optimizer, 48, {"learning_rate": 0.01}, max_steps=6)
    never_stopped = final_weights(monkeypatch, run)
    with pytest.raises(Interrupted):
        run(checkpoint=tmp_path / "run.pt", stop=stop_at(3))
    picked_up = final_weights(monkeypatch, partial(run, checkpoint=tmp_path / "run.pt"))
    assert outcome(picked_up[0]) == outcome(never_stopped[0])
    assert all(torch.equal(a, b) for a, b in zip(picked_up[1], never_stopped[1], strict=True))


def test_a_run_is_saved_every_few_minutes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_module, "CHECKPOINT_SECONDS", 0.0)
    saved = tmp_path / "run.pt"
    there: list[bool] = []
    train("digits", "sgd", 8, {"learning_rate": 0.1}, max_steps=4, checkpoint=saved,
          watch=lambda _: there.append(saved.exists()))  # fmt: skip
    assert there == [False, True, True, True]
    assert not saved.exists()


def test_without_a_checkpoint_nothing_is_saved() -> None:
    with pytest.raises(Interrupted) as stopped:
        train("digits", "sgd", 8, {"learning_rate": 0.1}, stop=stop_at(3))
    assert stopped.value.checkpoint is None


def test_a_checkpoint_of_another_run_is_refused(tmp_path: Path) -> None:
    saved = tmp_path / "run.pt"
    with pytest.raises(Interrupted):
        train("digits", "sgd", 8, {"learning_rate": 0.1}, checkpoint=saved, stop=stop_at(3))
    with pytest.raises(BatchlensError, match=r"run\.pt belongs to a run with batch_size 8, not 16; delete it"):
        train("digits", "sgd", 16, {"learning_rate": 0.1}, checkpoint=saved)


def test_a_run_that_failed_keeps_its_checkpoint(tmp_path: Path) -> None:
    saved = tmp_path / "run.pt"
    with pytest.raises(Interrupted):
        train("digits", "sgd", 8, {"learning_rate": 0.1}, checkpoint=saved, stop=stop_at(3))

    def lack_memory(_: int) -> None:
        raise MemoryError

    record = train("digits", "sgd", 8, {"learning_rate": 0.1}, checkpoint=saved, stop=lack_memory)
    assert (record.status, record.reason) == ("failed", "MemoryError: ")
    assert saved.exists()


def test_a_checkpoint_of_another_model_is_refused(tmp_path: Path) -> None:
    saved = tmp_path / "run.pt"
    with pytest.raises(Interrupted):
        train(DIGITS, "sgd", 8, {"learning_rate": 0.1}, checkpoint=saved, stop=stop_at(3))
    with pytest.raises(BatchlensError, match="belongs to a run with shapes"):
        train(replace(DIGITS, model=Dropping), "sgd", 8, {"learning_rate": 0.1}, checkpoint=saved)
    with pytest.raises(BatchlensError, match="belongs to a run with source"):
        train(replace(DIGITS, source="edited"), "sgd", 8, {"learning_rate": 0.1}, checkpoint=saved)


def test_a_checkpoint_that_cannot_be_written_is_refused_at_once(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(BatchlensError, match=r"run\.pt cannot be written \(.+\); choose another checkpoint"):
        train("digits", "sgd", 8, {"learning_rate": 0.1}, checkpoint=tmp_path / "file" / "run.pt")


def test_a_run_is_pruned_at_a_rung() -> None:
    record = train("digits", "sgd", 8, {"learning_rate": 1e-4}, stop=lambda taken: "pruned" if taken > 10 else None)
    assert (record.status, record.steps, record.steps_taken) == ("pruned", None, 13)
    assert record.history[-1].step == 13


@pytest.mark.parametrize("seed", range(4))
def test_pruning_never_hides_a_target_that_was_met_before(seed: int) -> None:
    full = train("digits", "momentum", 32, GOOD, seed=seed)
    assert full.steps is not None
    limit = full.steps
    pruned = train("digits", "momentum", 32, GOOD, seed=seed, stop=lambda taken: "pruned" if taken > limit else None)
    assert (pruned.status, pruned.steps) == ("reached", full.steps)
    cut = train("digits", "momentum", 32, GOOD, seed=seed, stop=lambda taken: "pruned" if taken > limit / 2 else None)
    assert cut.status == "pruned" or cut.steps == full.steps


def test_the_loss_on_the_training_set_may_be_the_target() -> None:
    record = train("digits", "momentum", 64, GOOD, target_on="train-loss", target=0.2, also_targets=["train-loss:0.5"])
    assert (record.status, record.target, record.target_on) == ("reached", 0.2, "train-loss")
    easy, hard = (record.crossings[f"train-loss {loss}"]["plain"] for loss in ("0.5", "0.2"))
    assert easy.steps < hard.steps == record.steps
    alone = train("digits", "momentum", 64, GOOD, target_on="train-loss", target=0.5)
    assert alone.steps == easy.steps
    assert alone.steps_interpolated == easy.interpolated


def test_a_target_may_have_to_be_met_twice_in_a_row() -> None:
    for seed in range(3):
        once, twice = (
            train("digits", "sgd", 8, {"learning_rate": 0.5}, seed=seed, target=0.95, confirm_target=confirm)
            for confirm in (False, True)
        )
        assert once.steps is not None
        assert twice.steps is not None
        assert twice.steps >= once.steps
        exact = {entry.step: entry.metric for entry in twice.history if entry.exact}
        after = min(step for step in exact if step > twice.steps)
        assert exact[twice.steps] >= 0.95 <= exact[after]


def test_snapshots_that_would_take_too_much_memory_are_fewer(monkeypatch: pytest.MonkeyPatch) -> None:
    fine = train("digits", "momentum", 32, GOOD)
    monkeypatch.setattr(looking_module, "SNAPSHOT_BYTES", 100_000)
    coarse = train("digits", "momentum", 32, GOOD)
    assert fine.steps is not None
    assert coarse.steps is not None
    assert fine.steps <= coarse.steps <= fine.steps_taken == coarse.steps_taken


def test_a_document_is_json() -> None:
    document = train("digits", "sgd", 8, {"learning_rate": 0.1}, max_steps=3).as_document()
    assert document["status"] == "not_reached"
    assert [step for step, _ in document["history"]] == [0, 1, 2, 3]
    assert document["crossings"] == {}
    assert document["relations"][-1] == "="
    assert math.isfinite(document["seconds"])


class Line(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(()))

    def forward(self, inputs: Tensor) -> Tensor:
        return self.weight * inputs


def test_a_workload_of_ones_own_may_measure_what_it_likes() -> None:
    def data(_: Path | None) -> Dataset:
        inputs = torch.linspace(-1, 1, 64)[:, None]
        split = Split(inputs, 3 * inputs)
        return Dataset("line", split, split, 1, (), ())

    from batchlens.training.metrics import SQUARED_ERROR, squared_errors

    workload = Workload(
        "line", data, Line, 1e-4, 1e-4, loss=squared_errors, likelihood="squared_error", metric=SQUARED_ERROR
    )
    record = train(workload, "sgd", 16, {"learning_rate": 0.5}, max_steps=1_000)
    assert record.status == "reached"
    assert record.best_metric is not None
    assert record.best_metric <= 1e-4


@pytest.mark.slow
def test_momentum_reaches_the_target_on_mnist() -> None:
    if not is_present("mnist"):
        pytest.skip("the data set mnist is not here: batchlens data fetch mnist")
    settings = {"learning_rate": 0.03, "momentum": 0.9}
    first, second, other = (train("simple_cnn_mnist", "momentum", 128, settings, seed=seed) for seed in (0, 0, 1))
    assert first.status == other.status == "reached"
    assert outcome(first) == outcome(second)
    assert first.history != other.history


def test_a_run_may_go_on_to_its_other_targets() -> None:
    options = {"target_on": "train-loss", "target": 0.3, "also_targets": ["train-loss:0.1"]}
    short, long = (
        train("digits", "momentum", 64, GOOD, all_targets=all_targets, **options)  # type: ignore[arg-type]
        for all_targets in (False, True)
    )
    assert short.steps == long.steps
    assert "train-loss 0.1" not in short.crossings
    assert long.crossings["train-loss 0.1"]["plain"].steps > long.steps  # type: ignore[operator]
    cut = train("digits", "momentum", 64, GOOD, all_targets=True, max_steps=short.steps_taken, **options)  # type: ignore[arg-type]
    assert (cut.status, cut.steps) == ("reached", short.steps)
