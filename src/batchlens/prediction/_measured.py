"""What a measurement says of a run as a whole."""

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from batchlens.curvature.measurement import Measurement

# From which part of a run's steps on the scatter of its curvature is that at the target.
_LATE = 0.75
# Of a run's steps, at most this part counts as a delay at the edge of stability.
_DELAYED = 0.1


class Measured(NamedTuple):
    """What a measurement says of a run: numbers, and the errors of their logarithms."""

    top: float
    top_error: float
    variance: float
    variance_error: float
    loss: float  # at which the variance was measured
    tops: Mapping[int, float]  # by step, ascending

    def steps_at_the_edge(self, limit: float) -> int:
        """How many of the first tenth of the steps the curvature took to fall below a limit for good."""
        if not self.tops:
            return 0
        steps, tops = np.array(list(self.tops)), np.log(list(self.tops.values()))
        after = np.maximum.accumulate(tops[::-1])[::-1]  # the highest from there on
        most = int(_DELAYED * steps[-1])
        above = after > math.log(limit)
        if not above[0] or steps[0] > most:
            return 0
        if above.all():
            return most
        last = int(np.argmin(above))
        logs = np.log(np.maximum(steps, 0.5))
        return min(round(math.exp(np.interp(math.log(limit), after[[last, last - 1]], logs[[last, last - 1]]))), most)

    @classmethod
    def of(cls, measurement: Measurement, steps: int) -> "Measured":
        """What was measured at a run's end, with how much the curvature scattered before.

        Its losses may be known up to `steps` only, a little less than its length: the last moment always counts.
        """
        moments = measurement.moments
        steps = max(steps, moments[-1].step)
        tops = dict(measurement.top_curvatures) | {moment.step: moment.top_curvature.value for moment in moments}
        tops = {step: top for step, top in tops.items() if step <= steps}
        late = np.log([top for step, top in tops.items() if step >= _LATE * steps])
        value, error, _ = moments[-1].top_curvature
        scatter = float(np.std(late, ddof=1)) if len(late) > 1 else 0.25
        variance, variance_error, _ = moments[-1].gradient_variance
        return cls(
            top=value,
            top_error=math.hypot(scatter, error / value),
            variance=variance,
            variance_error=variance_error / variance if variance > 0 else math.inf,
            loss=moments[-1].loss,
            tops=dict(sorted(tops.items())),
        )
