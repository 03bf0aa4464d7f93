"""What a file with a problem holds: columns of CSV or JSON, or a measurement."""

import csv
import io
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from batchlens.errors import BatchlensError
from batchlens.theory.problem import NoisyQuadratic

_COLUMNS = ("curvature", "noise", "initial", "count", "noise_growth")


def parse_problem(name: str, text: str) -> NoisyQuadratic:
    """What a file of that name and content holds."""
    if not text.lstrip().startswith("{"):
        return _problem_of(name, _columns_of_csv(name, text))
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        raise BatchlensError(f"{name} must be CSV or JSON, got JSON that is damaged.") from None
    if "moments" in document:
        return _problem_of(name, _columns_of_measurement(name, document["moments"]))
    columns = document.get("problem", document)
    if not isinstance(columns, dict) or "curvature" not in columns:
        raise BatchlensError(f"{name} must hold a measurement or the column curvature, got neither.")
    return _problem_of(name, {column: columns[column] for column in _COLUMNS if columns.get(column) is not None})


def _problem_of(name: str, columns: Mapping[str, Sequence[float]]) -> NoisyQuadratic:
    curvature = columns["curvature"]
    try:
        initial = columns["initial"] if "initial" in columns else np.ones(np.size(curvature))
        noise, rest = columns.get("noise", curvature), (columns.get("count"), columns.get("noise_growth"))
        return NoisyQuadratic(curvature, noise, initial, *rest)
    except (ValueError, TypeError) as error:
        raise BatchlensError(f"{name}: {error}") from None


def _columns_of_csv(name: str, text: str) -> dict[str, list[float]]:
    lines = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        rows = [(lines.line_num, cells) for cells in lines if any(cell.strip() for cell in cells)]
    except csv.Error as error:
        raise BatchlensError(f"{name}, line {lines.line_num} must be CSV: {error}.") from None
    names = [cell.strip().lower() for cell in rows[0][1]] if rows else []
    known = [column for column in _COLUMNS if column in names]
    if "curvature" not in names or any(names.count(column) > 1 for column in known):
        raise BatchlensError(
            f"{name}, line 1 must name the column curvature, and each column once, got {', '.join(names) or 'nothing'}."
        )
    columns: dict[str, list[float]] = {column: [] for column in known}
    for line, cells in rows[1:]:
        if len(cells) != len(names):
            raise BatchlensError(f"{name}, line {line} must have {len(names)} cells, one per column, got {len(cells)}.")
        for column in known:
            columns[column].append(_parse(f"{name}, line {line}", column, cells[names.index(column)].strip()))
    return columns


def _parse(where: str, column: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise BatchlensError(f"{where}: `{column}` must be a finite number, got {text or 'nothing'}.")
    return value


def _columns_of_measurement(name: str, moments: Any) -> dict[str, Any]:
    """The last moment with a spectrum, as columns."""
    try:
        known = [moment for moment in moments if moment.get("spectrum")]
        if not known:
            raise BatchlensError(f"{name} must have a spectrum at one of its moments, got none.")
        moment = known[-1]
        levels = [level for level in moment["spectrum"] if level["curvature"] > 0]
        curvature = np.array([level["curvature"] for level in levels], dtype=float)
        noise = np.array([max(level["variance"], 0.0) for level in levels], dtype=float)
        count = np.array([level["directions"] for level in levels], dtype=float)
        top, loss = float(moment["top_curvature"]["value"]), float(moment["loss"])
    except (KeyError, TypeError, ValueError, AttributeError, IndexError):
        raise BatchlensError(f"{name} must be a measurement as batchlens measure writes it, got another.") from None
    if not curvature.size:
        raise BatchlensError(f"{name} must have curvatures above 0 in its spectrum, got none.")
    largest = int(np.argmax(curvature))
    if top > curvature[largest]:  # one direction of the largest level is the top one
        curvature = np.append(curvature, top)
        noise = np.append(noise, noise[largest] * top / curvature[largest])
        count = np.append(count, 1.0)
        count[largest] -= 1.0
        curvature, noise, count = curvature[count > 0], noise[count > 0], count[count > 0]
    initial = np.full(curvature.size, 2.0 * loss / float(count @ curvature))
    return {"curvature": curvature, "noise": noise, "initial": initial, "count": count}
