"""The reference: which learning rate it takes, a run with plain SGD to the target, and what is measured on the way."""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np

from batchlens.curvature.measurement import Measurement, read_measurement
from batchlens.curvature.tracking import measure_training
from batchlens.errors import BatchlensError
from batchlens.prediction._judging import SMALLER_RATE, halves_disagree, is_too_fast
from batchlens.prediction._measured import Measured
from batchlens.prediction._model import Reference
from batchlens.prediction._readings import EXAMPLES
from batchlens.training.loop import train
from batchlens.training.record import Record
from batchlens.training.workloads import Workload

OPTIMIZER = "sgd"
# Rates of the range test, as multiples of the middle of the workload's search space, and how many seeds each has.
_SPAN, _RATES, _RANGE_SEEDS = 20.0, 13, 2
# Steps of its runs, and where no rate has learned anything by then, of longer ones: the log loss of the best rate is to
# be lower than that of the smallest by this.
_RANGE_STEPS, _LEARNED = (40, 160, 640), 0.1
# A rate is as good as the best while its log loss, smoothed over neighbouring rates, is at most this much higher.
_AS_GOOD = 0.05
# Loss of a run that diverged or does worse than this: a multiple of the loss it started with, and no less than a floor.
# The floor is what the range tests had that the model was chosen on, where training starts at about 2.3.
_LOST, _LEAST_LOST = 2.0, 5.0
# Seeds of range tests come after those of references.
_RANGE_SEED = 1_000_003
# Runs that say at which training loss an accuracy is first met, the reference among them; seeds of the others.
_MET_RUNS, _MET_SEED = 3, 3_000_017
# Moments at which only the largest eigenvalue is found, as parts of the run; the rest is measured at its end.
_MOMENTS = (0.05, 0.1, 0.9)
# A rate of the range test that turns out to be at the edge of stability is divided by this, until that many were tried.
_CALMER, _MOST_TRIES = 1.5, 4

_NOTHING_LEARNED = (
    f"no learning rate of the range test learned anything within {_RANGE_STEPS[-1]} steps: give a learning rate with "
    "which the loss falls"
)

Tell = Callable[[int, int, str], None]


@dataclass(frozen=True)
class Plan:
    """A reference to be run."""

    workload: Workload
    batch_size: int
    learning_rate: float | None
    target_on: str
    target: float | None
    examples: int | None  # as many as needed where None
    seed: int
    out: Path | None
    options: Mapping[str, Any]  # of training: device, threads, data_dir


class Referred(NamedTuple):
    """A reference that was run; `measurement` is None where it missed the target, and then `reason` says how.

    `tried` counts learning rates, each 1.5 times smaller than the one before; this is the last of them. `losses` are
    those at which runs first met an accuracy, of which `target_loss` is the median.
    """

    learning_rate: float
    steps: int
    target_loss: float
    measurement: Measurement | None
    reason: str = ""
    diverged: bool = False  # or learned nothing
    tried: int = 1
    losses: tuple[float, ...] = ()


def run_reference(plan: Plan, tell: Tell) -> Referred:
    """Finds the learning rate, trains to the target and measures the same run.

    A rate that was not asked for, and with which the run ends at the edge of stability or too close to it, gives way to
    a smaller one. Where halves of the examples disagree on the curvature, it is measured on twice as many.
    """
    kept = _kept(plan, plan.out)
    begun_at = _rate(kept)  # of a measurement that was interrupted, or is complete
    first = plan.learning_rate or _first_rate(plan, begun_at, tell)
    if first is None:
        return Referred(math.nan, 0, math.nan, None, _NOTHING_LEARNED)
    rate = begun_at or first
    tried = 1 + max(round(math.log(first / rate, _CALMER)), 0)
    measured = replace(plan, examples=plan.examples or kept.get("examples", EXAMPLES))
    while True:
        referred = _run_at(measured, rate, tell)._replace(tried=tried)
        may_slow_down = plan.learning_rate is None and tried < _MOST_TRIES
        if not (may_slow_down and _is_too_fast(plan, referred)):
            referred = _on_enough_examples(plan, referred, tell)
        if not (may_slow_down and _is_too_fast(plan, referred)):
            return referred
        _forget(plan, referred)
        rate, tried = rate / _CALMER, tried + 1


def remedied(reason: str, referred: Referred) -> str:
    """A reason with another remedy where smaller rates were tried already."""
    if referred.tried == 1:
        return reason
    tried = f"{referred.tried} learning rates were tried, each {_CALMER:g} times smaller than the one before"
    return reason.replace(SMALLER_RATE, f"{tried}: choose an easier target, or tune this network with a sweep")


def _forget(plan: Plan, referred: Referred) -> None:
    if plan.out is not None and referred.measurement is not None:  # else the file is not of this run
        plan.out.unlink(missing_ok=True)


