"""The noise scale in a training loop, against exact values; and loops that it must not be fooled by."""

import copy
import json
import math
import pickle
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

import batchlens as bl
from batchlens.monitor._estimator import Parts, two_sizes
from batchlens.monitor._pooling import pool
from tests.monitor import exact

BATCH = 24


def make_model() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))


def make_data(examples: int = 60) -> tuple[Tensor, Tensor]:
    random = torch.Generator().manual_seed(1)
    inputs = torch.randn(examples, 6, generator=random)
    return inputs, inputs[:, :3].argmax(1)


def loss(model: nn.Module, inputs: Tensor, labels: Tensor) -> Tensor:
    return functional.cross_entropy(model(inputs), labels)


def data_rows(model: nn.Module) -> Tensor:
    return exact.gradients(model, loss, zip(*make_data(), strict=True), dict(model.named_parameters()))


def run(
    model: nn.Module, noise: bl.NoiseScale, steps: int, micro_batches: int = 1, batch: int = BATCH, factor: float = 1.0
) -> None:
    """Steps on batches drawn with replacement; the weights stay as they are."""
    inputs, labels = make_data()
    random = torch.Generator().manual_seed(2)
    for _ in range(steps):
        model.zero_grad()
        for chosen in torch.randint(len(inputs), (batch,), generator=random).chunk(micro_batches):
            (factor * loss(model, inputs[chosen], labels[chosen])).backward()
        noise.step()


# Against exact values ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("micro_batches", "settings"),
    [
        (1, {"by": "examples"}),
        (1, {"by": "examples", "examples": 4}),
        (4, {"by": "examples"}),
        (4, {"by": "micro_batches"}),
        (2, {"by": "micro_batches"}),
        (4, {}),
        (1, {}),
    ],
)
def test_the_noise_scale_is_that_of_the_data(micro_batches: int, settings: dict[str, Any]) -> None:
    model = make_model()
    truth = exact.of_data(data_rows(model))
    noise = bl.NoiseScale(model, **settings)
    run(model, noise, 300, micro_batches)
    found = noise.estimate()
    assert found.value == pytest.approx(truth, rel=0.15)
    assert found.interval is not None
    assert found.interval[0] < truth < found.interval[1] < 1.5 * found.interval[0]
    assert found.steps_needed == 0


@pytest.mark.parametrize(("by", "micro_batches"), [("examples", 1), ("micro_batches", 4)])
def test_adams_geometry_is_that_of_the_data(by: str, micro_batches: int) -> None:
    model = make_model()
    adam = torch.optim.Adam(model.parameters(), lr=0.0, eps=1e-4)
    for chosen in torch.arange(60).chunk(10):
        adam.zero_grad()
        loss(model, *(part[chosen] for part in make_data())).backward()
        adam.step()
    rows = data_rows(model)
    squares = rows.mean(0).square().float().split([parameter.numel() for parameter in model.parameters()])
    for own, square in zip(adam.state.values(), squares, strict=True):  # so that entries with little signal weigh most
        own["exp_avg_sq"] = square.view_as(own["exp_avg_sq"])
    weights = [1 / ((own["exp_avg_sq"] / (1 - 0.999**10)).sqrt() + 1e-4) for own in adam.state.values()]
    truth = exact.of_data(rows, torch.cat([weight.flatten() for weight in weights]))
    assert abs(truth / exact.of_data(rows) - 1) > 0.5  # it is another one
    noise = bl.NoiseScale(model, by=by, geometry=adam)
    run(model, noise, 300, micro_batches)
    found = noise.estimate()
    assert found.geometry == "preconditioned"
    assert found.value == pytest.approx(truth, rel=0.15)


@pytest.mark.parametrize("by", ["examples", "micro_batches"])
def test_parameters_that_adam_does_not_have_are_left_out(by: str) -> None:
    model = make_model()
    adam = torch.optim.Adam(model[2].parameters(), lr=0.0)
    noise = bl.NoiseScale(model, by=by, geometry=adam, examples=None)
    assert noise.left_out == {"0.weight": "not in the optimizer", "0.bias": "not in the optimizer"}
    inputs, labels = make_data(BATCH)
    for _ in range(2):
        model.zero_grad()
        for chosen in torch.arange(BATCH).chunk(2):
            loss(model, inputs[chosen], labels[chosen]).backward()
        noise.step()
        adam.step()
    names = ["2.weight", "2.bias"]
    rows = exact.gradients(model, loss, zip(inputs, labels, strict=True), names)
    weights = 1 / (2 * rows.mean(0)).abs().add(1e-8)  # v is the square of the only gradient
    wanted = exact.of_batch(2 * rows * weights.sqrt(), small_batch=1 if by == "examples" else 12)
    assert noise.estimate().steps == 1
    assert noise._records[-1][:2] == pytest.approx(wanted, rel=1e-3)


