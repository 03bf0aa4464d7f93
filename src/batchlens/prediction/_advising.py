"""What predicted curves come to, in plain words."""

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from batchlens.scaling._critical import bound_words, reached
from batchlens.scaling.curve import ScalingCurve

if TYPE_CHECKING:
    from batchlens.prediction.prediction import PredictedBatchSize, PredictedCurve

# Up to which batch size training takes at most this many times the fewest examples is part of the answer.
_CHEAP = 1.2


def advice(predicted: "Sequence[PredictedCurve]") -> Iterator[str]:
    """Sentences about the first optimizer, and the one that scales furthest."""
    first = predicted[0]
    _, value, interval, relation = first.critical()
    words = f"With {first.optimizer} the critical batch size is"
    if value is None:
        yield f"The batch sizes asked for do not show the critical batch size of {first.optimizer}."
    elif relation != "=":
        other = "larger" if relation == ">=" else "smaller"
        yield f"{words} {bound_words(value, relation)}; ask for {other} batch sizes to see more."
    else:
        within = "" if interval is None else f" ({interval})"
        yield f"{words} about {value:,.0f}{within}{_price(first.curve, value)}."
    if first.reasons:
        yield f"Do not rely on it: {'; '.join(first.reasons)}."
    cheap = [size for size, part in zip(first.curve.batch_sizes, first.curve.efficiency(), strict=True)
             if part is not None and part >= 1 / _CHEAP]  # fmt: skip
    if cheap and value is not None:
        size = max(cheap)
        place = first.curve.batch_sizes.index(size)
        rate = first.curve.settings[place].get("learning_rate")
        use = "" if rate is None else f", with a learning rate of about {rate:.2g}"
        yield f"Up to {size:,.0f} it takes at most {_CHEAP:g} times the fewest examples{use}."
    others = {entry.optimizer: entry.critical() for entry in predicted[1:] if not entry.reasons}
    name, best = max(others.items(), key=lambda pair: pair[1].value or 0.0, default=("", first.critical()))
    if value is not None and best.value is not None and best.value > value:
        about = "about " if best.relation == "=" else ""
        yield f"The critical batch size of {name} is {about}{bound_words(best.value, best.relation)}."


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
