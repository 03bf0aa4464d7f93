"""The vocabulary of optimizers: what a name such as "momentum+ema" stands for, in the theory and in training.

A name is that of an optimizer, with "+ema" where what counts is an exponential moving average of the weights.
Nothing here needs torch.
"""

from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

_AVERAGED = "+ema"


@dataclass(frozen=True)
class Optimizer:
    """What an optimizer without averaging stands for.

    Arguments:
        name: as users type it.
        family: which update rule of the theory it is compared with, "sgd", "momentum" or "nesterov".
        power: the preconditioning H^-power that it stands for: Adam and Muon divide by the root of second moments,
            K-FAC by the curvature itself. What a real one achieves is less.
        becomes: the optimizer that it is at momentum 0, and so contains; empty where there is none.
        momentum: "adds" where gradients add up to 1 / (1 - momentum) times a step, "averages" where momentum is
            a mean of gradients, "none".
    """

    name: str
    family: str
    power: float = 0.0
    becomes: str = ""
    momentum: Literal["adds", "averages", "none"] = "none"


OPTIMIZERS = MappingProxyType(
    {
        entry.name: entry
        for entry in (
            Optimizer("sgd", "sgd"),
            Optimizer("momentum", "momentum", becomes="sgd", momentum="adds"),
            Optimizer("nesterov", "nesterov", becomes="sgd", momentum="adds"),
            Optimizer("adam", "momentum", 0.5, "adam_no_momentum", "averages"),
            Optimizer("adam_no_momentum", "sgd", 0.5),
            Optimizer("adamw", "momentum", 0.5, momentum="averages"),
            Optimizer("kfac", "momentum", 1.0, "kfac_no_momentum", "adds"),
            Optimizer("kfac_no_momentum", "sgd", 1.0),
            Optimizer("muon", "momentum", 0.5, momentum="averages"),
        )
    }
)
# The names that the theory tunes by themselves.
FAMILIES = ("sgd", "momentum", "nesterov", "sgd+ema", "momentum+ema")


def base_of(name: str) -> str:
    """The name without averaging.

    >>> base_of("sgd+ema")
    'sgd'
    """
    return name.removesuffix(_AVERAGED)


def is_averaged(name: str) -> bool:
    """Whether an average of the weights is what counts.

    >>> is_averaged("sgd+ema"), is_averaged("sgd")
    (True, False)
    """
    return name.endswith(_AVERAGED)


def averaged(name: str) -> str:
    """The name of the same optimizer with averaging.

    >>> averaged("momentum")
    'momentum+ema'
    """
    return name if is_averaged(name) else name + _AVERAGED


def root_of(name: str) -> str:
    """What is left without momentum and averaging: the same for a whole family.

    >>> root_of("momentum+ema"), root_of("adamw")
    ('sgd', 'adamw')
    """
    return OPTIMIZERS[base_of(name)].becomes or base_of(name)


def contained_in(name: str) -> tuple[str, ...]:
    """What an optimizer becomes when its momentum or its averaging is switched off.

    >>> contained_in("momentum+ema")
    ('momentum', 'sgd+ema')
    >>> contained_in("sgd")
    ()
    """
    inner = OPTIMIZERS[base_of(name)].becomes
    if not is_averaged(name):
        return (inner,) if inner else ()
    return (base_of(name), averaged(inner)) if inner else (base_of(name),)


def in_theory(name: str) -> tuple[str, float]:
    """The family and the power that the theory compares an optimizer with.

    >>> in_theory("adam+ema")
    ('momentum+ema', 0.5)
    """
    entry = OPTIMIZERS[base_of(name)]
    return averaged(entry.family) if is_averaged(name) else entry.family, entry.power
