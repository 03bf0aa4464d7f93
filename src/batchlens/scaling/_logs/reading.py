"""Whatever a file holds, by what it looks like."""

import json
from collections.abc import Mapping
from pathlib import Path

from batchlens.errors import BatchlensError
from batchlens.scaling._logs.kinds.cells import read_table
from batchlens.scaling._logs.kinds.chart import is_chart, read_chart
from batchlens.scaling._logs.kinds.events import read_events
from batchlens.scaling._logs.kinds.hparams import FILE as HPARAMS
from batchlens.scaling._logs.kinds.hparams import read_hparams
from batchlens.scaling._logs.kinds.monitor_file import is_monitor_file, read_monitor_file
from batchlens.scaling._logs.kinds.records import read_records, step_column
from batchlens.scaling._logs.kinds.steps_table import Run, parse_runs
from batchlens.scaling._logs.kinds.trainer_state import read_trainer_state
from batchlens.scaling._logs.log import Log, Setting

_LIGHTNING = "metrics.csv"


def read_path(path: Path) -> list[Run] | list[Log]:
    """The runs of a table of steps, or the logs in a file or in a folder of TensorBoard's events."""
    if path.is_dir():
        return [read_events(path, read_hparams(path), from_zero=(path / HPARAMS).exists())]
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise BatchlensError(f"{path} cannot be read: {error.strerror or error}.") from None
    except ValueError as error:
        if isinstance(error, UnicodeDecodeError):
            raise not_text(str(path)) from None
        raise BatchlensError(f"{path} cannot be read: {error}.") from None
    beside = read_hparams(path.parent) if path.name == _LIGHTNING else {}
    return read_text(str(path), text, beside, from_zero=path.name == _LIGHTNING)


def read_text(
    where: str, text: str, beside: Mapping[str, Setting] | None = None, from_zero: bool = False
) -> list[Run] | list[Log]:
    """The same of text; `beside` are the settings in the file beside it, `from_zero` is how Lightning counts steps."""
    if is_monitor_file(text):
        return [read_monitor_file(where, text)]
    if text.startswith("{"):
        return [_read_json(where, text)]
    table = read_table(where, text, may_be_torn=True)
    if table is not None:
        names = [name.lower() for name in table.header.cells]
        if is_chart(table):
            return read_chart(where, table)
        if step_column(names) is not None and "steps" not in names:
            return read_records(where, table, beside or {}, from_zero and "epoch" in names)
    return parse_runs(where, table)


def not_text(where: str) -> BatchlensError:
    """What to say of a file in another encoding."""
    return BatchlensError(f"{where} must be UTF-8 text. Save it as CSV in UTF-8.")


def _read_json(where: str, text: str) -> Log:
    try:
        state = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BatchlensError(f"{where} must be JSON to its end: {error}. Was it cut short?") from None
    return read_trainer_state(where, state)
