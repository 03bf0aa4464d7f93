"""Steps to a target against batch size: where theory and practice meet, and how far a larger batch helps.

At small batch sizes twice the batch halves the steps (*perfect scaling*); at large ones the steps no longer fall (the
*plateau*).  The critical batch size lies between, and `critical_batch_size` reads it off by one of four definitions.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from batchlens._arrays import FloatArray
from batchlens._checks import require_choice, require_number
from batchlens._results import Result, axes_or_new, short
from batchlens.scaling import _critical
from batchlens.scaling._bend import fit_bends, predict_bends
from batchlens.scaling._critical import DEFINITIONS, RELATIONS, UNFINISHED, Definition, Relation, Steps, bound_words
from batchlens.scaling._intervals import Interval

if TYPE_CHECKING:
    import pandas
    from matplotlib.axes import Axes


class CriticalBatchSize(NamedTuple):
    """Up to which batch size a larger batch saves steps.

    Arguments:
        value: the batch size, or a bound of it.
        relation: "=" where the curve shows what the definition asks for; ">=" and "<=" where `value` is a bound, since
            the curve ends before or begins after; "unknown", with no value, where fewer than two batch sizes tell.
        definition: "knee", "overhead", "fit" or "bend".

    >>> print(CriticalBatchSize(4096.0, ">=", "knee"))
    at least 4,096
    """

    value: float | None
    relation: Relation
    definition: Definition

    def __str__(self) -> str:
        return "unknown" if self.value is None else bound_words(self.value, self.relation)


@dataclass(frozen=True, init=False, repr=False)
class ScalingCurve(Result):
    """Steps to a target at each batch size, computed by theory or measured.

    What belongs to single batch sizes (`settings`, `statuses`, `limits`, `intervals`) has one entry for each, or none.

    Arguments:
        batch_sizes: above 0, rising.
        steps: at least 0; None where the target was not reached.
        settings: what was used, such as {"learning_rate": 0.1}.
        optimizer: its name.
        power: the preconditioning H^-power, where the curve comes from the theory.
        target: what was to be reached.
        statuses: how it ended, such as "reached"; "unfinished" where the steps may still change.
        limits: the edges of the search at which the best settings lie, such as ["stability"].
        intervals: between which ends the steps lie, at 95% confidence; None where that is not known.

    >>> curve = ScalingCurve([16, 64, 256, 1024, 4096], [8000, 2000, 510, 200, 190], optimizer="sgd")
    >>> curve
    <ScalingCurve: sgd, 5 batch sizes from 16 to 4,096, critical batch size 657 (knee)>
    >>> curve.critical_batch_size("overhead").value < curve.critical_batch_size("knee").value
    True
    """

    batch_sizes: tuple[float, ...]
    steps: tuple[Steps, ...]
    settings: tuple[Mapping[str, float], ...]
    optimizer: str
    power: float
    target: float | None
    statuses: tuple[str, ...]
    limits: tuple[tuple[str, ...], ...]
    intervals: tuple[Interval | None, ...]

    def __init__(
        self,
        batch_sizes: Sequence[float],
        steps: Sequence[Steps],
        settings: Sequence[Mapping[str, float]] = (),
        optimizer: str = "",
        power: float = 0.0,
        target: float | None = None,
        statuses: Sequence[str] = (),
        limits: Sequence[Sequence[str]] = (),
        intervals: Sequence[Interval | tuple[float | None, float | None] | None] = (),
    ) -> None:
        checked_sizes, checked_steps = _require_curve(batch_sizes, steps)
        of_each: dict[str, Sequence[Any]] = {
            "settings": settings,
            "statuses": statuses,
            "limits": limits,
            "intervals": intervals,
        }
        for name, entries in of_each.items():
            if len(entries) not in (0, len(checked_sizes)):
                raise ValueError(
                    f"`{name}` must have {len(checked_sizes)} entries, one per batch size, or none, got {len(entries)}."
                )
        for entry in settings:
            if not isinstance(entry, Mapping):
                raise TypeError(f"`settings` must hold mappings, such as {{'learning_rate': 0.1}}, got {entry!r}.")
        if not isinstance(optimizer, str):
            raise TypeError(f"`optimizer` must be a string, got {optimizer!r}.")
        fields = {
            "batch_sizes": checked_sizes,
            "steps": checked_steps,
            "settings": tuple(dict(entry) for entry in settings),
            "optimizer": optimizer,
            "power": require_number("power", power),
            "target": None if target is None else require_number("target", target),
            "statuses": tuple(statuses),
            "limits": tuple(map(tuple, limits)),
            "intervals": tuple(None if ends is None else Interval(*ends) for ends in intervals),
        }
        for name, value in fields.items():
            object.__setattr__(self, name, value)

    @property
    def headline(self) -> str:
        """What the curve says, in one line."""
        sizes = [f"{short(size):,}" for size in self.batch_sizes]
        words = [
            f"{len(sizes)} batch sizes from {sizes[0]} to {sizes[-1]}" if len(sizes) > 1 else f"batch size {sizes[0]}"
        ]
        if self.optimizer:
            words.insert(0, f"{self.optimizer}, power {self.power:g}" if self.power else self.optimizer)
        unfinished = ", unfinished" if UNFINISHED in self.statuses else ""
        return ", ".join([*words, f"critical batch size {self.critical_batch_size()} (knee){unfinished}"])

    def to_frame(self) -> "pandas.DataFrame":
        """One row per batch size: steps, settings, and what else the curve holds."""
        import pandas

        frame = pandas.DataFrame({"batch_size": [short(size) for size in self.batch_sizes]})
        frame.insert(0, "optimizer", self.optimizer)
        whole = all(steps is None or isinstance(steps, int) for steps in self.steps)
        frame["steps"] = pandas.array(list(self.steps), dtype="Int64" if whole else "Float64")
        if self.intervals:
            frame["low"] = [None if ends is None else ends.low for ends in self.intervals]
            frame["high"] = [None if ends is None else ends.high for ends in self.intervals]
        frame["efficiency"] = pandas.array(list(self.efficiency()), dtype="Float64")
        if self.settings:
            frame = frame.join(pandas.DataFrame(list(self.settings)))
        if self.statuses:
            frame["status"] = self.statuses
        return frame

    def plot(self, ax: "Axes | None" = None) -> "Axes":
        """Steps against batch size on `ax` or a new figure, with perfect scaling and the critical batch size."""
        from batchlens.scaling._plots import draw_curve

        return draw_curve(axes_or_new(ax), self)

    def as_document(self) -> dict[str, Any]:
        """What `batchlens steps --json` prints of a curve."""
        return {
            "optimizer": self.optimizer,
            "power": self.power,
            "critical_batch_size": self.critical_batch_size()._asdict(),
            "points": [self._point(place) for place in range(len(self.batch_sizes))],
        }

    def _point(self, place: int) -> dict[str, Any]:
        settings = self.settings[place] if self.settings else {}
        point: dict[str, Any] = {"batch_size": short(self.batch_sizes[place]), "steps": self.steps[place]}
        point |= {name: settings.get(name) for name in ("learning_rate", "momentum", "averaging")} | dict(settings)
        if self.statuses:
            point["status"] = self.statuses[place]
        if self.limits:
            point["limits"] = list(self.limits[place])
        if self.intervals:
            ends = self.intervals[place]
            point["interval"] = None if ends is None else list(ends)
        return point

    def critical_batch_size(self, definition: Definition = "knee", tolerance: float = 0.2) -> CriticalBatchSize:
        """Up to which batch size a larger batch saves steps; see the function `critical_batch_size`."""
        return critical_batch_size(self.batch_sizes, self.steps, definition, tolerance)

    def perfect_scaling_range(self, tolerance: float = 0.2) -> tuple[float, float] | None:
        """Between which batch sizes do twice the batch and half the steps go together?

        From the smallest batch size to the largest whose steps exceed perfect scaling by at most `tolerance`
        ("overhead" in `critical_batch_size`); None where the curve shows no perfect scaling.

        >>> ScalingCurve([16, 64, 256, 1024], [8000, 2000, 500, 125]).perfect_scaling_range()
        (16.0, 1024.0)
        """
        found = self.critical_batch_size("overhead", tolerance)
        if found.value is None or found.relation == "<=":
            return None
        smallest = next(size for size, steps in zip(self.batch_sizes, self.steps, strict=True) if steps)
        return smallest, found.value

    def efficiency(self) -> tuple[float | None, ...]:
        """Which part of the examples used would perfect scaling have needed, at each batch size?

        N_0 / (B steps), N_0 the examples (batch size times steps) at the small end: the geometric mean over it
        where it shows perfect scaling, else those of the smallest batch size.  None where there are no steps.

        >>> [round(part, 3) for part in ScalingCurve([16, 64, 256], [800, 200, 100]).efficiency()]
        [1.0, 1.0, 0.5]
        """
        log_batch, log_steps = _critical.reached(self.batch_sizes, self.steps)
        if not log_batch.size:
            return (None,) * len(self.steps)
        examples, _ = _critical.perfect_examples(log_batch, log_steps[None])
        parts = iter(np.exp(examples - log_batch - log_steps).tolist())
        return tuple(next(parts) if steps else None for steps in self.steps)

    def predict(self, batch_sizes: npt.ArrayLike) -> FloatArray:
        """How many steps would other batch sizes take?

        S_min (1 + (B_crit / B)^a)^(1/a), fitted as in the definition "bend"; outside the batch sizes of the curve it is
        an extrapolation.

        >>> ScalingCurve([1, 10, 100], [1010, 110, 20]).predict([50, 1000]).round(6).tolist()
        [30.0, 11.0]
        """
        log_batch, log_steps = _critical.reached(self.batch_sizes, self.steps)
        if log_batch.size < 2:
            raise ValueError(f"`steps` must tell of at least two batch sizes to predict others, got {log_batch.size}.")
        asked = [batch_sizes] if np.ndim(batch_sizes) == 0 else np.ravel(np.asarray(batch_sizes, dtype=object))
        sizes = [require_number("batch_sizes", size, low=0, closed=(False, True)) for size in asked]
        predicted: FloatArray = predict_bends(np.array(sizes), fit_bends(log_batch, log_steps[None]))[0]
        return predicted


def critical_batch_size(
    batch_sizes: Sequence[float],
    steps: Sequence[Steps],
    definition: Definition = "knee",
    tolerance: float = 0.2,
) -> CriticalBatchSize:
    """Up to which batch size does a larger batch save steps?

    "knee": where the two regimes' lines meet, B = N_0 / S_inf.  N_0, the examples that perfect scaling needs, is the
    geometric mean of B steps over the small end; S_inf, the plateau, that of the steps over the large end.  Nothing
    is read between points.  Where one end does not show its regime, N_0 or S_inf can only be smaller than the
    outermost point says, and the value is a bound.  Without a plateau, ">=" the largest batch size where that one is
    within 20% of perfect scaling, else ">=" the least examples of the small end over the last steps; without perfect
    scaling, "<=" the first examples over S_inf.  A curve that shows neither is at least known to be mainly before its
    knee (">=" the smallest batch size; its least-squares slope is steeper than -0.5) or after it ("<=" the largest).

    "overhead": the largest B whose steps are at most (1 + tolerance) N_0 / B.  Between the last point that is so and
    the next, log steps is taken to be linear in log B.  ">=" the largest batch size where that one still is; where
    the small end shows no perfect scaling, "<=" the point after.

    "fit": B_crit of the least-squares fit, in log space, of steps = S_min (1 + B_crit / B).  At B_crit the steps are
    twice the least possible and the slope is -0.5.  A B_crit beyond the batch sizes given is a bound, and of two
    points, which any curve fits, only the bounds of "knee" are read.

    "bend": B_crit of steps = S_min (1 + (B_crit / B)^a)^(1/a), where the lines of perfect scaling and the plateau meet
    however sharply the curve bends.  log a has a prior, normal around 0 with a standard deviation of 0.3, and the noise
    of log steps one of 5%, worth two batch sizes: of few batch sizes a is close to 1, of many it is what they say.
    Bounds as for "fit".

    Arguments:
        batch_sizes: above 0, rising.
        steps: at least 0; None where the target was not reached.
        definition: "knee", "overhead", "fit" or "bend".
        tolerance: the excess that "overhead" allows, above 0.

    >>> batch_sizes, steps = [1, 4, 16, 64, 256], [1640, 440, 140, 65, 46.25]
    >>> [str(critical_batch_size(batch_sizes, steps, definition)) for definition in ("overhead", "fit", "bend")]
    ['9.31', '40', '40']
    >>> critical_batch_size([1, 2, 4], [400, 200, 100])
    CriticalBatchSize(value=4.0, relation='>=', definition='knee')
    """
    require_choice("definition", definition, DEFINITIONS)
    tolerance = require_number("tolerance", tolerance, low=0, closed=(False, True))
    log_batch, log_steps = _critical.reached(*_require_curve(batch_sizes, steps))
    if log_batch.size < 2:
        return CriticalBatchSize(None, "unknown", definition)
    log_value, side = _critical.read_curves(definition, log_batch, log_steps[None], tolerance)
    exact = {float(np.log(size)): float(size) for size in batch_sizes}
    value = exact.get(float(log_value[0]), math.exp(log_value[0]))
    return CriticalBatchSize(value, RELATIONS[int(side[0])], definition)


def _require_curve(batch_sizes: Sequence[float], steps: Sequence[Steps]) -> tuple[tuple[float, ...], tuple[Steps, ...]]:
    """Both as tuples of plain numbers; whole steps stay whole."""
    sizes = tuple(require_number("batch_sizes", size, low=0, closed=(False, True)) for size in batch_sizes)
    if not sizes:
        raise ValueError("`batch_sizes` must have at least one entry, got none.")
    for smaller, larger in pairwise(sizes):
        if not smaller < larger:
            raise ValueError(f"`batch_sizes` must rise, got {larger:g} after {smaller:g}.")
    if len(steps) != len(sizes):
        raise ValueError(f"`steps` must have {len(sizes)} entries, one per batch size, got {len(steps)}.")
    return sizes, tuple(_require_steps(count) for count in steps)


def _require_steps(count: object) -> Steps:
    if count is None:
        return None
    if isinstance(count, float | np.floating) and math.isnan(count):
        raise ValueError("`steps` must be finite and at least 0, got nan. Use None where the target was not reached.")
    number = require_number("steps", count, low=0)
    return int(count) if isinstance(count, int | np.integer) else number
