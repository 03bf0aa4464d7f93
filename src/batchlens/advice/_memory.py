"""Running out of memory in a way that can be caught."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_WORDS = ("out of memory", "outofmemory", "can't allocate memory", "cannot allocate memory", "bad_alloc", "memoryerror")


def says_out_of_memory(message: str) -> bool:
    """Whether an error says so.

    >>> says_out_of_memory("RuntimeError: DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes.")
    True
    """
    return any(word in message.lower() for word in _WORDS)


@contextmanager
def limited_memory(limit: float | None) -> Iterator[None]:
    """A process that may take `limit` more bytes: beyond, allocations fail here instead of the system ending it.

    None is what the system has left.  Where a process cannot be limited (Windows, macOS) nothing is.
    """
    now, left = _status("VmSize", "/proc/self/status"), limit or _status("MemAvailable", "/proc/meminfo")
    if now is None or left is None:
        yield
        return
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    wanted = int(now + left)
    resource.setrlimit(resource.RLIMIT_AS, (wanted if soft < 0 else min(wanted, soft), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def _status(name: str, file: str) -> float | None:
    """Bytes that a file of /proc says."""
    with suppress(OSError):
        for line in Path(file).read_text(encoding="utf-8").splitlines():
            if line.startswith(f"{name}:"):
                return float(line.split()[1]) * 1024
    return None
