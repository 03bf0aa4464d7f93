"""Where networks contradict the theory: every part of a claim that fails, what was tested, and the likely reason.

Three reasons can be tested on the sweep itself: luck with the seeds, the edge of a search, the target.  What else is
known stands in remarks.toml.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from batchlens.report._evidence.judging import Item, JudgedClaim, judge_item
from batchlens.report._evidence.numbers import Numbers
from batchlens.sweep.results import SweepResult

_FAILS = "fails"


class Contradiction(NamedTuple):
    """What fails on one network; `tested` is what was tried to explain it, `remark` the likely reason."""

    claim: JudgedClaim
    sweep: str
    item: Item
    tested: tuple[str, ...]
    remark: str


def find_contradictions(
    claims: Iterable[JudgedClaim], sweeps: Mapping[str, SweepResult], remarks: Iterable[Mapping[str, Any]]
) -> Iterator[Contradiction]:
    """Every item that fails, claim by claim."""
    known = {(entry["claim"], entry["sweep"], tuple(entry["optimizers"])): entry["remark"] for entry in remarks}
    for claim in claims:
        for judgement in claim.judgements:
            for item in judgement.items:
                if item.verdict == _FAILS:
                    sweep = sweeps.get(judgement.sweep)
                    tested = () if not item.cells or sweep is None else tuple(_tests(claim, item, sweep))
                    remark = known.get((claim.name, judgement.sweep, item.optimizers), "")
                    yield Contradiction(claim, judgement.sweep, item, tested, remark)


def _tests(claim: JudgedClaim, item: Item, sweep: SweepResult) -> Iterator[str]:
    if item.sureness is not None and any(found.low < found.high for found in item.values.values()):
        yield f"Seeds: it fails in {item.sureness:.0%} of resamples"
    at_edge = [
        f"{cell.result.cell.optimizer} at {cell.batch_size:,}"
        for cell in sweep.cells
        if (cell.result.cell.optimizer, cell.batch_size) in item.cells and cell.result.edges
    ]
    yield f"Edge of the search: {', '.join(at_edge) or 'no setting lies there'}"
    (part,) = (part for part in claim.parts if part["name"] == item.part)
    if any(name in " ".join(part["quantities"].values()) for name in ("steps", "critical", "paired")):
        for target in sweep.declaration.also_targets:
            verdict = _at_target(part, item, sweep, target)
            if verdict:
                yield f"Target: at {target.replace(':', ' ')} it {verdict}"


def _at_target(part: Mapping[str, Any], item: Item, sweep: SweepResult, target: str) -> str:
    """The verdict at another target of the same runs, settings being tuned for the main one."""
    (names,) = (names for names in part["over"] if tuple(names.values()) == item.optimizers)
    found, _ = judge_item(part, names, Numbers(sweep, resamples=0, main=target))
    return found.verdict if found.values else ""
