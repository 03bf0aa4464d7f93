"""Words, rows and drawings that results of the theory share."""

from typing import TYPE_CHECKING, Any

from batchlens.theory.rule import UpdateRule

if TYPE_CHECKING:
    import pandas

_SETTINGS = ("learning_rate", "momentum", "averaging")


def settings_of(rule: UpdateRule | None) -> dict[str, Any]:
    """What a rule sets, by name; None for each where there is no rule."""
    return {name: getattr(rule, name, None) for name in _SETTINGS}


def describe(rule: UpdateRule) -> str:
    """A rule in a few words.

    >>> describe(UpdateRule(learning_rate=0.1, momentum=0.9, power=0.5))
    'momentum, learning rate 0.1, momentum 0.9, power 0.5'
    """
    used = [(name, getattr(rule, name)) for name in ("momentum", "averaging", "power")]
    words = [rule.family, f"learning rate {rule.learning_rate:.4g}"]
    return ", ".join(words + [f"{name} {value:.6g}" for name, value in used if value])


def one_row(document: dict[str, Any]) -> "pandas.DataFrame":
    """A table of one row, lists in words."""
    import pandas

    words = {name: ", ".join(value) if isinstance(value, list) else value for name, value in document.items()}
    return pandas.DataFrame([words])