def test_the_l1_scale_is_that_of_the_data_where_signs_come_right() -> None:
    model = make_model()
    rows = data_rows(model)
    truth = float((rows.std(0, correction=0).sum() / rows.mean(0).abs().sum()).square())
    noise = bl.NoiseScale(model, geometry="l1")
    run(model, noise, 60, 4, batch=2000)
    found = noise.estimate()
    assert found.geometry == "l1"
    assert found.value == pytest.approx(truth, rel=0.1)
    assert found.interval is not None
    assert found.interval[0] < found.value < found.interval[1]  # type: ignore[operator]


@pytest.mark.parametrize("factor", [1.0, 0.25, 4.0])
def test_every_micro_batch_counts_however_the_loss_is_divided(factor: float) -> None:
    model = make_model()
    inputs, labels = make_data(BATCH)
    noise = bl.NoiseScale(model, by="micro_batches")
    for chosen in torch.arange(BATCH).chunk(4):
        (factor * loss(model, inputs[chosen], labels[chosen])).backward()
    noise.step()
    rows = exact.gradients(model, loss, zip(inputs, labels, strict=True), dict(model.named_parameters()))
    wanted = exact.of_batch(4 * factor * rows, small_batch=6)
    assert noise._records[-1][:2] == pytest.approx(wanted, rel=1e-4)


SIZES = (2, 6, 16)


def parts_of(small: Sequence[Tensor], by: str, reduction: str) -> Parts:
    """Noise and signal of a step from the gradients of all examples in its small batches, losses not divided."""
    sums = [rows.mean(0) if reduction == "mean" else rows.sum(0) for rows in small]
    shares = [len(rows) if reduction == "mean" else 1 for rows in small]
    by_examples = by == "examples"
    values = [
        float((rows / share).square().sum(1).mean() if by_examples else whole.square().sum())
        for rows, share, whole in zip(small, shares, sums, strict=True)
    ]
    found = pool(
        values,
        [len(rows) for rows in small],
        by_examples=by_examples,
        mean=reduction == "mean",
        group=None,
        device=torch.device("cpu"),
    )
    large = float(torch.stack(sums).sum(0).square().sum())
    return two_sizes(found.small, large, found.small_batch, found.large_batch)


@pytest.mark.parametrize("by", ["examples", "micro_batches"])
@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_micro_batches_of_different_size(by: str, reduction: str) -> None:
    """Of 2, 6 and 16 examples: over many draws both parts are without bias, and a step of a training is such a draw."""
    model = make_model()
    rows = data_rows(model)
    random = torch.Generator().manual_seed(3)
    drawn = [torch.randint(60, (BATCH,), generator=random).split(SIZES) for _ in range(4000)]
    noise, signal = (
        sum(part) / len(part)
        for part in zip(*(parts_of([rows[own] for own in batch], by, reduction)[:2] for batch in drawn), strict=True)
    )
    unit = (len(SIZES) if reduction == "mean" else BATCH) ** 2
    assert signal == pytest.approx(unit * float(rows.mean(0).square().sum()), rel=0.05)
    assert noise == pytest.approx(unit * float(rows.var(0, correction=0).sum()), rel=0.05)

    measured = bl.NoiseScale(model, by=by, reduction=reduction)
    inputs, labels = make_data()
    for own in drawn[0]:
        functional.cross_entropy(model(inputs[own]), labels[own], reduction=reduction).backward()
    measured.step()
    wanted = parts_of([rows[own] for own in drawn[0]], by, reduction)
    assert measured._records[-1] == pytest.approx(wanted, rel=1e-4)
    assert wanted.weight == pytest.approx(BATCH if reduction == "sum" else 9 / (1 / 2 + 1 / 6 + 1 / 16))


def test_what_a_step_is_made_of_is_detected() -> None:
    for micro_batches, way in ((1, "examples"), (3, "micro_batches")):
        model = make_model()
        noise = bl.NoiseScale(model)
        assert noise.by == "auto"
        run(model, noise, 3, micro_batches)
        assert (noise.by, noise.estimate().steps) == (way, 2)


