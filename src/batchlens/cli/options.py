"""Options that several commands share."""

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import click

from batchlens.cli.terminal import NUMBER, WHOLE

_Command = TypeVar("_Command", bound=Callable[..., Any])


def problem_options(command: _Command) -> _Command:
    """The options that say which noisy quadratic is meant: the paper's, unless told otherwise."""
    for option in reversed(
        [
            click.option("--dim", type=WHOLE, default=10_000, show_default=True, help="Coordinates."),
            click.option("--exponent", type=NUMBER, default=1.0, show_default=True,
                         help="Curvature of coordinate i is i^-EXPONENT; gradient noise equals it."),
            click.option("--bins", type=WHOLE, default=100, show_default=True,
                         help="Bins that coordinates of similar curvature share; 0: no binning."),
            click.option("--rounding", type=click.Choice(["down", "mean"]), default="down", show_default=True,
                         help="down: as the paper's quantisation; mean: keeps the trace."),
        ]
    ):  # fmt: skip
        command = option(command)
    return command


problem_file_option = click.option(
    "--problem", type=click.Path(path_type=Path), default=None,
    help="A spectrum as CSV (curvature, and if there are any noise, initial, count), or what batchlens measure wrote, "
    "in place of --dim and --exponent; put into --bins where it has more entries.",
)  # fmt: skip


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


class _Setting(click.ParamType):  # type: ignore[type-arg]
    """NAME=NUMBER."""

    name = "name=number"

    def convert(self, value: Any, param: click.Parameter | None, context: click.Context | None) -> tuple[str, float]:
        name, equals, number = value.partition("=") if isinstance(value, str) else (*value[:1], "=", value[1])
        if not name or not equals:
            raise click.UsageError(f"--set must be NAME=NUMBER, got {value or 'nothing'}.")
        return name, NUMBER.convert(number, param, context)


def _each_once(_: click.Context, __: click.Parameter, given: tuple[tuple[str, float], ...]) -> dict[str, float]:
    names = [name for name, _ in given]
    if repeated := [name for name in names if names.count(name) > 1]:
        raise click.UsageError(f"--set must give a setting once, got {repeated[0]} {names.count(repeated[0])} times.")
    return dict(given)


@contextmanager
def settings_as_typed(settings: Iterable[str]) -> Iterator[None]:
    """What is said of a setting names --set: it is no option of its own."""
    try:
        yield
    except ValueError as error:
        raise ValueError(re.sub(rf"^`({'|'.join(settings) or '$'})`", r"--set \1", str(error))) from None


setting_option = click.option("--set", "settings", type=_Setting(), multiple=True, callback=_each_once,
                              help="A setting, such as learning_rate=0.1; once for each.")  # fmt: skip
json_option = click.option("--json", "as_json", is_flag=True, help="One JSON document instead.")
data_dir_option = click.option(
    "--data-dir", type=click.Path(path_type=Path), default=None, help="Folder of the data sets."
)
