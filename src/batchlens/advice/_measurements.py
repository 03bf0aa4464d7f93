"""A noisy quadratic from what was measured of a network: curvatures with the gradient variance along each."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from batchlens._checks import require_path
from batchlens.errors import BatchlensError
from batchlens.theory.problem import NoisyQuadratic

_WANTED = 'moments, of which the last has a spectrum such as [{"curvature": 1.0, "variance": 0.5, "count": 1}]'


def read_problem(path: "str | Path") -> NoisyQuadratic:
    """The problem of the last moment of a file that `batchlens measure --json` wrote."""
    path = require_path("measurement", path)
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise BatchlensError(f"{path} cannot be read: {error.strerror or error}.") from None
    except ValueError:
        raise BatchlensError(f"{path} must be JSON with {_WANTED}.") from None
    try:
        return problem_of(document["moments"][-1]["spectrum"])
    except (LookupError, TypeError, ValueError) as error:
        raise BatchlensError(f"{path} must have {_WANTED}: {error}") from None


def problem_of(spectrum: Sequence[Mapping[str, Any]]) -> NoisyQuadratic:
    """Entries of curvature and variance, and if there are any count and initial (1 each); curvature above 0 counts.

    >>> problem_of([{"curvature": 2.0, "variance": 1.0}, {"curvature": 0.5, "variance": 0.1, "count": 30}]).dim
    31.0
    """
    entries = [entry for entry in spectrum if entry["curvature"] > 0]
    return NoisyQuadratic(
        [entry["curvature"] for entry in entries],
        [entry["variance"] for entry in entries],
        [entry.get("initial", 1.0) for entry in entries],
        [entry.get("count", 1) for entry in entries],
    )
