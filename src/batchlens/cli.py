"""The command line: parse, call, print.

Heavy imports stay inside the commands, so that `batchlens --help` answers at once.
"""

import json
import math
import re
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import click

from batchlens import __version__
from batchlens.errors import BatchlensError

if TYPE_CHECKING:
    from batchlens.theory.problem import NoisyQuadratic
    from batchlens.theory.rule import UpdateRule

_Command = TypeVar("_Command", bound=Callable[..., Any])


class Number(click.ParamType[float]):
    """A number; whether it is in range is for the library to say."""

    name = "number"

    def convert(self, value: Any, param: click.Parameter | None, _: click.Context | None) -> float:
        try:
            return float(value)
        except ValueError:
            raise _bad(param, "a number", value) from None


class Whole(click.ParamType[int]):
    """A whole number; 1e6 counts."""

    name = "whole"

    def convert(self, value: Any, param: click.Parameter | None, _: click.Context | None) -> int:
        try:
            number = float(value)
            return int(value) if isinstance(value, int) or number.is_integer() else int("")
        except (ValueError, OverflowError):
            raise _bad(param, "a whole number", value) from None


class Numbers(click.ParamType[list[float]]):
    """Several numbers: 4,16,64, or 4..4096 for each doubling from 4 to 4096."""

    name = "numbers"

    def __init__(self, whole: bool = False) -> None:
        self.whole = whole

    def convert(self, value: Any, param: click.Parameter | None, context: click.Context | None) -> list[float]:
        if isinstance(value, list):
            return value
        kind = Whole() if self.whole else Number()
        numbers: list[float] = []
        for part in value.split(","):
            first, dots, last = part.partition("..")
            low = kind.convert(first, param, context)
            if not dots:
                numbers.append(low)
                continue
            high = kind.convert(last, param, context)
            if not 0 < low <= high < math.inf:
                raise _bad(param, "LOW..HIGH with 0 < LOW <= HIGH", part)
            while low <= high:
                numbers.append(low)
                low *= 2
        return numbers


def _bad(param: click.Parameter | None, wanted: str, got: object) -> click.UsageError:
    option = param.opts[0] if param else "value"
    return click.UsageError(f"{option} must be {wanted}, got {got}.")


NUMBER, WHOLE, NUMBERS, WHOLES = Number(), Whole(), Numbers(), Numbers(whole=True)


def problem_options(command: _Command) -> _Command:
    """The options that say which noisy quadratic is meant: the paper's, unless told otherwise."""
    for option in reversed(
        [
            click.option("--dim", type=WHOLE, default=10_000, show_default=True, help="Coordinates."),
            click.option("--exponent", type=NUMBER, default=1.0, show_default=True,
                         help="Curvature of coordinate i is i^-EXPONENT; gradient noise equals it."),
            click.option("--bins", type=WHOLE, default=100, show_default=True,
                         help="Coordinates of similar curvature share one of so many bins; 0: no binning."),
            click.option("--rounding", type=click.Choice(["down", "mean"]), default="down", show_default=True,
                         help="down: as the paper's quantisation; mean: keeps the trace."),
        ]
    ):  # fmt: skip
        command = option(command)
    return command


def rule_options(required: bool) -> Callable[[_Command], _Command]:
    """The options that spell out an update rule."""

    def decorate(command: _Command) -> _Command:
        for option in reversed(
            [
                click.option("--learning-rate", type=NUMBER, required=required, help="At least 0."),
                click.option("--momentum", type=NUMBER, default=0.0, show_default=True, help="In [0, 1)."),
                click.option("--nesterov", is_flag=True, help="Look ahead, as torch.optim.SGD does."),
                click.option("--averaging", type=NUMBER, default=0.0, show_default=True,
                             help="Coefficient of the exponential moving average, in [0, 1)."),
            ]
        ):  # fmt: skip
            command = option(command)
        return command

    return decorate


json_option = click.option("--json", "as_json", is_flag=True, help="One JSON document instead.")


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="batchlens")
def cli() -> None:
    """How large a batch can a training use, and which optimizer and learning rate go with it?

    \b
    Example:
      batchlens risk --learning-rate 0.1 --momentum 0.9 --batch-size 256 --steps 10,1000
    """


@cli.command("risk")
@rule_options(required=True)
@click.option("--power", type=NUMBER, default=0.0, show_default=True,
              help="Precondition by H^-POWER, in [0, 1].")  # fmt: skip
@click.option("--batch-size", type=NUMBER, required=True, help="Examples a step, above 0.")
@click.option("--steps", type=WHOLES, required=True, help="Step counts: 10,1000 or 1..1024.")
@problem_options
@json_option
def risk_command(
    learning_rate: float,
    momentum: float,
    nesterov: bool,
    averaging: float,
    power: float,
    batch_size: float,
    steps: list[int],
    as_json: bool,
    **problem: Any,
) -> None:
    """Expected loss of an update rule after given numbers of steps, exactly.

    \b
    Example:
      batchlens risk --learning-rate 0.1 --momentum 0.9 --batch-size 256 --steps 10,1000
    """
    from batchlens.theory.dynamics import risk_terms
    from batchlens.theory.rule import UpdateRule

    rule = UpdateRule(learning_rate, momentum, nesterov, averaging, power)
    terms = risk_terms(_problem(**problem), rule, batch_size, steps)
    columns = {
        "steps": steps,
        "risk": terms.total.tolist(),
        "deterministic": terms.deterministic.tolist(),
        "noise": terms.noise.tolist(),
    }
    if as_json:
        print_json(columns)
    else:
        print_table(f"{_describe(rule)}, batch size {batch_size:g}", columns)


