"""Guided search: what its trials say so far, cell by cell.  Reading needs no torch, and no proposals.

The search of a cell has rounds.  The first one is Sobol's, later ones look where those before have pointed, which all
cells of a family (sgd, momentum and nesterov, each also averaged) tell together.  Then two finalists are trained with
three other seeds each, and the better of them with fresh seeds: these, which had no part in any choice, are reported.

Averages are measured beside every run of an optimizer of which the averaged form is searched as well, so that a run of
the one is also one of the other; and a run without momentum is one of those with momentum, at 0.

Slow runs are cut short.  So that nothing depends on when, every round of a cell has a *horizon*, a step that follows
from results alone: what was met by then is known, of the rest that it takes longer.
"""

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from statistics import fmean, stdev
from typing import NamedTuple

from batchlens._grid import PLAIN, next_wide_rung
from batchlens.optimizers import OPTIMIZERS, averaged, base_of, is_averaged
from batchlens.sweep._declaration import Cell, Declaration
from batchlens.sweep._reporting import half_width
from batchlens.sweep._trial import Key, Trial

# Numbers from here on are finalists; their repeats 1, 2 and 3 choose, later ones report.
FINALIST = 100_000
FINALISTS, CHOOSING = 2, 3
# Seeds that report where a precision is asked for: at least, and at most.
LEAST_SEEDS, MOST_SEEDS = 5, 64
# How many of the best trials of a cell are known exactly.
KEEP = 4
# Trials of a first race wait for one another from this step on, and again after it has grown by this much.
_FIRST_PAUSE, _PAUSE_GROWTH = 16, 1.5
# A race is over at this multiple of the fewest steps: what arrives later tells the surface no more than its absence.
_RACE = 1.5
# Which part of the trials are Sobol's, and how many rounds share the rest.
_SOBOL, _GUIDED_ROUNDS = 0.42, 4
# A finalist, and one that reports, is given up at this multiple of the best steps of the search.
PATIENCE = {"choose": 3.0, "report": 4.0}


