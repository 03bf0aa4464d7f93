"""A worker process: reads jobs from its standard input, one JSON object a line, and answers likewise.

It ends when its standard input does, so it cannot outlive the process that started it.
"""

import json
import os
import signal
import sys
import threading
import time
from queue import SimpleQueue
from typing import IO, Any, Literal

STDOUT, STDERR = 1, 2


class _Orders:
    """What the coordinator wants, as far as it has been read."""

    def __init__(self, lines: IO[bytes]) -> None:
        self.jobs: SimpleQueue[dict[str, Any]] = SimpleQueue()
        self.limit: int | None = None
        self.stopping = False
        self._lines = lines

    def read(self) -> None:
        """Ends the process at the end of the input: the coordinator is gone, whatever ended it."""
        for line in self._lines:
            order = json.loads(line)
            self.stopping = self.stopping or "stop" in order
            self.limit = order.get("limit")
            if "job" in order:
                self.jobs.put(order["job"])
        os._exit(0)

    def stop(self, step: int) -> Literal["pruned", "interrupted"] | None:
        """For `train`."""
        if self.stopping:
            return "interrupted"
        limit = self.limit
        return "pruned" if limit is not None and step > limit else None


def main() -> None:
    """Runs jobs until told to stop."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the coordinator's to handle
    answers = os.fdopen(os.dup(STDOUT), "w", encoding="utf-8")
    os.dup2(STDERR, STDOUT)  # what a workload prints is no answer
    orders = _Orders(sys.stdin.buffer)
    threading.Thread(target=orders.read, daemon=True).start()
    threading.Thread(target=_watch_parent, args=(os.getppid(),), daemon=True).start()

    from batchlens.sweep._executors.job import (
        run_job,  # torch takes seconds to load, and the coordinator may end meanwhile
    )
    from batchlens.training._memory import keep_freed_memory

    keep_freed_memory()
    _send(answers, {"ready": True})
    while not orders.stopping:
        job = orders.jobs.get()
        os.ftruncate(STDERR, 0)
        _send(answers, run_job(job, orders.stop))
    os._exit(0)


def _send(file: IO[str], answer: dict[str, Any]) -> None:
    file.write(json.dumps(answer) + "\n")
    file.flush()


def _watch_parent(parent: int) -> None:
    """A fork of the coordinator may keep the input open after its end."""
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(0)


if __name__ == "__main__":
    main()
