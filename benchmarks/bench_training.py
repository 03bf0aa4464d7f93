"""The training loop against a bare PyTorch loop, examples a second of every workload and what evaluation takes.

    python benchmarks/bench_training.py [--threads 1]

Times are only compared with times of the same run.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from dataclasses import replace

import torch
from bench_evaluation import share_verdict
from torch import nn
from torch.nn import functional

from batchlens.training._published import PUBLISHED as WORKLOADS
from batchlens.training.data._sources import is_present
from batchlens.training.data.loading import load
from batchlens.training.loop import train
from batchlens.training.workloads import find_workload

SETTINGS = {"learning_rate": 0.03, "momentum": 0.9}
# Settings with which momentum (ResNet8: Adam) at batch 64 reaches the laptop target of a workload.
GOOD = {
    "simple_cnn_mnist": {"learning_rate": 0.03},
    "simple_cnn_fashion_mnist": {"learning_rate": 0.03},
    "resnet8_cifar10": {"learning_rate": 0.003},
    "resnet32_cifar10": {"learning_rate": 0.1, "final_fraction": 0.1},
    "vgg11_cifar10": {"learning_rate": 0.05, "decay_steps": 1200, "final_fraction": 0.05},
    "transformer_lm1b": {"learning_rate": 0.3},
    "digits": {"learning_rate": 0.1},
}


DATA = {name: name.rpartition("_")[2] for name in WORKLOADS} | {"simple_cnn_fashion_mnist": "fashion_mnist"}


def optimizer_of(name: str) -> str:
    """With momentum ResNet8 takes minutes."""
    return "adam" if name == "resnet8_cifar10" else "momentum"


def bare_loop(steps: int, batch_size: int, threads: int) -> float:
    """Seconds of a loop as one would write it by hand: no evaluation, no divergence check, no seeds."""
    torch.set_num_threads(threads)
    data = load("mnist")
    images, labels = data.train.inputs, data.train.targets
    mean, std = torch.tensor(data.mean).view(-1, 1, 1), torch.tensor(data.std).view(-1, 1, 1)
    model: nn.Module = find_workload("simple_cnn_mnist").model()
    model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.03, momentum=0.9)
    start = time.perf_counter()
    order = torch.randperm(len(images))
    for step in range(steps):
        first = step * batch_size % (len(images) - batch_size)
        chosen = order[first : first + batch_size]
        inputs = ((images[chosen].float() / 255 - mean) / std).contiguous(memory_format=torch.channels_last)
        optimizer.zero_grad()
        functional.cross_entropy(model(inputs), labels[chosen]).backward()
        optimizer.step()
    return time.perf_counter() - start


def our_loop(steps: int, batch_size: int, threads: int) -> float:
    """Seconds of the same steps by `train`, less what it evaluated; a target of 1 is not reached."""
    record = train("simple_cnn_mnist", "momentum", batch_size, SETTINGS, max_steps=steps, threads=threads, target=1.0)
    return record.seconds - record.evaluation_seconds


def verdict(value: float, limit: float) -> str:
    return f"{'within' if value <= limit else 'OVER'} {limit:g}"


def compare_loops(threads: int, rounds: int = 7) -> None:
    for batch_size, steps in ((64, 150), (256, 60)):
        pair: tuple[Callable[..., float], ...] = (our_loop, bare_loop)
        ratios = []
        for number in range(rounds):  # in turn, in both orders: what slows the machine down slows both
            times = {loop: loop(steps, batch_size, threads) for loop in (pair if number % 2 else pair[::-1])}
            ratios.append(times[our_loop] / times[bare_loop])
        print(
            f"simple_cnn_mnist, batch {batch_size}: a step takes {statistics.median(ratios):.3f} of a bare loop's"
            f" (median of {rounds}; {min(ratios):.3f} to {max(ratios):.3f}): {verdict(statistics.median(ratios), 1.05)}"
        )


def compare_layouts(threads: int, rounds: int = 7) -> None:
    """What the channels-last layout brings: a forward and backward pass in it over one in torch's default layout."""
    torch.set_num_threads(threads)
    for name, shape in (("simple_cnn_mnist", (64, 1, 28, 28)), ("vgg11_cifar10", (64, 3, 32, 32))):
        seconds: dict[torch.memory_format, list[float]] = {torch.channels_last: [], torch.contiguous_format: []}
        model: nn.Module = find_workload(name).model()
        for _ in range(rounds + 1):
            for layout, times in seconds.items():
                model.to(memory_format=layout)  # type: ignore[call-overload]
                images = torch.randn(shape).contiguous(memory_format=layout)
                start = time.perf_counter()
                for _ in range(5):
                    model(images).sum().backward()
                times.append(time.perf_counter() - start)
        ours, theirs = (statistics.median(times[1:]) for times in seconds.values())
        print(f"{name}: channels-last takes {ours / theirs:.2f} of the default layout's time")


