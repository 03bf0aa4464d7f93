"""When a run met its target: rungs tell between which two steps, and snapshots of the weights in between where.

At rungs the weights are measured against the target: the model's own at steps that grow by a tenth, averages, which
jitter less, at wide rungs, which grow by a half. Between rungs the weights are kept on a grid of 3%; once a rung meets
the target, bisection finds the first point of the grid that does, as far as the metric rises all the way. "Met" is
always what the whole set says.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from torch import Tensor

from batchlens._grid import PLAIN
from batchlens.training._evaluation import Evaluation
from batchlens.training._targets import Target

# What snapshots of all weights may take, in bytes, but for the two that a bisection needs at least; and how many there
# are from one wide rung to the next at most.
SNAPSHOT_BYTES = 500_000_000
MOST_SNAPSHOTS = 24


class Crossing(NamedTuple):
    """The step that met a target, and where between it and the one before the metric would have met it exactly."""

    steps: int
    interpolated: float


class Snapshot(NamedTuple):
    """The weights after a number of steps: the model's own as "plain", its averages by their names."""

    step: int
    weights: Mapping[str, Sequence[Tensor]]


# Measures weights against a target; without the target, on the whole set.
Measure = Callable[[Target, Sequence[Tensor], str, int, bool], Evaluation]


@dataclass
class Pursuit:
    """A target that one of several weights is to meet, and by whom and when it was met."""

    target: Target
    names: list[str]
    confirm: bool = False
    found: Crossing | None = None
    by: str = ""
    since: int = -1  # the step of the last look

    @property
    def wide(self) -> bool:
        """Whether it looks at wide rungs only."""
        return PLAIN not in self.names

    def look(self, points: Sequence[Snapshot], measure: "Measurements") -> None:
        """Whether the last of the points meets the target; if so, which is the first that does, and whose weights.

        At most one of several weights is found: the one that arrives first.
        """
        points = [point for point in points if point.step >= self.since and point.weights.keys() >= set(self.names)]
        self.since = points[-1].step
        alive = list(self.names)
        low, high, by = -1 if len(points) == 1 else 0, len(points) - 1, None
        while (middle := high if by is None else (low + high) // 2) > low:
            hit = next((name for name in alive if self._meets(name, middle, points, measure)), None)
            if hit is None and by is None:
                return
            if hit is None:
                low = middle
            else:
                high, by = middle, hit
                alive = alive[alive.index(hit) :]  # those before have missed it there
        assert by is not None
        first = high - 1 if self.confirm and high else high
        self.found, self.by = self._crossing(points, first, by, measure), by

    def _meets(self, name: str, index: int, points: Sequence[Snapshot], measure: "Measurements") -> bool:
        """At a point, and where that is asked for at the one before too."""
        if self.confirm and (index == 0 or not measure.meets(self.target, name, points[index - 1])):
            return False
        return measure.meets(self.target, name, points[index])

    def _crossing(self, points: Sequence[Snapshot], index: int, name: str, measure: "Measurements") -> Crossing:
        step = points[index].step
        if index == 0:
            return Crossing(step, float(step))
        before, after = (measure.value(self.target, name, points[place]) for place in (index - 1, index))
        part = 1.0 if before == after else (self.target.value - before) / (after - before)
        earlier = points[index - 1].step
        return Crossing(step, earlier + (step - earlier) * min(max(part, 0.0), 1.0))

    def state_dict(self) -> dict[str, Any]:
        """What has been found."""
        return {"found": None if self.found is None else list(self.found), "by": self.by, "since": self.since}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on where another one was."""
        self.found = None if state["found"] is None else Crossing(*state["found"])
        self.by, self.since = state["by"], state["since"]


class Measurements:
    """What has been measured of the points between two rungs, each weights and target once."""

    def __init__(self, measure: Measure, meets: Callable[[Target, float], bool], lazy: bool) -> None:
        self._measure, self._judge, self._lazy = measure, meets, lazy
        self._known: dict[tuple[str, str, int], Evaluation] = {}

    def meets(self, target: Target, name: str, point: Snapshot) -> bool:
        """Whether weights meet a target, on the whole set."""
        known = self._known.get((target.on, name, point.step))
        if known is None or not (known.exact or not self._judge(target, known.metric)):
            known = self._read(target, name, point, not self._lazy)
        return known.exact and self._judge(target, known.metric)

    def value(self, target: Target, name: str, point: Snapshot) -> float:
        """The metric of weights on the whole set."""
        known = self._known.get((target.on, name, point.step))
        return (known if known is not None and known.exact else self._read(target, name, point, True)).metric

    def _read(self, target: Target, name: str, point: Snapshot, whole: bool) -> Evaluation:
        found = self._measure(target, point.weights[name], name, point.step, whole)
        self._known[target.on, name, point.step] = found
        return found

    def forget_before(self, step: int) -> None:
        """What later looks do not come back to."""
        self._known = {key: found for key, found in self._known.items() if key[2] >= step}

    def state_dict(self) -> list[Any]:
        """What `load_state_dict` takes."""
        return [(*key, found.metric, found.relation) for key, found in self._known.items()]

    def load_state_dict(self, state: Sequence[Any]) -> None:
        """Goes on where another one was."""
        self._known = {
            (on, name, step): Evaluation(step, metric, relation) for on, name, step, metric, relation in state
        }
