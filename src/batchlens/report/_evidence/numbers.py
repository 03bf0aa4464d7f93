"""What the formulas of claims are made of: the numbers of one sweep, for its seeds as they are and for resamples.

Every number is an array with an entry per draw of the fresh seeds.  The first draw has each seed once, the next ones
leave out one seed each, the rest are resamples.  Cells with as many seeds share their draws, so that pairs stay pairs.
Resampled means lie too close to the mean, the more so the fewer seeds there are: they are moved away from it until 90%
of them lie where Student's interval does.
"""

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType
from typing import Any

import numpy as np
from scipy import stats

from batchlens._arrays import FloatArray
from batchlens.optimizers import base_of
from batchlens.report._evidence.formulas import FUNCTIONS
from batchlens.scaling._critical import END_WIDTH, read_curves
from batchlens.sweep._curves import MeasuredCell
from batchlens.sweep._guided import CHOOSING, Guided
from batchlens.sweep._reporting import log_steps
from batchlens.sweep.results import SweepResult

RESAMPLES = 1000
# Fewer seeds that reached the target do not make a measurement.
LEAST_REACHED = 3
_HALF_WIDTH = 8.0
_PLURALS = {"end": "ends", "half": "halves"}
_ROUNDING = 1e-9
# By how much the chosen learning rate of a cell is taken to scatter, in its logarithm, and K-FAC's (claims.toml).
_RATE_SCATTER, _KFAC_RATE_SCATTER = 0.25, 1.0
# How many times the steps that it was given a seed may need that missed its target.
_FAR_OFF = 100.0
# Where a bounded critical batch size may lie, instead of at its bound.
_FAR = {1: math.inf, -1: 0.0}

Place = tuple[str, int]  # an optimizer at a batch size
Quantity = Callable[[str, int], FloatArray]


class NotMeasuredError(Exception):
    """A number that the sweep does not have, or not yet; the message says why."""


@lru_cache(maxsize=64)
def draw_seeds(seeds: int, resamples: int = RESAMPLES) -> FloatArray:
    """How often each of so many seeds counts, a row per resample."""
    drawn: FloatArray = np.random.default_rng(0).multinomial(seeds, [1 / seeds] * seeds, size=resamples).astype(float)
    drawn.flags.writeable = False  # it is kept
    return drawn


