"""What a run is: its optimizer with its settings, the machine, its place among the processes."""

import importlib.metadata
import os
import platform
import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from batchlens import __version__
from batchlens.scaling._logs.log import Setting

# What torch calls otherwise than the vocabulary of batchlens.
_RENAMED = {"lr": "learning_rate"}
_LIBRARIES = ("torch", "lightning", "transformers")


class Place(NamedTuple):
    """Which of how many processes this is."""

    rank: int
    world_size: int


def find_place() -> Place:
    """As torch.distributed says where it is in use, else as torchrun's environment does."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return Place(distributed.get_rank(), distributed.get_world_size())
    with suppress(ValueError):
        return Place(int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1)))
    return Place(0, 1)


def describe_optimizer(optimizer: object) -> tuple[str, dict[str, Setting]]:
    """Its name, as batchlens has it where it knows it, and the settings of its first group of parameters."""
    if isinstance(optimizer, str):
        return optimizer, {}
    groups = getattr(optimizer, "param_groups", None)
    if not groups:
        raise TypeError(f"`optimizer` must be a name or a torch.optim.Optimizer, got {optimizer!r}.")
    settings = plain_settings({name: value for name, value in groups[0].items() if name != "params"})
    if "initial_lr" in settings:  # a scheduler may have changed the other already
        settings["lr"] = settings.pop("initial_lr")
    settings = {_RENAMED.get(name, name): value for name, value in settings.items()}
    name = type(optimizer).__name__.lower()
    if name == "sgd" and settings.get("momentum"):
        name = "nesterov" if settings.get("nesterov") else "momentum"
    return name, settings


def plain_settings(values: Mapping[str, Any]) -> dict[str, Setting]:
    """The numbers, words and flags; a pair such as `betas` becomes two, and what is None is left out."""
    plain: dict[str, Setting] = {}
    for name, value in values.items():
        if isinstance(value, tuple | list):
            plain |= plain_settings({f"{name}_{index}": entry for index, entry in enumerate(value)})
        elif isinstance(value, bool | str):
            plain[name] = value
        else:
            with suppress(TypeError, ValueError, RuntimeError):
                number = getattr(value, "item", lambda value=value: value)()
                if isinstance(number, int | float):
                    plain[name] = number
    return plain


def describe_machine() -> dict[str, Any]:
    """Host, system and versions."""
    versions = {"python": platform.python_version(), "batchlens": __version__}
    for library in _LIBRARIES:
        with suppress(importlib.metadata.PackageNotFoundError):
            versions[library] = importlib.metadata.version(library)
    return {"host": platform.node(), "system": platform.platform(), "versions": versions}
