"""Options that several commands share."""

from collections.abc import Callable
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
data_dir_option = click.option(
    "--data-dir", type=click.Path(path_type=Path), default=None, help="Folder of the data sets."
)
