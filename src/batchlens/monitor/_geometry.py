"""In which geometry gradients are measured: plain, preconditioned by Adam's second moments, or l1.

Adam moves by P g with P = 1 / (sqrt(v) + eps), which is gradient descent in the coordinates P^-1/2 w. There the
gradient is P^1/2 g, and its noise scale tr(P Sigma) / G'PG.

An update by the sign of the gradient gains <sign, G> a step, |G|_1 at best, and noise of |sigma|_1 / sqrt(B) stands
against it, sigma being the deviation of every entry: the l1 scale is (|sigma|_1 / |G|_1)^2. No estimate of |G|_1 is
without bias. <sign(the rest of the batch), one small batch> is, for what the sign of the rest gains, and that takes its
place: it comes to |G|_1 as the signs come right. sigma is taken from the absolute difference between one small batch
and the mean of the rest, normal deviations assumed: E|difference| = sqrt(2 / pi) sigma sqrt(1 / b + 1 / (B - b)).
"""

import math
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Adamax, Optimizer

_MOMENTS = ("max_exp_avg_sq", "exp_avg_sq")


class Geometry:
    """By how much the squares of a gradient's entries count: all alike, or as an optimizer's second moments say."""

    def __init__(self, given: Optimizer | str | None) -> None:
        if not (given is None or given == "l1" or isinstance(given, Optimizer)):
            raise ValueError(f"`geometry` must be None, an optimizer of the Adam family or 'l1', got {given!r}.")
        self._optimizer = given if isinstance(given, Optimizer) else None
        self._groups: dict[Tensor, dict[str, Any]] = {}
        if self._optimizer is not None:
            groups = self._optimizer.param_groups
            if not all("betas" in group and "eps" in group for group in groups) or _has_other_moments(self._optimizer):
                raise ValueError(f"`geometry` must have second moments, as Adam has, got {type(given).__name__}.")
            self._groups = {own: group for group in self._optimizer.param_groups for own in group["params"]}
        self.name = "plain" if given is None else "l1" if self._optimizer is None else "preconditioned"
        self._found: dict[nn.Parameter, Tensor | None] = {}

    def holds(self, parameter: nn.Parameter) -> bool:
        """Whether the parameter can have weights."""
        return self._optimizer is None or parameter in self._groups

    def is_ready(self, parameters: Iterable[nn.Parameter]) -> bool:
        """Whether those have weights: before its first step, an optimizer has no second moments."""
        return self._optimizer is None or all(self.weights(parameter) is not None for parameter in parameters)

    def weights(self, parameter: nn.Parameter) -> Tensor | None:
        """1 / (sqrt(v) + eps) as the optimizer has it before its next step; None: all entries count alike."""
        if self._optimizer is not None and parameter not in self._found:
            self._found[parameter] = self._second_moments(self._optimizer, parameter)
        return self._found.get(parameter)

    def _second_moments(self, optimizer: Optimizer, parameter: nn.Parameter) -> Tensor | None:
        state, group = optimizer.state.get(parameter, {}), self._groups[parameter]
        moments = next((state[name] for name in _MOMENTS if name in state), None)
        if moments is None:
            return None
        correction = 1 - group["betas"][1] ** float(state["step"])
        weights: Tensor = 1 / ((moments / correction).sqrt() + group["eps"])
        return weights.to(torch.promote_types(weights.dtype, torch.float32))

    def squared(self, parameter: nn.Parameter, gradient: Tensor) -> Tensor:
        """The sum of squares of a gradient, a tensor without dimensions, in single precision at least."""
        values = gradient.to(torch.promote_types(gradient.dtype, torch.float32))
        weights = self.weights(parameter)
        if weights is not None:
            return (values * weights * values).sum()
        # Row by row: one sum over millions of entries is off by 1e-4 in single precision.
        norms: Tensor = torch.linalg.vector_norm(values.flatten(1) if values.ndim > 1 else values, dim=-1)
        return norms.square().sum()

    def forget(self) -> None:
        """The optimizer is about to step."""
        self._found.clear()


def _has_other_moments(optimizer: Optimizer) -> bool:
    """Adamax has the largest gradient in their place; others show by what they hold once they have stepped."""
    held = [state for state in optimizer.state.values() if state]
    return isinstance(optimizer, Adamax) or any(not any(name in state for name in _MOMENTS) for state in held)


def l1_parts(
    pairs: Iterable[tuple[Tensor, Tensor]], batches: int, processes: int, small_batch: float
) -> tuple[float, float]:
    """(noise, signal) in the l1 geometry.

    Arguments:
        pairs: for every parameter, the gradient of one small batch and that of all of them.
        batches: how many small batches there are.
        processes: over how many the gradient of all is a mean; it is a sum over the passes of each.
        small_batch: how many examples each has.
    """
    rest_factor = math.sqrt(math.pi / 2 * small_batch * (batches - 1) / batches)
    noise, signal = [], []
    for one, all_together in pairs:
        one = one.to(torch.promote_types(one.dtype, torch.float32))
        rest = processes * all_together - one
        noise.append(torch.linalg.vector_norm(one - rest / (batches - 1), ord=1) * rest_factor)
        signal.append((rest.sign() * one).sum())
    return float(sum(noise)), float(sum(signal))
