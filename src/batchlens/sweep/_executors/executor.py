"""What runs trials: processes of this machine, or a Ray cluster."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from batchlens.sweep._declaration import Cell
from batchlens.sweep._trial import Key


@dataclass(frozen=True)
class Ended:
    """A trial that has ended, or waits for others; without an answer, `reason` says what became of its process.

    `saved` is where one that waits was put, if not into the file that its job names: its next job takes it back.
    """

    key: Key
    answer: Mapping[str, Any] | None
    reason: str = ""
    saved: Any = None


class Executor(Protocol):
    """Runs trials, some at a time."""

    @property
    def size(self) -> int:
        """How many trials run at a time."""

    @property
    def has_room(self) -> bool:
        """Whether another trial may be started."""

    def start(self, key: Key, job: Mapping[str, Any], limit: int | None) -> None:
        """Starts a trial, to be pruned beyond `limit` steps."""

    def set_limit(self, cell: Cell, limit: int) -> None:
        """Changes the limit of the trials of a cell that are running."""

    def wait(self, seconds: float) -> Ended | None:
        """The next trial that has ended, or None after `seconds`, or once woken."""

    def wake(self) -> None:
        """Ends a `wait`; may be called from a signal handler."""

    def close(self) -> None:
        """Stops whatever runs."""
