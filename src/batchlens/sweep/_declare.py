"""From a workload to a sweep of it, and from a point of a search to settings."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from batchlens.checks import require_choice, require_sequence, require_whole
from batchlens.sweep._declaration import Cell, Declaration
from batchlens.sweep._search import Box
from batchlens.training._arguments import check_arguments
from batchlens.training.recipes import Setting, recipe_named
from batchlens.training.spaces import Range, Space
from batchlens.training.workloads import Workload, find_workload

_ANY = Setting()


def declare(
    workload: str,
    optimizers: Sequence[str],
    *,
    size: str = "laptop",
    batch_sizes: Sequence[int] | None = None,
    trials: int | None = None,
    seed: int = 0,
    target: float | None = None,
    target_on: str = "validation",
    max_steps: int | None = None,
    keep: int = 5,
    spaces: Mapping[str, Space] | None = None,
) -> Declaration:
    """A sweep with the workload's values for what is None.

    Arguments:
        workload: the name of one, or "my_file.py:name".
        optimizers: names such as "momentum" or "momentum+ema".
        trials: of each optimizer and batch size, those that diverge early not counted.
        max_steps: the step budget of every run.
        keep: how many of the best trials of a cell are known exactly; slower ones may be pruned.
        spaces: ranges that replace the workload's, by optimizer and setting.

    >>> sweep = declare("digits", ["sgd"], batch_sizes=[64], trials=20)
    >>> sweep.target, sweep.max_steps, sweep.spaces["sgd"]["learning_rate"]
    (0.97, (1563,), (0.001, 3.0, 'log'))
    """
    found = find_workload(workload, size)
    names = tuple(str(name) for name in require_sequence("optimizers", optimizers))
    given = found.batch_sizes if batch_sizes is None else require_sequence("batch_sizes", batch_sizes)
    sizes = tuple(require_whole("batch_sizes", value, 1) for value in given)
    for name in spaces or {}:
        require_choice("spaces", name, names)
    ranges = {name: _ranges(found, name, (spaces or {}).get(name, {})) for name in names}
    usual_target = found.target if target_on == "validation" else found.train_target
    declaration = Declaration(
        workload=workload,
        size=size,
        optimizers=names,
        batch_sizes=sizes,
        trials=found.trials if trials is None else require_whole("trials", trials, 1),
        seed=require_whole("seed", seed),
        target=usual_target if target is None else target,
        target_on=target_on,
        max_steps=tuple(found.max_steps(value) if max_steps is None else max_steps for value in sizes),
        keep=keep,
        spaces={
            name: {setting: (range_.low, range_.high, range_.scale) for setting, range_ in space.items()}
            for name, space in ranges.items()
        },
    )
    _try_out(declaration)
    return declaration


def _ranges(workload: Workload, optimizer: str, instead: Space) -> dict[str, Range]:
    require_choice("optimizers", optimizer, list(workload.spaces))
    return {**workload.spaces[optimizer], **instead}


def cell_space(declaration: Declaration, cell: Cell) -> dict[str, Range]:
    """The ranges of a cell's settings."""
    ranges = {
        setting: Range(low, high, scale)  # type: ignore[arg-type]
        for setting, (low, high, scale) in declaration.spaces[cell.optimizer].items()
    }
    workload = find_workload(declaration.workload, declaration.size)
    workload = replace(workload, spaces={cell.optimizer: ranges})
    return dict(workload.space(cell.optimizer, declaration.budget(cell.batch_size)))


def cell_reach(cell: Cell, space: Mapping[str, Range]) -> Box:
    """Where the settings of a cell must end, in units of their ranges."""
    known = recipe_named(cell.optimizer).settings
    reach = {}
    for name, range_ in space.items():
        setting = known.get(name, _ANY)
        reach[name] = (_position(range_, setting.low, -math.inf), _position(range_, setting.high, math.inf))
    return reach


def _position(range_: Range, value: float, otherwise: float) -> float:
    """The position of a value; `otherwise` where the scale puts it infinitely far away."""
    try:
        position = range_.fraction(value)
    except ValueError:  # the logarithm of 0
        return otherwise
    return position if math.isfinite(position) else otherwise


def _try_out(declaration: Declaration) -> None:
    """Whether runs would take these settings, before any is started."""
    for cell in declaration.cells:
        check_arguments(
            declaration.workload,
            cell.optimizer,
            cell.batch_size,
            {name: range_.at(0.5) for name, range_ in cell_space(declaration, cell).items()},
            size=declaration.size,
            max_steps=declaration.budget(cell.batch_size),
            target=declaration.target,
            target_on=declaration.target_on,
        )
