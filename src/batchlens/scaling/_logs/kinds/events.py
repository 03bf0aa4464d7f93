"""TensorBoard's event files: the scalars of one folder are one run."""

import math
from collections.abc import Mapping
from pathlib import Path

from batchlens._extras import import_extra
from batchlens.errors import BatchlensError
from batchlens.scaling._logs.log import Curve, Log, Setting, make_curve

MARK = "tfevents"
_ALL = 0  # of TensorBoard's size guidance


def read_events(folder: Path, beside: Mapping[str, Setting], from_zero: bool = False) -> Log:
    """The run of a folder, with seconds from its first event on.

    `beside` are the settings in the file beside it, `from_zero` is how Lightning counts steps.
    """
    module = import_extra("tensorboard.backend.event_processing.event_accumulator")
    events = module.EventAccumulator(str(folder), size_guidance={module.SCALARS: _ALL})
    try:
        events.Reload()
        start = events.FirstEventTimestamp()
    except Exception as error:
        raise BatchlensError(f"{folder} cannot be read as TensorBoard's events: {error!r}.") from None
    scalars = events.Tags()["scalars"]
    if not scalars:
        raise BatchlensError(f"{folder} holds no scalars of TensorBoard. Leave it out.")

    def read(metric: str) -> Curve:
        return make_curve(
            (event.step + from_zero, event.value, event.wall_time - start) for event in events.Scalars(metric)
        )

    told = dict(beside)
    size = told.pop("batch_size", None)
    batch_size = float(size) if isinstance(size, int | float) and math.isfinite(size) else None
    return Log(str(folder), tuple(scalars), read, batch_size, str(told.pop("optimizer", "")), told)
