"""What a run leaves behind."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from batchlens._results import Result, axes_or_new
from batchlens.training._crossing import Crossing
from batchlens.training._evaluation import Evaluation, Status

if TYPE_CHECKING:
    import pandas
    from matplotlib.axes import Axes

__all__ = ["Record"]


@dataclass(frozen=True, repr=False)
class Record(Result):
    """One run, from its settings to how it ended.

    Arguments:
        workload: its name.
        size: "laptop" or "paper".
        optimizer: its name.
        settings: the optimizer's and the schedule's, with those that had their defaults.
        schedule: the shape of the learning rate.
        batch_size: examples of a step, or of the first one.
        seed: what the run is a function of.
        target: of the metric.
        target_on: the "validation" or the "train" set, or "train-loss".
        status: "reached", "not_reached", "diverged", "failed" or "pruned".
        steps: the first step of the 3% grid that met the target, as bisection finds it; None where none did.
        steps_taken: how far the run went.
        best_metric: the best that was measured on the whole set.
        last_loss: the training loss of the last batch.
        history: every evaluation.
        steps_interpolated: where between that step and the one before the metric would have met it exactly.
        crossings: every target that was met, by the plain weights or by an average: steps and interpolated ones.
        examples_read: in evaluations.
        seconds: from the first step on.
        evaluation_seconds: the part of them that was not training.
        examples: how many were seen, repetitions included.
        max_steps: the step budget.
        micro_batch: examples that went through the model at a time.
        device: where it ran.
        threads: of torch on the CPU.
        reason: why it diverged or failed.
        versions: of what the result may depend on.
        batch_schedule: where the batch changes on the way, (step, batch size, learning rate) from that step on.
        notes: what a reader of the result should know, such as which parameters K-FAC does not precondition.

    >>> import batchlens as bl
    >>> bl.train("digits", "momentum", batch_size=64, settings={"learning_rate": 0.1}, max_steps=3)
    <Record: digits, momentum, batch size 64: not reached after 3 steps>
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
    steps_interpolated: float | None = None
    crossings: Mapping[str, Mapping[str, Crossing]] = field(default_factory=dict)
    examples_read: int = 0
    reason: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    batch_schedule: tuple[tuple[int, int, float], ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def batches_in_words(self) -> str:
        """One batch size, or from which to which the schedule goes."""
        if not self.batch_schedule:
            return f"batch size {self.batch_size:,}"
        return f"batch sizes from {self.batch_size:,} to {self.batch_schedule[-1][1]:,}"

    @property
    def headline(self) -> str:
        """How the run ended, in one line."""
        what = f"{self.workload}, {self.optimizer}, {self.batches_in_words}"
        ended = f"reached {self.target:g}" if self.status == "reached" else self.status.replace("_", " ")
        because = f" ({self.reason})" if self.reason else ""
        steps = self.steps_taken if self.steps is None else self.steps
        return f"{what}: {ended} after {steps:,} step{'s' * (steps != 1)}{because}"

    def to_frame(self) -> "pandas.DataFrame":
        """One row per evaluation: step, metric, and whether it is exact ("=") or a bound."""
        import pandas

        rows = [(entry.step, entry.metric, entry.relation) for entry in self.history]
        return pandas.DataFrame(rows, columns=["step", "metric", "relation"])

    def plot(self, ax: "Axes | None" = None) -> "Axes":
        """The metric against steps: exact values as dots, bounds as small ticks, the target as a dashed line."""
        ax = axes_or_new(ax)
        exact = [entry for entry in self.history if entry.exact]
        bounds = [entry for entry in self.history if not entry.exact]
        ax.plot([entry.step for entry in bounds], [entry.metric for entry in bounds], "_", color="0.6", label="bound")
        ax.plot([entry.step for entry in exact], [entry.metric for entry in exact], "o", label="exact")
        ax.axhline(self.target, linestyle="--", linewidth=1.0, color="0.4")
        ax.set_xlabel("steps")
        ax.set_ylabel(f"metric on the {self.target_on} set")
        ax.legend()
        return ax

    def as_document(self) -> dict[str, Any]:
        """For JSON: history as [step, metric], and for each entry whether it is exact ("=") or a bound."""
        return {
            **vars(self),
            "settings": dict(self.settings),
            "versions": dict(self.versions),
            "notes": list(self.notes),
            "batch_schedule": [list(row) for row in self.batch_schedule],
            "crossings": {
                target: {weights: crossing._asdict() for weights, crossing in found.items()}
                for target, found in self.crossings.items()
            },
            "history": [[entry.step, entry.metric] for entry in self.history],
            "relations": [entry.relation for entry in self.history],
        }
