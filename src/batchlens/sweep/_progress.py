"""How far a sweep is."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import fmean

from batchlens.sweep._declaration import Cell
from batchlens.sweep._queue import Queue
from batchlens.sweep._search import Search, counted


@dataclass(frozen=True)
class CellProgress:
    """One cell: trials that count so far, trials asked for, and the fewest steps to the target so far."""

    cell: Cell
    counted: int
    trials: int
    best_steps: int | None
    complete: bool


@dataclass(frozen=True)
class Progress:
    """How far a sweep is.

    Arguments:
        ended: trials in the store, those of earlier runs and repeats included.
        ran: trials that this run has added.
        running: trials that are being run now.
        seconds_left: an estimate from the trials that have ended; None before there are any.
    """

    cells: tuple[CellProgress, ...]
    ended: int
    ran: int
    running: int
    seconds: float
    seconds_left: float | None

    @property
    def cells_done(self) -> int:
        """How many cells have all their trials."""
        return sum(cell.complete for cell in self.cells)

    @property
    def trials_left(self) -> int:
        """How many trials are still to be run, at least."""
        return sum(max(cell.trials - cell.counted, 0) for cell in self.cells if not cell.complete)


class Meter:
    """Measures the progress of a queue; what a cell has come to is worked out again only when it has changed."""

    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        self._known: dict[Cell, tuple[int, CellProgress, float | None]] = {}

    def measure(self, workers: int, ran: int, seconds: float) -> Progress:
        """The progress of a sweep that has run for `seconds`."""
        for cell, search in self._queue.searches.items():
            change = self._queue.changes[cell]
            if cell not in self._known or self._known[cell][0] != change:
                self._known[cell] = (change, _cell_progress(search), _mean_seconds(search))
        cells = tuple(entry for _, entry, _ in self._known.values())
        means = {cell: mean for cell, (_, _, mean) in self._known.items() if mean is not None}
        return Progress(
            cells=cells,
            ended=len(self._queue.ended),
            ran=ran,
            running=len(self._queue.running),
            seconds=seconds,
            seconds_left=_seconds_left(cells, means) / max(workers, 1) if means else None,
        )


def _cell_progress(search: Search) -> CellProgress:
    members = search.members
    last = [trial for trial in counted(members) if trial.key.number >= search.first]
    best = min((trial.steps for trial in members if trial.steps is not None), default=None)
    return CellProgress(search.cell, len(last), search.trials, best, search.length is not None)


def _mean_seconds(search: Search) -> float | None:
    return fmean(trial.seconds for trial in search.ended.values()) if search.ended else None


def _seconds_left(cells: tuple[CellProgress, ...], means: Mapping[Cell, float]) -> float:
    """Of one worker."""
    return sum(
        max(entry.trials - entry.counted, 0) * _usual_seconds(entry.cell, means)
        for entry in cells
        if not entry.complete
    )


def _usual_seconds(cell: Cell, seconds: Mapping[Cell, float]) -> float:
    """The mean time of the cell's trials, or of those of the batch size nearest to its own."""
    if cell in seconds:
        return seconds[cell]
    distance = {other: abs(math.log(other.batch_size / cell.batch_size)) for other in seconds}
    nearest = min(distance.values())
    return fmean(seconds[other] for other in seconds if distance[other] == nearest)
