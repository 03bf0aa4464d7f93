"""How numbers and names are written on the command line and in the explorer's fields."""

import math
import re
from typing import Any


class Unreadable(ValueError):
    """Text that is not what it should be: `wanted` and `got` complete "must be ..., got ..."."""

    def __init__(self, wanted: str, got: object) -> None:
        super().__init__(f"must be {wanted}, got {got or 'nothing'}.")
        self.wanted, self.got = wanted, got


def parse_number(text: Any) -> float:
    """A number; whether it is in range is for the library to say.

    >>> parse_number("1e-2")
    0.01
    """
    try:
        return float(text)
    except (ValueError, OverflowError):
        raise Unreadable("a number", text) from None


def parse_whole(text: Any) -> int:
    """A whole number; 1e6 counts.

    >>> parse_whole("1e6")
    1000000
    """
    try:
        return text if isinstance(text, int) else int(text)
    except (ValueError, OverflowError):
        pass
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not number.is_integer():
        raise Unreadable("a whole number", text)
    return int(number)


def parse_numbers(text: str, whole: bool = False) -> list[float]:
    """Several numbers: 4,16,64, or 4..4096 for each doubling from 4 to 4096.

    >>> parse_numbers("1,4..16")
    [1.0, 4.0, 8.0, 16.0]
    """
    parse = parse_whole if whole else parse_number
    numbers: list[float] = []
    for part in text.split(","):
        first, dots, last = part.partition("..")
        low = parse(first)
        if not dots:
            numbers.append(low)
            continue
        high = parse(last)
        if not 0 < low <= high < math.inf:
            raise Unreadable("LOW..HIGH with 0 < LOW <= HIGH", part)
        while low <= high:
            numbers.append(low)
            low *= 2
    return numbers


def as_typed(sentence: str) -> str:
    """A sentence about arguments of the library, which are called otherwise on the command line.

    >>> as_typed("`batch_size` must be finite and above 0, got 0.")
    '--batch-size must be finite and above 0, got 0.'
    """
    names = {"workload": "WORKLOAD", "settings": "--set"}
    return re.sub(r"`(\w+)`", lambda name: names.get(name[1], "--" + name[1].replace("_", "-")), sentence)
