"""What predicted curves come to, in plain words."""

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from batchlens.prediction._readings import READINGS
from batchlens.scaling._critical import bound_words, reached
from batchlens.scaling.curve import ScalingCurve

if TYPE_CHECKING:
    from batchlens.prediction.prediction import PredictedBatchSize, PredictedCurve

# Up to which batch size training takes at most this many times the fewest examples is part of the answer.
_CHEAP = 1.2


def advice(predicted: "Sequence[PredictedCurve]") -> Iterator[str]:
    """Sentences about the first optimizer, and the one that scales furthest; of a first that is doubted no more."""
    first = predicted[0]
    yield _critical_words(first)
    if first.reasons:
        yield f"Do not rely on it: {'; '.join(first.reasons)}."
        return
    value = first.critical().value
    if value is not None:
        yield from _cheapest(first.curve)
        yield from _furthest(predicted[1:], value)


def _critical_words(first: "PredictedCurve") -> str:
    _, value, interval, relation = first.critical()
    words = f"With {first.optimizer} the critical batch size is"
    if value is None:
        return f"The batch sizes asked for do not show the critical batch size of {first.optimizer}."
    if relation != "=":
        other = "larger" if relation == ">=" else "smaller"
        return f"{words} {bound_words(value, relation)}; ask for {other} batch sizes to see more."
    within = "" if interval is None else f" ({interval})"
    return f"{words} about {value:,.0f}{within}{_price(first.curve, value)}."


def _cheapest(curve: ScalingCurve) -> Iterator[str]:
    """Up to which batch size hardly any examples are wasted, and how to train there."""
    cheap = [place for place, part in enumerate(curve.efficiency()) if part is not None and part >= 1 / _CHEAP]
    if cheap:
        rate = curve.settings[cheap[-1]].get("learning_rate")
        use = "" if rate is None else f", with a learning rate of about {rate:.2g}"
        size = curve.batch_sizes[cheap[-1]]
        yield f"Up to {size:,.0f} it takes at most {_CHEAP:g} times the fewest examples{use}."


def _furthest(others: "Sequence[PredictedCurve]", value: float) -> Iterator[str]:
    """The largest critical batch size above that of the first, of curves that are not doubted and have some truth."""
    known = {
        entry.optimizer: found
        for entry in others
        if not entry.reasons and READINGS[entry.optimizer].has_truth and (found := entry.critical()).value
    }
    name, best = max(known.items(), key=lambda pair: pair[1].value or 0.0, default=("", None))
    if best is not None and (best.value or 0.0) > value:
        about = "about " if best.relation == "=" else ""
        yield f"The critical batch size of {name} is {about}{best}."


def how_far_apart(first: "PredictedCurve", scales: "Sequence[PredictedBatchSize]") -> str:
    """Which definitions and noise scales disagree most, and by how much; empty without two of them."""
    known = {
        entry.definition: entry.value
        for entry in (*first.critical_batch_sizes, *scales)
        if entry.value and entry.relation == "="
    }
    if len(known) < 2:
        return ""
    low, high = min(known, key=known.__getitem__), max(known, key=known.__getitem__)
    words = ", ".join(f"{name} {bound_words(known[name], '=')}" for name in (low, high))
    return f"Definitions are up to {known[high] / known[low]:.2g} times apart for {first.optimizer}: {words}."


def _price(curve: ScalingCurve, batch_size: float) -> str:
    """What a batch size takes on a curve, if it lies between those of the curve."""
    log_batch, log_steps = reached(curve.batch_sizes, curve.steps)
    at = math.log(batch_size)
    if not log_batch[0] <= at <= log_batch[-1]:
        return ""
    parts = [part for part in curve.efficiency() if part is not None]
    steps = float(np.interp(at, log_batch, log_steps))
    fewest_examples = log_batch[0] + log_steps[0] + math.log(parts[0])
    slower, dearer = math.exp(steps - log_steps.min()), math.exp(at + steps - fewest_examples)
    return f": there training takes {slower:.2g} times the fewest steps and {dearer:.2g} times the fewest examples"
