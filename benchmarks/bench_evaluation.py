"""Steps to target by rungs and bisection against every point of the grid, what is read, and what averages cost.

    python benchmarks/bench_evaluation.py

Reading everything at every point (`lazy=False`) would take longer than all the rest: here every point is looked at but
only as far as the decision needs, which gives the same steps. Times are CPU seconds of one thread.
"""

import argparse
import math
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple
from unittest import mock

from batchlens._grid import next_evaluation
from batchlens.training import _looking
from batchlens.training.data._sources import is_present
from batchlens.training.loop import train
from batchlens.training.record import Record

# An evaluated example takes a third of the time of one that is trained on.
FORWARD = 1 / 3
AVERAGES_LIMIT = 0.15


class Setup(NamedTuple):
    """Runs that reach their target: workload, optimizer, batch size, settings and how many seeds."""

    workload: str
    data: str
    optimizer: str
    batch_size: int
    settings: dict[str, float]
    seeds: int


SETUPS = (
    Setup("digits", "digits", "sgd", 8, {"learning_rate": 0.25}, 6),
    Setup("digits", "digits", "momentum", 64, {"learning_rate": 0.1}, 6),
    Setup("simple_cnn_mnist", "mnist", "momentum", 128, {"learning_rate": 0.05}, 4),
    Setup("simple_cnn_fashion_mnist", "fashion_mnist", "momentum", 128, {"learning_rate": 0.05}, 4),
)


def share_limit(examples: int) -> float:
    """What evaluation may take of a run: 25% at 33,000 examples, 12% at 100,000 and more, the same below 33,000.

    >>> [round(share_limit(examples), 2) for examples in (16_500, 33_000, 100_000, 1_000_000)]
    [0.5, 0.25, 0.12, 0.12]
    """
    if examples <= 33_000:
        return 0.25 * 33_000 / examples
    part = min(math.log(examples / 33_000) / math.log(100_000 / 33_000), 1.0)
    return float(0.25 * (0.12 / 0.25) ** part)


def share_read(record: Record) -> float:
    """What the examples read in evaluations are worth, as a share of those trained on."""
    return FORWARD * record.examples_read / record.examples


def share_verdict(record: Record) -> str:
    """The share and whether it is within its limit."""
    share, limit = share_read(record), share_limit(record.examples)
    return f"{share:.1%}, {'within' if share <= limit else 'OVER'} {limit:.0%}"


@contextmanager
def every_point() -> Iterator[None]:
    """Looks at every point of the grid."""
    with (
        mock.patch.object(_looking, "next_rung", next_evaluation),
        mock.patch.object(_looking, "next_wide_rung", next_evaluation),
    ):
        yield


def timed(setup: Setup, seed: int, **options: Any) -> tuple[Record, float]:
    """A run, and its CPU seconds."""
    start = time.process_time()
    record = train(setup.workload, setup.optimizer, setup.batch_size, setup.settings, seed=seed, threads=1, **options)
    return record, time.process_time() - start


def compare(setup: Setup) -> None:
    """One line of the table."""
    logs: list[float] = []
    ladders: list[float] = []
    interpolated: list[float] = []
    record = None
    for seed in range(setup.seeds):
        record, seconds = timed(setup, seed)
        with every_point():
            full, _ = timed(setup, seed)
        if record.steps is None or full.steps is None:
            print(
                f"{setup.workload}, {setup.optimizer}, {setup.batch_size}, seed {seed}: {record.status}, {full.status}"
            )
            continue
        logs.append(math.log(record.steps / full.steps))
        interpolated.append(record.steps_interpolated or math.nan)
        if seed == 0 or setup.workload == "digits":
            ladders.append(timed(setup, seed, averages="best")[1] / seconds - 1)
    assert record is not None
    spread = statistics.stdev(logs) if len(logs) > 1 else math.nan
    ladder = statistics.fmean(ladders)
    print(
        f"{setup.workload:25} {setup.optimizer:9} {setup.batch_size:5} {len(logs):4} "
        f"{statistics.geometric_mean(interpolated):8.0f} {math.exp(statistics.fmean(logs)):6.3f} {spread:8.3f}   "
        f"{share_verdict(record):22} {ladder:+6.1%}, {'within' if ladder <= AVERAGES_LIMIT else 'OVER'} "
        f"{AVERAGES_LIMIT:.0%}",
        flush=True,
    )


def main() -> None:
    argparse.ArgumentParser(description=__doc__).parse_args()
    print(
        f"{'workload':25} {'optimizer':9} {'batch':>5} {'runs':>4} {'steps':>8} {'ratio':>6} {'scatter':>8}   "
        f"{'evaluation (last run)':22} averages add"
    )
    for setup in SETUPS:
        if is_present(setup.data):
            compare(setup)
        else:
            print(f"{setup.workload}: skipped, no data here (batchlens data fetch {setup.data})")
    print("ratio: steps by rungs and bisection over the first point of the grid that meets the target, geometric mean;")
    print("scatter: standard deviation of its logarithm over seeds")


if __name__ == "__main__":
    main()
