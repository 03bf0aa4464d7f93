"""The looks that a run takes at its weights: when, at which, and what has come of them."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import Tensor, nn

from batchlens._grid import PLAIN, next_evaluation, next_rung, next_wide_rung
from batchlens.training._arguments import Arguments
from batchlens.training._averages import Average, copies_of
from batchlens.training._crossing import (
    MOST_SNAPSHOTS,
    SNAPSHOT_BYTES,
    Crossing,
    Measurements,
    Pursuit,
    Snapshot,
)
from batchlens.training._evaluation import Evaluation, Evaluator
from batchlens.training._targets import Target, metric_on

Show = Callable[[Sequence[Tensor], str], nn.Module]


class Looks:
    """Follows a run: keeps snapshots on the grid, measures at rungs, and finds the crossings of every target."""

    def __init__(
        self, arguments: Arguments, evaluators: Mapping[str, Evaluator], averages: Mapping[str, Average], show: Show
    ) -> None:
        self.arguments, self.evaluators, self._show = arguments, evaluators, show
        self.pursuits = _pursuits(arguments, list(averages))
        self._names = {name for pursuit in self.pursuits for name in pursuit.names}
        counting = [entry for entry in self.pursuits if _counts(entry, arguments)]
        self._deciding = [entry for entry in counting if entry.target == arguments.targets[0]]
        self._wanted = counting if arguments.all_targets else []
        self._counting = {name for pursuit in self._deciding for name in pursuit.names}
        self._point = self._rung = self._wide = self._full = 0  # the next ones
        self._found_on_wide = 0  # how many wide rungs have been looked at since the main target was met
        self._points: list[Snapshot] = []
        self._known = Measurements(self._measure, self._meets, arguments.lazy)
        self._history: dict[int, Evaluation] = {}
        self.latest: Evaluation | None = None
        self.is_nan = False

    @property
    def read(self) -> int:
        """Examples read in all measurements."""
        return sum(evaluator.read for evaluator in self.evaluators.values())

    @property
    def found(self) -> Crossing | None:
        """Of the main target, by the weights that count, the first of them."""
        found = [pursuit.found for pursuit in self._deciding if pursuit.found is not None]
        return min(found, key=lambda crossing: crossing.interpolated, default=None)

    @property
    def done(self) -> bool:
        """Whether the run has met what it is to meet.

        With every average of interest it goes on for another wide rung: one that is only a little slower arrives too.
        """
        if self.arguments.averages == "each" and self.arguments.recipe.averaged and self._found_on_wide < 2:
            return False
        return self.found is not None and all(pursuit.found is not None for pursuit in self._wanted)

    def due(self, step: int) -> bool:
        """Whether it is time for a snapshot, and maybe a look."""
        return step == self._point

    def take(self, step: int, weights: Mapping[str, Sequence[Tensor]]) -> bool:
        """A snapshot, at a rung also a look; whether the rung was a wide one."""
        wide = step == self._wide
        # Where memory is short, rungs off the coarser grid keep the plain weights only.
        names = self._names if wide or step >= self._full else self._names & {PLAIN}
        self._points.append(Snapshot(step, {name: copies_of(weights[name]) for name in names}))
        if names == self._names:
            self._full = self._next_point(step)
        if step == self._rung:
            self._look(wide)
            self._found_on_wide += wide and self.found is not None
            if self.done and not wide:  # the last look of all
                self._look(True)
            self._forget(step)
            self._plan(step, wide)
        self._point = min(self._full, self._rung)
        return wide

    def _look(self, wide: bool) -> None:
        for pursuit in self.pursuits:
            if pursuit.found is None and (wide or not pursuit.wide):
                pursuit.look(self._points, self._known)

    def _forget(self, step: int) -> None:
        """What no look comes back to."""
        since = min((pursuit.since for pursuit in self.pursuits if pursuit.found is None), default=step)
        self._points = [point for point in self._points if point.step >= since]
        self._known.forget_before(since)

    def _plan(self, step: int, wide: bool) -> None:
        lazy, most = self.arguments.lazy, self.arguments.max_steps
        if wide:
            self._wide = min(next_wide_rung(step) if lazy else next_evaluation(step), most)
        self._rung = min(next_rung(step) if lazy else next_evaluation(step), self._wide)

    def _next_point(self, step: int) -> int:
        """On the grid, or where snapshots of all of it would take too much memory, on every few points of it."""
        size = sum(tensor.nbytes for tensors in self._points[-1].weights.values() for tensor in tensors)
        stride = math.ceil(MOST_SNAPSHOTS / max(SNAPSHOT_BYTES // max(size, 1) - 1, 1))
        for _ in range(stride):
            step = next_evaluation(step)
        return step

    def _meets(self, target: Target, value: float) -> bool:
        return metric_on(self.arguments.workload, target.on).meets(value, target.value)

    def _measure(self, target: Target, weights: Sequence[Tensor], name: str, step: int, whole: bool) -> Evaluation:
        main = self.arguments.targets[0]
        whole = whole or (step == self.arguments.max_steps and target == main)
        model = self._show(weights, name)
        found = self.evaluators[target.on].measure(model, step, None if whole else target.value)
        if target.on == main.on and name in self._counting:
            self._note(found)
        return found

    def _note(self, found: Evaluation) -> None:
        """Of several measurements after the same step the best exact one counts, else the last bound."""
        known = self._history.get(found.step)
        better = known is None or not known.exact or (found.exact and self._meets_more(found.metric, known.metric))
        if better and not (known is not None and known.exact and not found.exact):
            self._history[found.step] = found
        self.latest = found
        self.is_nan = math.isnan(found.metric)

    def _meets_more(self, one: float, other: float) -> bool:
        higher = metric_on(self.arguments.workload, self.arguments.target_on).higher_is_better
        return one > other if higher else one < other

    def history(self) -> tuple[Evaluation, ...]:
        """Every evaluation of the weights that count on the main target, by step."""
        return tuple(self._history[step] for step in sorted(self._history))

    def crossings(self) -> dict[str, dict[str, Crossing]]:
        """What was found, by target and by weights."""
        found: dict[str, dict[str, Crossing]] = {}
        for pursuit in self.pursuits:
            if pursuit.found is not None:
                found.setdefault(str(pursuit.target), {})[pursuit.by] = pursuit.found
        return found

    def state_dict(self) -> dict[str, Any]:
        """What `load_state_dict` takes."""
        return {
            "difficulties": {on: evaluator.difficulty for on, evaluator in self.evaluators.items()},
            "read": {on: evaluator.read for on, evaluator in self.evaluators.items()},
            "near": {on: evaluator.near for on, evaluator in self.evaluators.items()},
            "pursuits": [pursuit.state_dict() for pursuit in self.pursuits],
            "point": self._point,
            "rung": self._rung,
            "wide": self._wide,
            "full": self._full,
            "found_on_wide": self._found_on_wide,
            "points": [
                (step, {name: list(found) for name, found in weights.items()}) for step, weights in self._points
            ],
            "known": self._known.state_dict(),
            "history": [(entry.step, entry.metric, entry.relation) for entry in self.history()],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on where another run was."""
        for on, evaluator in self.evaluators.items():
            evaluator.difficulty, evaluator.read = state["difficulties"][on], state["read"][on]
            evaluator.near = state["near"][on]
        for pursuit, saved in zip(self.pursuits, state["pursuits"], strict=True):
            pursuit.load_state_dict(saved)
        self._point, self._rung, self._wide = state["point"], state["rung"], state["wide"]
        self._full, self._found_on_wide = state["full"], state["found_on_wide"]
        device = self.arguments.device
        self._points = [
            Snapshot(step, {name: [tensor.to(device) for tensor in found] for name, found in weights.items()})
            for step, weights in state["points"]
        ]
        self._known.load_state_dict(state["known"])
        self._history = {entry[0]: Evaluation(*entry) for entry in state["history"]}


def _pursuits(arguments: Arguments, averages: list[str]) -> list[Pursuit]:
    """What is to be found: by the plain weights, by the first average to arrive, or by each of them."""
    groups = [[name] for name in averages] if arguments.averages == "each" else [averages][: len(averages)]
    if arguments.averages or not arguments.recipe.averaged:
        groups = [[PLAIN], *groups]
    return [Pursuit(target, list(names), arguments.confirm_target) for target in arguments.targets for names in groups]


def _counts(pursuit: Pursuit, arguments: Arguments) -> bool:
    """Whether it is about the weights that count for the optimizer."""
    return (PLAIN in pursuit.names) != arguments.recipe.averaged
