"""The first hit on a problem of any size.

A small problem's maps are all kept (`_kernels.hitting.first_hit`).  Those of a large one would fill gigabytes; it is
searched in passes over its coordinates, each of which looks at many stretches of steps (`look_along`).
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from batchlens._arrays import FloatArray
from batchlens.theory._kernels.hitting import BEYOND, MARGIN, NEVER, REACHED, UNDECIDED, first_hit, look_along
from batchlens.theory.rule import UpdateRule

# Problems of up to this number of coordinates are searched at once.
AT_ONCE = 20_000
# Coordinate-steps that one search may look at one by one: some seconds.
_BUDGET = 2 * 10**9
# A pass looks at this power of 2 of stretches; a search may take this number of passes.
_BRANCHES = 3
_PASSES = 256

Ending = tuple[int, int]


def find_first_hit(
    coordinates: tuple[FloatArray, FloatArray, FloatArray, FloatArray], rule: UpdateRule, target: float, max_steps: int
) -> Ending:
    """First step whose risk is at or below the target, and how the search ended.

    `coordinates`: rates, what rounding took from them, weights of start and of noise.
    """
    flags = rule.momentum, rule.nesterov, rule.averaging
    if coordinates[0].size <= AT_ONCE:
        return first_hit(*coordinates, *flags, target, max_steps, _BUDGET)
    passes = _Passes(partial(look_along, *coordinates, *flags), target, max_steps)
    level = 0
    while True:
        begin = 0 if level == 0 else 1 << level
        ending = passes.search(begin, level)
        if ending is not None:
            return ending
        level += _BRANCHES


@dataclass
class _Passes:
    """A search in passes.

    look: `look_along` of the problem and rule.  count: passes so far.
    """

    look: Callable[[int, int, int], tuple[FloatArray, FloatArray, FloatArray]]
    target: float
    max_steps: int
    count: int = 0

    def search(self, begin: int, level: int) -> Ending | None:
        """The ending within 2^_BRANCHES stretches of 2^level steps, if there is one; stretches that may hold it are
        searched in their turn."""
        if self.count == _PASSES:
            return 0, UNDECIDED
        self.count += 1
        left_over = max(-(-(self.max_steps - begin) >> level), 0) + 1
        stretches = min(1 << _BRANCHES, left_over)
        left, noise, bounds = self.look(begin, level, stretches)
        for j in range(stretches + 1):
            at = begin + (j << level)
            if at > self.max_steps:
                return 0, BEYOND
            if left[j] + noise[j] <= self.target:
                return at, REACHED
            if noise[j] > self.target:
                return 0, NEVER
            if level > 0 and j < stretches and noise[j] + bounds[j] <= self.target * MARGIN:
                ending = self.search(at, level - _BRANCHES)
                if ending is not None:
                    return ending
        return None
