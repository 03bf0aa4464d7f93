"""Whether a longer search raises K-FAC's critical batch size on Fashion-MNIST, where it lies below momentum's.

    python benchmarks/kfac_search.py [--trials 29] [--workers 2]

The sweep of evidence/ has nine trials a cell for K-FAC's five settings. Here its two larger batch sizes are searched
anew, for longer; kept in build/, so that a second call goes on or only prints.
"""

import argparse
import math
from pathlib import Path

import batchlens as bl

ROOT = Path(__file__).parents[1]
STORE = ROOT / "build" / "kfac_search.sqlite"
SIZES, SEED = (128, 512), 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=29)
    parser.add_argument("--workers", type=int, default=2)
    asked = parser.parse_args()
    before = bl.read_sweep(ROOT / "evidence" / "fashion_mnist.sqlite")
    STORE.parent.mkdir(exist_ok=True)
    after = bl.run_sweep(
        before.declaration.workload, ["kfac"], SIZES, asked.trials, store=STORE, seed=SEED, seeds=5,
        target_on=before.declaration.target_on, target=before.declaration.target, workers=asked.workers,
    )  # fmt: skip
    known, longer = before.curves()["kfac"], after.curves()["kfac"]
    rows = dict(zip(longer.batch_sizes, zip(longer.steps, longer.intervals, strict=True), strict=True))
    best = list(known.steps)
    for place, (size, steps) in enumerate(zip(known.batch_sizes, known.steps, strict=True)):
        print(f"batch size {size:,.0f}, 9 trials: {steps or math.nan:.0f} steps ({known.intervals[place]})")
        if size in rows:
            found, interval = rows[size]
            print(f"batch size {size:,.0f}, {asked.trials} trials: {found or math.nan:.0f} steps ({interval})")
            best[place] = min(steps or math.inf, found or math.inf)
    better = bl.ScalingCurve(known.batch_sizes, best)
    for words, curve in (("9 trials", known), ("better of both", better), ("momentum", before.curves()["momentum"])):
        print(f"critical batch size, {words}: {curve.critical_batch_size('fit')}")


if __name__ == "__main__":
    main()
