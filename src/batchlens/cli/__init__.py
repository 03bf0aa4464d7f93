"""The command line: parse, call, print.

Heavy imports stay inside the commands, so that `batchlens --help` answers at once.
"""

import atexit
import signal
import sys
import warnings
from typing import Any, NoReturn

import click

from batchlens import __version__
from batchlens._notation import as_typed
from batchlens.cli.advising import plan_command, time_command, transfer_command
from batchlens.cli.data import data_group
from batchlens.cli.exploring import explore_command
from batchlens.cli.fitting import fit_command
from batchlens.cli.measuring import measure_command
from batchlens.cli.predicting import predict_command
from batchlens.cli.progress import interruptible
from batchlens.cli.sweeping import merge_command, report_command, sweep_command
from batchlens.cli.terminal import plain
from batchlens.cli.theory import reproduce_command, risk_command, schedule_command, steps_command
from batchlens.cli.training import train_command
from batchlens.errors import BatchlensError


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="batchlens")
def cli() -> None:
    """How large a batch can a training use, and which optimizer and learning rate go with it?

    \b
    Example:
      batchlens risk --learning-rate 0.1 --momentum 0.9 --batch-size 256 --steps 10,1000
    """


for command in (
    risk_command,
    steps_command,
    schedule_command,
    fit_command,
    reproduce_command,
    train_command,
    sweep_command,
    report_command,
    merge_command,
    measure_command,
    predict_command,
    transfer_command,
    plan_command,
    time_command,
    data_group,
    explore_command,
):
    cli.add_command(command)


def main() -> NoReturn:
    """Run a command; whatever goes wrong ends in one line on standard error."""
    try:
        with interruptible(), warnings.catch_warnings():
            warnings.showwarning = _Warnings().show
            cli(prog_name="batchlens", standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        sys.exit(2)
    except click.UsageError as error:
        _fail(error.format_message(), 2)
    except (ValueError, TypeError) as error:
        _fail(as_typed(str(error)), 2)
    except BatchlensError as error:
        _fail(str(error), 1)
    except OSError as error:  # where standard output goes
        _fail(f"cannot write: {error.strerror}.", 1)
    except SystemError as error:  # Ctrl-C inside compiled code
        if not isinstance(error.__cause__, KeyboardInterrupt):
            raise
        _fail("interrupted.", 130)
    except (KeyboardInterrupt, click.Abort) as error:
        atexit.register(signal.signal, signal.SIGINT, signal.SIG_IGN)  # once more changes nothing
        _fail(f"interrupted {error}".strip() if error.args else "interrupted.", 130)
    sys.exit(0)


class _Warnings:
    """Each is one line, said once, without the place in the code that it comes from."""

    def __init__(self) -> None:
        self._said: set[str] = set()

    def show(self, message: Warning | str, *_: Any, **__: Any) -> None:
        if str(message) not in self._said:
            self._said.add(str(message))
            click.echo(f"batchlens: {_one_line(str(message))}", err=True)


def _fail(message: str, status: int) -> NoReturn:
    click.echo(f"batchlens: {_one_line(message)}", err=True)
    sys.exit(status)


def _one_line(message: str) -> str:
    """What came from outside may have line ends, and characters that steer a terminal."""
    return plain(" ".join(message.splitlines()))
