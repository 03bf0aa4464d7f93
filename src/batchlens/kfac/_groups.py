"""Parameters in groups, each with a learning rate, momentum and weight decay of its own."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from torch import nn

from batchlens._checks import require_number

_CHECKS: dict[str, Any] = {
    "lr": lambda value: require_number("lr", value, 0),
    "momentum": lambda value: require_number("momentum", value, 0, 1, closed=(True, False)),
    "weight_decay": lambda value: require_number("weight_decay", value, 0),
}


def check_setting(name: str, value: object) -> float:
    """`value`, if the setting of a group can have it."""
    return float(_CHECKS[name](value))


def make_groups(parameters: Sequence[nn.Parameter], given: Iterable[Mapping[str, Any]] | None) -> list[dict[str, Any]]:
    """The groups that were given, after one with the parameters that are in none of them."""
    groups: list[dict[str, Any]] = []
    taken: set[nn.Parameter] = set()
    for entry in given or ():
        if "params" not in entry:
            raise ValueError('`groups` must be dictionaries with the parameters of the group as "params".')
        settings = {name: value for name, value in entry.items() if name != "params"}
        for name in settings:
            if name not in _CHECKS:
                raise ValueError(f"A group of `groups` can set {', '.join(_CHECKS)}, which are its own, got {name}.")
        params = [entry["params"]] if isinstance(entry["params"], nn.Parameter) else list(entry["params"])
        for parameter in params:
            if parameter not in set(parameters) or parameter in taken:
                raise ValueError("`groups` must hold trainable parameters of `model`, each of them once.")
            taken.add(parameter)
        groups.append({"params": params, **{name: check_setting(name, value) for name, value in settings.items()}})
    rest = [parameter for parameter in parameters if parameter not in taken]
    return [{"params": rest}, *groups] if rest else groups
