"""The program as tests run it: in this process, or as users start it."""

import shlex
import signal
import subprocess
import sys
from typing import Any

import pytest

from batchlens import cli


def run(command: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    """Exit status, standard output and standard error of a command in this process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["batchlens", *shlex.split(command)])
        with pytest.raises(SystemExit) as ended:
            cli.main()
    assert isinstance(ended.value.code, int)
    out, err = capsys.readouterr()
    return ended.value.code, out, err


def heed_interrupts() -> None:
    """For a new process, before it begins: Ctrl-C ends it."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def start(command: str, **options: Any) -> subprocess.Popen[str]:
    """A process of its own, which Ctrl-C reaches even where these tests run in the background."""
    return subprocess.Popen(
        [sys.executable, "-m", "batchlens", *shlex.split(command)],
        stdout=subprocess.PIPE, text=True, preexec_fn=heed_interrupts, **options,
    )  # fmt: skip