def test_a_bounded_effort() -> None:
    model = make_model()
    noise = bl.NoiseScale(model, by="examples", every=3, window=5)
    run(model, noise, 13)
    assert noise.estimate().steps == 5
    faded = bl.NoiseScale(model, by="examples", half_life=2.0)
    run(model, faded, 30)
    assert faded.estimate().steps == 20


# What it says -----------------------------------------------------------------------------------


def test_before_any_step() -> None:
    found = bl.NoiseScale(make_model()).estimate()
    assert found.sentence == "No step has been measured yet."
    assert (found.value, found.interval, found.steps_needed) == (None, None, None)
    assert "0 steps" in repr(found)
    assert json.loads(json.dumps(found.as_document(), allow_nan=False))["noise"] is None


def test_where_the_signal_is_hidden_it_says_how_many_steps_more() -> None:
    model = make_model()
    noise = bl.NoiseScale(model, by="micro_batches", batch_size=1)
    run(model, noise, 8, 2, batch=2)
    found = noise.estimate()
    assert found.interval is not None
    assert math.isinf(found.interval[1])
    assert "set no upper end" in found.sentence or "may be anything" in found.sentence
    assert "more steps" in found.sentence
    assert found.steps_needed
    assert found.as_document()["interval"][1] is None


def test_a_window_that_is_too_short_is_told() -> None:
    model = make_model()
    noise = bl.NoiseScale(model, by="micro_batches", window=10)
    run(model, noise, 20, 2)
    assert noise.estimate(precision=0.01).too_short
    assert "more than `window` or `half_life` lets count" in noise.estimate(precision=0.01).sentence
    assert not noise.estimate(precision=10).too_short


def test_examples_that_are_not_independent_contradict_every_noise_scale() -> None:
    """The two halves of a batch are mirror images of each other, so that their gradients cancel."""
    model = nn.Linear(3, 1, bias=False)
    noise = bl.NoiseScale(model, by="examples")
    for _ in range(10):
        model.zero_grad()
        inputs = torch.randn(8, 3)
        model(torch.cat([inputs, -inputs])).mean().backward()
        noise.step()
    assert noise.estimate().signal < 0
    assert noise.estimate().interval is None
    assert "not drawn independently" in noise.estimate().sentence


def test_forward_passes_of_different_size_cannot_be_paired() -> None:
    model = make_model()
    noise = bl.NoiseScale(model, by="examples")
    (model(torch.randn(3, 6)).mean() + model(torch.randn(5, 6)).mean()).backward()
    with pytest.raises(bl.BatchlensError, match="forward passes of 3 and 5 examples"):
        noise.step()


def test_results_are_at_home_in_a_notebook() -> None:
    model = make_model()
    noise = bl.NoiseScale(model, by="examples")
    run(model, noise, 30)
    found = noise.estimate()
    assert found.to_frame()["noise_scale"].tolist() == [found.value]
    assert found.plot().get_xlabel() == "batch size"
    assert set(found.as_document()) >= {"value", "interval", "sentence", "steps", "by", "left_out", "skipped"}
    assert bl.NoiseScale(model).estimate().plot().get_ylim()[0] == 1


# Loops that must not fool it --------------------------------------------------------------------


def clip(model: nn.Module) -> None:
    nn.utils.clip_grad_norm_(model.parameters(), 1e-3)


def halve(model: nn.Module) -> None:
    for parameter in model.parameters():
        assert parameter.grad is not None
        parameter.grad *= 0.5


def forget(model: nn.Module) -> None:
    model.zero_grad()


@pytest.mark.parametrize("change", [clip, halve, forget])
@pytest.mark.parametrize("by", ["examples", "micro_batches"])
def test_gradients_changed_before_the_step_are_refused(by: str, change: Callable[[nn.Module], None]) -> None:
    model = make_model()
    noise = bl.NoiseScale(model, by=by)
    inputs, labels = make_data(BATCH)
    for _ in range(2):
        loss(model, inputs, labels).backward()
    change(model)
    with pytest.raises(bl.BatchlensError, match=r"changed after backward\(\): call step\(\) before"):
        noise.step()


