"""What is known of a run from its log: curves of metrics, and what the run was."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import NamedTuple

import numpy as np

from batchlens._arrays import FloatArray
from batchlens.errors import BatchlensError

# Names of the optimizer's steps, the surest first: `_step` of Weights & Biases counts calls of `wandb.log`.
LIGHTNING_STEP = "trainer/global_step"
STEP_NAMES = (LIGHTNING_STEP, "train/global_step", "global_step", "step", "_step")
_SEPARATORS = str.maketrans("/. -", "____")

Setting = str | float | bool
Point = tuple[float, float, float]  # step, value, seconds (nan: not known)


class Curve(NamedTuple):
    """A metric, record by record in the order of steps; nan in `seconds` where they are not known."""

    steps: FloatArray
    values: FloatArray
    seconds: FloatArray


@dataclass(frozen=True)
class Log:
    """One run.

    Arguments:
        name: where it was read, as messages name it; searched by `batch_size_from`.
        metrics: what it logged.
        read: the curve of one of them.
        batch_size: examples a step, over all processes and micro-batches; None where the log does not say.
        optimizer: its name; empty where the log does not say.
        settings: learning rate and the like, the seed among them.
        caution: what to know where the log's own batch size is used.
    """

    name: str
    metrics: tuple[str, ...]
    read: Callable[[str], Curve]
    batch_size: float | None = None
    optimizer: str = ""
    settings: Mapping[str, Setting] = field(default_factory=dict)
    caution: str = ""

    def curve(self, metric: str) -> Curve:
        """The curve of the metric, which other loggers may spell "eval/loss" or "eval_loss"."""
        return self.read(metric if metric in self.metrics else self._other_spelling(metric))

    def _other_spelling(self, metric: str) -> str:
        same = [name for name in self.metrics if _plain(name) == _plain(metric)]
        if len(same) == 1:
            return same[0]
        if not self.metrics:
            raise BatchlensError(f"{self.name} holds no record: the run ended before its first. Leave it out.")
        near = get_close_matches(metric, self.metrics, n=3)
        hint = f" Did you mean {' or '.join(near)}?" if near else ""
        raise BatchlensError(f"{self.name} has no metric {metric}, only {', '.join(self.metrics)}.{hint}")


def make_curve(points: Iterable[Point]) -> Curve:
    """The curve of points in any order."""
    table = np.array(sorted(points, key=lambda point: point[0]), dtype=np.float64).reshape(-1, 3)
    return Curve(table[:, 0], table[:, 1], table[:, 2])


def _plain(name: str) -> str:
    return name.lower().translate(_SEPARATORS)
