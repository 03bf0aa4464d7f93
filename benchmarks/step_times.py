"""How well overhead + B / throughput says the time of steps at batch sizes that were not timed.

Three workloads; the line is fitted at every other batch size and held against the ones between.  Timings are of this
machine, as busy as it is.

    python benchmarks/step_times.py
"""

import numpy as np

import batchlens as bl

WORKLOADS = ("digits", "simple_cnn_mnist", "resnet8_cifar10")
SIZES = (16, 32, 64, 128, 256, 512, 1024)


def main() -> None:
    for workload in WORKLOADS:
        times = bl.time_steps(workload, SIZES, "momentum", steps=10)
        fitted = bl.StepTimes(times.batch_sizes[::2], times.seconds[::2])
        print(f"{workload}: {fitted.headline}")
        for size, measured in zip(times.batch_sizes[1::2], times.seconds[1::2], strict=True):
            said = float(fitted.model.seconds(np.array(size), np.array(1.0)))
            print(
                f"  batch size {size:5.0f}: measured {measured:.4f} s, fit {said:.4f} s, off {said / measured - 1:+.0%}"
            )


if __name__ == "__main__":
    main()
