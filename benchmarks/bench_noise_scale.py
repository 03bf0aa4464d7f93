"""What measuring the noise scale costs, in steps of the same training without it.

    python benchmarks/bench_noise_scale.py [--threads 1] [--rounds 15]

Steps with and without are timed in turn, in time of the processor, which other programs disturb least; the fastest of
each counts. The model is the paper's Simple CNN at batch 256, trained by SGD with momentum. Micro-batches are four of
64. The first step, which checks once that examples add up, is not timed. Ends with status 1 where a default is
above its limit.
"""

import argparse
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from batchlens.monitor.noise_scale import NoiseScale
from batchlens.training.models._simple_cnn import SimpleCNN

BATCH = 256
LIMITS = {"micro_batches": 0.05, "examples": 0.15}
CASES: tuple[tuple[str, dict[str, Any]], ...] = (
    ("micro_batches", {}),
    ("micro_batches", {"geometry": "adam"}),
    ("micro_batches", {"geometry": "l1"}),
    ("examples", {}),
    ("examples", {"examples": None}),
    ("examples", {"examples": None, "every": 10}),
    ("examples", {"geometry": "adam"}),
)


def stepper(by: str, settings: dict[str, Any], measured: bool) -> Callable[[], float]:
    """A function that takes one step and says how long the processor took."""
    torch.manual_seed(0)
    model = SimpleCNN().to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    adam = settings.get("geometry") == "adam"
    optimizer = torch.optim.Adam(model.parameters()) if adam else torch.optim.SGD(model.parameters(), 0.01, 0.9)
    noise = None
    if measured:
        noise = NoiseScale(model, by=by, **settings | ({"geometry": optimizer} if adam else {}))
    images = torch.randn(BATCH, 1, 28, 28).to(memory_format=torch.channels_last)
    labels = torch.randint(10, (BATCH,))
    parts = 4 if by == "micro_batches" else 1

    def step() -> float:
        start = time.process_time()
        optimizer.zero_grad()
        for inputs, targets in zip(images.chunk(parts), labels.chunk(parts), strict=True):
            (loss(model, inputs, targets) / parts).backward()
        if noise is not None:
            noise.step()
        optimizer.step()
        return time.process_time() - start

    return step


def loss(model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
    return functional.cross_entropy(model(inputs), targets)


def measure(by: str, settings: dict[str, Any], rounds: int) -> tuple[float, float]:
    """Seconds of a step without, and what a step with it takes in units of that, averaged over `every`."""
    every = settings.get("every", 1)
    plain = stepper(by, settings, measured=False)
    ours = stepper(by, settings, measured=True)
    for _ in range(every + 1):
        plain(), ours()
    without, measured = [], []
    for _ in range(rounds):
        without.append(plain())
        measured.append(sum(ours() for _ in range(every)) / every)
    return min(without), min(measured) / min(without)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=15)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    print("| small batches | settings | plain step, ms | cost of measuring | allowed by default |")
    print("|---|---|---|---|---|")
    above = []
    for by, settings in CASES:
        seconds, ratio = measure(by, settings, arguments.rounds)
        words = ", ".join(f"{name}={value}" for name, value in settings.items()) or "default"
        limit = f"{LIMITS[by]:.0%}" if not settings else ""
        print(f"| {by} | {words} | {1e3 * seconds:.0f} | {ratio - 1:.1%} | {limit} |", flush=True)
        if not settings and ratio - 1 > LIMITS[by]:
            above.append(by)
    if above:
        print(f"Above what is allowed: {', '.join(above)}.")
    return 1 if above else 0


if __name__ == "__main__":
    sys.exit(main())
