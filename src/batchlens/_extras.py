"""What to install where an optional dependency is missing."""

from importlib import import_module
from typing import Any

from batchlens.errors import MissingExtra

# Which extra of batchlens brings a module.
_EXTRA_OF = {
    "torch": "train",
    "pooch": "train",
    "requests": "train",
    "sentencepiece": "train",
    "ray": "cluster",
    "tensorboard": "tensorboard",
}


def import_extra(module: str) -> Any:
    """The module, or a sentence that says what to install.

    >>> import_extra("json").dumps(1)
    '1'
    """
    try:
        return import_module(module)
    except ImportError as error:
        raise missing(error, module) from None


def missing(error: ImportError, wanted: str) -> ImportError:
    """What to say of an import that failed while `wanted` was asked for; `error` itself where it is not ours."""
    name = (error.name or wanted).partition(".")[0]
    if name not in _EXTRA_OF:
        return error
    what = name if wanted.partition(".")[0] == name else f"{wanted} needs {name}, which"
    return MissingExtra(f'{what} is not installed: run `pip install "batchlens[{_EXTRA_OF[name]}]"`.')
