"""Evaluations that read only what the decision needs decide as a full reading would."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from batchlens._grid import next_evaluation
from batchlens.training._evaluation import Evaluation, Evaluator
from batchlens.training.metrics import ACCURACY, CROSS_ENTROPY, SQUARED_ERROR, Metric

# A metric whose scores are the model's outputs themselves.
PRESCRIBED = {
    "cost": Metric("cost", lambda outputs, _: outputs, best=0.0, higher_is_better=False),
    "gain": Metric("gain", lambda outputs, _: outputs, best=1.0, higher_is_better=True),
}


class Prescribed(nn.Module):
    """Says of example k what `said[k]` is; remembers which examples it was shown, and how."""

    def __init__(self, said: Tensor) -> None:
        super().__init__()
        self.said = said
        self.shown: list[int] = []
        self.modes: list[bool] = []

    def forward(self, examples: Tensor) -> Tensor:
        self.shown += examples.tolist()
        self.modes.append(self.training)
        return self.said[examples]


def make(count: int, metric: Metric, targets: Tensor | None = None) -> Evaluator:
    return Evaluator(torch.arange(count), torch.zeros(count, dtype=torch.int64) if targets is None else targets, metric)


def mean_of(values: list[float]) -> float:
    return sum(values) / len(values)


def check_against_all(found: Evaluation, metric: Metric, true: float, target: float) -> None:
    """Whether an entry, given the true metric, is what it must be."""
    meets = true >= target if metric.higher_is_better else true <= target
    if found.exact:
        assert found.metric == true
    elif metric.higher_is_better:
        assert found.relation == "<="
        assert true <= found.metric < target
    else:
        assert found.relation == ">="
        assert true >= found.metric > target
    assert found.exact or not meets  # reached is always exact
    assert (found.exact and metric.meets(found.metric, target)) is meets


@given(
    data=st.data(),
    kind=st.sampled_from(["cost", "gain"]),
    count=st.integers(1, 400),
    target=st.floats(0, 1),
    seed=st.integers(0, 2**20),
)
@settings(max_examples=150, deadline=None)
def test_decisions_are_those_of_a_full_reading(
    data: st.DataObject, kind: str, count: int, target: float, seed: int
) -> None:
    metric = PRESCRIBED[kind]
    evaluator = make(count, metric)
    random = torch.Generator().manual_seed(seed)
    for step in range(4):
        # Scores are 64ths, so that sums are exact in any order and a tie with the target is a tie.
        level = data.draw(st.integers(0, 64))
        said = torch.randint(level + 1, (count,), generator=random) / 64
        said = 1 - said if kind == "gain" else said
        true = mean_of(said.tolist())
        goal = data.draw(st.sampled_from([target, true, math.nextafter(true, 2), math.nextafter(true, -1)]))
        model = Prescribed(said)
        found = evaluator.measure(model, step, goal)
        assert found.step == step
        check_against_all(found, metric, true, goal)
        assert len(set(model.shown)) == len(model.shown)
        assert found.exact == (sorted(model.shown) == list(range(count)))


@pytest.mark.parametrize("seed", range(8))
def test_accuracies_on_the_way_to_a_target(seed: int) -> None:
    random = torch.Generator().manual_seed(seed)
    count, classes = 3_000, 4
    targets = torch.randint(classes, (count,), generator=random)
    noise = torch.randn(count, classes, generator=random)
    evaluator, reached = make(count, ACCURACY, targets), []
    for step in range(12):
        outputs = noise + 0.4 * step * nn.functional.one_hot(targets, classes)
        right = sum(int(max(range(classes), key=row.__getitem__)) == k
                    for row, k in zip(outputs.tolist(), targets.tolist(), strict=True))  # fmt: skip
        found = evaluator.measure(Prescribed(outputs), step, 0.9)
        check_against_all(found, ACCURACY, right / count, 0.9)
        reached.append(found.exact and found.metric >= 0.9)
        noise += 0.05 * torch.randn(count, classes, generator=random)
    assert not reached[0]
    assert reached[-1]


@pytest.mark.parametrize("metric", [CROSS_ENTROPY, SQUARED_ERROR])
@pytest.mark.parametrize("seed", range(4))
def test_losses_on_the_way_to_a_target(metric: Metric, seed: int) -> None:
    random = torch.Generator().manual_seed(seed)
    count = 2_000
    labels = torch.randint(3, (count,), generator=random)
    one_hot = nn.functional.one_hot(labels, 3).float()
    evaluator = make(count, metric, labels if metric is CROSS_ENTROPY else one_hot)
    bounds = 0
    for step in range(12):
        outputs = torch.randn(count, 3, generator=random) * 0.5 + 0.4 * step * one_hot
        wide = outputs.double()
        if metric is CROSS_ENTROPY:
            each = wide.exp().sum(1).log() - (wide * one_hot).sum(1)
        else:
            each = (wide - one_hot).square().sum(1) / 2
        true, target = float(each.sum()) / count, 0.6
        found = evaluator.measure(Prescribed(outputs), step, target)
        meets = true <= target
        assert abs(true - target) > 1e-5  # rounding does not decide here
        assert (found.exact and found.metric <= target) is meets
        if found.exact:
            assert found.metric == pytest.approx(true, rel=1e-6)
        else:
            bounds += 1
            assert found.relation == ">="
            assert target < found.metric <= true * (1 + 1e-6)
    assert bounds > 0


def test_without_a_target_everything_is_read() -> None:
    said = torch.arange(2_500) / 4_096
    model = Prescribed(said)
    found = make(2_500, PRESCRIBED["cost"]).measure(model, 3)
    assert found == Evaluation(3, mean_of(said.tolist()), "=")
    assert sorted(model.shown) == list(range(2_500))


def test_far_from_the_target_little_is_read() -> None:
    evaluator, count = make(5_000, PRESCRIBED["gain"]), 5_000
    said = (torch.arange(count) % 10 == 0).float()  # a tenth scores 1
    read = []
    for step in range(3):
        model = Prescribed(said)
        found = evaluator.measure(model, step, 0.97)
        assert found.relation == "<="
        read.append(len(model.shown))
    assert max(read) < 300


def test_far_from_an_easy_target_a_glance_is_enough() -> None:
    right = torch.rand(5_000, generator=torch.Generator().manual_seed(0)) < 0.3
    model = Prescribed(torch.stack([right.float(), 0.5 * torch.ones(5_000)], dim=1))
    evaluator = make(5_000, ACCURACY)
    found = evaluator.measure(model, 0, 0.7)
    assert found.relation == "<="
    assert float(right.double().mean()) < found.metric < 0.7
    assert len(model.shown) <= 256


def test_a_glance_that_failed_is_the_last() -> None:
    right = torch.arange(5_000) % 100 < 58
    model = Prescribed(torch.stack([right.float(), 0.5 * torch.ones(5_000)], dim=1))
    evaluator = make(5_000, ACCURACY)
    assert evaluator.measure(model, 0, 0.6).relation == "<="
    assert evaluator.near
    evaluator.measure(model, 1)
    model.shown.clear()
    assert evaluator.measure(model, 2, 0.6).relation == "<="
    assert not right[model.shown].any()  # only those that were wrong


def test_sets_that_meet_an_easy_target_are_not_taken_for_others() -> None:
    """Three hundred sets within four points of accuracy of the target, on either side."""
    random = torch.Generator().manual_seed(2)
    hits = 0
    for step in range(300):
        share = 0.6 + 0.08 * (torch.rand((), generator=random).item() - 0.5)
        right = torch.rand(5_000, generator=random) < share
        evaluator = make(5_000, ACCURACY)  # a new one, which takes a glance
        found = evaluator.measure(Prescribed(torch.stack([right.float(), 0.5 * torch.ones(5_000)], dim=1)), step, 0.6)
        check_against_all(found, ACCURACY, int(right.sum()) / 5_000, 0.6)
        hits += found.exact and found.metric >= 0.6
    assert hits > 100


@pytest.mark.parametrize("shape", [0.3, 1.0, 4.0])
def test_sets_that_meet_the_target_are_not_taken_for_others(shape: float) -> None:
    """Student's bound against skewed losses, a thousand sets for each shape, most of them close to the target."""
    random = torch.Generator().manual_seed(1)
    read, misses = 0, 0
    for _ in range(1_000):
        said = torch._standard_gamma(torch.full((600,), shape), generator=random)
        target = float(said.double().mean()) * (1 + 0.2 * (torch.rand((), generator=random).item() - 0.5))
        model = Prescribed(said)
        found = make(600, PRESCRIBED["cost"]).measure(model, 0, target)
        meets = float(said.double().mean()) <= target
        assert (found.exact and found.metric <= target) is meets
        misses += not meets
        read += 0 if meets else len(model.shown)
    assert misses > 300
    assert read < 600 * misses


