"""From a workload to a sweep of it, and from a point of a search to settings."""

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from types import CodeType, FunctionType

import torch

from batchlens._checks import require_choice, require_flag, require_instance, require_sequence, require_whole
from batchlens.optimizers import OPTIMIZERS, averaged
from batchlens.sweep._declaration import SEARCHES, Cell, Declaration
from batchlens.sweep._search import Box
from batchlens.training._arguments import check_arguments
from batchlens.training._recipes import Setting, recipe_named
from batchlens.training._targets import check_target, parse_target
from batchlens.training.metrics import Metric
from batchlens.training.spaces import Range, Space
from batchlens.training.workloads import Workload, find_workload

_ANY = Setting()
# Trials of a cell's guided search, and fresh seeds that report, unless told: with the finalists' six, 40 runs.
GUIDED_TRIALS, SEEDS = 29, 5


@dataclass(frozen=True)
class DeclaredSweep:
    """A sweep and the workload that it is of.

    `named` is whether another process finds the workload by the declaration's name.
    """

    declaration: Declaration
    workload: Workload
    named: bool

    def space(self, cell: Cell) -> dict[str, Range]:
        """The ranges of a cell's settings."""
        declaration = self.declaration
        ranges = {
            setting: Range(low, high, scale)  # type: ignore[arg-type]
            for setting, (low, high, scale) in declaration.spaces[cell.optimizer].items()
        }
        workload = replace(self.workload, spaces={cell.optimizer: ranges})
        return dict(workload.space(cell.optimizer, declaration.budget(cell.batch_size)))

    def reach(self, cell: Cell) -> Box:
        """Where the settings of a cell must end, in units of their ranges."""
        known = recipe_named(cell.optimizer).settings
        reach = {}
        for name, range_ in self.space(cell).items():
            setting = known.get(name, _ANY)
            reach[name] = (_position(range_, setting.low, -math.inf), _position(range_, setting.high, math.inf))
        return reach


def declare(
    workload: str | Workload,
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
    search: str = "guided",
    seeds: int | None = None,
    also_targets: Sequence[str] = (),
    confirm_target: bool = False,
) -> DeclaredSweep:
    """A sweep with the workload's values for what is None; arguments as for `run_sweep`.

    >>> sweep = declare("digits", ["sgd"], batch_sizes=[64]).declaration
    >>> sweep.target, sweep.max_steps, sweep.spaces["sgd"]["learning_rate"]
    (0.97, (1563,), (0.001, 3.0, 'log'))
    """
    found = workload if isinstance(workload, Workload) else find_workload(workload, size)
    named = not isinstance(workload, Workload) or _is_published(workload)
    names = tuple(str(name) for name in require_sequence("optimizers", optimizers))
    given = found.batch_sizes if batch_sizes is None else require_sequence("batch_sizes", batch_sizes)
    sizes = tuple(require_whole("batch_sizes", value, 1) for value in given)
    for name in {} if spaces is None else require_instance("spaces", spaces, Mapping):  # type: ignore[type-abstract]
        require_choice("spaces", name, names)
    guided = require_choice("search", search, SEARCHES) == "guided"
    ranges = {name: _ranges(found, name, (spaces or {}).get(name, {})) for name in names}
    if guided:  # averages are measured beside the runs, not searched
        for space in ranges.values():
            space.pop("averaging", None)
    main = check_target(found, target_on, target)
    also = [parse_target(found, text) for text in require_sequence("also_targets", also_targets)]
    usual_trials = GUIDED_TRIALS if guided else found.trials
    declaration = Declaration(
        workload=found.name if isinstance(workload, Workload) else workload,
        size=found.size,
        optimizers=names,
        batch_sizes=sizes,
        trials=usual_trials if trials is None else require_whole("trials", trials, 1),
        seed=require_whole("seed", seed),
        target=main.value,
        target_on=main.on,
        max_steps=tuple(found.max_steps(value) if max_steps is None else max_steps for value in sizes),
        keep=keep,
        spaces={
            name: {setting: (range_.low, range_.high, range_.scale) for setting, range_ in space.items()}
            for name, space in ranges.items()
        },
        source=found.source if named else _digest(found),
        search=search,
        seeds=_seeds(guided, seeds),
        also_targets=tuple(str(entry) for entry in also),
        confirm_target=require_flag("confirm_target", confirm_target),
        steady=guided,
    )
    sweep = DeclaredSweep(declaration, found, named)
    _try_out(sweep)
    return sweep


def _seeds(guided: bool, seeds: int | None) -> int:
    if not guided and seeds:
        raise ValueError("`seeds` is for guided search; sobol trains its winners again with `repeats`.")
    return (SEEDS if guided else 0) if seeds is None else require_whole("seeds", seeds, 1 if guided else 0)


def _is_published(workload: Workload) -> bool:
    """Whether the object is the one that its name finds."""
    try:
        return find_workload(workload.name, workload.size) == workload
    except ValueError:
        return False


def _digest(workload: Workload) -> str:
    """Of what can be seen of a workload that lies in no file: its values, its functions' code, and its model."""
    seen = {field.name: _describe(getattr(workload, field.name)) for field in fields(workload)}
    with torch.random.fork_rng(devices=[]):
        model = workload.make_model()
    shapes = {name: list(weight.shape) for name, weight in model.named_parameters()}
    return hashlib.sha256(json.dumps([seen, repr(model), shapes], sort_keys=True).encode()).hexdigest()


def _describe(value: object) -> str:
    """A value in words that are the same in every process."""
    if isinstance(value, partial):
        return f"{_describe(value.func)}{value.args}{sorted(value.keywords.items())}"
    if isinstance(value, FunctionType):
        constants = [entry for entry in value.__code__.co_consts if not isinstance(entry, CodeType)]
        return f"{value.__module__}.{value.__qualname__} {value.__code__.co_code.hex()} {constants}"
    if isinstance(value, Metric):
        return f"{value.name} {_describe(value.scores)} {value.best} {value.higher_is_better}"
    return f"{type(value).__qualname__}" if callable(value) else repr(value)


def _ranges(workload: Workload, optimizer: str, instead: Space) -> dict[str, Range]:
    require_choice("optimizers", optimizer, [*OPTIMIZERS, *map(averaged, OPTIMIZERS)])
    if optimizer not in workload.spaces and not instead:
        raise ValueError(f"`spaces` must say where to search the settings of {optimizer}: {workload.name} does not.")
    ranges = {**workload.spaces.get(optimizer, {}), **instead}
    return {name: require_instance(f"spaces[{optimizer}][{name}]", range_, Range) for name, range_ in ranges.items()}


def _position(range_: Range, value: float, otherwise: float) -> float:
    """The position of a value; `otherwise` where the scale puts it infinitely far away."""
    try:
        position = range_.fraction(value)
    except ValueError:  # the logarithm of 0
        return otherwise
    return position if math.isfinite(position) else otherwise


def _try_out(sweep: DeclaredSweep) -> None:
    """Whether runs would take these settings, before any is started."""
    declaration = sweep.declaration
    for cell in declaration.cells:
        check_arguments(
            sweep.workload,
            cell.optimizer,
            cell.batch_size,
            {name: range_.at(0.5) for name, range_ in sweep.space(cell).items()},
            size=declaration.size,
            max_steps=declaration.budget(cell.batch_size),
            target=declaration.target,
            target_on=declaration.target_on,
        )
