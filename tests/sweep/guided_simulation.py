"""Guided sweeps whose runs are made up: when a run arrives follows from its settings and its seed, by a formula."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from random import Random
from typing import Any

from batchlens._grid import PLAIN, next_wide_rung
from batchlens.optimizers import base_of, is_averaged
from batchlens.sweep._declaration import Declaration
from batchlens.sweep._guided import Guided
from batchlens.sweep._guided_queue import GuidedQueue
from batchlens.sweep._trial import Key, Task, Trial
from batchlens.training._averages import LADDER, settings_named
from batchlens.training.spaces import Range

BUDGET = 3000
RATE, MOMENTUM = Range(1e-3, 10.0, "log"), Range(0.1, 0.99, "log_one_minus")
FAMILY = ("sgd", "sgd+ema", "momentum")


def make_declaration(
    optimizers: tuple[str, ...] = FAMILY, sizes: tuple[int, ...] = (8, 64), trials: int = 20, **changes: Any
) -> Declaration:
    spaces = {name: {setting: _tuple(range_) for setting, range_ in space_of(name).items()} for name in optimizers}
    usual: dict[str, Any] = {
        "workload": "digits", "size": "laptop", "seed": 0, "target": 0.1, "target_on": "train-loss", "keep": 5,
        "max_steps": (BUDGET,) * len(sizes), "search": "guided", "seeds": 3,
    }  # fmt: skip
    return Declaration(optimizers=optimizers, batch_sizes=sizes, trials=trials, spaces=spaces, **usual | changes)


def space_of(optimizer: str) -> dict[str, Range]:
    inner = {"sgd", "adam_no_momentum"}
    memory = {} if base_of(optimizer) in inner else {"beta1" if "adam" in optimizer else "momentum": MOMENTUM}
    return {"learning_rate": RATE, **memory}


def _tuple(range_: Range) -> tuple[float, float, str]:
    return range_.low, range_.high, range_.scale


def make_queue(declaration: Declaration, trials: Iterable[Trial] = (), **arguments: Any) -> GuidedQueue:
    spaces = {cell: space_of(cell.optimizer) for cell in declaration.cells}
    reach = {
        cell: {
            name: (-math.inf, math.inf) if name == "learning_rate" else (range_.fraction(0.0), math.inf)
            for name, range_ in space.items()
        }
        for cell, space in spaces.items()
    }
    return GuidedQueue(declaration, trials, spaces, reach, **arguments)


def steps_of(key: Key, settings: dict[str, float], seed: int, noise: float = 0.1) -> float:
    """Steps of the plain weights: a bowl about the best rate of a batch size, with noise; infinite far above it."""
    momentum = settings.get("momentum", settings.get("beta1", 0.0))
    rate = settings["learning_rate"] / (1 - momentum)
    best = 2.0 * key.batch_size / (key.batch_size + 60)
    if rate > 12 * best:
        return math.inf
    away = math.log(rate / best) / math.log(3)
    memory = 0.15 * (math.log(1 - momentum) - math.log(0.4)) ** 2
    luck = Random(f"{key.cell} {sorted(settings.items())} {seed}").gauss(0, noise)
    return 25 * (1 + 40 / key.batch_size) * math.exp(0.4 * away**2 + memory + luck)


@dataclass
class World:
    """Runs trials up to where they end, are pruned or wait; `reached` is how far checkpoints of those that wait go."""

    steps: Callable[[Key, dict[str, float], int], float] = steps_of
    fails: Callable[[Key], bool] = lambda key: False
    reached: dict[Key, int] = field(default_factory=dict)
    taken: int = 0

    def run(self, task: Task, target: str) -> dict[str, Any]:
        """What a worker would answer."""
        searched = {name: value for name, value in task.settings.items() if name not in ("averaging", "window")}
        plain = self.steps(task.key, searched, task.seed)
        each = {str(entry): plain * (0.8 + 0.1 * place) for place, entry in enumerate(LADDER)}
        names = {"best": [min(each, key=each.__getitem__)], "each": list(each), "": []}[task.averages]
        exact = {PLAIN: plain, **{name: each[name] for name in names}}
        own = names if is_averaged(task.key.optimizer) and names else [PLAIN]
        if not names:  # an average alone, as settings ask for it
            alone = [each[name] for name in each if settings_named(name).items() <= task.settings.items()]
            exact[PLAIN] = alone[0] if alone else plain
        begun = step = self.reached.get(task.key, 0)
        if all(exact[name] <= step for name in own):  # no such run goes that far
            begun = step = 0
        while True:
            step = min(next_wide_rung(step), task.max_steps)
            met = {name: (math.ceil(when), when) for name, when in exact.items() if when <= step}
            if all(name in met for name in own):
                status = "reached"
            elif math.isinf(plain):
                status = "diverged"
            elif step == task.max_steps:
                status = "not_reached"
            elif task.limit is not None and step > task.limit:
                status = "pruned"
            elif task.pause is not None and step >= task.pause:
                status = "paused"
            else:
                continue
            break
        self.reached[task.key] = step
        self.taken += step - begun
        first = min((met[name][1] for name in own if name in met), default=None)
        return {
            "paused": status == "paused",
            "status": "pruned" if status == "paused" else status,
            "steps": math.ceil(first) if status == "reached" and first is not None else None,
            "interpolated": first if status == "reached" else None,
            "crossings": {target: met} if met else {},
            "steps_taken": step,
            "metric": None,
            "seconds": 0.0,
            "host": "",
            "versions": {},
            "reason": "",
            "history": [],
        }


def drive(
    queue: GuidedQueue, world: World, workers: int = 1, seed: int = 0, most: float = math.inf, events: float = math.inf
) -> list[Trial]:
    """As `_filling` does it, with workers at random speeds; until `most` trials are kept or `events` have happened."""
    random, kept = Random(seed), list(queue.ended.values())
    happened = 0
    while (queue.running or queue.open_count) and len(kept) < most and happened < events:
        while len(queue.running) < workers and queue.take() is not None:
            pass
        key = random.choice(sorted(queue.running))
        task = queue.running[key]
        happened += 1
        if world.fails(key):
            ended = [Trial.failed(task, "lost", "")]
        else:
            answer = world.run(task, queue.declaration.main_target)
            if answer["paused"]:
                queue.pause(key, answer)
                ended = []
            else:
                ended = [Trial.of(task, answer)]
        for trial in ended:
            queue.end(trial)
        cut = queue.cut()
        for trial in cut:
            queue.end(trial)
        kept += ended + cut
    return kept


def finish(declaration: Declaration, world: World | None = None, **arguments: Any) -> list[Trial]:
    """All trials of a sweep that nobody disturbs."""
    driving = {name: arguments.pop(name) for name in ("workers", "seed") if name in arguments}
    return drive(make_queue(declaration, **arguments), world or World(), **driving)


def found(declaration: Declaration, trials: Iterable[Trial]) -> dict[object, object]:
    """Everything that must not depend on how a sweep was run: points, what counts of runs, choices and reports."""
    guided = Guided(declaration, trials)
    rounds = len(guided.rounds(declaration.optimizers[0]))
    said: dict[object, object] = {key: (trial.position, trial.seed) for key, trial in sorted(guided.trials.items())}
    for cell in declaration.cells:
        seen = [(outcome.trial.key, outcome.steps, outcome.censored) for outcome in guided.outcomes(cell, rounds)]
        reports = [(trial.key, trial.steps) for trial in guided.reports(cell)]
        said[cell] = seen, guided.chosen(cell), reports, guided.complete(cell)
    return said