def test_losses_that_are_much_alike_are_told_from_the_target_by_few() -> None:
    said = 4.6 + 0.45 * torch.randn(2_000, generator=torch.Generator().manual_seed(0))
    model = Prescribed(said)
    evaluator = make(2_000, PRESCRIBED["cost"])
    for step in range(2):
        found = evaluator.measure(model, step, 4.3)
        assert found.relation == ">="
        assert 4.3 < found.metric < float(said.mean())
    assert len(model.shown) < 600


def test_the_hardest_of_last_time_come_first() -> None:
    count = 3_000
    evaluator = make(count, PRESCRIBED["cost"])
    hard = set(range(1_700, 2_000))
    said = torch.zeros(count)
    said[1_700:2_000] = 1
    assert evaluator.measure(Prescribed(said), 0).metric == 0.1
    model = Prescribed(said)
    found = evaluator.measure(model, 1, 0.05)
    assert not found.exact
    assert set(model.shown) <= hard


def test_near_misses_are_read_before_safe_hits() -> None:
    outputs = torch.zeros(200, 2)
    outputs[:, 0] = torch.linspace(20, 0.1, 200)  # all right, the last ones only just
    evaluator = make(200, ACCURACY)
    evaluator.measure(Prescribed(outputs), 0)
    model = Prescribed(outputs)
    evaluator.measure(model, 1, 0.5)
    assert model.shown == list(range(199, -1, -1))


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("target", [None, 0.0, 1.0])
def test_models_are_read_in_evaluation_mode_and_left_as_they_were(training: bool, target: float | None) -> None:
    model = nn.Sequential(Prescribed(torch.full((300,), 0.5)), nn.Dropout(0.5))
    model.train(training)
    make(300, PRESCRIBED["cost"]).measure(model, 0, target)
    assert [module.training for module in model.modules()] == [training] * 3
    inner = model[0]
    assert isinstance(inner, Prescribed)
    assert inner.modes
    assert not any(inner.modes)


