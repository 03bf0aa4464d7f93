"""Small tables: what a figure draws, a claim measures and a CSV holds."""

import csv
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from batchlens._arrays import FloatArray


@dataclass(frozen=True)
class Table:
    """Rows under named columns.

    >>> table = Table.from_rows([{"power": 0.0, "steps": 8}, {"power": 0.5, "steps": 4}])
    >>> table["steps"]
    (8, 4)
    >>> table.where(power=0.5)["steps"]
    (4,)
    """

    columns: Mapping[str, tuple[Any, ...]]

    @classmethod
    def from_rows(cls, rows: Iterable[Mapping[str, Any]]) -> "Table":
        """A table of rows that all have the same keys."""
        listed = list(rows)
        names = list(listed[0]) if listed else []
        return cls({name: tuple(row[name] for row in listed) for name in names})

    def __getitem__(self, name: str) -> tuple[Any, ...]:
        return self.columns[name]

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()), ()))

    def numbers(self, name: str) -> FloatArray:
        """A column as floats; None is nan."""
        return np.array(self.columns[name], dtype=np.float64)

    def rows(self) -> Iterator[dict[str, Any]]:
        """The rows as dictionaries."""
        for values in zip(*self.columns.values(), strict=True):
            yield dict(zip(self.columns, values, strict=True))

    def where(self, **equal: Any) -> "Table":
        """The rows whose columns have the given values."""
        kept = [row for row in self.rows() if all(row[name] == value for name, value in equal.items())]
        return Table.from_rows(kept) if kept else Table(dict.fromkeys(self.columns, ()))

    def groups(self, *names: str) -> Iterator[tuple[tuple[Any, ...], "Table"]]:
        """The table in parts that agree on the named columns, in order of first appearance."""
        keys = dict.fromkeys(zip(*(self.columns[name] for name in names), strict=True))
        for key in keys:
            yield key, self.where(**dict(zip(names, key, strict=True)))

    def to_csv(self) -> str:
        """The table as CSV: floats in full, None empty."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(self.columns)
        writer.writerows(zip(*self.columns.values(), strict=True))
        return text.getvalue()


def concatenate(tables: Sequence[Table]) -> Table:
    """Tables of the same columns, one below the other."""
    return Table.from_rows(row for table in tables for row in table.rows())
