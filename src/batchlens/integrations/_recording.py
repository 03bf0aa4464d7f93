"""What both callbacks do: a `Monitor` with the noise scale where it is asked for, fed with what a trainer logs."""

from collections.abc import Mapping
from importlib import import_module
from numbers import Real
from pathlib import Path
from typing import Any

from batchlens._checks import require_flag, require_path
from batchlens.errors import MissingExtra
from batchlens.monitor.monitor import Monitor
from batchlens.scaling._logs.kinds.monitor_file import RESERVED


class Recording:
    """A run that has begun, or not yet."""

    def __init__(self, path: str | Path, noise_scale: bool, resume: bool, settings: Mapping[str, Any]) -> None:
        self._path = require_path("path", path)
        self._noise_scale = require_flag("noise_scale", noise_scale)
        self._resume = require_flag("resume", resume)
        self._settings = settings
        self._monitor: Monitor | None = None
        self._noise: Any = None

    def begin(self, model: Any, writes: bool, measuring: Mapping[str, Any] | None = None, **run: Any) -> None:
        """On every process, for the noise scale is measured on all of them; `writes` on the first alone.

        `model` is the one that is called, `measuring` what else its NoiseScale is given.
        """
        if self._noise_scale:
            self._noise = import_module("batchlens.monitor.noise_scale").NoiseScale(model, **measuring or {})
        if writes:
            self._monitor = Monitor(self._path, noise=self._noise, resume=self._resume, **{**run, **self._settings})

    def observe(self) -> None:
        """With the gradients of a whole batch, before clipping."""
        if self._noise is not None:
            self._noise.step()

    def log(self, step: int, metrics: Mapping[str, Any]) -> None:
        """What a trainer logs, without what is no number."""
        numbers = {name: value for name, value in metrics.items() if _is_number(value) and name not in RESERVED}
        if self._monitor is not None and numbers:
            self._monitor.log(step, **numbers)

    def end(self) -> None:
        """The run is over, in whatever way."""
        if self._monitor is not None:
            self._monitor.close()
        self._monitor = self._noise = None


def _is_number(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def not_installed(library: str) -> MissingExtra:
    """What to install."""
    return MissingExtra(f"{library} is not installed: run `pip install {library}`.")
