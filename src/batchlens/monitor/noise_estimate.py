"""What a noise scale was found to be."""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from batchlens._results import Result, axes_or_new

if TYPE_CHECKING:
    import pandas
    from matplotlib.axes import Axes


@dataclass(frozen=True, repr=False)
class NoiseEstimate(Result):
    """The gradient noise scale as far as the measured steps tell it.

    Arguments:
        value: the noise scale in examples; None where the mean signal is not above zero.
        interval: its 90% interval, the upper end inf where the steps set none; None with fewer than three steps, or
            where the steps contradict every noise scale.
        steps: how many steps were measured and count.
        steps_needed: how many steps of training more are needed for an interval of the precision asked for; 0 where
            it is reached, None where they do not tell.
        at_least: whether `steps_needed` is a lower bound.
        noise: mean over steps of the variance of one example's gradient, summed over parameters (tr Sigma).
        signal: mean over steps of the squared gradient of endlessly many examples (|G|^2).
        batch_size: mean number of examples in a step.
        by: what the small batches were: "examples" or "micro_batches".
        geometry: of which gradient: "plain", "preconditioned" or "l1".
        left_out: parameters that do not count.
        skipped: measured steps that say nothing, as where a gradient was not finite.
        too_short: whether the window or half-life forgets steps before those needed are there.

    >>> found = NoiseEstimate(210.0, (170.0, 280.0), 400, 0, False, 21.0, 0.1, 64.0, "examples", "plain", (), 0, False)
    >>> found
    <NoiseEstimate: noise scale 210 (170 to 280) from 400 steps>
    >>> found.sentence
    'The gradient noise scale is about 210 examples (170 to 280).'
    """

    value: float | None
    interval: tuple[float, float] | None
    steps: int
    steps_needed: int | None
    at_least: bool
    noise: float
    signal: float
    batch_size: float
    by: str
    geometry: str
    left_out: tuple[str, ...]
    skipped: int
    too_short: bool

    @property
    def headline(self) -> str:
        """Value, interval and number of steps."""
        if self.interval is None:
            return f"noise scale not told by {self.steps} steps"
        low, high = self.interval
        if math.isinf(high):
            return f"noise scale at least {_rounded(low)} from {self.steps} steps"
        return f"noise scale {_rounded(self.value)} ({_rounded(low)} to {_rounded(high)}) from {self.steps} steps"

    @property
    def sentence(self) -> str:
        """The answer in words: the noise scale, or what it takes to tell it."""
        words = [self._finding(), self._needs()]
        if self.left_out:
            count = len(self.left_out)
            words.append(f"{count} parameter{'s do' if count > 1 else ' does'} not count: {_listed(self.left_out)}.")
        return " ".join(filter(None, words))

    def _finding(self) -> str:
        if not self.steps:
            skipped = f" {self.skipped} said nothing and {'was' if self.skipped == 1 else 'were'} skipped."
            return "No step has been measured yet." + (skipped if self.skipped else "")
        if self.interval is None:
            if self.steps < 3:
                return f"{self.steps} measured step{'s' if self.steps > 1 else ''} cannot tell the noise scale."
            part = "squared gradient" if self.signal < 0 else "variance"
            return (
                f"The steps contradict every noise scale: the {part} comes out below zero by more than chance, as "
                "where the examples of a batch are not drawn independently."
            )
        low, high = self.interval
        if math.isfinite(high):
            ends = f"{_rounded(low)} to {_rounded(high)}"
            return f"The gradient noise scale is about {_rounded(self.value)} examples ({ends})."
        if low > 0:
            return f"The gradient noise scale is at least {_rounded(low)} examples; the steps set no upper end."
        return "The gradient noise scale may be anything by these steps."

    def _needs(self) -> str:
        if not self.steps_needed:
            return ""
        about = "at least" if self.at_least else "about"
        beyond = ", more than `window` or `half_life` lets count" if self.too_short else ""
        return f"A closer answer needs {about} {_rounded(self.steps_needed)} more steps{beyond}."

    def to_frame(self) -> "pandas.DataFrame":
        """One row: the noise scale, its interval, and the two parts that it is the ratio of."""
        import pandas

        low, high = self.interval or (None, None)
        row = {
            "noise_scale": self.value,
            "low": low,
            "high": high,
            "noise": self.noise,
            "signal": self.signal,
            "batch_size": self.batch_size,
            "steps": self.steps,
            "steps_needed": self.steps_needed,
        }
        return pandas.DataFrame([row])

    def plot(self, ax: "Axes | None" = None) -> "Axes":
        """Steps to a target against batch size as the noise scale has it, 1 + noise scale / batch size, with a band."""
        from batchlens.monitor._plots import draw_noise_estimate

        return draw_noise_estimate(axes_or_new(ax), self)

    def as_document(self) -> dict[str, Any]:
        """The estimate as JSON has it: null is an end that is not there."""
        ends = None if self.interval is None else [end if math.isfinite(end) else None for end in self.interval]
        return {
            "value": self.value,
            "interval": ends,
            "sentence": self.sentence,
            "steps": self.steps,
            "steps_needed": self.steps_needed,
            "at_least": self.at_least,
            "noise": self.noise if self.steps else None,
            "signal": self.signal if self.steps else None,
            "batch_size": self.batch_size if self.steps else None,
            "by": self.by,
            "geometry": self.geometry,
            "left_out": list(self.left_out),
            "skipped": self.skipped,
        }


def _rounded(number: float | None) -> str:
    """Two digits, and no more than whole examples: 0.23, 23, 230."""
    if number is None:
        return "?"
    if not math.isfinite(number) or number == 0:
        return f"{number:g}"
    digits = 1 - math.floor(math.log10(abs(number)))
    return f"{round(number, digits):,.{max(0, digits)}f}"


def _listed(names: tuple[str, ...], most: int = 4) -> str:
    """The first names, and how many there are beside them."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
