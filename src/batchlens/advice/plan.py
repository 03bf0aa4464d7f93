"""Which batch size is the fastest, which the cheapest: steps to a target times seconds a step.

Steps at a batch size B come from runs, a sweep or a prediction; seconds of a step from `StepTimes`.  Every batch size
and number of devices is one way to train, with a time and a cost; those that no other beats in both are the frontier.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from batchlens._checks import require_instance, require_number, require_sequence, require_whole
from batchlens._results import Result, axes_or_new, short
from batchlens.advice._planning import Best, Option, Planner
from batchlens.advice._step_times import LEVEL, StepTimes
from batchlens.advice._steps_source import find_source
from batchlens.advice._units import in_time, money

if TYPE_CHECKING:
    import pandas
    from matplotlib.axes import Axes

    from batchlens.scaling.curve import ScalingCurve
    from batchlens.sweep.results import SweepResult

_SECONDS_AN_HOUR = 3600.0


@dataclass(frozen=True, repr=False)
class Plan(Result):
    """Every way to train, the fastest, the cheapest, and the frontier between them.

    Arguments:
        optimizer: its name, "" where it has none.
        options: one per batch size and number of devices.
        fastest: the least time, with the 90% interval of its batch size.
        cheapest: the least cost, likewise.
        by_devices: the fastest of each number of devices.
        meets_deadline: the cheapest that meets the deadline; None where none does or none was given.
        price: of a device for an hour; None: costs are device-hours.
        deadline: in seconds; None where there is none.
        notes: what a reader should know.
        planner: what the numbers come from, for the picture.

    >>> from batchlens import ScalingCurve
    >>> curve = ScalingCurve([16, 64, 256, 1024, 4096], [32250, 8250, 2250, 750, 375], optimizer="sgd")
    >>> found = plan(curve, StepTimes([16, 256, 4096], [0.011, 0.026, 0.266]), devices=[1, 2, 4], price=2.5)
    >>> found.fastest.option.batch_size, found.fastest.option.devices, found.cheapest.option.batch_size
    (1024.0, 4, 512.0)
    """

    optimizer: str
    options: tuple[Option, ...]
    fastest: Best
    cheapest: Best
    by_devices: tuple[Option, ...]
    meets_deadline: Option | None
    price: float | None
    deadline: float | None
    notes: tuple[str, ...]
    planner: Planner

    @property
    def frontier(self) -> list[Option]:
        """What no other way beats in both time and cost, from the fastest to the cheapest."""
        return [option for option in self.options if option.on_frontier]

    @property
    def sentence(self) -> str:
        """The fastest, the cheapest, and what meets the deadline."""
        words = [
            f"Fastest: {self._words(self.fastest.option, self.fastest.interval)}",
            f"cheapest: {self._words(self.cheapest.option, self.cheapest.interval)}",
        ]
        if self.deadline is not None:
            words.append(self._deadline_words(self.deadline))
        return "; ".join(words) + "."

    def _words(self, option: Option, interval: tuple[float, float] | None = None) -> str:
        size = f"batch size {short(option.batch_size):,}"
        if interval is not None:
            size += f" ({short(interval[0]):,} to {short(interval[1]):,})"
        devices = f"{option.devices:,} device{'s' * (option.devices > 1)}"
        return f"{size} on {devices}, {in_time(option.seconds)} for {money(option.cost, self.price)}"

    def _deadline_words(self, deadline: float) -> str:
        if self.meets_deadline is not None:
            return f"cheapest within {in_time(deadline)}: {self._words(self.meets_deadline)}"
        would = self.planner.devices_to_meet(deadline)
        if would is not None:
            return f"nothing meets {in_time(deadline)}; {would:,} devices would"
        least = in_time(self.planner.least_seconds())
        return f"nothing meets {in_time(deadline)}, nor would more devices: none gets below {least}"

    @property
    def headline(self) -> str:
        """The sentence."""
        return self.sentence

    def to_frame(self) -> "pandas.DataFrame":
        """One row per batch size and number of devices."""
        import pandas

        return pandas.DataFrame([option.as_document() for option in self.options])

    def plot(self, ax: "Axes | None" = None) -> "Axes":
        """Time against examples for each number of devices, lines of equal cost, and the frontier."""
        from batchlens.advice._plots import draw_plan

        return draw_plan(axes_or_new(ax), self)

    def as_document(self) -> dict[str, Any]:
        """What `batchlens plan --json` prints."""
        return {
            "optimizer": self.optimizer,
            "sentence": self.sentence,
            "interval_level": LEVEL,
            "cost_unit": "device-hours" if self.price is None else f"at {self.price:g} a device-hour",
            "points": [option.as_document() for option in self.options],
            "fastest": self.fastest.as_document(),
            "cheapest": self.cheapest.as_document(),
            "by_devices": [option.as_document() for option in self.by_devices],
            "meets_deadline": None if self.meets_deadline is None else self.meets_deadline.as_document(),
            "notes": list(self.notes),
        }


def plan(
    curve: "ScalingCurve | SweepResult | Path | str | pandas.DataFrame",
    step_times: "StepTimes | Path | str",
    devices: Sequence[int] = (1,),
    price: float | None = None,
    deadline: float | None = None,
    memory_limit: int | None = None,
    optimizer: str | None = None,
    resamples: int = 1000,
    seed: int = 0,
) -> Plan:
    """Which batch size and number of devices is the fastest, which the cheapest, and what does it take?

    Batch sizes are the doublings from the smallest to the largest that the curve knows, and those it knows.  The
    intervals of the best batch sizes are 90% percentiles over curves and step times as other measurements might have
    given them.

    Arguments:
        curve: steps against batch size: a `ScalingCurve`, a sweep's result or store, a CSV file or DataFrame of runs
            as `fit` takes it, or a JSON file of `batchlens predict`.
        step_times: a `StepTimes`, or a CSV file with the columns batch_size, seconds and, of several, devices.
        devices: numbers of devices to look at.
        price: of a device for an hour; None counts device-hours.
        deadline: in seconds.
        memory_limit: examples that fit into a device at a time; larger batches are accumulated in slices.
        optimizer: which one, where the curve has several.
        resamples: how many the intervals rest on, at least 100.
        seed: of the resampling.

    >>> from batchlens import ScalingCurve
    >>> curve = ScalingCurve([16, 64, 256, 1024, 4096], [32250, 8250, 2250, 750, 375])
    >>> print(plan(curve, StepTimes([16, 256, 4096], [0.011, 0.026, 0.266])).sentence)
    Fastest: batch size 512 (512 to 558) on 1 device, 52.5 s for 0.0146 device-hours; cheapest: batch size 512 (512 to \
558) on 1 device, 52.5 s for 0.0146 device-hours.
    """
    if isinstance(step_times, str | Path):
        step_times = StepTimes.read(step_times)
    require_instance("step_times", step_times, StepTimes)
    counts = sorted({require_whole("devices", count, low=1) for count in require_sequence("devices", devices)})
    if not counts:
        raise ValueError("`devices` must have at least one entry, got none.")
    if price is not None:
        price = require_number("price", price, low=0, closed=(False, True))
    if deadline is not None:
        deadline = require_number("deadline", deadline, low=0, closed=(False, True))
    if memory_limit is not None:
        memory_limit = require_whole("memory_limit", memory_limit, low=1)
    elif step_times.largest is not None:
        memory_limit = step_times.largest
    resamples = require_whole("resamples", resamples, low=100, high=10**6)
    random = np.random.default_rng(require_whole("seed", seed))
    source = find_source(curve, optimizer, resamples, random)
    hourly = 1.0 if price is None else price
    planner = Planner(source, step_times, counts, hourly / _SECONDS_AN_HOUR, memory_limit, resamples, random)
    options = planner.options()
    in_time_for_it = [option for option in options if deadline is not None and option.seconds <= deadline]
    return Plan(
        optimizer=source.optimizer,
        options=options,
        fastest=planner.best("seconds"),
        cheapest=planner.best("cost"),
        by_devices=tuple(min((o for o in options if o.devices == n), key=lambda o: o.seconds) for n in planner.counts),
        meets_deadline=min(in_time_for_it, key=lambda option: (option.cost, option.seconds), default=None),
        price=price,
        deadline=deadline,
        notes=tuple(planner.notes()),
        planner=planner,
    )
