"""Worker processes of this machine."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import IO, Any

from batchlens.errors import BatchlensError
from batchlens.sweep._declaration import Cell
from batchlens.sweep._executors.executor import Ended
from batchlens.sweep._trial import Key

# How many workers in a row may die before they are ready, by an error of their own or by a signal.
_MOST_ERRORS, _MOST_SIGNALS = 3, 30
# Seconds that workers have to save what they are at, and that a dead one's last words have to arrive.
_GRACE, _LAST_WORDS = 5.0, 1.0
_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS")

Inbox = SimpleQueue["tuple[_Worker, dict[str, Any] | None] | None"]


class _Worker:
    """One process, started afresh rather than forked, and what it is at."""

    def __init__(self, inbox: Inbox, threads: int) -> None:
        self.key: Key | None = None
        self.ready = False
        self._log: IO[bytes] = tempfile.TemporaryFile("a+b")  # noqa: SIM115
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "batchlens.sweep._executors.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            env={**os.environ, **dict.fromkeys(_THREADS, str(threads))},
        )
        self._listener = threading.Thread(target=self._listen, args=(inbox,), daemon=True)
        self._listener.start()
        self._mourner = threading.Thread(target=self._mourn, args=(inbox,), daemon=True)
        self._mourner.start()

    def _listen(self, inbox: Inbox) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                if not line.endswith(b"\n"):  # killed while it answered
                    break
                inbox.put((self, json.loads(line)))

    def _mourn(self, inbox: Inbox) -> None:
        """Notices the death itself: the output may stay open in a process that the workload has forked."""
        self._process.wait()
        self._listener.join(_LAST_WORDS)
        inbox.put((self, None))

    def send(self, order: Mapping[str, Any]) -> None:
        """A dead worker is noticed by its silence."""
        assert self._process.stdin is not None
        with suppress(OSError):
            self._process.stdin.write(json.dumps(order).encode() + b"\n")
            self._process.stdin.flush()

    def hang_up(self) -> None:
        """Ends a process that has nothing to save."""
        assert self._process.stdin is not None
        with suppress(OSError):
            self._process.stdin.close()

    def end(self, grace: float) -> None:
        """Ends the process, after `grace` seconds at the latest."""
        try:
            self._process.wait(grace)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._mourner.join()
        self.hang_up()
        self._log.close()

    @property
    def failed(self) -> bool:
        """Whether a process that is dead ended by an error rather than a signal."""
        return self._process.returncode >= 0

    def epitaph(self) -> str:
        """What became of a process that has ended."""
        self._process.wait()
        code = self._process.returncode
        self._log.seek(0)
        lines = self._log.read().decode(errors="replace").strip().splitlines()
        said = f": {lines[-1].strip()}" if lines else ""
        if code >= 0:
            return f"the worker ended with status {code}{said}"
        name = signal.Signals(-code).name if -code in set(signal.Signals) else str(-code)
        hint = " (out of memory?)" if -code == signal.SIGKILL else ""
        return f"the worker was ended by {name}{hint}{said}"


class LocalExecutor:
    """An `Executor` of `count` worker processes; one that dies is replaced."""

    def __init__(self, count: int, threads: int = 1) -> None:
        self._inbox: Inbox = SimpleQueue()
        self._threads = threads
        self._stillborn = Counter[bool]()  # by whether it was an error of their own
        self._workers = [_Worker(self._inbox, threads) for _ in range(count)]

    @property
    def size(self) -> int:
        """How many workers there are."""
        return len(self._workers)

    @property
    def has_room(self) -> bool:
        """Whether a worker waits for a job."""
        return any(worker.ready and worker.key is None for worker in self._workers)

    def start(self, key: Key, job: Mapping[str, Any], limit: int | None) -> None:
        """Gives a job to a worker that waits for one."""
        worker = next(worker for worker in self._workers if worker.ready and worker.key is None)
        worker.key = key
        worker.send({"job": job, "limit": limit})

    def set_limit(self, cell: Cell, limit: int) -> None:
        """Tells those that are at a trial of the cell's search."""
        for worker in self._workers:
            if worker.key is not None and worker.key.cell == cell and not worker.key.repeat:
                worker.send({"limit": limit})

    def wait(self, seconds: float) -> Ended | None:
        """The next trial that has ended; also returns when a worker is ready."""
        try:
            message = self._inbox.get(timeout=seconds)
        except Empty:
            return None
        if message is None:
            return None
        worker, answer = message
        if worker not in self._workers:  # said by a child that has outlived it
            return None
        if answer is None:
            return self._replace(worker)
        if "ready" in answer:
            worker.ready = True
            self._stillborn.clear()
            return None
        key, worker.key = worker.key, None
        assert key is not None
        return Ended(key, answer)

    def wake(self) -> None:
        """Ends a `wait`."""
        self._inbox.put(None)

    def close(self) -> None:
        """Lets workers save what they are at, and ends them."""
        for worker in self._workers:
            worker.send({"stop": True})
            if worker.key is None:
                worker.hang_up()
        deadline = time.monotonic() + _GRACE
        for worker in self._workers:
            worker.end(max(deadline - time.monotonic(), 0))

    def _replace(self, worker: _Worker) -> Ended | None:
        reason = worker.epitaph()
        self._stillborn[worker.failed] += not worker.ready
        worker.end(0)
        if self._stillborn[True] >= _MOST_ERRORS or self._stillborn[False] >= _MOST_SIGNALS:
            self._workers.remove(worker)
            raise BatchlensError(f"workers do not start: {reason}.")
        self._workers[self._workers.index(worker)] = _Worker(self._inbox, self._threads)
        return None if worker.key is None else Ended(worker.key, None, reason)