class Numbers:
    """The numbers of one sweep.

    Arguments:
        main: another of its targets in place of the main one.
        late: cells, an optimizer and a batch size each, whose seeds that missed the target are taken to be far off.
        instead: cells in place of which others are taken.
    """

    def __init__(
        self,
        sweep: SweepResult,
        resamples: int = RESAMPLES,
        main: str = "",
        late: Collection[Place] = (),
        instead: Mapping[Place, Place] = MappingProxyType({}),
    ) -> None:
        self.sweep, self.main, self.late, self.instead = sweep, main, frozenset(late), instead
        self.batch_sizes = sorted(sweep.declaration.batch_sizes)
        self._cells = {(cell.result.cell.optimizer, cell.batch_size): cell for cell in sweep.cells}
        self._cells |= {place: self._cells[other] for place, other in instead.items()}
        self.seeds = max(
            (_seed_of(trial.key.repeat) + 1 for cell in sweep.cells for trial in cell.result.repeats), default=1
        )
        self.resamples = resamples
        self._guided = Guided(sweep.declaration, ())
        self._steps: dict[tuple[str, str, int], FloatArray] = {}
        self._critical: dict[str, tuple[FloatArray, FloatArray]] = {}
        self.used: set[Place] = set()
        self._missed: set[Place] = set()
        self._later: dict[frozenset[Place], Numbers] = {}

    @property
    def draws(self) -> int:
        """All seeds, all but each one, and the resamples."""
        return 1 + self.seeds + self.resamples

    @property
    def rests_on_a_miss(self) -> bool:
        """Whether a seed of a cell that was used has missed its target."""
        return bool(self.used & self._missed)

    @property
    def later(self) -> "Numbers":
        """The same, with all seeds that missed their target far off."""
        return self._with_late(self._cells)

    def ways_of_misses(self) -> list["Numbers"]:
        """The same with each cell far off that was used and has a miss, and with all of them.

        Moved together only, misses on both sides of a ratio would cancel.
        """
        missed = sorted(self.used & self._missed)
        ways = [[cell] for cell in missed] + ([missed] if len(missed) > 1 else [])
        return [self._with_late(way) for way in ways]

    def _with_late(self, cells: Iterable[Place]) -> "Numbers":
        late = frozenset(cells)
        if late not in self._later:
            self._later[late] = Numbers(self.sweep, self.resamples, self.main, late, self.instead)
        return self._later[late]

    def names(self, far: Collection[str] = ()) -> dict[str, Any]:
        """What a formula may name; a bounded critical batch size of optimizers in `far` is as far off as can be."""
        return {
            **FUNCTIONS,
            "steps": self.steps,
            "steps_at": self.steps_at,
            "paired": self.paired,
            "critical": lambda optimizer: self.critical(optimizer, optimizer in far),
            "paired_critical": lambda a, o: self.critical(a, a in far) / self.critical(o, o in far),
            "rate": self.rate,
            "slope": self.slope,
            "smallest": self.batch_sizes[0],
            "largest": self.batch_sizes[-1],
            "other": "other",
            **{name: name for name in ("small_end", "large_end", "small_half", "large_half", "every")},
        }

    def steps(self, optimizer: str, batch_size: int) -> FloatArray:
        """Geometric means to the main target."""
        return self._mean(self.main, optimizer, batch_size)

    def steps_at(self, target: str, optimizer: str, batch_size: int) -> FloatArray:
        """The same to another target of the same runs."""
        return self._mean(self.other_target() if target == "other" else target, optimizer, batch_size)

    def paired(self, averaged: str, plain: str, batch_size: int) -> FloatArray:
        """Steps of the one over steps of the other, seed by seed."""
        logs = self._logs(self.main, averaged, batch_size) - self._logs(self.main, plain, batch_size)
        return self._mean_of(logs, f"{averaged} and {plain} at {batch_size:,}")

    def critical(self, optimizer: str, far: bool = False) -> FloatArray:
        """Critical batch sizes by "fit"."""
        for size in self.batch_sizes:
            self._cell(optimizer, size)
        if optimizer not in self._critical:
            steps = np.stack([self.steps(optimizer, size) for size in self.batch_sizes], axis=1)
            log_value, side = read_curves("fit", np.log(self.batch_sizes), np.log(steps))
            extreme = np.select([side == 1, side == -1], [_FAR[1], _FAR[-1]], np.exp(log_value))
            self._critical[optimizer] = np.exp(log_value), extreme
        return self._critical[optimizer][far]

    def rate(self, optimizer: str, batch_size: int) -> FloatArray:
        """The effective learning rate of the chosen setting, the rate itself where momentum was not searched.

        Resamples scatter as choices are taken to.
        """
        cell = self._cell(optimizer, batch_size)
        rate = cell.effective_learning_rate or cell.settings.get("learning_rate")
        if rate is None:
            raise NotMeasuredError(f"{optimizer} at {batch_size:,} has no learning rate")
        away = np.zeros(self.draws)
        random = np.random.default_rng([batch_size, *optimizer.encode()])
        away[1 + self.seeds :] = rate_scatter(optimizer) * random.standard_normal(self.resamples)
        rates: FloatArray = rate * np.exp(away)
        return rates

    def slope(self, quantity: Quantity, optimizer: str, part: str) -> FloatArray:
        """Least-squares slope of log quantity over log batch size."""
        sizes = self._part(part)
        _, _, width = part.partition("_")
        if width and set(self._part(f"small_{width}")) & set(self._part(f"large_{width}")):
            raise NotMeasuredError(f"the two {_PLURALS[width]} share a batch size")
        logs = np.log(np.stack([quantity(optimizer, size) for size in sizes], axis=1))
        away = np.log(sizes) - np.mean(np.log(sizes))
        slopes: FloatArray = logs @ away / (away @ away)
        return slopes

    def other_target(self) -> str:
        """The target on the other set that most seeds have reached, the harder one where several have."""
        declaration = self.sweep.declaration
        on_training_set = declaration.target_on != "validation"
        found = {}
        for target in declaration.also_targets:
            if (target.startswith("validation")) == on_training_set:
                taken = [
                    self._guided.crossing(trial, cell.result.cell.optimizer, target)
                    for cell in self.sweep.cells
                    for trial in cell.result.repeats
                ]
                reached = [steps for steps in taken if steps]
                if 2 * len(reached) > len(taken):
                    found[target] = float(np.mean(np.log(reached)))
        if not found:
            asked = any(target.startswith("validation") == on_training_set for target in declaration.also_targets)
            why = "was reached by most seeds" if asked else "was asked for"
            raise NotMeasuredError(f"no target on the other set {why}")
        return max(found, key=lambda target: found[target])

    def warnings(self) -> list[str]:
        """What should make a reader wary of the searches behind the cells that were used."""
        return [
            f"{name} at {size:,}: {flag}"
            for name, size in sorted(self.used)
            for flag in self._cells[name, size].result.flags
        ]

    def same_runs(self) -> list[str]:
        """Which of the cells that were used report the same runs: one optimizer contains the other."""
        found: dict[tuple[int, tuple[float, ...]], list[str]] = {}
        for optimizer, size in sorted(self.used):
            trials = self._cells[optimizer, size].result.repeats
            if any(trial.steps is not None for trial in trials):
                found.setdefault((size, tuple(log_steps(trials))), []).append(optimizer)
        return [f"{' and '.join(names)} at {size:,}" for (size, _), names in found.items() if len(names) > 1]

    def _part(self, part: str) -> list[int]:
        width = {"end": END_WIDTH, "half": _HALF_WIDTH}.get(part.partition("_")[2], math.inf) * (1 + _ROUNDING)
        first, last = self.batch_sizes[0], self.batch_sizes[-1]
        if part.startswith("large"):
            return [size for size in self.batch_sizes if last / size <= width]
        return [size for size in self.batch_sizes if size / first <= width]

    def _cell(self, optimizer: str, batch_size: int) -> MeasuredCell:
        cell = self._cells[optimizer, batch_size]
        if not cell.result.complete:
            raise NotMeasuredError(f"{optimizer} at {batch_size:,} is not complete")
        self.used.add((optimizer, batch_size))
        return cell

    def _mean(self, target: str, optimizer: str, batch_size: int) -> FloatArray:
        key = target, optimizer, batch_size
        if key not in self._steps:
            self._steps[key] = self._mean_of(self._logs(*key), f"{optimizer} at {batch_size:,}")
        self._cell(optimizer, batch_size)
        return self._steps[key]

    def _logs(self, target: str, optimizer: str, batch_size: int) -> FloatArray:
        """Log steps by seed; one that missed the target enters with the steps that it was given, NaN: not run."""
        result = self._cell(optimizer, batch_size).result
        trials, counts_for = result.repeats, result.cell.optimizer
        logs, away = np.full(self.seeds, np.nan), math.log(_FAR_OFF) * ((optimizer, batch_size) in self.late)
        reached = 0
        for trial in trials:
            steps = trial.steps if not target else self._guided.crossing(trial, counts_for, target)
            reached += steps is not None
            log = log_steps([trial])[0] if not target else math.log(max(steps or trial.steps_taken, 1e-3))
            logs[_seed_of(trial.key.repeat)] = log + (away if steps is None else 0.0)
        if reached < len(trials):
            self._missed.add((optimizer, batch_size))
        if reached < LEAST_REACHED:
            raise NotMeasuredError(
                f"{reached} of {len(trials)} seeds of {optimizer} at {batch_size:,} reached the target"
            )
        return logs

    def _mean_of(self, logs: FloatArray, what: str) -> FloatArray:
        known = np.isfinite(logs)
        if known.sum() < LEAST_REACHED:
            raise NotMeasuredError(f"{what} share fewer than {LEAST_REACHED} seeds")
        means: FloatArray = np.exp(mean_of_seeds(logs, self.resamples))
        return means


