"""Steps to a target against batch size: where theory and practice meet, and how far a larger batch helps.

At small batch sizes twice the batch halves the steps (*perfect scaling*, slope -1 in a log-log plot); at large
ones the steps no longer fall (the *plateau*, slope 0).  The critical batch size lies between, and
`critical_batch_size` reads it off by one of three definitions.

Which regimes a curve shows is judged at its two ends.  An *end* is made of the batch sizes within a factor of 4 of
the smallest (the largest), so that a fine grid counts no more than a coarse one; its slope is the least-squares
slope of log steps over log batch size there, or that of the two outermost points where no other is so close.
The small end shows perfect scaling where its slope is -0.8 or steeper, the large end the plateau where its slope is
-0.2 or flatter (rising included: measured curves may).  As a curve bends one way only, no longer stretch from the
same side can be steeper (flatter) than the end; so one that is steep (flat) enough shows the regime as well, whatever
the noise at the end says.  Only batch sizes that reached the target, after at least one step, count.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, NamedTuple, get_args

import numpy as np
import numpy.typing as npt

from batchlens._arrays import FloatArray
from batchlens.checks import require_choice, require_number

Definition = Literal["knee", "overhead", "fit"]
Relation = Literal["=", ">=", "<=", "unknown"]
Steps = float | int | None
BoolArray = npt.NDArray[np.bool_]

DEFINITIONS: tuple[Definition, ...] = get_args(Definition)
CONFIDENCE = 0.95
END_WIDTH = 4.0
PERFECT_SLOPE = -0.8
HALF_WAY_SLOPE = -0.5
PLATEAU_SLOPE = -0.2

# How far beyond the batch sizes given the fit looks for B_crit: from there on the curve is a straight line.
_FIT_MARGIN = math.log(1e6)
_FIT_GRID = 800
_FIT_STEPS = 60
_FIT_ACCURACY = 1e-12
_ROUNDING = 1e-9
_PERFECT_EXCESS = 0.2
_ALL = slice(None)
_TINY = 1e-300  # instead of 0 in a denominator
_RELATIONS: dict[int, Relation] = {0: "=", 1: ">=", -1: "<="}
_WORDS = {"=": "", ">=": "at least ", "<=": "at most "}


class CriticalBatchSize(NamedTuple):
    """Up to which batch size a larger batch saves steps.

    relation: "=" where the curve shows what the definition asks for; ">=" and "<=" where `value` is a bound, since
    the curve ends before or begins after; "unknown", with no value, where fewer than two batch sizes tell.

    >>> print(CriticalBatchSize(4096.0, ">=", "knee"))
    at least 4096
    """

    value: float | None
    relation: Relation
    definition: Definition

    def __str__(self) -> str:
        if self.value is None:
            return "unknown"
        return f"{_WORDS[self.relation]}{self.value:{'.0f' if self.value >= 100 else '.3g'}}"


class Interval(NamedTuple):
    """Where the truth lies, at 95% confidence; None: open, the runs do not limit it on that side.

    >>> print(Interval(96.0, None))
    96 to ?
    """

    low: float | None
    high: float | None

    def __str__(self) -> str:
        low, high = ("?" if end is None else f"{end:,.3g}" if end < 1000 else f"{end:,.0f}" for end in self)
        return f"{low} to {high}"


class Estimate(NamedTuple):
    """A critical batch size and its interval; None where the runs give no interval."""

    critical_batch_size: CriticalBatchSize
    interval: Interval | None


@dataclass(frozen=True, init=False)
class ScalingCurve:
    """Steps to a target at each batch size, computed by theory or measured.

    Arguments:
        batch_sizes: above 0, rising.
        steps: at least 0, one a batch size; None where the target was not reached.
        settings: what was used at each batch size, such as {"learning_rate": 0.1}; may be left out.
        optimizer, power, target: what the curve is of.

    >>> curve = ScalingCurve([16, 64, 256, 1024, 4096], [8000, 2000, 510, 200, 190])
    >>> print(curve.critical_batch_size())
    657
    """

    batch_sizes: tuple[float, ...]
    steps: tuple[Steps, ...]
    settings: tuple[Mapping[str, float], ...]
    optimizer: str
    power: float
    target: float | None

    def __init__(
        self,
        batch_sizes: Sequence[float],
        steps: Sequence[Steps],
        settings: Sequence[Mapping[str, float]] = (),
        optimizer: str = "",
        power: float = 0.0,
        target: float | None = None,
    ) -> None:
        checked_sizes, checked_steps = _require_curve(batch_sizes, steps)
        if len(settings) not in (0, len(checked_sizes)):
            raise ValueError(
                f"`settings` must have {len(checked_sizes)} entries, one a batch size, or none, got {len(settings)}."
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
        }
        for name, value in fields.items():
            object.__setattr__(self, name, value)

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
        log_batch, log_steps = _reached(self.batch_sizes, self.steps)
        if not log_batch.size:
            return (None,) * len(self.steps)
        examples, _ = _perfect_examples(log_batch, log_steps[None])
        parts = iter(np.exp(examples - log_batch - log_steps).tolist())
        return tuple(next(parts) if steps else None for steps in self.steps)

    def predict(self, batch_sizes: npt.ArrayLike) -> FloatArray:
        """How many steps would other batch sizes take?

        S_min (1 + B_crit / B), fitted as in the definition "fit"; outside the batch sizes of the curve it is an
        extrapolation.

        >>> ScalingCurve([1, 10, 100], [1010, 110, 20]).predict([50, 1000]).round(6).tolist()
        [30.0, 11.0]
        """
        log_batch, log_steps = _reached(self.batch_sizes, self.steps)
        if log_batch.size < 2:
            raise ValueError(f"`steps` must tell of at least two batch sizes to predict others, got {log_batch.size}.")
        wanted = np.atleast_1d(np.array(batch_sizes, dtype=np.float64))
        for size in wanted.flat:
            require_number("batch_sizes", size, low=0, closed=(False, True))
        predicted: FloatArray = predict_curves(np.log(wanted), *fit_curves(log_batch, log_steps[None]))[0]
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

    Arguments:
        batch_sizes: above 0, rising.
        steps: at least 0; None where the target was not reached.
        definition: "knee", "overhead" or "fit".
        tolerance: the excess that "overhead" allows, above 0.

    >>> batch_sizes, steps = [1, 4, 16, 64, 256], [1640, 440, 140, 65, 46.25]
    >>> [str(critical_batch_size(batch_sizes, steps, definition)) for definition in ("overhead", "fit")]
    ['9.31', '40']
    >>> critical_batch_size([1, 2, 4], [400, 200, 100])
    CriticalBatchSize(value=4.0, relation='>=', definition='knee')
    """
    require_choice("definition", definition, DEFINITIONS)
    tolerance = require_number("tolerance", tolerance, low=0, closed=(False, True))
    log_batch, log_steps = _reached(*_require_curve(batch_sizes, steps))
    if log_batch.size < 2:
        return CriticalBatchSize(None, "unknown", definition)
    log_value, side = read_curves(definition, log_batch, log_steps[None], tolerance)
    exact = {float(np.log(size)): float(size) for size in batch_sizes}
    value = exact.get(float(log_value[0]), math.exp(log_value[0]))
    return CriticalBatchSize(value, _RELATIONS[int(side[0])], definition)


