"""Inverses of damped factors, and their products with gradients.

An inverse is a vector (of a diagonal factor), a matrix, or, for a factor of many columns, of low rank: the factor's
leading eigenvectors U with eigenvalues l, and for all other directions one eigenvalue r, the mean of the rest:

    (factor + damping I)^-1 ~ floor I + U diag(scales) U^T      floor = 1 / (r + damping)
                                                                scales = 1 / (l + damping) - floor

For n columns, k eigenvectors and a gradient of m rows the product takes 4 m n k operations and not 2 m n^2.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

RAISED_DAMPING = 10.0
_COLUMNS_TO_RANK = 4  # a factor has at least so many columns an eigenvector, or its inverse is a matrix
Inverse = Tensor | dict[str, Tensor]


def invert(factor: Tensor, damping: float, rank: int | None, previous: Inverse | None = None) -> Inverse | None:
    """(factor + damping I)^-1, of `rank` if the factor is large; None if it is not positive definite."""
    if rank is None or not _is_of_low_rank(factor.shape, rank):
        return damped_inverse(factor, damping)
    start = previous["basis"] if isinstance(previous, dict) else None
    return low_rank_inverse(factor, damping, rank, start)


def inverse_entries(shape: Sequence[int], rank: int | None) -> int:
    """How many numbers the inverse of a factor of that shape has."""
    low = rank is not None and _is_of_low_rank(shape, rank)
    return shape[0] * rank + rank + 1 if low and rank is not None else math.prod(shape)


def _is_of_low_rank(shape: Sequence[int], rank: int) -> bool:
    return len(shape) == 2 and shape[0] >= _COLUMNS_TO_RANK * rank


def low_rank_inverse(factor: Tensor, damping: float, rank: int, start: Tensor | None) -> dict[str, Tensor] | None:
    """The inverse from leading eigenvectors, found by one step of subspace iteration from `start`."""
    device = factor.device
    factor = _where_decomposed(factor)
    try:
        basis = _subspace(factor, rank, start)
        values, rotation = torch.linalg.eigh(basis.T @ (factor @ basis))
    except torch.linalg.LinAlgError:  # type: ignore[attr-defined]
        return None
    values = values.clamp_min(0.0)
    rest = (factor.trace() - values.sum()).clamp_min(0.0) / (len(factor) - rank)
    floor = 1 / (rest + damping)
    scales = 1 / (values + damping) - floor
    if not bool(scales.isfinite().all()):
        return None
    return {"basis": (basis @ rotation).to(device), "scales": scales.to(device), "floor": floor.to(device)}


def _subspace(factor: Tensor, rank: int, start: Tensor | None) -> Tensor:
    """An orthonormal basis closer to the leading eigenvectors than `start` is."""
    if start is None or start.shape != (len(factor), rank):
        random = torch.Generator().manual_seed(0)
        drawn = torch.randn(len(factor), rank, generator=random, dtype=factor.dtype)
        start = torch.linalg.qr(factor @ drawn.to(factor.device)).Q
    basis: Tensor = torch.linalg.qr(factor @ start.to(factor.device)).Q
    return basis


def _where_decomposed(factor: Tensor) -> Tensor:
    return factor.cpu() if factor.device.type == "mps" else factor  # mps lacks most decompositions


def multiply_left(inverse: Inverse, gradient: Tensor) -> Tensor:
    """inverse @ gradient"""
    if isinstance(inverse, dict):
        basis, scales = inverse["basis"], inverse["scales"].unsqueeze(1)
        return torch.addmm(gradient, basis, scales * (basis.T @ gradient), beta=float(inverse["floor"]))
    return inverse.unsqueeze(1) * gradient if inverse.ndim == 1 else inverse @ gradient


def multiply_right(gradient: Tensor, inverse: Inverse) -> Tensor:
    """gradient @ inverse"""
    if isinstance(inverse, dict):
        basis, scales = inverse["basis"], inverse["scales"]
        return torch.addmm(gradient, (gradient @ basis) * scales, basis.T, beta=float(inverse["floor"]))
    return gradient * inverse if inverse.ndim == 1 else gradient @ inverse


def damped_inverse(factor: Tensor, damping: float) -> Tensor | None:
    """(factor + damping I)^-1, or None if the sum is not positive definite to working precision.

    >>> damped_inverse(torch.tensor([1.0, 3.0]), 1.0)  # a diagonal
    tensor([0.5000, 0.2500])
    """
    if factor.ndim == 1:
        damped = factor + damping
        return None if not bool((damped > 0).all()) else damped.reciprocal()
    damped = _where_decomposed(factor).clone()
    damped.diagonal().add_(damping)
    root, failed = torch.linalg.cholesky_ex(damped)
    if bool(failed):
        return None
    inverse = torch.cholesky_inverse(root)
    return inverse.to(factor.device) if bool(inverse.isfinite().all()) else None


def damping_ratio(inputs: Tensor, outputs: Tensor) -> float:
    """pi of Martens and Grosse 2015, section 6.3, with the trace norm; 1 for a layer without curvature."""
    means = [float(diagonal(factor).mean()) for factor in (inputs, outputs)]
    return math.sqrt(means[0] / means[1]) if min(means) > 0 else 1.0


def diagonal(factor: Tensor) -> Tensor:
    return factor if factor.ndim == 1 else factor.diagonal()


def spectrum(factor: Tensor) -> Tensor:
    """Eigenvalues, ascending."""
    values = factor.sort().values if factor.ndim == 1 else torch.linalg.eigvalsh(factor)
    return values.clamp_min_(0.0)  # what rounding makes negative is 0