def rounds_of(trials: int) -> tuple[int, ...]:
    """How many trials of a search each round has.

    >>> rounds_of(29), rounds_of(3)
    ((12, 5, 4, 4, 4), (1, 1, 1))
    """
    first = max(1, round(_SOBOL * trials))
    left = trials - first
    rounds = [left // _GUIDED_ROUNDS + (place < left % _GUIDED_ROUNDS) for place in range(_GUIDED_ROUNDS)]
    return (first, *(count for count in rounds if count))


def pauses(budget: int) -> list[int]:
    """The wide rungs at which the trials of a race wait for one another.

    >>> pauses(200)
    [21, 33, 51, 79, 119, 180]
    """
    found, step, due = [], 0, float(_FIRST_PAUSE)
    while (step := next_wide_rung(step)) < budget:
        if step >= due:
            found.append(step)
            due = step * _PAUSE_GROWTH
    return found


class Outcome(NamedTuple):
    """A setting and what a run of it took: steps to the target, or where `censored` steps that were not enough."""

    trial: Trial
    steps: float
    censored: bool


class Guided:
    """What the trials of a guided sweep say.

    Limits of a round follow from the rounds before, which are complete when it begins: they are worked out once.
    """

    def __init__(self, declaration: Declaration, trials: Iterable[Trial]) -> None:
        self.declaration = declaration
        self.trials: dict[Key, Trial] = {}
        self._finals: dict[Cell, list[Key]] = {}
        self._limits: dict[tuple[Cell, int], int | None] = {}
        self._rounds_done: dict[str, int] = {}
        self._fewest: dict[Cell, float | None] = {}
        for trial in trials:
            self.add(trial)

    def add(self, trial: Trial) -> None:
        """Takes in a trial that has ended."""
        if trial.key not in self.trials and trial.key.number >= FINALIST:
            self._finals.setdefault(trial.key.cell, []).append(trial.key)
        self.trials[trial.key] = trial

    def rounds(self, optimizer: str) -> tuple[int, ...]:
        """An averaged optimizer has the runs of the plain one, and half as many of its own, none of them Sobol's."""
        rounds = rounds_of(self.declaration.trials)
        if self._is_twin(optimizer):
            return (0, *((count + 1) // 2 for count in rounds[1:]))
        return rounds

    def _is_twin(self, optimizer: str) -> bool:
        return is_averaged(optimizer) and base_of(optimizer) in self.declaration.optimizers

    def measures_averages(self, optimizer: str) -> bool:
        """Whether runs of an optimizer have a ladder of averages beside them."""
        return averaged(optimizer) in self.declaration.optimizers

    def round_keys(self, cell: Cell, round_: int) -> list[Key]:
        """The trials of a round."""
        counts = self.rounds(cell.optimizer)
        first = sum(counts[:round_])
        return [Key(*cell, number) for number in range(first, first + counts[round_])]

    def round_of(self, key: Key) -> int:
        """The round of a trial of the search."""
        counts = self.rounds(key.optimizer)
        return next(round_ for round_ in range(len(counts)) if key.number < sum(counts[: round_ + 1]))

    def round_done(self, cell: Cell, round_: int) -> bool:
        """Whether all its trials have ended."""
        return all(key in self.trials for key in self.round_keys(cell, round_))

    def family(self, optimizer: str) -> list[str]:
        """Those that learn from one another."""
        return next(family for family in self.declaration.families if optimizer in family)

    def family_round(self, optimizer: str) -> int:
        """The first round that some cell of the family has not done; the number of rounds where all are."""
        family, most = self.family(optimizer), len(rounds_of(self.declaration.trials))
        cells = [Cell(name, size) for name in family for size in self.declaration.batch_sizes]
        round_ = self._rounds_done.get(family[0], 0)
        while round_ < most and all(self.round_done(cell, round_) for cell in cells):
            round_ += 1
        self._rounds_done[family[0]] = round_
        return round_

    def crossing(self, trial: Trial, optimizer: str, target: str = "") -> float | None:
        """Steps that the weights which count for `optimizer` took to a target in a run, the main one unless named."""
        found = trial.crossings.get(target or self.declaration.main_target, {})
        names = found if is_averaged(optimizer) else [name for name in found if name == PLAIN]
        return min((found[name][1] for name in names), default=None)

    def sources(self, optimizer: str) -> list[str]:
        """Whose runs are also runs of an optimizer: its own, those of its averaged or plain form, and at momentum 0."""
        base = base_of(optimizer)
        inner = OPTIMIZERS[base].becomes
        names = [optimizer, base if is_averaged(optimizer) else averaged(optimizer)]
        names += [inner, averaged(inner)] if inner else []
        return [name for name in names if name in self.declaration.optimizers and self._tells(name, optimizer)]

    def _tells(self, source: str, optimizer: str) -> bool:
        """Whether a run of `source` measures the weights that count for `optimizer`."""
        return is_averaged(source) == is_averaged(optimizer) or self.measures_averages(base_of(source))

    def outcomes(self, cell: Cell, rounds: int) -> list[Outcome]:
        """What is known of a cell after its first so many rounds, whoever's runs it comes from."""
        return [outcome for source in self.sources(cell.optimizer) for outcome in self._from(source, cell, rounds)]

    def _from(self, source: str, cell: Cell, rounds: int) -> Iterator[Outcome]:
        place = Cell(source, cell.batch_size)
        for round_ in range(min(rounds, len(self.rounds(source)))):
            horizon = self.horizon(place, round_)
            for key in self.round_keys(place, round_):
                trial = self.trials.get(key)
                if trial is not None and trial.status != "failed":
                    yield self._outcome(trial, source, cell.optimizer, horizon)

    def _outcome(self, trial: Trial, source: str, optimizer: str, horizon: int) -> Outcome:
        """A run ends when its own weights arrive, or at the horizon; others may have arrived by then."""
        own, seen = self.crossing(trial, source), self.crossing(trial, optimizer)
        arrived = own is not None and own <= horizon
        if seen is not None and (arrived or seen <= horizon):
            return Outcome(trial, seen, False)
        return Outcome(trial, own if own is not None and arrived else float(horizon), True)

    def known(self, cell: Cell, rounds: int) -> list[float]:
        """The steps of those that arrived, fewest first."""
        return sorted(outcome.steps for outcome in self.outcomes(cell, rounds) if not outcome.censored)

    def limit(self, cell: Cell, round_: int) -> int | None:
        """The step beyond which a run of a round is of no interest; None where too little is known to say."""
        if (cell, round_) in self._limits:
            return self._limits[cell, round_]
        known = self.known(cell, round_)
        otherwise = int(1.5 * known[-1]) if known else None
        limit = int(known[KEEP - 1]) if len(known) >= KEEP else otherwise
        if self.family_round(cell.optimizer) >= round_:
            self._limits[cell, round_] = limit
        return limit

    def horizon(self, cell: Cell, round_: int) -> int:
        """The step by which the runs of a round are judged."""
        budget, limit = self.declaration.budget(cell.batch_size), self.limit(cell, round_)
        if limit is not None:
            return min(_rung_beyond(limit), budget)
        taken = [self.crossing(self.trials[key], cell.optimizer) for key in self._ended(cell, round_)]
        return race_end([steps for steps in taken if steps is not None], budget)

    def _ended(self, cell: Cell, round_: int) -> list[Key]:
        return [key for key in self.round_keys(cell, round_) if key in self.trials]

    def finals(self, cell: Cell) -> list[Key]:
        """Trials of finalists, those that report among them."""
        return self._finals.get(cell, [])

    def finalists(self, cell: Cell) -> list[int]:
        """The numbers of those that have been started."""
        return sorted({key.number for key in self.finals(cell)})

    def chosen(self, cell: Cell) -> "Choice | None":
        """The finalist, and of an averaged optimizer the averaging, that took fewest steps over the choosing seeds.

        Where settings scatter, three seeds in luck make a bad one look good: of two that cannot be told apart the
        steadier one is chosen.
        """
        choices = [choice for number in self.finalists(cell) for choice in self._choices(cell, number)]
        weight = 1.0 if self.declaration.steady else 0.0
        return min(choices, key=lambda choice: choice.log_steps + weight * choice.error, default=None)

    def _choices(self, cell: Cell, number: int) -> "Iterator[Choice]":
        keys = [Key(*cell, number, repeat) for repeat in range(1, CHOOSING + 1)]
        trials = [self.trials[key] for key in keys if key in self.trials]
        if len(trials) < CHOOSING:
            return
        found = [trial.crossings.get(self.declaration.main_target, {}) for trial in trials]
        every = list(dict.fromkeys(name for crossings in found for name in crossings)) or [PLAIN]
        patience = self.patience(cell, "choose")
        for name in every if is_averaged(cell.optimizer) else [PLAIN]:
            logs = [_log_steps(trial, by, name, patience) for trial, by in zip(trials, found, strict=True)]
            yield Choice(number, name, fmean(logs), stdev(logs) / math.sqrt(len(logs)))

    def patience(self, cell: Cell, what: str) -> int:
        """The step beyond which a finalist, or a seed that reports, is given up."""
        fewest = self.fewest(cell)
        return self.declaration.budget(cell.batch_size) if fewest is None else math.ceil(PATIENCE[what] * fewest)

    def fewest(self, cell: Cell) -> float | None:
        """The fewest steps of a search; worked out once where all its rounds are done."""
        if cell in self._fewest:
            return self._fewest[cell]
        rounds = len(rounds_of(self.declaration.trials))
        found = min(self.known(cell, rounds), default=None)
        if self.family_round(cell.optimizer) == rounds:
            self._fewest[cell] = found
        return found

    def finalists_done(self, cell: Cell, count: int) -> bool:
        """Whether so many finalists have been trained with all their seeds."""
        numbers, seeds = range(FINALIST, FINALIST + count), range(1, CHOOSING + 1)
        return all(Key(*cell, number, seed) in self.trials for number in numbers for seed in seeds)

    def following(self, failed: Collection[Key]) -> set[Key]:
        """The trials that were chosen by what has failed: they are void once that is run again.

        A trial of a search has a say in all later rounds of its family, one of a finalist in the seeds that report.
        """
        void = set[Key]()
        for key in failed:
            family = self.family(key.optimizer)
            if key.number >= FINALIST:
                void |= {other for other in self.finals(key.cell) if other.repeat > CHOOSING >= key.repeat}
                continue
            round_ = self.round_of(key)
            mine = [other for other in self.trials if other.optimizer in family]
            void |= {other for other in mine if other.number >= FINALIST or self.round_of(other) > round_}
        return void

    def planned(self, cell: Cell) -> int:
        """How many trials a cell has in the end."""
        return sum(self.rounds(cell.optimizer)) + FINALISTS * CHOOSING + self.declaration.seeds

    def complete(self, cell: Cell) -> bool:
        """Whether the search has come to its end, with or without anything to report."""
        rounds = len(rounds_of(self.declaration.trials))
        if self.family_round(cell.optimizer) < rounds:
            return False
        if self.fewest(cell) is None:
            return True
        return self.chosen(cell) is not None and len(self.reports(cell)) >= self.seeds(cell)

    def seeds(self, cell: Cell) -> int:
        """How many fresh seeds a cell should have, from what those that have ended say."""
        wanted, precision = self.declaration.seeds, self.declaration.precision
        if precision is None:
            return wanted
        reports = self.reports(cell)
        if len(reports) < LEAST_SEEDS:
            return LEAST_SEEDS
        width = half_width(reports)
        if width is None:  # a seed that missed the target leaves the interval open, whatever others say
            return max(wanted, LEAST_SEEDS)
        enough = width <= precision and len(reports) >= wanted
        return len(reports) if enough else max(wanted, min(len(reports) + 1, MOST_SEEDS))

    def reports(self, cell: Cell) -> list[Trial]:
        """The chosen finalist's runs with fresh seeds, by seed."""
        choice = self.chosen(cell)
        if choice is None:
            return []
        keys = [key for key in self.finals(cell) if key.number == choice.number and key.repeat > CHOOSING]
        return [self.trials[key] for key in sorted(keys)]


class Choice(NamedTuple):
    """A finalist, whose weights count, and the mean of its log steps over the seeds that choose, with its error."""

    number: int
    weights: str
    log_steps: float
    error: float


def _log_steps(trial: Trial, crossings: Mapping[str, tuple[int, float]], name: str, patience: int) -> float:
    """Of weights that had not arrived when the run ended, those steps and half as many again.

    A run that diverged or failed never arrives: early or late, it counts as one given up.
    """
    if name in crossings:
        return math.log(max(crossings[name][1], 1e-3))
    return math.log(1.5 * max(trial.steps_taken, patience if trial.status != "reached" else 1))


def _rung_beyond(limit: int) -> int:
    step = 0
    while step <= limit:
        step = next_wide_rung(step)
    return step


def race_end(taken: Sequence[float], budget: int) -> int:
    """The pause by which enough trials had arrived or the first of them was well behind, or the budget."""
    over = _RACE * min(taken, default=math.inf)
    for pause in pauses(budget):
        if pause >= over or sum(steps <= pause for steps in taken) >= KEEP:
            return pause
    return budget
