"""Values that nobody should pass."""

import math
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

NUMBERS: list[Any] = [
    math.nan, math.inf, -math.inf, 0, -1, 0.5, -0.0, 1e308, 5e-324, -1e308, 10**400, -(10**400), 2**63, -(2**63), 1j,
    True, np.float32("nan"), np.int8(-5),
]  # fmt: skip
OTHERS: list[Any] = [
    None, "", "nan", "x" * 1000, "[/red]", "\x1b[31m", "a\nb", "\ud800", b"", b"\xff", [], (), {}, set(), [math.nan],
    [None], [[1]], ["a", "a"], {"learning_rate": math.nan}, {1: 2}, object, object(), len, np.array([]),
    np.zeros((2, 2)), np.array(["a"]), np.array([math.nan]), Path("nowhere/at/all"), Path(), range(0), iter(()),
]  # fmt: skip
WORDS = [
    "nan", "inf", "-inf", "0", "-1", "0.5", "1e308", "5e-324", "-1e308", "9" * 400, "1e400", "", " ", "x" * 1000,
    "[/red]", "[bold]", "\x1b[31m", "a\nb", "é", "--", "-", "..", "4..", "..4", "4..2", "1,,2", "1e3..1e-3", "0x10",
    "1_000", "\u0661", "None", "true", "sgd", "sgd,sgd", "1/0", "3/2", "a=b", "learning_rate=nan", "=", "%s", "{0}",
    "\\",
]  # fmt: skip


def value(random: Random) -> Any:
    """One of them."""
    return random.choice(random.choice([NUMBERS, OTHERS]))
