"""Which damping and which bound of the trust region K-FAC has by default.

    python benchmarks/sweep_kfac_defaults.py [--workloads digits,simple_cnn_mnist] [--pairs 0.01:0.001,0.03:0.001]

The rule, fixed before any result was seen. Every pair of the grid below is run on every cell (a workload at a batch
size), at learning rate 0.1, momentum 0.9 and all other settings as they are by default; a run that misses its target
counts with its step budget. A pair's loss on a cell is its mean steps over the seeds, divided by those of the cell's
best pair. The default is the pair with the smallest geometric mean of losses over all cells; of pairs within 3% of it,
the one with the most damping, and of those the one with the smallest bound.
"""

import argparse
import math
import statistics
from itertools import product

import torch

from batchlens.training.loop import train

DAMPINGS = (1e-2, 3e-2, 1e-1, 3e-1)
CLIPS = (3e-4, 1e-3, 3e-3, 1e-2)
# workload, batch size, seeds, step budget
CELLS = (
    ("digits", 64, 8, 300),
    ("digits", 512, 4, 150),
    ("simple_cnn_mnist", 256, 2, 150),
    ("simple_cnn_fashion_mnist", 256, 2, 200),
    ("resnet8_cifar10", 256, 1, 200),
    ("transformer_lm1b", 64, 1, 200),
)
Pair = tuple[float, float]


def mean_steps(workload: str, batch_size: int, seeds: int, budget: int, pair: Pair) -> float:
    settings = {"learning_rate": 0.1, "damping": pair[0], "kl_clip": pair[1]}
    records = [
        train(workload, "kfac", batch_size, settings, seed=seed, max_steps=budget, threads=1) for seed in range(seeds)
    ]
    return statistics.mean(record.steps or budget for record in records)


def choose(table: dict[Pair, list[float]]) -> Pair:
    """The pair that the rule takes."""
    best = [min(column) for column in zip(*table.values(), strict=True)]
    losses = {
        pair: math.exp(statistics.mean(math.log(steps / least) for steps, least in zip(row, best, strict=True)))
        for pair, row in table.items()
    }
    close = [pair for pair, loss in losses.items() if loss <= 1.03 * min(losses.values())]
    for pair, loss in losses.items():
        print(f"damping {pair[0]:g}, kl_clip {pair[1]:g}: {loss:.3f}")
    return min(close, key=lambda pair: (-pair[0], pair[1]))


def read_pairs(text: str) -> list[Pair]:
    return [(float(damping), float(clip)) for damping, clip in (pair.split(":") for pair in text.split(","))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workloads", default=",".join({cell[0]: None for cell in CELLS}))
    parser.add_argument("--pairs", help="DAMPING:CLIP,... instead of the whole grid")
    arguments = parser.parse_args()
    chosen = arguments.workloads.split(",")
    torch.set_num_threads(1)
    cells = [cell for cell in CELLS if cell[0] in chosen]
    pairs = list(product(DAMPINGS, CLIPS)) if arguments.pairs is None else read_pairs(arguments.pairs)
    table: dict[Pair, list[float]] = {pair: [] for pair in pairs}
    for cell in cells:
        print(f"{cell[0]}, batch {cell[1]}, {cell[2]} seeds, budget {cell[3]}")
        for pair in pairs:
            table[pair].append(mean_steps(*cell, pair))
            print(f"    damping {pair[0]:g}, kl_clip {pair[1]:g}: {table[pair][-1]:.1f} steps", flush=True)
    damping, clip = choose(table)
    print(f"default: damping {damping:g}, kl_clip {clip:g}")


if __name__ == "__main__":
    main()
