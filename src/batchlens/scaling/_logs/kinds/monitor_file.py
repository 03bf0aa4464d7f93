"""The file of a `Monitor`: a line that says what the run is, then a line for each record.

A run that was picked up again has a further line that says so: what it logged from the step on at which it was picked
up was done anew, and counts no more. A last line may say all that is known of the noise scale.
"""

import json
import math
from collections.abc import Iterator
from typing import Any, NamedTuple

from batchlens.errors import BatchlensError
from batchlens.scaling._logs.log import Curve, Log, Point, make_curve

MARK = "batchlens"
VERSION = 1
# What a record has beside its metrics.
STEP, SECONDS, NOISE = "step", "seconds", "noise"
RESERVED = (MARK, STEP, SECONDS, NOISE)
_BEGINNING = f'{{"{MARK}":'


class MonitorFile(NamedTuple):
    """What the run is, what it logged, and how much of the text are whole lines."""

    run: dict[str, Any]
    records: list[dict[str, Any]]
    whole: int


def is_monitor_file(text: str) -> bool:
    """Whether a Monitor wrote it."""
    return text.startswith(_BEGINNING)


def could_be_monitor_file(text: str) -> bool:
    """The same, where the file may have been cut short at any place."""
    return text.startswith(_BEGINNING[: len(text)])


def parse_monitor_file(where: str, text: str) -> MonitorFile:
    """Everything in the file; a last line that was not written to its end is left out."""
    whole = text.rfind("\n") + 1
    lines = list(_parse_lines(where, text[:whole]))
    if not lines:
        raise BatchlensError(f"{where} holds nothing but a line cut short: its run was killed at once. Remove it.")
    run, *rest = lines
    if run.get(MARK) != VERSION:
        raise BatchlensError(f"{where} is of version {run.get(MARK)}, and this batchlens reads {VERSION}. Update it.")
    records: list[dict[str, Any]] = []
    again = False
    for number, record in enumerate(rest, start=2):
        if MARK in record:
            again = again or "resumed" in record
            continue
        if not isinstance(record.get(STEP), int | float):
            raise BatchlensError(f"{where}, line {number} must have a step, got {json.dumps(record)[:60]}.")
        if again:
            records = [entry for entry in records if entry[STEP] < record[STEP]]
            again = False
        records.append(record)
    return MonitorFile(run, records, whole)


def read_monitor_file(where: str, text: str) -> Log:
    """The run that a Monitor wrote down."""
    run, records, _ = parse_monitor_file(where, text)
    names = dict.fromkeys(name for record in records for name in record if name not in RESERVED)

    def read(metric: str) -> Curve:
        return make_curve(_points(where, records, metric))

    return Log(
        where, tuple(names), read, run.get("effective_batch_size"), run.get("optimizer", ""), run.get("settings", {})
    )


def _parse_lines(where: str, text: str) -> Iterator[dict[str, Any]]:
    for number, line in enumerate(text.splitlines(), start=1):
        try:
            entry = json.loads(line)
        except ValueError:
            entry = None
        if not isinstance(entry, dict):
            raise BatchlensError(f"{where}, line {number} must be a JSON object, got {line[:40]}. Remove the line.")
        yield entry


def _points(where: str, records: list[dict[str, Any]], metric: str) -> Iterator[Point]:
    for record in records:
        if metric in record:
            value = record[metric]
            if value is not None and not isinstance(value, int | float):
                raise BatchlensError(f"{where}, step {record[STEP]}: {metric} must be a number, got {value!r}.")
            yield record[STEP], math.nan if value is None else value, record.get(SECONDS, math.nan)
