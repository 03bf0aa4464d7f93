"""Checks of arguments that several questions share."""

import numpy as np

from batchlens._arrays import IntArray
from batchlens._checks import require_number, require_whole
from batchlens.theory.problem import NoisyQuadratic

# Where searches give up.
MAX_STEPS = 10**12


def require_batch_size(batch_size: object) -> float:
    """A batch size: any number above 0."""
    return require_number("batch_size", batch_size, low=0, closed=(False, True))


def require_steps(steps: object, name: str = "steps") -> IntArray:
    """Step counts: whole numbers from 0 on, one or a sequence of them."""
    try:
        dimensions = np.ndim(steps)  # type: ignore[arg-type]
    except ValueError:  # ragged
        dimensions = 2
    if dimensions == 0:
        return np.asarray(require_whole(name, steps), dtype=np.int64)
    if dimensions > 1:
        raise ValueError(f"`{name}` must be one number or a flat sequence of them, got {steps!r}.")
    entries = list(steps)  # type: ignore[call-overload]
    if not entries:
        raise ValueError(f"`{name}` must have at least one entry, got none.")
    return np.array([require_whole(name, entry) for entry in entries], dtype=np.int64)


def require_constant_noise(problem: NoisyQuadratic) -> None:
    """Refuses a problem that has to be followed step by step, where that is not done."""
    if problem.noise_follows_loss:
        raise ValueError(
            "`problem` must have noise that does not follow the loss here, got a `noise_growth`; `risk`, "
            "`steps_to_target`, `tune` and `scaling_curve` take it."
        )
