"""The largest eigenvalue alone: where a run passes through, a fraction of a whole measurement."""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn

from batchlens.curvature._lanczos import krylov, random_vector
from batchlens.curvature._objective import Objective
from batchlens.curvature._products import gauss_newton_product
from batchlens.curvature._reading import read_loss, require_measurable

_MOST_PRODUCTS, _TOLERANCE = 40, 0.03


def top_curvature(
    model: nn.Module,
    data: tuple[Tensor, Tensor],
    loss: str | Callable[[Tensor, Tensor], Tensor],
    chunk_size: int,
    seed: int,
) -> float:
    """The largest eigenvalue of the Gauss-Newton matrix, within 3%."""
    objective = Objective(model, *data, read_loss(loss), chunk_size)
    require_measurable(objective)
    like = torch.cat([weight.detach().reshape(-1) for weight in model.parameters() if weight.requires_grad])
    start = random_vector(like, torch.Generator().manual_seed(seed))
    found = krylov(partial(gauss_newton_product, objective), start, _MOST_PRODUCTS, _TOLERANCE)
    return float(found.values[-1])
