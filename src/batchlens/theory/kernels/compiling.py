"""The one place where numba comes in."""

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba

_F = TypeVar("_F", bound=Callable[..., Any])


def kernel(function: _F) -> _F:
    """Compile `function` on first use and keep the machine code on disk."""
    compiled: Any = numba.njit(cache=True, error_model="numpy")(function)
    return cast(_F, compiled)


def inlined(function: _F) -> _F:
    """Compile `function` into each of its callers, where constant arguments and shapes make loops into vectors."""
    compiled: Any = numba.njit(inline="always", error_model="numpy")(function)
    return cast(_F, compiled)
