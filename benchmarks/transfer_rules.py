"""How many steps the rules of `batchlens transfer` lose against tuned settings, on 200 random noisy quadratics.

The problems lie around the paper's.  Of each: 100 to 10,000 coordinates (log-uniform); curvature i^-a, a uniform in
[0.75, 1.25] ("near" the 1/i that networks show) or in [0.5, 1.5] ("wide"); gradient noise c = h z, log z normal with
standard deviation 0.5; start s = w, log w normal with standard deviation 1; at most 100 bins; a target of 1/10 to
1/1000 of the initial risk (log-uniform).  Scales of curvature and of noise are units of learning rate and of batch
size, and change nothing.

Settings tuned at one batch size are carried to another by each rule and held against those tuned there.  Batch sizes
are parts of B_crit of plain SGD ("fit"): from 1/256 up to each of the others, and from each of them down to 1/256.

    python benchmarks/transfer_rules.py            # writes src/batchlens/advice/transfer_rules.json, prints the tables
    python benchmarks/transfer_rules.py --table    # prints the tables of that file
"""

import json
import math
import sys
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

import batchlens as bl
from batchlens.advice._carrying import Carrier, critical_of, rate_cap, steps_lost
from batchlens.advice._rules import RATE_RULES

PROBLEMS, SEED = 200, 18
EXPONENTS = {"near": (0.75, 1.25), "wide": (0.5, 1.5)}
SMALL = 1 / 256
PARTS = (1 / 64, 1 / 16, 1 / 4, 1 / 2, 1.0, 4.0, 16.0)
FILE = Path(__file__).parent.parent / "src" / "batchlens" / "advice" / "transfer_rules.json"

# What is compared: a name, the family, the power, the rule, and whether learning rates are capped at 1.5 / h_max.
RULES: tuple[tuple[str, str, float, str, bool], ...] = (
    ("sgd: linear", "sgd", 0.0, "linear", False),
    ("sgd: saturating, uncapped", "sgd", 0.0, "saturating", False),
    ("sgd: saturating", "sgd", 0.0, "saturating", True),
    ("momentum: power", "momentum", 0.0, "saturating", True),
    ("averaging: power", "sgd+ema", 0.0, "saturating", True),
    ("adam: square_root", "sgd", 0.5, "square_root", False),
    ("adam: square_root_saturating", "sgd", 0.5, "square_root_saturating", False),
    ("adam: square_root_capped", "sgd", 0.5, "square_root_capped", False),
)


def draw_problem(random: np.random.Generator, spectra: str) -> tuple[bl.NoisyQuadratic, float]:
    """A problem and its target."""
    dim = round(10 ** random.uniform(2, 4))
    curvature = np.arange(1.0, dim + 1.0) ** -random.uniform(*EXPONENTS[spectra])
    noise = curvature * np.exp(0.5 * random.standard_normal(dim))
    problem = bl.NoisyQuadratic(curvature, noise, np.exp(random.standard_normal(dim))).binned(100)
    return problem, problem.initial_risk * 10 ** -random.uniform(1, 3)


def losses_of(problem: bl.NoisyQuadratic, target: float) -> Iterator[tuple[str, float, str, float]]:
    """Rule, part of B_crit, direction and steps lost."""
    criticals = {power: critical_of(problem, target, power) for power in (0.0, 0.5)}
    tuned: dict[tuple[str, float, float], bl.Tuned] = {}
    for name, family, power, rule, capped in RULES:
        critical = criticals[power]
        assert critical is not None
        cap = rate_cap(problem, power) if capped else None
        carrier = Carrier(RATE_RULES[rule], critical, divides_by_root=power == 0.5, cap=cap)

        def at(part: float, of: tuple[str, float, float] = (family, power, critical)) -> bl.Tuned:
            key = (of[0], of[1], part)
            if key not in tuned:
                tuned[key] = bl.tune(problem, of[0], part * of[2], target, of[1])
            return tuned[key]

        for part in PARTS:
            for direction, here, there in (("up", SMALL, part), ("down", part, SMALL)):
                start, best = at(here), at(there)
                assert start.rule is not None
                assert best.steps is not None
                carried = carrier.carry(start.rule, here * critical, there * critical)
                yield name, part, direction, steps_lost(problem, carried, there * critical, target, best.steps)


def measure(spectra: str, problems: int = PROBLEMS) -> list[dict[str, Any]]:
    """One entry per rule, part of B_crit and direction."""
    random = np.random.default_rng(SEED)
    found: dict[tuple[str, float, str], list[float]] = {}
    for _ in range(problems):
        for name, part, direction, loss in losses_of(*draw_problem(random, spectra)):
            found.setdefault((name, part, direction), []).append(loss)
    return [
        {"spectra": spectra, "rule": name, "part": part, "direction": direction, **summary(np.array(losses))}
        for (name, part, direction), losses in found.items()
    ]


def summary(losses: np.ndarray) -> dict[str, Any]:
    """The median and the 95th percentile of the steps lost, null where that many do not arrive; and who does not."""
    median, most = (float(np.quantile(losses, level, method="higher")) for level in (0.5, 0.95))
    return {
        "median": round(median, 4) if math.isfinite(median) else None,
        "most": round(most, 4) if math.isfinite(most) else None,
        "within_5_percent": float(np.mean(losses <= 0.05)),
        "never": float(np.mean(np.isinf(losses))),
    }


def table(entries: list[dict[str, Any]]) -> str:
    """Steps lost by rule and part of B_crit, as Markdown."""
    names = list(dict.fromkeys(entry["rule"] for entry in entries))
    by_key = {(entry["rule"], entry["part"]): entry for entry in entries}
    heads = [f"{part:g}" if part >= 1 else f"1/{round(1 / part)}" for part in PARTS]
    lines = [f"| rule | {' | '.join(heads)} |", "|---" * (len(PARTS) + 1) + "|"]
    for name in names:
        lines.append(f"| {name} | {' | '.join(cell(by_key[name, part]) for part in PARTS)} |")
    return "\n".join(lines)


def cell(entry: dict[str, Any]) -> str:
    """Median and 95th percentile, and how many never arrive."""
    words = [f"{entry[name]:.1%}" if entry[name] is not None else "-" for name in ("median", "most")]
    return " / ".join(words) + (f" ({entry['never']:.0%} never)" if entry["never"] else "")


def main() -> None:
    if "--table" not in sys.argv:
        entries = [entry for spectra in EXPONENTS for entry in measure(spectra)]
        document = {"problems": PROBLEMS, "seed": SEED, "from": SMALL, "entries": entries}
        FILE.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    known = json.loads(FILE.read_text(encoding="utf-8"))["entries"]
    for spectra, direction in product(EXPONENTS, ("up", "down")):
        print(f"{spectra} spectra, {direction}\n")
        print(table([entry for entry in known if (entry["spectra"], entry["direction"]) == (spectra, direction)]), "\n")


if __name__ == "__main__":
    main()
