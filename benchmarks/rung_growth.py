"""What evaluation reads of a run, and where it finds the target, with rungs that grow by a tenth or by a half.

    python benchmarks/rung_growth.py [--workloads simple_cnn_mnist,vgg11_cifar10] [--growths 1.1,1.5]

One run at batch 64 each, with the settings of bench_training.py. Shares are counted in examples, not timed, so the
machine may be busy. The aim is that of `share_limit`.
"""

import argparse
from unittest import mock

from bench_evaluation import share_verdict
from bench_training import DATA, GOOD, optimizer_of

from batchlens import _grid
from batchlens.training.data._sources import is_present
from batchlens.training.loop import train


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workloads", default=",".join(GOOD), help="all of laptop size")
    parser.add_argument("--growths", default=f"{_grid.RUNG},{_grid.WIDE_RUNG}")
    asked = parser.parse_args()
    for name in asked.workloads.split(","):
        if not is_present(DATA[name]):
            print(f"{name}: skipped, no data here (batchlens data fetch {DATA[name]})")
            continue
        for growth in map(float, asked.growths.split(",")):
            with mock.patch.object(_grid, "RUNG", growth):
                record = train(name, optimizer_of(name), 64, GOOD[name], threads=1)
            print(f"{name:25} rungs of {growth:g}: {record.status} in {record.steps_taken} steps, "
                  f"reads {share_verdict(record)}", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
