"""Where networks contradict the theory: every part of a claim that fails, what was tested, and the likely reason.

Some reasons can be tested on the sweep itself: luck with the seeds, the search's edge, the target; luck with the search
on a sweep that repeats it.  What else is known stands in remarks.toml.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from batchlens.report._evidence.judging import SURE, Item, JudgedClaim, judge_item, rests_on_rates
from batchlens.report._evidence.numbers import Numbers
from batchlens.report._page.records import NOT_MEASURED
from batchlens.sweep.results import SweepResult

_FAILS = "fails"


class Contradiction(NamedTuple):
    """What fails on one network; `tested` is what was tried to explain it, `remark` the likely reason."""

    claim: JudgedClaim
    sweep: str
    item: Item
    again: Item | None  # the same in a sweep that repeats it
    tested: tuple[str, ...]
    remark: str
    against: str = ""  # what speaks against calling it one, such as a longer search

    @property
    def is_sure(self) -> bool:
        """Whether other seeds and another search would say so too; what was measured once is taken as it is."""
        sure = self.item.sureness is None or self.item.sureness >= SURE
        return sure and not self.against and (self.again is None or self._fails_again)

    @property
    def words(self) -> str:
        """Whether it is one."""
        if self.against:
            return f"may be chance: {self.against}"
        if not self.is_sure:
            return "may be chance, though it fails in both" if self._fails_again else "may be chance"
        return "measured once" if self.item.sureness is None else "yes"

    @property
    def _fails_again(self) -> bool:
        return self.again is not None and self.again.verdict == _FAILS


def find_contradictions(
    claims: Iterable[JudgedClaim], sweeps: Mapping[str, SweepResult], remarks: Iterable[Mapping[str, Any]]
) -> Iterator[Contradiction]:
    """Every item that fails, claim by claim."""
    known: dict[tuple[Any, ...], Mapping[str, Any]] = {
        (entry["claim"], entry["part"], entry["sweep"], tuple(entry["optimizers"])): entry for entry in remarks
    }
    for claim in claims:
        for judgement in claim.judgements:
            for item in judgement.items:
                if item.verdict == _FAILS:
                    sweep = sweeps.get(judgement.sweep)
                    again = claim.repeat_of(judgement.sweep, item)
                    tested = () if not item.cells or sweep is None else tuple(_tests(claim, item, again, sweep))
                    entry = known.get((claim.name, item.part, judgement.sweep, item.optimizers), {})
                    told = entry.get("remark", ""), entry.get("against", "")
                    yield Contradiction(claim, judgement.sweep, item, again, tested, *told)


def _tests(claim: JudgedClaim, item: Item, again: Item | None, sweep: SweepResult) -> Iterator[str]:
    (part,) = (part for part in claim.parts if part["name"] == item.part)
    formulas = " ".join(part["quantities"].values())
    if item.sureness is not None:
        what = "Choice of rates, as it is taken to scatter" if rests_on_rates(part) else "Seeds"
        yield f"{what}: it fails in {item.sureness:.0%} of resamples"
    if again is not None:
        yield f"Search and seeds again: it {_words(again)}"
    well = "no setting lies at its edge, and none is slower than what it contains"
    yield f"Search: {'; '.join(item.warnings) or well}"
    if "steps_at" not in formulas and any(name in formulas for name in ("steps", "critical", "paired")):
        for target in sweep.declaration.also_targets:
            found = _at_target(part, item, sweep, target)
            if found.values:
                yield f"Target: at {target} it {_words(found)}"


def _words(item: Item) -> str:
    values = ", ".join(f"{name} {value.value:.2g}" for name, value in item.values.items())
    verdict = f"is {item.verdict}" if item.verdict == NOT_MEASURED else item.verdict
    return f"{verdict} ({values})" if values else verdict


def _at_target(part: Mapping[str, Any], item: Item, sweep: SweepResult, target: str) -> Item:
    """What it is at another target of the same runs, settings being tuned for the main one."""
    (names,) = (names for names in part["over"] if tuple(names.values()) == item.optimizers)
    return judge_item(part, names, Numbers(sweep, resamples=0, main=target))[0]
