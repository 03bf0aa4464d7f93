"""Where a larger batch needs fewer examples, so that steps fall faster than the batch grows.

No claim asks about it, and no noise explains it: averaging more gradients saves no more steps than there are gradients.
A search that found too little at the smaller batch size does.
"""

from collections.abc import Iterator
from itertools import pairwise

from batchlens.report._evidence.judging import Value
from batchlens.report._evidence.numbers import NotMeasuredError, Numbers, percentiles
from batchlens.report._evidence.reading import Evidence


def beyond_rows(evidence: Evidence) -> tuple[tuple[str, ...], list[list[str]]]:
    """Every pair of neighbouring batch sizes where that is sure, with what the sweep that repeats it says."""
    rows = []
    for name, numbers in evidence.numbers.items():
        again = evidence.numbers_again.get(name)
        rows += [
            [name, optimizer, f"{small:,} and {large:,}", str(found), _same(again, optimizer, small, large)]
            for optimizer, small, large, found in _beyond(numbers)
        ]
    heads = ("Network", "Optimizer", "Batch sizes", "Examples at the smaller over the larger (90% interval)", "Again")
    return heads, rows


def _beyond(numbers: Numbers) -> Iterator[tuple[str, int, int, Value]]:
    for optimizer in numbers.sweep.declaration.optimizers:
        for small, large in pairwise(numbers.batch_sizes):
            found = _examples_ratio(numbers, optimizer, small, large)
            if found is not None and found.low > 1:
                yield optimizer, small, large, found


def _same(again: Numbers | None, optimizer: str, small: int, large: int) -> str:
    found = None if again is None else _examples_ratio(again, optimizer, small, large)
    return "" if found is None else str(found)


def _examples_ratio(numbers: Numbers, optimizer: str, small: int, large: int) -> Value | None:
    """Examples that are needed at one batch size over those at another; None where it is not measured, or a bound."""
    numbers.used.clear()
    try:
        ratio = small * numbers.steps(optimizer, small) / (large * numbers.steps(optimizer, large))
    except NotMeasuredError:
        return None
    return None if numbers.rests_on_a_miss else Value(float(ratio[0]), *percentiles(ratio, numbers.seeds))