@cli.command("steps")
@rule_options(required=True)
@click.option("--power", type=NUMBERS, default="0", show_default=True,
              help="Precondition by H^-POWER, in [0, 1]; one or several.")  # fmt: skip
@click.option("--batch-sizes", type=NUMBERS, required=True, help="4,16,64 or 4..4096.")
@click.option("--target", type=NUMBER, required=True, help="Risk to reach, above 0.")
@problem_options
@json_option
def steps_command(
    learning_rate: float,
    momentum: float,
    nesterov: bool,
    averaging: float,
    power: list[float],
    batch_sizes: list[float],
    target: float,
    as_json: bool,
    **problem: Any,
) -> None:
    """Steps that an update rule takes to a target risk, at each batch size.

    \b
    Example:
      batchlens steps --learning-rate 0.001 --momentum 0.9 --batch-sizes 256..65536 --target 0.01
    """
    from batchlens.theory.hitting import hitting_time
    from batchlens.theory.rule import UpdateRule

    quadratic = _problem(**problem)
    curves = []
    for exponent in power:
        rule = UpdateRule(learning_rate, momentum, nesterov, averaging, exponent)
        points = []
        for batch_size in batch_sizes:
            steps, status = hitting_time(quadratic, rule, batch_size, target)
            points.append(
                {
                    "batch_size": _short(batch_size),
                    "steps": steps,
                    "learning_rate": rule.learning_rate,
                    "momentum": rule.momentum,
                    "averaging": rule.averaging,
                    "status": status,
                }
            )
        curves.append({"optimizer": rule.family, "power": exponent, "points": points})
    if as_json:
        print_json({"curves": curves})
        return
    for curve in curves:
        points = curve["points"]  # type: ignore[assignment]
        columns = {name: [point[name] for point in points] for name in points[0]}
        print_table(f"{curve['optimizer']}, power {curve['power']:g}, target {target:g}", columns)


@cli.command("reproduce")
@problem_options
@json_option
def reproduce_command(as_json: bool, **problem: Any) -> None:
    """The risk of the paper's optimizers on its noisy quadratic, over time.

    \b
    Example:
      batchlens reproduce
    """
    from batchlens.theory.dynamics import risk
    from batchlens.theory.rule import UpdateRule

    quadratic = _problem(**problem)
    rules = [
        UpdateRule(0.1),
        UpdateRule(0.01, momentum=0.9),
        UpdateRule(0.01, momentum=0.9, nesterov=True),
        UpdateRule(0.1, averaging=0.99),
        UpdateRule(0.01, power=0.5),
        UpdateRule(0.001, momentum=0.9, averaging=0.99, power=0.5),
    ]
    steps = [0, 100, 10_000, 1_000_000]
    rows = [
        {"rule": _describe(rule), "batch_size": batch_size}
        | dict(zip(map(str, steps), risk(quadratic, rule, batch_size, steps).tolist(), strict=True))
        for batch_size in (16, 1024)
        for rule in rules
    ]
    if as_json:
        print_json(rows)
        return
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    print_table("Expected loss after so many steps", columns)


def _problem(dim: int, exponent: float, bins: int, rounding: Any) -> "NoisyQuadratic":
    from batchlens.theory.problem import NoisyQuadratic

    problem = NoisyQuadratic.power_law(dim, exponent)
    return problem if bins == 0 else problem.binned(bins, rounding)


def _describe(rule: "UpdateRule") -> str:
    words = [f"{rule.family}, learning rate {rule.learning_rate:g}"]
    words += [f"{name} {value:g}" for name in ("momentum", "averaging", "power")
              if (value := getattr(rule, name))]  # fmt: skip
    return ", ".join(words)


def _short(number: float) -> float:
    """An int where it is whole: 64, not 64.0."""
    return int(number) if number == int(number) else number


def print_json(document: Any) -> None:
    """One JSON document on standard output; JSON has no infinity, so what has diverged is null."""
    click.echo(json.dumps(_finite(document)))


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [_finite(entry) for entry in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def print_table(title: str, columns: dict[str, list[Any]]) -> None:
    """A readable table on standard output."""
    from rich.console import Console
    from rich.table import Table

    table = Table(title=title, title_justify="left")
    for name in columns:
        table.add_column(name.replace("_", " "), justify="right", overflow="fold")
    for row in zip(*columns.values(), strict=True):
        table.add_row(*map(_cell, row))
    Console(width=None if sys.stdout.isatty() else 120).print(table)


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.6g}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def main() -> NoReturn:
    """Run a command; whatever goes wrong ends in one line on standard error."""
    try:
        cli(standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        sys.exit(2)
    except click.UsageError as error:
        _fail(error.format_message(), 2)
    except (ValueError, TypeError) as error:
        message = re.sub(r"`(\w+)`", lambda name: "--" + name[1].replace("_", "-"), str(error))
        _fail(message, 2)
    except BatchlensError as error:
        _fail(str(error), 1)
    except (KeyboardInterrupt, click.Abort):
        _fail("interrupted.", 130)
    sys.exit(0)


def _fail(message: str, status: int) -> NoReturn:
    click.echo(f"batchlens: {message}", err=True)
    sys.exit(status)
