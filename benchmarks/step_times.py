"""How well overhead + B / throughput says the time of steps at batch sizes that were not timed.

Three workloads; the line is fitted at every other batch size and held against the ones between.  Timings are of this
machine, as busy as it is: the load is printed, and is to be near 0 before the first workload.

    python benchmarks/step_times.py            # two minutes on two quiet cores; a table for docs/planning.md
    python benchmarks/step_times.py --steps 5
"""

import argparse
import os
import time

import numpy as np

import batchlens as bl

WORKLOADS = ("digits", "simple_cnn_mnist", "resnet8_cifar10")
SIZES = (16, 32, 64, 128, 256, 512, 1024)


def load() -> str:
    """Processes that want to run, over the last minute."""
    return f"{os.getloadavg()[0]:.1f} of {os.cpu_count()} cores busy" if hasattr(os, "getloadavg") else "load not known"


def row(workload: str, steps: int) -> tuple[str, float]:
    """A line of the table, and how far the fit is off at most."""
    times = bl.time_steps(workload, SIZES, "momentum", steps=steps)
    fitted = bl.StepTimes(times.batch_sizes[::2], times.seconds[::2])
    said = fitted.model.seconds(np.array(times.batch_sizes), np.array(1.0))
    off = said / np.array(times.seconds) - 1
    cells = [f"{1e3 * times.seconds[i]:.3g} / {1e3 * said[i]:.3g} ({off[i]:+.0%})" for i in range(1, len(SIZES), 2)]
    line = f"{1e3 * fitted.model.overhead:.3g} ms + B / {fitted.throughput:,.0f} s"
    return f"| {workload} | {line} | {' | '.join(cells)} |", float(np.abs(off[1::2]).max())


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=20, help="timed at every batch size")
    steps = parser.parse_args().steps
    begin = time.perf_counter()
    print(f"Before: {load()}. Milliseconds a step, measured / said by the fit, at batch sizes that it has not seen.\n")
    print(f"| workload | fitted at {', '.join(map(str, SIZES[::2]))} | {' | '.join(map(str, SIZES[1::2]))} |")
    print("|---" * (2 + len(SIZES[1::2])) + "|")
    worst = 0.0
    for workload in WORKLOADS:
        line, off = row(workload, steps)
        worst = max(worst, off)
        print(line, flush=True)
    print(f"\nOff by at most {worst:.0%}. After: {load()}; {time.perf_counter() - begin:.0f} s in all.")


if __name__ == "__main__":
    main()
