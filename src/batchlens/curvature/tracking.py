"""Measuring along a run of a workload, and keeping every moment."""

import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, TypedDict, Unpack

from batchlens._checks import require_path, require_sequence, require_whole
from batchlens.curvature._measured_run import Ended, How, MeasuredRun
from batchlens.curvature._reading import Progress, check_plan
from batchlens.curvature.measurement import Measurement, read_measurement
from batchlens.errors import BatchlensError
from batchlens.training._arguments import Arguments, check_arguments, load_data, versions
from batchlens.training._recipes import Recipe
from batchlens.training._threads import choose_threads, limit_threads
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
        max_steps: the step budget that a schedule refers to, more than the last of `steps`; the workload's unless
            given, or as many as `steps` ask.
        micro_batch: as in `train`.
        schedule: the workload's unless given.
        device: cpu (the default), cuda or mps.

    >>> import batchlens as bl
    >>> found = bl.measure_training("digits", "sgd", 64, {"learning_rate": 0.5}, steps=[0, 20], examples=200)
    >>> [moment.step for moment in found.moments], found.moments[1].loss < found.moments[0].loss
    ([0, 20], True)
    """
    only_top = _read_steps(steps, top_steps)
    arguments = _check(workload, optimizer, batch_size, settings, max(only_top), options)
    check_plan(chunk_size, hessian, error, density_probes, 0, arguments.seed)
    how = How(require_whole("examples", examples, 2), chunk_size, hessian, error, density_probes)
    asked = None if threads is None else require_whole("threads", threads, 1)
    file = None if out is None else _writable(require_path("out", out))
    kept = _kept(file, _declaration(arguments) | how.declaration(), arguments)
    if kept.status == "complete" and all(_has(kept, step, only_top[step]) for step in only_top):
        return kept  # without its data, and without a new file
    kept = replace(kept, status="unfinished", reason="")
    data = load_data(arguments.workload, data_dir)
    with limit_threads(asked or choose_threads(arguments, data)), _checkpoint(file) as checkpoint:
        tell, stopped = progress or (lambda *_: None), stop or (lambda: False)
        run = MeasuredRun(arguments, how, data, data_dir, checkpoint, tell, stopped)
        try:
            for number, step in enumerate(sorted(only_top)):
                if not _has(kept, step, only_top[step]):
                    run.done = number, len(only_top)
                    kept = _save(_with(kept, run, step, only_top[step]), file)
        except Ended as ended:
            return _save(replace(kept, status="diverged", reason=str(ended)), file)
        checkpoint.unlink(missing_ok=True)
    return _save(replace(kept, status="complete", reason=""), file)


def _read_steps(steps: Sequence[int], top_steps: Sequence[int]) -> dict[int, bool]:
    """Every step that is asked for, and whether only for the largest eigenvalue."""
    wanted = [require_whole("steps", step) for step in require_sequence("steps", steps)]
    if not wanted:
        raise ValueError("`steps` must have one step at least, got none.")
    tops = [require_whole("top_steps", step) for step in require_sequence("top_steps", top_steps)]
    return dict.fromkeys(tops, True) | dict.fromkeys(wanted, False)


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
    if options.get("max_steps") is not None:
        raise ValueError(f"`max_steps` must be more than the last of `steps`, {last}, got {found.max_steps}.")
    longer = {**options, "max_steps": last + 1}
    return check_arguments(workload, optimizer, batch_size, settings, **longer, **fixed)  # type: ignore[arg-type]


def _declaration(arguments: Arguments) -> dict[str, Any]:
    """What two measured runs must share for their moments to be of one."""
    names = ("workload", "size", "source", "optimizer", "batch_size", "settings", "seed", "schedule", "max_steps")
    identity = arguments.identity()
    return {name: identity[name] for name in names}


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
                "file, or delete it."
            )
    return found


def _writable(file: Path) -> Path:
    """The file, if one can be written there: better said now than after the first moment."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=file.parent):
            return file
    except OSError as error:
        raise BatchlensError(f"{file} cannot be written ({error.strerror}); choose another file.") from None


def _has(kept: Measurement, step: int, only_top: bool) -> bool:
    """Whether there is nothing left to measure after a step."""
    tops = {at for at, _ in kept.top_curvatures} if only_top else set()
    return step in tops | {moment.step for moment in kept.moments}


def _with(kept: Measurement, run: MeasuredRun, step: int, only_top: bool) -> Measurement:
    """What is there, and what is measured after one more step."""
    if only_top:
        return replace(kept, top_curvatures=tuple(sorted([*kept.top_curvatures, (step, run.top_after(step))])))
    moments = sorted([*kept.moments, run.moment_after(step)], key=lambda found: found.step)
    curve = dict(kept.loss_curve) | run.losses
    return replace(kept, moments=tuple(moments), loss_curve=tuple(sorted(curve.items())))


def _save(measurement: Measurement, file: Path | None) -> Measurement:
    if file is not None:
        measurement.save(file)
    return measurement
