"""What a run leaves behind."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from batchlens.training._evaluation import Evaluation

Status = Literal["reached", "not_reached", "diverged", "failed", "pruned"]


@dataclass(frozen=True)
class Record:
    """One run, from its settings to how it ended.

    `steps` is the first evaluated step that met the target, None where none did; `steps_taken` is how far the run went.
    `last_loss` is the training loss of the last batch. `seconds` counts from the first step on, `evaluation_seconds`
    is the part of it that was not training.
    """

    workload: str
    size: str
    optimizer: str
    settings: Mapping[str, float]
    schedule: str
    batch_size: int
    seed: int
    target: float
    target_on: str
    status: Status
    steps: int | None
    steps_taken: int
    best_metric: float | None
    last_loss: float | None
    history: tuple[Evaluation, ...]
    seconds: float
    evaluation_seconds: float
    examples: int
    max_steps: int
    micro_batch: int
    device: str
    threads: int
    reason: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)

    def as_document(self) -> dict[str, Any]:
        """For JSON: history as [step, metric], and for each entry whether it is exact ("=") or a bound."""
        return {
            **vars(self),
            "settings": dict(self.settings),
            "versions": dict(self.versions),
            "history": [[entry.step, entry.metric] for entry in self.history],
            "relations": [entry.relation for entry in self.history],
        }


def best_exact(history: tuple[Evaluation, ...], higher_is_better: bool) -> float | None:
    """The best metric that was measured on the whole set."""
    exact = [entry.metric for entry in history if entry.exact and not math.isnan(entry.metric)]
    return (max if higher_is_better else min)(exact) if exact else None
