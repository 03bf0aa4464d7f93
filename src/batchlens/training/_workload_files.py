"""Workloads of one's own, named FILE.py:NAME."""

import ast
import hashlib
import importlib.util
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import ModuleType

from batchlens.errors import BatchlensError
from batchlens.training._workload import Workload

# What has been executed in this process, by path and digest: once for every content of a file.
_EXECUTED: dict[tuple[Path, str], ModuleType] = {}


def workload_in(path: Path, attribute: str, size: str) -> Workload:
    """The workload that a Python file calls `attribute`: a `Workload`, or a dictionary of one per size."""
    if not path.is_file():
        raise BatchlensError(f"{path} is not a file: a workload of your own is named FILE.py:NAME.")
    digest = _digest(path)
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


def _digest(path: Path) -> str:
    """Of the file, and of the neighbours that it imports."""
    found = hashlib.sha256()
    for file in _with_neighbours(path):
        found.update(file.read_bytes())
    return found.hexdigest()


def _with_neighbours(path: Path) -> list[Path]:
    """The file and, in the order in which they are named, the files beside it that it imports, and those they do."""
    files = [path]
    for file in files:
        try:
            tree = ast.parse(file.read_bytes())
        except (SyntaxError, ValueError):  # said when it is executed
            continue
        for node in ast.walk(tree):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            beside = [path.parent / f"{name.partition('.')[0]}.py" for name in names if name]
            files += [other for other in beside if other.is_file() and other not in files]
    return files


def _execute(path: Path) -> ModuleType:
    name = f"batchlens_workload_{path.stem}"  # so that it hides no module of the same name
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise BatchlensError(f"{path} is not a Python file: a workload of your own is named FILE.py:NAME.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # where dataclasses and pickle look for it
    sys.path.insert(0, str(path.parent.resolve()))  # where a script finds its neighbours
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise BatchlensError(f"{path} does not run: {type(error).__name__}: {error}") from error
    finally:
        sys.path.pop(0)
    return module
