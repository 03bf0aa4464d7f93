"""Seconds of a step against batch size and number of devices, and the line through them.

A step of B examples on D devices takes overhead + (B / D) / throughput + synchronisation * 2 (D - 1) / D, the last term
being what a ring takes to average gradients.  The fit is by least squares of relative errors, no term below 0.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np
from scipy import optimize, stats

from batchlens._arrays import FloatArray
from batchlens._checks import require_number, require_sequence, require_whole
from batchlens._results import Result, axes_or_new, short
from batchlens._tables import read_rows
from batchlens.errors import BatchlensError

if TYPE_CHECKING:
    import pandas
    from matplotlib.axes import Axes

# Of the intervals that plans and step times have.
LEVEL = 0.9


class StepModel(NamedTuple):
    """What a step's time is made of: seconds, seconds an example, seconds of synchronisation."""

    overhead: float
    per_example: float
    synchronisation: float

    def seconds(self, batch_size: FloatArray, devices: FloatArray, slices: FloatArray | float = 1.0) -> FloatArray:
        """Of a step whose batch goes through every device in that many slices, one after the other."""
        terms = _terms(np.asarray(batch_size, dtype=np.float64), np.asarray(devices, dtype=np.float64))
        total: FloatArray = slices * self.overhead + terms[1] * self.per_example + terms[2] * self.synchronisation
        return total


