"""Every product and quadratic form against a dense matrix."""

from functools import cache
from typing import NamedTuple

import pytest
import torch
from torch import Tensor, nn

from batchlens.curvature import _products
from batchlens.curvature._kronecker import _bases, fisher_of, kronecker_figure, usable_blocks
from batchlens.curvature._objective import Objective
from batchlens.curvature._reading import read_loss
from batchlens.kfac._labels import Uniforms
from tests.curvature.dense import CASES, Dense, dense

EXAMPLES, CHUNK = 11, 4
TOLERANCE = {torch.float32: 1e-6, torch.float64: 1e-12}


class Small(NamedTuple):
    objective: Objective
    truth: Dense
    tolerance: float

    def vector(self) -> Tensor:
        return torch.randn(self.objective.size, dtype=self.objective.parameters[0].dtype)


@pytest.fixture(params=[(name, dtype) for name in CASES for dtype in TOLERANCE], ids=lambda p: f"{p[0]}-{p[1]}")
def small(request: pytest.FixtureRequest) -> Small:
    name, dtype = request.param
    return make(name, dtype)


@cache
def make(name: str, dtype: torch.dtype = torch.float64) -> Small:
    torch.manual_seed(3)
    case = CASES[name]
    model, inputs, targets = case.model().eval(), case.inputs(EXAMPLES), case.targets(EXAMPLES)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean.normal_()  # type: ignore[union-attr]
    truth = dense(model, inputs, targets, case.loss) if dtype == torch.float64 else make(name).truth
    model, inputs = model.to(dtype), inputs.to(dtype) if inputs.is_floating_point() else inputs
    targets = targets.to(dtype) if targets.is_floating_point() else targets
    return Small(Objective(model, inputs, targets, read_loss(case.loss), CHUNK), truth, TOLERANCE[dtype])


def assert_close(found: Tensor, expected: Tensor, tolerance: float) -> None:
    assert found.shape == expected.shape
    assert float((found.double() - expected).norm()) <= tolerance * float(expected.norm())


def test_gradient_and_losses(small: Small) -> None:
    found = _products.gradient(small.objective)
    assert_close(found.losses, small.truth.losses, small.tolerance)
    # A sum of gradients that nearly cancel is as exact as they are.
    gap = float((found.vector.double() - small.truth.gradients.mean(0)).norm())
    assert gap <= small.tolerance * float(small.truth.gradients.norm(dim=1).mean())


def test_gauss_newton_product(small: Small) -> None:
    vector = small.vector()
    found = _products.gauss_newton_product(small.objective, vector)
    assert_close(found, small.truth.gauss_newton.mean(0) @ vector.double(), small.tolerance)


def test_hessian_product(small: Small) -> None:
    vector = small.vector()
    found = _products.hessian_product(small.objective, vector)
    assert_close(found, small.truth.hessian.mean(0) @ vector.double(), small.tolerance)


def test_covariance_product(small: Small) -> None:
    vector, mean = small.vector(), _products.gradient(small.objective).vector
    found = _products.covariance_product(small.objective, mean, vector)
    slopes, lengths = small.truth.gradients @ vector.double(), small.truth.gradients.norm(dim=1)
    away = found.double() - small.truth.covariance @ vector.double()
    # Gradients cancel: rounding is in proportion to them, not to what is left of them.
    assert float(away.norm()) <= small.tolerance * float((slopes.abs() * lengths).mean())


def test_forms_of_each_example(small: Small) -> None:
    vector = small.vector()
    at = vector.double()
    expected = torch.einsum("i,nij,j->n", at, small.truth.gauss_newton, at)
    assert_close(_products.gauss_newton_form(small.objective, vector), expected, small.tolerance)
    assert_close(_products.slopes(small.objective, vector), small.truth.gradients @ at, small.tolerance)


def test_gradient_with_signs(small: Small) -> None:
    mean = _products.gradient(small.objective).vector
    signs = (2.0 * torch.randint(2, (EXAMPLES,)) - 1).to(mean)
    away = small.truth.gradients - small.truth.gradients.mean(0)
    expected = signs.double() @ away / (EXAMPLES - 1) ** 0.5
    assert_close(_products.signed_gradient(small.objective, mean, signs), expected, 3 * small.tolerance)


