"""How far critical batch sizes of networks follow the theory: the order of the optimizers, and how large ratios are."""

from collections.abc import Iterator, Mapping
from itertools import permutations
from typing import Any, NamedTuple

from batchlens.report._evidence.judging import SURE, Item, judge_item
from batchlens.report._evidence.numbers import Numbers
from batchlens.report._evidence.reading import Evidence
from batchlens.report._evidence.tables import critical_sweeps, measured_ratios, ratios_to_sgd, theory_ratio, times_words
from batchlens.report._page.records import NOT_MEASURED
from batchlens.report._theory.study import Study
from batchlens.scaling.curve import CriticalBatchSize, ScalingCurve

Row = list[str]

# Pairs that the theory puts closer to each other than this have no order that seeds could tell (claims.toml).
LEAST_RATIO = 1.25
_PART = {
    "name": "order",
    "quantities": {"ratio": "critical(o) / critical(p)"},
    "holds": "ratio >= 1",
    "limit": "ratio >= 1",
}


class Pair(NamedTuple):
    """Two optimizers on a network, the one with the larger critical batch size in theory first."""

    sweep: str
    larger: str
    smaller: str
    theory: float
    found: Item
    again: Item | None  # the same in a sweep that repeats it

    @property
    def is_reversed(self) -> bool:
        """Whether other seeds would say so too, and another search says so."""
        sure = self.found.verdict == "fails" and (self.found.sureness or 0.0) >= SURE
        return sure and (self.again is None or self.again.verdict == "fails")


def find_pairs(study: Study, evidence: Evidence) -> Iterator[Pair]:
    """Of every network, what can be told apart in theory."""
    for name in critical_sweeps(evidence):
        numbers, repeat = evidence.numbers[name], evidence.numbers_again.get(name)
        ratios = {other: theory_ratio(study, other) for other in numbers.sweep.declaration.optimizers}
        known = {other: ratio for other, ratio in ratios.items() if ratio is not None}
        for larger, smaller in permutations(known, 2):
            apart = known[larger] / known[smaller]
            if apart >= LEAST_RATIO:
                again = None if repeat is None else _judge(larger, smaller, repeat)
                yield Pair(name, larger, smaller, apart, _judge(larger, smaller, numbers), again)


def _judge(larger: str, smaller: str, numbers: Numbers) -> Item:
    return judge_item(_PART, {"o": larger, "p": smaller}, numbers)[0]


def order_words(pairs: list[Pair]) -> str:
    """How many come in the theory's order."""
    known = [pair for pair in pairs if pair.found.verdict != NOT_MEASURED]
    same = sum(pair.found.verdict == "holds" for pair in known)
    turned = sum(pair.is_reversed for pair in known)
    return (
        f"Of {len(known)} pairs of optimizers whose critical batch sizes lie {LEAST_RATIO:g} times apart or more in "
        f"theory, {same} come in its order on networks, and {len(known) - same} in the other one, {turned} of these in "
        f"{SURE:.0%} of resamples of the seeds and in the repeat where there is one."
    )


def reversed_rows(pairs: list[Pair]) -> tuple[tuple[str, ...], list[Row]]:
    """Those that surely come in the other order: heads, and a row each."""
    heads = ("Network", "Larger in theory", "Smaller in theory", "Ratio in theory", "Ratio measured (90% interval)")
    rows = [
        [
            pair.sweep,
            pair.larger,
            pair.smaller,
            times_words(pair.theory),
            str(pair.found.values["ratio"]),
            "" if pair.again is None else str(pair.again.values["ratio"]),
        ]
        for pair in pairs
        if pair.is_reversed
    ]
    return (*heads, "Again"), rows


def ratio_rows(study: Study, evidence: Evidence) -> tuple[tuple[str, ...], list[Row]]:
    """Critical batch sizes over SGD's: of the paper's problem, of a quadratic like the network, and measured."""
    heads = ("Network", "Optimizer", "The paper's problem", "A quadratic like the network", "Measured")
    return heads, [
        row
        for name in critical_sweeps(evidence)
        if name in evidence.predictions
        for row in _ratio_rows(study, evidence, name)
    ]


def _ratio_rows(study: Study, evidence: Evidence, name: str) -> Iterator[Row]:
    measured, document = measured_ratios(evidence.measured[name]), evidence.predictions[name]
    predicted = ratios_to_sgd({curve["optimizer"]: _critical(curve) for curve in document["curves"]})
    for optimizer, found in measured.items():
        in_theory = theory_ratio(study, optimizer)
        if in_theory is not None and (optimizer in predicted or not predicted):
            yield [name, optimizer, times_words(in_theory), predicted.get(optimizer, "refused"), found]


def _critical(curve: Mapping[str, Any]) -> CriticalBatchSize:
    points = curve["points"]
    found = ScalingCurve([point["batch_size"] for point in points], [point["steps"] for point in points])
    return found.critical_batch_size("fit")
