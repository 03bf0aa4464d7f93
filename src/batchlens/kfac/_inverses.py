"""Inverses of damped factors."""

import math

import torch
from torch import Tensor

RAISED_DAMPING = 10.0


def damped_inverse(factor: Tensor, damping: float) -> Tensor | None:
    """(factor + damping I)^-1, or None if the sum is not positive definite to working precision.

    >>> damped_inverse(torch.tensor([1.0, 3.0]), 1.0)  # a diagonal
    tensor([0.5000, 0.2500])
    """
    if factor.ndim == 1:
        damped = factor + damping
        return None if not bool((damped > 0).all()) else damped.reciprocal()
    damped = factor.cpu() if factor.device.type == "mps" else factor.clone()  # mps has no cholesky_inverse
    damped.diagonal().add_(damping)
    root, failed = torch.linalg.cholesky_ex(damped)
    if bool(failed):
        return None
    inverse = torch.cholesky_inverse(root)
    return inverse.to(factor.device) if bool(inverse.isfinite().all()) else None


def damping_ratio(inputs: Tensor, outputs: Tensor) -> float:
    """pi of Martens and Grosse 2015, section 6.3, with the trace norm; 1 for a layer without curvature."""
    means = [float((factor if factor.ndim == 1 else factor.diagonal()).mean()) for factor in (inputs, outputs)]
    return math.sqrt(means[0] / means[1]) if min(means) > 0 else 1.0


def spectrum(factor: Tensor) -> Tensor:
    """Eigenvalues, ascending."""
    values = factor.sort().values if factor.ndim == 1 else torch.linalg.eigvalsh(factor)
    return values.clamp_min_(0.0)  # what rounding makes negative is 0
