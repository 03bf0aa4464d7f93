"""Sums over the rows of a step's forward and backward passes, until the step takes their means.

What `observe` adds belongs to the step that follows. A batch may be given up in between: skipped, or its step refused
by a GradScaler. `zero_grad` says that a new step begins, but many loops call it after the forward pass, right before
backward. So it sets aside what there is, and a backward pass through the observed outputs brings it back.
"""

import weakref
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn


@dataclass
class Moment:
    """A sum over rows and the count it is to be divided by."""

    total: Tensor | None = None
    count: float = 0

    def add(self, total: Tensor | None, count: float) -> None:
        if total is not None:
            self.total = total if self.total is None else self.total + total
        self.count += count

    def take_mean(self) -> Tensor | None:
        """The mean, in the memory of the sum, which is no more."""
        total, self.total = self.total, None
        return None if total is None or self.count == 0 else total.div_(self.count)


@dataclass
class Pair:
    """The moments behind the input and the output factor of a layer."""

    inputs: Moment = field(default_factory=Moment)
    outputs: Moment = field(default_factory=Moment)


class Sums:
    """The moments of every layer by its weight, and how many examples they are of."""

    def __init__(self) -> None:
        self.pairs: dict[nn.Parameter, Pair] = {}
        self.examples = 0
        self.wanted = False  # whether backward came through the outputs since this was set aside

    def of(self, weight: nn.Parameter) -> Pair:
        return self.pairs.setdefault(weight, Pair())

    def add(self, other: "Sums") -> None:
        for weight, pair in other.pairs.items():
            mine = self.of(weight)
            mine.inputs.add(pair.inputs.total, pair.inputs.count)
            mine.outputs.add(pair.outputs.total, pair.outputs.count)
        self.examples += other.examples

    def watch(self, outputs: Tensor) -> None:
        """Notices a backward pass through `outputs`."""
        # The graph holds the hook: through a weak reference it does not keep the sums.
        me = weakref.ref(self)

        def notice(gradient: Tensor) -> None:
            sums = me()
            if sums is not None:
                sums.wanted = True

        outputs.register_hook(notice)


class Pending:
    """What was observed for the step to come."""

    def __init__(self) -> None:
        self.now: Sums = Sums()
        self._aside: Sums | None = None

    def begin_step(self) -> None:
        """Sets aside what is there: it counts if its backward pass is yet to come."""
        self._aside, self.now = self.now, Sums()
        self._aside.wanted = False

    def _bring_back(self) -> None:
        if self._aside is not None and self._aside.wanted:
            self._aside.add(self.now)
            self.now = self._aside
        self._aside = None

    def add(self, sums: Sums, outputs: Tensor) -> None:
        self._bring_back()
        self.now.add(sums)
        with torch.enable_grad():
            self.now.watch(outputs)

    @property
    def position(self) -> int:
        """How many examples of this step there were already."""
        self._bring_back()
        return self.now.examples

    def take(self) -> Sums:
        """What counts for this step, leaving nothing behind."""
        self._bring_back()
        taken, self.now = self.now, Sums()
        return taken
