"""A run of a workload that is measured on the way: the training loop stops at a checkpoint, and goes on from it."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from batchlens.curvature._reading import Progress
from batchlens.curvature._top import top_curvature
from batchlens.curvature.measurement import Moment
from batchlens.curvature.measuring import measure
from batchlens.errors import BatchlensError
from batchlens.training import _run
from batchlens.training._arguments import Arguments
from batchlens.training._checkpoint import load_checkpoint
from batchlens.training._sampling import Preparation
from batchlens.training.data.loading import Dataset
from batchlens.training.loop import Interrupted, train


@dataclass(frozen=True)
class How:
    """How a moment is measured; all but the chunk is part of what it is."""

    examples: int
    chunk_size: int
    hessian: bool
    error: float
    density_probes: int

    def declaration(self) -> dict[str, Any]:
        """What two moments must share to be of one measurement."""
        names = ("examples", "hessian", "error", "density_probes")
        return {name: getattr(self, name) for name in names}


class Ended(Exception):
    """A run that ended before the step that was to be measured."""


class MeasuredRun:
    """A run that stops where it is asked to, and is measured there."""

    def __init__(
        self,
        arguments: Arguments,
        how: How,
        data: Dataset,
        data_dir: Path | None,
        checkpoint: Path,
        progress: Progress,
        stop: Callable[[], bool],
    ) -> None:
        self.arguments, self.how, self.data, self.data_dir = arguments, how, data, data_dir
        self.checkpoint, self.progress, self.stop = checkpoint, progress, stop
        self.done = 0, 1  # moments, of how many
        self.losses: dict[int, float] = {}  # as far as the run has come
        self.step = 0

    def moment_after(self, step: int) -> Moment:
        """Everything, after that many steps."""
        how = self.how
        found = measure(
            self._model_after(step),
            self._examples(),
            self.arguments.workload.loss,
            chunk_size=how.chunk_size,
            hessian=how.hessian,
            error=how.error,
            density_probes=how.density_probes,
            step=step,
            seed=self.arguments.seed,
            progress=self._tell,
        )
        return found.moments[0]

    def top_after(self, step: int) -> float:
        """The largest eigenvalue alone."""
        model = self._model_after(step)
        self._tell(0, 1, "top eigenvalue")
        loss, seed = self.arguments.workload.loss, self.arguments.seed
        return top_curvature(model, self._examples(), loss, self.how.chunk_size, seed)

    def _tell(self, done: int, total: int, what: str) -> None:
        """The progress of a measurement as a part of all of them."""
        if self.stop():
            raise Interrupted(self.step, self.checkpoint)
        number, moments = self.done
        self.progress(number * total + done, moments * total, f"step {self.step:,}: {what}")

    def _examples(self) -> tuple[Tensor, Tensor]:
        """Training examples, evenly spaced."""
        whole = self.data.train
        count = min(self.how.examples, len(whole))
        chosen = torch.arange(count) * len(whole) // count
        prepare = Preparation(self.data, self.arguments.device)
        return prepare.inputs(whole.inputs[chosen]), prepare.targets(whole.targets[chosen])

    def _model_after(self, step: int) -> nn.Module:
        """The model after that many steps, in evaluation mode."""
        state = self._state_after(step)
        history = state["looks"]["history"]
        self.losses = {at: loss for at, loss, relation in history if relation == "=" and math.isfinite(loss)}
        with torch.random.fork_rng(devices=[]):
            model = self.arguments.workload.make_model()
        model.load_state_dict(state["model"])
        model.to(self.arguments.device, memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.step = step
        return model.eval()

    def _state_after(self, step: int) -> dict[str, Any]:
        for _ in range(2):
            reached = self._train_until(step)
            if reached == step:
                state = load_checkpoint(self.checkpoint, {})
                assert state is not None
                return state
            self.checkpoint.unlink()  # it is of a later step: once more from the start
        raise AssertionError(f"{self.arguments.workload.name} cannot be stopped after step {step}.")

    def _train_until(self, step: int) -> int:
        """Trains, from the checkpoint on if there is one, and says after which step it stopped."""
        arguments = self.arguments

        def ends(taken: int) -> _run.Stop | None:
            return "interrupted" if taken >= step or self.stop() else None

        try:
            record = train(
                arguments.workload,
                arguments.recipe,
                arguments.batch_size,
                arguments.settings,
                threads=torch.get_num_threads(),
                data_dir=self.data_dir,
                checkpoint=self.checkpoint,
                watch=lambda now: self._watch(now, step),
                stop=ends,
                **_train_options(arguments),
            )
        except Interrupted as stopped:
            if stopped.step < step:
                raise
            return stopped.step
        if record.status == "failed":
            raise BatchlensError(f"the run failed after {record.steps_taken:,} steps ({record.reason}).")
        raise Ended(record.reason or f"the run ended after {record.steps_taken:,} steps")

    def _watch(self, now: _run.Progress, step: int) -> None:
        number, moments = self.done
        self.progress(number, moments, f"training, step {now.step:,} of {step:,}")


def _train_options(arguments: Arguments) -> Any:
    return {
        "seed": arguments.seed,
        "max_steps": arguments.max_steps,
        "micro_batch": arguments.micro_batch,
        "schedule": arguments.schedule,
        "target_on": arguments.target_on,
        "target": arguments.target,
        "lazy": arguments.lazy,
        "device": str(arguments.device),
    }
