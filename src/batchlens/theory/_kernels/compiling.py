"""The one place where numba comes in."""

import hashlib
import os
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, cast

import numba
from numba.extending import intrinsic

# Coordinates that go side by side: two registers of eight doubles, or four of four.
LANES = 16

_F = TypeVar("_F", bound=Callable[..., Any])


def kernel(function: _F) -> _F:
    """Compile `function` on first use and keep the machine code on disk, where there is a place for it."""
    compiled: Any = numba.njit(error_model="numpy")(function)
    _keep(compiled)
    return cast(_F, compiled)


def _keep(compiled: Any) -> None:
    """Keep the machine code beside the source or at home, else in a temporary folder, else nowhere."""
    try:
        compiled.enable_caching()
    except RuntimeError:  # numba found no folder that it may write to
        folder = _temporary_folder()
        if folder is None:
            return
        settings: Any = numba.config
        before, settings.CACHE_DIR = settings.CACHE_DIR, folder
        try:
            compiled.enable_caching()
        finally:
            settings.CACHE_DIR = before
    # numba looks at the function's own file only, but code of other kernels is compiled into it.
    with suppress(AttributeError):
        compiled._cache._cache_file._source_stamp = _stamp()


@cache
def _stamp() -> str:
    """What all kernels' sources are, in short."""
    sources = sorted(Path(__file__).parent.glob("*.py"))
    return hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()


@cache
def _temporary_folder() -> str | None:
    """A folder of this user's own for machine code, None where there can be none; says so once."""
    try:
        user = os.getuid() if hasattr(os, "getuid") else "cache"
        folder = Path(tempfile.gettempdir()) / f"batchlens-{user}"
        folder.mkdir(mode=0o700, exist_ok=True)
        status = folder.stat()
        if hasattr(os, "getuid") and (status.st_uid != user or status.st_mode & 0o022):
            raise PermissionError(f"{folder} is open to others")
        tempfile.TemporaryFile(dir=folder).close()
    except OSError:
        print("batchlens: no folder can be written to; compiling takes its time in every process.", file=sys.stderr)
        return None
    print(f"batchlens: compiled code is kept in {folder}, as neither the package nor home can be written to.",
          file=sys.stderr)  # fmt: skip
    return str(folder)


def inlined(function: _F) -> _F:
    """Compile `function` into each of its callers, where constant arguments and shapes make loops into vectors."""
    compiled: Any = numba.njit(inline="always", error_model="numpy")(function)
    return cast(_F, compiled)


def merged(function: _F) -> _F:
    """As `inlined`, but after numba is done with the callers: compiles faster where functions nest, runs no faster."""
    compiled: Any = numba.njit(forceinline=True, error_model="numpy")(function)
    return cast(_F, compiled)


def _fused_multiply_add(_context: Any, x: Any, y: Any, z: Any) -> Any:
    """x * y + z with one rounding (an instruction of the processor)."""
    float64 = numba.types.float64

    def generate(_codegen: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.fma(*arguments)

    return float64(float64, float64, float64), generate


fused_multiply_add: Any = intrinsic(_fused_multiply_add)
