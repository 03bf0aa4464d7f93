"""Cells whose search is known to have found too little, and which verdicts better settings would change.

A search is at fault where fresh seeds say that an optimizer which the cell's own contains takes fewer steps there, or
where a chosen setting lies as far out as a search may go.  Verdicts stay as they are; what stands here is what they
would be with the settings of the contained optimizer.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from batchlens.optimizers import contained_in
from batchlens.report._evidence.judging import Judgement, judge_claim
from batchlens.report._evidence.numbers import Numbers, Place, place_of
from batchlens.report._evidence.reading import Evidence
from batchlens.sweep._curves import MeasuredCell
from batchlens.sweep.results import SweepResult


@dataclass(frozen=True)
class Fault:
    """A cell of a sweep; `better` is the fastest cell that it contains, `changes` what that one's settings change."""

    sweep: str
    cell: MeasuredCell
    better: MeasuredCell | None
    changes: tuple[str, ...] = ()

    @property
    def words(self) -> str:
        """What is wrong with its search."""
        if self.better is not None:
            return f"slower than {self.better.result.cell.optimizer}, which it contains: {_steps(self.better)} steps"
        return "; ".join(f"{edge.setting} at the {edge.side} end" for edge in self.cell.result.edges)


def fault_rows(evidence: Evidence) -> tuple[tuple[str, ...], list[list[str]]]:
    """Every such cell, a row each."""
    rows = [
        [
            fault.sweep,
            f"{fault.cell.result.cell.optimizer} at {fault.cell.batch_size:,}",
            _steps(fault.cell),
            fault.words,
            "; ".join(fault.changes) or ("nothing" if fault.better else "not known"),
        ]
        for fault in find_faults(evidence)
    ]
    return ("Network", "Cell", "Steps", "Its search", "With the settings of what it contains"), rows


def find_faults(evidence: Evidence) -> Iterator[Fault]:
    """Of every sweep, and of those that repeat one."""
    for name, sweep in evidence.measured.items():
        yield from _faults(evidence, name, sweep, "")
        if name in evidence.repeats:
            yield from _faults(evidence, name, evidence.repeats[name], ", again")


def _faults(evidence: Evidence, name: str, sweep: SweepResult, again: str) -> Iterator[Fault]:
    cells = {place_of(cell): cell for cell in sweep.cells}
    for cell in filter(lambda cell: cell.result.complete, sweep.cells):
        better = _better(cell, cells)
        if better is not None:
            mended = Numbers(sweep, 0, instead={place_of(cell): place_of(better)})
            changes = _changes(evidence, name, mended, bool(again))
            yield Fault(f"{name}{again}", cell, better, tuple(changes))
        elif cell.result.edges:
            yield Fault(f"{name}{again}", cell, None)


def _better(cell: MeasuredCell, cells: dict[Place, MeasuredCell]) -> MeasuredCell | None:
    """The fastest cell that it contains, of those that lie below its interval."""
    places = [(name, cell.batch_size) for name in contained_in(cell.result.cell.optimizer)]
    inner = [cells[place] for place in places if place in cells and cells[place].result.complete]
    faster = [other for other in inner if _lies_below(other, cell)]
    return min(faster, key=lambda other: other.steps or 0.0, default=None)


def _lies_below(other: MeasuredCell, cell: MeasuredCell) -> bool:
    low = None if cell.interval is None else cell.interval.low
    return low is not None and other.steps is not None and other.steps < low


def _changes(evidence: Evidence, name: str, better: Numbers, is_repeat: bool) -> Iterator[str]:
    """Items and claims on which the verdict is another one with better settings."""
    for document, claim in zip(evidence.document["claims"], evidence.claims, strict=True):
        if name in document["sweeps"]:
            (before,) = (entry for entry in (claim.again if is_repeat else claim.judgements) if entry.sweep == name)
            (after,) = (entry for entry in judge_claim(document, {name: better}).judgements if entry.sweep == name)
            yield from _item_changes(claim.name, before, after)
            if after.verdict != before.verdict:
                yield f"and so the claim: {before.verdict}, then {after.verdict}"


def _item_changes(claim: str, before: Judgement, after: Judgement) -> Iterator[str]:
    for old, new in zip(before.items, after.items, strict=True):
        if old.verdict != new.verdict:
            what = f"{claim}, {old.part}".replace("_", " ")
            yield f"{what}, {' and '.join(old.optimizers)}: {old.verdict}, then {new.verdict}"


def _steps(cell: MeasuredCell) -> str:
    return f"{cell.steps:,.3g}" if cell.steps is not None and cell.steps < 1000 else f"{cell.steps:,.0f}"