def test_gradients_with_all_signs_have_the_covariance() -> None:
    """Over all 2^N signs r r^T has mean C: here over the N + 1 rows of a Hadamard matrix, which do as well."""
    small = make("dense")
    objective = small.objective.half(True)  # 6 examples
    inputs = objective.inputs[:4], objective.targets[:4]
    objective = Objective(objective.model, *inputs, objective.losses, CHUNK)
    truth = dense(objective.model, *inputs, "cross_entropy")
    mean = _products.gradient(objective).vector
    two = torch.tensor([[1.0, 1.0], [1.0, -1.0]], dtype=torch.float64)
    rows = [_products.signed_gradient(objective, mean, signs) for signs in torch.kron(two, two)]
    assert_close(sum(torch.outer(row, row) for row in rows) / 4, truth.covariance, 1e-12)  # type: ignore[arg-type]


def test_the_chunk_does_not_matter(small: Small) -> None:
    vector = small.vector()
    whole = Objective(
        small.objective.model, small.objective.inputs, small.objective.targets, small.objective.losses, EXAMPLES
    )
    found = _products.gauss_newton_product(whole, vector)
    assert_close(_products.gauss_newton_product(small.objective, vector), found.double(), small.tolerance)


# The Kronecker eigenbasis ------------------------------------------------------------------------


def directions_of(objective: Objective) -> list[Tensor]:
    """For every block the directions of its basis as rows, in the order of the figure."""
    blocks, _ = usable_blocks(objective)
    fisher = fisher_of(objective)
    assert fisher is not None
    places = dict(zip(objective.parameters, range(len(objective.parameters)), strict=True))
    found = []
    for block, basis in _bases(objective, blocks, fisher, Uniforms(0)).items():
        rows, columns = len(block.weight), block.weight[0].numel() + (block.bias is not None)
        left = torch.eye(rows).to(block.weight) if basis.rows is None else basis.rows
        right = torch.eye(columns).to(block.weight) if basis.columns is None else basis.columns
        vectors = []
        for i in range(rows):
            for j in range(columns):
                parts = [torch.zeros_like(weight) for weight in objective.parameters]
                for parameter, part in zip(
                    block.parameters, block.split(torch.outer(left[:, i], right[:, j])), strict=True
                ):
                    parts[places[parameter]] = part
                vectors.append(torch.cat([part.flatten() for part in parts]))
        found.append(torch.stack(vectors).double().detach())
    return found


def test_kronecker_directions_against_dense_matrices(small: Small) -> None:
    figure = kronecker_figure(small.objective, seed=0)
    vectors = torch.cat(directions_of(small.objective))
    gram = vectors @ vectors.T
    assert float((gram - torch.eye(len(gram))).abs().max()) < 1e-5  # as exact as eigenvectors are in float32
    for found, matrix in (
        (figure.directions.curvature, small.truth.gauss_newton.mean(0)),
        (figure.directions.variance, small.truth.covariance),
        (figure.directions.second_moment, (small.truth.gradients.T @ small.truth.gradients) / EXAMPLES),
    ):
        expected = torch.einsum("ki,ij,kj->k", vectors, matrix, vectors)
        assert_close(torch.as_tensor(found), expected, 2 * small.tolerance)


def test_squared_norms_of_each_example_are_exact_where_layers_are_known(small: Small) -> None:
    figure = kronecker_figure(small.objective, seed=0)
    expected = small.truth.gradients[:, figure.covered].square().sum(1)
    assert_close(figure.squared_norms, expected, 2 * small.tolerance)


@pytest.mark.parametrize(
    ("name", "left_out"),
    [
        ("dense", {}),
        ("normalised", {"1.weight", "1.bias"}),
        ("tied", {"norm.weight", "norm.bias"}),
        ("words", {}),
        ("pictures", {}),
        ("one value", {}),
        ("partly without gradients", {"features.weight", "features.bias"}),
        ("without dual numbers", {}),
    ],
)
def test_what_the_basis_leaves_out_is_named(name: str, left_out: set[str]) -> None:
    small = make(name)
    figure = kronecker_figure(small.objective, seed=0)
    assert set(figure.left_out) == set(left_out)
    missing = [
        weight.numel()
        for name, weight in zip(small.objective.names, small.objective.parameters, strict=True)
        if name in left_out
    ]
    assert int((~figure.covered).sum()) == sum(missing)


