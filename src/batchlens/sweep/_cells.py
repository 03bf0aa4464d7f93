"""What a sweep found, cell by cell."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import NamedTuple

import numpy as np

from batchlens._arrays import FloatArray
from batchlens.optimizers import contained_in
from batchlens.scaling._intervals import Interval
from batchlens.sweep._declaration import Cell, Declaration
from batchlens.sweep._guided import FINALIST, PATIENCE, Guided
from batchlens.sweep._guiding import DEFAULTS
from batchlens.sweep._reporting import interval_of, mean_steps, seed_steps, steps_interval
from batchlens.sweep._search import EDGE, Edge, Search, counted, group, ranked
from batchlens.sweep._store import Store
from batchlens.sweep._trial import Trial

# How far a guided search may leave its box.
LEAVE = DEFAULTS.leave
# Draws that the bootstrap holds in memory at once.
_AT_ONCE = 1 << 20
# Up to how many trials `best_of` shows every number, and minus the logarithm of what is negligible there.
_EVERY, _NEGLIGIBLE = 100, 50
# Of another target, fewer seeds that met it make no bound, as they make no measurement for a claim.
LEAST_REACHED = 3


class ByProduct(NamedTuple):
    """Another target, met on the way to the main one: settings were not tuned for it.

    `steps` is the geometric mean over the seeds that report and `interval` its 90% interval; where a seed missed it, a
    lower bound and open above, and None where fewer than three met it.  `minimum` is the fewest steps of any run of the
    cell.
    """

    steps: float | None
    interval: Interval | None
    minimum: float | None

    @property
    def is_bound(self) -> bool:
        """Whether a seed missed it."""
        return self.interval is not None and self.interval.high is None


class Reported(NamedTuple):
    """What fresh seeds say of the setting that a guided search chose.

    `steps` is their geometric mean, `weights` are those that count ("plain" or an average's name), `minimum` is the
    fewest steps that any run of the search took, which luck had a part in, `also` what came of other targets.
    """

    steps: float
    interval: Interval | None
    seeds: tuple[float | None, ...]
    weights: str
    minimum: float
    also: Mapping[str, ByProduct]

    def resample(self, count: int, seed: int) -> FloatArray:
        """Means of as many other seeds, by Student's distribution."""
        logs = np.log([steps for steps in self.seeds if steps is not None])
        if len(logs) < 2:
            return np.full(count, self.steps)
        error = np.std(logs, ddof=1) / math.sqrt(len(logs))
        drawn: FloatArray = np.exp(logs.mean() + error * np.random.default_rng(seed).standard_t(len(logs) - 1, count))
        return drawn


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
        reported: what fresh seeds of the setting that a guided search chose say.
        runs: how many runs have ended, repeats, finalists and fresh seeds included.
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
    reported: Reported | None = None
    runs: int = 0

    def repeat_steps(self) -> list[int | None]:
        """Steps of the winner's repeats; None where one did not reach the target."""
        return [trial.steps for trial in self.repeats]

    def best_of(self) -> list[BestOf]:
        """How the result would depend on the number of trials.

        Of m trials drawn without replacement from n, the k-th best is the best drawn with chance
        C(n - k, m - 1) / C(n, m).  A pruned trial is known only to be slower, and counts as not reaching the target.
        Of more than 100 trials, 100 numbers a decade are shown.
        """
        steps = np.sort([trial.steps for trial in self.members if trial.steps is not None]).astype(np.float64)
        total = len(counted(self.members))
        return [_best_of(steps, total, drawn) for drawn in _shown(total)]

    def bootstrap(self, count: int = 1000, seed: int = 0) -> FloatArray:
        """The winner's steps in `count` resamples of the trials that count; NaN where none reached the target.

        Of a guided search: the mean of its fresh seeds, as they scatter.
        """
        if self.reported is not None:
            return self.reported.resample(count, seed)
        steps = [math.inf if trial.steps is None else trial.steps for trial in counted(self.members)]
        if not steps:
            return np.full(count, np.nan)
        values, random = np.array(steps, dtype=np.float64), np.random.default_rng(seed)
        rows = max(_AT_ONCE // len(steps), 1)
        parts = [
            random.choice(values, (min(rows, count - done), len(steps))).min(axis=1) for done in range(0, count, rows)
        ]
        best: FloatArray = np.concatenate(parts)
        best[np.isinf(best)] = np.nan
        return best


def cell_results(store: Store, trials: Sequence[Trial] | None = None) -> list[CellResult]:
    """The results of every cell, in the order declared; `trials` are the store's, where they have been read."""
    declaration, generations = store.declaration, store.generations()
    trials = store.read_trials() if trials is None else trials
    if declaration.search == "guided":
        return guided_results(declaration, trials)
    grouped = group(trials)
    searches = [
        Search(cell, declaration.trials, generations[cell], grouped.get(cell, {})) for cell in declaration.cells
    ]
    repeats: dict[Cell, list[Trial]] = {}
    for trial in trials:
        if trial.key.repeat:
            repeats.setdefault(trial.key.cell, []).append(trial)
    outcomes = [_Outcome.of(search) for search in searches]
    counts = Counter(outcome.counted for outcome in outcomes if outcome.complete)
    usual = counts.most_common(1)[0][0] if counts else 0
    return [_result(outcome, declaration, repeats.get(outcome.cell, []), usual) for outcome in outcomes]


class _Outcome(NamedTuple):
    """What a search says, asked once: the answers take a look at every trial."""

    cell: Cell
    trials: int
    complete: bool
    members: tuple[Trial, ...]
    ranking: tuple[Trial, ...]
    edges: tuple[Edge, ...]
    counted: int

    @classmethod
    def of(cls, search: Search) -> "_Outcome":
        length = search.length
        members = tuple(search.members_of(length))
        ranking = tuple(ranked(members))
        return cls(
            cell=search.cell,
            trials=search.trials,
            complete=length is not None,
            members=members,
            ranking=ranking,
            edges=search.edges_of(ranking),
            counted=len(counted(members)),
        )


def _result(outcome: _Outcome, declaration: Declaration, repeats: list[Trial], usual: int) -> CellResult:
    winner = outcome.ranking[0] if outcome.ranking else None
    budget = declaration.budget(outcome.cell.batch_size)
    return CellResult(
        cell=outcome.cell,
        winner=winner,
        runners_up=outcome.ranking[1 : declaration.keep],
        members=outcome.members,
        complete=outcome.complete,
        counted=outcome.counted,
        edges=outcome.edges,
        flags=tuple(_flags(outcome, winner, usual)),
        statuses=dict(Counter(trial.status for trial in outcome.members)),
        steps_saved=sum(budget - trial.steps_taken for trial in outcome.members if trial.status == "pruned"),
        repeats=tuple(trial for trial in repeats if winner is not None and trial.key.number == winner.key.number),
        runs=len(outcome.members) + len(repeats),
    )


def guided_results(declaration: Declaration, trials: Sequence[Trial]) -> list[CellResult]:
    """The results of a guided search, in the order declared."""
    guided = Guided(declaration, trials)
    by_cell: dict[Cell, list[Trial]] = {}
    for trial in trials:
        by_cell.setdefault(trial.key.cell, []).append(trial)
    results = [_guided_result(cell, guided, by_cell.get(cell, [])) for cell in declaration.cells]
    found = {result.cell: result for result in results}
    return [replace(result, flags=(*result.flags, *_nested_flags(result, found))) for result in results]


def _guided_result(cell: Cell, guided: Guided, trials: list[Trial]) -> CellResult:
    members = [trial for trial in trials if trial.key.number < FINALIST]
    reports = guided.reports(cell)
    best = min(
        (trial for trial in members if guided.crossing(trial, cell.optimizer) is not None),
        key=lambda trial: guided.crossing(trial, cell.optimizer) or 0.0,
        default=None,
    )
    winner = next((trial for trial in reports if trial.steps is not None), None) if reports else best
    edges = () if winner is None else _outer_edges(winner.position, LEAVE if guided.declaration.leave else 0.0)
    budget = guided.declaration.budget(cell.batch_size)
    return CellResult(
        cell=cell,
        winner=winner,
        runners_up=(),
        members=tuple(members),
        complete=guided.complete(cell),
        counted=len(members),
        edges=edges,
        flags=tuple(_guided_flags(guided.complete(cell), winner, edges, trials, reports)),
        statuses=dict(Counter(trial.status for trial in members)),
        steps_saved=sum(budget - trial.steps_taken for trial in members if trial.status == "pruned"),
        repeats=tuple(reports),
        reported=_reported(cell, guided, reports),
        runs=len(trials),
    )


def _reported(cell: Cell, guided: Guided, reports: list[Trial]) -> Reported | None:
    choice, steps = guided.chosen(cell), mean_steps(reports)
    if choice is None or steps is None:
        return None
    seeds = tuple(seed_steps(trial) for trial in reports)
    also = {target: _by_product(cell, guided, reports, target) for target in guided.declaration.also_targets}
    return Reported(steps, steps_interval(reports), seeds, choice.weights, guided.fewest(cell) or steps, also)


def _by_product(cell: Cell, guided: Guided, reports: list[Trial], target: str) -> ByProduct:
    met = [guided.crossing(trial, cell.optimizer, target) for trial in reports]
    every = [guided.crossing(trial, cell.optimizer, target) for key, trial in guided.trials.items() if key.cell == cell]
    steps, interval = _mean_of_met(met, [trial.steps_taken for trial in reports])
    return ByProduct(steps, interval, min((steps for steps in every if steps is not None), default=None))


def _mean_of_met(met: Sequence[float | None], given: Sequence[int]) -> tuple[float | None, Interval | None]:
    """Of what seeds took to a target and of what they were given, which counts where one missed it."""
    missed = met.count(None)
    if not met or (missed and len(met) - missed < LEAST_REACHED):
        return None, None
    logs = [math.log(max(most if steps is None else steps, 1e-3)) for steps, most in zip(met, given, strict=True)]
    interval = interval_of(logs)
    bounded = Interval(interval.low, None) if interval is not None and missed else interval
    return math.exp(fmean(logs)), bounded


def _guided_flags(
    complete: bool, winner: Trial | None, edges: Sequence[Edge], trials: Sequence[Trial], reports: Sequence[Trial]
) -> list[str]:
    flags = [f"the chosen {edge.setting} is at the {edge.side} end of what may be searched" for edge in edges]
    if not complete:
        flags.append("not all trials have been run")
    elif winner is None and not reports:
        flags.append("no trial reached the target")
    if failed := [trial for trial in trials if trial.status == "failed"]:
        flags.append(f"{len(failed)} trials failed, the first with: {failed[0].reason}")
    if missed := [trial for trial in reports if trial.steps is None]:
        given_up = sum(trial.status == "pruned" for trial in missed)
        cut = f", {given_up} given up at {PATIENCE['report']:g} times the fewest steps" if given_up else ""
        flags.append(f"{len(missed)} of {len(reports)} seeds did not reach the target{cut}")
    return flags


def _outer_edges(position: Mapping[str, float], leave: float) -> tuple[Edge, ...]:
    """Where a position has left the declared box about as far as it may."""
    far = leave - EDGE
    sides = {name: "low" if value < -far else "high" if value > 1 + far else "" for name, value in position.items()}
    return tuple(Edge(name, side) for name, side in sides.items() if side)


def _nested_flags(result: CellResult, found: Mapping[Cell, CellResult]) -> list[str]:
    """Whether something that an optimizer contains is reported to be faster, by more than its interval."""
    flags = []
    for name in contained_in(result.cell.optimizer):
        inner = found.get(Cell(name, result.cell.batch_size))
        if inner is None or inner.reported is None or result.reported is None or result.reported.interval is None:
            continue
        low = result.reported.interval.low
        if low is not None and low > inner.reported.steps:
            flags.append(f"slower than {name}, which it contains")
    return flags


def _flags(outcome: _Outcome, winner: Trial | None, usual: int) -> list[str]:
    flags = [f"the winner's {edge.setting} is near the {edge.side} end of its range" for edge in outcome.edges]
    if not outcome.complete:
        flags.append("not all trials have been run")
    elif winner is None:
        flags.append("no trial reached the target")
    if failed := [trial for trial in outcome.members if trial.status == "failed"]:
        flags.append(f"{len(failed)} trials failed, the first with: {failed[0].reason}")
    if outcome.complete and outcome.counted < outcome.trials:
        flags.append(f"only {outcome.counted} of {outcome.trials} trials did not diverge or fail")
    elif outcome.complete and outcome.counted != usual:
        flags.append(f"{outcome.counted} trials count, {usual} in most other cells")
    return flags


def _shown(total: int) -> list[int]:
    """Every number of trials up to 100, then some of each decade, and the last one."""
    if total <= _EVERY:
        return list(range(1, total + 1))
    more = np.geomspace(_EVERY, total, int(_EVERY * math.log10(total / _EVERY)) + 2).round().astype(int).tolist()
    return sorted({*range(1, _EVERY + 1), *more})


def _best_of(steps: FloatArray, total: int, drawn: int) -> BestOf:
    """The chances C(n - k, m - 1) / C(n, m) by their ratios; those below exp(-50) of the first do not count."""
    enough = len(steps) if drawn == 1 else min(len(steps), 2 + int(_NEGLIGIBLE * total / (drawn - 1)))
    place = np.arange(1, enough)
    ratios = np.maximum(total - place - drawn + 1, 0) / (total - place)
    chances = np.cumprod(np.concatenate([[drawn / total], ratios]))[:enough]
    chance = math.fsum(chances)
    expected = math.fsum(chances * steps[:enough])
    sure = drawn > total - len(steps)
    return BestOf(drawn, 1.0 if sure else min(chance, 1.0), expected / chance if chance else math.nan)
