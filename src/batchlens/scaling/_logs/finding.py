"""Which files are meant by paths, patterns and folders."""

import glob
import math
import os
import re
from collections.abc import Iterable
from pathlib import Path

from batchlens.errors import BatchlensError
from batchlens.scaling._logs.kinds.events import MARK as EVENTS
from batchlens.scaling._logs.kinds.monitor_file import is_monitor_file

_CHECKPOINT = re.compile(r"checkpoint-(\d+)")
# A folder may hold the same run in several kinds of log: the first of these that it has counts.
_KINDS = ("*.jsonl", "trainer_state.json", "metrics.csv", "*.csv", f"*{EVENTS}*")


def find_logs(sources: Iterable[str | Path]) -> list[Path]:
    """One path for each log: a file, or the folder of TensorBoard's events. Each once, in the order given.

    Of the states that one Hugging Face run left in its checkpoint-N folders, the last has all that the others hold, and
    the one that `save_state` left beside these folders has what that one holds.
    """
    found: dict[str, Path] = {}
    for source in sources:
        try:
            for path in _expand(Path(source)):
                found.setdefault(os.path.realpath(path), path)
        except OSError as error:
            raise BatchlensError(f"{source} cannot be read: {error.strerror or error}.") from None
    return _last_checkpoints(list(found.values()))


def _expand(path: Path) -> list[Path]:
    if not glob.has_magic(str(path)) or path.exists():
        return _logs_at(path)
    matches = sorted(glob.glob(str(path), recursive=True))
    if not matches:
        raise BatchlensError(f"{path} matches no file.")
    return [file for match in matches for file in _logs_at(Path(match))]


def _logs_at(path: Path) -> list[Path]:
    return _search(path) if path.is_dir() else [_run_of(path)]


def _search(folder: Path) -> list[Path]:
    for kind in _KINDS:
        files = [file for file in sorted(folder.rglob(kind)) if file.is_file() and _is_log(file)]
        if files:
            return [_run_of(file) for file in files]
    raise BatchlensError(f"{folder} is a folder without a log. Name the files, or see docs/logs.md for what is read.")


def _is_log(file: Path) -> bool:
    if file.suffix != ".jsonl":
        return True
    with open(file, encoding="utf-8", errors="replace") as text:
        return is_monitor_file(text.read(40))


def _run_of(file: Path) -> Path:
    return file.parent if EVENTS in file.name else file


def _last_checkpoints(paths: list[Path]) -> list[Path]:
    last: dict[Path, float] = dict.fromkeys(paths, math.inf)
    for path in paths:
        if match := _CHECKPOINT.fullmatch(path.parent.name):
            run = path.parent.parent / path.name
            last[run] = max(last.get(run, 0), int(match[1]))
    return [
        path
        for path in paths
        if not (match := _CHECKPOINT.fullmatch(path.parent.name))
        or int(match[1]) == last[path.parent.parent / path.name]
    ]
