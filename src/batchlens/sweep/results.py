"""What a sweep found: one scaling curve per optimizer, how sure it is, and what speaks against it."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from batchlens._checks import require_path
from batchlens._results import Result, axes_or_new
from batchlens.scaling._intervals import CONFIDENCE as RESAMPLED
from batchlens.scaling.curve import ScalingCurve
from batchlens.sweep._cells import cell_results
from batchlens.sweep._curves import MeasuredCell, MeasuredCurve, curve_document, measure
from batchlens.sweep._declaration import Declaration
from batchlens.sweep._export import results_table, write_tables
from batchlens.sweep._reporting import LEVEL as REPORTED
from batchlens.sweep._store import Store
from batchlens.sweep._trial import Trial

if TYPE_CHECKING:
    import pandas
    from matplotlib.axes import Axes

    from batchlens.sweep._filling import Summary

__all__ = ["SweepResult", "read_sweep"]


@dataclass(frozen=True, repr=False)
class SweepResult(Result):
    """A sweep as far as its store goes.

    Arguments:
        path: of the store.
        declaration: everything that the result depends on.
        shard: "I/N" where the store holds a part of the sweep, else "".
        measured: one entry for each optimizer, with its curve, its cells and its critical batch sizes.
        versions: of what ran the trials, several where they differ.
        ended: how many trials have ended, repeats included.
        steps: of all trials.
        seconds: of all trials.
        steps_saved: by pruning, at most.
        notes: what a reader should know, by optimizer, such as which parameters K-FAC does not precondition.
        lost: what of a damaged store could not be read, in words.
        summary: what the run that just ended did; None where the store was only read.

    >>> import tempfile
    >>> import batchlens as bl
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     bl.run_sweep("digits", ["sgd"], [64], trials=1, store=f"{folder}/one.sqlite", workers=1, max_steps=5)
    <SweepResult: digits, 1 optimizer at 1 batch size, 1 of 1 searches complete; critical batch size sgd unknown (knee)>
    """

    path: Path
    declaration: Declaration
    shard: str
    measured: tuple[MeasuredCurve, ...]
    versions: Mapping[str, str]
    ended: int
    steps: int
    seconds: float
    steps_saved: int
    notes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    lost: str = ""
    summary: "Summary | None" = None

    @property
    def name(self) -> str:
        """The store's file name."""
        return self.path.name

    @property
    def cells(self) -> list[MeasuredCell]:
        """Every optimizer at every batch size, optimizer by optimizer."""
        return [cell for curve in self.measured for cell in curve.cells]

    @property
    def complete(self) -> bool:
        """Whether every search has all its trials."""
        return all(cell.result.complete for cell in self.cells)

    @property
    def cells_done(self) -> int:
        """How many searches have all their trials."""
        return sum(cell.result.complete for cell in self.cells)

    def curves(self) -> dict[str, ScalingCurve]:
        """The scaling curve of every optimizer, by name."""
        return {entry.optimizer: entry.curve for entry in self.measured}

    @property
    def headline(self) -> str:
        """Critical batch sizes (knee), and how far the sweep is."""
        optimizers, sizes = len(self.declaration.optimizers), len(self.declaration.batch_sizes)
        what = f"{optimizers} optimizer{'s' * (optimizers > 1)} at {sizes} batch size{'s' * (sizes > 1)}"
        done = f"{self.cells_done} of {len(self.cells)} searches complete"
        found = ", ".join(
            f"{entry.optimizer} {entry.estimates[0].critical_batch_size}{'' if entry.complete else ' (unfinished)'}"
            for entry in self.measured
        )
        return f"{self.declaration.workload}, {what}, {done}; critical batch size {found} (knee)"

    def to_frame(self) -> "pandas.DataFrame":
        """One row per optimizer and batch size: the winner, its settings and what speaks against it."""
        return results_table([cell.result for cell in self.cells])

    def trials(self) -> "pandas.DataFrame":
        """One row per trial, one column per setting, as the store has them now."""
        with Store.open(self.path) as store:
            return store.trials()

    def histories(self) -> "pandas.DataFrame":
        """Every evaluation of every trial, as the store has them now; a metric is a bound unless `relation` is "="."""
        with Store.open(self.path) as store:
            return store.histories()

    def to_csv(self, folder: Path | str) -> list[Path]:
        """Writes results.csv, trials.csv and histories.csv into `folder`."""
        tables = {"results": self.to_frame(), "trials": self.trials(), "histories": self.histories()}
        return write_tables(tables, Path(folder))

    def plot(self, ax: "Axes | None" = None) -> "Axes":
        """Every optimizer's steps against batch size, each with its critical batch size."""
        from batchlens.scaling._plots import draw_curve

        ax = axes_or_new(ax)
        for curve in self.curves().values():
            draw_curve(ax, curve)
        return ax

    def as_document(self) -> dict[str, Any]:
        """What `batchlens report --json` prints."""
        names = ("workload", "size", "target", "target_on", "also_targets", "search", "trials", "seeds", "seed")
        did = {} if self.summary is None else asdict(self.summary)
        return {
            "store": str(self.path),
            **did,
            **{name: getattr(self.declaration, name) for name in names},
            "interval_level": REPORTED if self.declaration.search == "guided" else RESAMPLED,
            "complete": self.complete,
            "cells": len(self.cells),
            "cells_done": self.cells_done,
            "ended": self.ended,
            "steps_saved_at_most": self.steps_saved,
            "notes": {name: list(found) for name, found in self.notes.items()},
            "lost": self.lost,
            "curves": [curve_document(entry) for entry in self.measured],
        }


def read_sweep(path: Path | str) -> SweepResult:
    """What a sweep's store says, while the sweep runs or afterwards; needs no torch.

    Of a damaged store what can be read counts, with a warning that says what cannot.

    Arguments:
        path: the file that `run_sweep` or `batchlens sweep --store` made.

    >>> read_sweep("nothing.sqlite")
    Traceback (most recent call last):
    ...
    batchlens.errors.BatchlensError: nothing.sqlite is not a file.
    """
    with Store.open(require_path("path", path)) as store:
        return _read(store)


def _read(store: Store) -> SweepResult:
    declaration, trials = store.declaration, store.read_trials()
    results = cell_results(store, trials)
    seeded = list(enumerate(results))
    return SweepResult(
        path=store.path,
        declaration=declaration,
        shard=store.shard,
        measured=tuple(
            measure(name, [(seed, result) for seed, result in seeded if result.cell.optimizer == name], declaration)
            for name in declaration.optimizers
        ),
        versions=_join(trial.versions for trial in trials),
        ended=len(trials),
        steps=sum(trial.steps_taken for trial in trials),
        seconds=sum(trial.seconds for trial in trials),
        steps_saved=sum(result.steps_saved for result in results),
        notes=_gather_notes(trials),
        lost=store.lost,
    )


def _gather_notes(trials: Iterable[Trial]) -> dict[str, tuple[str, ...]]:
    """The notes of every optimizer's trials, each once."""
    found: dict[str, dict[str, None]] = {}
    for trial in trials:
        found.setdefault(trial.key.optimizer, {}).update(dict.fromkeys(trial.notes))
    return {optimizer: tuple(notes) for optimizer, notes in found.items() if notes}


def _join(versions: Iterable[Mapping[str, str]]) -> dict[str, str]:
    """What all have in common, and where they differ every one."""
    seen: dict[str, dict[str, None]] = {}
    for entry in versions:
        for name, version in entry.items():
            seen.setdefault(name, {})[version] = None
    return {name: ", ".join(sorted(found)) for name, found in seen.items()}
