"""The trainer_state.json of Hugging Face's Trainer."""

import math
from typing import Any

from batchlens.errors import BatchlensError
from batchlens.scaling._logs.log import Curve, Log, make_curve

_RATE = "learning_rate"
_CAUTION = (
    "A trainer_state.json knows the batch size of one process and one micro-batch only: "
    "with accumulation or several processes, give batch_size_from."
)


def read_trainer_state(where: str, state: dict[str, Any]) -> Log:
    """The run of a trainer's state.

    Its batch size is that of one process and one micro-batch, all that the state knows.  Its learning rate is the
    largest that it logged: two runs with one schedule log the same.
    """
    history = state.get("log_history")
    if not isinstance(history, list) or not all(isinstance(entry, dict) for entry in history):
        raise BatchlensError(f"{where} must be the file of a Monitor or a trainer_state.json, got other JSON.")
    names = dict.fromkeys(name for entry in history for name in entry if name != "step" and _is_number(entry[name]))

    def read(metric: str) -> Curve:
        return make_curve(
            (entry["step"], entry[metric], math.nan)
            for entry in history
            if _is_number(entry.get("step")) and _is_number(entry.get(metric))
        )

    rates = [entry[_RATE] for entry in history if _is_number(entry.get(_RATE))]
    size: Any = state.get("train_batch_size")
    batch_size = float(size) if _is_number(size) else None
    return Log(where, tuple(names), read, batch_size, settings={_RATE: max(rates)} if rates else {}, caution=_CAUTION)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
