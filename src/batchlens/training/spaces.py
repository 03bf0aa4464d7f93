"""Where hyper-parameters are searched, one space an optimizer."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from batchlens.optimizers import averaged

Scale = Literal["log", "linear", "log_one_minus"]


@dataclass(frozen=True)
class Range:
    """An interval and the scale on which it is searched evenly; "log_one_minus" is logarithmic in 1 - value.

    >>> round(Range(0.01, 1.0, "log").at(0.5), 12)
    0.1
    >>> round(Range(0.5, 0.995, "log_one_minus").at(0.5), 6)
    0.95
    """

    low: float
    high: float
    scale: Scale = "log"

    def at(self, fraction: float) -> float:
        """The value that far from `low` to `high`, in [0, 1]."""
        low, high = self._scaled(self.low), self._scaled(self.high)
        position = low + (high - low) * fraction
        match self.scale:
            case "log":
                return math.exp(position)
            case "log_one_minus":
                return -math.expm1(position)
            case "linear":
                return position

    def fraction(self, value: float) -> float:
        """How far `value` is from `low` to `high`: the inverse of `at`."""
        low, high = self._scaled(self.low), self._scaled(self.high)
        return (self._scaled(value) - low) / (high - low)

    def _scaled(self, value: float) -> float:
        match self.scale:
            case "log":
                return math.log(value)
            case "log_one_minus":
                return math.log1p(-value)
            case "linear":
                return value


Space = Mapping[str, Range]

MOMENTUM = Range(0.5, 0.999, "log_one_minus")
AVERAGING = Range(0.5, 0.999, "log_one_minus")


def search_spaces(
    sgd: Range, momentum: Range, adam: Range, kfac: Range, decay: Space | None = None
) -> dict[str, Space]:
    """Search spaces of every optimizer, and of each with averaging, around four ranges of learning rates.

    `decay` holds the ranges of the learning-rate schedule's settings, searched along.
    """
    betas = {"beta2": Range(0.9, 0.9999, "log_one_minus"), "epsilon": Range(1e-10, 1e-3)}
    adam_space = {"learning_rate": adam, "beta1": MOMENTUM, **betas}
    kfac_space = {
        "learning_rate": kfac,
        "damping": Range(1e-4, 1.0),
        "kl_clip": Range(1e-4, 1e-1),
        "factor_decay": Range(0.8, 0.99, "log_one_minus"),
    }
    spaces: dict[str, Space] = {
        "sgd": {"learning_rate": sgd},
        "momentum": {"learning_rate": momentum, "momentum": MOMENTUM},
        "nesterov": {"learning_rate": momentum, "momentum": MOMENTUM},
        "adam": adam_space,
        "adam_no_momentum": {"learning_rate": adam, **betas},
        "adamw": {**adam_space, "weight_decay": Range(1e-5, 1e-1)},
        "kfac": {**kfac_space, "momentum": MOMENTUM},
        "kfac_no_momentum": kfac_space,
        "muon": {"learning_rate": adam, "momentum": MOMENTUM, "weight_decay": Range(1e-5, 1e-1)},
    }
    spaces |= {averaged(name): {**space, "averaging": AVERAGING} for name, space in spaces.items()}
    return {name: {**space, **(decay or {})} for name, space in spaces.items()}