def bound_of_misses(numbers: Numbers, optimizer: str) -> str:
    """What a critical batch size is where seeds missed their target: "at most ", "at least ", or neither for sure."""
    numbers.used.clear()
    try:
        found = float(numbers.critical(optimizer)[0])
    except NotMeasuredError:
        return ""
    late = [float(way.critical(optimizer)[0]) for way in numbers.ways_of_misses()]
    lower, higher = min(late, default=found) < found, max(late, default=found) > found
    return "" if lower == higher else "at most " if lower else "at least "


def rate_scatter(optimizer: str) -> float:
    """Of the choice that a search makes, in the logarithm of the effective learning rate.

    >>> rate_scatter("momentum+ema"), rate_scatter("kfac_no_momentum")
    (0.25, 1.0)
    """
    return _KFAC_RATE_SCATTER if base_of(optimizer).startswith("kfac") else _RATE_SCATTER


def mean_of_seeds(values: FloatArray, resamples: int) -> FloatArray:
    """In every draw: of all seeds that are known, of all but one, and of resamples, which are widened.

    >>> mean_of_seeds(np.array([1.0, 2.0, 6.0, np.nan]), 0).tolist()
    [3.0, 4.0, 3.5, 1.5, 3.0]
    """
    own = values[np.isfinite(values)]
    seeds, mean = len(own), own.mean()
    without = np.where(np.isfinite(values), (own.sum() - values) / (seeds - 1), mean)
    resampled = draw_seeds(seeds, resamples) @ own / seeds
    return np.concatenate([[mean], without, mean + _widening(seeds) * (resampled - mean)])


def _widening(seeds: int) -> float:
    """Student's interval over that of resampled means.

    >>> round(_widening(5), 2)
    1.45
    """
    return float(stats.t.ppf(0.95, seeds - 1) / stats.norm.ppf(0.95)) * math.sqrt(seeds / (seeds - 1))


def place_of(cell: MeasuredCell) -> Place:
    return cell.result.cell.optimizer, cell.batch_size


def _seed_of(repeat: int) -> int:
    """Of a seed that reports, among those."""
    return repeat - CHOOSING - 1


def percentiles(values: FloatArray, seeds: int, level: float = 0.9) -> tuple[float, float]:
    """Between which the resamples of a number lie."""
    resampled = values[1 + seeds :]
    if np.isnan(resampled).all():
        return math.nan, math.nan
    low, high = np.nanquantile(resampled, [(1 - level) / 2, (1 + level) / 2], method="nearest")  # some are infinite
    return float(low), float(high)


def widest(ways: Sequence[FloatArray], seeds: int) -> tuple[float, float]:
    """The interval of a number, from the lowest to the highest where misses or bounds leave open what it is."""
    ends = np.array([percentiles(values, seeds) for values in ways])
    return float(ends[:, 0].min()), float(ends[:, 1].max())
