"""What the paper says about the curvature of real networks, judged on measurements.

Thresholds were committed before any network was measured along its training. They follow from what the noisy quadratic
makes of a difference and from what a reader would call close, not from results. Known beforehand were the numbers that
the project was planned with (digits and a narrow MNIST: exponents of -0.3 to -0.8, -0.7 to -1.3 and -1.1 to -3.6 by
decade; slopes of 0.9 to 1.07; ratios from 0.98 down to 0.05), and those of untrained networks.

An item holds, holds with a limit, or fails. A part holds where all its items hold and fails where fewer than half of
them hold or hold with a limit; a claim holds where all its parts hold and fails where more than half of them fail.
"""

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from batchlens._arrays import FloatArray
from batchlens.curvature.measurement import Measurement, Moment
from batchlens.report._page.records import Claim, Verdict

# The spectrum is close to 1/i where the exponent of a decade of ranks is within this of -1: a quarter is a factor 1.8
# at the decade's other end, a half a factor 3.2. Decades beyond rank 1,000 have little weight in any loss.
EXPONENT, EXPONENT_LIMIT = 0.25, 0.5
DECADES = (1, 10, 100)
# Steps after which the spectrum is said to be settled, which is when it is compared with the end.
SETTLED = 200
# Median factor over ranks up to 1,000 by which it still changes: "mostly unchanged" is less than one would see on the
# paper's logarithmic axis. Shape is what is left of it when all curvatures may share a factor.
CHANGE, CHANGE_LIMIT = 1.5, 2.0
SHAPE, SHAPE_LIMIT = 1.25, 1.5
# What changes after as a part of what changed before, in logarithms.
LATER, LATER_LIMIT = 0.5, 1.0
LARGEST_RANK = 1000
# C = H: a log-log slope this near to 1, a correlation of logarithms of this at least, and a ratio of traces (times the
# positions that an example's loss is a mean over) within this factor of 1. The model's critical batch size is
# proportional to that ratio: 1.5 is what predictions are to be within, 3 what would make two of three wrong.
SLOPE, SLOPE_LIMIT = 0.15, 0.3
CORRELATION, CORRELATION_LIMIT = 0.9, 0.8
RATIO, RATIO_LIMIT = 1.5, 3.0

_SOURCE = "appendix on the noisy quadratic model"


class Item(NamedTuple):
    """One number that a part is judged by."""

    label: str
    value: float
    verdict: Verdict


class Part(NamedTuple):
    """A part of a claim: what is compared, and its items."""

    name: str
    items: tuple[Item, ...]

    @property
    def verdict(self) -> Verdict:
        fine = sum(item.verdict != "fails" for item in self.items)
        if all(item.verdict == "holds" for item in self.items):
            return "holds"
        return "fails" if 2 * fine < len(self.items) else "holds with a limit"


def judge_measurement(measurement: Measurement) -> list[Claim]:
    """The paper's three statements on one network; those that it cannot be asked are left out."""
    moments = [moment for moment in measurement.moments if moment.spectrum]
    claims = []
    for name, sentence, measure, threshold, parts in (
        (
            "spectrum",
            "The curvature's spectrum is close to 1/i.",
            f"Exponent of curvature against rank in the Kronecker eigenbasis, at the last moment, for the decades of "
            f"ranks from {', '.join(map(str, DECADES))}.",
            f"-1 within {EXPONENT:g}; with a limit, within {EXPONENT_LIMIT:g}",
            list(_spectrum(moments)),
        ),
        (
            "spectrum_settles",
            f"The spectrum settles after {SETTLED} steps.",
            f"From the first moment at {SETTLED} steps or later to the last: median factor by which curvatures of "
            f"equal rank up to {LARGEST_RANK:,} change, the same when all may share a factor, and the change (in "
            "logarithms) as a part of that before.",
            f"{CHANGE:g}, {SHAPE:g} and {LATER:g} at most; with a limit, {CHANGE_LIMIT:g}, {SHAPE_LIMIT:g} and less "
            f"than {LATER_LIMIT:g}",
            list(_settling(moments)),
        ),
        (
            "covariance",
            "The gradients' covariance is close to the curvature (C = H).",
            "Variance of the gradient against curvature over the directions of the Kronecker eigenbasis, at every "
            "moment: log-log slope, correlation of logarithms, and ratio of the traces (times the positions that an "
            "example's loss is a mean over).",
            f"slope 1 within {SLOPE:g}, correlation at least {CORRELATION:g}, ratio 1 within a factor {RATIO:g}; with "
            f"a limit {SLOPE_LIMIT:g}, {CORRELATION_LIMIT:g} and {RATIO_LIMIT:g}",
            list(_covariance(moments)),
        ),
    ):
        if parts:
            found = "; ".join(f"{part.name} {', '.join(item.label for item in part.items)}" for part in parts)
            verdict, limit = _claim_verdict(parts)
            slug = f"{measurement.name} {name}"
            title = f"{measurement.name}: {sentence}"
            claims.append(Claim(slug, title, _SOURCE, measure, found, threshold, verdict, limit))
    return claims


