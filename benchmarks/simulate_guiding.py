"""What guided search is worth: made-up tuning problems at eight batch sizes, 40 runs a cell.

Prints how far the chosen setting's steps, without noise, are above the best: the geometric mean over cells, and the
worst of eight cells (mean over problems); then the steps of the search, in runs of the best setting.

    python benchmarks/simulate_guiding.py [replications]
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import qmc

from batchlens._arrays import FloatArray
from batchlens.sweep._guiding import Guide, Point, Seen, best_guess, propose

NOISE = 0.11
KEEP = 4  # runs known exactly at every round's end
FINALISTS, SEEDS = 2, 3
LOG_BATCH = np.log(2.0) * np.arange(3, 11)
CLIFF = 0.6
REACH = (-0.5, 1.5)


@dataclass(frozen=True)
class Problem:
    """Log steps above the best by cell and points (inf where it diverges), and how far above the budget ends."""

    dimensions: int
    above: Callable[[int, FloatArray], FloatArray]
    budget: float


@dataclass(frozen=True)
class Method:
    """A way to search: its constants, whether batch sizes share what they know, and how long a race waits for four."""

    guide: Guide
    share: bool = True
    patience: float = 1.85  # a race is over between 1.5 and 2.25 times the steps of the first to arrive


def rate_curve(rate: FloatArray, cliff: float = CLIFF) -> FloatArray:
    """Half the rate, double the steps; too high a rate is soon punished, and then diverges."""
    value = np.logaddexp(-rate, 2 * rate - np.log(2.0)) - np.log(1.5)
    return np.asarray(np.where(rate > cliff, np.inf, value))


def optimum(random: np.random.Generator, low: float, high: float, drift: float) -> FloatArray:
    """Where a setting is best at each batch size: it grows with batch size and levels off, with some jitter."""
    at, half = random.uniform(low, high), random.uniform(LOG_BATCH[1], LOG_BATCH[-2])
    curve = -np.logaddexp(0.0, half - LOG_BATCH) * drift * random.uniform(0.5, 1.0)
    return np.asarray(at + curve - curve.mean() + 0.15 * random.standard_normal(len(LOG_BATCH)))


def nats(points: FloatArray, dimension: int, decades: float = 3.0) -> FloatArray:
    return np.asarray(points[:, dimension] * decades * np.log(10.0))


def sgd(random: np.random.Generator) -> Problem:
    best = optimum(random, 2.5, 5.0, 1.0)
    return Problem(1, lambda cell, x: rate_curve(nats(x, 0) - best[cell]), 3.0)


def momentum(random: np.random.Generator) -> Problem:
    rate, damp = optimum(random, 2.0, 3.5, 1.0), optimum(random, 3.0, 5.0, -0.5)

    def above(cell: int, x: FloatArray) -> FloatArray:
        away = nats(x, 1) - damp[cell]  # of log(1 - momentum), upwards
        return np.asarray(rate_curve(nats(x, 0) - rate[cell] - 0.9 * away) + 0.12 * away**2 / (1 + 0.1 * np.abs(away)))

    return Problem(2, above, 3.0)


def adam(random: np.random.Generator) -> Problem:
    rate, first, second = (optimum(random, 2.5, 4.5, drift) for drift in (0.5, -0.4, 0.4))
    large = random.uniform(4.0, 6.0)

    def above(cell: int, x: FloatArray) -> FloatArray:
        one, two = nats(x, 1) - first[cell], nats(x, 2, 4.0) - 1.3 * second[cell]
        epsilon = np.logaddexp(0.0, nats(x, 3) - large)
        rates = nats(x, 0) - rate[cell] - 0.4 * one - 0.7 * epsilon
        return np.asarray(rate_curve(rates, 1.0) + 0.08 * one**2 + 0.03 * two**2 + 0.1 * epsilon)

    return Problem(4, above, 2.5)


def kfac(random: np.random.Generator) -> Problem:
    rate, damp = optimum(random, 2.5, 4.5, 0.5), optimum(random, 3.0, 5.0, -0.5)
    damping, clip, decay = (optimum(random, 2.5, 4.5, drift) for drift in (-0.5, 0.5, 0.3))

    def above(cell: int, x: FloatArray) -> FloatArray:
        away, thick = nats(x, 1) - damp[cell], nats(x, 2, 4.0) - 1.3 * damping[cell]
        clipped, slow = nats(x, 3, 4.0) - 1.3 * clip[cell], nats(x, 4) - decay[cell]
        rates = nats(x, 0) - rate[cell] - 0.8 * away - 0.3 * thick
        bends = 0.1 * away**2 + 0.06 * thick**2 + 0.05 * clipped**2 + 0.03 * slow**2
        return np.asarray(rate_curve(rates, 1.0) + bends)

    return Problem(5, above, 1.7)


PROBLEMS = {"sgd, 1": sgd, "momentum, 2": momentum, "adam, 4": adam, "kfac, 5": kfac}


def race(
    points: Sequence[Point], log_steps: FloatArray, past: list[Seen], budget: float, patience: float
) -> list[Seen]:
    """What a round leaves known: runs beyond the fourth best so far, or far beyond the best, are stopped there."""
    reached = sorted([*(run.log_steps for run in past if not run.censored), *log_steps[log_steps < budget].tolist()])
    cap = reached[KEEP - 1] if len(reached) >= KEEP else budget
    cap = min(cap, reached[0] + np.log(patience)) if reached else cap
    return past + [Seen(p, float(min(y, cap)), bool(y > cap)) for p, y in zip(points, log_steps, strict=True)]


def search(problem: Problem, method: Method, seed: int) -> tuple[FloatArray, float]:
    """Every cell's log steps above the best of the setting chosen, and the search's cost in best runs a cell."""
    cells, random = range(len(LOG_BATCH)), np.random.default_rng((seed, 1))
    seen: list[list[Seen]] = [[] for _ in cells]
    for round_, count in enumerate(method.guide.rounds):
        proposed = _propose(round_, count, seen, method, problem.dimensions, seed)
        for cell in cells:
            noisy = problem.above(cell, np.array(proposed[cell])) + NOISE * random.standard_normal(count)
            seen[cell] = race(proposed[cell], noisy, seen[cell], problem.budget, method.patience)
    ranking: list[list[int]] = []
    for group in _groups(method):
        known, reach = [seen[cell] for cell in group], [[REACH] * problem.dimensions for _ in group]
        guess = best_guess([LOG_BATCH[cell] for cell in group], known, reach, method.guide)
        ranking += [[ranked.number for ranked in own] for own in guess]
    cost = float(np.mean([sum(np.exp(run.log_steps) for run in own) for own in seen]))
    return np.array([_decide(problem, cell, seen[cell], ranking[cell], random) for cell in cells]), cost


def _groups(method: Method) -> list[list[int]]:
    """The cells that know of each other."""
    cells = list(range(len(LOG_BATCH)))
    return [cells] if method.share else [[cell] for cell in cells]


def _propose(
    round_: int, count: int, seen: list[list[Seen]], method: Method, dimensions: int, seed: int
) -> list[list[Point]]:
    if not round_:
        sobol = [qmc.Sobol(dimensions, rng=np.random.default_rng((seed, cell))) for cell in range(len(seen))]
        return [[tuple(p) for p in s.random(1 << (count - 1).bit_length())[:count].tolist()] for s in sobol]
    proposed: list[list[Point]] = []
    for group in _groups(method):
        sizes, known = [LOG_BATCH[cell] for cell in group], [seen[cell] for cell in group]
        reach, seeds = [[REACH] * dimensions for _ in group], [1000 * seed + cell for cell in group]
        proposed += propose(round_, count, sizes, known, reach, seeds, method.guide)
    return proposed


def _decide(problem: Problem, cell: int, seen: list[Seen], ranking: list[int], random: np.random.Generator) -> float:
    """The better of the finalists on fresh seeds; the whole budget where no run reached the target."""
    if not ranking:
        return problem.budget
    true = problem.above(cell, np.array([seen[number].point for number in ranking[:FINALISTS]]))
    fresh = true + NOISE / np.sqrt(SEEDS) * random.standard_normal(len(true))
    return float(min(true[np.argmin(fresh)], problem.budget))


def table(methods: dict[str, Method], replications: int) -> None:
    """Geometric mean and worst cell in percent for every problem and method."""
    print(f"{'percent above the best':28}" + "".join(f"{name:>21}" for name in PROBLEMS))
    for label, method in methods.items():
        row = ""
        for make in PROBLEMS.values():
            found = [search(make(np.random.default_rng((7, k))), method, k) for k in range(replications)]
            lost, cost = np.array([above for above, _ in found]), np.mean([cost for _, cost in found])
            mean, worst = np.mean(lost), np.mean(np.max(lost, axis=1))
            row += f"{100 * np.expm1(mean):9.1f} /{100 * np.expm1(worst):4.0f} {cost:5.0f}"
        print(f"{label:28}{row}", flush=True)


if __name__ == "__main__":
    table(
        {
            "Sobol 34": Method(Guide(rounds=(34,), shrink=0.0), share=False),
            "guided, every cell alone": Method(Guide(), share=False),
            "guided": Method(Guide()),
            "guided, 14+7+7+6": Method(Guide(rounds=(14, 7, 7, 6))),
            "guided, 12+6+6+5": Method(Guide(rounds=(12, 6, 6, 5))),
            "guided, 12+5+4+4+4": Method(Guide(rounds=(12, 5, 4, 4, 4))),
            "the same, waiting for four": Method(Guide(rounds=(12, 5, 4, 4, 4)), patience=np.inf),
        },
        int(sys.argv[1]) if len(sys.argv) > 1 else 20,
    )
