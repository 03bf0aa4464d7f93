"""What counts as trained: a metric, where it is measured, and how good it must be."""

from typing import NamedTuple

from batchlens._checks import require_choice, require_number
from batchlens.training._workload import Workload
from batchlens.training.metrics import CROSS_ENTROPY, SQUARED_ERROR, Metric

TARGETS_ON = ("validation", "train", "train-loss")


class Target(NamedTuple):
    """A value of what is measured: on the "validation" set or on as many "train" examples the workload's metric, on
    the latter also the loss without label smoothing, the "train-loss".

    >>> str(Target("train-loss", 0.1))
    'train-loss 0.1'
    """

    on: str
    value: float

    def __str__(self) -> str:
        return f"{self.on} {self.value:g}"


def metric_on(workload: Workload, on: str) -> Metric:
    """What is measured there."""
    if on != "train-loss":
        return workload.metric
    return CROSS_ENTROPY if workload.likelihood == "cross_entropy" else SQUARED_ERROR


def check_target(workload: Workload, on: object, value: object) -> Target:
    """A target with the workload's own value where `value` is None."""
    place = require_choice("target_on", on, TARGETS_ON)
    if value is not None:
        return Target(place, metric_on(workload, place).require_target("target", value))
    usual = {
        "validation": workload.target,
        "train": workload.train_target,
        "train-loss": workload.train_loss_target,
    }[place]
    if usual is None:
        raise ValueError(f"`target` must be given for the training loss: {workload.name} has none of its own.")
    return Target(place, usual)


def parse_target(workload: Workload, text: object) -> Target:
    """From "train-loss 0.3" or "train-loss:0.3"."""
    place, _, value = str(text).strip().replace(":", " ").partition(" ")
    try:
        number = require_number("also_targets", float(value))
    except ValueError:
        raise ValueError(f"`also_targets` must be such as train-loss:0.3, got {text!r}.") from None
    place = require_choice("also_targets", place, TARGETS_ON)
    return Target(place, metric_on(workload, place).require_target("also_targets", number))
