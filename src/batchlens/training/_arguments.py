"""The arguments of a run, checked before anything is loaded."""

import functools
import platform
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypedDict, Unpack

import torch

from batchlens import __version__
from batchlens._checks import require_choice, require_flag, require_instance, require_sequence, require_whole
from batchlens._shapes import SHAPES
from batchlens.errors import BatchlensError
from batchlens.optimizers import base_of
from batchlens.training._batch_plan import BatchPlan, check_batch_schedule
from batchlens.training._recipes import Recipe, Setting, check_settings, recipe_named
from batchlens.training._targets import Target, check_target, parse_target
from batchlens.training._workload import SIZES
from batchlens.training.data.loading import Dataset
from batchlens.training.workloads import Workload, find_workload

# Averages beside a run: none, the first to arrive, or each that has arrived by then.
AVERAGES = ("", "best", "each")
# Where Linux describes its processors, and what tells models apart: maker, family and model of x86, then of Arm.
_PROCESSORS = Path("/proc/cpuinfo")
_MODEL = ("vendor_id", "cpu family", "model", "CPU implementer", "CPU part")


class Options(TypedDict, total=False):
    """What a run takes beside workload, optimizer, batch size and settings; `training.loop.train` says what each is."""

    size: str
    seed: int
    max_steps: int | None
    micro_batch: int | None
    schedule: str | None
    batch_schedule: Path | str | Iterable[Any] | None
    target: float | None
    target_on: str
    also_targets: Sequence[str]
    all_targets: bool
    confirm_target: bool
    averages: str
    lazy: bool
    device: str


@dataclass(frozen=True)
class Arguments:
    """Everything that the result of a run depends on."""

    workload: Workload
    recipe: Recipe
    batches: BatchPlan
    settings: Mapping[str, float]
    seed: int
    max_steps: int
    micro_batch: int
    schedule: str
    targets: tuple[Target, ...]
    all_targets: bool
    confirm_target: bool
    averages: str
    lazy: bool
    device: torch.device

    @property
    def batch_size(self) -> int:
        """Of the first step."""
        return self.batches.batch_size(0)

    @property
    def target(self) -> float:
        """Of the main target."""
        return self.targets[0].value

    @property
    def target_on(self) -> str:
        """Where the main target is measured."""
        return self.targets[0].on

    def identity(self) -> dict[str, Any]:
        """What two runs must share for one to go on where the other stopped."""
        names = (
            *("batch_size", "seed", "max_steps", "micro_batch", "schedule", "lazy"),
            *("all_targets", "confirm_target", "averages"),
        )
        return {
            "workload": self.workload.name,
            "size": self.workload.size,
            "source": self.workload.source,
            "optimizer": self.recipe.name,
            "settings": dict(self.settings),
            "targets": [str(target) for target in self.targets],
            **{name: getattr(self, name) for name in names},
            "batch_schedule": [list(row) for row in self.batches.rows],
            "device": self.device.type,
            "versions": versions(),
        }

    def learning_rate_factor(self) -> Callable[[int], float]:
        """Which part of the learning rate a step uses."""
        shape = SHAPES[self.schedule]
        return lambda step: self.batches.rate_factor(step) * shape.of_step(step, self.settings)


def versions() -> dict[str, str]:
    """What a result may depend on beside its arguments."""
    return {
        "batchlens": __version__,
        "torch": str(torch.__version__),
        "python": platform.python_version(),
        "processor": processor(),
    }


