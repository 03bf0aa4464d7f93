"""A process that is attacked, so that whatever hangs or crashes is seen from outside; a JSON object a line.

python -m tests.attack.victim calls|commands SEED FIRST COUNT FOLDER
"""

import json
import os
import resource
import sys
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import IO, Any

MEMORY = 12 << 30


def main(kind: str, seed: int, first: int, count: int, folder: Path) -> None:
    """Makes attempts `first` to `count`, each a function of the seed and its number."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    os.chdir(folder)
    make = _maker(kind, folder)
    for number in range(first, count):
        what, call = make(Random(f"{kind} {seed} {number}"))
        _say(answers, {"number": number, "what": what})
        problem = call()
        for path in ("swept.sqlite", "out.sqlite", "merged.sqlite", "run.pt"):
            Path(path).unlink(missing_ok=True)
        _say(answers, {"number": number, "problem": problem})


def _maker(kind: str, folder: Path) -> Callable[[Random], tuple[str, Callable[[], str]]]:
    if kind == "calls":
        from tests.attack import calls

        doors = calls.doors(folder)
        return lambda random: calls.attempt(random, doors)
    from tests.attack import commands

    return lambda random: commands.attempt(random, folder)


def _say(file: IO[str], answer: dict[str, Any]) -> None:
    file.write(json.dumps(answer) + "\n")
    file.flush()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]), Path(sys.argv[5]))
