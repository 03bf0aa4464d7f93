"""What sweeps that repeat another one say: on which verdicts the two differ, and how far critical batch sizes do."""

from collections.abc import Iterator

from batchlens.report._evidence.judging import Item, JudgedClaim, Judgement
from batchlens.report._evidence.reading import Evidence
from batchlens.report._page.records import NOT_MEASURED
from batchlens.scaling._critical import DEFINITIONS


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
    """How far the critical batch sizes of repeats lie apart, and how often the first interval has the second one."""
    fit = DEFINITIONS.index("fit")
    closed, held = 0, 0
    for name, again in evidence.repeats.items():
        second = {curve.optimizer: curve.estimates[fit].critical_batch_size for curve in again.measured}
        for curve in evidence.measured[name].measured:
            ends, other = curve.estimates[fit].interval, second.get(curve.optimizer)
            if ends is None or other is None or ends.low is None or ends.high is None or other.value is None:
                continue
            closed += 1
            held += other.relation == "=" and ends.low <= other.value <= ends.high
    return (
        f"Of {closed} critical batch sizes with an interval the second lies within the first one's in {held}: "
        "intervals have the luck of the seeds, not that of the search."
    )