class Readings(NamedTuple):
    """Logarithms of critical batch sizes, one a curve; side 0: a number, 1: a lower bound, -1: an upper bound."""

    log_value: FloatArray
    side: npt.NDArray[np.int64]


def read_curves(
    definition: Definition, log_batch: FloatArray, log_steps: FloatArray, tolerance: float = 0.2
) -> Readings:
    """Critical batch sizes of many curves over the same batch sizes: `log_steps` has one curve a row."""
    log_value, side = _READERS[definition](log_batch, log_steps, tolerance)
    side = np.where(log_value > log_batch[-1], 1, np.where(log_value < log_batch[0], -1, side))
    return Readings(np.clip(log_value, log_batch[0], log_batch[-1]), side)


def critical_ends(
    definition: Definition, log_batch: FloatArray, log_steps: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Between which logarithms the critical batch size of every curve lies; infinite where it is not bounded."""
    log_value, side = read_curves(definition, log_batch, log_steps)
    return np.where(side < 0, -np.inf, log_value), np.where(side > 0, np.inf, log_value)


def percentile_interval(low: FloatArray, high: FloatArray) -> tuple[float, float]:
    """Percentiles, over resamples, of what is known from below and from above; infinite where it is not known."""
    tail = (1 - CONFIDENCE) / 2
    return (
        float(np.quantile(low, tail, method="inverted_cdf")),
        float(np.quantile(high, 1 - tail, method="inverted_cdf")),
    )


def interval_of_logs(log_low: float, log_high: float) -> Interval | None:
    """The interval between two logarithms, open where they are infinite; None where both are."""
    if math.isinf(log_low) and math.isinf(log_high):
        return None
    return Interval(*(None if math.isinf(end) else math.exp(end) for end in (log_low, log_high)))


def fit_curves(log_batch: FloatArray, log_steps: FloatArray) -> tuple[FloatArray, FloatArray]:
    """log B_crit and log S_min of steps = S_min (1 + B_crit / B) for every row of `log_steps`.

    S_min is eliminated.  What is left is a function of log B_crit alone: its least value on a grid, then Gauss-Newton
    steps inside the two grid cells around it, bisection where one would leave them.
    """
    centred = log_steps - log_steps.mean(axis=1, keepdims=True)
    grid = np.linspace(log_batch[0] - _FIT_MARGIN, log_batch[-1] + _FIT_MARGIN, _FIT_GRID)
    shapes = np.logaddexp(0, grid[:, None] - log_batch)
    shapes -= shapes.mean(axis=1, keepdims=True)
    best = np.argmin((shapes**2).sum(axis=1) - 2 * centred @ shapes.T, axis=1)
    low, high = grid[np.maximum(best - 1, 0)], grid[np.minimum(best + 1, _FIT_GRID - 1)]
    log_critical = (low + high) / 2
    for _ in range(_FIT_STEPS):
        shape = np.logaddexp(0, log_critical[:, None] - log_batch)
        growth = np.exp(log_critical[:, None] - log_batch - shape)
        shape -= shape.mean(axis=1, keepdims=True)
        growth -= growth.mean(axis=1, keepdims=True)
        gradient = ((shape - centred) * growth).sum(axis=1)
        low, high = np.where(gradient < 0, log_critical, low), np.where(gradient < 0, high, log_critical)
        newton = log_critical - gradient / np.maximum((growth**2).sum(axis=1), _TINY)
        before, log_critical = log_critical, np.where((low < newton) & (newton < high), newton, (low + high) / 2)
        if np.abs(log_critical - before).max() < _FIT_ACCURACY:
            break
    log_least = (log_steps - np.logaddexp(0, log_critical[:, None] - log_batch)).mean(axis=1)
    return log_critical, log_least


def predict_curves(log_batch: FloatArray, log_critical: FloatArray, log_least: FloatArray) -> FloatArray:
    """Steps of the fitted curves, one a row, at other batch sizes."""
    with np.errstate(over="ignore"):
        steps: FloatArray = np.exp(log_least[:, None] + np.logaddexp(0, log_critical[:, None] - log_batch))
    return steps


def _read_knee(log_batch: FloatArray, log_steps: FloatArray, _: float) -> Readings:
    examples, perfect = _perfect_examples(log_batch, log_steps)
    large = _near(log_batch, log_batch[-1])
    stretches = [slice(-count, None) for count in range(max(int(large.sum()), 2), log_batch.size + 1)]
    flat = np.max([_slope(log_batch, log_steps, stretch) for stretch in stretches], axis=0) >= PLATEAU_SLOPE
    plateau = np.where(flat, log_steps[:, large].mean(axis=1), log_steps[:, -1])
    all_perfect = log_batch[-1] + log_steps[:, -1] - examples <= math.log1p(_PERFECT_EXCESS)
    least = (log_batch + log_steps)[:, _near(log_batch, log_batch[0])].min(axis=1) - log_steps[:, -1]
    before = np.where(all_perfect, log_batch[-1], least)
    neither = _bound_by_slope(log_batch, log_steps)
    log_value = np.where(perfect & ~flat, before, examples - plateau)
    side = perfect.astype(np.int64) - flat
    unseen = ~(perfect | flat)
    return Readings(np.where(unseen, neither.log_value, log_value), np.where(unseen, neither.side, side))


def _read_overhead(log_batch: FloatArray, log_steps: FloatArray, tolerance: float) -> Readings:
    examples, perfect = _perfect_examples(log_batch, log_steps)
    excess = log_batch + log_steps - examples[:, None]
    allowed = math.log1p(tolerance)
    last = log_batch.size - 1
    within = last - np.argmax((excess <= allowed + _ROUNDING)[:, ::-1], axis=1)
    after = np.minimum(within + 1, last)
    rows = np.arange(within.size)
    below, above = excess[rows, within], excess[rows, after]
    part = np.clip((allowed - below) / np.where(above > below, above - below, 1), 0, 1)
    between = log_batch[within] + part * (log_batch[after] - log_batch[within])
    side = np.where(perfect, np.where(within == last, 1, 0), -1)
    return Readings(np.where(perfect, between, log_batch[after]), side)


def _read_fit(log_batch: FloatArray, log_steps: FloatArray, _: float) -> Readings:
    log_critical, _least = fit_curves(log_batch, log_steps)
    outside = (log_critical < log_batch[0]) | (log_critical > log_batch[-1])
    if log_batch.size > 2:
        return Readings(log_critical, np.zeros(log_critical.size, dtype=np.int64))
    bound = _bound_by_slope(log_batch, log_steps)
    return Readings(np.where(outside, log_critical, bound.log_value), bound.side)


_READERS: dict[Definition, Callable[[FloatArray, FloatArray, float], Readings]] = {
    "knee": _read_knee,
    "overhead": _read_overhead,
    "fit": _read_fit,
}


def _perfect_examples(log_batch: FloatArray, log_steps: FloatArray) -> tuple[FloatArray, BoolArray]:
    """log N_0 of every row, and whether its small end shows perfect scaling."""
    log_examples = log_batch + log_steps
    if log_batch.size < 2:
        return log_examples[:, 0], np.zeros(len(log_steps), dtype=np.bool_)
    small = _near(log_batch, log_batch[0])
    stretches = [slice(count) for count in range(max(int(small.sum()), 2), log_batch.size + 1)]
    perfect = np.min([_slope(log_batch, log_steps, stretch) for stretch in stretches], axis=0) <= PERFECT_SLOPE
    return np.where(perfect, log_examples[:, small].mean(axis=1), log_examples[:, 0]), perfect


def _near(log_batch: FloatArray, log_extreme: float) -> BoolArray:
    near: BoolArray = np.abs(log_batch - log_extreme) <= math.log(END_WIDTH) + _ROUNDING
    return near


def _slope(log_batch: FloatArray, log_steps: FloatArray, stretch: slice = _ALL) -> FloatArray:
    """Least-squares slope of every row over some of the batch sizes."""
    offset = log_batch[stretch] - log_batch[stretch].mean()
    slope: FloatArray = log_steps[:, stretch] @ offset / max(offset @ offset, _TINY)
    return slope


def _bound_by_slope(log_batch: FloatArray, log_steps: FloatArray) -> Readings:
    """What is left to say of a curve that shows neither regime."""
    before = _slope(log_batch, log_steps) < HALF_WAY_SLOPE
    return Readings(np.where(before, log_batch[0], log_batch[-1]), np.where(before, 1, -1))


def _reached(batch_sizes: Sequence[float], steps: Sequence[Steps]) -> tuple[FloatArray, FloatArray]:
    """Logarithms of the batch sizes that tell, and of their steps."""
    pairs = [(size, count) for size, count in zip(batch_sizes, steps, strict=True) if count]
    logs = np.log(np.array(pairs, dtype=np.float64).reshape(-1, 2))
    return logs[:, 0], logs[:, 1]


def _require_curve(batch_sizes: Sequence[float], steps: Sequence[Steps]) -> tuple[tuple[float, ...], tuple[Steps, ...]]:
    """Both as tuples of plain numbers; whole steps stay whole."""
    sizes = tuple(require_number("batch_sizes", size, low=0, closed=(False, True)) for size in batch_sizes)
    if not sizes:
        raise ValueError("`batch_sizes` must have at least one entry, got none.")
    for smaller, larger in pairwise(sizes):
        if not smaller < larger:
            raise ValueError(f"`batch_sizes` must rise, got {larger:g} after {smaller:g}.")
    if len(steps) != len(sizes):
        raise ValueError(f"`steps` must have {len(sizes)} entries, one a batch size, got {len(steps)}.")
    return sizes, tuple(_require_steps(count) for count in steps)


def _require_steps(count: object) -> Steps:
    if count is None:
        return None
    if isinstance(count, float | np.floating) and math.isnan(count):
        raise ValueError("`steps` must be finite and at least 0, got nan. Use None where the target was not reached.")
    number = require_number("steps", count, low=0)
    return int(count) if isinstance(count, int | np.integer) else number
