"""Time to tune: rules and schedules at every batch size, against the paper's recipe, bins and steps.

One core, CPU time, best of three, after a first call that compiles or loads what is needed.  The cells are those of
the paper's figures: 10 batch sizes by 4 powers of preconditioning, d = 10^4 in 100 bins rounded down, target 0.01.

    python benchmarks/bench_tuning.py
"""

from __future__ import annotations

import os

for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ[name] = "1"  # read when numpy is loaded

import time  # noqa: E402
from collections.abc import Callable  # noqa: E402
from typing import TypeVar  # noqa: E402

import numpy as np  # noqa: E402
import paper_recipe  # noqa: E402

import batchlens as bl  # noqa: E402

_T = TypeVar("_T")

FULL = bl.NoisyQuadratic.power_law(dim=10_000)
PAPER = FULL.binned(100, rounding="down")
TARGET = 0.01
BATCH_SIZES = [4**k for k in range(1, 11)]
POWERS = (0.0, 0.25, 0.5, 0.75)
# Seconds that the 40 cells may take, where a limit is set.
LIMITS = {"momentum": 1.0, "sgd+ema": 1.0}
SCHEDULES_LIMIT = 3.0
RECIPE_CELLS = ((0.0, 256), (0.0, 65_536), (0.5, 4_096))
BINS = (100, 300, 1000, 3000, 10_000)
TARGETS = (1.0, 0.1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6)


def best_time(call: Callable[[], _T], repeats: int = 3) -> tuple[float, _T]:
    """The least CPU time of several calls, in seconds, and what they return."""
    times = []
    for _ in range(repeats):
        begin = time.process_time()
        answer = call()
        times.append(time.process_time() - begin)
    return min(times), answer


def tune_cells(family: str) -> list[bl.Tuned]:
    return [bl.tune(PAPER, family, size, TARGET, power) for power in POWERS for size in BATCH_SIZES]


def plan_schedules() -> list[bl.Schedule]:
    return [bl.optimal_schedule(PAPER, size, TARGET, pieces=50) for size in BATCH_SIZES]


def print_cells() -> None:
    print(f"{'all cells':34}{'seconds':>9}{'limit':>8}{'ms each':>10}")
    for family in ("sgd", "momentum", "nesterov", "sgd+ema", "momentum+ema"):
        seconds, found = best_time(lambda family=family: tune_cells(family))  # type: ignore[misc]
        print_row(f"{len(found)} cells, {family}", seconds, LIMITS.get(family), len(found))
    seconds, plans = best_time(plan_schedules)
    print_row(f"{len(plans)} schedules of 50 pieces, power 0", seconds, SCHEDULES_LIMIT, len(plans))


def print_row(name: str, seconds: float, limit: float | None, many: int) -> None:
    print(f"{name:34}{seconds:>9.3f}{'' if limit is None else f'{limit:.1f}':>8}{seconds / many * 1e3:>10.2f}")


def print_recipe() -> None:
    """The recipe takes seconds a cell, and is timed once."""
    columns = PAPER.curvature, PAPER.noise, PAPER.initial, PAPER.count
    print(f"\n{'momentum, against the recipe':34}{'batchlens':>12}{'recipe':>11}{'ratio':>9}{'steps':>9}{'recipe':>9}")
    for power, size in RECIPE_CELLS:
        seconds, best = best_time(lambda p=power, b=size: bl.tune(PAPER, "momentum", b, TARGET, p))  # type: ignore[misc]
        recipe_seconds, grid = best_time(
            lambda p=power, b=size: paper_recipe.tune_on_grid(*columns, b, TARGET, p),  # type: ignore[misc]
            repeats=1,
        )
        print(
            f"{f'power {power}, batch size {size:,}':34}{seconds * 1e3:>9.2f} ms{recipe_seconds:>9.2f} s"
            f"{recipe_seconds / seconds:>8.0f}x{best.steps:>9,}{grid.steps:>9,}"
        )
    seconds, _ = best_time(lambda: bl.tune(PAPER, "momentum", 256, TARGET))
    rules = sample_recipe_rules()
    recipe_seconds = 10 * best_time(lambda: run_plain_recipe(rules), repeats=1)[0]
    print(
        f"{'power 0.0, batch size 256, plain *':34}{seconds * 1e3:>9.2f} ms{recipe_seconds:>9.2f} s"
        f"{recipe_seconds / seconds:>8.0f}x"
    )
    print(f"* rule by rule and coordinate by coordinate: ten times a tenth of the grid, {len(rules)} rules")


def sample_recipe_rules() -> list[bl.UpdateRule]:
    """Every tenth learning rate of the recipe's grid at batch size 256, for each of its momenta."""
    rules = []
    for momentum in paper_recipe.MOMENTA.tolist():
        rates = 2 * (1 + momentum) * 10 ** (-np.arange(1, 600) / paper_recipe.RATES_PER_DECADE)
        stable = [bl.UpdateRule(rate, momentum) for rate in rates]
        low = [rule for rule in stable if bl.steady_state_risk(PAPER, rule, 256) < TARGET]
        rules += low[: paper_recipe.DECADES * paper_recipe.RATES_PER_DECADE : 10]
    return rules


def run_plain_recipe(rules: list[bl.UpdateRule]) -> None:
    columns = PAPER.curvature, PAPER.noise, PAPER.initial, PAPER.count
    for rule in rules:
        rates = np.array([rule.learning_rate])
        paper_recipe.bisect(paper_recipe.decompose_one_by_one(*columns, rates, rule.momentum, 256), TARGET)


def print_bins() -> None:
    print(f"\n{'number of bins (batch size 256)':34}{'momentum':>12}{'a bin':>10}{'schedule':>13}{'a bin':>10}")
    for bins in BINS:
        problem = FULL if bins == FULL.curvature.size else FULL.binned(bins)
        entries = problem.curvature.size
        name = f"{bins:,}, no two coordinates in one" if problem is FULL else f"{bins:,}, {entries:,} of them used"
        tune, _ = best_time(lambda p=problem: bl.tune(p, "momentum", 256, TARGET))  # type: ignore[misc]
        plan, _ = best_time(lambda p=problem: bl.optimal_schedule(p, 256, TARGET))  # type: ignore[misc]
        print(
            f"{name:34}{tune * 1e3:>9.1f} ms{tune / entries * 1e6:>7.0f} us"
            f"{plan * 1e3:>10.1f} ms{plan / entries * 1e6:>7.0f} us"
        )


def print_steps() -> None:
    print(f"\n{'number of steps (batch size 1)':34}{'momentum':>12}{'steps':>17}{'sgd+ema':>13}{'steps':>17}")
    for target in TARGETS:
        line = f"{f'target {target:g}':34}"
        for family, width in (("momentum", 9), ("sgd+ema", 10)):
            seconds, best = best_time(lambda f=family, t=target: bl.tune(PAPER, f, 1, t))  # type: ignore[misc]
            line += f"{seconds * 1e3:>{width}.1f} ms{best.steps:>17,}"
        print(line)


def main() -> None:
    """Measure and print."""
    for family in ("nesterov", "momentum+ema"):
        bl.tune(PAPER, family, 4**10, TARGET, 0.75)
    bl.optimal_schedule(PAPER, 4**10, 1.0)
    print_cells()
    print_recipe()
    print_bins()
    print_steps()


if __name__ == "__main__":
    main()
