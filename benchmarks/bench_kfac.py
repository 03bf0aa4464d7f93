"""What K-FAC costs: a step over a momentum step, where the time goes, and memory beside the parameters'.

    python benchmarks/bench_kfac.py [--threads 2]

Simple CNN of laptop size at batch 256, at the intervals with which tests/training/test_kfac_training.py compares
steps to target. Steps of both optimizers are timed in turn: what slows the machine down slows both.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from batchlens.kfac import KFAC
from batchlens.training._recipes import RECIPES
from batchlens.training.workloads import find_workload

BATCH_SIZE, ROUNDS, LIMIT = 256, 9, 2.0


def intervals() -> tuple[int, int]:
    """How often factors and inverses are renewed unless a run says otherwise."""
    settings = RECIPES["kfac"].settings
    factor_every, inverse_every = (settings[name].default for name in ("factor_every", "inverse_every"))
    assert factor_every is not None
    assert inverse_every is not None
    return int(factor_every), int(inverse_every)


def make_model() -> nn.Module:
    model: nn.Module = find_workload("simple_cnn_mnist").model()
    return model.to(memory_format=torch.channels_last)  # type: ignore[call-overload, no-any-return]


def stepper(model: nn.Module, optimizer: torch.optim.Optimizer, inputs: Tensor, targets: Tensor) -> Callable[[], float]:
    """A function that takes one step and says how long it took."""

    def step() -> float:
        start = time.perf_counter()
        optimizer.zero_grad()
        outputs = model(inputs)
        if isinstance(optimizer, KFAC):
            optimizer.observe(outputs)
        functional.cross_entropy(outputs, targets).backward()
        optimizer.step()
        return time.perf_counter() - start

    return step


def time_extra_backward() -> list[float]:
    """From now on, how long every backward pass of a Fisher takes."""
    seconds: list[float] = []
    compute = torch.autograd.grad

    def timed(*arguments: Any, **options: Any) -> Any:
        start = time.perf_counter()
        found = compute(*arguments, **options)
        seconds.append(time.perf_counter() - start)
        return found

    torch.autograd.grad = timed
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=2)
    torch.set_num_threads(parser.parse_args().threads)
    factor_every, inverse_every = intervals()
    inputs = torch.randn(BATCH_SIZE, 1, 28, 28).to(memory_format=torch.channels_last)
    targets = torch.randint(10, (BATCH_SIZE,))
    models = make_model(), make_model()
    plain = stepper(models[0], torch.optim.SGD(models[0].parameters(), lr=1e-3, momentum=0.9), inputs, targets)
    optimizer = KFAC(models[1], lr=1e-3, factor_every=factor_every, inverse_every=inverse_every)
    ours = stepper(models[1], optimizer, inputs, targets)
    plain()
    extra = time_extra_backward()
    steps: dict[str, list[float]] = {"momentum": [], "step": [], "factors": [], "inverses": []}
    ratios = []
    for _ in range(ROUNDS):
        pairs = []
        for number in range(inverse_every):
            kind = "inverses" if number == 0 else "factors" if number % factor_every == 0 else "step"
            pairs.append((ours(), plain()))
            steps[kind].append(pairs[-1][0])
            steps["momentum"].append(pairs[-1][1])
        ratios.append(sum(pair[0] for pair in pairs) / sum(pair[1] for pair in pairs))
    unit = statistics.median(steps["momentum"])
    cost = {kind: statistics.median(times) / unit for kind, times in steps.items()}
    print(
        f"simple_cnn_mnist (laptop), batch {BATCH_SIZE}, factors every {factor_every}, inverses every {inverse_every}"
    )
    ratio = statistics.median(ratios)
    print(
        f"K-FAC takes {ratio:.2f} of momentum's time (median of {ROUNDS} rounds of {inverse_every};"
        f" {min(ratios):.2f} to {max(ratios):.2f}): {'within' if ratio <= LIMIT else 'OVER'} {LIMIT}"
    )
    backward = statistics.median(extra) / unit
    print(
        f"in momentum steps: preconditioning {cost['step'] - 1:.2f} a step; the extra backward pass {backward:.2f} and"
        f" factors {cost['factors'] - cost['step'] - backward:.2f} every {factor_every}; inverses"
        f" {cost['inverses'] - cost['factors']:.2f} every {inverse_every}"
    )
    parameters = sum(weight.numel() for weight in models[1].parameters())
    factors = sum(factor.numel() for pair in optimizer.factors().values() for factor in pair)
    print(f"memory: factors {factors / parameters:.2f} and inverses {factors / parameters:.2f} of the parameters'")


if __name__ == "__main__":
    main()
