"""Averages of the weights, kept beside a run: they do not change it, so that one run measures every coefficient."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

# In a ladder an average is updated every so many parts of its window.
_PARTS = 10


class Averaging(NamedTuple):
    """avg <- gamma avg + (1 - gamma) theta; with a `window`, 1 - gamma is 1 / (window t), at most 1, at step t.

    >>> str(Averaging(0.95)), str(Averaging(window=0.1))
    ('0.95', 'window 0.1')
    """

    coefficient: float = 0.0
    window: float = 0.0

    @classmethod
    def of(cls, settings: Mapping[str, float]) -> "Averaging":
        """The averaging that settings ask for."""
        window = settings.get("window", 0.0)
        return cls(window=window) if window else cls(settings["averaging"])

    @property
    def settings(self) -> dict[str, float]:
        """What asks for it."""
        return {"window": self.window} if self.window else {"averaging": self.coefficient}

    def __str__(self) -> str:
        return f"window {self.window:g}" if self.window else f"{self.coefficient:g}"

    def weight(self, step: int) -> float:
        """Of the weights after `step` steps."""
        return min(1.0, 1 / (self.window * step)) if self.window else 1 - self.coefficient

    def pause(self, step: int) -> int:
        """After how many steps a ladder shows it the weights again: a tenth of its window."""
        weight = self.weight(step)
        return max(1, round(1 / (_PARTS * weight))) if weight else _PARTS


# Enough to find the best coefficient of a run; most promising first.
LADDER = (Averaging(window=0.1), Averaging(0.95), Averaging(0.8), Averaging(0.99), Averaging(0.5))


def settings_named(weights: str) -> dict[str, float]:
    """The settings of an average by its name; the plain weights are one without memory.

    >>> settings_named("window 0.1"), settings_named("plain")
    ({'window': 0.1}, {'averaging': 0.0})
    """
    names = {str(averaging): averaging.settings for averaging in LADDER}
    return dict(names.get(weights, {"averaging": 0.0}))


def tensors_of(model: nn.Module) -> list[Tensor]:
    """Everything that makes a model what it is: parameters, then buffers, each once."""
    return [*model.parameters(), *model.buffers()]


@torch.no_grad()
def copy_into(model: nn.Module, tensors: Sequence[Tensor]) -> None:
    """Makes a model what `tensors_of` another one was."""
    torch._foreach_copy_(tensors_of(model), list(tensors))


@torch.no_grad()
def copies_of(tensors: Sequence[Tensor]) -> list[Tensor]:
    """Tensors of their own with the same numbers."""
    return [tensor.detach().clone() for tensor in tensors]


class Average:
    """An average of a model's weights and buffers, which starts at the present ones.

    With `pauses` it sees the weights only now and then, and each time with the weight of all the steps since.
    """

    def __init__(self, averaging: Averaging, model: nn.Module, pauses: bool = False) -> None:
        self.averaging, self.pauses = averaging, pauses
        self.tensors = copies_of(tensors_of(model))
        self._kept = 1.0  # of the average since the last update
        self._due = 1
        self._real = [index for index, tensor in enumerate(self.tensors) if tensor.is_floating_point()]
        self._other = sorted(set(range(len(self.tensors))).difference(self._real))
        self._averaged = [self.tensors[index] for index in self._real]

    def update(self, step: int, tensors: Sequence[Tensor]) -> None:
        """Takes in the weights after `step` steps."""
        self._kept *= 1 - self.averaging.weight(step)
        if not self.pauses or step >= self._due:
            self._due = step + self.averaging.pause(step)
            self.catch_up(tensors)

    def catch_up(self, tensors: Sequence[Tensor]) -> None:
        """Takes in the present weights for all the steps since the last time: before anyone looks, it must not lag."""
        weight, self._kept = 1 - self._kept, 1.0
        if not weight:
            return
        with torch.no_grad():
            torch._foreach_lerp_(self._averaged, [tensors[index] for index in self._real], weight)
            for index in self._other:
                self.tensors[index].copy_(tensors[index])

    def state_dict(self) -> dict[str, Any]:
        """What `load_state_dict` takes."""
        return {"tensors": self.tensors, "kept": self._kept, "due": self._due}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on where another one was."""
        for mine, other in zip(self.tensors, state["tensors"], strict=True):
            mine.copy_(other)
        self._kept, self._due = float(state["kept"]), int(state["due"])
