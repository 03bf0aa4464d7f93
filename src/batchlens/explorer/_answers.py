"""From a question of the page to a document: those of `batchlens steps`, `risk` and `schedule` with `--json`."""

from collections import OrderedDict
from collections.abc import Callable, Mapping
from threading import Lock
from typing import Any

import numpy as np

from batchlens._checks import require_number
from batchlens.explorer._files import Files
from batchlens.explorer._pictures import picture
from batchlens.explorer._questions import Posed, Question, curves_of, number, pose, sizes_of, target_of
from batchlens.scaling.curve import ScalingCurve
from batchlens.theory._curves import refuse_out_of_reach
from batchlens.theory._nearby import tune_nearby
from batchlens.theory._showing import settings_of
from batchlens.theory.dynamics import risk_terms
from batchlens.theory.rule import UpdateRule
from batchlens.theory.schedules import Schedule, optimal_schedule
from batchlens.theory.tuning import scaling_curve, tune

# Curves and schedules that are remembered.
_MOST_REMEMBERED = 500

Check = Callable[[], None]
# What is known of one curve, by batch size: the best rule, and the steps that it took.
Known = Mapping[float, tuple[UpdateRule, int]]


class Answers:
    """Answers questions; `check` is called again and again, and raises where nobody waits any more.

    A training is shown at `moments` step counts, up to twice those to the target, in `bands` of curvature.
    """

    def __init__(self, files: Files, moments: int = 56, bands: int = 128) -> None:
        self.files = files
        self._moments, self._bands = moments, bands
        self._remembered: OrderedDict[Any, Any] = OrderedDict()
        self._lock = Lock()

    def steps(self, question: Question, check: Check) -> dict[str, Any]:
        """What `batchlens steps --json` prints. With "near", curves known of a like question, about that, at once."""
        posed, target = pose(question, self.files), target_of(question)
        sizes, asked = sizes_of(question), curves_of(question)
        near = _read_near(question.get("near"))
        curves = []
        for name, power in asked:
            if near and posed.problem.initial_risk > target:
                curves.append(_follow(posed, name, power, sizes, target, near.get((name, power), {}), check))
            else:
                curves.append(self._curve(posed, name, power, sizes, target, check))
        refuse_out_of_reach(curves, target)
        return {
            "curves": [curve.as_document() for curve in curves],
            "problem": posed.problem.as_document(),
            "exact": not near,
        }

    def _curve(
        self, posed: Posed, name: str, power: float, sizes: list[float], target: float, check: Check
    ) -> ScalingCurve:
        def compute() -> ScalingCurve:
            return scaling_curve(posed.problem, name, sizes, target, power, progress=lambda *_: check())

        found: ScalingCurve = self._remember(("steps", posed.key, name, power, tuple(sizes), target), compute)
        return found

    def schedule(self, question: Question, check: Check) -> dict[str, Any]:
        """What `batchlens schedule --json` prints."""
        posed, target = pose(question, self.files), target_of(question)
        batch_size, power = number(question, "batch_size"), number(question, "power")

        def compute() -> Schedule:
            return optimal_schedule(posed.problem, batch_size, target, power=power, progress=lambda *_: check())

        found: Schedule = self._remember(("schedule", posed.key, batch_size, power, target), compute)
        return found.as_document()

    def risk(self, question: Question, check: Check) -> dict[str, Any]:
        """What `batchlens risk --json` prints, up to twice the steps given, and where in the spectrum the risk is."""
        posed, batch_size = pose(question, self.files), number(question, "batch_size")
        steps = int(require_number("steps", number(question, "steps"), 1, 10**13))
        name = str(question.get("optimizer"))
        settings = (number(question, setting) for setting in ("learning_rate", "momentum", "averaging", "power"))
        rule = _rule(name, *settings)
        check()
        even = np.geomspace(1, 2 * steps, self._moments - 1).round().astype(np.int64)
        moments = np.union1d(even, steps)  # the one at which the target is reached among them
        document = risk_terms(posed.problem, rule, batch_size, moments).as_document()
        return document | {"spectrum": picture(posed.problem, rule, batch_size, moments, self._bands)}

    def file(self, question: Question, _: Check) -> dict[str, Any]:
        """The file of a digest that the page's address names."""
        return self.files.find(str(question.get("file"))).as_document()

    def _remember(self, key: Any, compute: Callable[[], Any]) -> Any:
        with self._lock:
            if key in self._remembered:
                self._remembered.move_to_end(key)
                return self._remembered[key]
        found = compute()
        with self._lock:
            self._remembered[key] = found
            while len(self._remembered) > _MOST_REMEMBERED:
                self._remembered.popitem(last=False)
        return found


def warm_up() -> None:
    """Asks everything once, of a small problem, so that every kernel behind an answer is compiled."""
    answers = Answers(Files())
    question = {"problem": {"dim": 2, "exponent": 1, "bins": 0, "rounding": "down"}, "target": 0.5,
                "optimizer": "sgd,momentum", "power": 0, "batch_sizes": 64, "batch_size": 64}  # fmt: skip
    curves = answers.steps(question, go_on)["curves"]
    answers.steps(question | {"near": curves}, go_on)
    answers.risk(question | curves[0]["points"][0] | {"optimizer": "sgd"}, go_on)
    answers.schedule(question, go_on)


def go_on() -> None:
    """The check of a question that nothing newer can follow."""


def _follow(
    posed: Posed, name: str, power: float, sizes: list[float], target: float, known: Known, check: Check
) -> ScalingCurve:
    """About the curve, from one like it; what is not known there is tuned."""
    found: list[tuple[int | None, dict[str, Any], str]] = []
    for size in sizes:
        check()
        rule, steps = known.get(size, (None, 0))
        nearby = rule and steps and tune_nearby(posed.problem, name, size, target, power, rule, steps)
        if nearby:
            found.append((nearby[0], settings_of(nearby[1]), "reached"))
        else:
            best = tune(posed.problem, name, size, target, power)
            found.append((best.steps, {} if best.rule is None else settings_of(best.rule), best.status))
    steps_found, settings, statuses = zip(*found, strict=True)
    return ScalingCurve(sizes, steps_found, settings, name, power, target, statuses)


def _read_near(given: Any) -> dict[tuple[str, float], Known]:
    """Curves of an earlier answer, as rules and steps."""
    if given is None:
        return {}
    try:
        return {
            (curve["optimizer"], float(curve["power"])): {
                float(point["batch_size"]): (
                    _rule(curve["optimizer"], *(float(point[name]) for name in ("learning_rate", "momentum",
                                                                                 "averaging"))),
                    int(point["steps"]),
                )
                for point in curve["points"]
                if point["steps"] and point["learning_rate"]
            }
            for curve in given
        }  # fmt: skip
    except (KeyError, TypeError, ValueError, OverflowError):
        raise ValueError("`near` must be the curves of an earlier answer, got something else.") from None


def _rule(optimizer: str, learning_rate: float, momentum: float, averaging: float, power: float = 0.0) -> UpdateRule:
    return UpdateRule(learning_rate, momentum, optimizer == "nesterov", averaging, power)