def _on_enough_examples(plan: Plan, referred: Referred, tell: Tell) -> Referred:
    """Measured again on twice as many where halves of them disagree on the curvature, unless it was said how many."""
    if plan.examples is not None or not _are_too_few(referred):
        return referred
    _forget(plan, referred)
    more = replace(plan, examples=2 * EXAMPLES)
    return referred._replace(measurement=_measure(more, referred.learning_rate, referred.steps, tell))


def range_test_file(out: Path) -> Path:
    """Where the range test's rate is kept, beside the measurement: the rate of that may be a smaller one."""
    return out.with_name(f"{out.name}.range-test")


def _first_rate(plan: Plan, begun_at: float | None, tell: Tell) -> float | None:
    """That of the range test, which is kept; where that is not and a measurement is, the measurement's."""
    if plan.out is None:
        return find_rate(plan, tell)
    file = range_test_file(plan.out)
    rate = _rate(_kept(plan, file)) or begun_at or find_rate(plan, tell)
    if rate is not None and not begun_at:
        Measurement((), plan.workload.name, {**_declaration(plan), "settings": {"learning_rate": rate}}).save(file)
    return rate


def _rate(declared: Mapping[str, Any]) -> float | None:
    rate: float | None = declared.get("settings", {}).get("learning_rate")
    return rate


def _kept(plan: Plan, file: Path | None) -> Mapping[str, Any]:
    """What an interrupted run declared: it needs no other range test. That of another run is refused."""
    if file is None or not file.exists():
        return {}
    declared = read_measurement(file).declaration
    for name, value in _declaration(plan).items():
        if declared.get(name) != value:
            raise BatchlensError(
                f"{file} holds another measurement ({name} {declared.get(name)}, not {value}); choose another "
                "file, or delete it."
            )
    return declared


def _declaration(plan: Plan) -> dict[str, Any]:
    """What is known of the run that will be measured, as its file has it."""
    workload = plan.workload
    known: dict[str, Any] = {"workload": workload.name, "size": workload.size, "source": workload.source}
    known |= {"optimizer": OPTIMIZER, "batch_size": plan.batch_size, "seed": plan.seed, "schedule": "constant"}
    known |= {} if plan.learning_rate is None else {"settings": {"learning_rate": plan.learning_rate}}
    return known | ({} if plan.examples is None else {"examples": plan.examples})


def _is_too_fast(plan: Plan, referred: Referred) -> bool:
    measurement = referred.measurement
    if measurement is None:
        return referred.diverged
    run = Reference.of(measurement.loss_curve, plan.batch_size, referred.learning_rate, 0.0, referred.target_loss)
    return is_too_fast(run, measurement, Measured.of(measurement, run.steps[-1]))


def _are_too_few(referred: Referred) -> bool:
    """Whether halves of the examples disagree, and there are more of them."""
    if referred.measurement is None:
        return False
    last = referred.measurement.moments[-1]
    return last.examples == EXAMPLES and halves_disagree(last)


def _run_at(plan: Plan, rate: float, tell: Tell) -> Referred:
    """Trains to the target, and measures the same run; an accuracy counts as the loss at which runs first meet it."""
    tell(_RATES * _RANGE_SEEDS, _RATES * _RANGE_SEEDS, f"training at learning rate {rate:.3g}")
    record = _to_target(plan, rate, plan.seed)
    if record.steps == 0:
        raise ValueError(f"`target` must not be met before the first step, got {record.target:g}.")
    if record.steps is None:
        return _missed(plan, rate, record)
    if plan.target_on == "train-loss":
        return Referred(rate, record.steps, record.target, _measure(plan, rate, record.steps, tell))
    losses = [_loss_after(plan, rate, record.steps, plan.seed), *_losses_of_others(plan, rate)]
    referred = _run_at(replace(plan, target_on="train-loss", target=median(losses)), rate, tell)
    return referred._replace(losses=tuple(losses))


def _to_target(plan: Plan, rate: float, seed: int) -> Record:
    return train(
        plan.workload,
        OPTIMIZER,
        plan.batch_size,
        {"learning_rate": rate},
        seed=seed,
        target_on=plan.target_on,
        target=plan.target,
        schedule="constant",
        **plan.options,
    )


def _missed(plan: Plan, rate: float, record: Record) -> Referred:
    lost = record.status == "diverged" or _learned_nothing(record)
    best = "" if record.best_metric is None else f"; the best was {record.best_metric:.4g}"
    how = "diverged" if record.status == "diverged" else "missed the target"
    words = f"the reference {how} within {record.steps_taken:,} steps{best}"
    other = "choose an easier target" + (", or a larger learning rate" if plan.learning_rate else "")
    remedy = SMALLER_RATE if lost else other
    return Referred(rate, record.steps_taken, math.nan, None, f"{words}: {remedy}", lost)


