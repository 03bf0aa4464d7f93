"""The log of a run, in a file that `fit` reads."""

import json
import math
import time
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self, SupportsFloat, SupportsIndex

from batchlens._checks import require_flag, require_path, require_whole
from batchlens.errors import BatchlensError
from batchlens.monitor._description import describe_machine, describe_optimizer, find_place, plain_settings
from batchlens.scaling._logs.kinds.monitor_file import (
    MARK,
    NOISE,
    RESERVED,
    SECONDS,
    STEP,
    VERSION,
    could_be_monitor_file,
    parse_monitor_file,
)
from batchlens.scaling._logs.log import Setting

# What must be alike where a run is picked up again, beside the settings that were named.
_SAME = ("effective_batch_size", "optimizer")
# What each record has of the noise scale; the rest is in those where it is new.
_ALWAYS = ("value", "interval", "steps")
_WHEN_NEW = ("by", "geometry", "left_out")


class Monitor:
    """Writes down what a run is and how it goes, for `fit`: one file a run, beside one's own logging.

    Each record is a line of JSON that is on its way to the disk when `log` returns, with the seconds since the start.
    A run that is killed loses nothing but the line it was writing, and `fit` reads its file.  Of several processes the
    first alone writes.  What is not finite is null in the file.

    Arguments:
        path: the file, by custom with the ending .jsonl; its folder is made.
        batch_size: examples in one backward pass of one process.
        accumulation: backward passes a step.
        world_size: processes that share a step; by default as torch.distributed or torchrun say.
        optimizer: its name, or the optimizer itself, whose settings are noted as well.
        noise: what measures the noise scale, `NoiseScale` for instance: value, interval and steps go into each record,
            what it leaves out where that is new, and all that its estimate says into a last line.
        resume: whether to go on with the file where there is one; else an existing file is refused. Batch size, name of
            the optimizer and the settings given here must be those of before. Records from the first step logged now on
            replace those before; seconds go on from the last, so a pause does not count and work done twice does.
        settings: learning_rate, seed and whatever else tells this run from others.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> for size, steps in [(16, 900), (64, 300), (256, 150), (1024, 112)]:
    ...     with Monitor(folder / f"b{size}.jsonl", batch_size=size, learning_rate=0.1) as monitor:
    ...         for step in range(0, 1001, 10):
    ...             monitor.log(step, loss=2 * 0.1 ** (step / steps))
    >>> from batchlens.scaling.fitting import fit
    >>> (fitted,) = fit(folder / "*.jsonl", metric="loss", target=0.2)
    >>> [round(steps) for steps in fitted.curve.steps]
    [900, 300, 150, 112]
    """

    def __init__(
        self,
        path: str | Path,
        *,
        batch_size: int,
        accumulation: int = 1,
        world_size: int | None = None,
        optimizer: object = "",
        noise: Any = None,
        resume: bool = False,
        **settings: Any,
    ) -> None:
        self.path = require_path("path", path)
        resume = require_flag("resume", resume)
        place = find_place()
        parts = {
            "batch_size": require_whole("batch_size", batch_size, low=1),
            "accumulation": require_whole("accumulation", accumulation, low=1),
            "world_size": place.world_size if world_size is None else require_whole("world_size", world_size, low=1),
        }
        if noise is not None and not callable(getattr(noise, "estimate", None)):
            raise TypeError(f"`noise` must have a method estimate, as a NoiseScale has, got {noise!r}.")
        name, found = describe_optimizer(optimizer)
        named = _require_settings(settings)
        self.run: dict[str, Any] = {
            MARK: VERSION,
            **parts,
            "effective_batch_size": math.prod(parts.values()),
            "optimizer": name,
            "settings": found | named,
            **describe_machine(),
            "started": datetime.now(UTC).isoformat(timespec="seconds"),
        }
        self._named = named
        self._noise = noise
        self._noted: dict[str, Any] = {}
        self._step = 0
        self._start = time.perf_counter()
        self._writes = place.rank == 0
        self._file: IO[bytes] | None = None
        if self._writes:
            self._open(resume)

    def log(self, step: SupportsIndex, /, **metrics: Any) -> None:
        """Writes a record: what was measured after that many optimizer steps, as numbers or tensors of one."""
        if not self._writes:
            return
        step = require_whole("step", step, low=0)
        if step < self._step:
            raise ValueError(f"`step` must be at least {self._step}, that of the record before, got {step}.")
        record: dict[str, Any] = {STEP: step, SECONDS: round(time.perf_counter() - self._start, 6)}
        record |= {_require_name(name): _require_value(name, value) for name, value in metrics.items()}
        if self._noise is not None:
            record[NOISE] = self._news(self._noise.estimate().as_document())
        self._write(record)
        self._step = step

    def _news(self, told: dict[str, Any]) -> dict[str, Any]:
        """Of what the noise scale tells, the numbers and what is not as it was."""
        new = {name: told[name] for name in _WHEN_NEW if name in told and told[name] != self._noted.get(name)}
        self._noted |= new
        return {name: told[name] for name in _ALWAYS if name in told} | new

    def close(self) -> None:
        """Ends the run; what was logged is in the file already, and all that is known of the noise scale follows."""
        if self._file is not None:
            if self._noise is not None:
                self._write({MARK: VERSION, NOISE: self._noise.estimate().as_document()})
            self._file.close()
            self._file = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Monitor: {self.path}, batch size {self.run['effective_batch_size']:,}>"

    def _open(self, resume: bool) -> None:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            if resume and self.path.exists():
                self._pick_up(self.path.read_bytes().decode("ascii", errors="replace"))  # a byte, a character
                return
            self._file = open(self.path, "xb", buffering=0)  # noqa: SIM115
            self._write(self.run)
        except FileExistsError as error:
            if error.filename != str(self.path):  # a file where the folder should be
                raise BatchlensError(f"{self.path} cannot be written: {error.strerror}.") from None
            raise BatchlensError(
                f"{self.path} exists, and a run is never overwritten. Choose another name, remove the file, or go on "
                "with it by resume=True."
            ) from None
        except OSError as error:
            raise BatchlensError(f"{self.path} cannot be written: {error.strerror or error}.") from None

    def _pick_up(self, before: str) -> None:
        if not could_be_monitor_file(before):
            raise BatchlensError(f"{self.path} is no file of a Monitor, and is never overwritten. Choose another name.")
        if "\n" not in before:  # killed before its first line was whole
            self._file = open(self.path, "wb", buffering=0)  # noqa: SIM115
            self._write(self.run)
            return
        run, records, whole = parse_monitor_file(str(self.path), before)
        differing = [(name, run.get(name), self.run[name]) for name in _SAME if run.get(name) != self.run[name]]
        before_settings = run.get("settings") or {}
        differing += [
            (name, before_settings.get(name), value)
            for name, value in self._named.items()
            if before_settings.get(name) != value
        ]
        if differing:
            theirs, ours = (", ".join(f"{entry[0]} {entry[place]}" for entry in differing) for place in (1, 2))
            raise BatchlensError(
                f"{self.path} is of a run with {theirs}, and this one has {ours}. Choose another name."
            )
        self._start -= max((record[SECONDS] for record in records), default=0.0)
        self._file = open(self.path, "r+b", buffering=0)  # noqa: SIM115
        self._file.truncate(whole)
        self._file.seek(whole)
        self._write({MARK: VERSION, "resumed": self.run["started"], **describe_machine()})

    def _write(self, record: dict[str, Any]) -> None:
        if self._file is None:
            raise BatchlensError(f"{self.path} is closed: nothing can be logged after the run.")
        line = json.dumps(_finite(record), allow_nan=False)
        try:
            self._file.write(line.encode() + b"\n")
        except OSError as error:
            raise BatchlensError(f"{self.path} cannot be written: {error.strerror or error}.") from None


def _require_settings(settings: dict[str, Any]) -> dict[str, Setting]:
    plain = plain_settings(settings)
    for name, value in settings.items():
        if name not in plain and not isinstance(value, tuple | list):
            raise TypeError(f"`{name}` must be a number, a word or a flag to be a setting of the run, got {value!r}.")
    return plain


def _require_name(name: str) -> str:
    if name in RESERVED:
        raise ValueError(f"a metric must not be named {name!r}: {', '.join(RESERVED)} mean something else in the file.")
    if not name.isprintable() or not name.strip():
        raise ValueError(f"a metric must have a name that can be printed, got {name!r}.")
    return name


def _require_value(name: str, value: Any) -> float:
    """A number of Python, from a number of anyone; nan and inf are numbers here."""
    try:
        number = value.item() if hasattr(value, "item") else value
    except (TypeError, ValueError, RuntimeError):  # of many entries
        number = None
    if isinstance(number, bool | str) or not isinstance(number, SupportsFloat):
        raise TypeError(f"`{name}` must be a number or a tensor of one, got {value!r}.")
    return float(number)


def _finite(value: Any) -> Any:
    """JSON has no nan and no infinity."""
    if isinstance(value, dict):
        return {key: _finite(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(entry) for entry in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