@pytest.mark.parametrize("by", ["examples", "micro_batches"])
def test_clipping_to_no_norm_at_all_changes_nothing(by: str) -> None:
    """As the Trainer of Hugging Face does it, to know the norm."""
    model, (inputs, labels) = make_model(), make_data()
    told = []
    for clips in (False, True):
        noise = bl.NoiseScale(model, by=by)
        for factor in (1.0, math.inf):
            model.zero_grad()
            for _ in range(2):
                (factor * loss(model, inputs[:8], labels[:8])).backward()
            if clips:
                nn.utils.clip_grad_norm_(model.parameters(), math.inf)
            noise.step()
        noise.close()
        told.append((list(noise._records), noise.skipped))
    assert told[0] == told[1]
    assert told[0][1] == 1


def test_a_step_in_the_middle_of_an_accumulation_is_refused() -> None:
    model = make_model()
    noise = bl.NoiseScale(model, by="examples")
    inputs, labels = make_data(BATCH)
    loss(model, inputs, labels).backward()
    noise.step()
    loss(model, inputs, labels).backward()
    with pytest.raises(bl.BatchlensError, match="gradients already before the first backward pass"):
        noise.step()
    model.zero_grad(set_to_none=False)  # zeros are no gradients
    loss(model, inputs, labels).backward()
    noise.step()


def test_a_scaled_loss_is_scaled_back() -> None:
    model = make_model()
    plain = bl.NoiseScale(model, by="examples")
    run(model, plain, 20)
    plain.close()
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**12, growth_interval=3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    noise = bl.NoiseScale(model, by="examples", scaler=scaler)
    inputs, labels = make_data()
    random = torch.Generator().manual_seed(2)
    for _ in range(20):
        optimizer.zero_grad()
        chosen = torch.randint(len(inputs), (BATCH,), generator=random)
        scaler.scale(loss(model, inputs[chosen], labels[chosen])).backward()
        noise.step()
        scaler.step(optimizer)
        scaler.update()
    assert scaler.get_scale() > 2.0**12
    assert noise.estimate().noise == pytest.approx(plain.estimate().noise, rel=1e-4)
    assert noise.estimate().value == pytest.approx(plain.estimate().value, rel=1e-3)
    optimizer.zero_grad()
    scaler.scale(loss(model, inputs, labels)).backward()
    scaler.unscale_(optimizer)
    with pytest.raises(bl.BatchlensError, match="unscaled"):
        noise.step()


@pytest.mark.parametrize("by", ["examples", "micro_batches"])
def test_a_gradient_that_is_not_finite_is_skipped_and_counted(by: str) -> None:
    model = make_model()
    noise = bl.NoiseScale(model, by=by)
    run(model, noise, 5, 2)
    before = noise.estimate().value
    model.zero_grad()
    inputs, labels = make_data(BATCH)
    inputs[3, 0] = math.inf
    for _ in range(2):
        loss(model, inputs, labels).backward()
    noise.step()
    assert (noise.skipped, noise.estimate().steps, noise.estimate().value) == (1, 5, before)


@pytest.mark.parametrize("settings", [{"by": "examples"}, {"by": "micro_batches"}, {"geometry": "l1"}])
def test_evaluation_between_backward_passes_changes_nothing(settings: dict[str, Any]) -> None:
    model = make_model()
    noise = bl.NoiseScale(model, **settings)
    inputs, labels = make_data(BATCH)
    for busy in (False, True):
        model.zero_grad()
        for chosen in torch.arange(BATCH).chunk(2):
            whole = loss(model, inputs[chosen], labels[chosen])
            if busy:
                with torch.no_grad():
                    model(inputs[:7])
            whole.backward()
            if busy:
                model.eval()(inputs[:5])  # with a graph that is thrown away
                model.train()
                torch.autograd.grad(loss(model, inputs[:9], labels[:9]), list(model.parameters()))
        noise.step()
    assert noise._records[0] == noise._records[1]


def test_no_backward_pass_or_one_without_comparison_is_refused() -> None:
    model = make_model()
    for noise in (bl.NoiseScale(model), bl.NoiseScale(model, by="examples")):
        with pytest.raises(bl.BatchlensError, match="no backward pass"):
            noise.step()
    with pytest.raises(bl.BatchlensError, match="one backward pass on one process has nothing to be compared"):
        run(model, bl.NoiseScale(model, by="micro_batches"), 1)


def test_batch_norm_is_measured_by_micro_batches_and_refused_by_examples() -> None:
    model = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Linear(8, 3))
    noise = bl.NoiseScale(model)
    run(model, noise, 5, 3)
    assert noise.estimate().steps == 4
    with pytest.raises(bl.BatchlensError, match="Accumulate gradients"):
        run(model, bl.NoiseScale(model), 1)


