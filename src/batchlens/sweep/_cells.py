"""What a sweep found, cell by cell."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from batchlens._arrays import FloatArray
from batchlens.sweep._declaration import Cell, Declaration
from batchlens.sweep._search import Edge, Search, counted, group
from batchlens.sweep._store import Store
from batchlens.sweep._trial import Trial


class BestOf(NamedTuple):
    """What the best of `trials` trials, drawn at random from those that count, would have been.

    `chance` is how likely one of them is to be known to reach the target, `steps` the expected fewest steps if so.
    """

    trials: int
    chance: float
    steps: float


@dataclass(frozen=True)
class CellResult:
    """What the search of one optimizer and batch size found.

    Arguments:
        winner, runners_up: the trials with the fewest steps, `keep` of them; ties go to the lower number.
        members: every trial of the search, by number.
        complete: whether the search has all its trials.
        counted: how many of them count, as `_search` says.
        edges: near which ends of the search space the winner is.
        flags: in words, what should make a reader wary.
        statuses: how many trials ended how.
        steps_saved: at most; for every pruned trial, what was left of its step budget.
        repeats: the winner trained again with other seeds.
    """

    cell: Cell
    winner: Trial | None
    runners_up: tuple[Trial, ...]
    members: tuple[Trial, ...]
    complete: bool
    counted: int
    edges: tuple[Edge, ...]
    flags: tuple[str, ...]
    statuses: Mapping[str, int]
    steps_saved: int
    repeats: tuple[Trial, ...]

    def repeat_steps(self) -> list[int | None]:
        """Steps of the winner's repeats; None where one did not reach the target."""
        return [trial.steps for trial in self.repeats]

    def best_of(self) -> list[BestOf]:
        """How the result would depend on the number of trials.

        Of m trials drawn without replacement from n, the k-th best is the best drawn with chance
        C(n - k, m - 1) / C(n, m).  A pruned trial is known only to be slower, and counts as not reaching the target.
        """
        steps = sorted(trial.steps for trial in self.members if trial.steps is not None)
        total = len(counted(self.members))
        return [_best_of(steps, total, drawn) for drawn in range(1, total + 1)]

    def bootstrap(self, count: int = 1000, seed: int = 0) -> FloatArray:
        """The winner's steps in `count` resamples of the trials that count; NaN where none reached the target."""
        steps = [math.inf if trial.steps is None else trial.steps for trial in counted(self.members)]
        if not steps:
            return np.full(count, np.nan)
        drawn = np.random.default_rng(seed).choice(np.array(steps, dtype=np.float64), (count, len(steps)))
        best: FloatArray = drawn.min(axis=1)
        best[np.isinf(best)] = np.nan
        return best


def cell_results(store: Store, trials: Sequence[Trial] | None = None) -> list[CellResult]:
    """The results of every cell, in the order declared; `trials` are the store's, where they have been read."""
    declaration, generations = store.declaration, store.generations()
    trials = store.read_trials() if trials is None else trials
    grouped = group(trials)
    searches = [
        Search(cell, declaration.trials, generations[cell], grouped.get(cell, {})) for cell in declaration.cells
    ]
    repeats: dict[Cell, list[Trial]] = {}
    for trial in trials:
        if trial.key.repeat:
            repeats.setdefault(trial.key.cell, []).append(trial)
    counts = Counter(len(counted(search.members)) for search in searches if search.length is not None)
    usual = counts.most_common(1)[0][0] if counts else 0
    return [_result(search, declaration, repeats.get(search.cell, []), usual) for search in searches]


def _result(search: Search, declaration: Declaration, repeats: list[Trial], usual: int) -> CellResult:
    ranking, members = search.ranking(), search.members
    winner = ranking[0] if ranking else None
    budget = declaration.budget(search.cell.batch_size)
    return CellResult(
        cell=search.cell,
        winner=winner,
        runners_up=tuple(ranking[1 : declaration.keep]),
        members=tuple(members),
        complete=search.length is not None,
        counted=len(counted(members)),
        edges=search.edges(),
        flags=tuple(_flags(search, winner, usual)),
        statuses=dict(Counter(trial.status for trial in members)),
        steps_saved=sum(budget - trial.steps_taken for trial in members if trial.status == "pruned"),
        repeats=tuple(trial for trial in repeats if winner is not None and trial.key.number == winner.key.number),
    )


def _flags(search: Search, winner: Trial | None, usual: int) -> list[str]:
    flags = [f"the winner's {edge.setting} is near the {edge.side} end of its range" for edge in search.edges()]
    if search.length is None:
        flags.append("not all trials have been run")
    elif winner is None:
        flags.append("no trial reached the target")
    if failed := [trial for trial in search.members if trial.status == "failed"]:
        flags.append(f"{len(failed)} trials failed, the first with: {failed[0].reason}")
    count = len(counted(search.members))
    if search.length is not None and count < search.trials:
        flags.append(f"only {count} of {search.trials} trials did not diverge or fail")
    elif search.length is not None and count != usual:
        flags.append(f"{count} trials count, {usual} in most other cells")
    return flags


def _best_of(steps: list[int], total: int, drawn: int) -> BestOf:
    chances = [math.comb(total - place, drawn - 1) / math.comb(total, drawn) for place in range(1, len(steps) + 1)]
    chance = math.fsum(chances)
    expected = math.fsum(part * count for part, count in zip(chances, steps, strict=True))
    return BestOf(drawn, min(chance, 1.0), expected / chance if chance else math.nan)
