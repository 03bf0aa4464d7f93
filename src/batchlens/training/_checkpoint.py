"""Saving a run and going on with it.

A checkpoint is a line that says so, a line with the SHA-256 digest of what follows, and the run's state.
"""

import hashlib
import io
import os
import tempfile
import warnings
from itertools import count
from pathlib import Path
from typing import Any

import torch

from batchlens.errors import BatchlensError

_FIRST_LINE = b"batchlens checkpoint\n"


class DamagedCheckpoint(UserWarning):
    """A checkpoint that was set aside because it is not what was written."""


def prepare_checkpoint(path: Path) -> Path:
    """The file, if one can be written there: better said now than after hours."""
    try:
        if path.exists() and not path.is_file():
            raise BatchlensError(f"{path} is no plain file; choose another checkpoint.")
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path.parent):
            return path
    except OSError as error:
        raise BatchlensError(f"{path} cannot be written ({error.strerror}); choose another checkpoint.") from None


def save_checkpoint(path: Path, identity: dict[str, Any], state: dict[str, Any]) -> None:
    """Writes a run's state in one go: whoever looks sees the old file or the new one."""
    buffer = io.BytesIO()
    torch.save({"identity": identity, "state": state}, buffer)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(_head(buffer.getbuffer()))
            file.write(buffer.getbuffer())
            file.flush()
            os.fsync(file.fileno())
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def discard_checkpoint(path: Path) -> None:
    """Deletes a checkpoint, if there is one; what is none is left alone."""
    if not prepare_checkpoint(path).exists():
        return
    with path.open("rb") as file:
        if file.read(len(_FIRST_LINE)) != _FIRST_LINE:
            raise BatchlensError(f"{path} is not a checkpoint, and is left alone; choose another one.")
    path.unlink(missing_ok=True)


def load_checkpoint(path: Path, identity: dict[str, Any]) -> dict[str, Any] | None:
    """The state of the run that `identity` describes, or None where there is nothing to go on with.

    What was saved by another run is refused, with what differs; what is damaged is set aside, with a warning.
    """
    content = _content(path)
    if content is None:
        return None
    try:
        saved = torch.load(io.BytesIO(content), weights_only=True, map_location="cpu")
        found, state = saved["identity"], saved["state"]
    except Exception as error:  # whole, so written by another version
        raise BatchlensError(f"{path} is not a checkpoint that can be read; delete it to start anew.") from error
    for name, value in identity.items():
        if found.get(name) != value:
            raise BatchlensError(
                f"{path} belongs to a run with {name} {found.get(name)}, not {value}; delete it to start anew."
            )
    return dict(state)


def _content(path: Path) -> memoryview | None:
    """What was written, if it is all there."""
    try:
        data = memoryview(path.read_bytes())
    except FileNotFoundError:
        return None
    except OSError as error:
        raise BatchlensError(f"{path} cannot be read ({error.strerror}); choose another checkpoint.") from error
    start = len(_head(b""))
    if data[:start] == _head(data[start:]):
        return data[start:]
    aside = _set_aside(path)
    warnings.warn(
        f"{path} is damaged, or no checkpoint; it was renamed to {aside.name}, and the run starts anew.",
        DamagedCheckpoint,
        stacklevel=2,
    )
    return None


def _head(content: bytes | memoryview) -> bytes:
    return _FIRST_LINE + hashlib.sha256(content).hexdigest().encode() + b"\n"


def _set_aside(path: Path) -> Path:
    """Renames a file to the first name that is free."""
    names = (path.with_name(f"{path.name}.damaged{number or ''}") for number in count())
    aside = next(name for name in names if not name.exists())
    try:
        return path.rename(aside)
    except OSError as error:
        raise BatchlensError(f"{path} is damaged and cannot be renamed ({error.strerror}); delete it.") from error
