"""Measuring along a run of a workload: the training loop stops at a checkpoint, is measured, and goes on."""

import math
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, TypedDict, Unpack

import torch
from torch import Tensor, nn

from batchlens._checks import require_path, require_sequence, require_whole
from batchlens.curvature._reading import Progress, check_plan
from batchlens.curvature._top import top_curvature
from batchlens.curvature.measurement import Measurement, Moment, read_measurement
from batchlens.curvature.measuring import measure
from batchlens.errors import BatchlensError
from batchlens.training import _run
from batchlens.training._arguments import Arguments, check_arguments, load_data, versions
from batchlens.training._checkpoint import load_checkpoint
from batchlens.training._recipes import Recipe
from batchlens.training._sampling import Preparation
from batchlens.training._threads import choose_threads, limit_threads
from batchlens.training.data.loading import Dataset
from batchlens.training.loop import Interrupted, train
from batchlens.training.workloads import Workload

__all__ = ["measure_training"]


class _Options(TypedDict, total=False):
    """What a run takes beside workload, optimizer, batch size and settings, as far as it matters here."""

    size: str
    seed: int
    max_steps: int | None
    micro_batch: int | None
    schedule: str | None
    device: str


def measure_training(
    workload: Workload | str,
    optimizer: Recipe | str,
    batch_size: int,
    settings: Mapping[str, float],
    steps: Sequence[int] = (0, 50, 200, 800),
    *,
    top_steps: Sequence[int] = (),
    examples: int = 1536,
    chunk_size: int = 256,
    hessian: bool = False,
    error: float = 0.1,
    density_probes: int = 0,
    out: str | os.PathLike[str] | None = None,
    threads: int | None = None,
    data_dir: Path | None = None,
    progress: Progress | None = None,
    stop: Callable[[], bool] | None = None,
    **options: Unpack[_Options],
) -> Measurement:
    """How do curvature and gradient noise change along a training? Measures the weights after given numbers of steps.

    The weights that are measured are the plain ones, in evaluation mode (running statistics of normalisations are
    constants then), on examples evenly spaced over the training set, without augmentation.

    Arguments:
        workload: a `Workload`, the name of one, or "my_file.py:name".
        optimizer: a name such as "momentum", or a `Recipe` of one's own.
        batch_size: examples of a step.
        settings: learning_rate, and what else the optimizer and the schedule take.
        steps: after which the weights are measured; 0 is before the first.
        top_steps: after which only the largest eigenvalue is found, in a fraction of the time.
        examples: of the training set that are measured on.
        chunk_size: examples that go through the model at a time.
        hessian: whether the largest eigenvalue of the Hessian is found too.
        error: that traces from random probes may have, as a part of them.
        density_probes: of the density of eigenvalues; none by default.
        out: a file that every moment is added to. Those of the same run that it has already are kept, and an
            interrupted run goes on from the checkpoint beside it.
        threads: of torch on the CPU; chosen by a fixed rule of the model and the batch unless given.
        data_dir: the folder of the data sets; $BATCHLENS_DATA or else ~/.cache/batchlens by default.
        progress: is told how many parts are done, of how many, and which comes next.
        stop: asked between steps and parts of a measurement; where it says so, the run is kept and `Interrupted`
            raised.
        size: "laptop" (the default) or "paper", for a workload's name.
        seed: of the run; 0 unless given.
        max_steps: the step budget that a schedule refers to; the workload's unless given, or more where `steps` ask.
        micro_batch: as in `train`.
        schedule: the workload's unless given.
        device: cpu (the default), cuda or mps.

    >>> import batchlens as bl
    >>> found = bl.measure_training("digits", "sgd", 64, {"learning_rate": 0.5}, steps=[0, 20], examples=200)
    >>> [moment.step for moment in found.moments], found.moments[1].loss < found.moments[0].loss
    ([0, 20], True)
    """
    wanted = sorted({require_whole("steps", step) for step in require_sequence("steps", steps)})
    if not wanted:
        raise ValueError("`steps` must have one step at least, got none.")
    tops = {require_whole("top_steps", step) for step in require_sequence("top_steps", top_steps)} - set(wanted)
    arguments = _check(workload, optimizer, batch_size, settings, max([*wanted, *tops]), options)
    how = {"examples": require_whole("examples", examples, 2), "hessian": hessian, "error": error}
    how |= {"density_probes": density_probes}
    check_plan(chunk_size, hessian, error, density_probes, 0, arguments.seed)
    asked = None if threads is None else require_whole("threads", threads, 1)
    data = load_data(arguments.workload, data_dir)
    file = None if out is None else require_path("out", out)
    declaration = _declaration(arguments) | how
    kept = _kept(file, declaration, arguments)
    with limit_threads(asked or choose_threads(arguments, data)), _checkpoint(file) as checkpoint:
        tracking = _Tracking(arguments, data, data_dir, checkpoint, progress or (lambda *_: None), stop)
        every = sorted({*wanted, *tops})
        for number, step in enumerate(every):
            if step in {moment.step for moment in kept.moments} | {at for at, _ in kept.top_curvatures}:
                continue
            tracking.done = number, len(every)
            try:
                model = tracking.model_after(step)
                inputs, targets = _examples(arguments, data, int(how["examples"]))
                if step in tops:
                    top = top_curvature(model, (inputs, targets), arguments.workload.loss, chunk_size, arguments.seed)
                    known = tuple(sorted([*kept.top_curvatures, (step, top)]))
                    kept = _save(replace(kept, top_curvatures=known), file)
                    continue
                found = measure(
                    model,
                    (inputs, targets),
                    arguments.workload.loss,
                    chunk_size=chunk_size,
                    hessian=hessian,
                    error=error,
                    density_probes=density_probes,
                    step=step,
                    seed=arguments.seed,
                    progress=tracking.measuring,
                )
            except _Ended as ended:
                return _save(replace(kept, status="diverged", reason=str(ended)), file)
            kept = _save(_with(kept, found.moments[0], tracking.losses), file)
        checkpoint.unlink(missing_ok=True)
    return _save(replace(kept, status="complete", reason=""), file)


