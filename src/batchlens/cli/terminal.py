"""How the command line reads numbers and prints results."""

import json
import sys
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

from batchlens._notation import Unreadable, parse_number, parse_numbers, parse_whole
from batchlens._results import finite

_T = TypeVar("_T")


class Number(click.ParamType):  # type: ignore[type-arg]
    """A number; whether it is in range is for the library to say."""

    name = "number"

    def convert(self, value: Any, param: click.Parameter | None, _: click.Context | None) -> float:
        return _read(parse_number, value, param)


class NumberOrTuned(Number):
    """A number, or the word tuned."""

    def convert(self, value: Any, param: click.Parameter | None, context: click.Context | None) -> Any:
        try:
            return value if value == "tuned" else super().convert(value, param, context)
        except click.UsageError:
            raise _bad(param, "a number or tuned", value) from None


class Whole(click.ParamType):  # type: ignore[type-arg]
    """A whole number; 1e6 counts."""

    name = "whole"

    def convert(self, value: Any, param: click.Parameter | None, _: click.Context | None) -> int:
        return _read(parse_whole, value, param)


class Numbers(click.ParamType):  # type: ignore[type-arg]
    """Several numbers: 4,16,64, or 4..4096 for each doubling from 4 to 4096."""

    name = "numbers"

    def __init__(self, whole: bool = False) -> None:
        self.whole = whole

    def convert(self, value: Any, param: click.Parameter | None, context: click.Context | None) -> list[float]:
        if isinstance(value, list):
            return value
        return _read(lambda text: parse_numbers(text, self.whole), value, param)


class Names(click.ParamType):  # type: ignore[type-arg]
    """Several names, separated by commas; those known where these are given, else it is for the library to say."""

    name = "names"

    def __init__(self, known: Sequence[str] = ()) -> None:
        self.known = known

    def convert(self, value: Any, param: click.Parameter | None, _: click.Context | None) -> list[str]:
        names = value if isinstance(value, list) else value.split(",")
        for name in names:
            if self.known and name not in self.known:
                raise _bad(param, f"one or several of {', '.join(self.known)}", name)
        return names


class Part(Number):
    """A part of something: 5% or 0.05."""

    name = "part"

    def convert(self, value: Any, param: click.Parameter | None, context: click.Context | None) -> float:
        if not isinstance(value, str) or not value.endswith("%"):
            return super().convert(value, param, context)
        try:
            return float(value[:-1]) / 100
        except ValueError:
            raise _bad(param, "such as 5% or 0.05", value) from None


class Duration(Number):
    """Seconds: 90, 90s, 20m or 3h."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, context: click.Context | None) -> float:
        try:
            if isinstance(value, str) and value[-1:] in _SECONDS:
                return float(value[:-1]) * _SECONDS[value[-1]]
            return float(value)
        except ValueError:
            raise _bad(param, "such as 90s, 20m or 3h", value) from None


class Price(Number):
    """What a device costs an hour: 2.5/h, 60/d or 0.0007/s."""

    name = "price"

    def convert(self, value: Any, param: click.Parameter | None, context: click.Context | None) -> float:
        amount, _, unit = value.partition("/") if isinstance(value, str) else (value, "", "h")
        try:
            return float(amount) * _SECONDS["h"] / _SECONDS[unit.strip()]
        except (KeyError, ValueError):
            raise _bad(param, "a price with its unit, such as 2.5/h", value) from None


_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def _read(parse: Callable[[Any], _T], value: Any, param: click.Parameter | None) -> _T:
    try:
        return parse(value)
    except Unreadable as error:
        raise _bad(param, error.wanted, error.got) from None


def _bad(param: click.Parameter | None, wanted: str, got: object) -> click.UsageError:
    option = param.opts[0] if param else "value"
    return click.UsageError(f"{option} must be {wanted}, got {got or 'nothing'}.")


NUMBER, NUMBER_OR_TUNED, WHOLE, NUMBERS, WHOLES = Number(), NumberOrTuned(), Whole(), Numbers(), Numbers(whole=True)
PART, DURATION, PRICE = Part(), Duration(), Price()


def print_json(document: Any) -> None:
    """One JSON document on standard output; JSON has no infinity, so what has diverged is null."""
    click.echo(json.dumps(finite(document)))


def print_table(title: str, columns: dict[str, list[Any]]) -> None:
    """A readable table on standard output."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table()
    for name, values in columns.items():
        words = any(isinstance(value, str | list) for value in values)
        table.add_column(Text(plain(name.replace("_", " "))), justify="left" if words else "right", overflow="fold")
    for row in zip(*columns.values(), strict=True):
        table.add_row(*(Text(plain(_cell(value))) for value in row))
    console = Console(width=None if sys.stdout.isatty() else 120)
    console.print(Text(plain(title)))
    console.print(table)


def say(text: str, err: bool = False) -> None:
    """One line, with nothing in it that steers a terminal."""
    click.echo(plain(text), err=err)


def plain(text: str) -> str:
    """Text from outside without the characters that steer a terminal.

    >>> plain("a\\x1b[31mb")
    'a?[31mb'
    """
    return "".join(character if character.isprintable() else "?" for character in text)


def columns_of(rows: list[dict[str, Any]]) -> dict[str, list[Any]]:
    """The columns of rows that share their keys."""
    return {name: [row[name] for row in rows] for name in rows[0]}


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, list):
        return ", ".join(map(str, value))
    if isinstance(value, float):
        return f"{value:.6g}"
    return f"{value:,}" if isinstance(value, int) else str(value)
