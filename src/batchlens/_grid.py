"""The steps at which a run looks at its weights, and what the plain ones are called among its averages."""

from collections.abc import Callable

# Below this growth of the step count there is no new point of the grid, no new rung and no new wide one.
GROWTH, RUNG, WIDE_RUNG = 1.03, 1.1, 1.5
PLAIN = "plain"


def next_evaluation(step: int) -> int:
    """The step of the evaluation after the one at `step`: 2 to 3% later, as far as whole steps allow.

    >>> next_evaluation(10), next_evaluation(1000)
    (11, 1030)
    """
    return max(step + 1, int(step * GROWTH))


def next_rung(step: int) -> int:
    """The first point of the grid that is at least a tenth later.

    >>> next_rung(0), next_rung(10), next_rung(1000)
    (1, 11, 1123)
    """
    return _first_beyond(RUNG * step, step, next_evaluation)


def next_wide_rung(step: int) -> int:
    """The first rung that is at least half as much again.

    >>> next_wide_rung(0), next_wide_rung(10), next_wide_rung(1000)
    (1, 15, 1593)
    """
    return _first_beyond(WIDE_RUNG * step, step, next_rung)


def _first_beyond(least: float, step: int, following: Callable[[int], int]) -> int:
    """The first of those that follow a step which is at least `least`."""
    step = following(step)
    while step < least:
        step = following(step)
    return step
