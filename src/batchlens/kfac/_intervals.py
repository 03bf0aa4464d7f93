"""When factors and inverses are renewed.

Curvature changes fastest at the start of a run: what was measured at step 0 is of no use at step 10. So the first steps
renew more often than asked for: every step up to step 4, every second up to 10, every fifth up to 30.
"""

_FREQUENT = ((4, 1), (10, 2), (30, 5))


def is_due(step: int, every: int, frequent_start: bool) -> bool:
    """Whether `step` renews what is renewed every `every` steps.

    >>> [step for step in range(60) if is_due(step, 20, frequent_start=True)]
    [0, 1, 2, 3, 4, 6, 8, 10, 15, 20, 25, 30, 40]
    >>> [step for step in range(60) if is_due(step, 20, frequent_start=False)]
    [0, 20, 40]
    """
    if frequent_start:
        every = next((min(often, every) for last, often in _FREQUENT if step <= last), every)
    return step % every == 0
