"""K-FAC as a torch optimizer: collect factors, invert them, take the step."""

import copy
import math
import weakref
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils.hooks import RemovableHandle

from batchlens._checks import require_choice, require_flag, require_instance, require_number, require_whole
from batchlens.errors import BatchlensError
from batchlens.kfac._graph import Capture, leave_call
from batchlens.kfac._groups import check_setting, make_groups
from batchlens.kfac._intervals import is_due
from batchlens.kfac._inverses import RAISED_DAMPING, Inverse, damping_ratio, diagonal, invert, spectrum
from batchlens.kfac._labels import FISHERS, LOSSES
from batchlens.kfac._layers import Block, find_blocks
from batchlens.kfac._observing import Observer
from batchlens.kfac._processes import Group, group_of
from batchlens.kfac._saved import require_known, require_same_model
from batchlens.kfac._table import format_summary

OTHERS = ("refuse", "sgd")
# What a state that was saved before these could be set has meant.
_OF_OLDER_STATES = {"weight_decay": 0.0, "frequent_start": False, "input_examples": None, "rank": None}


class CurvatureError(BatchlensError):
    """Curvature or gradient from which no step can be taken: the run has diverged. The weights are as they were."""


class KFAC(Optimizer):
    r"""Natural-gradient descent with a Kronecker-factored Fisher matrix (Martens and Grosse 2015).

    The Fisher block of a layer is taken as S kron A (see `batchlens.kfac._layers`), and step t moves by

        direction = (S + sqrt(damping) / pi I)^-1  gradient  (A + pi sqrt(damping) I)^-1
        buffer   <- momentum buffer + lr scale direction
        weight   <- (1 - lr weight_decay) weight - buffer

    with pi^2 = (tr A / dim A) / (tr S / dim S). The trust region ("KL clipping") holds every step, before momentum,
    to scale = min(1, sqrt(kl_clip / (lr^2 <direction, gradient>))), one number for all layers.

    The loop calls `observe` between the forward and the backward pass; on steps that update no factors it is free.
    A step may be made of several forward, `observe` and backward passes: the factors are those of the whole batch
    (scale the losses so that the gradient is, too). The loss is the mean over examples. `zero_grad` forgets what was
    observed for a step that was never taken.

    Arguments:
        model: trained as it is; hooks on its layers come off with `close()` or with the optimizer.
        loss: "cross_entropy", or "squared_error" for 1/2 ||output - target||^2 an example.
        lr: the learning rate, as in torch.optim.SGD.
        momentum: likewise (dampening 0) while lr stays the same. When a scheduler changes it, what the buffer holds
            keeps the lr that it came with, so that clipped steps stay clipped.
        weight_decay: as in torch.optim.AdamW: apart from the gradient, and from damping and trust region.
        damping: added to the curvature. A change of param_groups[0]["damping"] counts from the next inverse on.
        kl_clip: bound of lr^2 <direction, gradient>, or None.
        factor_decay: of the factors' running averages, corrected so that the first estimate counts in full.
        factor_every: steps between updates of the factors.
        inverse_every: steps between updates of their inverses.
        frequent_start: update both more often during the first 30 steps (see `batchlens.kfac._intervals`).
        input_examples: an input factor with rows to spare, as convolutions have, takes this many examples of a step,
            the first ones, and every 17th after (see `batchlens.kfac._thinning`); None: all.
        rank: the inverse of a factor with at least four times as many columns is taken from this many eigenvectors (see
            `batchlens.kfac._inverses`); None: in full.
        fisher: "sampled" draws labels from the predictions (one backward pass more), "empirical" takes the labels
            given to `observe`, "exact" takes one backward pass for every output of an example.
        other: parameters without factors (normalisation, positions): "refuse", or "sgd" to use their gradient as
            the direction, with the same lr, momentum and scale.
        ignore_index: the class number of examples that the loss leaves out, if `observe` is given `targets`.
        seed: of the sampled labels.
        groups: as in torch.optim: dictionaries with "params", parameters of the model, and a "lr", "momentum" or
            "weight_decay" of their own. All other settings are those of param_groups[0].
        process_group: of processes that train this model together, each on its part of the batch, as under
            DistributedDataParallel: factors are those of all parts. None is all processes that torch.distributed
            knows, if any; a group of one keeps the factors to itself.

    >>> _ = torch.manual_seed(0)
    >>> model = nn.Linear(2, 1, bias=False)
    >>> inputs = torch.tensor([[1.0, 0.0], [0.0, 100.0]])
    >>> optimizer = KFAC(model, "squared_error", lr=1.0, momentum=0.0, damping=1e-10, kl_clip=None, fisher="exact")
    >>> outputs = model(inputs)
    >>> optimizer.observe(outputs)
    >>> (outputs - inputs.sum(1, keepdim=True)).square().mean().div(2).backward()
    >>> optimizer.step()
    >>> model.weight.detach().round(decimals=2)
    tensor([[1., 1.]])
    """

    def __init__(
        self,
        model: nn.Module,
        loss: str = "cross_entropy",
        *,
        lr: float = 0.1,
        momentum: float = 0.9,
        weight_decay: float = 0.0,
        damping: float = 1e-2,
        kl_clip: float | None = 1e-3,
        factor_decay: float = 0.95,
        factor_every: int = 10,
        inverse_every: int = 20,
        frequent_start: bool = True,
        input_examples: int | None = 16,
        rank: int | None = 128,
        fisher: str = "sampled",
        other: str = "refuse",
        ignore_index: int = -100,
        seed: int = 0,
        groups: Iterable[Mapping[str, Any]] | None = None,
        process_group: Group | None = None,
    ) -> None:
        self.model = require_instance("model", model, nn.Module)
        self.loss = require_choice("loss", loss, tuple(LOSSES))
        self.fisher = require_choice("fisher", fisher, FISHERS)
        require_choice("other", other, OTHERS)
        self._made_with: dict[str, Any] = {
            "loss": loss,
            "fisher": fisher,
            "other": other,
            "seed": seed,
            "ignore_index": ignore_index,
            "process_group": process_group,
        }
        defaults = {
            "lr": check_setting("lr", lr),
            "momentum": check_setting("momentum", momentum),
            "weight_decay": check_setting("weight_decay", weight_decay),
            "damping": _require_damping(damping),
            "kl_clip": None if kl_clip is None else require_number("kl_clip", kl_clip, 0, closed=(False, True)),
            "factor_decay": require_number("factor_decay", factor_decay, 0, 1, closed=(True, False)),
            "factor_every": require_whole("factor_every", factor_every, 1),
            "inverse_every": require_whole("inverse_every", inverse_every, 1),
            "frequent_start": require_flag("frequent_start", frequent_start),
            "input_examples": None if input_examples is None else require_whole("input_examples", input_examples, 1),
            "rank": None if rank is None else require_whole("rank", rank, 1),
        }
        self._names = {parameter: name for name, parameter in model.named_parameters() if parameter.requires_grad}
        if not self._names:
            raise ValueError("`model` must have a parameter that requires a gradient, and has none.")
        self._blocks, self._others = find_blocks(model)
        if self._others and other == "refuse":
            listed = "".join(f"\n  {name}: {reason}" for name, (_, reason) in self._others.items())
            raise ValueError(
                'K-FAC has no factors for these parameters. Pass other="sgd" to give them the plain gradient, or set '
                f"requires_grad to False.{listed}"
            )
        for block in self._blocks:
            if block.weight.dtype not in (torch.float32, torch.float64):
                raise ValueError(f"`model` must be float32 or float64, got {block.weight.dtype} in {block.name}.")
        self._observer = Observer(
            self._blocks,
            self.loss,
            self.fisher,
            require_whole("ignore_index", ignore_index, -(2**62)),
            require_whole("seed", seed),
            group_of(model, process_group),
        )
        super().__init__(make_groups(list(self._names), groups), defaults)
        self._steps = 0
        handles = [
            module.register_forward_hook(Capture(self._capture, block), with_kwargs=True)
            for block in self._blocks
            for module in block.modules
        ]
        self._closer = weakref.finalize(self, _remove, handles)

    def close(self) -> None:
        """Takes the hooks off the model. The optimizer collects no factors afterwards."""
        self._closer()

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        if "_steps" in self.__dict__:
            raise ValueError("KFAC takes its parameters from `model`, and their groups as `groups`, when it is made.")
        super().add_param_group(param_group)

    @property
    def _group(self) -> dict[str, Any]:
        return self.param_groups[0]

    @property
    def _collects(self) -> bool:
        return self._is_due("factor_every")

    def _is_due(self, interval: str) -> bool:
        return is_due(self._steps, int(self._group[interval]), self._group["frequent_start"])

    # Collecting ------------------------------------------------------------------------------

    def observe(self, outputs: Tensor, targets: Tensor | None = None) -> None:
        """Adds the curvature at `outputs`, fresh from the model, to this step's factors.

        The last dimension of `outputs` holds classes or values; every other index is an example. `targets`, class
        numbers or values of the shape of `outputs`, are needed with fisher="empirical", and where the loss leaves out
        examples: it is told by `ignore_index` among the class numbers.
        """
        if self.fisher == "empirical" and targets is None:
            raise ValueError('`targets` must be given with fisher="empirical": observe(outputs, targets).')
        if not (self._collects and torch.is_grad_enabled() and outputs.requires_grad):
            return
        found = self._observer.observe(outputs, targets, self._group["input_examples"])
        if not found and self.model.training and self._closer.alive:
            raise BatchlensError("`outputs` hold no call of a layer that was not observed before.")

    def _capture(self, block: Block, module: nn.Module, inputs: Tensor, output: Tensor) -> None:
        if self._collects and module.training and torch.is_grad_enabled() and output.requires_grad:
            leave_call(self._observer.key, block, module, inputs, output)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clears gradients, and what was observed for a step that was never taken."""
        super().zero_grad(set_to_none)
        self._observer.pending.begin_step()

    # Stepping --------------------------------------------------------------------------------

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """One step. Raises `CurvatureError`, with the weights as they were, if anything is not finite."""
        result = None
        if closure is not None:
            with torch.enable_grad():
                result = closure()
        if all(parameter.grad is None for parameter in self._names):
            raise BatchlensError("No parameter has a gradient. Call backward() before step().")
        require_known(self.model, self._names, self._blocks)
        # Taken first, so that a step that fails leaves nothing to the next.
        means = self._take_means() if self._collects else {}
        self._require_finite("gradient", {name: p.grad for p, name in self._names.items() if p.grad is not None})
        self._update_factors(means)
        self._update_inverses()
        directions = self._directions()
        scale = self._trust_region(directions)
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter in directions:
                    self._move(parameter, directions[parameter], scale, group)
        self._steps += 1
        return result

    def _require_finite(self, what: str, tensors: dict[str, Tensor]) -> None:
        ends = {name: torch.stack(tensor.aminmax()) for name, tensor in tensors.items()}  # one pass, NaN shows
        if ends and not torch.stack(list(ends.values())).isfinite().all():  # one wait for the device
            bad = ", ".join(name for name, end in ends.items() if not end.isfinite().all())
            raise CurvatureError(f"The {what} is not finite at step {self._steps} ({bad}): the run has diverged.")

    def _take_means(self) -> dict[Block, tuple[Tensor, Tensor]]:
        means = self._observer.take_means()
        if self._blocks and not means:
            raise BatchlensError(
                f"Step {self._steps} updates the factors, but observe(outputs) was not called with the model in "
                "training mode."
            )
        return means

    def _update_factors(self, means: dict[Block, tuple[Tensor, Tensor]]) -> None:
        # No entry of a second moment is larger than the largest of its diagonal.
        for number, what in enumerate(("input factor", "output factor")):
            self._require_finite(what, {block.name: diagonal(pair[number]) for block, pair in means.items()})
        decay = self._group["factor_decay"]
        for block, (inputs, outputs) in means.items():
            state = self.state[block.weight]
            state["updates"] = state.get("updates", 0) + 1
            weight = (1 - decay) / (1 - decay ** state["updates"])
            for key, mean in (("input_factor", inputs), ("output_factor", outputs)):
                state[key] = state[key].lerp(mean, weight) if key in state else mean

    def _update_inverses(self) -> None:
        damping = _require_damping(self._group["damping"])
        for block in self._blocks:
            state = self.state[block.weight]
            due = self._is_due("inverse_every") or "input_inverse" not in state
            if due and "input_factor" in state:
                inputs, outputs = state["input_factor"], state["output_factor"]
                pi = damping_ratio(inputs, outputs)
                for key, factor, part in (("input_inverse", inputs, pi), ("output_inverse", outputs, 1 / pi)):
                    state[key] = self._invert(block, factor, math.sqrt(damping) * part, state.get(key))

    def _invert(self, block: Block, factor: Tensor, damping: float, previous: Inverse | None) -> Inverse:
        for attempt in (damping, RAISED_DAMPING * damping):
            inverse = invert(factor, attempt, self._group["rank"], previous)
            if inverse is not None:
                return inverse
        raise CurvatureError(
            f"A factor of {block.name} has no inverse at step {self._steps}, even with {RAISED_DAMPING:g} times the "
            "damping: the run has diverged, or `damping` is too small for its precision."
        )

    def _directions(self) -> dict[nn.Parameter, Tensor]:
        """Where every parameter with a gradient goes."""
        directions: dict[nn.Parameter, Tensor] = {}
        for block in self._blocks:
            gradient = block.gradient()
            if gradient is None:
                continue
            state = self.state[block.weight]
            if "input_inverse" not in state:
                raise BatchlensError(
                    f"{block.name} has a gradient but no factors: it was in evaluation mode, or not part of the "
                    "outputs that were observed."
                )
            direction = block.precondition(gradient, state["input_inverse"], state["output_inverse"])
            directions.update(zip(block.parameters, block.split(direction), strict=True))
        for parameter, _ in self._others.values():
            if parameter.grad is not None:
                directions[parameter] = parameter.grad
        return directions

    def _trust_region(self, directions: Mapping[nn.Parameter, Tensor]) -> float:
        """What all directions are multiplied by."""
        total = 0.0
        for group in self.param_groups:
            products = [
                (directions[p] * p.grad).sum().double()
                for p in group["params"]
                if p in directions and p.grad is not None
            ]
            total += group["lr"] ** 2 * float(torch.stack(products).sum()) if products else 0.0
        if not math.isfinite(total):
            raise CurvatureError(f"The step is not finite at step {self._steps}: the run has diverged.")
        kl_clip = self._group["kl_clip"]
        return min(1.0, math.sqrt(kl_clip / total)) if kl_clip is not None and total > 0 else 1.0

    def _move(self, parameter: nn.Parameter, direction: Tensor, scale: float, group: Mapping[str, Any]) -> None:
        lr, momentum, decay = group["lr"], group["momentum"], group["weight_decay"]
        if decay > 0:
            parameter.mul_(1 - lr * decay)
        if momentum == 0:
            parameter.add_(direction, alpha=-lr * scale)
            return
        state = self.state[parameter]
        if "momentum_buffer" not in state:
            state["momentum_buffer"] = torch.zeros_like(parameter)
        # With the learning rate inside, a larger one later cannot undo the clipping of earlier steps.
        parameter.sub_(state["momentum_buffer"].mul_(momentum).add_(direction, alpha=lr * scale))

    # Looking ---------------------------------------------------------------------------------

    def factors(self) -> dict[str, tuple[Tensor, Tensor]]:
        """Layer name -> (input factor, output factor): running averages, undamped; a vector is a diagonal."""
        return {
            block.name: (self.state[block.weight]["input_factor"], self.state[block.weight]["output_factor"])
            for block in self._blocks
            if "input_factor" in self.state[block.weight]
        }

    def eigenvalues(self) -> dict[str, tuple[Tensor, Tensor]]:
        """Layer name -> (eigenvalues of the input factor, of the output factor), ascending and undamped.

        Those of the layer's Fisher block are their products: `torch.outer(*eigenvalues[name])`.
        """
        return {name: (spectrum(inputs), spectrum(outputs)) for name, (inputs, outputs) in self.factors().items()}

    @property
    def unfactored(self) -> Mapping[str, str]:
        """Parameter name -> why it has no factors, and takes its plain gradient."""
        return MappingProxyType({name: reason for name, (_, reason) in self._others.items()})

    def summary(self) -> str:
        """How every parameter is treated, with the sizes of the factors and the memory they and their inverses take."""
        return format_summary(self._blocks, self.unfactored, self._group["rank"])

    # Saving and copying ----------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Factors, inverses, momentum, step count and the sampler's random state; to be taken between steps."""
        own = {"steps": self._steps, "sampler": self._observer.uniforms.generator.get_state()}
        return {**super().state_dict(), "kfac": own}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continues from `state_dict`, a copy of which is taken."""
        if "kfac" not in state_dict:
            raise BatchlensError("`state_dict` is not of a KFAC optimizer.")
        ordered = [parameter for group in self.param_groups for parameter in group["params"]]
        require_same_model(state_dict, [(parameter, self._names[parameter]) for parameter in ordered], self._blocks)
        # torch keeps the tensors it is given, and a step would then change them in place.
        state_dict = copy.deepcopy(state_dict)
        own = state_dict.pop("kfac")
        super().load_state_dict(state_dict)
        for group in self.param_groups:
            for name, value in _OF_OLDER_STATES.items():
                group.setdefault(name, value)
        self._steps = own["steps"]
        self._observer.restart(own["sampler"])

    def __deepcopy__(self, memo: dict[int, Any]) -> "KFAC":
        """The same optimizer over a copy of its model: the copy that `memo` has, if the two are copied together."""
        model = copy.deepcopy(self.model, memo)
        groups = [{"params": [memo[id(parameter)] for parameter in group["params"]]} for group in self.param_groups]
        other = KFAC(model, groups=groups, **self._made_with)
        memo[id(self)] = other
        other.load_state_dict(self.state_dict())
        return other

    def __reduce__(self) -> Any:
        raise TypeError("A KFAC cannot be pickled: it has hooks in its model. Save state_dict() instead.")


def _require_damping(value: object) -> float:
    return require_number("damping", value, 0, closed=(False, True))


def _remove(handles: list[RemovableHandle]) -> None:
    for handle in handles:
        handle.remove()
