"""The steps at which a run looks at its weights."""

# Below this growth of the step count there is no new point of the grid, no new rung and no new wide one.
GROWTH, RUNG, WIDE_RUNG = 1.03, 1.1, 1.5


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
    after = next_evaluation(step)
    while after < RUNG * step:
        after = next_evaluation(after)
    return after


def next_wide_rung(step: int) -> int:
    """The first rung that is at least half as much again.

    >>> next_wide_rung(0), next_wide_rung(10), next_wide_rung(1000)
    (1, 15, 1593)
    """
    after = next_rung(step)
    while after < WIDE_RUNG * step:
        after = next_rung(after)
    return after
