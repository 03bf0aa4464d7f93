import math
from collections.abc import Sequence

import pytest

from batchlens.sweep._declaration import MOST_NUMBERS, Cell
from batchlens.sweep._search import MOST_GENERATIONS, Edge, Generation, Search
from batchlens.sweep._trial import Key, Status, Task
from tests.sweep.simulation import (
    BUDGET,
    Fate,
    make_declaration,
    make_queue,
    make_trial,
    random_fates,
    search_by_definition,
    simulate,
)

CELL = Cell("sgd", 16)
ENDLESS = {"rate": (-math.inf, math.inf), "momentum": (-math.inf, math.inf)}


def make_search(ends: Sequence[tuple[Status, int]], trials: int = 3, position: float = 0.5) -> Search:
    ended = {}
    for number, (status, taken) in enumerate(ends):
        task = Task(Key(*CELL, number), {"rate": position, "momentum": 0.5}, {}, seed=0, max_steps=BUDGET)
        ended[number] = make_trial(task, status, taken)
    return Search(CELL, trials, [Generation(0, {"rate": (0.0, 1.0), "momentum": (0.0, 1.0)})], ended)


@pytest.mark.parametrize("pruning", [True, False])
@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("seed", range(40))
def test_search_is_what_its_definition_says(seed: int, workers: int, pruning: bool) -> None:
    declaration, fates = make_declaration(), random_fates(seed)
    queue = make_queue(declaration, shuffle=seed if seed % 2 else None)
    ended = simulate(queue, fates, workers, pruning, seed)
    for cell, search in queue.searches.items():
        numbers = range(MOST_NUMBERS * declaration.trials)
        expected = search_by_definition(
            {n: fates(Key(*cell, n)) for n in numbers}, declaration.trials, declaration.keep
        )
        assert search.length == expected.length
        assert sorted(key.number for key in ended if key.cell == cell) == list(range(expected.length))
        assert [(trial.steps, trial.key.number) for trial in search.ranking()[: declaration.keep]] == expected.best


def test_pruning_ends_runs_early() -> None:
    taken = []
    for pruning in (True, False):
        queue = make_queue(make_declaration(trials=20))
        taken.append(sum(trial.steps_taken for trial in simulate(queue, random_fates(0), 2, pruning).values()))
    assert taken[0] < taken[1] / 2


def test_tie_goes_to_the_lower_number() -> None:
    search = make_search([("reached", 9), ("reached", 7), ("reached", 7)])
    assert [trial.key.number for trial in search.ranking()] == [1, 2, 0]


def test_run_that_diverges_after_the_best_counts() -> None:
    assert make_search([("diverged", 6), ("reached", 7), ("reached", 9)]).open_numbers() == [3]
    assert make_search([("diverged", 7), ("reached", 7), ("reached", 9)]).length == 3


def test_search_without_a_best_waits_for_runs_that_do_not_diverge() -> None:
    diverged: list[tuple[Status, int]] = [("diverged", 50)]
    search = make_search(diverged * 3 * MOST_NUMBERS)
    assert search.length == 3 * MOST_NUMBERS
    assert make_search(diverged * 3).open_numbers() == [3]


def test_failed_run_never_counts() -> None:
    assert make_search([("failed", 90), ("reached", 7), ("reached", 9)]).open_numbers() == [3]


def test_numbers_below_the_trials_are_open_at_once() -> None:
    assert make_search([]).open_numbers() == [0, 1, 2]
    assert make_search([("diverged", 1)]).open_numbers() == [1, 2]


def test_pruning_limit_is_the_slowest_of_those_kept() -> None:
    search = make_search([("reached", 9), ("reached", 7), ("not_reached", 90)])
    assert [search.pruning_limit(keep) for keep in (1, 2, 3)] == [7, 9, None]


def test_pruning_limit_knows_nothing_of_trials_that_may_not_belong() -> None:
    search = make_search([("reached", 9), ("failed", 0), ("reached", 8), ("reached", 1)])
    del search.ended[1]  # to be run again; without a failure, number 3 is one too many
    assert search.pruning_limit(1) == 8


@pytest.mark.parametrize(
    ("position", "edges"), [(0.04, (Edge("rate", "low"),)), (0.06, ()), (0.96, (Edge("rate", "high"),))]
)
def test_winner_near_an_edge_is_found(position: float, edges: tuple[Edge, ...]) -> None:
    assert make_search([("reached", 9)] * 3, position=position).edges() == edges


def test_extension_widens_the_side_of_the_winner() -> None:
    search = make_search([("reached", 9)] * 3, position=0.99)
    generation = search.next_generation(ENDLESS)
    assert generation == Generation(3, {"rate": (0.0, 1.5), "momentum": (0.0, 1.0)})
    search.generations.append(generation)
    assert search.open_numbers() == [3, 4, 5]
    assert search.edges() == ()


def test_extension_keeps_away_from_what_a_setting_may_not_be() -> None:
    search = make_search([("reached", 9)] * 3, position=0.99)
    generation = search.next_generation({**ENDLESS, "rate": (0.0, 1.1)})
    assert generation is not None
    assert generation.box["rate"] == pytest.approx((0.0, 1.05))
    assert search.next_generation({**ENDLESS, "rate": (0.0, 1.0)}) is None


def test_extensions_come_to_an_end() -> None:
    search = make_search([("reached", 9)] * 3, position=0.99)
    search.generations *= MOST_GENERATIONS
    assert search.next_generation(ENDLESS) is None


def test_incomplete_search_is_not_extended() -> None:
    assert make_search([("reached", 9)] * 2, position=0.99).next_generation(ENDLESS) is None


def test_more_trials_are_added_to_those_there_are() -> None:
    search = make_search([("diverged", 1), ("reached", 7), ("reached", 9), ("reached", 9)])
    assert search.length == 4
    search.trials = 6
    assert search.open_numbers() == [4, 5]


def test_definition_of_the_search_on_a_case_worked_by_hand() -> None:
    fates = {0: Fate("diverged", 6), 1: Fate("reached", 9), 2: Fate("diverged", 9), 3: Fate("reached", 6)}
    assert search_by_definition(fates, trials=3, keep=1) == (4, [(6, 3)])
