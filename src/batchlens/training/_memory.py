"""Memory that a training process gives back is asked for again at the next step: let it stay where it is.

By default glibc returns large blocks to the system, and every step pays for fresh pages: half of its time at large
batches. Only for processes that do nothing but train; the numbers stay the same, to the bit.
"""

import ctypes
import sys

# Of glibc's malloc.h: keep this much at the top of the heap, and take blocks from it rather than from the system.
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
_MOST = 2**31 - 1


def keep_freed_memory() -> bool:
    """Whether this process will; only glibc knows how."""
    if not sys.platform.startswith("linux"):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    return mallopt is not None and all(mallopt(option, _MOST) for option in (_TRIM_THRESHOLD, _MMAP_THRESHOLD))