def test_directions_add_up_to_the_traces() -> None:
    small = make("dense")
    directions = kronecker_figure(small.objective, seed=0).directions
    assert directions.curvature.sum() == pytest.approx(float(small.truth.gauss_newton.mean(0).trace()), rel=1e-12)
    assert directions.variance.sum() == pytest.approx(float(small.truth.covariance.trace()), rel=1e-12)


def test_drawn_labels_give_the_same_curvature_within_their_error(monkeypatch: pytest.MonkeyPatch) -> None:
    small = make("tied")
    exact = kronecker_figure(small.objective, seed=0).directions.curvature
    monkeypatch.setattr("batchlens.curvature._kronecker._EXACT_OUTPUTS", 0)
    monkeypatch.setattr("batchlens.curvature._kronecker._DRAWS", 300)
    drawn = kronecker_figure(small.objective, seed=0).directions.curvature
    assert drawn.sum() == pytest.approx(exact.sum(), rel=0.05)


class Beside(nn.Module):
    """Uses the weight of a layer once by calling it and once beside it."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.output = nn.Linear(3, 3), nn.Linear(3, 3)

    def forward(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = self.output(torch.tanh(self.layer(inputs))) + inputs @ self.layer.weight
        return outputs


class TimeFirst(nn.Module):
    """Has the examples in the second dimension of a layer's input."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.output = nn.Linear(3, 3), nn.Linear(3, 3)

    def forward(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = self.output(self.layer(inputs.transpose(0, 1)).mean(0))
        return outputs


class Twins(nn.Module):
    """Gives a layer twice as many examples as there are."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.output = nn.Linear(3, 3), nn.Linear(3, 3)

    def forward(self, inputs: Tensor) -> Tensor:
        one, other = self.layer(torch.cat([inputs[:, 0], inputs[:, 1]])).chunk(2)
        outputs: Tensor = self.output(one * other)
        return outputs


@pytest.mark.parametrize(
    ("model", "shape", "reason"),
    [
        (Beside, (3,), "its weight is used outside a call of its layer"),
        (TimeFirst, (2, 3), "its layer does not have the examples in its first dimension"),
        (TimeFirst, (7, 3), "its layer does not have the examples in its first dimension"),  # as many as are checked
        (Twins, (2, 3), "its layer does not have the examples in its first dimension"),
    ],
)
def test_a_layer_that_does_not_tell_examples_apart_is_left_out(
    model: type[nn.Module], shape: tuple[int, ...], reason: str
) -> None:
    torch.manual_seed(0)
    inputs, targets = torch.randn(EXAMPLES, *shape), torch.randint(3, (EXAMPLES,))
    objective = Objective(model(), inputs, targets, read_loss("cross_entropy"), CHUNK)
    figure = kronecker_figure(objective, seed=0)
    assert figure.left_out == {"layer.weight": reason, "layer.bias": reason}
    assert list(figure.directions.layers) == ["output"]


def test_a_loss_without_a_known_likelihood_has_no_kronecker_figure() -> None:
    small = make("values")
    objective = Objective(
        small.objective.model,
        small.objective.inputs,
        small.objective.targets,
        lambda outputs, targets: (outputs - targets).pow(4).sum(1),
        CHUNK,
    )
    figure = kronecker_figure(objective, seed=0)
    assert set(figure.left_out) == set(objective.names)
    assert len(figure.directions.curvature) == 0


def test_cross_entropy_is_recognised_where_the_model_is_certain_and_where_targets_are_chances() -> None:
    torch.manual_seed(0)
    model, inputs = nn.Linear(3, 3), torch.randn(EXAMPLES, 3)
    with torch.no_grad():
        model.weight *= 1e5
    chances = model(inputs).detach().softmax(1)
    for targets, losses in (
        (chances.argmax(1), read_loss("cross_entropy")),
        (chances, nn.CrossEntropyLoss(reduction="none")),
    ):
        fisher = fisher_of(Objective(model, inputs, targets, losses, CHUNK))
        assert fisher is not None
        assert fisher.likelihood == "cross_entropy"
        assert fisher.scale == pytest.approx(1.0, rel=1e-5)


def test_a_scaled_likelihood_is_recognised() -> None:
    small = make("values")
    losses = small.objective.losses
    scaled = Objective(
        small.objective.model,
        small.objective.inputs,
        small.objective.targets,
        lambda outputs, targets: 3 * losses(outputs, targets),
        CHUNK,
    )
    fisher = fisher_of(scaled)
    assert fisher is not None
    assert fisher.scale == pytest.approx(3.0)
