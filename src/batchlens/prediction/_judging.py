"""When a reference cannot tell: each reason with what would mend it."""

from collections.abc import Iterator

from batchlens.curvature.measurement import Measurement, Moment
from batchlens.prediction._measured import Measured
from batchlens.prediction._model import Model, Reference, fit_model
from batchlens.theory.tuning import tune

# Learning rate times top curvature beyond which the run is at the edge of stability.
_MOST_SHARPNESS = 1.9
# Closer to it than this, a run jumps about, and what the model takes for noise may be that. It is then told by a model
# that says of another rate that it is faster by more than this factor: of 46 references whose truth is known, 44 have
# 0.87 to 1.36, and the other two, 2.1 and 7.8, are the ones that are predicted worst.
_CLOSE_TO_THE_EDGE, _MOST_OUTRUN = 1.5, 1.5
# Halves of the data may differ in top curvature by this factor, and the gradient variance may have this error.
_MOST_APART, _MOST_VARIANCE_ERROR = 1.3, 0.2
# A target counts as met within this factor: losses may have been measured on other examples. What is measured at more
# than the other factor from the target is not of it.
_NEARLY, _FAR = 1.15, 2.0
# What helps a run that is too fast.
SMALLER_RATE = "use a smaller learning rate"
# A plateau of fewer steps than this is made of a few large ones, which no quadratic describes.
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
    sharpness = _sharpness(reference, top)
    if sharpness > _MOST_SHARPNESS:
        yield (
            f"learning rate times top curvature is {sharpness:.2f}, above {_MOST_SHARPNESS}, the edge of stability: "
            f"{SMALLER_RATE}"
        )
    yield from _doubts(last)


def first_model(reference: Reference, numbers: Measured) -> Model:
    """The model of the numbers as they were measured, which begins where the run has left the edge of stability."""
    delay = numbers.steps_at_the_edge(2 * (1 + reference.momentum) / reference.learning_rate)
    return fit_model(reference, numbers.top, numbers.variance, numbers.loss, delay)


def reasons_in_the_fit(reference: Reference, model: Model) -> Iterator[str]:
    """Whether the model contradicts how the reference was chosen: with the fastest rate, or nearly."""
    sharpness = _sharpness(reference, model.top)
    if sharpness <= _CLOSE_TO_THE_EDGE:
        return
    best = _fewer_steps(reference, model)
    if best is not None:
        yield (
            f"learning rate times top curvature is {sharpness:.2f}, close to the edge of stability, and the model that "
            f"follows the run says that another rate would take {best:,} steps in place of "
            f"{reference.steps[-1]:,}: it takes jumps for noise; {SMALLER_RATE}"
        )


def notes_on_the_fit(reference: Reference, model: Model) -> Iterator[str]:
    """Whether the run was slower than it need have been, away from the edge of stability."""
    best = None if _sharpness(reference, model.top) > _CLOSE_TO_THE_EDGE else _fewer_steps(reference, model)
    if best is not None:
        yield (
            f"the run's learning rate was timid: by its own model another one takes {best:,} steps where it took "
            f"{reference.steps[-1]:,}; after a timid run critical batch sizes come out too small, by 2 on digits after "
            "one at a seventh of the best rate"
        )


def _fewer_steps(reference: Reference, model: Model) -> int | None:
    """What another rate would take by the model, where that is much less than the run took."""
    family, momentum = ("momentum", reference.momentum) if reference.momentum else ("sgd", None)
    best = tune(model.problem(), family, reference.batch_size, reference.target, momentum=momentum).steps
    much = best is not None and reference.steps[-1] > _MOST_OUTRUN * (best + model.delay)
    return best + model.delay if best is not None and much else None


def is_too_fast(reference: Reference, measurement: Measurement, numbers: Measured) -> bool:
    """Whether a smaller learning rate would tell more."""
    if _sharpness(reference, numbers.top) > _MOST_SHARPNESS:
        return True
    if any(reasons_against(reference, measurement, numbers.top)):
        return False  # for other reasons, which a smaller rate does not mend
    return any(reasons_in_the_fit(reference, first_model(reference, numbers)))


def _sharpness(reference: Reference, top: float) -> float:
    """Learning rate times top curvature, where 2 is the edge of stability."""
    return reference.learning_rate * top / (1 + reference.momentum)


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
