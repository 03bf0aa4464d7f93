"""Data frames made of rows: whole numbers stay whole, and CSV tells everything."""

import csv
from typing import Any

import numpy as np
import pytest

from batchlens.report._page.numbers import csv_of, frame_of, groups, rows_of, stack

ROWS: list[dict[str, Any]] = [
    {"optimizer": "sgd", "power": 0.5, "steps": 10},
    {"optimizer": "momentum", "power": 0.5, "steps": None},
    {"optimizer": "sgd", "power": None, "steps": 30},
]
FRAME = frame_of(ROWS)


def test_whole_numbers_stay_whole() -> None:
    assert FRAME["steps"].tolist() == [10, None, 30]
    assert FRAME["power"].dtype == np.float64
    sizes = frame_of([{"size": 4}, {"size": 5.5}])["size"].tolist()
    assert list(map(type, sizes)) == [int, float]


def test_rows_come_back() -> None:
    assert rows_of(FRAME)[:2] == ROWS[:2]
    assert {type(row["steps"]) for row in rows_of(frame_of(ROWS[:1]))} == {int}


def test_groups_come_in_order_of_first_appearance() -> None:
    found = [(key, part["steps"].tolist()) for key, part in groups(FRAME, "optimizer")]
    assert found == [(("sgd",), [10, 30]), (("momentum",), [None])]


def test_what_is_missing_is_a_group_of_its_own() -> None:
    keys = [key for key, _ in groups(FRAME, "optimizer", "power")]
    assert keys[:2] == [("sgd", 0.5), ("momentum", 0.5)]
    assert keys[2][0] == "sgd"
    assert np.isnan(keys[2][1])


def test_csv_comes_back_in_full() -> None:
    third = np.float64(1 / 3)
    rows: list[dict[str, Any]] = [
        {"name": "a, b", "value": third, "count": 1},
        {"name": 'say "c"', "value": None, "count": None},
        {"name": "d\ne", "value": 1e20, "count": 10**20},
    ]
    text = csv_of(frame_of(rows))
    assert "\r" not in text
    assert list(csv.reader(text.splitlines(keepends=True))) == [
        ["name", "value", "count"],
        ["a, b", repr(1 / 3), "1"],
        ['say "c"', "", ""],
        ["d\ne", "1e+20", "1" + "0" * 20],
    ]


@pytest.mark.parametrize("value", [0.1 + 0.2, 5e-324, 1.7976931348623157e308, 1e16, 123456789.123456789, 2.0])
def test_csv_floats_are_those_of_python(value: float) -> None:
    assert csv_of(frame_of([{"value": value}])) == f"value\n{value!r}\n"


def test_no_rows() -> None:
    assert len(frame_of([])) == 0
    assert len(stack([])) == 0


def test_stacked_whole_numbers_stay_whole_beside_what_was_not_reached() -> None:
    nowhere = frame_of({**row, "steps": None} for row in ROWS)
    both = stack([frame_of(ROWS[:1]), nowhere])
    assert len(both) == 4
    assert csv_of(both).splitlines()[1:3] == ["sgd,0.5,10", "sgd,0.5,"]


def test_rows_must_have_the_same_columns() -> None:
    with pytest.raises(KeyError):
        frame_of([{"a": 1}, {"b": 2}])