def _losses_of_others(plan: Plan, rate: float) -> Iterator[float]:
    """Training losses at which runs with other seeds first meet the accuracy, of those that do."""
    first = _MET_SEED + plan.seed * _MET_RUNS
    for seed in range(first, first + _MET_RUNS - 1):
        record = _to_target(plan, rate, seed)
        if record.steps:
            yield _loss_after(plan, rate, record.steps, seed)


def _loss_after(plan: Plan, rate: float, steps: int, seed: int) -> float:
    return _short_run(plan, rate, steps, seed).history[-1].metric


def _learned_nothing(record: Record) -> bool:
    """Whether a run that missed its target has not come a tenth of the way either: a rate too large ends a network."""
    if not record.history or record.best_metric is None:
        return False
    start = record.history[0].metric
    return (record.best_metric - start) / (record.target - start) < _LEARNED


def _measure(plan: Plan, rate: float, steps: int, tell: Tell) -> Measurement:
    """The same run again, measured; what a kept file has of later steps belongs to another target."""
    found = measure_training(
        plan.workload,
        OPTIMIZER,
        plan.batch_size,
        {"learning_rate": rate},
        [steps],
        top_steps=sorted({round(part * steps) for part in _MOMENTS} - {steps}),
        examples=plan.examples or EXAMPLES,
        seed=plan.seed,
        schedule="constant",
        out=plan.out,
        progress=tell,
        **plan.options,
    )
    return replace(
        found,
        moments=tuple(moment for moment in found.moments if moment.step <= steps),
        loss_curve=tuple(point for point in found.loss_curve if point[0] <= steps),
    )


def find_rate(plan: Plan, tell: Tell) -> float | None:
    """The largest learning rate that still gives the lowest loss after a few steps, more where they teach nothing.

    None where no rate learns anything.
    """
    middle, start = _middle(plan.workload), _start(plan)
    rates = np.geomspace(middle / _SPAN, middle * _SPAN, _RATES).tolist()
    log_losses: list[float] = []
    for steps in _RANGE_STEPS:
        log_losses = _range_test(plan, rates, steps, start, tell)
        if min(log_losses) < log_losses[0] - _LEARNED:
            break
    return largest_good(rates, log_losses) if min(log_losses) < math.log(start) - _LEARNED else None


def _range_test(plan: Plan, rates: list[float], steps: int, start: float, tell: Tell) -> list[float]:
    """Log losses after that many steps, by learning rate."""
    logs, lost = np.zeros(len(rates)), math.log(max(_LEAST_LOST, _LOST * start))
    for place, rate in enumerate(rates):
        for seed in range(_RANGE_SEEDS):
            words = f"range test of {steps} steps, learning rate {rate:.3g}"
            tell(place * _RANGE_SEEDS + seed, len(rates) * _RANGE_SEEDS, words)
            log_loss = _log_loss(plan, rate, steps, _RANGE_SEED + plan.seed * _RANGE_SEEDS + seed)
            logs[place] += min(log_loss, lost) / _RANGE_SEEDS
    return logs.tolist()


def largest_good(rates: list[float], log_losses: list[float]) -> float:
    """The largest rate whose smoothed log loss is about the lowest.

    >>> largest_good([0.1, 0.2, 0.4, 0.8], [0.0, -1.0, -1.0, 2.0])
    0.2
    """
    padded = np.pad(np.asarray(log_losses), 1, mode="edge")
    smooth = np.convolve(padded, [0.25, 0.5, 0.25], mode="valid")
    return max(rate for rate, log in zip(rates, smooth, strict=True) if log <= smooth.min() + _AS_GOOD)


def _middle(workload: Workload) -> float:
    space = workload.space(OPTIMIZER, 1)["learning_rate"]
    return math.sqrt(space.low * space.high)


def _start(plan: Plan) -> float:
    """The loss before the first step."""
    return _short_run(plan, _middle(plan.workload), 1, _RANGE_SEED, lazy=False).history[0].metric


def _log_loss(plan: Plan, rate: float, steps: int, seed: int) -> float:
    """After a few steps; infinite where the run diverged."""
    record = _short_run(plan, rate, steps, seed)
    last = record.history[-1].metric if record.history else math.nan
    return math.inf if record.status == "diverged" or not math.isfinite(last) else math.log(max(last, 1e-12))


def _short_run(plan: Plan, rate: float, steps: int, seed: int, lazy: bool = True) -> Record:
    """The target, a loss of 0, is never met, so the last step is read in full."""
    return train(
        plan.workload,
        OPTIMIZER,
        plan.batch_size,
        {"learning_rate": rate},
        seed=seed,
        max_steps=steps,
        target_on="train-loss",
        target=0.0,
        schedule="constant",
        lazy=lazy,
        **plan.options,
    )
