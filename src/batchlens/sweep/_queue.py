"""Which trials a sweep still has to run, and which comes next."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from random import Random
from typing import Any

from batchlens.sweep._declaration import Cell, Declaration, Shard
from batchlens.sweep._points import run_seed, unit_point
from batchlens.sweep._search import Box, Generation, Search, group
from batchlens.sweep._trial import Key, Task, Trial

# From a cell and a point in units of its ranges to settings.
Locate = Callable[[Cell, Mapping[str, float]], Mapping[str, float]]


class Queue:
    """The trials of a sweep: ended, running and open.

    Costly cells come first, so that workers finish together; `shuffle` draws at random instead.
    """

    def __init__(
        self,
        declaration: Declaration,
        trials: Iterable[Trial],
        generations: Mapping[Cell, list[Generation]],
        locate: Locate,
        *,
        shard: Shard | None = None,
        repeats: int = 0,
        shuffle: int | None = None,
    ) -> None:
        trials = list(trials)
        grouped = group(trials)
        self.declaration, self.shard, self.repeats = declaration, shard, repeats
        self.searches = {
            cell: Search(cell, declaration.trials, list(generations[cell]), grouped.get(cell, {}))
            for cell in declaration.cells
        }
        self.running: dict[Key, Task] = {}
        self._locate = locate
        self._ended = {trial.key: trial for trial in trials}
        self._order = sorted(declaration.cells, key=declaration.cost, reverse=True)
        self._returned = Counter[Key]()  # how often each trial has been given back
        self._open: dict[Cell, list[Key]] = {cell: self._search_keys(cell) for cell in self._order}
        self.changes = Counter[Cell]()  # how often each search has changed
        self._random = None if shuffle is None else Random(shuffle)

    @property
    def ended(self) -> Mapping[Key, Trial]:
        """Every trial that has ended."""
        return self._ended

    @property
    def open_count(self) -> int:
        """How many trials could be started now."""
        return sum(map(len, self._open.values()))

    def take(self) -> Task | None:
        """The trial to start next; None where nothing can be started for now."""
        cells = [cell for cell in self._order if self._open[cell]]
        if not cells:
            return None
        if self._random is None:
            key = self._open[cells[0]].pop(0)
        else:
            keys = self._open[self._random.choice(cells)]
            key = keys.pop(self._random.randrange(len(keys)))
        task = self.running[key] = self._task(key)
        return task

    def give_back(self, key: Key) -> None:
        """A trial that was started and has to be run again: after the others, which may fare better."""
        del self.running[key]
        self._returned[key] += 1
        self._open[key.cell].append(key)

    def end(self, trial: Trial) -> None:
        """A trial that was started has ended."""
        key = trial.key
        del self.running[key]
        self._ended[key] = trial
        if not key.repeat:
            self.changes[key.cell] += 1
            self.searches[key.cell].ended[key.number] = trial
            self._open[key.cell] = self._search_keys(key.cell)

    def limit(self, cell: Cell) -> int | None:
        """The steps beyond which a trial of a cell is pruned."""
        return self.searches[cell].pruning_limit(self.declaration.keep)

    def settle(self, cell: Cell, reach: Box | None) -> Generation | None:
        """What follows from a cell's search being complete: a wider box, where that is called for, or repeats."""
        search = self.searches[cell]
        if search.length is None:
            return None
        generation = None if reach is None else search.next_generation(reach)
        if generation is None:
            self._repeat(cell, search)
        else:
            self.changes[cell] += 1
            search.generations.append(generation)
            self._open[cell] = self._search_keys(cell)
        return generation

    def pause(self, key: Key, answer: Mapping[str, Any]) -> None:
        """Trials of independent points do not wait for one another."""
        raise AssertionError(key)

    def cut(self) -> list[Trial]:
        """None: trials are pruned where they run."""
        return []

    def _repeat(self, cell: Cell, search: Search) -> None:
        """Opens the repeats of a complete search's winner."""
        if not self.repeats or not (ranking := search.ranking()):
            return
        keys = [ranking[0].key._replace(repeat=repeat) for repeat in range(1, self.repeats + 1)]
        self._open[cell] = [key for key in keys if self._is_open(key)]

    def _search_keys(self, cell: Cell) -> list[Key]:
        keys = [Key(*cell, number) for number in self.searches[cell].open_numbers()]
        ours = [key for key in keys if self._is_open(key) and self._is_ours(key)]
        return sorted(ours, key=lambda key: (self._returned[key], key.number))

    def _is_open(self, key: Key) -> bool:
        return key not in self._ended and key not in self.running

    def _is_ours(self, key: Key) -> bool:
        return self.shard is None or self.shard.owns(self.declaration.cells.index(key.cell) + key.number)

    def _task(self, key: Key) -> Task:
        seed = self.declaration.seed
        box = self.searches[key.cell].generation_of(key.number).box
        names = sorted(box)
        point = dict(zip(names, unit_point(seed, key.cell, key.number, len(names)), strict=True))
        position = {name: low + (high - low) * point[name] for name, (low, high) in box.items()}
        return Task(
            key=key,
            position=position,
            settings=self._locate(key.cell, position),
            seed=run_seed(seed, key.number, key.repeat),
            max_steps=self.declaration.budget(key.batch_size),
        )