class _Ended(Exception):
    """A run that ended before the step that was to be measured."""


class _Tracking:
    """A run that stops where it is asked to."""

    def __init__(
        self,
        arguments: Arguments,
        data: Dataset,
        data_dir: Path | None,
        checkpoint: Path,
        progress: Progress,
        stop: Callable[[], bool] | None,
    ) -> None:
        self.arguments, self.data, self.data_dir, self.checkpoint = arguments, data, data_dir, checkpoint
        self.progress, self.stop, self.done = progress, stop or (lambda: False), (0, 1)
        self.losses: dict[int, float] = {}  # as far as the run has come
        self.step = 0

    def measuring(self, done: int, total: int, what: str) -> None:
        """Tells the progress of a measurement as a part of all of them."""
        if self.stop():
            raise Interrupted(self.step, self.checkpoint)
        number, moments = self.done
        self.progress(number * total + done, moments * total, f"step {self.step:,}: {what}")

    def model_after(self, step: int) -> nn.Module:
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
        arguments = self.arguments
        for _ in range(2):
            reached = self._train_until(step)
            if reached == step:
                state = load_checkpoint(self.checkpoint, {})
                assert state is not None
                return state
            self.checkpoint.unlink()  # it is of a later step: once more from the start
        raise AssertionError(f"{arguments.workload.name} cannot be stopped after step {step}.")

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
        raise _Ended(record.reason or f"the run ended after {record.steps_taken:,} steps")

    def _watch(self, now: _run.Progress, step: int) -> None:
        number, moments = self.done
        self.progress(number, moments, f"training, step {now.step:,} of {step:,}")


def _check(
    workload: Workload | str,
    optimizer: Recipe | str,
    batch_size: int,
    settings: Mapping[str, float],
    last: int,
    options: _Options,
) -> Arguments:
    """A run whose target, a training loss of 0, is never met, and that is never over at the last step measured."""
    for name in options:
        if name not in _Options.__annotations__:
            raise TypeError(f"`{name}` is not known; a measured run takes {', '.join(_Options.__annotations__)}.")
    fixed = {"target_on": "train-loss", "target": 0.0, "lazy": False}
    found = check_arguments(workload, optimizer, batch_size, settings, **options, **fixed)  # type: ignore[arg-type]
    if found.max_steps > last:
        return found
    longer = {**options, "max_steps": last + 1}
    return check_arguments(workload, optimizer, batch_size, settings, **longer, **fixed)  # type: ignore[arg-type]


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


def _declaration(arguments: Arguments) -> dict[str, Any]:
    """What two measured runs must share for their moments to be of one."""
    names = ("workload", "size", "source", "optimizer", "batch_size", "settings", "seed", "schedule", "max_steps")
    identity = arguments.identity()
    return {name: identity[name] for name in names}


def _examples(arguments: Arguments, data: Dataset, count: int) -> tuple[Tensor, Tensor]:
    """Training examples, evenly spaced."""
    size = len(data.train)
    chosen = torch.arange(min(count, size)) * size // min(count, size)
    prepare = Preparation(data, arguments.device)
    return prepare.inputs(data.train.inputs[chosen]), prepare.targets(data.train.targets[chosen])


@contextmanager
def _checkpoint(file: Path | None) -> Iterator[Path]:
    """Where the run is kept: beside the file, or for as long as it is measured."""
    if file is not None:
        yield file.with_name(f"{file.name}.checkpoint")
        return
    with tempfile.TemporaryDirectory(prefix="batchlens-") as folder:
        yield Path(folder) / "run"


def _kept(file: Path | None, declaration: dict[str, Any], arguments: Arguments) -> Measurement:
    """What the file has already of the same run."""
    fresh = Measurement((), arguments.workload.name, declaration, "unfinished", versions=versions())
    if file is None or not file.exists():
        return fresh
    found = read_measurement(file)
    for name, value in declaration.items():
        if found.declaration.get(name) != value:
            raise BatchlensError(
                f"{file} holds another measurement ({name} {found.declaration.get(name)}, not {value}); choose another "
                "`out`, on the command line --out, or delete it."
            )
    return replace(found, status="unfinished", reason="")


def _with(kept: Measurement, moment: Moment, losses: Mapping[int, float]) -> Measurement:
    moments = sorted([*kept.moments, moment], key=lambda found: found.step)
    curve = dict(kept.loss_curve) | dict(losses)
    return replace(kept, moments=tuple(moments), loss_curve=tuple(sorted(curve.items())))


def _save(measurement: Measurement, file: Path | None) -> Measurement:
    if file is not None:
        measurement.save(file)
    return measurement