@functools.cache
def processor() -> str:
    """What bits depend on: the instructions that torch uses, and the model, as its libraries have a path for each."""
    kind = f"{platform.machine()} {torch.backends.cpu.get_cpu_capability()}"
    if not _PROCESSORS.exists():
        return " ".join([kind, platform.processor()]).strip()
    lines = _PROCESSORS.read_text(encoding="utf-8", errors="replace").split("\n\n")[0].splitlines()
    told = {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    return " ".join([kind, *(told[name] for name in _MODEL if name in told)])


def check_arguments(
    workload: Workload | str,
    optimizer: Recipe | str,
    batch_size: int | None,
    settings: Mapping[str, float],
    **options: Unpack[Options],
) -> Arguments:
    """The arguments of `training.loop.train`, with the workload's values for those that are missing or None."""
    for name in options:
        if name not in Options.__annotations__:
            raise TypeError(f"`{name}` is not known; a run takes {', '.join(Options.__annotations__)}.")
    size = require_choice("size", options.get("size", "laptop"), SIZES)
    if isinstance(workload, str):
        workload = find_workload(workload, size)
    require_instance("workload", workload, Workload)
    recipe = recipe_named(optimizer) if isinstance(optimizer, str) else require_instance("optimizer", optimizer, Recipe)
    batches = _check_batches(batch_size, options.get("batch_schedule"))
    max_steps = options.get("max_steps")
    max_steps = _usual_budget(workload, batches) if max_steps is None else require_whole("max_steps", max_steps, 1)
    main = check_target(workload, options.get("target_on", "validation"), options.get("target"))
    also = [parse_target(workload, text) for text in require_sequence("also_targets", options.get("also_targets", ()))]
    averages = require_choice("averages", options.get("averages", ""), AVERAGES)
    if averages and (own := {"averaging", "window"} & settings.keys()):
        raise ValueError(f"`{min(own)}` must be left out with `averages`, which measures a ladder of them.")
    schedule = _check_schedule(options.get("schedule"), batches, workload)
    return Arguments(
        workload=workload,
        recipe=recipe,
        batches=batches,
        settings=_check_settings(workload, recipe, schedule, _with_rate(settings, batches), max_steps),
        seed=require_whole("seed", options.get("seed", 0)),
        max_steps=max_steps,
        micro_batch=_check_micro_batch(options.get("micro_batch"), batches.largest, workload),
        schedule=schedule,
        targets=tuple(dict.fromkeys([main, *also])),
        all_targets=require_flag("all_targets", options.get("all_targets", False)),
        confirm_target=require_flag("confirm_target", options.get("confirm_target", False)),
        averages=averages,
        lazy=require_flag("lazy", options.get("lazy", True)),
        device=check_device(options.get("device", "cpu")),
    )


def _check_batches(batch_size: int | None, schedule: Path | str | Iterable[Any] | None) -> BatchPlan:
    if schedule is None:
        return BatchPlan.constant(require_whole("batch_size", batch_size, 1))
    batches = check_batch_schedule(schedule)
    if batch_size is not None and batch_size != batches.batch_size(0):
        raise ValueError(f"`batch_size` must be left out with `batch_schedule`, which has its own, got {batch_size}.")
    return batches


def _usual_budget(workload: Workload, batches: BatchPlan) -> int:
    """Steps until the workload's most examples are seen, and at least its fewest."""
    return max(batches.steps_of(workload.max_examples), workload.min_steps)


def _check_schedule(schedule: str | None, batches: BatchPlan, workload: Workload) -> str:
    if not batches.learning_rates:
        return require_choice("schedule", workload.schedule if schedule is None else schedule, list(SHAPES))
    if schedule not in (None, "constant"):
        raise ValueError(
            f"`schedule` must be left out with `batch_schedule`, which has learning rates, got {schedule}."
        )
    return "constant"


def _with_rate(settings: Mapping[str, float], batches: BatchPlan) -> Mapping[str, float]:
    """Settings with the learning rate of a batch schedule's first step."""
    if not batches.learning_rates or not isinstance(settings, Mapping):
        return settings
    first = batches.learning_rates[0]
    if settings.get("learning_rate", first) != first:
        raise ValueError("`learning_rate` must be left out with `batch_schedule`, which has its own.")
    return {**settings, "learning_rate": first}


def load_data(workload: Workload, data_dir: Path | None) -> Dataset:
    """The workload's data set."""
    try:
        data: object = workload.data(data_dir)
    except BatchlensError:
        raise
    except Exception as error:
        raise BatchlensError(
            f"the data of {workload.name} cannot be loaded: {type(error).__name__}: {error}"
        ) from error
    if not isinstance(data, Dataset):
        raise TypeError(
            f"`data` of {workload.name} must return a Dataset, got a {type(data).__name__}. Put the examples into "
            "tensors: Dataset(name, Split(inputs, targets), Split(inputs, targets), classes)."
        )
    return data


def _check_settings(
    workload: Workload, recipe: Recipe, schedule: str, settings: Mapping[str, float], max_steps: int
) -> dict[str, float]:
    defaults = workload.defaults.get(base_of(recipe.name), {})
    of_optimizer = {
        name: replace(setting, default=defaults.get(name, setting.default)) for name, setting in recipe.settings.items()
    }
    shape = SHAPES[schedule]
    of_schedule = {name: Setting(default, 0.0, 1.0, (True, True)) for name, default in shape.fractions.items()}
    if shape.length:
        of_schedule[shape.length] = Setting(max_steps, closed=(False, False))
    return check_settings({**of_optimizer, **of_schedule}, settings, recipe.name)


def _check_micro_batch(micro_batch: int | None, batch_size: int, workload: Workload) -> int:
    if micro_batch is None:
        return min(workload.micro_batch, batch_size)
    multiple = workload.slice_multiple
    micro_batch = require_whole("micro_batch", micro_batch, 1)
    if micro_batch < batch_size and micro_batch % multiple:
        raise ValueError(f"`micro_batch` must be a multiple of {multiple}, the ghost size, got {micro_batch}.")
    return min(micro_batch, batch_size)


def check_device(name: str) -> torch.device:
    """The device of that name, if this machine has it."""
    available = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    kind = require_choice("device", str(name).partition(":")[0], list(available))
    if not available[kind]:
        here = ", ".join(kind for kind, there in available.items() if there)
        raise ValueError(f"`device` must be one that this machine has ({here}), got {name}.")
    try:
        return torch.device(name)
    except RuntimeError:
        raise ValueError(f"`device` must be cpu, cuda, cuda:0 or the like, got {name}.") from None
