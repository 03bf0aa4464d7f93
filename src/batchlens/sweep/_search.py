"""The search of one cell: which trials belong to it, which come next, and what came out.

Trials are numbered.  In the first n of them let best(n) be the fewest steps to the target; a trial *counts* unless it
failed, or diverged after fewer than best(n) steps.  The search is the shortest such prefix with as many counted trials
as were asked for, so it does not depend on the order in which trials end.  Neither does it depend on pruning: a pruned
trial has taken more steps than the best, and so counts however it would have ended.

A search that is extended goes on in a wider box, its next *generation*, until as many trials of that one count.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import NamedTuple

from batchlens.sweep._declaration import MOST_NUMBERS, Cell
from batchlens.sweep._trial import Trial

# A winner is near an edge within this part of the range.
EDGE = 0.05
# An extension adds this part of the declared range; how many boxes there are at most, the declared one included.
WIDENING = 0.5
MOST_GENERATIONS = 5
_LEAST_WIDENING = 0.02

# The ends of every setting's range, in units of the declared one: (0, 1) until widened.
Box = Mapping[str, tuple[float, float]]


class Generation(NamedTuple):
    """From which number on trials lie in which box."""

    first: int
    box: Box


class Edge(NamedTuple):
    """A setting of which the winner is near the `side` ("low" or "high") end of its range."""

    setting: str
    side: str


@dataclass
class Search:
    """What is known of one cell's search."""

    cell: Cell
    trials: int
    generations: list[Generation]
    ended: dict[int, Trial]

    @property
    def first(self) -> int:
        """The first number of the last generation."""
        return self.generations[-1].first

    @property
    def limit(self) -> int:
        """One more than the highest number that may be run."""
        return self.first + MOST_NUMBERS * self.trials

    def generation_of(self, number: int) -> Generation:
        """The generation that a number belongs to."""
        return next(generation for generation in reversed(self.generations) if generation.first <= number)

    def open_numbers(self) -> list[int]:
        """Numbers that surely belong to the search and have not ended; empty once it is complete."""
        planned = range(self.first + self.trials)  # earlier generations too, of which a damaged store may lack some
        if missing := [number for number in planned if number not in self.ended]:
            return missing
        following = next(number for number in range(planned.stop, self.limit + 1) if number not in self.ended)
        return [] if following == self.limit or self.count(following) >= self.trials else [following]

    def count(self, length: int) -> int:
        """How many trials of the last generation count among the first `length` of all."""
        members = [self.ended[number] for number in range(length)]
        best = _fewest_steps(members)
        return sum(_counts(trial, best) for trial in members[self.first :])

    def _counts(self) -> Iterator[tuple[int, int]]:
        """`count` of every length from 1 to the limit, in one go."""
        best, count = math.inf, 0
        waiting: list[int] = []  # minus the steps of trials that diverged before the best reached the target
        for number in range(self.limit):
            trial = self.ended[number]
            best = min(best, math.inf if trial.steps is None else trial.steps)
            if number >= self.first and trial.status == "diverged":
                heappush(waiting, -trial.steps_taken)
            elif number >= self.first:
                count += trial.status != "failed"
            while waiting and -waiting[0] >= best:
                heappop(waiting)
                count += 1
            yield number + 1, count

    @property
    def length(self) -> int | None:
        """How many numbers the search has, once it is complete."""
        if self.open_numbers():
            return None
        start = self.first + self.trials
        enough = (length for length, count in self._counts() if length >= start and count >= self.trials)
        return next(enough, self.limit)

    @property
    def members(self) -> list[Trial]:
        """The trials that belong to the search and have ended, by number."""
        return self.members_of(self.length)

    def members_of(self, length: int | None) -> list[Trial]:
        """The same, where the length is known already."""
        return [trial for number, trial in sorted(self.ended.items()) if length is None or number < length]

    def ranking(self) -> list[Trial]:
        """The trials that reached the target, fewest steps first; ties go to the lower number."""
        return ranked(self.members)

    def pruning_limit(self, keep: int) -> int | None:
        """The steps beyond which a trial cannot be among the `keep` best any more.

        Only trials that surely belong to the search can tell.
        """
        sure = max([self.first + self.trials, *(number + 1 for number in self.open_numbers())])
        ended = [trial for number, trial in self.ended.items() if number < sure]
        steps = sorted(trial.steps for trial in ended if trial.steps is not None)
        return steps[keep - 1] if len(steps) >= keep else None

    def edges(self) -> tuple[Edge, ...]:
        """Where the winner is near the edge of the present box."""
        return self.edges_of(self.ranking())

    def edges_of(self, ranking: Sequence[Trial]) -> tuple[Edge, ...]:
        """The same, where the ranking is known already."""
        return _edges(ranking[0].position, self.generations[-1].box) if ranking else ()

    def next_generation(self, reach: Box) -> Generation | None:
        """The box widened where the winner of a complete search is near its edge; None where it cannot be.

        `reach` is where settings must end, in units of the declared ranges; no box goes further than half way there.
        """
        length = self.length
        if length is None or len(self.generations) >= MOST_GENERATIONS:
            return None
        present = self.generations[-1].box
        box = dict(present)
        for setting, side in self.edges():
            low, high = box[setting]
            lowest, highest = reach[setting]
            if side == "low":
                box[setting] = (max(low - WIDENING, (low + lowest) / 2), high)
            else:
                box[setting] = (low, min(high + WIDENING, (high + highest) / 2))
        grown = any(_width(box[setting]) > _width(present[setting]) + _LEAST_WIDENING for setting in box)
        return Generation(length, box) if grown else None


def group(trials: Iterable[Trial]) -> dict[Cell, dict[int, Trial]]:
    """Trials of searches, repeats left out, by cell and number."""
    grouped: dict[Cell, dict[int, Trial]] = {}
    for trial in trials:
        if not trial.key.repeat:
            grouped.setdefault(trial.key.cell, {})[trial.key.number] = trial
    return grouped


def counted(trials: Sequence[Trial]) -> list[Trial]:
    """Those trials of a search that count."""
    best = _fewest_steps(trials)
    return [trial for trial in trials if _counts(trial, best)]


def ranked(trials: Iterable[Trial]) -> list[Trial]:
    """Those that reached the target, fewest steps first; ties go to the lower number."""
    return sorted((trial for trial in trials if trial.steps is not None), key=_rank)


def _fewest_steps(trials: Sequence[Trial]) -> int | None:
    return min((trial.steps for trial in trials if trial.steps is not None), default=None)


def _counts(trial: Trial, best: int | None) -> bool:
    if trial.status == "diverged":
        return best is not None and trial.steps_taken >= best
    return trial.status != "failed"


def _rank(trial: Trial) -> tuple[int, int]:
    assert trial.steps is not None
    return trial.steps, trial.key.number


def _edges(position: Mapping[str, float], box: Box) -> tuple[Edge, ...]:
    found = []
    for setting, value in position.items():
        low, high = box[setting]
        part = (value - low) / (high - low)
        if part < EDGE:
            found.append(Edge(setting, "low"))
        elif part > 1 - EDGE:
            found.append(Edge(setting, "high"))
    return tuple(found)


def _width(ends: tuple[float, float]) -> float:
    return ends[1] - ends[0]
