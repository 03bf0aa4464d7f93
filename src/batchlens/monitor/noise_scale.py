"""The gradient noise scale of any PyTorch training loop."""

import math
import weakref
from collections import deque
from types import TracebackType
from typing import Any, Self

import numpy as np
from torch import nn
from torch.amp.grad_scaler import GradScaler
from torch.optim import Optimizer

from batchlens._arrays import FloatArray
from batchlens._checks import require_choice, require_instance, require_number, require_whole
from batchlens.errors import BatchlensError
from batchlens.monitor._estimator import Parts, ratio_of_means, steps_to_precision
from batchlens.monitor._geometry import Geometry
from batchlens.monitor._measuring import Measuring
from batchlens.monitor._pooling import Group, group_of
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
        require_instance("model", model, nn.Module)
        require_choice("by", by, _WAYS)
        require_choice("reduction", reduction, _REDUCTIONS)
        self._every = require_whole("every", every, 1)
        self._half_life = None if half_life is None else require_number("half_life", half_life, 0, closed=(False, True))
        self._records: deque[Parts] = deque(maxlen=self._longest(window))
        self._steps = self._skipped = 0
        self._geometry = Geometry(geometry)
        self._measuring = Measuring(
            model,
            by,
            self._geometry,
            mean=reduction == "mean",
            examples=None if examples is None else require_whole("examples", examples, 1),
            batch_size=None if batch_size is None else require_whole("batch_size", batch_size, 1),
            scaler=None if scaler is None else require_instance("scaler", scaler, GradScaler),
            group=group_of(model, process_group),
        )
        self._left_out = len(self._measuring.left_out)
        self._closer = weakref.finalize(self, self._measuring.close)

    def _longest(self, window: int | None) -> int | None:
        """How many steps are kept."""
        longest = math.inf if window is None else require_whole("window", window, 3)
        if self._half_life is not None:
            longest = min(longest, max(3, math.ceil(_HALF_LIVES * self._half_life)))
        return None if longest == math.inf else int(longest)

    @property
    def by(self) -> str:
        """What the small batches are: "examples" or "micro_batches"; "auto" before the first step has told."""
        return self._measuring.by

    @property
    def left_out(self) -> dict[str, str]:
        """Parameters that do not count, by name, with the reason."""
        return dict(self._measuring.left_out)

    @property
    def skipped(self) -> int:
        """How many steps were to be measured and said nothing: gradients not finite, or no second moments yet."""
        return self._skipped

    def step(self) -> None:
        """Takes down what the step says; after its last `backward()`, before its gradients are changed or used."""
        try:
            if self._measuring.is_active:
                self._take_down()
            self._steps += 1
        finally:
            self._measuring.restart(self._steps % self._every == 0)

    def _take_down(self) -> None:
        if self._measuring.by == "auto":
            self._measuring.detect()
            self._left_out = len(self._measuring.left_out)
            self._steps = -1  # the next step is the first that is measured
            return
        parts = self._measuring.parts(measured_before=bool(self._records))
        if len(self._measuring.left_out) > self._left_out:  # more parameters counted until now
            self._left_out = len(self._measuring.left_out)
            self._records.clear()
            parts = None
        if parts is not None and all(map(math.isfinite, parts)):
            self._records.append(parts)
        else:
            self._skipped += 1

    def estimate(self, precision: float = 0.5) -> NoiseEstimate:
        """The noise scale with its 90% interval, or what it takes to tell it.

        Arguments:
            precision: how far the interval may reach to either side, as a share of the value, for the answer to count
                as told; `steps_needed` and the sentence say how many steps more that takes.
        """
        precision = require_number("precision", precision, 0, closed=(False, True))
        told: dict[str, Any] = {
            "by": self.by,
            "geometry": self._geometry.name,
            "left_out": tuple(self.left_out),
            "skipped": self._skipped,
        }
        if not self._records:
            return NoiseEstimate(None, None, 0, None, False, math.nan, math.nan, math.nan, too_short=False, **told)
        parts = np.array(self._records)
        ratio = ratio_of_means(parts, self._ages(len(parts)))
        power = 2 if self._geometry.name == "l1" else 1
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
            "by": self.by,
            "geometry": self._geometry.name,
            "records": [list(parts) for parts in self._records],
            "steps": self._steps,
            "skipped": self._skipped,
            "left_out": self.left_out,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes on from a checkpoint of a noise scale that was measured in the same way."""
        try:
            by, geometry = state["by"], state["geometry"]
            records = [Parts(*map(float, parts)) for parts in state["records"]]
            steps, skipped = int(state["steps"]), int(state["skipped"])
            left_out = {str(name): str(reason) for name, reason in state.get("left_out", {}).items()}
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise BatchlensError(f"This is no state of a NoiseScale: {error!r}.") from None
        if self.by == "auto" and by in _WAYS[1:]:
            self._measuring.prepare(by)
        if (by, geometry) != (self.by, self._geometry.name):
            ours = f"{self._geometry.name} by {self.by}"
            raise BatchlensError(f"The state is of gradients {geometry} by {by}, this noise scale is {ours}.")
        self._measuring.leave_out(left_out)
        self._left_out = len(self._measuring.left_out)
        self._records.clear()
        self._records.extend(records)
        self._steps, self._skipped = steps, skipped
        self._measuring.restart(self._steps % self._every == 0)

    def close(self) -> None:
        """Takes the hooks off the model; what was measured stays."""
        self._closer()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
