"""Numbers with their errors, and how JSON has them."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from scipy import stats

# Digits that numbers of long lists are kept with.
_DIGITS = 5


class Estimate(NamedTuple):
    """A number with its standard error, and how many degrees of freedom that error is known with."""

    value: float
    standard_error: float
    degrees: float = math.inf

    def interval(self, confidence: float = 0.9) -> tuple[float, float]:
        """Where the truth lies.

        >>> low, high = Estimate(10.0, 1.0).interval()
        >>> round(low, 2), round(high, 2)
        (8.36, 11.64)
        """
        reach = float(stats.t.ppf((1 + confidence) / 2, self.degrees)) * self.standard_error
        return self.value - reach, self.value + reach

    def __str__(self) -> str:
        """The error has one digit.

        >>> str(Estimate(720.4, 57.0)), str(Estimate(3.52, 0.031))
        ('720 ± 60', '3.52 ± 0.03')
        """
        return f"{_short(self.value)} ± {_short(self.standard_error, 1)}"


class Ratio(NamedTuple):
    """A ratio of two estimates, None where the lower one may be zero or less, with its 90% interval.

    The interval's upper end is inf where there is none; None where no positive ratio is allowed.
    """

    value: float | None
    interval: tuple[float, float] | None

    def __str__(self) -> str:
        """
        >>> str(Ratio(1353.2, (581.4, math.inf)))
        '1,350 (581 to ?)'
        """
        value = "?" if self.value is None else _short(self.value)
        if self.interval is None:
            return value
        low, high = self.interval
        return f"{value} ({_short(low)} to {'?' if math.isinf(high) else _short(high)})"


class DensityPoint(NamedTuple):
    """How many eigenvalues there are per decade around a curvature, with a 90% interval over probes."""

    curvature: float
    per_decade: float
    interval: tuple[float, float]


def _short(value: float, digits: int = 3) -> str:
    """That many digits, with zeros rather than a power of ten up to a million."""
    return f"{float(f'{value:.{digits}g}'):,g}"


def estimate_document(estimate: Estimate) -> dict[str, Any]:
    degrees = None if math.isinf(estimate.degrees) else estimate.degrees
    return {"value": estimate.value, "standard_error": estimate.standard_error, "degrees": degrees}


def read_estimate(document: Mapping[str, Any]) -> Estimate:
    degrees = document["degrees"]
    return Estimate(document["value"], document["standard_error"], math.inf if degrees is None else degrees)


def ratio_document(ratio: Ratio) -> dict[str, Any]:
    if ratio.interval is None:
        return {"value": ratio.value, "interval": None}
    low, high = (None if math.isinf(end) else end for end in ratio.interval)
    return {"value": ratio.value, "interval": [low, high]}


def read_ratio(document: Mapping[str, Any]) -> Ratio:
    if document["interval"] is None:
        return Ratio(document["value"], None)
    low, high = (math.inf if end is None else end for end in document["interval"])
    return Ratio(document["value"], (low, high))


def rows_document(rows: Sequence[Any]) -> list[dict[str, Any]]:
    return [{name: _rounded(value) for name, value in row._asdict().items()} for row in rows]


def _rounded(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_rounded(part) for part in value]
    return float(f"{value:.{_DIGITS}g}") if isinstance(value, float) else value