def compare_adams(threads: int, rounds: int = 15) -> None:
    """What one kernel for all weights brings Adam: the steps of a paper-size CNN over those of torch's default."""
    torch.set_num_threads(threads)
    model: nn.Module = find_workload("simple_cnn_mnist", "paper").model()
    model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    fused = {one: torch.optim.Adam(model.parameters(), lr=1e-4, fused=one) for one in (True, False)}
    for batch_size in (16, 64, 256):
        labels = torch.arange(batch_size) % 10
        updates: dict[bool, list[float]] = {one: [] for one in fused}
        steps: dict[bool, list[float]] = {one: [] for one in fused}
        for number in range(2 * (rounds + 1)):
            one = number % 2 == 0
            # New ones every time: gradients that fade to denormal numbers would be slow.
            images = torch.randn(batch_size, 1, 28, 28).contiguous(memory_format=torch.channels_last)
            start = time.perf_counter()
            fused[one].zero_grad()
            functional.cross_entropy(model(images), labels).backward()
            middle = time.perf_counter()
            fused[one].step()
            updates[one].append(time.perf_counter() - middle)
            steps[one].append(time.perf_counter() - start)
        update, step = ([statistics.median(found[one][1:]) for one in (True, False)] for found in (updates, steps))
        print(
            f"simple_cnn_mnist (paper), batch {batch_size}: in one kernel Adam's update takes"
            f" {update[0] / update[1]:.2f} of its time ({1e3 * update[0]:.1f} for {1e3 * update[1]:.1f} ms),"
            f" a step {step[0] / step[1]:.2f}"
        )


def measure_workload(name: str, size: str, threads: int) -> None:
    """A run to the target at batch 64; at paper size, examples a second over a few steps."""
    workload = find_workload(name, size)
    max_steps = None
    if size == "paper":
        workload, max_steps = replace(workload, evaluation_examples=64), 3
    record = train(workload, optimizer_of(name), 64, GOOD[name], max_steps=max_steps, threads=threads)
    training = record.seconds - record.evaluation_seconds
    line = f"{name} ({size}): {record.examples / training:,.0f} examples/s"
    if size == "laptop":
        share = record.evaluation_seconds / record.seconds
        line += f", {record.status} in {record.steps_taken} steps, {record.seconds:.1f} s"
        line += f", evaluation {share:.0%} of the time and by examples {share_verdict(record)}"
    print(line, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=1)
    threads = parser.parse_args().threads
    if is_present("mnist"):
        compare_loops(threads)
        compare_layouts(threads)
    compare_adams(threads)
    for size in ("laptop", "paper"):
        for name in WORKLOADS:
            if is_present(DATA[name]):
                measure_workload(name, size, threads)
            else:
                print(f"{name} ({size}): skipped, no data here (batchlens data fetch {DATA[name]})")


if __name__ == "__main__":
    main()
