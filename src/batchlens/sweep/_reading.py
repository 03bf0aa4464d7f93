"""From the rows of a store to trials: a row that says something impossible is damaged."""

import json
import math
from collections.abc import Iterable, Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Any, get_args

from batchlens.optimizers import OPTIMIZERS, base_of
from batchlens.sweep._declaration import Cell, Declaration
from batchlens.sweep._search import Generation
from batchlens.sweep._trial import Crossings, Key, Status, Trial

KEY = ("optimizer", "batch_size", "number", "repeat")
AS_JSON = ("settings", "position", "versions", "notes", "crossings")
AS_IS = ("status", "steps", "interpolated", "steps_taken", "metric", "seconds", "seed", "host", "reason")
COLUMNS = (*KEY, *AS_JSON, *AS_IS)
_STATUSES = frozenset(get_args(Status))

Row = tuple[Any, ...]


def declaration_of(text: object) -> Declaration:
    """The sweep that a store is of; ValueError where it cannot be read."""
    try:
        declaration = Declaration.from_json(str(text))
        known = [base_of(name) in OPTIMIZERS for name in declaration.optimizers]
        texts = (declaration.workload, declaration.size, declaration.target_on, declaration.source)
        if not all(known) or not all(isinstance(text, str) for text in texts):
            raise ValueError
        if any(not declaration.spaces[name] for name in declaration.optimizers):
            raise ValueError
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise ValueError("its declaration cannot be read") from None
    return declaration


def trials_of(rows: Iterable[Row], declaration: Declaration) -> tuple[list[tuple[int, Trial]], int]:
    """Those trials that can be read, with the numbers of their rows, by key; and how many cannot."""
    found: dict[Key, tuple[int, Trial]] = {}
    spaces = {cell: set(declaration.spaces[cell.optimizer]) for cell in declaration.cells}
    bad, twice = 0, set[Key]()
    for row in rows:
        try:
            trial = _trial(row, spaces)
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            bad += 1
            continue
        if trial.key in found:
            twice.add(trial.key)
            bad += 1
        else:
            found[trial.key] = row[0], trial
    for key in twice:  # there is no telling which of them is right
        del found[key]
    return [found[key] for key in sorted(found)], bad + len(twice)


def generations_of(rows: Iterable[Row], declaration: Declaration) -> tuple[dict[Cell, list[Generation]], int]:
    """The boxes that were searched, of every cell; and how many cannot be read."""
    spaces = declaration.spaces
    found = {cell: [Generation(0, dict.fromkeys(spaces[cell.optimizer], (0.0, 1.0)))] for cell in declaration.cells}
    bad = 0
    for optimizer, batch_size, first, box in rows:
        try:
            boxes = found[Cell(optimizer, batch_size)]
            ends = {name: (float(low), float(high)) for name, (low, high) in json.loads(box).items()}
            _require(ends.keys() == boxes[0].box.keys())
            _require(isinstance(first, int) and first > boxes[-1].first)
            _require(all(-math.inf < low < high < math.inf for low, high in ends.values()))
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            bad += 1
        else:
            boxes.append(Generation(first, ends))
    return found, bad


def _trial(row: Row, spaces: Mapping[Cell, set[str]]) -> Trial:
    values = dict(zip(COLUMNS, row[1:], strict=True))
    key = Key(*(values.pop(name) for name in KEY))
    for name in ("settings", "position"):
        values[name] = _numbers(json.loads(values[name]))
    values["versions"], values["notes"] = _texts(values["versions"], values["notes"])
    values["crossings"] = _crossings(json.loads(values["crossings"]))
    trial = Trial(key=key, **values)
    _require(key.cell in spaces and _is_count(key.number) and _is_count(key.repeat))
    _require(trial.position.keys() <= spaces[key.cell] and _is_number(trial.seconds))
    _require(trial.status in _STATUSES and _is_count(trial.steps_taken) and _is_count(trial.seed))
    _require(_is_count(trial.steps) if trial.status == "reached" else trial.steps is None)
    _require(trial.interpolated is None or (trial.steps is not None and _is_number(trial.interpolated)))
    _require(trial.metric is None or isinstance(trial.metric, int | float))
    _require(all(isinstance(text, str) for text in (trial.host, trial.reason)))
    return trial


def _numbers(values: dict[str, float]) -> dict[str, float]:
    for value in values.values():
        _require(_is_number(value))
    return values


def _crossings(document: dict[str, dict[str, list[float]]]) -> Crossings:
    found = {
        target: {weights: (steps, interpolated) for weights, (steps, interpolated) in by.items()}
        for target, by in document.items()
    }
    for by in found.values():
        for steps, interpolated in by.values():
            _require(_is_count(steps) and _is_number(interpolated))
    return found  # type: ignore[return-value]


@lru_cache(maxsize=1024)  # most trials say the same
def _texts(versions: str, notes: str) -> tuple[Mapping[str, str], tuple[str, ...]]:
    found, said = json.loads(versions), tuple(json.loads(notes))
    _require(all(isinstance(text, str) for text in (*found.keys(), *found.values(), *said)))
    return MappingProxyType(found), said


def _require(holds: bool) -> None:
    if not holds:
        raise ValueError


def _is_count(value: object) -> bool:
    return isinstance(value, int) and value >= 0


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)
