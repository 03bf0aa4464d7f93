"""Saving a run and going on with it."""

import os
import tempfile
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch

from batchlens.errors import BatchlensError


def prepare_checkpoint(path: Path) -> Path:
    """The file, if one can be written there: better said now than after hours."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path.parent):
            return path
    except OSError as error:
        raise BatchlensError(f"{path} cannot be written ({error.strerror}); choose another checkpoint.") from None


def save_checkpoint(path: Path, identity: dict[str, Any], state: dict[str, Any]) -> None:
    """Writes a run's state in one go: whoever looks sees the old file or the new one."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            torch.save({"identity": identity, "state": state}, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def load_checkpoint(path: Path, identity: dict[str, Any]) -> dict[str, Any] | None:
    """The state of the run that `identity` describes, or None where nothing has been saved.

    What was saved by another run is refused, with what differs.
    """
    if not path.exists():
        return None
    try:
        saved = torch.load(path, weights_only=True, map_location="cpu")
        found, state = saved["identity"], saved["state"]
    except (OSError, EOFError, KeyError, RuntimeError, TypeError, UnpicklingError) as error:
        raise BatchlensError(f"{path} is not a checkpoint that can be read; delete it to start anew.") from error
    for name, value in identity.items():
        if found.get(name) != value:
            raise BatchlensError(
                f"{path} belongs to a run with {name} {found.get(name)}, not {value}; delete it to start anew."
            )
    return dict(state)
