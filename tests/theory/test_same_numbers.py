"""The comparison that benchmarks/same_numbers.py makes."""

import importlib.util
from pathlib import Path
from typing import Any

import pytest

PATH = Path(__file__).parents[2] / "benchmarks" / "same_numbers.py"


def load() -> Any:
    spec = importlib.util.spec_from_file_location("same_numbers", PATH)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


COMPARE = load()


@pytest.mark.parametrize(
    ("before", "after", "same"),
    [
        ("sgd", "sgd", True),
        ("sgd", "momentum", False),
        ("12", "12", True),
        ("12", "12.0", True),
        ("12", "13", False),
        ("", "12", False),
        ("1000000000000000", "1000000000000001", False),
        ("0.1", "0.10000000000000001", True),
        ("0.1", "0.10000000000001", True),
        ("0.1", "0.100000000001", False),
        ("0.5", "nan", False),
        ("0.5", "inf", False),
    ],
)
def test_entries_differ_by_words_by_whole_numbers_or_by_more_than_rounding(before: str, after: str, same: bool) -> None:
    assert COMPARE.compare_tables([["x"], [before]], [["x"], [after]]).same is same


def test_another_shape_is_a_difference() -> None:
    assert not COMPARE.compare_tables([["1"]], [["1"], ["2"]]).same
    assert not COMPARE.compare_tables([["1"]], [["1", "2"]]).same


def test_files_are_compared_by_bytes_first(tmp_path: Path) -> None:
    before, after = tmp_path / "before.csv", tmp_path / "after.csv"
    before.write_text("steps,rate\n12,0.5\n", encoding="utf-8")
    assert COMPARE.compare_files(before, after).words == "there is none now"
    after.write_text("steps,rate\n12,0.5\n", encoding="utf-8")
    assert COMPARE.compare_files(before, after).words == "the same bytes"
    after.write_text("steps,rate\n12,0.50000000000001\n", encoding="utf-8")
    assert 0 < COMPARE.compare_files(before, after).largest < 1e-12
    after.write_text("steps,rate\n11,0.5\n", encoding="utf-8")
    assert COMPARE.compare_files(before, after).words == "row 1: '12', now '11'"


def test_winners_are_rows_of_a_sweep_s_document() -> None:
    point = {"batch_size": 16, "steps": 175, "settings": {"momentum": 0.9, "learning_rate": 0.1}}
    document = {"curves": [{"optimizer": "momentum", "points": [point, point | {"steps": None, "settings": None}]}]}
    assert COMPARE.winners(document) == [
        ["momentum", "16", "175", "learning_rate=0.1", "momentum=0.9"],
        ["momentum", "16", "None"],
    ]
