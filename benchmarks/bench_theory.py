"""Time of the theory engine against the paper's recipe (a 3 x 3 eigendecomposition per coordinate, bisection).

The recipe is timed in three ways, from the plainest to the best that numpy allows.  Every time is the best of several
repeats in one run, after a first call that compiles or loads what is needed.

    python benchmarks/bench_theory.py
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import paper_recipe

import batchlens as bl

if TYPE_CHECKING:
    from collections.abc import Callable

FULL = bl.NoisyQuadratic.power_law(dim=10_000)
BINNED = FULL.binned(100, rounding="down")
RULE = bl.UpdateRule(learning_rate=5e-3, momentum=0.99)
BATCH_SIZE = 256
TARGET = 0.01
STEPS = [1, 10, 100, 1000, 3000, 10_000, 30_000, 10**5, 10**6, 10**9]


class Row(NamedTuple):
    """A question, the seconds that engine and recipe take, and what they answer."""

    question: str
    engine_seconds: float
    recipe_seconds: float
    engine_answer: str
    recipe_answer: str


def best_time(repeats: int, call: Callable[[], object]) -> float:
    """The least of several times, in seconds, of one call."""
    call()
    times = []
    for _ in range(repeats):
        begin = time.perf_counter()
        call()
        times.append(time.perf_counter() - begin)
    return min(times)


def measure_risk() -> Row:
    """The recipe decomposes once for all step counts."""
    columns = (FULL.curvature, FULL.noise, FULL.initial, FULL.count)

    def ask_engine() -> list[float]:
        return [float(risk) for risk in bl.risk(FULL, RULE, BATCH_SIZE, STEPS)]

    def ask_recipe() -> list[float]:
        rate = np.array([RULE.learning_rate])
        modes = paper_recipe.decompose(*columns, rate, RULE.momentum, BATCH_SIZE)
        return [float(modes.risk(np.array([float(steps)]))[0]) for steps in STEPS]

    times = best_time(20, ask_engine), best_time(3, ask_recipe)
    answers = (" ".join(f"{risk:.6g}" for risk in ask()) for ask in (ask_engine, ask_recipe))
    return Row("risk at 10 step counts, 10,000 coordinates", *times, *answers)


def measure_steps() -> list[Row]:
    """The recipe three ways: bisection over a risk that decomposes anew each time, one coordinate after the other, and
    all coordinates decomposed once in one call."""
    columns = (BINNED.curvature, BINNED.noise, BINNED.initial, BINNED.count)
    rates = np.array([RULE.learning_rate])

    def ask_engine() -> int | None:
        return bl.steps_to_target(BINNED, RULE, BATCH_SIZE, TARGET)

    def ask_anew() -> int:
        def risk(steps: int) -> float:
            return paper_recipe.risk(*columns, RULE.learning_rate, RULE.momentum, BATCH_SIZE, steps)

        low, high = 0, 1
        while risk(high) > TARGET:
            low, high = high, 2 * high
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if risk(middle) <= TARGET else (middle, high)
        return high

    def ask_one_by_one() -> int:
        modes = paper_recipe.decompose_one_by_one(*columns, rates, RULE.momentum, BATCH_SIZE)
        return int(paper_recipe.bisect(modes, TARGET)[0])

    def ask_at_once() -> int:
        modes = paper_recipe.decompose(*columns, rates, RULE.momentum, BATCH_SIZE)
        return int(paper_recipe.bisect(modes, TARGET)[0])

    seconds = best_time(200, ask_engine)
    ways = {"anew for every risk": ask_anew, "one by one": ask_one_by_one, "in one call": ask_at_once}
    return [
        Row(f"steps_to_target, 100 bins; recipe {name}", seconds, best_time(10, ask), str(ask_engine()), str(ask()))
        for name, ask in ways.items()
    ]


def main() -> None:
    """Measure and print."""
    rows = [measure_risk(), *measure_steps()]
    print(f"momentum {RULE.momentum}, learning rate {RULE.learning_rate}, batch size {BATCH_SIZE}, target {TARGET}")
    print(f"{'':52}{'batchlens':>12}{'paper recipe':>15}{'ratio':>8}")
    for row in rows:
        ratio = row.recipe_seconds / row.engine_seconds
        times = f"{row.engine_seconds * 1e3:>9.3f} ms{row.recipe_seconds * 1e3:>12.2f} ms"
        print(f"{row.question:52}{times}{ratio:>7.1f}x")
    print("answers")
    for row in rows:
        same = "the same" if row.engine_answer == row.recipe_answer else "not the same"
        print(f"  {row.question}: {same}")
        print(f"    batchlens     {row.engine_answer}")
        print(f"    paper recipe  {row.recipe_answer}")


if __name__ == "__main__":
    main()
