"""The optimizers that a run can name: torch's own, averaging on top of any, and a place for one's own.

A `Recipe` says how to build an optimizer and which settings it takes. `recipe_named("momentum+ema")` is the recipe of
"momentum" with the setting `averaging`, the coefficient of an exponential moving average of the weights, or `window`,
the part of the run that the average reaches back over.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn, optim

from batchlens._checks import require_number, require_whole
from batchlens.kfac import KFAC
from batchlens.optimizers import averaged, base_of, is_averaged

Settings = Mapping[str, float]


class Stepper(Protocol):
    """What the loop asks of an optimizer; every torch.optim.Optimizer has it."""

    param_groups: list[dict[str, Any]]

    def step(self) -> Any: ...
    def zero_grad(self) -> None: ...
    def state_dict(self) -> dict[str, Any]: ...
    def load_state_dict(self, state_dict: dict[str, Any]) -> None: ...


class Task(NamedTuple):
    """What an optimizer may want to know beside the model: the distribution behind the loss, and a seed."""

    likelihood: str = "cross_entropy"
    seed: int = 0


@dataclass(frozen=True)
class Setting:
    """Where a setting may lie, and its value when it is not given; None: it must be given."""

    default: float | None = None
    low: float = 0.0
    high: float = float("inf")
    closed: tuple[bool, bool] = (True, False)
    whole: bool = False

    def check(self, name: str, value: object) -> float:
        """`value`, if the setting can have it."""
        number = require_number(name, value, self.low, self.high, closed=self.closed)
        return require_whole(name, value) if self.whole else number


_LEARNING_RATE = Setting()
_COEFFICIENT = Setting(0.9, high=1.0)


@dataclass(frozen=True)
class Recipe:
    """How to build an optimizer.

    Arguments:
        name: what it is called in records.
        build: from the model, the settings and the task to the optimizer. The learning rate of every parameter group is
            multiplied by the schedule. An optimizer with a method `observe` is shown the outputs of every forward pass
            before its backward pass.
        settings: what can be set, beside the schedule's settings.
        averaged: whether the average of the weights is what counts.

    >>> recipe = Recipe("mine", lambda model, settings, task: optim.SGD(model.parameters(), settings["learning_rate"]))
    >>> recipe.with_averaging().name
    'mine+ema'
    """

    name: str
    build: Callable[[nn.Module, Settings, Task], Stepper]
    settings: Mapping[str, Setting] = field(default_factory=lambda: {"learning_rate": _LEARNING_RATE})
    averaged: bool = False

    def with_averaging(self) -> "Recipe":
        """The same optimizer, evaluated on an exponential moving average of its weights."""
        settings = {**self.settings, "averaging": _COEFFICIENT, "window": Setting(0.0)}
        return replace(self, name=averaged(self.name), settings=settings, averaged=True)


def check_settings(known: Mapping[str, Setting], given: object, what: str) -> dict[str, float]:
    """`given` with the defaults of what is missing."""
    if not isinstance(given, Mapping):
        raise TypeError(f"`settings` must be a dictionary such as {{'learning_rate': 0.1}}, got {given!r}.")
    for name in given:
        if name not in known:
            raise ValueError(f"`settings` of {what} must be among {', '.join(known)}, got {name}.")
    checked = {}
    for name, setting in known.items():
        value = given.get(name, setting.default)
        if value is None:
            raise ValueError(f"`settings` must give {name}, which {what} needs.")
        checked[name] = setting.check(name, value)
    return checked


def _sgd(model: nn.Module, settings: Settings, task: Task) -> Stepper:
    return optim.SGD(model.parameters(), lr=settings["learning_rate"], momentum=settings.get("momentum", 0.0))


def _nesterov(model: nn.Module, settings: Settings, task: Task) -> Stepper:
    # torch refuses nesterov without momentum, where it is plain SGD.
    momentum = settings["momentum"]
    return optim.SGD(model.parameters(), lr=settings["learning_rate"], momentum=momentum, nesterov=momentum > 0)


def _fused(weights: Iterable[Tensor]) -> bool | None:
    """True where torch can update all of these in one kernel, else None: torch's own choice."""
    return all(_can_be_fused(weight) for weight in weights) or None


def _can_be_fused(weight: Tensor) -> bool:
    # The kernel walks through memory and does not look at strides: a weight with gaps would come out wrong, without a
    # word. Autograd lays out the gradient of a weight without gaps as the weight itself.
    without_gaps = weight.is_contiguous() or (
        weight.dim() == 4 and weight.is_contiguous(memory_format=torch.channels_last)
    )
    return without_gaps and weight.is_floating_point() and weight.device.type in ("cpu", "cuda", "mps")


def _adam(model: nn.Module, settings: Settings, task: Task) -> Stepper:
    weights = list(model.parameters())
    return optim.Adam(
        weights,
        lr=settings["learning_rate"],
        betas=(settings.get("beta1", 0.0), settings["beta2"]),
        eps=settings["epsilon"],
        fused=_fused(weights),
    )


def _adamw_over(weights: Sequence[Tensor], settings: Settings) -> optim.AdamW:
    return optim.AdamW(
        weights,
        lr=settings["learning_rate"],
        betas=(settings["beta1"], settings["beta2"]),
        eps=settings["epsilon"],
        weight_decay=settings["weight_decay"],
        fused=_fused(weights),
    )


def _adamw(model: nn.Module, settings: Settings, task: Task) -> Stepper:
    return _adamw_over(list(model.parameters()), settings)


