import numpy as np
import pytest

from batchlens.sweep._declaration import Cell
from batchlens.sweep._points import run_seed, unit_point

CELL = Cell("momentum", 64)


def test_point_does_not_depend_on_what_was_asked_before() -> None:
    first = unit_point(7, CELL, 5, 2)
    points = [unit_point(7, CELL, number, 2) for number in range(40)]
    assert points[5] == first
    assert len(set(points)) == 40


def test_points_are_spread_evenly() -> None:
    points = np.array([unit_point(0, CELL, number, 3) for number in range(16)])
    for coordinate in points.T:
        assert sorted((coordinate * 16).astype(int)) == list(range(16))


@pytest.mark.parametrize("other", [(1, CELL), (0, Cell("sgd", 64)), (0, Cell("momentum", 128))])
def test_seed_and_cell_change_the_points(other: tuple[int, Cell]) -> None:
    assert unit_point(*other, 0, 2) != unit_point(0, CELL, 0, 2)


def test_first_point_is_pinned() -> None:
    """Stores of earlier versions go on only as long as this holds; a new value needs a new store version."""
    assert unit_point(0, CELL, 0, 2) == pytest.approx((0.7909853775054216, 0.2584947934374213), abs=1e-9)
    assert run_seed(0, 0) == 3964924996


def test_runs_have_seeds_of_their_own() -> None:
    seeds = {run_seed(seed, number, repeat) for seed in range(3) for number in range(10) for repeat in range(3)}
    assert len(seeds) == 90
