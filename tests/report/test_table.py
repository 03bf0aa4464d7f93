"""Small tables: rows, groups and CSV."""

import csv
from typing import Any

import numpy as np
import pytest

from batchlens.report._page.table import Table, concatenate

ROWS: list[dict[str, Any]] = [
    {"optimizer": "sgd", "power": 0.5, "steps": 10},
    {"optimizer": "momentum", "power": 0.5, "steps": None},
    {"optimizer": "sgd", "power": None, "steps": 30},
]
TABLE = Table.from_rows(ROWS)


def test_rows_come_back() -> None:
    assert list(TABLE.rows()) == ROWS
    assert len(TABLE) == 3
    assert TABLE["steps"] == (10, None, 30)


def test_numbers_have_nan_for_none() -> None:
    np.testing.assert_array_equal(TABLE.numbers("steps"), [10, np.nan, 30])


def test_where_keeps_what_is_equal_and_the_columns() -> None:
    assert list(TABLE.where(optimizer="sgd", power=None).rows()) == ROWS[2:]
    nothing = TABLE.where(optimizer="adam")
    assert len(nothing) == 0
    assert list(nothing.columns) == list(TABLE.columns)


def test_groups_come_in_order_of_first_appearance() -> None:
    groups = [(key, part["steps"]) for key, part in TABLE.groups("optimizer")]
    assert groups == [(("sgd",), (10, 30)), (("momentum",), (None,))]
    assert [key for key, _ in TABLE.groups("optimizer", "power")] == [("sgd", 0.5), ("momentum", 0.5), ("sgd", None)]


def test_csv_comes_back_in_full() -> None:
    third = np.float64(1 / 3)
    text = Table({"name": ("a, b", 'say "c"', "d\ne"), "value": (third, None, 10**20)}).to_csv()
    assert "\r" not in text
    rows = list(csv.reader(text.splitlines(keepends=True)))
    assert rows == [["name", "value"], ["a, b", repr(1 / 3)], ['say "c"', ""], ["d\ne", "1" + "0" * 20]]


def test_no_rows() -> None:
    table = Table.from_rows([])
    assert len(table) == 0
    assert list(table.rows()) == []
    assert list(concatenate([]).rows()) == []


def test_concatenate() -> None:
    assert list(concatenate([TABLE, TABLE.where(optimizer="sgd")]).rows()) == [*ROWS, ROWS[0], ROWS[2]]


def test_rows_must_have_the_same_columns() -> None:
    with pytest.raises(KeyError):
        Table.from_rows([{"a": 1}, {"b": 2}])
