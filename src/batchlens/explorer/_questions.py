"""What the page asks, checked: a bad value gets the sentence that the command line prints."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from batchlens._checks import require_choice, require_number, require_whole
from batchlens._notation import Unreadable, parse_number, parse_numbers, parse_whole
from batchlens.explorer._files import Files
from batchlens.optimizers import FAMILIES
from batchlens.theory._curves import require_batch_sizes
from batchlens.theory._quantised import power_law, quantised
from batchlens.theory.problem import NoisyQuadratic

# What one question may ask for at most: the page is to stay quick, and memory in bounds.
MOST_DIM, MOST_BINS, MOST_CURVES, MOST_SIZES = 10**6, 1000, 15, 50

Question = Mapping[str, Any]


@dataclass(frozen=True)
class Posed:
    """A problem, and what names it among others."""

    problem: NoisyQuadratic
    key: tuple[Any, ...]


def pose(question: Question, files: Files) -> Posed:
    """The problem of a question: the paper's, or that of a file."""
    given = question.get("problem")
    if not isinstance(given, Mapping):
        raise TypeError(f"`problem` must be an object, got {given!r}.")
    bins = require_whole("bins", whole(given, "bins"), high=MOST_BINS)
    rounding = choice(given, "rounding", ("down", "mean"))
    if "file" in given:
        digest = str(given["file"])
        problem = files.problem(digest)
        _refuse_too_many(bins, problem.curvature.size)
        return Posed(quantised(problem, bins, rounding), (digest, bins, rounding))
    dim = require_whole("dim", whole(given, "dim"), low=1, high=MOST_DIM)
    _refuse_too_many(bins, dim)
    exponent = number(given, "exponent")
    return Posed(_power_law(dim, exponent, bins, rounding), (dim, exponent, bins, rounding))


def _refuse_too_many(bins: int, entries: int) -> None:
    if bins == 0 and entries > MOST_BINS:
        raise ValueError(f"`bins` must be at least 1 beyond {MOST_BINS} coordinates, got 0.")


_power_law = lru_cache(maxsize=32)(power_law)


def number(question: Question, name: str) -> float:
    """A number, written as on the command line or plain."""
    return float(_parse(name, parse_number, question.get(name)))


def whole(question: Question, name: str) -> int:
    """A whole number."""
    return int(_parse(name, parse_whole, question.get(name)))


def choice(question: Question, name: str, choices: tuple[str, ...]) -> Any:
    """One of several words."""
    return require_choice(name, question.get(name), choices)


def target_of(question: Question) -> float:
    """The risk to reach."""
    return require_number("target", number(question, "target"), low=0, closed=(False, True))


def sizes_of(question: Question) -> list[float]:
    """Batch sizes in the command line's notation, rising."""
    sizes = require_batch_sizes(_parse("batch_sizes", parse_numbers, question.get("batch_sizes")))
    if len(sizes) > MOST_SIZES:
        raise ValueError(f"`batch_sizes` must be at most {MOST_SIZES}, got {len(sizes)}.")
    return sizes


def curves_of(question: Question) -> list[tuple[str, float]]:
    """Every optimizer with every power."""
    names = str(question.get("optimizer") or "").split(",")
    for name in names:
        if name not in FAMILIES:
            raise ValueError(f"`optimizer` must be one or several of {', '.join(FAMILIES)}, got {name or 'nothing'}.")
    powers = [require_number("power", power, 0, 1) for power in _parse("power", parse_numbers, question.get("power"))]
    asked = list(dict.fromkeys((name, power) for name in names for power in powers))
    if len(asked) > MOST_CURVES:
        raise ValueError(f"`optimizer` with `power` must make at most {MOST_CURVES} curves, got {len(asked)}.")
    return asked


def _parse(name: str, parse: Any, value: Any) -> Any:
    """What a parser makes of a value of JSON, which has no other types than these."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        value = "" if value is None else str(value)
    if parse is parse_numbers and not isinstance(value, str):
        value = repr(value)
    if isinstance(value, str) and len(value) > 1000:
        raise ValueError(f"`{name}` must be shorter than 1000 characters, got {len(value)}.")
    try:
        return parse(value)
    except Unreadable as error:
        raise ValueError(f"`{name}` {error}") from None
