"""One trial: what is to be run, and how it ended."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from batchlens.sweep._declaration import Cell

# Steps and interpolated steps, by target and by weights: "plain", or an average's name.
Crossings = Mapping[str, Mapping[str, tuple[int, float]]]
Status = Literal["reached", "not_reached", "pruned", "diverged", "failed"]
# A step, the metric there, and its relation; that is "=", or "<=" or ">=" where the metric is a bound.
Entry = tuple[int, float, str]


class Key(NamedTuple):
    """Which trial of a sweep; repeat 0 is the search's, others train it again with other seeds."""

    optimizer: str
    batch_size: int
    number: int
    repeat: int = 0

    @property
    def cell(self) -> Cell:
        """The search that the trial belongs to."""
        return Cell(self.optimizer, self.batch_size)

    def __str__(self) -> str:
        again = f", repeat {self.repeat}" if self.repeat else ""
        return f"trial {self.number} of {self.cell}{again}"


@dataclass(frozen=True)
class Task:
    """A trial to run: its point in units of the declared ranges, the settings there, and its seed.

    `averages` are measured beside it; with `all_targets` it goes on after the main one. At the first wide rung beyond
    `limit` it is pruned, at the first from `pause` on it waits for others.
    """

    key: Key
    position: Mapping[str, float]
    settings: Mapping[str, float]
    seed: int
    max_steps: int
    averages: str = ""
    all_targets: bool = False
    limit: int | None = None
    pause: int | None = None


@dataclass(frozen=True)
class Trial:
    """How a trial ended.

    `steps` is the step that met the target, None where none did, `interpolated` where between it and the one before
    the metric would have met it; `steps_taken` is how far the run went.
    """

    key: Key
    position: Mapping[str, float]
    settings: Mapping[str, float]
    seed: int
    status: Status
    steps: int | None
    steps_taken: int
    metric: float | None = None
    seconds: float = 0.0
    host: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    reason: str = ""
    notes: tuple[str, ...] = ()
    history: tuple[Entry, ...] = ()
    interpolated: float | None = None
    crossings: Crossings = field(default_factory=dict)

    @classmethod
    def of(cls, task: Task, answer: Mapping[str, Any]) -> "Trial":
        """From what a worker answered."""
        return cls(
            key=task.key,
            position=task.position,
            settings=task.settings,
            seed=task.seed,
            history=tuple((int(step), float(metric), str(relation)) for step, metric, relation in answer["history"]),
            notes=tuple(answer.get("notes", ())),
            crossings={
                target: {weights: (int(steps), float(exact)) for weights, (steps, exact) in found.items()}
                for target, found in answer.get("crossings", {}).items()
            },
            interpolated=answer.get("interpolated"),
            **{name: answer[name] for name in ANSWERED},
        )

    @classmethod
    def failed(cls, task: Task, reason: str, host: str) -> "Trial":
        """One that no worker could bring to an end."""
        return cls(task.key, task.position, task.settings, task.seed, "failed", None, 0, host=host, reason=reason)


ANSWERED = ("status", "steps", "steps_taken", "metric", "seconds", "host", "versions", "reason")
