"""The numbers of figures and claims: data frames made of rows, and written as CSV."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import pandas as pd


def frame_of(rows: Iterable[Mapping[str, Any]]) -> pd.DataFrame:
    """A frame of rows that all have the same keys.

    Whole numbers stay whole where some are missing or stand among others that are not.

    >>> frame_of([{"power": 0.0, "steps": 8}, {"power": None, "steps": None}])
       power steps
    0    0.0     8
    1    NaN  None
    """
    listed = list(rows)
    names = list(listed[0]) if listed else []
    return pd.DataFrame({name: _column([row[name] for row in listed]) for name in names})


def rows_of(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """The rows of a frame as dictionaries."""
    return [{str(name): value for name, value in row.items()} for row in frame.to_dict("records")]


def known_rows(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """The rows of a frame, None where a value is missing."""
    return [{name: None if pd.isna(value) else value for name, value in row.items()} for row in rows_of(frame)]


def groups(frame: pd.DataFrame, *names: str) -> Iterator[tuple[tuple[Any, ...], pd.DataFrame]]:
    """The frame in parts that agree on the named columns, in order of first appearance."""
    for key, part in frame.groupby(list(names), sort=False, dropna=False):
        yield tuple(key), part


def stack(frames: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Frames of the same columns, one below the other."""
    return frame_of(row for frame in frames for row in rows_of(frame))


def csv_of(frame: pd.DataFrame) -> str:
    r"""The frame as CSV: floats in full, what is missing empty.

    >>> csv_of(frame_of([{"power": 1 / 3, "steps": 8}, {"power": None, "steps": None}]))
    'power,steps\n0.3333333333333333,8\n,\n'
    """
    return frame.to_csv(index=False, lineterminator="\n")


def _column(values: list[Any]) -> "pd.Series[Any]":
    """As objects where pandas would turn whole numbers into floats."""
    mixed = any(isinstance(value, int) for value in values) and not all(isinstance(value, int) for value in values)
    missing = all(value is None for value in values)
    return pd.Series(values, dtype=object if mixed else float if missing else None)
