"""One sweep at a time writes a store; a dead one's lock is taken over.

The lock is a row of the store itself, so whatever file system holds the store also holds the lock.  On the same machine
a process is alive if its number is in use and was since the same moment; on another, while its heartbeat is recent.
"""

import os
import platform
import sqlite3
import subprocess
import time
import uuid
from dataclasses import dataclass, field
from pathlib import Path

from batchlens.errors import BatchlensError

# Seconds between two heartbeats, and after which a sweep on another machine counts as dead.
HEARTBEAT, DEAD_AFTER = 15.0, 60.0

TABLE = "CREATE TABLE lock (token TEXT, host TEXT, pid INTEGER, started TEXT, heartbeat REAL)"


@dataclass
class Lock:
    """What a sweep writes into its store while it runs."""

    token: str = field(default_factory=lambda: uuid.uuid4().hex)
    host: str = field(default_factory=platform.node)
    pid: int = field(default_factory=os.getpid)
    beaten: float = 0.0

    def take(self, connection: sqlite3.Connection, path: Path) -> None:
        """Inside a transaction; refused while another sweep is alive."""
        refuse_if_alive(connection, path)
        connection.execute("DELETE FROM lock")
        started = process_start(self.pid) or ""
        connection.execute("INSERT INTO lock VALUES (?, ?, ?, ?, ?)", (self.token, self.host, self.pid, started, 0.0))
        self._beat(connection)

    def hold(self, connection: sqlite3.Connection, path: Path) -> None:
        """Inside a transaction: nothing may be written once another sweep has taken the store over."""
        if connection.execute("SELECT 1 FROM lock WHERE token = ?", (self.token,)).fetchone() is None:
            raise BatchlensError(f"{path} was taken over by another sweep, as this one had shown no sign of life.")
        self._beat(connection)

    def release(self, connection: sqlite3.Connection) -> None:
        """Inside a transaction."""
        connection.execute("DELETE FROM lock WHERE token = ?", (self.token,))

    @property
    def due(self) -> bool:
        """Whether it is time for a heartbeat."""
        return time.time() - self.beaten > HEARTBEAT

    def _beat(self, connection: sqlite3.Connection) -> None:
        self.beaten = time.time()
        connection.execute("UPDATE lock SET heartbeat = ? WHERE token = ?", (self.beaten, self.token))


def refuse_if_alive(connection: sqlite3.Connection, path: Path) -> None:
    """Where a live sweep holds the lock."""
    for _, host, pid, started, heartbeat in connection.execute("SELECT * FROM lock"):
        if _is_alive(host, pid, started, heartbeat):
            raise BatchlensError(f"{path} is in use by a sweep on {host} (process {pid}).")


def _is_alive(host: str, pid: int, started: str, heartbeat: float) -> bool:
    if host == platform.node() and started:
        return process_start(pid) == started
    return time.time() - heartbeat < DEAD_AFTER


def process_start(pid: int) -> str | None:
    """When a process of this machine began, in whatever words the system has; None where there is none."""
    stat = Path(f"/proc/{pid}/stat")
    if stat.parent.parent.joinpath("self").exists():
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            return None
        # A zombie is dead; the start is in ticks since boot, so that the boot belongs to it.
        return None if fields[0] == "Z" else f"{_boot()}:{fields[19]}"
    try:
        answer = subprocess.run(["ps", "-o", "lstart=", "-p", str(pid)], capture_output=True, text=True, check=False)
    except OSError:
        return None
    return answer.stdout.strip() or None


def _boot() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""