def test_measuring_asks_for_no_gradient() -> None:
    layer = nn.Linear(2, 3)
    Evaluator(torch.ones(5, 2), torch.zeros(5, dtype=torch.int64), CROSS_ENTROPY).measure(layer, 0, 0.1)
    assert layer.weight.grad is None
    layer(torch.ones(5, 2)).sum().backward()  # and leaves none out afterwards
    assert layer.weight.grad is not None


@pytest.mark.parametrize("metric", [ACCURACY, CROSS_ENTROPY])
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("share", [1, 7])
def test_outputs_that_are_no_numbers_never_meet_a_target(metric: Metric, bad: float, share: int) -> None:
    count = 500
    targets = torch.ones(count, dtype=torch.int64)
    outputs = torch.zeros(count, 3)
    outputs[:, 1] = 5.0
    outputs[::share] = bad
    evaluator = make(count, metric, targets)
    target = 0.99 if metric is ACCURACY else 0.1
    for step, goal in enumerate((target, None, target)):
        found = evaluator.measure(Prescribed(outputs), step, goal)
        assert not metric.meets(found.metric, target)
    # What was learnt from such outputs does not spoil later decisions.
    outputs[:] = torch.tensor([0.0, 9.0, 0.0])
    found = evaluator.measure(Prescribed(outputs), 3, target)
    assert found.exact
    assert metric.meets(found.metric, target)


def test_difficulties_carry_over_to_an_evaluator_that_goes_on() -> None:
    random = torch.Generator().manual_seed(0)
    said = torch.rand(3_000, generator=random).round(decimals=2)
    first, second = make(3_000, PRESCRIBED["cost"]), make(3_000, PRESCRIBED["cost"])
    first.measure(Prescribed(said), 0, 0.3)
    second.difficulty = first.difficulty.clone()
    one, other = Prescribed(said), Prescribed(said)
    assert first.measure(one, 1, 0.3) == second.measure(other, 1, 0.3)
    assert one.shown == other.shown


def test_exact_is_the_equals_sign() -> None:
    assert Evaluation(1, 0.5).exact
    assert not Evaluation(1, 0.5, "<=").exact
    assert not Evaluation(1, 0.5, ">=").exact


@given(st.integers(0, 10**9))
def test_evaluations_grow_by_three_percent_or_one_step(step: int) -> None:
    after = next_evaluation(step)
    assert after > step
    assert after == step + 1 or 100 * after <= 103 * step
    # And no sooner: another step would be more than 3%.
    assert 100 * (after + 1) > 103 * step


def test_evaluations_of_a_run() -> None:
    steps = [0]
    while steps[-1] < 100_000:
        steps.append(next_evaluation(steps[-1]))
    assert steps[:68] == list(range(68))
    assert len(steps) < 350
