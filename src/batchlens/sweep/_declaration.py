"""What a sweep is: declared whole, so that running it means filling in what is missing."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, NamedTuple

from batchlens._checks import require_choice, require_number, require_whole
from batchlens.optimizers import root_of

# A cell is given up after this many times the trials asked for, however many of them diverged.
MOST_NUMBERS = 5
# Of a cell; numbers of trials are kept in memory.
MOST_TRIALS = 1_000_000
# Added to the batch size, makes steps of different batch sizes roughly comparable in time.
_STEP_OVERHEAD = 100

SEARCHES = ("guided", "sobol")

# What an entry is called where it is asked for.
_OPTIONS = {"leave": "extend"}

RangeTuple = tuple[float, float, str]
Spaces = Mapping[str, Mapping[str, RangeTuple]]


class Cell(NamedTuple):
    """What one search is for."""

    optimizer: str
    batch_size: int

    def __str__(self) -> str:
        return f"{self.optimizer} at batch size {self.batch_size}"


@dataclass(frozen=True)
class Shard:
    """Every `count`-th trial, from the `index`-th on; index is in 1..count.

    >>> Shard.parse("2/3")
    Shard(index=2, count=3)
    """

    index: int
    count: int

    @classmethod
    def parse(cls, text: str) -> "Shard":
        """From "I/N"."""
        index, slash, count = text.partition("/")
        if not (slash and index.isdecimal() and count.isdecimal() and 1 <= int(index) <= int(count)):
            raise ValueError(f"`shard` must be I/N with I from 1 to N, got {text!r}.")
        return cls(int(index), int(count))

    def owns(self, position: int) -> bool:
        """Whether the trial at `position` of the sweep is one of this shard."""
        return position % self.count == self.index - 1

    def __str__(self) -> str:
        return f"{self.index}/{self.count}"


@dataclass(frozen=True)
class Declaration:
    """Everything that the result of a sweep depends on; `declare` fills it in from a workload.

    Arguments:
        workload: its name, or FILE.py:NAME.
        size: "laptop" or "paper".
        optimizers: their names.
        batch_sizes: of every optimizer.
        trials: of each optimizer and batch size, not counting those that diverge before the best reaches the target.
        seed: of the search points and of the runs.
        target: what counts as trained,
        target_on: on the "validation" or the "train" set.
        max_steps: the step budget of a run, one per batch size.
        keep: how many of the best trials of a cell are known exactly; slower ones may be pruned.
        spaces: low, high and scale of every setting, one space for each optimizer, as `Workload.spaces` has them.
        source: a digest of the workload where it is not one of the published ones.
        search: "sobol" for independent points, or "guided" for rounds that learn from the ones before.
        seeds: with how many fresh seeds guided search trains what it has chosen, at least.
        also_targets: such as "train-loss 0.3", noted on the way.
        confirm_target: whether two evaluations in a row must meet the target.
        leave: whether the points of a guided search may leave the declared spaces, by a third of them.
        precision: half the interval of a guided cell's log steps that is enough, instead of a number of seeds.
        steady: whether a guided search chooses the finalist with the lowest mean of log steps plus its standard error,
            and not only with the lowest mean; stores of earlier versions do not.
    """

    workload: str
    size: str
    optimizers: tuple[str, ...]
    batch_sizes: tuple[int, ...]
    trials: int
    seed: int
    target: float
    target_on: str
    max_steps: tuple[int, ...]
    keep: int
    spaces: Spaces
    source: str = ""
    search: str = "sobol"
    seeds: int = 0
    also_targets: tuple[str, ...] = ()
    confirm_target: bool = False
    leave: bool = True
    precision: float | None = None
    steady: bool = False

    def __post_init__(self) -> None:
        for name, values in (("optimizers", self.optimizers), ("batch_sizes", self.batch_sizes)):
            if not values:
                raise ValueError(f"`{name}` must have at least one entry, got none.")
            for value in values:
                if values.count(value) > 1:
                    raise ValueError(f"`{name}` must differ from one another, got {value} twice.")
        for size, budget in zip(self.batch_sizes, self.max_steps, strict=True):
            require_whole("batch_sizes", size, 1)
            require_whole("max_steps", budget, 1)
        require_whole("trials", self.trials, 1, MOST_TRIALS)
        require_whole("seed", self.seed)
        require_whole("keep", self.keep, 1)
        require_whole("seeds", self.seeds)
        require_choice("search", self.search, SEARCHES)
        require_number("target", self.target)

    @property
    def cells(self) -> list[Cell]:
        """In the order declared, optimizer by optimizer."""
        return [Cell(optimizer, size) for optimizer in self.optimizers for size in self.batch_sizes]

    @property
    def main_target(self) -> str:
        """As crossings name it."""
        return f"{self.target_on} {self.target:g}"

    @property
    def families(self) -> list[list[str]]:
        """The optimizers in groups of those that learn from one another."""
        groups: dict[str, list[str]] = {}
        for optimizer in self.optimizers:
            groups.setdefault(root_of(optimizer), []).append(optimizer)
        return list(groups.values())

    def budget(self, batch_size: int) -> int:
        """The step budget of a run."""
        return self.max_steps[self.batch_sizes.index(batch_size)]

    def cost(self, cell: Cell) -> int:
        """Roughly in proportion to the time of a run that uses up its budget."""
        return self.budget(cell.batch_size) * (cell.batch_size + _STEP_OVERHEAD)

    def _is_same_file(self, other: "Declaration") -> bool:
        """Whether both are of the same workload of a file, wherever it lies."""
        mine, theirs = (Path(entry.workload).name for entry in (self, other))
        return bool(self.source) and (mine, self.source) == (theirs, other.source)

    def _where(self) -> str:
        """The file that the workload lies in, or what else it is."""
        file, colon, _ = self.workload.rpartition(":")
        return file if colon else f"the workload {self.workload}"

    def as_json(self) -> str:
        """One JSON object; `from_json` is its inverse."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "Declaration":
        """From what `as_json` gave."""
        document: dict[str, Any] = json.loads(text)
        for name in ("optimizers", "batch_sizes", "max_steps", "also_targets"):
            document[name] = tuple(document.get(name, ()))
        document["spaces"] = {
            optimizer: {name: (float(low), float(high), str(scale)) for name, (low, high, scale) in space.items()}
            for optimizer, space in document["spaces"].items()
        }
        return cls(**document)

    def differences(self, other: "Declaration") -> list[str]:
        """What the two do not share, beside the number of trials and of seeds: "seed is 0, not 1"."""
        apart = ["trials", "seeds", "precision", "spaces", "source"]
        apart += ["keep"] if self.search == "guided" else []  # of no effect there
        apart += ["max_steps"] if self.batch_sizes != other.batch_sizes else []  # a consequence
        names = [field.name for field in fields(self) if field.name not in apart]
        if self._is_same_file(other):
            names.remove("workload")
        found = [
            f"{_OPTIONS.get(name, name)} is {_words(getattr(self, name))}, not {_words(getattr(other, name))}"
            for name in names
            if getattr(self, name) != getattr(other, name)
        ]
        if self.workload == other.workload and self.source != other.source:
            found.append(_changed(self._where(), self.source, other.source))
        shared = [name for name in self.spaces if name in other.spaces]
        return found + [
            f"the range of {setting} for {optimizer} is {_words(self.spaces[optimizer].get(setting))}, "
            f"not {_words(other.spaces[optimizer].get(setting))}"
            for optimizer in shared
            for setting in {**self.spaces[optimizer], **other.spaces[optimizer]}
            if self.spaces[optimizer].get(setting) != other.spaces[optimizer].get(setting)
        ]


def _changed(where: str, before: str, now: str) -> str:
    if not before:
        return f"it does not say what {where} was, as it was made by an earlier version"
    digests = f"its digest was {before[:12]}, now it is {now[:12]}"
    return f"{where} has changed: {digests} (bring the file back, or begin a new store)"


def _words(value: object) -> str:
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
