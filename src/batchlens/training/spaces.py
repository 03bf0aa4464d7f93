"""Where hyper-parameters are searched, one space for each optimizer."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from batchlens._checks import require_choice, require_instance, require_number
from batchlens.optimizers import averaged

__all__ = ["Range", "Scale", "Space", "search_spaces"]

Scale = Literal["log", "linear", "log_one_minus"]


@dataclass(frozen=True)
class Range:
    """An interval of a setting and the scale on which it is searched evenly.

    Arguments:
        low: its lower end.
        high: its upper end.
        scale: "log", "linear", or "log_one_minus" for logarithmic in 1 - value.

    >>> round(Range(0.01, 1.0, "log").at(0.5), 12)
    0.1
    >>> round(Range(0.5, 0.995, "log_one_minus").at(0.5), 6)
    0.95
    """

    low: float
    high: float
    scale: Scale = "log"

    def __post_init__(self) -> None:
        require_choice("scale", self.scale, get_args(Scale))
        low = require_number("low", self.low, 0 if self.scale == "log" else -math.inf, closed=(False, True))
        require_number("high", self.high, low, 1 if self.scale == "log_one_minus" else math.inf, closed=(False, False))

    def at(self, fraction: float) -> float:
        """The value that far from `low` to `high`, in [0, 1]."""
        low, high = self._scaled(self.low), self._scaled(self.high)
        position = low + (high - low) * fraction
        match self.scale:
            case "log":
                return math.exp(position)
            case "log_one_minus":
                return 0.0 - math.expm1(position)  # 0 where it is 0, not -0
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

# From 0 on: momentum contains sgd, Adam contains adam_no_momentum, K-FAC contains kfac_no_momentum.
_MOMENTUM = Range(0.0, 0.999, "log_one_minus")
_AVERAGING = Range(0.5, 0.999, "log_one_minus")
# Learning rates for a network of which nothing is known.
_USUAL, _USUAL_ADAPTIVE = Range(1e-3, 10.0), Range(1e-5, 1e-1)


def search_spaces(
    sgd: Range = _USUAL,
    momentum: Range = _USUAL,
    adam: Range = _USUAL_ADAPTIVE,
    kfac: Range = _USUAL,
    decay: Space | None = None,
) -> dict[str, Space]:
    """Search spaces of every optimizer, and of each with averaging, around four ranges of learning rates.

    Arguments:
        sgd: learning rates of plain SGD.
        momentum: of momentum and Nesterov.
        adam: of Adam, AdamW and Muon.
        kfac: of K-FAC.
        decay: ranges of the learning-rate schedule's settings, searched along.

    >>> sorted(search_spaces(momentum=Range(0.01, 1.0))["momentum"])
    ['learning_rate', 'momentum']
    """
    for name, range_ in {"sgd": sgd, "momentum": momentum, "adam": adam, "kfac": kfac, **(decay or {})}.items():
        require_instance(name, range_, Range)
    betas = {"beta2": Range(0.9, 0.9999, "log_one_minus"), "epsilon": Range(1e-10, 1e-3)}
    adam_space = {"learning_rate": adam, "beta1": _MOMENTUM, **betas}
    # Good runs on digits had dampings of 1e-4 to 3e-2, clips of 3e-4 to 3e-1 and decays of 0.83 to 0.99.
    kfac_space = {
        "learning_rate": kfac,
        "damping": Range(1e-4, 1e-1),
        "kl_clip": Range(1e-4, 1.0),
        "factor_decay": Range(0.8, 0.99, "log_one_minus"),
    }
    spaces: dict[str, Space] = {
        "sgd": {"learning_rate": sgd},
        "momentum": {"learning_rate": momentum, "momentum": _MOMENTUM},
        "nesterov": {"learning_rate": momentum, "momentum": _MOMENTUM},
        "adam": adam_space,
        "adam_no_momentum": {"learning_rate": adam, **betas},
        "adamw": {**adam_space, "weight_decay": Range(1e-5, 1e-1)},
        "kfac": {**kfac_space, "momentum": _MOMENTUM},
        "kfac_no_momentum": kfac_space,
        "muon": {"learning_rate": adam, "momentum": _MOMENTUM, "weight_decay": Range(1e-5, 1e-1)},
    }
    spaces |= {averaged(name): {**space, "averaging": _AVERAGING} for name, space in spaces.items()}
    return {name: {**space, **(decay or {})} for name, space in spaces.items()}
