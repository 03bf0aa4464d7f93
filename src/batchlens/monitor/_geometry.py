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

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

SECOND_MOMENTS = ("max_exp_avg_sq", "exp_avg_sq")


def squared(values: Tensor, weights: Tensor | None) -> Tensor:
    """Sum of squares, each entry weighted, in single precision at least; a tensor without dimensions."""
    values = values.to(torch.promote_types(values.dtype, torch.float32))
    if weights is not None:
        return (values * weights * values).sum()
    # Row by row: one sum over millions of entries is off by 1e-4 in single precision.
    norms: Tensor = torch.linalg.vector_norm(values.flatten(1) if values.ndim > 1 else values, dim=-1)
    return norms.square().sum()


def second_moments(optimizer: Optimizer, parameter: nn.Parameter) -> Tensor | None:
    """1 / (sqrt(v) + eps) as the optimizer has it before its next step; None before its first."""
    state = optimizer.state.get(parameter, {})
    moments = next((state[name] for name in SECOND_MOMENTS if name in state), None)
    if moments is None:
        return None
    group = next(group for group in optimizer.param_groups if any(parameter is own for own in group["params"]))
    correction = 1 - group["betas"][1] ** float(state["step"])
    weights: Tensor = 1 / ((moments / correction).sqrt() + group["eps"])
    return weights


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
