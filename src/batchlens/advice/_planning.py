"""Time and cost of every batch size and number of devices, and how sure the best of them is."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, NamedTuple

import numpy as np

from batchlens._arrays import FloatArray
from batchlens._results import short
from batchlens.advice._step_times import LEVEL, StepModel, StepTimes
from batchlens.advice._steps_source import StepsSource

_TAILS = (1 - LEVEL) / 2, (1 + LEVEL) / 2
# Batch sizes that the best one is looked for among, in a doubling.
_PER_OCTAVE = 8
# More devices than this are not looked at for a deadline.
_MOST_DEVICES = 2**20
Aim = Literal["seconds", "cost"]


@dataclass(frozen=True)
class Option:
    """One way to train: a batch size on a number of devices.

    Arguments:
        batch_size: examples of a step, on all devices together.
        devices: how many.
        slices: in how many parts a device takes its share, one after the other.
        steps: to the target.
        step_seconds: of one.
        seconds: to the target.
        cost: of all devices over that time.
        interval: between which the seconds lie, at 90%; None where nothing tells.
        on_frontier: whether no other way beats it in both time and cost.
    """

    batch_size: float
    devices: int
    slices: int
    steps: float
    step_seconds: float
    seconds: float
    cost: float
    interval: tuple[float, float] | None
    on_frontier: bool = False

    def as_document(self) -> dict[str, Any]:
        """With the names that JSON has."""
        names = ("devices", "slices", "steps", "step_seconds", "seconds", "cost")
        ends = None if self.interval is None else list(self.interval)
        values = {"batch_size": short(self.batch_size), **{name: getattr(self, name) for name in names}}
        return values | {"examples": self.batch_size * self.steps, "interval": ends, "on_frontier": self.on_frontier}


class Best(NamedTuple):
    """The best option, and between which batch sizes the best one lies, at 90%; None where nothing tells."""

    option: Option
    interval: tuple[float, float] | None

    def as_document(self) -> dict[str, Any]:
        """The option, with the interval of its batch size."""
        ends = None if self.interval is None else [short(end) for end in self.interval]
        return self.option.as_document() | {"batch_size_interval": ends}


@dataclass(frozen=True, eq=False)
class Planner:
    """What plans are made of.

    Arguments:
        source: steps against batch size.
        times: seconds of a step.
        counts: numbers of devices.
        price: of a device for a second.
        memory_limit: examples that a device takes at a time; None: any number.
        resamples: how many the intervals rest on.
        random: what they are drawn with.
    """

    source: StepsSource
    times: StepTimes
    counts: list[int]
    price: float
    memory_limit: int | None
    resamples: int
    random: np.random.Generator = field(repr=False)

    @cached_property
    def sizes(self) -> FloatArray:
        """Doublings between the ends of the curve, and what it knows."""
        known = np.exp(self.source.log_batch)
        known = np.where(np.abs(known - np.round(known)) < 1e-6 * known, np.round(known), known)
        doublings = 2.0 ** np.arange(math.ceil(math.log2(known[0])), math.floor(math.log2(known[-1])) + 1)
        return np.unique(np.concatenate([known, doublings]))

    def _pairs(self, sizes: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Batch sizes and devices of all options among some sizes: at least one example per device."""
        pairs = [(size, count) for count in self.counts for size in sizes if size >= count]
        if not pairs:
            raise ValueError(
                f"`devices` must be at most the largest batch size, {short(self.sizes[-1]):,}, got {self.counts[0]:,}."
            )
        columns = np.array(pairs, dtype=np.float64)
        return columns[:, 0], columns[:, 1]

    def slices(self, sizes: FloatArray, counts: FloatArray) -> FloatArray:
        """In how many parts a device takes its share of a batch."""
        if self.memory_limit is None:
            return np.ones(np.broadcast(sizes, counts).shape)
        return np.ceil(sizes / counts / self.memory_limit - 1e-9).clip(1.0)

    def seconds(self, sizes: FloatArray, counts: FloatArray, model: StepModel | None = None) -> FloatArray:
        """Of a step."""
        return (model or self.times.model).seconds(sizes, counts, self.slices(sizes, counts))

    def smooth_seconds(self, sizes: FloatArray, counts: FloatArray) -> FloatArray:
        """Of a step, as if slices came in parts."""
        share = sizes / counts / (self.memory_limit or math.inf)
        return self.times.model.seconds(sizes, counts, np.maximum(share, 1.0))

    @cached_property
    def _models(self) -> list[StepModel] | None:
        """Step times as others might have been measured; None where nothing tells how sure the plan is."""
        models = self.times.draw(self.resamples, self.random)
        return None if self.source.noisy is None and models[0] is self.times.model else models

    def _draw(self, sizes: FloatArray, counts: FloatArray, models: list[StepModel]) -> FloatArray:
        """Seconds to the target, one row per resample."""
        distinct, places = np.unique(sizes, return_inverse=True)
        each = np.stack([self.seconds(sizes, counts, model) for model in models])
        drawn: FloatArray = self.source.steps(distinct, noisy=True)[:, places] * each
        return drawn

    @cached_property
    def _options(self) -> tuple[Option, ...]:
        sizes, counts = self._pairs(self.sizes)
        steps = self.source.steps(sizes)[0]
        each, slices = self.seconds(sizes, counts), self.slices(sizes, counts)
        seconds = steps * each
        cost = seconds * counts * self.price
        ends = None
        if self._models is not None:
            ends = np.quantile(self._draw(sizes, counts, self._models), _TAILS, axis=0).T
        options = [
            Option(
                float(sizes[i]), int(counts[i]), int(slices[i]), float(steps[i]), float(each[i]), float(seconds[i]),
                float(cost[i]), None if ends is None else (float(ends[i, 0]), float(ends[i, 1])),
            )
            for i in range(sizes.size)
        ]  # fmt: skip
        return tuple(replace(option, on_frontier=True) if _is_best(option, options) else option for option in options)

    def options(self) -> tuple[Option, ...]:
        """Every batch size and number of devices."""
        return self._options

    @property
    def frontier(self) -> list[Option]:
        """From the fastest to the cheapest."""
        return sorted((option for option in self._options if option.on_frontier), key=lambda option: option.seconds)

    def best_option(self, aim: Aim) -> Option:
        """The option with the least time or cost."""
        other: Aim = "cost" if aim == "seconds" else "seconds"
        return min(self._options, key=lambda one: (getattr(one, aim), getattr(one, other)))

    def best(self, aim: Aim) -> Best:
        """The option with the least time or cost, and between which batch sizes, doublings or not, the best lies."""
        option = self.best_option(aim)
        if self._models is None:
            return Best(option, None)
        octaves = math.log2(self.sizes[-1] / self.sizes[0])
        fine = np.geomspace(self.sizes[0], self.sizes[-1], max(math.ceil(_PER_OCTAVE * octaves), 1) + 1)
        sizes, counts = self._pairs(fine)
        drawn = self._draw(sizes, counts, self._models)
        if aim == "cost":
            drawn = drawn * counts
        found = sizes[np.argmin(drawn, axis=1)]
        low, high = (float(f"{end:.3g}") for end in np.quantile(found, _TAILS, method="inverted_cdf"))
        return Best(option, (min(low, option.batch_size), max(high, option.batch_size)))

    def devices_to_meet(self, deadline: float) -> int | None:
        """The first doubling of the largest number of devices that meets a deadline; None where none does."""
        count = 2 * self.counts[-1]
        while count <= min(_MOST_DEVICES, self.sizes[-1]):
            if self._least(float(count)) <= deadline:
                return count
            count *= 2
        return None

    def least_seconds(self) -> float:
        """What no number of devices gets below."""
        counts = {*self.counts, *(2**k for k in range(21))}
        return min(self._least(float(count)) for count in counts if count <= self.sizes[-1])

    def _least(self, count: float) -> float:
        sizes = self.sizes[self.sizes >= count]
        return float((self.source.steps(sizes)[0] * self.seconds(sizes, np.array(count))).min())

    def notes(self) -> Iterator[str]:
        """What a reader should know."""
        if not self.source.is_fitted:
            why = "no hyperbola is within 10% of them" if self.source.log_batch.size > 2 else "there are only two"
            yield f"steps between the batch sizes known are interpolated: {why}"
        timed_on = self.times.devices[0]
        if timed_on > 1 and not self.times.knows_synchronisation:
            yield f"all step times are of {timed_on:,} devices: averaging gradients counts as overhead on any number"
        elif self.counts[-1] > 1 and not self.times.knows_synchronisation:
            yield "no step times of several devices: averaging their gradients counts as free"
        if self.best_option("seconds").batch_size == self.sizes[-1]:
            yield f"no batch size above {short(self.sizes[-1]):,} is known: a larger one may be faster"
        if self.best_option("cost").batch_size == self.sizes[0]:
            yield f"no batch size below {short(self.sizes[0]):,} is known: a smaller one may be cheaper"
        timed = [size / count for size, count in zip(self.times.batch_sizes, self.times.devices, strict=True)]
        sizes, counts = self._pairs(self.sizes)
        share = sizes / counts / self.slices(sizes, counts)
        if share.max() > 2 * max(timed):
            yield (
                f"a device takes up to {short(float(share.max())):,.6g} examples at a time; timed were at most "
                f"{short(max(timed)):,.6g}"
            )
        if self.memory_limit is not None and self.slices(sizes, counts).max() > 1:
            yield f"a device takes at most {self.memory_limit:,} examples at a time; larger shares are accumulated"
        if self._models is None:
            yield "no intervals: there are too few runs and step times to tell how sure they are"


def _is_best(option: Option, options: list[Option]) -> bool:
    """Whether no other is as good in both time and cost, and better in one."""
    return not any(
        other.seconds <= option.seconds
        and other.cost <= option.cost
        and (other.seconds, other.cost) != (option.seconds, option.cost)
        for other in options
    )
