"""Losses and metrics of each example, against sums and logarithms written out."""

import math

import pytest
import torch
from torch import Tensor, nn

from batchlens.training._evaluation import Evaluator
from batchlens.training.metrics import (
    ACCURACY,
    CROSS_ENTROPY,
    SQUARED_ERROR,
    Metric,
    Scores,
    cross_entropies,
    hits,
    shortfalls,
    smoothed_cross_entropies,
    squared_errors,
)


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)) * 2


def classes(count: int, *shape: int, seed: int = 1) -> Tensor:
    return torch.randint(count, shape, generator=torch.Generator().manual_seed(seed))


def surprise(scores: list[float], right: int, smoothing: float = 0.0) -> float:
    """-sum_k q_k log p_k, where q puts 1 - smoothing on the right class and spreads the rest over all of them."""
    total = sum(math.exp(score) for score in scores)
    shares = [smoothing / len(scores) + (1 - smoothing) * (k == right) for k in range(len(scores))]
    return -sum(share * math.log(math.exp(score) / total) for share, score in zip(shares, scores, strict=True))


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.5])
def test_cross_entropies(smoothing: float) -> None:
    outputs, targets = draw(6, 5), classes(5, 6)
    expected = [surprise(row.tolist(), int(k), smoothing) for row, k in zip(outputs, targets, strict=True)]
    assert cross_entropies(outputs, targets, smoothing).tolist() == pytest.approx(expected, rel=1e-5)
    assert smoothed_cross_entropies(smoothing)(outputs, targets).tolist() == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_cross_entropies_of_sequences(smoothing: float) -> None:
    outputs, targets = draw(3, 4, 5), classes(5, 3, 4)
    expected = [
        sum(surprise(outputs[n, k].tolist(), int(targets[n, k]), smoothing) for k in range(4)) / 4 for n in range(3)
    ]
    assert cross_entropies(outputs, targets, smoothing).tolist() == pytest.approx(expected, rel=1e-5)


def test_uniform_outputs_cost_the_logarithm_of_the_classes() -> None:
    assert cross_entropies(torch.zeros(2, 7), torch.tensor([0, 6])).tolist() == pytest.approx([math.log(7)] * 2)


def test_hits() -> None:
    outputs = torch.tensor([[1.0, 2, 0], [5, 2, 0], [-3, -2, -1], [0, 9, 8]])
    assert hits(outputs, torch.tensor([1, 1, 2, 2])).tolist() == [1, 0, 1, 0]


def test_hits_of_sequences() -> None:
    outputs = torch.tensor([[[1.0, 0], [0, 1], [1, 0], [0, 1]], [[1, 0], [1, 0], [1, 0], [1, 0]]])
    assert hits(outputs, torch.tensor([[0, 1, 0, 0], [1, 1, 1, 0]])).tolist() == [0.75, 0.25]


def test_shortfalls() -> None:
    outputs = torch.tensor([[1.0, 2, 0], [5, 2, 0], [-3, -2, -1]])
    # Largest other output, less the target's.
    assert shortfalls(outputs, torch.tensor([1, 1, 0])).tolist() == [1 - 2, 5 - 2, -1 + 3]
    assert shortfalls(outputs[None], torch.tensor([[1, 1, 0]])).tolist() == pytest.approx([(-1 + 3 + 2) / 3])


def test_shortfalls_are_positive_exactly_on_misses() -> None:
    outputs, targets = draw(200, 4), classes(4, 200)
    assert torch.equal(shortfalls(outputs, targets) > 0, hits(outputs, targets) == 0)


def test_squared_errors() -> None:
    outputs, targets = torch.tensor([[1.0, 2], [0, -1]]), torch.tensor([[0.0, 4], [0, 3]])
    assert squared_errors(outputs, targets).tolist() == [(1 + 4) / 2, 16 / 2]
    assert squared_errors(outputs.view(1, 2, 2), targets.view(1, 2, 2)).tolist() == [(1 + 4 + 16) / 2]


@pytest.mark.parametrize("scores", [cross_entropies, smoothed_cross_entropies(0.1), hits, shortfalls])
def test_scores_do_not_depend_on_their_neighbours(scores: Scores) -> None:
    for outputs, targets in ((draw(4, 5), classes(5, 4)), (draw(4, 3, 5), classes(5, 4, 3))):
        single = torch.cat([scores(outputs[n : n + 1], targets[n : n + 1]) for n in range(4)])
        torch.testing.assert_close(scores(outputs, targets), single)


def test_better_is_up_or_down() -> None:
    assert [ACCURACY.meets(value, 0.9) for value in (0.89, 0.9, 0.91, math.nan)] == [False, True, True, False]
    for metric in (CROSS_ENTROPY, SQUARED_ERROR):
        assert [metric.meets(value, 0.9) for value in (0.89, 0.9, 0.91, math.nan)] == [True, True, False, False]


@pytest.mark.parametrize(("best", "metric"), [(1.0, ACCURACY), (0.0, CROSS_ENTROPY)])
def test_no_score_beats_the_best(best: float, metric: Metric) -> None:
    perfect = metric.scores(torch.tensor([[200.0, 0], [0, 200]]), torch.tensor([0, 1]))
    assert perfect.tolist() == [best, best] == [metric.best] * 2


@pytest.mark.parametrize(
    ("right", "count", "target"),
    [(4_850, 5_000, 0.97), (4_950, 5_000, 0.99), (4_500, 5_000, 0.9), (3_500, 5_000, 0.7), (29, 50, 0.58)],
)
def test_accuracy_on_the_dot_meets_its_target(right: int, count: int, target: float) -> None:
    for correct, meets in ((right, True), (right - 1, False)):
        targets = (torch.arange(count) >= correct).to(torch.int64)  # the model below always says 0
        evaluator = Evaluator(torch.tensor([[1.0, 0.0]]).expand(count, 2), targets, ACCURACY)
        found = evaluator.measure(nn.Identity(), 1, target)
        assert (found.exact and ACCURACY.meets(found.metric, target)) is meets
        full = evaluator.measure(nn.Identity(), 1)
        assert full.metric == correct / count
