"""Starts sweeps in no time: it has loaded everything, and forks one for every line that it reads.

    python -m tests.attack.nursery

A line is a JSON list: the store, and the log to which the sweep writes how many trials have ended, and how it ended.
"""

import json
import os
import signal
import sys
from dataclasses import replace
from pathlib import Path

from batchlens.sweep import _filling
from batchlens.sweep._declare import declare
from batchlens.training import _run
from batchlens.training.loop import train

SWEEP = declare(
    "digits", ["sgd", "momentum"], batch_sizes=[128, 512], trials=4, keep=2, target=0.95, max_steps=400,
    search="sobol",
)  # fmt: skip


def main() -> None:
    """Until the input ends."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the dead are not waited for
    # The first training of a process takes seconds to begin: a fork would be killed before it had done anything.
    train("digits", "momentum", 128, {"learning_rate": 0.1}, max_steps=2, threads=1)
    for line in sys.stdin:
        store, log = json.loads(line)
        child = os.fork()
        if child == 0:
            _sweep(Path(store), Path(log))
        print(child, flush=True)


def _sweep(store: Path, log: Path) -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    _filling._WATCH, _run.CHECKPOINT_SECONDS = 0.0, 0.1
    with log.open("a", buffering=1) as file:
        try:
            watch = lambda progress: print(progress.ended, file=file)  # noqa: E731
            _filling.fill(replace(SWEEP, named=False), store, watch=watch)
            print("complete", file=file)
        except KeyboardInterrupt:
            print("interrupted", file=file)
        except BaseException as error:
            print(f"{type(error).__name__}: {error}", file=file)
    os._exit(0)


if __name__ == "__main__":
    main()