def test_a_model_given_no_tensor_needs_the_batch_size() -> None:
    class Bare(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(6, 3))

        def forward(self, given: Callable[[], Tensor]) -> Tensor:
            return given() @ self.weight

    model = Bare()
    inputs, labels = make_data(BATCH)
    noise = bl.NoiseScale(model, by="micro_batches")
    for _ in range(2):
        functional.cross_entropy(model(lambda: inputs), labels).backward()
    with pytest.raises(bl.BatchlensError, match="Give `batch_size`"):
        noise.step()
    model.zero_grad()
    noise = bl.NoiseScale(model, by="micro_batches", batch_size=BATCH)
    for _ in range(2):
        functional.cross_entropy(model(lambda: inputs), labels).backward()
    noise.step()
    assert noise.estimate().batch_size == 2 * BATCH


class Uncalled(nn.Module):
    """As trainers have it that call a method of the model, never the model: its first part is given the examples."""

    def __init__(self, checkpointed: bool = False) -> None:
        super().__init__()
        self.net, self.checkpointed = make_model(), checkpointed

    def training_step(self, inputs: Tensor, labels: Tensor) -> Tensor:
        if not self.checkpointed:
            return functional.cross_entropy(self.net(inputs), labels)
        hidden = self.net[1](self.net[0](inputs))
        return functional.cross_entropy(checkpoint(self.net[2], hidden, use_reentrant=False), labels)


@pytest.mark.parametrize("checkpointed", [False, True])
@pytest.mark.parametrize("sizes", [(BATCH,), (16, 8)])
def test_a_model_that_is_never_called_says_what_one_that_is_says(sizes: tuple[int, ...], checkpointed: bool) -> None:
    inputs, labels = make_data(BATCH)
    told = []
    for model in (make_model(), Uncalled(checkpointed)):
        noise = bl.NoiseScale(model)
        for _ in range(3):
            model.zero_grad()
            for given, wanted in zip(inputs.split(sizes), labels.split(sizes), strict=True):
                one = model.training_step(given, wanted) if isinstance(model, Uncalled) else loss(model, given, wanted)
                one.backward()
            noise.step()
        told.append((noise.by, [number for parts in noise._records for number in parts]))
    assert told[0][0] == told[1][0] == ("examples" if len(sizes) == 1 else "micro_batches")
    assert len(told[0][1]) == 2 * 3
    assert told[1][1] == pytest.approx(told[0][1])


@pytest.mark.parametrize("by", ["auto", "micro_batches"])
@pytest.mark.parametrize("called", [True, False])
def test_two_losses_of_one_forward_pass_are_refused(by: str, called: bool) -> None:
    inputs, labels = make_data(BATCH)
    model = make_model() if called else Uncalled()
    noise = bl.NoiseScale(model, by=by)
    outputs = model(inputs) if called else model.net(inputs)  # type: ignore[operator]
    functional.cross_entropy(outputs, labels).backward(retain_graph=True)
    outputs.square().mean().backward()
    with pytest.raises(bl.BatchlensError, match="had 2 backward passes and 1 forward: several losses of one"):
        noise.step()


def test_two_forward_passes_before_two_backward_passes_are_two_micro_batches() -> None:
    inputs, labels = make_data(BATCH)
    model = make_model()
    noise = bl.NoiseScale(model, by="micro_batches")
    for one in [loss(model, *part) for part in zip(inputs.chunk(2), labels.chunk(2), strict=True)]:
        one.backward()
    noise.step()
    assert noise.estimate().batch_size == BATCH


# Its life ---------------------------------------------------------------------------------------


def count_hooks(model: nn.Module) -> int:
    return sum(len(module._forward_hooks) + len(module._forward_pre_hooks) for module in model.modules()) + sum(
        len(parameter._backward_hooks or ()) + len(parameter._post_accumulate_grad_hooks or ())
        for parameter in model.parameters()
    )


def test_hooks_come_off() -> None:
    model = make_model()
    with bl.NoiseScale(model, by="examples") as noise:
        run(model, noise, 4)
        assert count_hooks(model) > 0
    assert count_hooks(model) == 0
    assert noise.estimate().steps == 4
    noise = bl.NoiseScale(model, by="examples")
    del noise
    assert count_hooks(model) == 0


