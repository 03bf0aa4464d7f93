"""When a reference cannot tell: each reason with what would mend it."""

from collections.abc import Iterator

from batchlens.curvature.measurement import Measurement, Moment
from batchlens.prediction._model import Reference

# Learning rate times top curvature beyond which the run is at the edge of stability.
MOST_SHARPNESS = 1.9
# Halves of the data may differ in top curvature by this factor, and the gradient variance may have this error.
_MOST_APART, _MOST_VARIANCE_ERROR = 1.3, 0.2
# A target counts as met within this factor: losses may have been measured on other examples. What is measured at more
# than the other factor from the target is not of it.
_NEARLY, _FAR = 1.15, 2.0
# What helps a run that is too fast.
SMALLER_RATE = "use a smaller learning rate"
# Below so many steps a plateau is made of a few large ones, which no quadratic describes.
LEAST_PLATEAU = 8


def reasons_against(reference: Reference, measurement: Measurement, top: float) -> Iterator[str]:
    """Why nothing can be predicted from a reference, in sentences."""
    last = measurement.moments[-1]
    lowest = min(reference.losses)
    if lowest > _NEARLY * reference.target:
        yield (
            f"the reference came to a loss of {lowest:.3g} and misses the target of {reference.target:.3g}: train it "
            "longer, or choose an easier target"
        )
    if not 1 / _FAR < last.loss / reference.target < _FAR:
        yield (
            f"the last moment was measured at a loss of {last.loss:.3g}, far from the target of "
            f"{reference.target:.3g}: measure where the target is met"
        )
    sharpness = reference.learning_rate * top / (1 + reference.momentum)
    if sharpness > MOST_SHARPNESS:
        yield (
            f"learning rate times top curvature is {sharpness:.2f}, above {MOST_SHARPNESS}, the edge of stability: "
            f"{SMALLER_RATE}"
        )
    yield from _doubts(last)


def halves_disagree(moment: Moment) -> bool:
    """On the top curvature, by more than can be relied on."""
    return bool(moment.top_halves) and max(moment.top_halves) > _MOST_APART * min(moment.top_halves)


def _doubts(moment: Moment) -> Iterator[str]:
    """Whether the numbers of a moment can be relied on."""
    if halves_disagree(moment):
        first, second = moment.top_halves
        yield (
            f"the top curvature is not known well: it is {first:.3g} on one half of the examples and {second:.3g} on "
            f"the other, more than {_MOST_APART:g} times apart: measure on more examples"
        )
    value, error, _ = moment.gradient_variance
    if value <= 0:
        yield "the gradients do not vary: measure on more examples, with their own losses"
    elif error > _MOST_VARIANCE_ERROR * value:
        yield f"the gradient variance is known to {error / value:.0%} only: measure it on more examples"
