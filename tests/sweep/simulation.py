"""Sweeps whose trials are made up, and the obviously right way to tell what comes out of them."""

from collections.abc import Callable, Mapping
from random import Random
from typing import NamedTuple

from batchlens.sweep._declaration import MOST_NUMBERS, Cell, Declaration
from batchlens.sweep._queue import Queue
from batchlens.sweep._search import Generation
from batchlens.sweep._trial import Key, Status, Task, Trial

BUDGET = 100


class Fate(NamedTuple):
    """How a run would end if it were left alone, and after how many steps."""

    status: Status
    taken: int


Fates = Callable[[Key], Fate]


def make_declaration(trials: int = 4, keep: int = 2, optimizers: tuple[str, ...] = ("sgd",)) -> Declaration:
    return Declaration(
        workload="digits",
        size="laptop",
        optimizers=optimizers,
        batch_sizes=(16, 64),
        trials=trials,
        seed=0,
        target=0.9,
        target_on="validation",
        max_steps=(BUDGET, BUDGET),
        keep=keep,
        spaces={name: {"learning_rate": (0.01, 1.0, "log"), "momentum": (0.0, 1.0, "linear")} for name in optimizers},
    )


def make_generations(declaration: Declaration) -> dict[Cell, list[Generation]]:
    box = {"learning_rate": (0.0, 1.0), "momentum": (0.0, 1.0)}
    return {cell: [Generation(0, box)] for cell in declaration.cells}


def make_queue(declaration: Declaration, shuffle: int | None = None, repeats: int = 0) -> Queue:
    generations = make_generations(declaration)
    return Queue(declaration, [], generations, lambda _, position: position, shuffle=shuffle, repeats=repeats)


def random_fates(seed: int) -> Fates:
    """Few distinct step counts, so that ties are common."""

    def fate(key: Key) -> Fate:
        random = Random(f"{seed} {key}")
        status: Status = random.choice(["reached", "reached", "not_reached", "diverged", "diverged"])
        return Fate(status, BUDGET if status == "not_reached" else random.randint(1, 12))

    return fate


def make_trial(task: Task, status: Status, taken: int) -> Trial:
    steps = taken if status == "reached" else None
    return Trial(task.key, task.position, task.settings, task.seed, status, steps, taken)


def simulate(queue: Queue, fates: Fates, workers: int, pruning: bool, seed: int = 0) -> dict[Key, Trial]:
    """Runs step by step, workers at random speeds; limits are known at once."""
    random = Random(seed)
    taken: dict[Key, int] = {}
    while queue.running or queue.open_count:
        while len(queue.running) < workers and (task := queue.take()) is not None:
            taken[task.key] = 0
        key = random.choice(sorted(queue.running))
        status, last = fates(key)
        limit = queue.limit(key.cell) if pruning else None
        if limit is not None and taken[key] > limit:
            queue.end(make_trial(queue.running[key], "pruned", taken[key]))
            continue
        taken[key] += 1
        if taken[key] == last:
            queue.end(make_trial(queue.running[key], status, last))
    return dict(queue.ended)


class Found(NamedTuple):
    """What a search comes to: its length, and its best trials as (steps, number)."""

    length: int
    best: list[tuple[int, int]]


def search_by_definition(fates: Mapping[int, Fate], trials: int, keep: int) -> Found:
    """Looks at every prefix of the numbers, each on its own."""
    limit = MOST_NUMBERS * trials
    for length in range(limit + 1):
        prefix = [fates[number] for number in range(length)]
        best = min((taken for status, taken in prefix if status == "reached"), default=None)
        early = [status == "diverged" and (best is None or taken < best) for status, taken in prefix]
        if early.count(False) >= trials or length == limit:
            break
    reached = sorted((taken, number) for number, (status, taken) in enumerate(prefix) if status == "reached")
    return Found(length, reached[:keep])
