"""What sweeps that repeat another one say: on which verdicts the two differ, and how far critical batch sizes do."""

import math
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from batchlens.optimizers import base_of
from batchlens.report._evidence.judging import Item, JudgedClaim, Judgement
from batchlens.report._evidence.reading import Evidence
from batchlens.report._page.records import NOT_MEASURED
from batchlens.scaling._critical import DEFINITIONS
from batchlens.scaling._intervals import Interval


def repeat_rows(evidence: Evidence) -> tuple[tuple[str, ...], list[list[str]]]:
    """Every verdict and every item that was measured in both and on which the two differ."""
    claims = [
        [first.sweep, claim.sentence, "the claim", "", first.verdict, again.verdict]
        for claim, first, again in _repeated_claims(evidence)
        if first.verdict != again.verdict
    ]
    items = [
        [sweep, claim.sentence, item.part.replace("_", " "), ", ".join(item.optimizers), item.verdict, again.verdict]
        for claim, sweep, item, again in _repeated_items(evidence)
        if item.verdict != again.verdict
    ]
    return ("Network", "Claim", "Part", "Optimizers", "First", "Again"), [*claims, *items]


def _repeated_claims(evidence: Evidence) -> Iterator[tuple[JudgedClaim, Judgement, Judgement]]:
    for claim in evidence.claims:
        for first in claim.measured:
            yield from ((claim, first, again) for again in claim.again if again.sweep == first.sweep)


def _repeated_items(evidence: Evidence) -> Iterator[tuple[JudgedClaim, str, Item, Item]]:
    """Items that were measured in both."""
    for claim in evidence.claims:
        for judgement in claim.measured:
            for item in judgement.items:
                again = claim.repeat_of(judgement.sweep, item)
                if again is not None and NOT_MEASURED not in (item.verdict, again.verdict):
                    yield claim, judgement.sweep, item, again


def repeat_words(evidence: Evidence) -> str:
    """How much of the verdicts was luck of search and seeds, by the sweeps that were run again."""
    pairs = [(first.verdict, again.verdict) for _, first, again in _repeated_claims(evidence)]
    items = [(item.verdict, again.verdict) for _, _, item, again in _repeated_items(evidence)]
    same = sum(first == again for first, again in pairs)
    reversed_ = sum({"holds", "fails"} == set(pair) for pair in items)
    return (
        f"Run again with another search and other seeds, {', '.join(evidence.repeats)} comes to the same verdict on "
        f"{same} of {len(pairs)} claims and on {sum(one == other for one, other in items)} of {len(items)} of their "
        f"items; {reversed_} hold in one and fail in the other. {_critical_repeat_words(evidence)}"
    )


def _critical_repeat_words(evidence: Evidence) -> str:
    """How far critical batch sizes and steps of repeats lie apart, and how often by more than seeds explain."""
    critical, cells = list(_critical_pairs(evidence)), list(_cell_pairs(evidence))
    kinds = (("without K-FAC", False), ("with it", True))
    factors = " and ".join(f"{_largest(critical, kfac):.2g} {words}" for words, kfac in kinds)
    shares = " and ".join(f"{_share_by_seeds(cells, kfac):.0%} {words}" for words, kfac in kinds)
    beyond = sum(not pair.by_seeds for pair in critical)
    return (
        f"Of {len(critical)} critical batch sizes with intervals {beyond} differ{'s' * (beyond == 1)} by more than the "
        f"two 95% intervals together explain; they lie apart by a factor of {factors} at most. Of mean steps, cell by "
        f"cell, the two 90% intervals together explain {shares}, not 90%: the rest is the luck of the search, which "
        "intervals do not have."
    )


class _Pair(NamedTuple):
    """A number of a sweep and of the one that repeats it: log of the ratio, and how far seeds may have moved it."""

    optimizer: str
    log_ratio: float
    reach: float

    @property
    def by_seeds(self) -> bool:
        """Whether seeds explain it."""
        return abs(self.log_ratio) <= self.reach

    @property
    def is_kfac(self) -> bool:
        return base_of(self.optimizer).startswith("kfac")


def _critical_pairs(evidence: Evidence) -> Iterator[_Pair]:
    """Of critical batch sizes by "fit"."""
    fit = DEFINITIONS.index("fit")
    for name, again in evidence.repeats.items():
        second = {curve.optimizer: curve.estimates[fit] for curve in again.measured}
        for curve in evidence.measured[name].measured:
            one, other = curve.estimates[fit], second[curve.optimizer]
            values = one.critical_batch_size.value, other.critical_batch_size.value
            yield from _pair(curve.optimizer, values, (one.interval, other.interval))


def _cell_pairs(evidence: Evidence) -> Iterator[_Pair]:
    """Of mean steps."""
    for name, again in evidence.repeats.items():
        second = {cell.result.cell: cell for cell in again.cells}
        for cell in evidence.measured[name].cells:
            other = second[cell.result.cell]
            yield from _pair(cell.result.cell.optimizer, (cell.steps, other.steps), (cell.interval, other.interval))


def _pair(
    optimizer: str, values: tuple[float | None, float | None], intervals: tuple[Interval | None, Interval | None]
) -> Iterator[_Pair]:
    """None where a value or an end is not known.  Of each interval the half counts that points to the other value."""
    (first, second), (one, other) = values, intervals
    if not first or not second or one is None or other is None:
        return
    near, far = (one.low, other.high) if first > second else (one.high, other.low)
    if near is not None and far is not None and None not in (*one, *other):
        reach = math.hypot(math.log(near / first), math.log(far / second))
        yield _Pair(optimizer, math.log(second / first), reach)


def _largest(pairs: Iterable[_Pair], kfac: bool) -> float:
    """The largest factor."""
    return math.exp(max((abs(pair.log_ratio) for pair in pairs if pair.is_kfac == kfac), default=math.nan))


def _share_by_seeds(pairs: Iterable[_Pair], kfac: bool) -> float:
    """How many of them seeds explain."""
    told = [pair.by_seeds for pair in pairs if pair.is_kfac == kfac]
    return sum(told) / len(told) if told else math.nan
