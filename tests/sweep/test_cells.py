import itertools
import math
from fractions import Fraction
from pathlib import Path
from random import Random
from statistics import fmean

import numpy as np
import pytest

from batchlens.sweep import _cells as results_module
from batchlens.sweep._cells import CellResult, _best_of, _mean_of_met, _shown, cell_results
from batchlens.sweep._declaration import Cell
from batchlens.sweep._store import Store
from batchlens.sweep._trial import Key, Status, Task
from tests.sweep.simulation import BUDGET, make_declaration, make_trial

CELL = Cell("sgd", 16)
ENDS: list[tuple[Status, int]] = [
    ("reached", 9),
    ("pruned", 10),
    ("diverged", 2),
    ("reached", 7),
    ("not_reached", BUDGET),
]


@pytest.fixture
def results(tmp_path: Path) -> list[CellResult]:
    with Store.open_to_write(tmp_path / "sweep.sqlite", make_declaration(trials=4)) as store:
        for number, (status, taken) in enumerate(ENDS):
            position = {"learning_rate": 0.99 if number == 3 else 0.5, "momentum": 0.5}
            store.add(make_trial(Task(Key(*CELL, number), position, {}, 0, BUDGET), status, taken))
        again = Task(Key(*CELL, 3, 1), position, {}, 1, BUDGET)
        store.add(make_trial(again, "reached", 8))
        return cell_results(store)


def test_winner_runners_up_and_counts(results: list[CellResult]) -> None:
    result = results[0]
    assert result.winner is not None
    assert (result.winner.key.number, result.winner.steps) == (3, 7)
    assert [trial.key.number for trial in result.runners_up] == [0]
    assert (result.counted, result.complete) == (4, True)
    assert result.statuses == {"reached": 2, "pruned": 1, "diverged": 1, "not_reached": 1}
    assert result.steps_saved == BUDGET - 10
    assert result.repeat_steps() == [8]


def test_flags(results: list[CellResult]) -> None:
    assert results[0].flags == ("the winner's learning_rate is near the high end of its range",)
    assert results[1].flags == ("not all trials have been run",)
    assert results[1].winner is None


def test_best_of_n_is_the_mean_over_all_draws(results: list[CellResult]) -> None:
    steps = [9, math.inf, 7, math.inf]
    for drawn, chance, expected in results[0].best_of():
        best = [min(draw) for draw in itertools.combinations(steps, drawn)]
        reached = [value for value in best if value < math.inf]
        assert chance == pytest.approx(len(reached) / len(best))
        assert expected == pytest.approx(fmean(reached))


def test_bootstrap_resamples_the_trials_that_count(results: list[CellResult]) -> None:
    sample = results[0].bootstrap(20_000)
    assert np.nanmin(sample) == 7
    assert np.mean(sample == 7) == pytest.approx(1 - (3 / 4) ** 4, abs=0.01)
    assert np.mean(np.isnan(sample)) == pytest.approx((2 / 4) ** 4, abs=0.01)
    np.testing.assert_array_equal(sample, results[0].bootstrap(20_000))


def test_results_of_a_cell_without_trials(results: list[CellResult]) -> None:
    assert results[1].best_of() == []
    assert np.isnan(results[1].bootstrap(3)).all()


def by_combinations(steps: list[int], total: int, drawn: int) -> tuple[float, float]:
    """Chance and expected steps in whole numbers, as the formula says."""
    ways = [math.comb(total - place, drawn - 1) for place in range(1, len(steps) + 1)]
    expected = Fraction(sum(way * count for way, count in zip(ways, steps, strict=True)), sum(ways))
    return float(Fraction(sum(ways), math.comb(total, drawn))), float(expected)


@pytest.mark.parametrize(("total", "reached"), [(1, 1), (7, 3), (150, 150), (400, 1), (400, 390)])
def test_best_of_n_is_what_combinations_say(total: int, reached: int) -> None:
    random = Random(total)
    steps = sorted(random.choice([3, random.randrange(1, 10**7)]) for _ in range(reached))
    for drawn in _shown(total):
        chance, expected = by_combinations(steps, total, drawn)
        assert _best_of(np.array(steps, dtype=np.float64), total, drawn) == pytest.approx(
            (drawn, chance, expected), 1e-9
        )


def test_best_of_many_shows_some_numbers_of_each_decade() -> None:
    assert _shown(100) == list(range(1, 101))
    shown = _shown(100_000)
    assert shown[:100] == list(range(1, 101))
    assert (shown[-1], len(shown)) == (100_000, 401)


def test_best_of_as_many_trials_as_anyone_has() -> None:
    last = _best_of(np.arange(1.0, 80_001.0), 100_000, 100_000)
    assert last == (100_000, 1.0, 1.0)
    assert _best_of(np.arange(1.0, 80_001.0), 100_000, 1).steps == pytest.approx(40_000.5, 1e-9)


def test_bootstrap_draws_the_same_in_parts(results: list[CellResult], monkeypatch: pytest.MonkeyPatch) -> None:
    at_once = results[0].bootstrap()
    monkeypatch.setattr(results_module, "_AT_ONCE", 50)
    assert np.array_equal(results[0].bootstrap(), at_once, equal_nan=True)


def test_another_target_that_a_seed_missed_is_bounded_from_three_on_that_met_it() -> None:
    given = [400, 400, 400, 800]
    steps, interval = _mean_of_met([100.0, 200.0, 100.0, None], given)
    assert steps == pytest.approx((100 * 200 * 100 * 800) ** 0.25)
    assert interval is not None
    assert interval.low == pytest.approx(63.11, abs=0.01)  # 200 * exp(-2.353 * 0.98 / 2)
    assert interval.high is None
    whole, closed = _mean_of_met([100.0, 200.0], given[:2])
    assert whole == pytest.approx(math.sqrt(100 * 200))
    assert closed is not None
    assert closed.high is not None
    assert _mean_of_met([100.0, 200.0, None], given[:3]) == (None, None)
    assert _mean_of_met([None, None], given[:2]) == (None, None)
    assert _mean_of_met([], []) == (None, None)
