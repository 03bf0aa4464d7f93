"""One sweep at a time writes a store; a dead one's lock is taken over.

The lock is a row of the store itself, so whatever file system holds the store also holds the lock.  Its token is drawn
anew by every sweep.  Where the holder is a process that this one could see (same boot, same process namespace), it is
alive if its number is in use and was since the same moment.  Anywhere else, another container with the same host name
included, the holder is watched: it is alive if its heartbeat changes within a minute of this process's own clock.
"""

import os
import platform
import sqlite3
import subprocess
import time
import uuid
import warnings
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import NamedTuple

from batchlens.errors import BatchlensError

# Seconds between two heartbeats, between two looks at another's, and after which one that does not change is dead.
HEARTBEAT, LOOK, DEAD_AFTER = 15.0, 0.5, 60.0

TABLE = "CREATE TABLE lock (token TEXT, host TEXT, pid INTEGER, started TEXT, heartbeat REAL)"
# Between where a process runs and when it began.
_MARK = "|"


class Holder(NamedTuple):
    """The sweep that a store says is writing it."""

    token: str
    host: str
    pid: int
    started: str
    heartbeat: float

    @property
    def is_dead(self) -> bool | None:
        """None where this process cannot see whether it is."""
        if self.started.partition(_MARK)[0] != _place():
            return None
        started = process_start(self.pid)
        if started is None and _is_hidden(self.pid):
            return None
        return started != self.started


@dataclass
class Lock:
    """What a sweep writes into its store while it runs."""

    token: str = field(default_factory=lambda: uuid.uuid4().hex)
    host: str = field(default_factory=platform.node)
    pid: int = field(default_factory=os.getpid)
    beaten: float = -HEARTBEAT
    heartbeat: float = 0.0

    def take(self, connection: sqlite3.Connection, path: Path, dead: Holder | None, take_over: bool = False) -> None:
        """Inside a transaction; refused while another sweep holds it than the one that is known to be `dead`."""
        found = find_holder(connection)
        if found not in (None, dead) and not take_over:
            raise BatchlensError(_in_use(path, found))
        connection.execute("DELETE FROM lock")
        started = process_start(self.pid) or ""
        connection.execute("INSERT INTO lock VALUES (?, ?, ?, ?, ?)", (self.token, self.host, self.pid, started, 0.0))
        self._beat(connection)

    def hold(self, connection: sqlite3.Connection, path: Path) -> None:
        """Inside a transaction: nothing may be written once another sweep has taken the store over."""
        if connection.execute("SELECT 1 FROM lock WHERE token = ?", (self.token,)).fetchone() is None:
            raise BatchlensError(f"{path} was taken over by another sweep.")
        self._beat(connection)

    def release(self, connection: sqlite3.Connection) -> None:
        """Inside a transaction."""
        connection.execute("DELETE FROM lock WHERE token = ?", (self.token,))

    @property
    def due(self) -> bool:
        """Whether it is time for a heartbeat."""
        return time.monotonic() - self.beaten > HEARTBEAT

    def _beat(self, connection: sqlite3.Connection) -> None:
        """Readers only ask whether the value changes, so it does even where the clock was set back."""
        self.beaten, self.heartbeat = time.monotonic(), max(time.time(), self.heartbeat + 1.0)
        connection.execute("UPDATE lock SET heartbeat = ? WHERE token = ?", (self.heartbeat, self.token))


def find_holder(connection: sqlite3.Connection) -> Holder | None:
    """Whoever holds the lock, dead or alive."""
    row = connection.execute("SELECT token, host, pid, started, heartbeat FROM lock").fetchone()
    if row is None:
        return None
    token, host, pid, started, heartbeat = row
    return Holder(str(token), str(host), pid if isinstance(pid, int) else 0, str(started), heartbeat)


def find_dead(connection: sqlite3.Connection, path: Path) -> Holder | None:
    """Outside of a transaction: the holder, once it is known to be dead; None where there is none, refused if alive."""
    holder = find_holder(connection)
    if holder is None or holder.is_dead:
        return holder
    if holder.is_dead is None and _stays_silent(connection, path, holder):
        return holder
    raise BatchlensError(_in_use(path, holder))


def _stays_silent(connection: sqlite3.Connection, path: Path, holder: Holder) -> bool:
    """Whether nothing is heard of a sweep for long enough."""
    warnings.warn(
        f"{path} was left by, or is in use by, a sweep on {holder.host} (process {holder.pid}) that cannot be seen "
        f"from here; watching {DEAD_AFTER:.0f} s for a sign of life. If it is dead, --take-over saves the wait.",
        stacklevel=2,
    )
    deadline = time.monotonic() + DEAD_AFTER
    while time.monotonic() < deadline:
        time.sleep(LOOK)
        if find_holder(connection) != holder:
            return False
    return True


def _in_use(path: Path, holder: Holder | None) -> str:
    assert holder is not None
    return f"{path} is in use by a sweep on {holder.host} (process {holder.pid})."


def process_start(pid: int) -> str | None:
    """Where a process runs and when it began, in whatever words the system has; None where it has none."""
    stat = Path(f"/proc/{pid}/stat")
    if _has_proc():
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            return None
        # A zombie is dead; the start is in ticks since boot.
        return "" if fields[0] == "Z" else f"{_place()}{_MARK}{fields[19]}"
    try:
        answer = subprocess.run(["ps", "-o", "lstart=", "-p", str(pid)], capture_output=True, text=True, check=False)
    except OSError:
        return None
    began = answer.stdout.strip()
    return f"{_place()}{_MARK}{began}" if began else None


def _is_hidden(pid: int) -> bool:
    """Whether a process is there that the system shows nothing of."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return True
    return True


def _has_proc() -> bool:
    return Path("/proc/self/stat").exists()


@cache
def _place() -> str:
    """Processes of the same place see each other: of the same boot, and not in different containers."""
    if not _has_proc():
        return f"{platform.node()}:{uuid.getnode()}"
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}:{os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return uuid.uuid4().hex  # nobody else's
