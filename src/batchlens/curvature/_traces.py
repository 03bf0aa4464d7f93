"""Traces from random probes, with standard errors: as many probes as the error asked for takes."""

import math
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from batchlens._arrays import FloatArray
from batchlens.curvature._estimates import Estimate
from batchlens.curvature._lanczos import Krylov, random_signs

# Probes that say how many are needed.
PILOT = 10


def estimate_mean(draw: Callable[[], float], known: float, error: float, most: int) -> Estimate:
    """`known` plus the mean of draws, until its standard error is at most the part `error` of it all.

    In two stages (Stein 1945): a pilot says how many draws it takes, and no later look ends it early, which would
    make intervals too narrow.
    """
    draws = [draw() for _ in range(min(PILOT, most))]
    wanted = error * abs(known + float(np.mean(draws)))
    spread = float(np.std(draws, ddof=1))
    needed = math.ceil(min(most, (spread / wanted) ** 2)) if wanted > 0 else 0
    draws += [draw() for _ in range(needed - len(draws))]
    return mean_of(np.array(draws), known)


def mean_of(draws: FloatArray, known: float = 0.0) -> Estimate:
    """`known` plus the mean of draws, with its standard error."""
    error = float(np.std(draws, ddof=1)) / math.sqrt(len(draws))
    return Estimate(known + float(draws.mean()), error, len(draws) - 1)


def trace(
    form: Callable[[Tensor], float], found: Krylov, error: float, most: int, generator: torch.Generator
) -> Estimate:
    """tr M by Hutch++ (Meyer et al. 2021), whose sketch is a Krylov space that is there already.

    What Q holds is known, tr Q^T M Q; the rest is the mean of v^T M v over v = (I - Q Q^T) z with random signs z.
    """
    basis = found.basis

    def draw() -> float:
        signs = random_signs(basis.shape[1], basis, generator)
        for _ in range(2):
            signs = signs - (basis @ signs) @ basis
        return form(signs)

    known = float(found.values.sum())
    if len(basis) == basis.shape[1]:  # nothing is left
        return Estimate(known, 0.0)
    return estimate_mean(draw, known, error, most)
