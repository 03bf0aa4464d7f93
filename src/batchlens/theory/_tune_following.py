"""The rule that reaches a target in the fewest steps where the noise follows the loss.

Every run is followed step by step, so that one run tells its steps; a grid over all rules finds the basins, and a
simplex descends from the best of them.  What a rule must beat ends its run early.  Where training takes long, the grid
would too: there the simplex begins at the best rule for noise that stays what it is at the target.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import product

import numpy as np
from scipy.optimize import minimize

from batchlens._arrays import FloatArray
from batchlens.optimizers import base_of, contained_in, is_averaged
from batchlens.theory._following import Follower
from batchlens.theory._kernels.quick import HIGHEST, LOWEST, rule_at
from batchlens.theory.rule import UpdateRule

# Points as in `_kernels.quick`.  The grid: rates as shares of the largest stable one, and 1 - momentum, 1 - averaging.
_SHARES = np.append(np.geomspace(1e-4, 0.6, 24), [0.75, 0.9, 0.97, 0.995])
_SLIPS = np.array([1.0, 0.6, 0.36, 0.22, 0.13, 0.08, 0.04, 0.02, 0.008])
# From how many steps on, of what a family contains, the grid gives way to a guess.
_LONG = 1000
# How far the first round of the grid goes, and by how much more the next where no rule has arrived.
_FIRST_STEPS, _FURTHER = 64, 4
# From how many points of the grid a simplex descends, how wide it begins and when it ends, in log steps.
_STARTS, _WIDTH, _TOLERANCE = 2, 0.25, 1e-4
# How much slower than the best a point of the simplex may be before its run ends.
_SLACK = 1.5
# The height of what does not arrive: finite, so that the simplex can measure itself.
_FAR = 1e3
# A search begins no closer to the stability limit than at 95% of it: the limit is another where the noise feeds itself.
_STABLE = math.log(0.95 / 0.05)


@dataclass
class Search:
    """The best rule so far of a family."""

    follower: Follower
    family: str
    power: float
    target: float
    max_steps: int
    momentum: float | None = None
    guess: Callable[[str], FloatArray | None] = lambda _: None  # a good point of a family
    best: float = math.inf  # steps, with a fraction
    point: FloatArray | None = None
    seen: dict[tuple[float, float, float], float] = field(default_factory=dict)

    @property
    def free(self) -> list[int]:
        """Which dimensions of a point are tuned."""
        momentum = base_of(self.family) != "sgd" and self.momentum is None
        return [0, *([1] if momentum else []), *([2] if is_averaged(self.family) else [])]

    def rule(self, point: FloatArray) -> UpdateRule:
        nesterov = base_of(self.family) == "nesterov"
        rate, momentum, averaging = rule_at(point, self.follower.stiffest, nesterov)
        return UpdateRule(rate, momentum, nesterov, averaging, self.power)

    def try_point(self, point: Sequence[float] | FloatArray, most: float) -> float:
        """Steps with a fraction, inf beyond `most`."""
        at = np.asarray(point, dtype=np.float64)
        steps, place, _ = self.follower.hit(self.rule(at), self.target, math.ceil(min(most, self.max_steps)))
        if steps is not None and place < self.best:
            self.best, self.point = place, at
        return place if steps is not None else math.inf

    def scan(self, most: int) -> None:
        """The grid, as far as `most` steps; the best so far ends the others."""
        for point in self._grid():
            found = self.try_point(point, min(most, _SLACK * self.best))
            if math.isfinite(found):
                self.seen[point] = found

    def descend(self, start: FloatArray) -> None:
        """A simplex in the free dimensions."""
        free = self.free
        start = np.minimum(start, [_STABLE, math.inf, math.inf])

        def height(values: FloatArray) -> float:
            point = start.copy()
            point[free] = values
            if not ((point >= LOWEST) & (point <= HIGHEST)).all():
                return _FAR
            found = self.try_point(point, _SLACK * self.best)
            return math.log(found) if math.isfinite(found) else _FAR

        corners = np.stack([start[free], *(start[free] + _WIDTH * side for side in np.eye(len(free)))])
        minimize(height, start[free], method="Nelder-Mead",
                 options={"initial_simplex": corners, "fatol": _TOLERANCE, "xatol": 1e-2})  # fmt: skip

    def starts(self) -> Iterator[FloatArray]:
        """The best points of the grid."""
        yield from (np.array(point) for point in sorted(self.seen, key=self.seen.__getitem__)[:_STARTS])

    def _grid(self) -> Iterator[tuple[float, float, float]]:
        """The fastest rates first."""
        kept = -math.log1p(-(self.momentum or 0.0))
        momenta = -np.log(_SLIPS) if 1 in self.free else [kept]
        averages = -np.log(_SLIPS) if 2 in self.free else [0.0]
        for share, momentum, averaging in product(_SHARES[::-1], momenta, averages):
            yield float(np.log(share / (1 - share))), float(momentum), float(averaging)


def tune_following(search: Search) -> Search:
    """Fills in the best rule of a family, which is never slower than one that it contains."""
    for family in contained_in(search.family) if search.momentum is None else ():
        inner = tune_following(replace(search, family=family, best=math.inf, point=None, seen={}))
        if inner.best < search.best:
            search.best, search.point = inner.best, inner.point
    guess = search.guess(search.family) if _LONG < search.best < math.inf else None
    if guess is not None and search.point is not None:
        for start in (guess, search.point):
            search.descend(start)
        return search
    most = _FIRST_STEPS if search.point is None else math.ceil(search.best)
    end = min(search.max_steps, search.follower.most_steps)
    search.scan(min(most, end))
    while search.point is None and most < end:
        most *= _FURTHER
        search.scan(min(most, end))
    for start in search.starts():
        search.descend(start)
    return search
