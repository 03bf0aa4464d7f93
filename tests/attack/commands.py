"""Every command, with options and values that nobody should type."""

import contextlib
import io
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import click

from batchlens.cli import cli, main
from tests.attack import hostile

# Where a larger number is a longer wait, and no mistake; and what would need a network.
PATIENT = {"--max-steps", "--trials", "--repeats", "--dim", "--steps", "--pieces", "--bins", "--workers", "--ray"}
PATHS = ["", ".", "/proc/nothing", "runs.csv", "runs.csv/below", "a\nb", "x" * 300, "~"]
WELL = {
    "risk": "--learning-rate 0.1 --batch-size 8 --steps 1,10 --dim 50",
    "steps": "--optimizer sgd --batch-sizes 4,16 --target 0.5 --dim 50",
    "schedule": "--batch-size 8 --target 0.5 --pieces 3 --dim 50",
    "fit": "{0}/runs.csv",
    "reproduce": "--out {0}/reproduced --dim 0",
    "train": "digits --optimizer sgd --batch-size 64 --set learning_rate=0.1 --max-steps 2 --checkpoint {0}/run.pt",
    "sweep": "digits --optimizers sgd --batch-sizes 64 --trials 1 --max-steps 2 --workers 1 --search sobol"
    " --store {0}/done.sqlite",
    "report": "{0}/store.sqlite --out {0}/page",
    "merge": "{0}/merged.sqlite {0}/store.sqlite",
    "data list": "--data-dir {0}/data",
    "data fetch": "nothing --data-dir {0}/data",
    "data verify": "--data-dir {0}/data",
}


def find_commands(group: click.Group = cli, names: str = "") -> Iterator[tuple[str, click.Command]]:
    """All of them, by what one types."""
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from find_commands(command, f"{names}{name} ")
        else:
            yield f"{names}{name}", command


COMMANDS = dict(find_commands())


def attempt(random: Random, folder: Path) -> tuple[str, Callable[[], str]]:
    """A command line, and what runs it: it answers with what broke, if anything did."""
    name = random.choice(sorted(WELL))
    words = [*name.split(), *WELL[name].format(folder).split()]
    options = [entry for entry in COMMANDS[name].params if isinstance(entry, click.Option)]
    for option in random.sample(options, min(random.choice([0, 1, 1, 2, 3]), len(options))):
        words += [option.opts[0]] if option.is_flag else [option.opts[0], _word(random, option.opts[0], folder)]
    if random.random() < 0.2:
        words.insert(random.randrange(len(words) + 1), random.choice(hostile.WORDS))
    if random.random() < 0.1:
        del words[random.randrange(len(words))]
    return repr(words), lambda: _judge(words)


def _word(random: Random, option: str, folder: Path) -> str:
    if option in ("--out", "--csv", "--store", "--checkpoint", "--data-dir"):
        return random.choice(PATHS)
    words = [word for word in hostile.WORDS if option not in PATIENT or not word[:1].isdigit() or word == "0"]
    return random.choice(words)


def _judge(words: list[str]) -> str:
    status, out, err = run(words)
    if "Traceback" in out + err or status not in (0, 1, 2, 130):
        return f"status {status}: {(out + err)[-600:]}"
    lines = [line for line in err.splitlines() if line.startswith("batchlens:")]
    if status and not out and not err:
        return f"status {status} without a word"
    if status and len(words) > 1 and len(lines) > 1 and "going on with" not in err:
        return f"{len(lines)} lines of error: {err[-300:]}"
    return ""


def run(words: list[str]) -> tuple[object, str, str]:
    """Exit status, standard output and standard error."""
    out, err = io.StringIO(), io.StringIO()
    before = sys.argv
    sys.argv = ["batchlens", *words]
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            main()
    except SystemExit as ended:
        return ended.code, out.getvalue(), err.getvalue()
    except BaseException:
        return "none", out.getvalue(), err.getvalue() + traceback.format_exc()
    finally:
        sys.argv = before
