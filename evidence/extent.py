"""How far the evidence goes: networks, data and targets beside the paper's, and how much of a curve is measured."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

import batchlens as bl
from batchlens.report._evidence.reading import Evidence
from batchlens.report._evidence.tables import measured_critical, ratio_words, with_repeats
from batchlens.report._sweep.page import target_words
from batchlens.scaling._critical import END_WIDTH
from batchlens.scaling.curve import CriticalBatchSize, ScalingCurve
from batchlens.sweep._curves import MeasuredCell
from batchlens.sweep.results import SweepResult

# Examples to train on. Of LM1B runs of 32 tokens, from three of the four held-out shards that were at hand.
TRAINING_EXAMPLES = {
    "digits": 1_500,
    "simple_cnn_mnist": 55_000,
    "simple_cnn_fashion_mnist": 55_000,
    "transformer_lm1b": 29_089,
    "resnet8_cifar10": 45_000,
    "vgg11_cifar10": 45_000,
    "resnet32_cifar10": 45_000,
}
_PLAIN = ("sgd", "momentum", "adam", "kfac")

Table = tuple[Sequence[str], list[list[str]]]


def size_rows(evidence: Evidence) -> Table:
    """How small the runs are: a row per sweep."""
    heads = ("Network", "Parameters (paper's size)", "Training examples", "Main target", "Accuracy near it, SGD")
    epochs = ("Smallest batch size", "Epochs to the target, SGD", "K-FAC", "The paper's target")
    return (*heads, *epochs), [[name, *_size_row(sweep)] for name, sweep in evidence.measured.items()]


def _size_row(sweep: SweepResult) -> Iterator[str]:
    declared = sweep.declaration
    examples, smallest = TRAINING_EXAMPLES[declared.workload], min(declared.batch_sizes)
    cells = {cell.result.cell.optimizer: cell for cell in sweep.cells if cell.batch_size == smallest}
    yield f"{_parameters(declared.workload, declared.size):,} ({_parameters(declared.workload, 'paper'):,})"
    yield f"{examples:,}"
    on_loss = declared.target_on == "train-loss"
    yield target_words(declared) if on_loss else _metric_words(declared.workload, declared.target)
    yield _accuracy_words(cells)
    yield f"{smallest:,}"
    for optimizer in ("sgd", "kfac"):
        steps = cells[optimizer].steps if optimizer in cells else None
        yield "" if steps is None else f"{steps * smallest / examples:.2g}"
    yield "not in the paper" if declared.workload == "digits" else _metric_words(declared.workload)


def _parameters(workload: str, size: str) -> int:
    return sum(parameter.numel() for parameter in bl.find_workload(workload, size).make_model().parameters())


def _accuracy_words(cells: Mapping[str, MeasuredCell]) -> str:
    """ "0.4 after 1.2 times the steps": an accuracy that the same runs met, beside a target on the training loss."""
    cell = cells.get("sgd")
    if cell is None or cell.result.reported is None or cell.steps is None:
        return ""
    also = {target.removeprefix("validation "): found for target, found in cell.result.reported.also.items()}
    return "; ".join(
        f"{target} after {'at least ' * found.is_bound}{found.steps / cell.steps:.2g} times the steps"
        for target, found in also.items()
        if "train" not in target and found.steps is not None
    )


def _metric_words(workload: str, target: float | None = None) -> str:
    """ "accuracy 0.99": a target on the validation set, the paper's unless given."""
    paper = bl.find_workload(workload, "paper")
    return f"{paper.metric.name.replace('_', ' ')} {paper.target if target is None else target:g}"


def reach_rows(evidence: Evidence) -> Table:
    """How much of perfect scaling, less and none the batch sizes show: a row per sweep."""
    heads = ("Network", "Smallest batch size, over SGD's critical one", "Largest, over it")
    slopes = tuple(f"Slopes at the ends, {optimizer}" for optimizer in _PLAIN)
    return (*heads, *slopes), [[name, *_reach_row(sweep)] for name, sweep in with_repeats(evidence).items()]


def _reach_row(sweep: SweepResult) -> Iterator[str]:
    curves, sizes = sweep.curves(), sweep.declaration.batch_sizes
    critical = measured_critical(sweep).get("sgd")
    for size in (min(sizes), max(sizes)):
        yield "" if critical is None else ratio_words(CriticalBatchSize(size, "=", "fit"), critical)
    for optimizer in _PLAIN:
        yield slope_words(curves[optimizer]) if optimizer in curves else ""


def slope_words(curve: ScalingCurve) -> str:
    """Of log steps over log batch size, within a factor 4 of the smallest and of the largest batch size.

    >>> slope_words(bl.ScalingCurve([16, 64, 256], [400, 100, 50]))
    '-1.00, -0.50'
    """
    known = [(size, steps) for size, steps in zip(curve.batch_sizes, curve.steps, strict=True) if steps]
    if len(known) < 2:
        return ""
    sizes, steps = np.array(known).T
    ends = sizes <= sizes[0] * END_WIDTH, sizes >= sizes[-1] / END_WIDTH
    return ", ".join(f"{np.polyfit(np.log(sizes[end]), np.log(steps[end]), 1)[0]:z.2f}" for end in ends)
