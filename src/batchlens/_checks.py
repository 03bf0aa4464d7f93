"""Checks at the public edge: a bad value ends in one sentence that names it, never in a silent repair."""

import math
from collections.abc import Sequence
from contextlib import suppress
from numbers import Real
from pathlib import Path
from typing import Any, SupportsFloat, TypeVar

import numpy as np

from batchlens._arrays import FloatArray

_T = TypeVar("_T")


def require_number(
    name: str,
    value: object,
    low: float = -math.inf,
    high: float = math.inf,
    *,
    closed: tuple[bool, bool] = (True, True),
) -> float:
    """`value` as a float inside the interval; infinite ends are always open."""
    refused = isinstance(value, bool | np.bool_ | np.complexfloating) or not isinstance(value, Real | SupportsFloat)
    if refused or np.ndim(value) > 0:  # type: ignore[arg-type]
        raise TypeError(f"`{name}` must be a number, got {value!r}.")
    try:
        number = float(value)  # type: ignore[arg-type]
    except OverflowError:  # 10**400
        number = math.inf
    except (TypeError, ValueError):  # a signaling NaN
        raise TypeError(f"`{name}` must be a number, got {value!r}.") from None
    above = number >= low if closed[0] else number > low
    below = number <= high if closed[1] else number < high
    if not (math.isfinite(number) and above and below):
        raise ValueError(f"`{name}` must be {describe_interval(low, high, closed)}, got {value}.")
    return number


def describe_interval(low: float, high: float, closed: tuple[bool, bool]) -> str:
    """The interval in words that read well after "must be"."""
    if high == math.inf:
        if low == -math.inf:
            return "finite"
        return f"finite and {'at least' if closed[0] else 'above'} {low:g}"
    brackets = "[" if closed[0] else "(", "]" if closed[1] else ")"
    return f"in {brackets[0]}{low:g}, {high:g}{brackets[1]}"


def require_whole(name: str, value: object, low: int = 0, high: int = 2**62) -> int:
    """`value` as an int in [low, high]; 1e6 counts as whole."""
    if isinstance(value, bool | np.bool_) or not isinstance(value, Real):
        raise TypeError(f"`{name}` must be a whole number, got {value!r}.")
    number: int | None = None
    with suppress(OverflowError, ValueError):  # inf, NaN
        number = int(value)  # type: ignore[call-overload]
    if number is None or number != value:
        raise ValueError(f"`{name}` must be a whole number, got {value}.")
    if number < low:
        raise ValueError(f"`{name}` must be at least {low}, got {value}.")
    if number > high:
        raise ValueError(f"`{name}` must be at most {high}, got {value}.")
    return number


def require_flag(name: str, value: object) -> bool:
    """`value` as a bool."""
    if not isinstance(value, bool | np.bool_):
        raise TypeError(f"`{name}` must be True or False, got {value!r}.")
    return bool(value)


def require_choice(name: str, value: object, choices: Sequence[str]) -> str:
    """`value` if it is one of `choices`."""
    if not isinstance(value, str) or value not in choices:
        raise ValueError(f"`{name}` must be one of {', '.join(choices)}, got {value!r}.")
    return value


def require_instance(name: str, value: object, kind: type[_T]) -> _T:
    """`value` if it is a `kind`."""
    if not isinstance(value, kind):
        article = "an" if kind.__name__[0] in "AEIOU" else "a"
        raise TypeError(f"`{name}` must be {article} {kind.__name__}, got {value!r}.")
    return value


def require_path(name: str, value: object) -> Path:
    """`value` as a path that a file could have here."""
    try:
        path = Path(value)  # type: ignore[arg-type]
        with suppress(FileNotFoundError, NotADirectoryError):
            path.lstat()
    except TypeError:
        raise TypeError(f"`{name}` must be a path, got {value!r}.") from None
    except (OSError, ValueError) as error:  # too long, or with a null byte
        reason = getattr(error, "strerror", None) or error
        raise ValueError(f"`{name}` must be a path that can be used, got {value}: {reason}.") from None
    return path


def require_sequence(name: str, value: object) -> list[Any]:
    """`value` as a list, if it is a sequence or an array of one dimension."""
    if isinstance(value, str) or not isinstance(value, Sequence | np.ndarray) or np.ndim(value) != 1:
        raise TypeError(f"`{name}` must be a sequence, got {value!r}.")
    return list(value)


def require_vector(name: str, value: object, length: int | None = None) -> FloatArray:
    """`value` as a one-dimensional float array with finite entries, a copy of its own."""
    try:
        given = np.asarray(value)
        kind = given.dtype.kind
        if kind not in "biufO" or (kind == "O" and any(entry is None for entry in given.flat)):
            raise TypeError
        vector = np.array(given, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        raise TypeError(f"`{name}` must be an array of numbers, got {value!r}.") from None
    if vector.ndim != 1:
        raise ValueError(f"`{name}` must have one dimension, got {vector.ndim}.")
    if length is not None and vector.size != length:
        raise ValueError(f"`{name}` must have {length} entries, one per coordinate, got {vector.size}.")
    if not np.isfinite(vector).all():
        raise ValueError(f"`{name}` must be finite, got {vector[~np.isfinite(vector)][0]}.")
    return vector
