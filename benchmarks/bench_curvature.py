"""What it costs to measure curvature and gradient noise.

    python benchmarks/bench_curvature.py [--threads 1] [--only products|measure|memory] [--workload digits]

* products: time of a Gauss-Newton, Hessian and covariance product and of a quadratic form, in gradients of the same
  examples that they consist of (two, three, two and one), timed in turn in time of the processor; the fastest counts.
* measure: all of `bl.measure` on an untrained network, in time of the processor and by the clock, with what was asked
  for: digits 2 s, Simple CNN on MNIST with 1,536 examples 60 s, ResNet8 180 s.
* memory: the most that a process holds while it measures, for two sizes of the data with one chunk, and for two chunks.
"""

import argparse
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

import batchlens as bl
from batchlens.curvature import _products
from batchlens.curvature._objective import Objective
from batchlens.training._sampling import Preparation
from batchlens.training.workloads import find_workload

WORKLOADS = {"digits": (1500, 2), "simple_cnn_mnist": (1536, 60), "resnet8_cifar10": (1536, 180)}
ROUNDS = 5
TIMED = 512


def objective_of(workload: str, examples: int, chunk: int = 256) -> Objective:
    """An untrained network on the first examples of its training set."""
    found = find_workload(workload)
    data = found.data(None)
    prepare = Preparation(data, torch.device("cpu"))
    inputs, targets = prepare.inputs(data.train.inputs[:examples]), prepare.targets(data.train.targets[:examples])
    torch.manual_seed(0)
    model = found.make_model().to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return Objective(model.eval(), inputs, targets, found.loss, chunk)


def print_products(workloads: list[str]) -> None:
    print("| workload | gradient, ms | Gauss-Newton / 2 gradients | Hessian / 3 | covariance / 2 | form / 1 |")
    print("|---|---|---|---|---|---|")
    for workload in workloads:
        objective = objective_of(workload, TIMED)
        mean = _products.gradient(objective).vector
        vector = torch.randn_like(mean)
        works: dict[str, tuple[Callable[[], object], int]] = {
            "gradient": (partial(_products.gradient, objective), 1),
            "gauss_newton": (partial(_products.gauss_newton_product, objective, vector), 2),
            "hessian": (partial(_products.hessian_product, objective, vector), 3),
            "covariance": (partial(_products.covariance_product, objective, mean, vector), 2),
            "form": (partial(_products.gauss_newton_form, objective, vector), 1),
        }
        seconds = {name: float("inf") for name in works}
        for _ in range(ROUNDS):
            for name, (work, _) in works.items():
                seconds[name] = min(seconds[name], timed(work))
        unit = seconds["gradient"]
        parts = " | ".join(
            f"{seconds[name] / (count * unit):.2f}" for name, (_, count) in works.items() if name != "gradient"
        )
        print(f"| {workload}, {TIMED} examples | {1e3 * unit:.1f} | {parts} |", flush=True)


def timed(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def print_measure(workloads: list[str]) -> None:
    print("| workload | examples | processor, s | clock, s | asked for, s |")
    print("|---|---|---|---|---|")
    warm = torch.nn.Linear(2, 2)
    bl.measure(warm, (torch.zeros(4, 2), torch.zeros(4, dtype=torch.int64)))
    for workload in workloads:
        examples, asked = WORKLOADS[workload]
        objective = objective_of(workload, examples)
        clock, processor = time.perf_counter(), time.process_time()
        bl.measure(objective.model, (objective.inputs, objective.targets), objective.losses)
        clock, processor = time.perf_counter() - clock, time.process_time() - processor
        print(f"| {workload} | {examples:,} | {processor:.1f} | {clock:.1f} | {asked} |", flush=True)


def print_memory() -> None:
    print("| examples | chunk | most memory, MB |")
    print("|---|---|---|")
    for examples, chunk in ((1024, 128), (4096, 128), (4096, 512)):
        code = f"from benchmarks.bench_curvature import hold; hold({examples}, {chunk})"
        run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        print(f"| {examples:,} | {chunk} | {float(run.stdout):,.0f} |", flush=True)


def hold(examples: int, chunk: int) -> None:
    """Prints the most memory, in MB beyond that of data and libraries, that products on MNIST take."""
    torch.set_num_threads(1)
    objective = objective_of("simple_cnn_mnist", examples, chunk)
    vector: Tensor = torch.randn(objective.size)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    _products.gauss_newton_product(objective, vector)
    _products.covariance_product(objective, vector, vector)
    print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--only", choices=("products", "measure", "memory"))
    parser.add_argument("--workload", choices=list(WORKLOADS))
    asked = parser.parse_args()
    torch.set_num_threads(asked.threads)
    workloads = list(WORKLOADS) if asked.workload is None else [asked.workload]
    if asked.only in (None, "products"):
        print_products(workloads)
    if asked.only in (None, "measure"):
        print_measure(workloads)
    if asked.only in (None, "memory"):
        print_memory()


if __name__ == "__main__":
    main()
