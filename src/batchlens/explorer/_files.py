"""Files that the page can look at: problems, and measured or predicted curves to lay over the theory."""

import hashlib
import io
import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from threading import Lock
from typing import Any

from batchlens._checks import require_path
from batchlens._results import short
from batchlens.errors import BatchlensError
from batchlens.scaling.curve import ScalingCurve
from batchlens.theory._problem_files import parse_problem
from batchlens.theory.problem import NoisyQuadratic

# Files given in the page that are kept; the oldest is forgotten beyond.
_MOST_FILES = 16
_SQLITE = b"SQLite format 3\0"


@dataclass(frozen=True)
class Loaded:
    """What a file holds: a problem, curves, or both."""

    name: str
    digest: str
    problem: NoisyQuadratic | None
    curves: list[dict[str, Any]]

    def as_document(self) -> dict[str, Any]:
        """What the page needs to know of it."""
        problem = None if self.problem is None else self.problem.as_document() | {"headline": self.problem.headline}
        return {"name": self.name, "file": self.digest, "problem": problem, "curves": self.curves}


class Files:
    """Files by the digest of their content: the same file has the same address in every session."""

    def __init__(self, paths: Sequence[Path] = ()) -> None:
        self._lock = Lock()
        self._given = {loaded.digest: loaded for loaded in map(read_file, paths)}
        self._added: dict[str, Loaded] = {}

    def given(self) -> list[Loaded]:
        """Those that the program was started with."""
        return list(self._given.values())

    def add(self, name: str, content: bytes) -> Loaded:
        """A file that somebody chose in the page."""
        loaded = load(name, content)
        with self._lock:
            self._added.pop(loaded.digest, None)
            self._added[loaded.digest] = loaded
            while len(self._added) > _MOST_FILES:
                del self._added[next(iter(self._added))]
        return loaded

    def find(self, digest: str) -> Loaded:
        """The file of that digest."""
        with self._lock:
            found = self._given.get(digest) or self._added.get(digest)
        if found is None:
            raise BatchlensError("the file of this address is not open here. Choose it again.")
        return found

    def problem(self, digest: str) -> NoisyQuadratic:
        """The problem of the file of that digest."""
        found = self.find(digest)
        if found.problem is None:
            raise BatchlensError(f"{found.name} has no spectrum, only curves.")
        return found.problem


def read_file(path: Path) -> Loaded:
    """A file of this machine."""
    path = require_path("file", path)
    try:
        return load(str(path), path.read_bytes())
    except OSError as error:
        raise BatchlensError(f"{path} cannot be read: {error.strerror or error}.") from None


def load(name: str, content: bytes) -> Loaded:
    """What a file of that name and content holds."""
    digest = hashlib.sha256(content).hexdigest()[:16]
    if content.startswith(_SQLITE):
        return Loaded(name, digest, None, _sweep_curves(name, content))
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise BatchlensError(f"{name} must be CSV or JSON in UTF-8, or a sweep's store.") from None
    if text.lstrip().startswith("{"):
        return _load_json(name, digest, text)
    header = [cell.strip().lower() for cell in text.lstrip().partition("\n")[0].split(",")]
    if "curvature" in header:
        return Loaded(name, digest, parse_problem(name, text), [])
    return Loaded(name, digest, None, _run_curves(name, text))


def _load_json(name: str, digest: str, text: str) -> Loaded:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        raise BatchlensError(f"{name} must be JSON, got text that is damaged.") from None
    curves = _document_curves(name, document)
    holds_problem = "moments" in document or "curvature" in document or document.get("problem") is not None
    return Loaded(name, digest, parse_problem(name, text) if holds_problem or not curves else None, curves)


def _document_curves(name: str, document: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The curves of what `predict`, `report`, `fit` or `steps` print with `--json`."""
    try:
        entries = [
            {"optimizer": entry["optimizer"], "points": _zip_points(entry)} if "points" not in entry else entry
            for entry in [*document.get("curves", ()), *document.get("fits", ())]
        ]
        return [
            _curve(
                ScalingCurve(
                    [point["batch_size"] for point in entry["points"]],
                    [point["steps"] or None for point in entry["points"]],
                    optimizer=entry["optimizer"],
                    intervals=[point.get("interval") for point in entry["points"]],
                )
            )
            for entry in entries
        ]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise BatchlensError(f"{name} has curves that cannot be read ({type(error).__name__}: {error}).") from None


def _zip_points(entry: Mapping[str, Any]) -> list[dict[str, Any]]:
    pairs = zip(entry["batch_sizes"], entry["steps"], strict=True)
    return [{"batch_size": size, "steps": steps} for size, steps in pairs]


def _run_curves(name: str, text: str) -> list[dict[str, Any]]:
    from batchlens.scaling.fitting import fit

    file = io.StringIO(text)
    file.name = name
    return [_curve(fitted.curve) for fitted in fit(file)]


def _sweep_curves(name: str, content: bytes) -> list[dict[str, Any]]:
    """SQLite reads files, not bytes."""
    from batchlens.sweep.results import read_sweep

    with tempfile.TemporaryDirectory(prefix="batchlens-") as folder:
        path = Path(folder) / (PurePosixPath(name).name or "store.sqlite")
        path.write_bytes(content)
        try:
            return [_curve(curve) for curve in read_sweep(path).curves().values()]
        except BatchlensError as error:
            raise BatchlensError(str(error).replace(str(path), name)) from None


def _curve(curve: ScalingCurve) -> dict[str, Any]:
    """A measured curve as the page draws it."""
    intervals = curve.intervals or (None,) * len(curve.steps)
    return {
        "optimizer": curve.optimizer,
        "critical_batch_size": curve.critical_batch_size()._asdict(),
        "points": [
            {"batch_size": short(size), "steps": steps, "interval": None if ends is None else list(ends)}
            for size, steps, ends in zip(curve.batch_sizes, curve.steps, intervals, strict=True)
        ],
    }
