"""Workloads of one's own, named FILE.py:NAME."""

import hashlib
import importlib.util
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import ModuleType

from batchlens.errors import BatchlensError
from batchlens.training.workloads import Workload

# What has been executed in this process, by path and digest: once for every content of a file.
_EXECUTED: dict[tuple[Path, str], ModuleType] = {}


def workload_in(path: Path, attribute: str, size: str) -> Workload:
    """The workload that a Python file calls `attribute`: a `Workload`, or a dictionary of one per size."""
    if not path.is_file():
        raise BatchlensError(f"{path} is not a file: a workload of your own is named FILE.py:NAME.")
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    key = path.resolve(), digest
    if key not in _EXECUTED:
        _EXECUTED[key] = _execute(path)
    found = getattr(_EXECUTED[key], attribute, None)
    if isinstance(found, Mapping):
        if size not in found:
            raise BatchlensError(f"{path} has {attribute} in size {', '.join(map(str, found))}, not {size}.")
        found = found[size]
    if not isinstance(found, Workload):
        what = "has nothing called" if found is None else f"has a {type(found).__name__}, not a Workload, called"
        raise BatchlensError(f"{path} {what} {attribute}.")
    if found.size != size:
        raise BatchlensError(f"{path} has {attribute} in size {found.size} only, not {size}.")
    return replace(found, source=digest)


def _execute(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise BatchlensError(f"{path} is not a Python file: a workload of your own is named FILE.py:NAME.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module  # where dataclasses and pickle look for it
    sys.path.insert(0, str(path.parent.resolve()))  # where a script finds its neighbours
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise BatchlensError(f"{path} does not run: {type(error).__name__}: {error}") from error
    finally:
        sys.path.pop(0)
    return module
