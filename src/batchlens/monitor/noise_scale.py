"""The gradient noise scale of any PyTorch training loop."""

import math
from collections import deque
from types import TracebackType
from typing import Any, Self

import numpy as np
from torch import Tensor, nn
from torch.amp.grad_scaler import GradScaler
from torch.optim import Optimizer

from batchlens._arrays import FloatArray
from batchlens._checks import require_choice, require_instance, require_number, require_whole
from batchlens.errors import BatchlensError
from batchlens.monitor._estimator import Parts, ratio_of_means, steps_to_precision, two_sizes
from batchlens.monitor._geometry import l1_parts, second_moments, squared
from batchlens.monitor._layers import find_layers, mixing_layer, trainable
from batchlens.monitor._pooling import Group, Pooled, group_of, pool, size_of
from batchlens.monitor._watching import LayerWatch, Watch, find_problem
from batchlens.monitor.noise_estimate import NoiseEstimate

_WAYS = ("auto", "examples", "micro_batches")
_REDUCTIONS = ("mean", "sum")
# Half-lives after which a step counts less than a thousandth, and is forgotten.
_HALF_LIVES = 10


class NoiseScale:
    """Up to which batch size does a larger batch help? The gradient noise scale of any training loop.

    The noise scale (McCandlish et al. 2018, B_simple) is tr Sigma / |G|^2, where Sigma is the covariance of single
    examples' gradients and G their mean: the batch size at which noise and signal of a gradient are alike. Both parts
    come from squared gradients of two batch sizes, E |g_b|^2 = |G|^2 + tr Sigma / b: that of the whole step, and that
    of single examples (`by="examples"`: from the inputs and output gradients of layers) or of micro-batches
    (`by="micro_batches"`: every backward pass of a step, on every process). An example is what has a place of its own
    in the first dimension: an image, or a sequence of tokens.

    Call `step()` once for each step of the optimizer: after the last `backward()`, before gradients are unscaled,
    clipped or used.

    Arguments:
        model: trained as it is; the one that is called, so the DistributedDataParallel one where there is one. Hooks
            come off with `close()`, at the end of a `with` block, or with this object.
        by: what the small batches are: "examples", "micro_batches", or "auto": micro-batches where a step has several
            (on several processes, or by gradient accumulation, which the first step tells), else examples.
        reduction: whether the loss of each backward pass is a "mean" or a "sum" over its examples. A further constant
            factor, such as one over the number of micro-batches, does not matter.
        geometry: None for the plain gradient; an optimizer of the Adam family, to precondition gradients by its second
            moments, as it does; or "l1", for updates by the sign of the gradient (micro-batches only).
        every: measure every so many steps.
        examples: of how many examples of a backward pass, the first ones, gradients are told apart; None: all.
        window: how many measured steps count, the latest; None: all.
        half_life: after how many measured steps a step counts half; None: all in the window count alike.
        batch_size: examples of a backward pass; None: the first dimension of the first tensor that the model is given.
        scaler: the GradScaler that scales the loss, if one does; `step()` then comes before its `unscale_`.
        process_group: of processes that average their gradients; None: those of a DistributedDataParallel model.

    >>> import torch
    >>> _ = torch.manual_seed(0)
    >>> model = nn.Linear(10, 1)
    >>> noise = NoiseScale(model, by="examples")
    >>> for _ in range(200):
    ...     inputs = torch.randn(16, 10)
    ...     targets = inputs[:, :1] + torch.randn(16, 1)
    ...     model.zero_grad()
    ...     nn.functional.mse_loss(model(inputs), targets).backward()
    ...     noise.step()
    >>> noise.estimate()
    <NoiseEstimate: noise scale 22 (20 to 24) from 200 steps>
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        by: str = "auto",
        reduction: str = "mean",
        geometry: Optimizer | str | None = None,
        every: int = 1,
        examples: int | None = 32,
        window: int | None = 1000,
        half_life: float | None = None,
        batch_size: int | None = None,
        scaler: GradScaler | None = None,
        process_group: Group | None = None,
    ) -> None:
        self._model = require_instance("model", model, nn.Module)
        self._by = require_choice("by", by, _WAYS)
        self._mean = require_choice("reduction", reduction, _REDUCTIONS) == "mean"
        self._optimizer = _require_geometry(geometry)
        self._geometry = "plain" if geometry is None else "l1" if self._optimizer is None else "preconditioned"
        self._every = require_whole("every", every, 1)
        self._examples = None if examples is None else require_whole("examples", examples, 1)
        self._half_life = None if half_life is None else require_number("half_life", half_life, 0, closed=(False, True))
        window = None if window is None else require_whole("window", window, 3)
        if self._half_life is not None:
            longest = max(3, math.ceil(_HALF_LIVES * self._half_life))
            window = longest if window is None else min(window, longest)
        self._scaler = None if scaler is None else require_instance("scaler", scaler, GradScaler)
        self._group = group_of(model, process_group)
        size = None if batch_size is None else require_whole("batch_size", batch_size, 1)
        parameters = trainable(model)
        _check_model(model, parameters)
        self._records: deque[Parts] = deque(maxlen=window)
        self._steps = self._skipped = self._known_left_out = 0
        self._moments: dict[nn.Parameter, Tensor | None] = {}
        self._watch = Watch(model, parameters, size)
        if self._optimizer is not None:
            own = {parameter for group in self._optimizer.param_groups for parameter in group["params"]}
            others = [name for name, parameter in parameters.items() if parameter not in own]
            self._watch.left_out.update(dict.fromkeys(others, "not in the optimizer"))
        self._layers: LayerWatch | None = None
        if self._by == "auto" and (size_of(self._group) > 1 or self._geometry == "l1"):
            self._by = "micro_batches"
        if self._by != "auto":
            try:
                self._prepare()
            except BatchlensError as error:
                raise ValueError(str(error)) from None

    def _prepare(self) -> None:
        """Sets the hooks to what the small batches are."""
        if self._by == "micro_batches":
            if self._geometry == "l1":
                self._watch.kept = {}
            else:
                self._watch.measure = self._squared
            return
        if self._geometry == "l1":
            raise BatchlensError('geometry="l1" needs micro-batches: examples have squared gradients only.')
        self._require_apart()
        layers, hidden = find_layers(self._model)
        if len(hidden) == len(self._watch.names):
            raise BatchlensError('No parameter is of a layer whose examples can be told apart: use by="micro_batches".')
        if hasattr(self._model, "_orig_mod"):
            raise BatchlensError('A compiled model hides its layers: use by="micro_batches", or the model itself.')
        self._watch.left_out.update(hidden)
        self._known_left_out = len(self._watch.left_out)
        self._layers = LayerWatch(self._watch, layers, self._examples, self._weights)
        self._watch.measure = self._layers.measure

    @property
    def by(self) -> str:
        """What the small batches are: "examples" or "micro_batches"; "auto" before the first step has told."""
        return self._by

    @property
    def left_out(self) -> dict[str, str]:
        """Parameters that do not count, by name, with the reason."""
        return dict(self._watch.left_out)

    @property
    def skipped(self) -> int:
        """How many steps were to be measured and said nothing: gradients not finite, or no second moments yet."""
        return self._skipped

    def step(self) -> None:
        """Takes down what the step says; after its last `backward()`, before its gradients are changed or used."""
        try:
            if self._watch.active:
                self._take_down()
            self._steps += 1
        finally:
            self._moments.clear()
            self._watch.restart(self._steps % self._every == 0)
            if self._layers is not None:
                self._layers.restart()

    def _take_down(self) -> None:
        problem = find_problem(self._watch, alone=size_of(self._group) == 1)
        if self._by == "auto":
            if problem is not None:
                raise BatchlensError(problem)
            self._by = "micro_batches" if len(self._watch.micro_batches) > 1 else "examples"
            self._prepare()
            self._steps = -1  # the next step is the first that is measured
            return
        if self._by == "examples":
            self._require_apart()
        parts = self._parts(problem)
        if len(self._watch.left_out) > self._known_left_out:  # other parameters counted so far
            self._known_left_out = len(self._watch.left_out)
            self._records.clear()
            parts = None
        if parts is not None and all(map(math.isfinite, parts)):
            self._records.append(parts)
        else:
            self._skipped += 1

    def _parts(self, problem: str | None) -> Parts | None:
        """Noise and signal of the step; None where it cannot tell them."""
        counted = [parameter for parameter in self._watch.counted if parameter.grad is not None]
        found = self._pool(counted, problem)
        if found.problems:
            raise BatchlensError(problem or "Another process could not take down its step, and says why.")
        if not counted:
            raise BatchlensError("No parameter is left that counts; `left_out` says why.")
        if self._by == "micro_batches" and found.batches < 2 and not self._records:
            raise BatchlensError(
                "A step of one backward pass on one process has nothing to be compared with: accumulate gradients of "
                'several micro-batches, train on several processes, or use by="examples".'
            )
        if found.large_batch <= found.small_batch or not self._has_moments(counted):
            return None
        scale = 1.0 if self._scaler is None else self._scaler.get_scale()
        if self._geometry == "l1":
            noise, signal = found.parts
            return Parts(noise / scale, signal / scale, found.large_batch) if found.even else None
        large = sum(float(squared(_gradient(parameter), self._weights(parameter))) for parameter in counted)
        return two_sizes(found.small / scale**2, large / scale**2, found.small_batch, found.large_batch)

    def _pool(self, counted: list[nn.Parameter], problem: str | None) -> Pooled:
        """What all processes saw."""
        seen = [] if problem is not None else self._watch.micro_batches
        sizes = [batch.examples or 1 for batch in seen]
        values = [math.nan if batch.total is None else float(batch.total.mean()) for batch in seen]
        parts = (0.0, 0.0)
        if self._watch.kept is not None:
            values = [0.0] * len(seen)
            processes = size_of(self._group)
            batches = len(seen) * processes
            if batches > 1:
                pairs = [(self._watch.kept[parameter], _gradient(parameter)) for parameter in counted]
                parts = l1_parts(pairs, batches, processes, sum(sizes) / len(sizes))
        return pool(
            values,
            sizes,
            by_examples=self._by == "examples",
            mean=self._mean,
            group=self._group,
            device=next(self._model.parameters()).device,
            problem=problem is not None,
            parts=parts,
        )

    def _squared(self, parameter: nn.Parameter, gradient: Tensor) -> Tensor:
        return squared(gradient, self._weights(parameter))

    def _weights(self, parameter: nn.Parameter) -> Tensor | None:
        """By which the squares of a gradient's entries count; None: all alike."""
        if self._optimizer is not None and parameter not in self._moments:
            self._moments[parameter] = second_moments(self._optimizer, parameter)
        return self._moments.get(parameter)

    def _has_moments(self, counted: list[nn.Parameter]) -> bool:
        return self._optimizer is None or all(self._weights(parameter) is not None for parameter in counted)

    def _require_apart(self) -> None:
        name = mixing_layer(self._model)
        if name is not None:
            raise BatchlensError(
                f"`{name}` is a batch norm, which mixes the examples of a batch: none has a gradient of its own. "
                'Accumulate gradients of micro-batches or train on several processes (by="micro_batches").'
            )

    def estimate(self, precision: float = 0.5) -> NoiseEstimate:
        """The noise scale with its 90% interval, or what it takes to tell it.

        Arguments:
            precision: how far the interval may reach to either side, as a share of the value, for the answer to count
                as told; `steps_needed` and the sentence say how many steps more that takes.
        """
        precision = require_number("precision", precision, 0, closed=(False, True))
        told: dict[str, Any] = {
            "by": self._by,
            "geometry": self._geometry,
            "left_out": tuple(self._watch.left_out),
            "skipped": self._skipped,
        }
        if not self._records:
            return NoiseEstimate(None, None, 0, None, False, math.nan, math.nan, math.nan, too_short=False, **told)
        parts = np.array(self._records)
        ratio = ratio_of_means(parts, self._ages(len(parts)))
        power = 2 if self._geometry == "l1" else 1
        needed = steps_to_precision(ratio, precision / power)
        more, exact = (None, True) if needed is None else needed
        return NoiseEstimate(
            value=None if ratio.value is None else ratio.value**power,
            interval=None if ratio.interval is None else (ratio.interval[0] ** power, ratio.interval[1] ** power),
            steps=ratio.steps,
            steps_needed=None if more is None else more * self._every,
            at_least=not exact,
            noise=ratio.noise,
            signal=ratio.signal,
            batch_size=float(parts[:, 2].mean()),
            too_short=more is not None and ratio.effective_steps + more > self._most_steps(),
            **told,
        )

    def _ages(self, count: int) -> FloatArray | None:
        """What is left of the weight of each step."""
        return None if self._half_life is None else 0.5 ** (np.arange(count)[::-1] / self._half_life)

    def _most_steps(self) -> float:
        """How many steps can count in full at the same time."""
        longest = math.inf if self._records.maxlen is None else float(self._records.maxlen)
        if self._half_life is None:
            return longest
        kept = float(0.5 ** (1 / self._half_life))
        return min(longest, (1 + kept) / (1 - kept))

    def state_dict(self) -> dict[str, Any]:
        """What it takes to go on after a checkpoint."""
        return {
            "by": self._by,
            "geometry": self._geometry,
            "records": [list(parts) for parts in self._records],
            "steps": self._steps,
            "skipped": self._skipped,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes on from a checkpoint of a noise scale that was measured in the same way."""
        try:
            by, geometry = state["by"], state["geometry"]
            records = [Parts(*map(float, parts)) for parts in state["records"]]
            steps, skipped = int(state["steps"]), int(state["skipped"])
        except (KeyError, TypeError, ValueError) as error:
            raise BatchlensError(f"This is no state of a NoiseScale: {error!r}.") from None
        if self._by == "auto" and by in _WAYS[1:]:
            self._by = by
            self._prepare()
        if (by, geometry) != (self._by, self._geometry):
            ours = f"{self._geometry} by {self._by}"
            raise BatchlensError(f"The state is of gradients {geometry} by {by}, this noise scale is {ours}.")
        self._records.clear()
        self._records.extend(records)
        self._steps, self._skipped = steps, skipped
        self._watch.restart(self._steps % self._every == 0)

    def close(self) -> None:
        """Takes the hooks off the model; what was measured stays."""
        self._watch.close()
        if self._layers is not None:
            self._layers.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _gradient(parameter: nn.Parameter) -> Tensor:
    assert parameter.grad is not None
    return parameter.grad.detach()


def _require_geometry(geometry: object) -> Optimizer | None:
    """The optimizer whose second moments count, or None."""
    if geometry is None or geometry == "l1":
        return None
    if not isinstance(geometry, Optimizer):
        raise ValueError(f"`geometry` must be None, an optimizer of the Adam family or 'l1', got {geometry!r}.")
    if not all("betas" in group and "eps" in group for group in geometry.param_groups):
        raise ValueError(f"`geometry` must have second moments, as Adam has, got {type(geometry).__name__}.")
    return geometry


def _check_model(model: nn.Module, parameters: dict[str, nn.Parameter]) -> None:
    if not parameters:
        raise ValueError("`model` must have parameters that get gradients, got none.")
    if isinstance(model, nn.DataParallel):
        raise ValueError("`model` must not be a DataParallel, whose copies are not seen; use DistributedDataParallel.")
    if any(hasattr(parameter, "device_mesh") for parameter in parameters.values()):
        raise ValueError("`model` must not be sharded: each process sees a part of the gradient only.")