def test_copies_of_the_model_are_not_watched() -> None:
    model = make_model()
    noise = bl.NoiseScale(model, by="examples")
    inputs, labels = make_data(BATCH)
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        loss(other, inputs, labels).backward()
    assert noise._measuring._watch.micro_batches == []
    run(model, noise, 1)
    assert noise.estimate().steps == 1


def test_it_goes_on_after_a_checkpoint() -> None:
    model = make_model()
    whole = bl.NoiseScale(model, every=2)
    run(model, whole, 9)
    whole.close()
    resumed = bl.NoiseScale(model, every=2)
    resumed.load_state_dict(pickle.loads(pickle.dumps(whole.state_dict())))
    assert repr(resumed.estimate()) == repr(whole.estimate())
    assert resumed.by == "examples"
    run(model, resumed, 2)
    assert resumed.estimate().steps == whole.estimate().steps + 1
    with pytest.raises(bl.BatchlensError, match="plain by examples, this noise scale is plain by micro_batches"):
        bl.NoiseScale(model, by="micro_batches").load_state_dict(whole.state_dict())
    with pytest.raises(bl.BatchlensError, match="no state of a NoiseScale"):
        resumed.load_state_dict({"steps": 3})


def test_what_was_found_not_to_count_goes_with_a_checkpoint() -> None:
    class Positions(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words, self.places, self.head = nn.Embedding(7, 4), nn.Embedding(5, 4), nn.Linear(4, 7)

        def forward(self, tokens: Tensor) -> Any:
            return self.head(self.words(tokens) + self.places(torch.arange(tokens.shape[1])))

    torch.manual_seed(0)
    model = Positions()

    def go(noise: bl.NoiseScale, steps: int) -> None:
        for _ in range(steps):
            model.zero_grad()
            tokens = torch.randint(7, (6, 5))
            functional.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten()).backward()
            noise.step()

    before = bl.NoiseScale(model)
    go(before, 10)
    before.close()
    assert list(before.left_out) == ["places.weight"]
    after = bl.NoiseScale(model)
    after.load_state_dict(pickle.loads(pickle.dumps(before.state_dict())))
    assert after.left_out == before.left_out
    go(after, 1)
    assert after.estimate().steps == before.estimate().steps + 1


def test_steps_that_say_nothing_are_counted_where_nothing_was_measured() -> None:
    model = make_model()
    adam = torch.optim.Adam(model.parameters())  # which never steps
    noise = bl.NoiseScale(model, by="examples", geometry=adam)
    run(model, noise, 3)
    assert noise.estimate().sentence == "No step has been measured yet. 3 said nothing and were skipped."


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"by": "ranks"}, "`by` must be one of auto, examples, micro_batches, got 'ranks'"),
        ({"reduction": "none"}, "`reduction` must be one of mean, sum"),
        ({"geometry": "adam"}, "`geometry` must be None, an optimizer of the Adam family or 'l1'"),
        ({"geometry": "l1", "by": "examples"}, "needs micro-batches"),
        ({"every": 0}, "`every` must be at least 1"),
        ({"examples": 0}, "`examples` must be at least 1"),
        ({"window": 2}, "`window` must be at least 3"),
        ({"half_life": 0}, "`half_life` must be finite and above 0"),
        ({"batch_size": 0}, "`batch_size` must be at least 1"),
    ],
)
def test_bad_arguments_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        bl.NoiseScale(make_model(), **settings)


def test_models_that_cannot_be_measured_are_refused() -> None:
    model = make_model()
    with pytest.raises(ValueError, match="second moments, as Adam has, got SGD"):
        bl.NoiseScale(model, geometry=torch.optim.SGD(model.parameters()))
    with pytest.raises(ValueError, match="second moments, as Adam has, got Adamax"):
        bl.NoiseScale(model, geometry=torch.optim.Adamax(model.parameters()))
    with pytest.raises(ValueError, match="must have parameters that get gradients"):
        bl.NoiseScale(nn.Tanh())
    with pytest.raises(TypeError, match="`model` must be a Module"):
        bl.NoiseScale("model")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="`scaler` must be a GradScaler"):
        bl.NoiseScale(model, scaler=True)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="No parameter is of a layer"):
        bl.NoiseScale(nn.GRU(2, 3), by="examples")
    with pytest.raises(ValueError, match="DataParallel"):
        bl.NoiseScale(nn.DataParallel(model))
    with pytest.raises(ValueError, match="`precision` must be"):
        bl.NoiseScale(model).estimate(precision=0)
