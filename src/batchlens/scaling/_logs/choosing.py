"""Several runs at one batch size: of the settings that were tried the best count, and their seeds tell the noise."""

import math
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple, get_args

import numpy as np

from batchlens.scaling._logs.kinds.steps_table import Run
from batchlens.scaling._logs.log import Setting

Several = Literal["best", "mean"]
SEVERAL: tuple[Several, ...] = get_args(Several)


class Measured(NamedTuple):
    """A run and its settings, the seed among them."""

    run: Run
    settings: Mapping[str, Setting]


def choose(measured: Sequence[Measured], several: Several) -> tuple[list[Run], list[str]]:
    """The runs that count, and in words which settings were the best.

    "best": at each batch size of an optimizer, the runs of the settings with the least geometric mean of steps, among
    those with which at least half of the runs reached the target.  "mean": all.
    """
    if several == "mean":
        return [entry.run for entry in measured], []
    cells: dict[tuple[str, float], list[Measured]] = {}
    for entry in measured:
        cells.setdefault((entry.run.optimizer, entry.run.batch_size), []).append(entry)
    kept: list[Run] = []
    words: dict[str, list[str]] = {}
    untold: list[float] = []
    for (optimizer, batch_size), entries in sorted(cells.items(), key=lambda cell: cell[0][1]):
        tried: dict[frozenset[tuple[str, Setting]], list[Run]] = {}
        for entry in entries:
            settings = frozenset((name, value) for name, value in entry.settings.items() if not _tells_seeds(name))
            tried.setdefault(settings, []).append(entry.run)
        best = min(tried, key=lambda settings: _rank(tried[settings]))
        kept += tried[best]
        if len(tried[best]) > 1 and not any(entry.settings for entry in entries):
            untold.append(batch_size)
        if len(tried) > 1:
            differing = sorted(best - frozenset.intersection(*tried))
            named = ", ".join(f"{name} {value}" for name, value in differing) or "those not told"
            words.setdefault(optimizer, []).append(f"{batch_size:g}: {named} (of {len(tried)})")
    notes = [f"Best settings by mean steps{_of(name)}: {'; '.join(cells)}." for name, cells in words.items()]
    return kept, notes + ([_say_untold(untold)] if untold else [])


def _say_untold(sizes: list[float]) -> str:
    return (
        f"The runs at batch size {', '.join(f'{size:g}' for size in sizes)} tell neither settings nor seeds, and are "
        "averaged as runs alike. If they differ, name the settings by groups of batch_size_from: "
        "'b(\\d+)-lr(?P<learning_rate>[\\d.]+)'."
    )


def _rank(runs: list[Run]) -> tuple[float, float]:
    """Less is better: mean steps, or, where most missed the target, how many did."""
    reached = [run.steps for run in runs if run.steps is not None]
    missed = 1 - len(reached) / len(runs)
    return (math.inf if missed > 0.5 else float(np.mean(np.log(reached)))), missed


def _tells_seeds(name: str) -> bool:
    return "seed" in name.lower() or name.lower() in ("repeat", "run")


def _of(optimizer: str) -> str:
    return f" of {optimizer}" if optimizer else ""
