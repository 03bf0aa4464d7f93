"""How each optimizer is read off the quadratic, and by how much such readings were wrong where the truth is known.

Chosen on digits and MNIST (docs/prediction.md has the losers too).  Errors are root mean squares of logarithms over
references, prediction over truth, of the workload with the larger ones, rounded up; intervals are never narrower than
they make them.  Nesterov has no truth of its own, and K-FAC's critical batch size on MNIST is a bound only: they are
wider than was found.
"""

from collections.abc import Sequence
from typing import NamedTuple

from batchlens._checks import require_choice, require_sequence, require_whole

# The workloads that model and readings were chosen on: how far off they are there says little of others.
CHOSEN_ON = ("digits", "simple_cnn_mnist")


class Reading(NamedTuple):
    """A family of the theory at a power of preconditioning."""

    family: str
    power: float
    steps_error: float
    critical_error: float
    has_rates: bool  # whether the optimizer's learning rate has the theory's units
    noise: float = 1.0  # times the gradient variance that SGD has at the target
    delayed: bool = True  # whether the steps that the run spent at the edge of stability come before its own


READINGS = {
    "sgd": Reading("sgd", 0.0, 0.21, 0.41, True),
    "momentum": Reading("momentum", 0.0, 0.19, 0.33, True),
    "nesterov": Reading("nesterov", 0.0, 0.30, 0.45, True),
    "sgd+ema": Reading("sgd+ema", 0.0, 0.22, 0.58, True),
    "momentum+ema": Reading("momentum+ema", 0.0, 0.28, 0.68, True),
    "adam": Reading("momentum", 0.0, 0.42, 0.30, False),
    "kfac": Reading("momentum", 0.6, 0.25, 0.40, False, noise=0.6, delayed=False),
}
# What is predicted unless asked otherwise.
OPTIMIZERS = ("sgd", "momentum", "nesterov", "sgd+ema")
BATCH_SIZES = tuple(2**k for k in range(3, 13))
# Examples that are measured on. With 384 both numbers were 35 to 55% too high on MNIST; with 1,536 its top curvature
# had an error of 10%, and halves of them often disagreed.
EXAMPLES = 3072


def require_asked(optimizers: Sequence[str], batch_sizes: Sequence[int]) -> tuple[list[str], list[int]]:
    """Which curves are wanted, and at which batch sizes."""
    names = [require_choice("optimizers", name, list(READINGS)) for name in require_sequence("optimizers", optimizers)]
    sizes = [require_whole("batch_sizes", size, 1) for size in require_sequence("batch_sizes", batch_sizes)]
    return names, sizes
