"""The one place where numba comes in."""

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba
from numba.extending import intrinsic

# So many coordinates go side by side: two registers of eight doubles, or four of four.
LANES = 16

_F = TypeVar("_F", bound=Callable[..., Any])


def kernel(function: _F) -> _F:
    """Compile `function` on first use and keep the machine code on disk."""
    compiled: Any = numba.njit(cache=True, error_model="numpy")(function)
    return cast(_F, compiled)


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