def _claim_verdict(parts: Sequence[Part]) -> tuple[Verdict, str]:
    """The verdict, and which parts limit it."""
    if all(part.verdict == "holds" for part in parts):
        return "holds", ""
    if 2 * sum(part.verdict == "fails" for part in parts) > len(parts):
        return "fails", ""
    return "holds with a limit", "; ".join(f"{part.name} {part.verdict}" for part in parts if part.verdict != "holds")


def _spectrum(moments: Sequence[Moment]) -> Iterator[Part]:
    if moments:
        found = {decade.first: decade.exponent for decade in moments[-1].decades}
        for first in DECADES:
            if first in found:
                away = abs(found[first] + 1)
                item = _item(f"{found[first]:.2f}", found[first], away <= EXPONENT, away <= EXPONENT_LIMIT)
                yield Part(f"ranks {first} to {10 * first}", (item,))


def _settling(moments: Sequence[Moment]) -> Iterator[Part]:
    settled = next((moment for moment in moments if moment.step >= SETTLED), None)
    if settled is None or settled is moments[-1] or settled is moments[0]:
        return
    later, before = log_change(settled, moments[-1]), log_change(moments[0], settled)
    size, shape = _median(later), _median(later - np.median(later))
    part = size / _median(before) if _median(before) > 0 else math.inf
    for name, value, holds, limit in (
        ("change", math.exp(size), size <= math.log(CHANGE), size <= math.log(CHANGE_LIMIT)),
        ("shape", math.exp(shape), shape <= math.log(SHAPE), shape <= math.log(SHAPE_LIMIT)),
        ("as a part of the change before", part, part <= LATER, part < LATER_LIMIT),
    ):
        yield Part(name, (_item(f"{value:.2f}", value, holds, limit),))


def log_change(first: Moment, last: Moment) -> FloatArray:
    """Logarithms of how curvature of equal rank changes, at ranks evenly spaced in their logarithm up to 1,000."""
    spectra = [[level for level in moment.spectrum if level.curvature > 0] for moment in (first, last)]
    most = min(LARGEST_RANK, *(spectrum[-1].rank for spectrum in spectra))
    at = np.linspace(0.0, math.log(most), 61)
    heights = [
        np.interp(at, [math.log(level.rank) for level in spectrum], [math.log(level.curvature) for level in spectrum])
        for spectrum in spectra
    ]
    change: FloatArray = heights[1] - heights[0]
    return change


def _covariance(moments: Sequence[Moment]) -> Iterator[Part]:
    compared = [(moment, moment.comparison) for moment in moments if moment.comparison is not None]
    if not compared:
        return
    slopes, correlations, ratios = [], [], []
    for moment, found in compared:
        at, away = f"(step {moment.step})", abs(found.slope - 1)
        slopes.append(_item(f"{found.slope:.2f} {at}", found.slope, away <= SLOPE, away <= SLOPE_LIMIT))
        sure = found.correlation
        correlations.append(_item(f"{sure:.2f} {at}", sure, sure >= CORRELATION, sure >= CORRELATION_LIMIT))
        ratio = moment.size_ratio or 0.0
        apart = abs(math.log(ratio)) if ratio > 0 else math.inf
        ratios.append(_item(f"{ratio:.2f} {at}", ratio, apart <= math.log(RATIO), apart <= math.log(RATIO_LIMIT)))
    yield Part("slope", tuple(slopes))
    yield Part("correlation", tuple(correlations))
    yield Part("ratio", tuple(ratios))


def _item(label: str, value: float, holds: bool, limit: bool) -> Item:
    return Item(label, value, "holds" if holds else "holds with a limit" if limit else "fails")


def _median(values: FloatArray) -> float:
    return float(np.median(np.abs(values)))