class _FlatMuon(optim.Muon):
    """torch's Muon, which takes matrices only, over weights of any shape: an output channel is a row."""

    def __init__(self, weights: Sequence[Tensor], **arguments: Any) -> None:
        self.weights = weights
        self.matrices = [_as_matrix(weight.detach()) for weight in weights]
        super().__init__(self.matrices, **arguments)

    def step(self, closure: Any = None) -> Any:
        for weight, matrix in zip(self.weights, self.matrices, strict=True):
            matrix.grad = None if weight.grad is None else _as_matrix(weight.grad, like=weight)
        return super().step(closure)  # type: ignore[no-untyped-call]

    def zero_grad(self, set_to_none: bool = True) -> None:
        for weight in self.weights:
            weight.grad = None


def _as_matrix(tensor: Tensor, like: Tensor | None = None) -> Tensor:
    """A matrix that shares the memory of `tensor`, or of the layout of `like`.

    The order of the columns follows the memory, which Muon's update is indifferent to.
    """
    layout = tensor if like is None else like
    if layout.dim() == 4 and layout.is_contiguous(memory_format=torch.channels_last):
        tensor = tensor.permute(0, 2, 3, 1)
    return tensor.flatten(1) if like is not None else tensor.view(len(tensor), -1)


class Together:
    """Several optimizers, each for parameters of its own, as one."""

    def __init__(self, *optimizers: optim.Optimizer) -> None:
        self.optimizers = optimizers
        self.param_groups = [group for optimizer in optimizers for group in optimizer.param_groups]

    def step(self) -> None:
        for optimizer in self.optimizers:
            optimizer.step()

    def zero_grad(self) -> None:
        for optimizer in self.optimizers:
            optimizer.zero_grad()

    def state_dict(self) -> dict[str, Any]:
        return {str(number): optimizer.state_dict() for number, optimizer in enumerate(self.optimizers)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        for number, optimizer in enumerate(self.optimizers):
            optimizer.load_state_dict(state_dict[str(number)])
        self.param_groups = [group for optimizer in self.optimizers for group in optimizer.param_groups]


def _muon(model: nn.Module, settings: Settings, task: Task) -> Stepper:
    # Embeddings are tables, not maps: like vectors they go to AdamW. Updates of matched size let both share one rate.
    tables = {module.weight for module in model.modules() if isinstance(module, nn.Embedding)}
    weights = [weight for weight in model.parameters() if weight.dim() > 1 and weight not in tables]
    others = [weight for weight in model.parameters() if weight.dim() <= 1 or weight in tables]
    if not weights:
        return _adamw_over(others, settings)
    muon = _FlatMuon(
        weights,
        lr=settings["learning_rate"],
        momentum=settings["momentum"],
        weight_decay=settings["weight_decay"],
        adjust_lr_fn="match_rms_adamw",
    )
    return Together(muon, _adamw_over(others, settings)) if others else muon


def _kfac(model: nn.Module, settings: Settings, task: Task) -> Stepper:
    return KFAC(
        model,
        task.likelihood,
        lr=settings["learning_rate"],
        momentum=settings.get("momentum", 0.0),
        damping=settings["damping"],
        kl_clip=settings["kl_clip"],
        factor_decay=settings["factor_decay"],
        factor_every=int(settings["factor_every"]),
        inverse_every=int(settings["inverse_every"]),
        frequent_start=bool(settings["frequent_start"]),
        input_examples=int(settings["input_examples"]) or None,
        rank=int(settings["rank"]) or None,
        other="sgd",
        seed=task.seed,
    )


_MOMENTUM = {"learning_rate": _LEARNING_RATE, "momentum": _COEFFICIENT}
_ADAM_WITHOUT_MOMENTUM = {
    "learning_rate": _LEARNING_RATE,
    "beta2": Setting(0.999, high=1.0),
    "epsilon": Setting(1e-8),
}
_ADAM = {**_ADAM_WITHOUT_MOMENTUM, "beta1": _COEFFICIENT}
_ADAMW = {**_ADAM, "weight_decay": Setting(0.01)}
_KFAC_WITHOUT_MOMENTUM = {
    "learning_rate": _LEARNING_RATE,
    "damping": Setting(1e-2, closed=(False, False)),
    "kl_clip": Setting(1e-3, closed=(False, False)),
    "factor_decay": Setting(0.95, high=1.0),
    "factor_every": Setting(10, low=1.0, whole=True),
    "inverse_every": Setting(20, low=1.0, whole=True),
    "frequent_start": Setting(1, high=1.0, closed=(True, True), whole=True),
    "input_examples": Setting(16, whole=True),  # 0: all
    "rank": Setting(128, whole=True),  # 0: inverses in full
}

RECIPES: dict[str, Recipe] = {
    recipe.name: recipe
    for recipe in (
        Recipe("sgd", _sgd),
        Recipe("momentum", _sgd, _MOMENTUM),
        Recipe("nesterov", _nesterov, _MOMENTUM),
        Recipe("adam", _adam, _ADAM),
        Recipe("adam_no_momentum", _adam, _ADAM_WITHOUT_MOMENTUM),
        Recipe("adamw", _adamw, _ADAMW),
        Recipe("kfac", _kfac, {**_KFAC_WITHOUT_MOMENTUM, "momentum": _COEFFICIENT}),
        Recipe("kfac_no_momentum", _kfac, _KFAC_WITHOUT_MOMENTUM),
        Recipe("muon", _muon, {**_ADAMW, "momentum": Setting(0.95, high=1.0)}),
    )
}


def recipe_named(name: str) -> Recipe:
    """The recipe of a name such as "sgd" or, averaged, "sgd+ema".

    >>> recipe_named("sgd+ema").averaged
    True
    """
    if base_of(name) not in RECIPES:
        raise ValueError(f"`optimizer` must be one of {', '.join(RECIPES)}, each also with +ema, got {name!r}.")
    recipe = RECIPES[base_of(name)]
    return recipe.with_averaging() if is_averaged(name) else recipe
