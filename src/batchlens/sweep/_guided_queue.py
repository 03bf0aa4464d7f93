"""Which trials of a guided sweep come next: rounds, races, finalists and the seeds that report."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from random import Random
from typing import Any

import numpy as np

from batchlens.optimizers import is_averaged
from batchlens.sweep._declaration import Cell, Declaration, Shard
from batchlens.sweep._guided import (
    CHOOSING,
    FINALIST,
    FINALISTS,
    MOST_SEEDS,
    Choice,
    Guided,
    pauses,
    rounds_of,
)
from batchlens.sweep._guiding import Ranked, Seen, best_guess, propose
from batchlens.sweep._points import run_seed, unit_point
from batchlens.sweep._reporting import shared_half_widths
from batchlens.sweep._search import Box, Generation
from batchlens.sweep._trial import Key, Task, Trial
from batchlens.training._averages import settings_named
from batchlens.training.spaces import Range

# Settings that are coefficients of a memory: no closer to 1 than the run is long.
_MEMORIES = ("momentum", "beta1")
# Before anything is known, a run is taken to be this part of its budget, and never shorter than so many steps.
_LIKELY_PART, _SHORTEST = 1 / 20, 4
_ROUNDING = 1e-14


class GuidedQueue:
    """The trials of a guided sweep: ended, running, waiting for others and open.

    Without `pruning` trials of the search run to their ends; what counts of them is the same. `endless` goes on with
    seeds for the cell that is least certain once nothing else is open, until whoever asks has had enough.
    """

    def __init__(
        self,
        declaration: Declaration,
        trials: Iterable[Trial],
        spaces: Mapping[Cell, Mapping[str, Range]],
        reach: Mapping[Cell, Box],
        *,
        shard: Shard | None = None,
        pruning: bool = True,
        endless: bool = False,
        shuffle: int | None = None,
    ) -> None:
        self.declaration, self.spaces, self.reach = declaration, spaces, reach
        self.pruning, self.endless = pruning, endless
        self.guided = Guided(declaration, trials)
        self.running: dict[Key, Task] = {}
        self.changes = Counter[Cell]()
        self._paused: dict[Key, tuple[int, Mapping[str, Any]]] = {}
        self._returned = Counter[Key]()
        self._points: dict[tuple[str, int], list[list[tuple[float, ...]]]] = {}
        self._final: dict[Cell, list[dict[str, float]]] = {}
        self._ranks: dict[tuple[str, int], tuple[list[list[Seen]], list[list[Ranked]]]] = {}
        self._random = None if shuffle is None else Random(shuffle)
        number = {optimizer: place for place, family in enumerate(declaration.families) for optimizer in family}
        ours = [cell for cell in declaration.cells if shard is None or shard.owns(number[cell.optimizer])]
        # Family by family, so that some cells are complete early; within one the longest runs come first.
        self._cells = sorted(ours, key=lambda cell: (number[cell.optimizer], -declaration.cost(cell)))

    @property
    def ended(self) -> Mapping[Key, Trial]:
        """Every trial that has ended."""
        return self.guided.trials

    @property
    def open_count(self) -> int:
        """How many trials could be started now."""
        return sum(len(self._open(cell)) for cell in self._cells) or len(self._extra())

    def take(self) -> Task | None:
        """The trial to start next; None where nothing can be started for now."""
        cells = list(self._cells)
        if self._random is not None:
            self._random.shuffle(cells)
        for cell in cells:
            if keys := self._open(cell):
                key = keys[0] if self._random is None else self._random.choice(keys)
                return self._start(key)
        return next((self._start(key) for key in self._extra()), None)

    def _start(self, key: Key) -> Task:
        task = self.running[key] = self._task(key)
        return task

    def give_back(self, key: Key) -> None:
        """A trial that was started and has to be run again: after the others, which may fare better."""
        del self.running[key]
        self._returned[key] += 1

    def pause(self, key: Key, answer: Mapping[str, Any]) -> None:
        """A trial that waits for the others of its race; `answer` is how it would have ended."""
        del self.running[key]
        self._paused[key] = int(answer["steps_taken"]), answer

    def end(self, trial: Trial) -> None:
        """A trial that was started has ended."""
        self.running.pop(trial.key, None)
        self._paused.pop(trial.key, None)
        self.guided.add(trial)
        self.changes[trial.key.cell] += 1

    def limit(self, cell: Cell) -> None:
        """Limits belong to tasks."""

    def settle(self, cell: Cell, reach: Box | None) -> Generation | None:
        """Points may leave the box; there is no wider one."""

    def cut(self) -> list[Trial]:
        """Trials whose race is over, as they are."""
        over = []
        for key, (step, answer) in list(self._paused.items()):
            if key not in self.running and self.guided.horizon(key.cell, self.guided.round_of(key)) <= step:
                over.append(Trial.of(self._task(key), {**answer, "status": "pruned"}))
        return over

    def _open(self, cell: Cell) -> list[Key]:
        round_ = self.guided.family_round(cell.optimizer)
        if round_ < len(rounds_of(self.declaration.trials)):
            keys = self._round_open(cell, round_) if round_ < len(self.guided.rounds(cell.optimizer)) else []
        else:
            keys = self._final_open(cell)
        free = [key for key in keys if key not in self.ended and key not in self.running]
        return sorted(free, key=lambda key: (self._returned[key], key))

    def _round_open(self, cell: Cell, round_: int) -> list[Key]:
        keys = [key for key in self.guided.round_keys(cell, round_) if key not in self.ended]
        if not keys or not self.pruning or self.guided.limit(cell, round_) is not None:
            return keys
        stage = min(self._stage(key) for key in keys)  # a race: those that are behind
        return [key for key in keys if self._stage(key) == stage]

    def _stage(self, key: Key) -> int:
        """How many pauses of a race a trial has behind it."""
        step = self._paused[key][0] if key in self._paused else 0
        return sum(pause <= step for pause in pauses(self.declaration.budget(key.batch_size)))

    def _final_open(self, cell: Cell) -> list[Key]:
        count = len(self._finalists(cell))
        if not count:
            return []
        if not self.guided.finalists_done(cell, count):
            numbers = range(FINALIST, FINALIST + count)
            return [Key(*cell, number, repeat) for number in numbers for repeat in range(1, CHOOSING + 1)]
        choice = self.guided.chosen(cell)
        if choice is None:
            return []
        return [Key(*cell, choice.number, CHOOSING + seed) for seed in range(1, self.guided.seeds(cell) + 1)]

    def _extra(self) -> list[Key]:
        """One more seed of the cell that is least certain, where that is asked for; those that run count as ended."""
        if not self.endless:
            return []
        told = [reports for cell in self._cells if len(reports := self.guided.reports(cell)) > 1]
        widths: dict[Key, float] = {}
        for reports, width in zip(told, shared_half_widths(told), strict=True):
            running = [key for key in self.running if key.cell == reports[0].key.cell]
            count = len(reports) + len(running)
            if count < MOST_SEEDS:
                taken = {trial.key for trial in reports}.union(running)
                key = reports[0].key._replace(repeat=CHOOSING + 1)
                while key in taken:
                    key = key._replace(repeat=key.repeat + 1)
                widths[key] = width * math.sqrt(len(reports) / count)
        return sorted(widths, key=lambda key: widths[key], reverse=True)[:1]

    def _task(self, key: Key) -> Task:
        guided, budget = self.guided, self.declaration.budget(key.batch_size)
        if key.number >= FINALIST:
            return self._final_task(key)
        round_ = guided.round_of(key)
        position = self._position(key, round_)
        limit = guided.limit(key.cell, round_) if self.pruning else None
        stage = self._stage(key)
        waits = pauses(budget)[stage : stage + 1] if limit is None and self.pruning else []
        return Task(
            key=key,
            position=position,
            settings=self._settings(key.cell, position),
            seed=run_seed(self.declaration.seed, key.number),
            max_steps=budget,
            averages="best" if guided.measures_averages(key.optimizer) or is_averaged(key.optimizer) else "",
            limit=limit,
            pause=waits[0] if waits else None,
        )

    def _final_task(self, key: Key) -> Task:
        choosing = key.repeat <= CHOOSING
        source = self._finalists(key.cell)[key.number - FINALIST]
        settings = self._settings(key.cell, source)
        averages = ""
        if is_averaged(key.optimizer) and choosing:
            averages = "each"
        elif is_averaged(key.optimizer):
            settings |= settings_named(self._choice(key.cell).weights)
        return Task(
            key=key,
            position=source,
            settings=settings,
            seed=run_seed(self.declaration.seed, FINALIST, key.repeat),
            max_steps=self.declaration.budget(key.batch_size),
            averages=averages,
            all_targets=not choosing,
            limit=self.guided.patience(key.cell, "choose" if choosing else "report"),
        )

    def _choice(self, cell: Cell) -> Choice:
        choice = self.guided.chosen(cell)
        assert choice is not None
        return choice

    def _settings(self, cell: Cell, position: Mapping[str, float]) -> dict[str, float]:
        found = {name: range_.at(position[name]) for name, range_ in self.spaces[cell].items()}
        # 0 comes back from its place on a range as a little less or more.
        return {name: 0.0 if abs(value) < _ROUNDING else value for name, value in found.items()}

    def _position(self, key: Key, round_: int) -> dict[str, float]:
        names = sorted(self.spaces[key.cell])
        if round_:
            place = self.declaration.batch_sizes.index(key.batch_size)
            points = self._proposed(key.optimizer, round_)[place]
            number = key.number - sum(self.guided.rounds(key.optimizer)[:round_])
            return dict(zip(names, points[number], strict=True))
        ends = self._ends(key.cell, 0)
        unit = unit_point(self.declaration.seed, key.cell, key.number, len(names))
        return {
            name: max(low, 0.0) + (min(high, 1.0) - max(low, 0.0)) * part
            for name, (low, high), part in zip(names, ends, unit, strict=True)
        }

    def _proposed(self, optimizer: str, round_: int) -> list[list[tuple[float, ...]]]:
        """The points of a round, of every batch size; the rounds before are done."""
        if (optimizer, round_) not in self._points:
            cells = [Cell(optimizer, size) for size in self.declaration.batch_sizes]
            self._points[optimizer, round_] = propose(
                round_,
                self.guided.rounds(optimizer)[round_],
                [math.log(cell.batch_size) for cell in cells],
                [self._seen(cell, round_) for cell in cells],
                [self._ends(cell, round_) for cell in cells],
                [_seed_of(self.declaration.seed, cell) for cell in cells],
            )
        return self._points[optimizer, round_]

    def _seen(self, cell: Cell, rounds: int) -> list[Seen]:
        names = sorted(self.spaces[cell])
        seen = []
        for outcome in self.guided.outcomes(cell, rounds):
            if all(name in outcome.trial.settings for name in names if name not in _MEMORIES):
                point = tuple(self._place(outcome.trial, cell, name) for name in names)
                seen.append(Seen(point, math.log(max(outcome.steps, 1e-3)), outcome.censored))
        return seen

    def _place(self, trial: Trial, cell: Cell, name: str) -> float:
        """Where a run lies on a setting's range; one of an optimizer without that setting has it at 0."""
        return self.spaces[cell][name].fraction(trial.settings.get(name, 0.0))

    def _ends(self, cell: Cell, rounds: int) -> list[tuple[float, float]]:
        """How far every setting may go, in units of its range."""
        known = self.guided.known(cell, rounds)
        likely = known[0] if known else self.declaration.budget(cell.batch_size) * _LIKELY_PART
        ends = []
        for name in sorted(self.spaces[cell]):
            low, high = self.reach[cell][name] if self.declaration.leave else (0.0, 1.0)
            if name in _MEMORIES:
                high = min(high, self.spaces[cell][name].fraction(1 - 1 / max(likely, _SHORTEST)))
            ends.append((low, high))
        return ends

    def _finalists(self, cell: Cell) -> list[dict[str, float]]:
        """The positions of the most promising settings, the most promising first."""
        if cell not in self._final:
            self._final[cell] = self._make_finalists(cell)
        return self._final[cell]

    def _make_finalists(self, cell: Cell) -> list[dict[str, float]]:
        place = self.declaration.batch_sizes.index(cell.batch_size)
        seen, ranked = self._ranked(cell.optimizer, len(rounds_of(self.declaration.trials)))
        points = [seen[place][entry.number].point for entry in ranked[place]]
        names = sorted(self.spaces[cell])
        found = [dict(zip(names, point, strict=True)) for point in list(dict.fromkeys(points))[:FINALISTS]]
        # Those that have been started stay, even if trials that had failed have been run again since.
        started = {key.number - FINALIST: self.ended[key].position for key in self.guided.finals(cell)}
        return [dict(started.get(place, position)) for place, position in enumerate(found)]

    def _ranked(self, optimizer: str, rounds: int) -> tuple[list[list[Seen]], list[list[Ranked]]]:
        """What every batch size has seen in its first rounds, which are done, and the most promising runs of that."""
        if (optimizer, rounds) not in self._ranks:
            cells = [Cell(optimizer, size) for size in self.declaration.batch_sizes]
            seen = [self._seen(cell, rounds) for cell in cells]
            ends = [self._ends(cell, rounds) for cell in cells]
            ranked = best_guess([math.log(cell.batch_size) for cell in cells], seen, ends)
            self._ranks[optimizer, rounds] = seen, ranked
        return self._ranks[optimizer, rounds]

    def surface_error(self, cell: Cell) -> float | None:
        """The surface's error in the log steps of a cell's most promising setting; None where it has none yet."""
        rounds = self.guided.family_round(cell.optimizer)
        place = self.declaration.batch_sizes.index(cell.batch_size)
        ranked = self._ranked(cell.optimizer, rounds)[1][place] if rounds else []
        return ranked[0].error if ranked else None


def _seed_of(seed: int, cell: Cell) -> int:
    return int(np.random.SeedSequence((seed, *map(ord, cell.optimizer), cell.batch_size)).generate_state(1)[0])
