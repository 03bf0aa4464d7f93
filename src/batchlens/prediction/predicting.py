"""One short run of a workload instead of a sweep: the reference, and what follows from it."""

import math
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from batchlens._checks import require_number, require_path, require_whole
from batchlens.prediction._confirming import Confirmed, most_telling, update
from batchlens.prediction._readings import BATCH_SIZES, OPTIMIZERS, require_asked
from batchlens.prediction._reference import Plan, Referred, Tell, remedied, run_reference
from batchlens.prediction.prediction import Prediction, predict_from
from batchlens.training._arguments import load_data
from batchlens.training._targets import check_target
from batchlens.training.loop import train
from batchlens.training.workloads import Workload, find_workload

__all__ = ["predict"]

# What is known of predictions to an accuracy, and how far apart losses are that are said.
_ACCURACY = (
    "to 97% on digits, steps were off by 1.4 in the mean and 2.3 at worst, to a target on training loss by 1.2 and 1.6"
)
_APART = 1.5
# Seeds of confirming runs, and how many times the interval's end they are given.
_CONFIRMING_SEED, _PATIENCE = 2_000_003, 2.0


def predict(
    workload: Workload | str,
    *,
    optimizers: Sequence[str] = OPTIMIZERS,
    batch_sizes: Sequence[int] = BATCH_SIZES,
    target_on: str = "validation",
    target: float | None = None,
    batch_size: int = 64,
    learning_rate: float | None = None,
    size: str = "laptop",
    examples: int | None = None,
    confirm: int = 0,
    seed: int = 0,
    keep: str | os.PathLike[str] | None = None,
    device: str = "cpu",
    threads: int | None = None,
    data_dir: Path | None = None,
    progress: Callable[[int, int, str], None] | None = None,
) -> Prediction:
    """How large a batch can a training use? From one run with plain SGD, within minutes, with intervals.

    The learning rate of the run is found by a short range test; the run goes to the target, and curvature and gradient
    noise are measured along it (`measure_training`); `predict_from` does the rest.

    Arguments:
        workload: a `Workload`, the name of one, or "my_file.py:name".
        optimizers: of which curves are wanted.
        batch_sizes: at which; rising.
        target_on: "validation", "train" or "train-loss". Of an accuracy the training loss counts at which
            it is first met, in the median over three runs.
        target: the workload's unless given.
        batch_size: of the reference.
        learning_rate: of the reference; found by a range test unless given.
        size: "laptop" or "paper", for a workload's name.
        examples: of the training set that curvature and gradient noise are measured on; 3,072 unless given, and
            twice as many where halves of them disagree.
        confirm: at how many batch sizes, those where the prediction is least certain, to train at the predicted
            settings, and to take into account; fewer where no others have a predicted learning rate and a batch size
            within the training set.
        seed: of the reference.
        keep: a file that keeps what was measured, and from which an interrupted measurement goes on.
        device: cpu, cuda or mps.
        threads: of torch on the CPU.
        data_dir: the folder of the data sets.
        progress: is told how many parts are done, of how many, and which comes next.

    >>> import batchlens as bl
    >>> found = bl.predict("digits", target_on="train-loss", target=0.3, optimizers=["sgd"], learning_rate=0.5)
    >>> found.status, found.curves["sgd"].critical().value is not None
    ('predicted', True)
    """
    started = time.perf_counter()
    require_asked(optimizers, batch_sizes)
    confirm = require_whole("confirm", confirm)
    found = find_workload(workload, size) if isinstance(workload, str) else workload
    aim = check_target(found, target_on, target)
    plan = Plan(
        workload=found,
        batch_size=require_whole("batch_size", batch_size, 1),
        learning_rate=None
        if learning_rate is None
        else require_number("learning_rate", learning_rate, 0, closed=(False, True)),
        target_on=aim.on,
        target=aim.value,
        examples=None if examples is None else require_whole("examples", examples, 2),
        seed=require_whole("seed", seed),
        out=None if keep is None else require_path("keep", keep),
        options={"device": device, "threads": threads, "data_dir": data_dir},
    )
    tell = progress or (lambda *_: None)
    referred = run_reference(plan, tell)
    if referred.measurement is None:
        return _refused(plan, referred, time.perf_counter() - started)
    prediction = predict_from(
        referred.measurement,
        referred.measurement.loss_curve,
        plan.batch_size,
        referred.learning_rate,
        referred.target_loss,
        optimizers=optimizers,
        batch_sizes=batch_sizes,
        seed=plan.seed,
    )
    prediction = _described(prediction, plan, referred)
    if confirm and prediction.status == "predicted":
        prediction = update(prediction, list(_train_cells(plan, prediction, confirm, tell)))
    return replace(prediction, seconds=time.perf_counter() - started)


def _refused(plan: Plan, referred: Referred, seconds: float) -> Prediction:
    """The answer where the reference was not measured; it has no learning rate where none could be found."""
    rate = None if math.isnan(referred.learning_rate) else referred.learning_rate
    described = {"batch_size": plan.batch_size, "learning_rate": rate, "steps": referred.steps}
    loss = plan.target if plan.target_on == "train-loss" and plan.target is not None else referred.target_loss
    refused = Prediction("not_identifiable", (referred.reason,), (), (), loss, described, seconds)
    return _described(refused, plan, referred)


def _described(prediction: Prediction, plan: Plan, referred: Referred) -> Prediction:
    """With the workload and its target; a smaller learning rate is no advice where smaller ones were tried."""
    reasons = tuple(remedied(reason, referred) for reason in prediction.reasons)
    reference = {**prediction.reference, "target_on": plan.target_on, "target": plan.target}
    reference |= {"losses_at_target": list(referred.losses)} if referred.losses else {}
    target = (_stand_in_words(referred),) if prediction.predicted and referred.losses else ()
    notes = (*target, *prediction.notes)
    return replace(prediction, name=plan.workload.name, reasons=reasons, reference=reference, notes=notes)


def _stand_in_words(referred: Referred) -> str:
    """Which training loss stands for an accuracy, and how well it does."""
    losses = referred.losses
    words = f"the training loss at which {len(losses)} runs first met the accuracy, in the median, stands for it"
    apart = f"; it was {min(losses):.2g} to {max(losses):.2g}" if max(losses) > _APART * min(losses) else ""
    return f"{words}{apart}. {_ACCURACY[0].upper()}{_ACCURACY[1:]}"


def _train_cells(plan: Plan, prediction: Prediction, count: int, tell: Tell) -> Iterator[Confirmed]:
    """The most telling cells, each with a seed of its own and twice the steps that its interval allows."""
    largest = len(load_data(plan.workload, plan.options["data_dir"]).train)
    for number, (optimizer, size) in enumerate(most_telling(prediction, count, largest)):
        tell(number, count, f"confirming {optimizer} at batch size {size:,}")
        curve = prediction.curves[optimizer].curve
        place = curve.batch_sizes.index(size)
        steps, interval = float(curve.steps[place] or 0.0), curve.intervals[place]
        high = steps if interval is None or interval.high is None else interval.high
        record = train(
            plan.workload,
            optimizer,
            size,
            dict(curve.settings[place]),
            seed=_CONFIRMING_SEED + plan.seed + number,
            max_steps=max(int(_PATIENCE * high), 1),
            target_on="train-loss",
            target=prediction.target_loss,
            schedule="constant",
            **plan.options,
        )
        yield Confirmed(
            optimizer,
            size,
            steps,
            interval,
            record.steps_interpolated,
            record.max_steps,
            record.status,
            record.steps_taken,
        )