@dataclass(frozen=True, init=False, repr=False)
class StepTimes(Result):
    """Seconds of a step at several batch sizes: overhead + B / throughput, fitted with 90% intervals.

    Arguments:
        batch_sizes: examples of a step, on all devices together; several times of the same are welcome.
        seconds: how long the step takes.
        devices: on how many; one unless given.
        largest: the largest batch that fits into the memory of one device; None where that is not known.
        what: was timed, in words.

    >>> times = StepTimes([64, 128, 256, 512], [0.012, 0.014, 0.018, 0.026])
    >>> times
    <StepTimes: 0.01 s a step plus 1 s for 32,000 examples>
    """

    batch_sizes: tuple[float, ...]
    seconds: tuple[float, ...]
    devices: tuple[int, ...]
    largest: int | None
    what: str

    def __init__(
        self,
        batch_sizes: Sequence[float],
        seconds: Sequence[float],
        devices: Sequence[int] = (),
        largest: int | None = None,
        what: str = "",
    ) -> None:
        sizes = [require_number("batch_sizes", size, low=0, closed=(False, True))
                 for size in require_sequence("batch_sizes", batch_sizes)]  # fmt: skip
        times = [require_number("seconds", time, low=0, closed=(False, True))
                 for time in require_sequence("seconds", seconds)]  # fmt: skip
        counts = [require_whole("devices", count, low=1) for count in devices] or [1] * len(sizes)
        if not len(sizes) == len(times) == len(counts):
            raise ValueError(f"`seconds` must have {len(sizes)} entries, one per batch size, got {len(times)}.")
        fields = {
            "batch_sizes": tuple(sizes),
            "seconds": tuple(times),
            "devices": tuple(counts),
            "largest": None if largest is None else require_whole("largest", largest, low=1),
            "what": what,
        }
        for name, value in fields.items():
            object.__setattr__(self, name, value)
        shares = {size / count for size, count in zip(sizes, counts, strict=True)}
        if len(shares) < 2:
            got = "".join(f"{share:g}" for share in shares) or "none"
            raise ValueError(f"`step_times` must have at least two batch sizes of a device, got {got}.")
        self._require_growth()

    @classmethod
    def read(cls, path: Path | str) -> Self:
        """The times of a CSV file with the columns batch_size and seconds, and devices if there are several.

        A column `largest` says which batch is the largest that fits into a device.
        """
        rows = read_rows("step_times", path, ("batch_size", "seconds"))
        if rows and "steps" in rows[0].cells:
            raise BatchlensError(
                f"{path} has a column of steps, so its seconds are of whole runs: give seconds of one step."
            )
        sizes, seconds = ([row.number(name) for row in rows] for name in ("batch_size", "seconds"))
        fits = [row.whole("largest") for row in rows if row.cells.get("largest", "").strip()]
        return cls(sizes, seconds, [row.whole("devices", 1) for row in rows], min(fits, default=None))

    @cached_property
    def model(self) -> StepModel:
        """The line through the times."""
        return _fit(self._terms, np.array([self.seconds]))[0]

    @property
    def knows_synchronisation(self) -> bool:
        """Whether there are times of several numbers of devices, so that synchronisation is told from overhead."""
        return len(set(self.devices)) > 1

    @property
    def throughput(self) -> float:
        """Examples a second of one device, overhead apart."""
        return 1 / self.model.per_example

    @cached_property
    def _terms(self) -> FloatArray:
        terms = _terms(np.array(self.batch_sizes), np.array(self.devices, dtype=np.float64))
        return terms if self.knows_synchronisation else terms[:2]

    def _require_growth(self) -> None:
        if self.model.per_example > 0:
            return
        per_device = np.array(self.batch_sizes) / np.array(self.devices)
        low, high = int(np.argmin(per_device)), int(np.argmax(per_device))
        raise ValueError(
            f"`step_times` must grow with the batch size, got {self.seconds[low]:.4g} s at "
            f"{short(self.batch_sizes[low]):,} and {self.seconds[high]:.4g} s at {short(self.batch_sizes[high]):,}. "
            "Time larger batches."
        )

    def draw(self, count: int, random: np.random.Generator) -> list[StepModel]:
        """Lines as other times might have given them; the line itself where there are too few to tell."""
        seconds = np.array(self.seconds)
        fitted = self.model.seconds(np.array(self.batch_sizes), np.array(self.devices, dtype=np.float64))
        freedom = seconds.size - len(self._terms)
        if freedom < 1:
            return [self.model] * count
        widening = stats.t.ppf((1 + LEVEL) / 2, freedom) / stats.norm.ppf((1 + LEVEL) / 2)
        residuals = np.log(seconds / fitted) * math.sqrt(seconds.size / freedom) * widening
        noise = random.choice(residuals, size=(count, seconds.size)) * random.choice([-1, 1], size=(count, 1))
        return _fit(self._terms, fitted * np.exp(noise))

    @cached_property
    def intervals(self) -> dict[str, tuple[float, float]]:
        """Between which values overhead (seconds) and throughput (examples a second) lie, at 90%."""
        drawn = np.array(self.draw(1000, np.random.default_rng(0)))
        tails = (1 - LEVEL) / 2, (1 + LEVEL) / 2
        low, high = np.quantile(drawn, tails, axis=0)
        with np.errstate(divide="ignore"):
            return {
                "overhead": (float(low[0]), float(high[0])),
                "throughput": (float(1 / high[1]), float(1 / low[1])),
                "synchronisation": (float(low[2]), float(high[2])),
            }

    @property
    def headline(self) -> str:
        """The line, and the largest batch that fits."""
        words = f"{self.model.overhead:.3g} s a step plus 1 s for {self.throughput:,.0f} examples"
        if self.knows_synchronisation:
            words += f", {self.model.synchronisation:.3g} s to synchronise"
        words = f"{self.what}: {words}" if self.what else words
        return words + ("" if self.largest is None else f"; at most {self.largest:,} examples fit")

    def to_frame(self) -> "pandas.DataFrame":
        """One row per time: measured and fitted, as `plan` reads it from CSV."""
        import pandas

        fitted = self.model.seconds(np.array(self.batch_sizes), np.array(self.devices, dtype=np.float64))
        sizes = [short(size) for size in self.batch_sizes]
        frame = pandas.DataFrame(
            {"batch_size": sizes, "seconds": self.seconds, "devices": self.devices, "fitted": fitted}
        )
        return frame if self.largest is None else frame.assign(largest=self.largest)

    def plot(self, ax: "Axes | None" = None) -> "Axes":
        """Seconds against batch size, with the line."""
        from batchlens.advice._plots import draw_step_times

        return draw_step_times(axes_or_new(ax), self)

    def as_document(self) -> dict[str, Any]:
        """What `batchlens time --json` prints."""
        frame = self.to_frame()
        return {
            "what": self.what,
            "points": [dict(zip(frame.columns, row, strict=True)) for row in frame.to_numpy(dtype=object).tolist()],
            "overhead": {"value": self.model.overhead, "interval": list(self.intervals["overhead"])},
            "throughput": {"value": self.throughput, "interval": list(self.intervals["throughput"])},
            "synchronisation": {
                "value": self.model.synchronisation,
                "interval": list(self.intervals["synchronisation"]),
            }
            if self.knows_synchronisation
            else None,
            "largest": self.largest,
        }


def _terms(batch_size: FloatArray, devices: FloatArray) -> FloatArray:
    """What overhead, time an example and synchronisation are multiplied by, in rows."""
    per_device, devices = np.broadcast_arrays(batch_size / devices, devices)
    return np.stack([np.ones(per_device.shape), per_device, 2 * (devices - 1) / devices])


def _fit(terms: FloatArray, seconds: FloatArray) -> list[StepModel]:
    """The line through every row of times."""
    scaled = (terms / seconds[:, None]).transpose(0, 2, 1)
    scale = np.abs(terms).max(axis=1)  # so that no term is lost to rounding
    found = (np.linalg.pinv(scaled / scale) @ np.ones((seconds.shape[1], 1)))[:, :, 0] / scale
    for row in np.flatnonzero((found < 0).any(axis=1)):
        found[row] = optimize.nnls(scaled[row] / scale, np.ones(seconds.shape[1]))[0] / scale
    padded = np.pad(found, ((0, 0), (0, 3 - found.shape[1])))
    return [StepModel(*row) for row in padded.tolist()]
