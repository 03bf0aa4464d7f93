"""What K-FAC costs and what it brings, before and after it was made cheaper.

    python benchmarks/bench_kfac.py [--threads 1] [--seeds 4] [--only cost|steps] [--paper]

"Before" is K-FAC with fixed intervals, full statistics and full inverses (frequent_start=0, input_examples=0, rank=0)
and the defaults that went with them, damping 0.01 and kl_clip 0.001. Cost is in momentum steps of the same model and
batch: of a step that renews nothing, one that renews the factors, one that renews the inverses too, and the mean over
the first 100 steps and over later ones. Steps of both optimizers are timed in turn, in time of the processor, which
other programs disturb least; the fastest of each kind counts.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from batchlens.kfac import KFAC
from batchlens.kfac._intervals import is_due
from batchlens.training._recipes import RECIPES, Task
from batchlens.training.loop import train
from batchlens.training.workloads import find_workload

BEFORE = {"frequent_start": 0.0, "input_examples": 0.0, "rank": 0.0, "damping": 1e-2, "kl_clip": 1e-3}
COSTS = (
    ("digits", "laptop", 64),
    ("simple_cnn_mnist", "laptop", 64),
    ("simple_cnn_mnist", "laptop", 256),
    ("simple_cnn_mnist", "laptop", 1024),
    ("resnet8_cifar10", "laptop", 256),
    ("transformer_lm1b", "laptop", 64),
)
PAPER = (("simple_cnn_mnist", "paper", 64), ("simple_cnn_mnist", "paper", 256))
STEPS = (("digits", 64), ("digits", 512), ("simple_cnn_mnist", 256), ("simple_cnn_mnist", 512))
MOMENTUM = ((0.01, 0.95), (0.03, 0.9), (0.03, 0.95), (0.1, 0.9), (0.1, 0.95), (0.3, 0.9))
BUDGET, ROUNDS, PLAIN_STEPS = 200, 5, 4


@dataclass(frozen=True)
class Cost:
    """Seconds of a momentum step, and steps of K-FAC by kind in units of it."""

    momentum: float
    plain: float
    factors: float
    inverses: float
    settings: dict[str, float]

    def mean(self, first: int, last: int) -> float:
        """Over the steps from `first` to before `last`."""
        due = [[self._due(step, name) for name in ("factor_every", "inverse_every")] for step in range(first, last)]
        return statistics.mean(
            self.plain + factor * (self.factors - self.plain) + inverse * (self.inverses - self.factors)
            for factor, inverse in due
        )

    def _due(self, step: int, interval: str) -> bool:
        return is_due(step, int(self.settings[interval]), bool(self.settings["frequent_start"]))


def settings_of(workload: str, size: str, changes: dict[str, float]) -> dict[str, float]:
    """All settings of a run, as its defaults and `changes` have it."""
    own = {name: setting.default for name, setting in RECIPES["kfac"].settings.items() if setting.default is not None}
    return {**own, **find_workload(workload, size).defaults.get("kfac", {}), **changes, "learning_rate": 1e-3}


def make_optimizer(model: nn.Module, settings: dict[str, float]) -> KFAC:
    return RECIPES["kfac"].build(model, settings, Task())  # type: ignore[return-value]


def make_model(workload: str, size: str) -> nn.Module:
    model: nn.Module = find_workload(workload, size).model()
    return model.to(memory_format=torch.channels_last)  # type: ignore[call-overload, no-any-return]


def make_batch(workload: str, size: str, examples: int) -> tuple[Tensor, Tensor]:
    if workload == "transformer_lm1b":
        vocabulary, length = (1024, 32) if size == "laptop" else (32_000, 64)
        return torch.randint(vocabulary, (examples, length)), torch.randint(vocabulary, (examples, length))
    shape = {"digits": (64,), "resnet8_cifar10": (3, 32, 32)}.get(workload, (1, 28, 28))
    inputs = torch.randn(examples, *shape)
    if len(shape) == 3:
        inputs = inputs.to(memory_format=torch.channels_last)
    return inputs, torch.randint(10, (examples,))


def stepper(model: nn.Module, optimizer: torch.optim.Optimizer, inputs: Tensor, targets: Tensor) -> Callable[[], float]:
    """A function that takes one step and says how long the processor took."""

    def step() -> float:
        start = time.process_time()
        optimizer.zero_grad()
        outputs = model(inputs)
        if isinstance(optimizer, KFAC):
            optimizer.observe(outputs)
        functional.cross_entropy(outputs.flatten(0, -2), targets.flatten()).backward()
        optimizer.step()
        return time.process_time() - start

    return step


def measure_cost(workload: str, size: str, examples: int, changes: dict[str, float]) -> Cost:
    settings = settings_of(workload, size, changes)
    factor_every, inverse_every = int(settings["factor_every"]), int(settings["inverse_every"])
    inputs, targets = make_batch(workload, size, examples)
    models = make_model(workload, size), make_model(workload, size)
    plain = stepper(models[0], torch.optim.SGD(models[0].parameters(), lr=1e-3, momentum=0.9), inputs, targets)
    optimizer = make_optimizer(models[1], settings)
    ours = stepper(models[1], optimizer, inputs, targets)
    plain()
    ours()
    seconds: dict[str, list[float]] = {"momentum": [], "inverses": [], "factors": [], "plain": []}
    for _ in range(ROUNDS):
        turn = 100 * factor_every * inverse_every
        numbers = [("inverses", turn), ("factors", turn + factor_every)]
        numbers += [("plain", turn + factor_every + 1 + number) for number in range(PLAIN_STEPS)]
        for kind, number in numbers:
            optimizer._steps = number
            seconds[kind].append(ours())
            seconds["momentum"].append(plain())
    unit = min(seconds["momentum"])
    costs = {kind: min(times) / unit for kind, times in seconds.items()}
    return Cost(unit, costs["plain"], costs["factors"], costs["inverses"], settings)


def print_costs(cells: tuple[tuple[str, str, int], ...]) -> None:
    print("| workload | batch | momentum, ms | | plain | factors | inverses | first 100 | later |")
    print("|---|---|---|---|---|---|---|---|---|")
    for workload, size, examples in cells:
        for when, changes in (("before", BEFORE), ("after", {})):
            cost = measure_cost(workload, size, examples, changes)
            kinds = " | ".join(f"{part:.2f}" for part in (cost.plain, cost.factors, cost.inverses))
            means = f"{cost.mean(0, 100):.2f} | {cost.mean(100, 200):.2f}"
            label = f"{workload}, {size} | {examples} | {1e3 * cost.momentum:.1f}"
            print(f"| {label} | {when} | {kinds} | {means} |", flush=True)


def mean_steps(workload: str, examples: int, seeds: int, changes: dict[str, float]) -> float:
    settings = {"learning_rate": 0.1, **changes}
    records = [
        train(workload, "kfac", examples, settings, seed=seed, max_steps=BUDGET, threads=1) for seed in range(seeds)
    ]
    return statistics.mean(record.steps or BUDGET for record in records)


def best_momentum(workload: str, examples: int, seeds: int) -> float:
    """The fewest mean steps over a grid, which is tuning by hand."""
    found = []
    for rate, momentum in MOMENTUM:
        settings = {"learning_rate": rate, "momentum": momentum}
        steps = [
            train(workload, "momentum", examples, settings, seed=seed, max_steps=BUDGET, threads=1).steps or BUDGET
            for seed in range(seeds)
        ]
        found.append(statistics.mean(steps))
    return min(found)


def print_steps(seeds: int) -> None:
    full = {"input_examples": 0.0, "rank": 0.0}
    print(f"mean steps to target over {seeds} seeds; {BUDGET} is a target missed")
    print("| workload | batch | before | after | after, in full | momentum, best of 6 settings |")
    print("|---|---|---|---|---|---|")
    for workload, examples in STEPS:
        ours = [f"{mean_steps(workload, examples, seeds, changes):.1f}" for changes in (BEFORE, {}, full)]
        theirs = f"{best_momentum(workload, examples, min(seeds, 2)):.1f}"
        print(f"| {workload}, laptop | {examples} | {' | '.join(ours)} | {theirs} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--only", choices=("cost", "steps"))
    parser.add_argument("--paper", action="store_true", help="also the cost at paper size")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    if arguments.only != "steps":
        print_costs(COSTS + PAPER if arguments.paper else COSTS)
    if arguments.only != "cost":
        print_steps(arguments.seeds)


if __name__ == "__main__":
    main()
