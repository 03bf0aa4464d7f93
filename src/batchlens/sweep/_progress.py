"""How far a sweep is."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import NormalDist, fmean

from batchlens.sweep._declaration import Cell
from batchlens.sweep._guided_queue import GuidedQueue
from batchlens.sweep._queue import Queue
from batchlens.sweep._reporting import LEVEL, half_width, mean_steps
from batchlens.sweep._search import Search, counted
from batchlens.sweep._trial import Trial


@dataclass(frozen=True)
class CellProgress:
    """One cell: trials that count so far, trials asked for, and the steps to the target so far.

    Steps are the fewest of the search, of a guided one with fresh seeds their mean. `uncertainty` is half the interval
    of that mean, as a part of it; before there are seeds, of what the surface through all runs says of the most
    promising setting; None before the first round is done, and for sobol.
    """

    cell: Cell
    counted: int
    trials: int
    best_steps: float | None
    complete: bool
    uncertainty: float | None = None


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
        left = _seconds_left(cells, means) / max(workers, 1) if means else None
        return Progress(cells, len(self._queue.ended), ran, len(self._queue.running), seconds, left)


def meter_of(queue: Queue | GuidedQueue) -> "Meter | GuidedMeter":
    """What measures the progress of a queue."""
    return GuidedMeter(queue) if isinstance(queue, GuidedQueue) else Meter(queue)


class GuidedMeter:
    """Measures the progress of a guided search."""

    def __init__(self, queue: GuidedQueue) -> None:
        self._queue = queue
        self._known: dict[Cell, tuple[tuple[int, int], CellProgress, list[float]]] = {}

    def measure(self, workers: int, ran: int, seconds: float) -> Progress:
        """The progress of a sweep that has run for `seconds`."""
        for cell in self._queue.declaration.cells:
            # Whether a cell is complete depends on its family too.
            change = self._queue.changes[cell], self._queue.guided.family_round(cell.optimizer)
            if cell not in self._known or self._known[cell][0] != change:
                trials = [trial for key, trial in self._queue.ended.items() if key.cell == cell]
                taken = [trial.seconds for trial in trials]
                self._known[cell] = change, self._cell_progress(cell, trials), taken
        cells = tuple(entry for _, entry, _ in self._known.values())
        means = {cell: fmean(taken) for cell, (_, _, taken) in self._known.items() if taken}
        left = _seconds_left(cells, means) / max(workers, 1) if means else None
        return Progress(cells, len(self._queue.ended), ran, len(self._queue.running), seconds, left)

    def _cell_progress(self, cell: Cell, trials: list[Trial]) -> CellProgress:
        guided = self._queue.guided
        found = [guided.crossing(trial, cell.optimizer) for trial in trials]
        best = min((steps for steps in found if steps is not None), default=None)
        reports = guided.reports(cell)
        steps = mean_steps(reports) or best
        return CellProgress(
            cell=cell,
            counted=len(trials),
            trials=guided.planned(cell),
            best_steps=steps,
            complete=guided.complete(cell),
            uncertainty=half_width(reports) if len(reports) > 1 else self._surface_width(cell),
        )

    def _surface_width(self, cell: Cell) -> float | None:
        error = self._queue.surface_error(cell)
        return None if error is None else NormalDist().inv_cdf(0.5 + LEVEL / 2) * error


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
