"""What fitted runs say, in words: how large a batch, what a larger one costs, and which is fastest.

The curve is that of the definition "fit", S_min (1 + B_crit / B), as it always gives a number of three batch sizes or
more.  On it a batch B takes (1 + B_crit / B) / 2 of the steps of B_crit, and 1 + B / B_crit times the fewest examples:
at B_crit / 5, 20% more.
"""

import math
from typing import TYPE_CHECKING

from batchlens.scaling._intervals import Interval

if TYPE_CHECKING:
    from batchlens.scaling.fitting import FittedRuns

# Up to this part of the critical batch size training takes at most 1.2 times the fewest examples.
_CHEAP = 0.2
_ROUNDING = 1e-9
_LARGER = 2.0  # how much larger a batch is shown the price of, at least


def say_fitted(fitted: "FittedRuns") -> str:
    """All that is to be said of one optimizer's runs."""
    found, _ = fitted.estimate("fit")
    say = {"=": _say_number, ">=": _say_lower_bound, "<=": _say_upper_bound, "unknown": _say_nothing}[found.relation]
    subject = f"With {fitted.optimizer}, the" if fitted.optimizer else "The"
    sentences = [f"{subject} critical batch size {say(fitted)}", _say_sharpness(fitted), _say_fastest(fitted)]
    return " ".join(sentence for sentence in sentences if sentence)


def best_words(best: float, tied: tuple[float, float] | None) -> str:
    """ "256", or where the runs do not tell, "256 (128 to 512 cannot be told apart)"."""
    if tied is None or tied[0] == tied[1]:
        return _words(best)
    return f"{_words(best)} ({_words(tied[0])} to {_words(tied[1])} cannot be told apart)"


def _say_number(fitted: "FittedRuns") -> str:
    found, interval = fitted.estimate("fit")
    assert found.value is not None
    smallest, cheap = _measured(fitted)[0], float(f"{_CHEAP * found.value:.2g}")
    below = "" if cheap >= smallest else ", which is below the smallest measured,"
    return (
        f"is about {found} ({_interval_words(interval)}): there training takes twice the fewest steps and twice the "
        f"fewest examples. Up to {_words(cheap)}{below} it takes at most {1 + _CHEAP:g} times the fewest examples; "
        f"{_say_price(fitted, found.value)}."
    )


def _say_price(fitted: "FittedRuns", critical: float) -> str:
    """What the first batch size measured that is well above the critical one saves and costs, or twice that one."""
    sizes = [size for size in _measured(fitted) if size >= _LARGER * critical]
    size = sizes[0] if sizes else _LARGER * critical
    steps = (1 + critical / size) / 2
    return f"{_words(size)} takes {steps:.2g} of the steps of {_words(critical)} for {_times(size / critical * steps)}"


def _say_lower_bound(fitted: "FittedRuns") -> str:
    sizes = _measured(fitted)
    if len(sizes) == 2:
        return f"is at least {_words(sizes[0])}, as far as two batch sizes tell. Measure a third, larger one."
    low, largest = (fitted.estimate("fit").interval or Interval(None, None)).low, sizes[-1]
    if fitted.noise is None or (low is not None and low >= largest * (1 - _ROUNDING)):
        found = f"is at least {_words(largest)}, the largest batch measured"
    else:
        bound = "has no lower end" if low is None else f"is at least {_words(low)}"
        found = (
            f"{bound} by its 95% interval, though the best fit is above {_words(largest)}, the largest batch measured"
        )
    return f"{found}: it takes {_say_ends(fitted)}. Measure larger ones to see where that ends."


def _say_upper_bound(fitted: "FittedRuns") -> str:
    sizes = _measured(fitted)
    if len(sizes) == 2:
        return f"is at most {_words(sizes[-1])}, as far as two batch sizes tell. Measure a third, smaller one."
    high, smallest = (fitted.estimate("fit").interval or Interval(None, None)).high, sizes[0]
    if fitted.noise is None or (high is not None and high <= smallest * (1 + _ROUNDING)):
        found = f"is at most {_words(smallest)}, the smallest batch measured"
    else:
        bound = "has no upper end" if high is None else f"is at most {_words(high)}"
        found = f"{bound} by its 95% interval, though the best fit is below {_words(smallest)}, the smallest measured"
    return (
        f"{found}: {_words(sizes[-1])} takes {_say_ends(fitted)}. Measure smaller ones to see what a small batch saves."
    )


def _say_ends(fitted: "FittedRuns") -> str:
    """What the largest batch measured saves and costs, compared with the smallest."""
    sizes, steps = _measured(fitted), [steps for steps in fitted.curve.steps if steps]
    part = steps[-1] / steps[0]
    return f"{part:.2g} of the steps of {_words(sizes[0])} for {_times(sizes[-1] / sizes[0] * part)}"


def _say_nothing(fitted: "FittedRuns") -> str:
    count = len(_measured(fitted))
    return f"is unknown: {'only one batch size' if count else 'no batch size'} reached the target, and it takes three."


def _say_sharpness(fitted: "FittedRuns") -> str:
    """Only where the runs say that the bend is not that of the curve above."""
    if fitted.sharpness is None or fitted.sharpness.interval is None:
        return ""
    value, interval = fitted.sharpness.value, fitted.sharpness.interval
    if (interval.low or 0.0) <= 1 <= (interval.high or math.inf):
        return ""
    found, around = fitted.estimate("bend")
    return (
        f"The runs bend more {'sharply' if value > 1 else 'gently'} than that curve (a = {value:.2g}); with the bend "
        f"fitted too, the critical batch size is {found} ({_interval_words(around)})."
    )


def _say_fastest(fitted: "FittedRuns") -> str:
    if fitted.fastest is None:
        return ""
    return f"Fastest on this hardware: {best_words(fitted.fastest, fitted.fastest_range)}."


def _interval_words(interval: Interval | None) -> str:
    if interval is None:
        return "too few runs for an interval"
    low, high = interval
    if high is None:
        return "no upper end" if low is None else f"at least {_words(low)}"
    return f"at most {_words(high)}" if low is None else str(interval)


def _measured(fitted: "FittedRuns") -> list[float]:
    """The batch sizes that reached the target."""
    return [size for size, steps in zip(fitted.curve.batch_sizes, fitted.curve.steps, strict=True) if steps]


def _times(ratio: float) -> str:
    """ "1.8 times its examples"; "as many examples" where the two are alike."""
    return "as many examples" if f"{ratio:.2g}" == "1" else f"{ratio:.2g} times its examples"


def _words(size: float) -> str:
    return f"{size:{',.0f' if size >= 100 or size == int(size) else '.3g'}}"
