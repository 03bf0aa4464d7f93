"""How each optimizer is read off the quadratic, and by how much such readings were wrong where the truth is known.

Chosen on digits against densely tuned truth (docs/prediction.md has the losers too).  Errors are root mean squares of
logarithms over references, prediction over truth, rounded up; intervals are never narrower than they make them.
Those of nesterov and momentum+ema have no truth of their own: they are wider than their neighbours'.
"""

from typing import NamedTuple


class Reading(NamedTuple):
    """A family of the theory at a power of preconditioning, with or without the early curvature."""

    family: str
    power: float
    early: bool
    steps_error: float
    critical_error: float
    has_rates: bool  # whether the optimizer's learning rate has the theory's units
    noise: float = 1.0  # times the gradient variance at the target


# Averaged weights arrive while the plain ones are still at a higher loss, where gradients vary more.
_ABOVE_THE_TARGET = 1.4

READINGS = {
    "sgd": Reading("sgd", 0.0, False, 0.22, 0.30, True),
    "momentum": Reading("momentum", 0.0, True, 0.25, 0.30, True),
    "nesterov": Reading("nesterov", 0.0, True, 0.35, 0.50, True),
    "sgd+ema": Reading("sgd+ema", 0.0, False, 0.30, 0.80, True, _ABOVE_THE_TARGET),
    "momentum+ema": Reading("momentum+ema", 0.0, True, 0.35, 0.50, True, _ABOVE_THE_TARGET),
    "adam": Reading("momentum", 0.0, True, 0.35, 0.40, False),
    "kfac": Reading("momentum", 0.5, False, 0.35, 0.50, False),
}
# What is predicted unless asked otherwise.
OPTIMIZERS = ("sgd", "momentum", "nesterov", "sgd+ema")
BATCH_SIZES = tuple(2**k for k in range(3, 13))
# Examples that are measured on. With 384 both numbers were 35 to 55% too high on MNIST; with 1,536 its top curvature
# had an error of 10%, and halves of them often disagreed.
EXAMPLES = 3072
