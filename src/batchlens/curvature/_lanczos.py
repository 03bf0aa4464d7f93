"""Lanczos with full reorthogonalisation: top eigenvalues with a residual bound, and the density by quadrature."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from scipy.linalg import eigh_tridiagonal
from torch import Tensor

from batchlens._arrays import FloatArray

Product = Callable[[Tensor], Tensor]
# Products before which a top eigenvalue is not believed: a start with little of its vector looks converged early.
_FEWEST_PRODUCTS = 8


@dataclass(frozen=True)
class Krylov:
    """An orthonormal basis Q in which the matrix is tridiagonal, Q^T M Q, and what leads out of it.

    `values` are the Ritz values, ascending, `vectors` the eigenvectors of the small matrix in its columns.
    """

    basis: Tensor  # (vectors, parameters)
    values: FloatArray
    vectors: FloatArray
    remainder: float

    @property
    def bounds(self) -> FloatArray:
        """How far each Ritz value is from an eigenvalue at most: the residual, with what rounding adds to it."""
        rounding = 10 * torch.finfo(self.basis.dtype).eps * np.abs(self.values).max()
        bounds: FloatArray = np.abs(self.remainder * self.vectors[-1]) + rounding
        return bounds

    def ritz_vector(self, number: int) -> Tensor:
        """The unit vector of a Ritz value."""
        vector = torch.as_tensor(self.vectors[:, number], dtype=self.basis.dtype, device=self.basis.device)
        return vector @ self.basis


def krylov(product: Product, start: Tensor, most: int, tolerance: float = 0.0) -> Krylov:
    """Up to `most` products, fewer where the residual of the largest Ritz value falls below `tolerance` times it."""
    basis = start.new_empty(min(most, len(start)), len(start))
    basis[0] = start / start.norm()
    diagonal: list[float] = []
    beside: list[float] = []
    while True:
        last = len(diagonal)
        image = product(basis[last])
        if not bool(image.isfinite().all()):
            raise ValueError("`model` must have a finite curvature on `data`, got one that is not.")
        diagonal.append(float(basis[last] @ image))
        for _ in range(2):  # twice is enough (Parlett)
            image = image - (basis[: last + 1] @ image) @ basis[: last + 1]
        beside.append(float(image.norm()))
        spanned = beside[-1] <= 10 * torch.finfo(start.dtype).eps * max(map(abs, (*diagonal, *beside)))
        last_one = spanned or last + 1 == len(basis)
        if last_one or (tolerance > 0 and last + 1 >= _FEWEST_PRODUCTS):
            found = _diagonalise(basis[: last + 1], diagonal, beside)
            if last_one or found.bounds[-1] <= tolerance * found.values[-1]:
                return found
        basis[last + 1] = image / beside[-1]


def _diagonalise(basis: Tensor, diagonal: list[float], beside: list[float]) -> Krylov:
    values, vectors = eigh_tridiagonal(np.array(diagonal), np.array(beside[:-1]))
    return Krylov(basis, np.asarray(values, dtype=np.float64), np.asarray(vectors, dtype=np.float64), beside[-1])


@dataclass(frozen=True)
class Quadrature:
    """What stochastic Lanczos quadrature found: for each probe, nodes and weights that add up to 1."""

    nodes: tuple[FloatArray, ...]
    weights: tuple[FloatArray, ...]
    size: int

    def per_decade(self, at: FloatArray, width: float) -> FloatArray:
        """(probes, points): eigenvalues per decade around each point, under a Gaussian window of `width` decades."""
        probes = zip(self.nodes, self.weights, strict=True)
        return np.array([self.size * weights @ window(nodes, at, width) for nodes, weights in probes])


def window(values: FloatArray, at: FloatArray, width: float) -> FloatArray:
    """(values, points): a Gaussian window in log10 around each point; what is not positive is in none."""
    distances = np.log10(np.maximum(values, 1e-300))[:, None] - np.log10(at)[None, :]
    heights: FloatArray = np.exp(-0.5 * (distances / width) ** 2) / (width * math.sqrt(2 * math.pi))
    return heights


def quadrature(product: Product, like: Tensor, probes: int, steps: int, generator: torch.Generator) -> Quadrature:
    """Lanczos from several random starts; the squared first entries of the small eigenvectors are the weights."""
    nodes, weights = [], []
    for _ in range(probes):
        found = krylov(product, random_vector(like, generator), steps)
        nodes.append(found.values)
        weights.append(found.vectors[0] ** 2)
    return Quadrature(tuple(nodes), tuple(weights), len(like))


def random_vector(like: Tensor, generator: torch.Generator) -> Tensor:
    """Standard normal entries, the same on every device."""
    return torch.randn(len(like), generator=generator, dtype=torch.float64).to(like)


def random_signs(count: int, like: Tensor, generator: torch.Generator) -> Tensor:
    """Entries of 1 and -1."""
    return (2.0 * torch.randint(2, (count,), generator=generator) - 1).to(like)
