"""What a measurement says of a run as a whole."""

import math
from statistics import median
from typing import NamedTuple

import numpy as np

from batchlens.curvature.measurement import Measurement

# Late and early moments of a run, as parts of its steps.
_LATE, _EARLY = 0.75, 0.45


class Measured(NamedTuple):
    """What a measurement says of a run: numbers, and the errors of their logarithms."""

    top: float
    top_error: float
    early: float | None
    variance: float
    variance_error: float

    @classmethod
    def of(cls, measurement: Measurement, steps: int) -> "Measured":
        """Of a run of so many steps: the curvature of its last part, and that of its beginning."""
        moments = measurement.moments
        tops = dict(measurement.top_curvatures) | {moment.step: moment.top_curvature.value for moment in moments}
        late = [top for step, top in tops.items() if step >= _LATE * steps] or [moments[-1].top_curvature.value]
        early = [top for step, top in tops.items() if 0 < step <= _EARLY * steps]
        logs = np.log(late)
        value, error, _ = moments[-1].top_curvature
        scatter = float(np.std(logs, ddof=1)) / math.sqrt(len(logs)) if len(logs) > 1 else 0.25
        variance, variance_error, _ = moments[-1].gradient_variance
        return cls(
            top=math.exp(float(logs.mean())),
            top_error=math.hypot(scatter, error / value),
            early=median(early) if early else None,
            variance=variance,
            variance_error=variance_error / variance,
        )
