"""Against an implementation from outside: curvlinops, where it is installed.

    pip install --no-deps curvlinops-for-pytorch einops einconv tqdm \
        backpack-for-pytorch unfoldNd linear_operator jaxtyping wadler_lindig
    pytest -m outside tests/curvature
"""

from functools import partial
from typing import Any

import pytest
import torch
from scipy.sparse.linalg import eigsh
from torch import Tensor, nn

from batchlens.curvature import _products
from batchlens.curvature._lanczos import krylov, random_vector
from tests.curvature.dense import CASES
from tests.curvature.test_products import Small, make

pytestmark = pytest.mark.outside
# Their losses see one position per example, or none, and they differentiate forward.
NAMES = [
    name
    for name in CASES
    if name not in ("positions", "tied", "pictures", "one value", "partly without gradients", "without dual numbers")
]


def operator_of(kind: str, small: Small, name: str) -> Any:
    curvlinops = pytest.importorskip("curvlinops")
    objective = small.objective
    data = list(objective.chunks())
    if CASES[name].loss == "cross_entropy":
        loss: nn.Module = nn.CrossEntropyLoss(reduction="sum")
    else:
        loss = nn.MSELoss(reduction="sum")  # twice ours
    return getattr(curvlinops, kind)(objective.model, loss, objective.parameters, data, check_deterministic=False)


def scale_of(small: Small, name: str) -> float:
    return small.objective.examples * (1.0 if CASES[name].loss == "cross_entropy" else 2.0)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("kind", "product"),
    [
        ("GGNLinearOperator", _products.gauss_newton_product),
        ("HessianLinearOperator", _products.hessian_product),
    ],
)
def test_products_agree(kind: str, product: Any, name: str) -> None:
    small = make(name)
    theirs = operator_of(kind, small, name)
    vector = small.vector()
    expected: Tensor = theirs @ vector / scale_of(small, name)
    gap = float((product(small.objective, vector) - expected).norm() / expected.norm())
    print(f"{kind}, {name}: {gap:.1e}")
    assert gap < 1e-12


@pytest.mark.parametrize("name", NAMES)
def test_top_eigenvalues_agree(name: str) -> None:
    small = make(name)
    theirs = operator_of("GGNLinearOperator", small, name).to_scipy()
    expected = float(eigsh(theirs, k=1, which="LA", return_eigenvectors=False)[0]) / scale_of(small, name)
    start = random_vector(small.objective.new_vector(), torch.Generator().manual_seed(0))
    found = krylov(partial(_products.gauss_newton_product, small.objective), start, 60, 1e-8)
    print(f"{name}: {abs(found.values[-1] / expected - 1):.1e}")
    assert found.values[-1] == pytest.approx(expected, rel=1e-9)
