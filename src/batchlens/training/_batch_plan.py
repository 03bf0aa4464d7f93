"""Which batch size a step has, and which learning rate: one for all steps, or as a batch schedule says."""

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

from batchlens._checks import require_number, require_sequence, require_whole
from batchlens._tables import read_rows

# A row of a batch schedule: the step it holds from, the batch size and the learning rate.
BatchRow = tuple[int, int, float]


@dataclass(frozen=True)
class BatchPlan:
    """Pieces of constant batch size: the steps they begin with, examples of a step, and learning rates, if any.

    >>> plan = BatchPlan((0, 10), (32, 128), (0.1, 0.2))
    >>> plan.batch_size(9), plan.batch_size(10), plan.examples(12), plan.rate_factor(10), plan.steps_of(500)
    (32, 128, 576, 2.0, 12)
    """

    starts: tuple[int, ...]
    batch_sizes: tuple[int, ...]
    learning_rates: tuple[float, ...] = ()

    @classmethod
    def constant(cls, batch_size: int) -> "BatchPlan":
        """The same batch size throughout."""
        return cls((0,), (batch_size,))

    @property
    def largest(self) -> int:
        """Of all batch sizes."""
        return max(self.batch_sizes)

    @property
    def rows(self) -> tuple[BatchRow, ...]:
        """The schedule as a table; none where there is one batch size only."""
        return (
            tuple(zip(self.starts, self.batch_sizes, self.learning_rates, strict=True)) if self.learning_rates else ()
        )

    def batch_size(self, step: int) -> int:
        """Examples of the step after `step` others."""
        return self.batch_sizes[self._piece(step)]

    def examples(self, step: int) -> int:
        """Examples seen in the first `step` steps."""
        piece = self._piece(step)
        return self._seen[piece] + (step - self.starts[piece]) * self.batch_sizes[piece]

    def steps_of(self, examples: int) -> int:
        """The fewest steps that see so many examples."""
        piece = max(bisect_right(self._seen, examples) - 1, 0)
        return self.starts[piece] - (self._seen[piece] - examples) // self.batch_sizes[piece]

    def rate_factor(self, step: int) -> float:
        """The learning rate of a step over that of the first."""
        return self.learning_rates[self._piece(step)] / self.learning_rates[0] if self.learning_rates else 1.0

    def _piece(self, step: int) -> int:
        return bisect_right(self.starts, step) - 1

    @cached_property
    def _seen(self) -> list[int]:
        """Examples before each piece."""
        lengths = [later - earlier for earlier, later in pairwise(self.starts)]
        parts = [length * size for length, size in zip(lengths, self.batch_sizes, strict=False)]
        return list(accumulate(parts, initial=0))


def check_batch_schedule(given: Path | str | Iterable[Any]) -> BatchPlan:
    """A batch schedule: a CSV file with the columns step, batch_size and learning_rate, or such rows."""
    rows = _read(given) if isinstance(given, Path | str) else [_check(row) for row in _sequence(given)]
    if not rows or rows[0][0] != 0:
        raise ValueError(f"`batch_schedule` must begin with step 0, got {f'step {rows[0][0]}' if rows else 'no row'}.")
    for (earlier, *_), (later, *_) in pairwise(rows):
        if later <= earlier:
            raise ValueError(
                f"`batch_schedule` must have steps that grow from row to row, got {later} after {earlier}."
            )
    if not rows[0][2]:
        raise ValueError("`batch_schedule` must begin with a learning rate above 0, got 0.")
    return BatchPlan(*(tuple(column) for column in zip(*rows, strict=True)))


def _read(path: Path | str) -> list[BatchRow]:
    rows = read_rows("batch_schedule", path, ("step", "batch_size", "learning_rate"))
    return [
        (row.whole("step", low=0), row.whole("batch_size"), row.number("learning_rate", closed=True)) for row in rows
    ]


def _sequence(given: Any) -> list[Any]:
    try:
        return [list(row) for row in given]
    except TypeError:
        raise TypeError(f"`batch_schedule` must be a CSV file or rows of it, got {given!r}.") from None


def _check(row: object) -> BatchRow:
    cells = require_sequence("batch_schedule", row)
    if len(cells) != 3:
        raise ValueError(f"`batch_schedule` must have rows of step, batch size and learning rate, got {cells}.")
    step, size, rate = cells
    return require_whole("step", step), require_whole("batch_size", size, 1), require_number("learning_rate", rate)
