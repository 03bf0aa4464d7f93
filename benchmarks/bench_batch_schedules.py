"""Time to find the best batch sizes and learning rates together: 50 pieces, on the paper's problem.

One core, CPU time, best of three, after a first call that compiles or loads what is needed.  Examples are those that
the best schedule of one batch size uses; at most 2 seconds are asked for.

    python benchmarks/bench_batch_schedules.py     # half a minute
"""

from __future__ import annotations

import os

for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ[name] = "1"  # read when numpy is loaded

from bench_tuning import PAPER, TARGET, best_time  # noqa: E402

import batchlens as bl  # noqa: E402

LIMIT = 2.0
BATCH_SIZES = (4, 64, 256, 4096, 1_048_576)


def main() -> None:
    """Measure and print."""
    bl.optimal_batch_schedule(PAPER, target=1.0, examples=1e6)
    bl.best_batch_schedule(PAPER, "momentum", steps=10, examples=1e6)
    print(f"{'examples':>15}{'one batch size':>16}{'joint':>9}{'saved':>8}{'seconds':>10}{'limit':>7}")
    for size in BATCH_SIZES:
        constant = bl.optimal_schedule(PAPER, size, TARGET).steps
        seconds, plan = best_time(
            lambda n=size * constant: bl.optimal_batch_schedule(PAPER, target=TARGET, examples=n)  # type: ignore[misc]
        )
        saved = 1 - plan.steps / constant
        print(f"{size * constant:>15,}{constant:>16,}{plan.steps:>9,}{saved:>8.1%}{seconds:>10.2f}{LIMIT:>7.1f}")
    seconds, _ = best_time(lambda: bl.best_batch_schedule(PAPER, "momentum", steps=1000, examples=2_341_888))
    print(f"momentum tuned along, 1,000 steps and 2,341,888 examples: {seconds:.2f} s, limit {LIMIT:.1f}")


if __name__ == "__main__":
    main()
