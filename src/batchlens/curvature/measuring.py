"""Measuring one set of weights: everything that a `Moment` holds."""

import math
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import numpy as np
import torch
from scipy import stats
from torch import Tensor, nn

from batchlens._arrays import FloatArray
from batchlens._checks import require_instance
from batchlens.curvature import _products, _spectra
from batchlens.curvature._kronecker import KroneckerFigure, fisher_of, kronecker_figure
from batchlens.curvature._lanczos import Krylov, Product, krylov, quadrature, random_signs, random_vector
from batchlens.curvature._noise import noise_of
from batchlens.curvature._objective import Objective
from batchlens.curvature._reading import (
    Plan,
    Progress,
    check_plan,
    read_data,
    read_loss,
    require_measurable,
    trained_parameters,
)
from batchlens.curvature._traces import estimate_mean, mean_of, trace
from batchlens.curvature.measurement import DensityPoint, Estimate, Measurement, Moment, Ratio
from batchlens.monitor._estimator import fieller
from batchlens.training._arguments import versions

__all__ = ["measure"]

# The largest eigenvalue is taken when its residual is below this part of it, or after this many products; on halves of
# the examples, which are to differ by less than a third, a rough one will do.
_TOLERANCE, _MOST_PRODUCTS = 0.01, 60
_ROUGH_TOLERANCE, _ROUGH_PRODUCTS = 0.05, 15
# Further eigenvalues are told when their residual is below this part of them.
_TOLD = 0.05
# Probes of a trace at most: this many for an error of a tenth, and as many more as a smaller one takes.
_MOST_PROBES = 64
# Directions of large curvature in which the noise is known rather than drawn.
_KNOWN_DIRECTIONS = 8
# Of the density: Lanczos steps of a probe, points per decade, decades below the largest eigenvalue (to tell apart what
# is further down takes more steps), width of the window.
_DENSITY_STEPS, _DENSITY_POINTS, _DENSITY_DECADES, _DENSITY_WIDTH = 40, 8, 3, 0.2


def measure(
    model: nn.Module,
    data: "tuple[Tensor, Tensor] | Iterable[tuple[Tensor, Tensor]]",
    loss: str | Callable[[Tensor, Tensor], Tensor] = "cross_entropy",
    *,
    examples: int | None = None,
    chunk_size: int = 256,
    hessian: bool = False,
    error: float = 0.1,
    density_probes: int = 0,
    step: int = 0,
    seed: int = 0,
    progress: Progress | None = None,
) -> Measurement:
    """What do curvature and gradient noise of a model look like on these data? Top eigenvalue, traces, noise scales.

    Arguments:
        model: in evaluation mode, if that makes a difference; its weights are left as they are.
        data: inputs and targets, two examples at least; or an iterable of such pairs, as a DataLoader is.
        loss: "cross_entropy" (targets are classes; of sequences the mean over positions), "squared_error" (half the
            squared distance), or a function from outputs and targets to the loss of each example.
        examples: how many of the data are used at most; all by default.
        chunk_size: examples that go through the model at a time; it bounds memory, not the result.
        hessian: whether the largest eigenvalue of the Hessian is found too; all else is of the Gauss-Newton matrix.
        error: that traces from random probes may have, as a part of them.
        density_probes: of the density of eigenvalues, which takes 40 products each; none by default.
        step: of the run, to tell moments apart.
        seed: of probes and starts.
        progress: is told how many parts are done, of how many, and which comes next.

    >>> import batchlens as bl
    >>> import torch
    >>> inputs, targets = torch.eye(4), torch.tensor([0, 1, 0, 1])
    >>> model = torch.nn.Linear(4, 2, bias=False)
    >>> _ = torch.nn.init.zeros_(model.weight)
    >>> round(bl.measure(model, (inputs, targets)).moments[0].top_curvature.value, 6)  # 2 classes of 1/2, 1/4 of inputs
    0.125
    """
    plan = check_plan(chunk_size, hessian, error, density_probes, step, seed)
    like = trained_parameters(require_instance("model", model, nn.Module))[0]
    inputs, targets = read_data(data, examples, like)
    objective = Objective(model, inputs, targets, read_loss(loss), chunk_size)
    require_measurable(objective)
    moment = _Measuring(objective, plan, progress or (lambda *_: None)).moment()
    return Measurement((moment,), type(model).__name__, versions=versions())


class _Measuring:
    """The parts of one measurement, in the order in which one needs the other."""

    def __init__(self, objective: Objective, plan: Plan, progress: Progress) -> None:
        self.objective, self.plan, self.progress = objective, plan, progress
        self.generator = torch.Generator().manual_seed(plan.seed)
        self.done, self.parts = 0, 6 + plan.hessian + bool(plan.density_probes)
        self.most_probes = max(_MOST_PROBES, math.ceil(_MOST_PROBES * (0.1 / plan.error) ** 2))

    def moment(self) -> Moment:
        """All of it."""
        started = time.perf_counter()
        objective, plan = self.objective, self.plan
        self._begin("gradient")
        gradient = _products.gradient(objective)
        _require_finite(gradient)
        self._begin("top eigenvalue")
        product = partial(_products.gauss_newton_product, objective)
        found = krylov(product, random_vector(gradient.vector, self.generator), _MOST_PRODUCTS, _TOLERANCE)
        _require_curved(found)
        top = found.ritz_vector(-1)
        self._begin("top eigenvalue on halves")
        halves = self._halves(top)
        self._begin("trace")
        curvature_trace = trace(self._mean_form, found, plan.error, self.most_probes, self.generator)
        self._begin("Kronecker eigenbasis")
        figure = kronecker_figure(objective, plan.seed)
        self._begin("noise")
        noise = self._noise(gradient.vector, figure, found)
        directions = figure.directions.by_curvature()
        return Moment(
            step=plan.step,
            loss=float(gradient.losses.double().mean()),
            examples=objective.examples,
            parameters=objective.size,
            positions=_positions(objective),
            top_curvature=Estimate(float(found.values[-1]), self._spread(top)),
            top_residual=float(found.bounds[-1]),
            top_halves=halves,
            top_eigenvalues=_told(found),
            hessian_top=self._hessian_top(top) if plan.hessian else None,
            curvature_trace=curvature_trace,
            **noise,
            spectrum=_spectra.levels(directions),
            scatter=_spectra.scatter(directions),
            decades=_spectra.decades(directions.curvature),
            comparison=_spectra.compare(directions.curvature, directions.variance),
            density=self._density(float(found.values[-1])),
            left_out=dict(figure.left_out),
            seconds=time.perf_counter() - started,
        )

    def _begin(self, what: str) -> None:
        self.progress(self.done, self.parts, what)
        self.done += 1

    def _mean_form(self, vector: Tensor) -> float:
        """v^T F v."""
        return float(_products.gauss_newton_form(self.objective, vector).double().mean())

    def _spread(self, top: Tensor) -> float:
        """Standard error of the largest eigenvalue: each example moves it by v^T F_n v."""
        each = _products.gauss_newton_form(self.objective, top).double()
        return float(each.std()) / math.sqrt(len(each))

    def _halves(self, top: Tensor) -> tuple[float, ...]:
        """The largest eigenvalue on either half."""
        if self.objective.examples < 4:
            return ()
        products = (partial(_products.gauss_newton_product, self.objective.half(first)) for first in (True, False))
        return tuple(self._near(product, top, _ROUGH_PRODUCTS, _ROUGH_TOLERANCE) for product in products)

    def _near(self, product: Product, vector: Tensor, most: int, tolerance: float) -> float:
        """The largest eigenvalue of a matrix like another, whose vector is known: Lanczos starts somewhat beside it."""
        aside = random_vector(vector, self.generator)
        return float(krylov(product, vector + 0.3 * aside / aside.norm(), most, tolerance).values[-1])

    def _hessian_top(self, top: Tensor) -> float:
        """The largest eigenvalue of the Hessian, which is near that of the Gauss-Newton matrix."""
        self._begin("top eigenvalue of the Hessian")
        return self._near(partial(_products.hessian_product, self.objective), top, _MOST_PRODUCTS, _TOLERANCE)

    def _noise(self, mean: Tensor, figure: KroneckerFigure, found: Krylov) -> dict[str, Any]:
        """Everything about the gradients' covariance."""
        objective = self.objective
        slopes = _doubles(_products.slopes(objective, mean))
        if not (np.isfinite(slopes).all() and bool(figure.squared_norms.isfinite().all())):
            raise ValueError("`model` must have gradients of finite variance on `data`, got some that are too large.")
        distances, probe_error = self._squared_distances(mean, figure)
        noise = noise_of(distances, slopes, probe_error**2)
        quantile = float(stats.t.ppf(0.95, objective.examples - 1))
        return {
            "gradient_variance": Estimate(noise.variance, math.sqrt(noise.errors[0, 0])),
            "squared_gradient": Estimate(noise.squared_gradient, math.sqrt(noise.errors[1, 1])),
            "noise_scale": _ratio(noise.variance, noise.squared_gradient, noise.errors, quantile),
            "curvature_noise_scale": self._curvature_noise_scale(mean, found, quantile),
        }

    def _squared_distances(self, mean: Tensor, figure: KroneckerFigure) -> tuple[FloatArray, float]:
        """|g_n - g|^2 of each example, and the standard error of their mean that random probes bring in.

        Exact where layers give the gradient of each example. Over the other parameters it is the mean of
        ((g_n - g) . z)^2 over random signs z.
        """
        objective = self.objective
        covered = mean * figure.covered.to(mean)
        exact = _doubles(figure.squared_norms) - 2 * _doubles(_products.slopes(objective, covered))
        exact = np.maximum(exact + float(covered.double().square().sum()), 0.0)
        rest = (~figure.covered).to(mean)
        if not bool(rest.any()):
            return exact, 0.0
        each: list[FloatArray] = []

        def draw() -> float:
            signs = random_signs(objective.size, mean, self.generator) * rest
            each.append((_doubles(_products.slopes(objective, signs)) - float(mean @ signs)) ** 2)
            return float(each[-1].mean())

        found = estimate_mean(draw, float(exact.mean()), self.plan.error, self.most_probes)
        return exact + np.mean(each, axis=0), found.standard_error

    def _curvature_noise_scale(self, mean: Tensor, found: Krylov, quantile: float) -> Ratio:
        """tr(F C) over G^T F G.

        Gradients with random signs r have E[r^T F r] = tr(F C). Most of it lies in a few directions y of large
        curvature h, where h y^T C y is known exactly: what r^T F r has beyond them is all that is random.
        """
        objective = self.objective
        numbers = range(-1, -1 - min(_KNOWN_DIRECTIONS, len(found.values)), -1)
        vectors = torch.stack([found.ritz_vector(number) for number in numbers])
        heights = torch.as_tensor(found.values[list(numbers)]).to(mean)
        away = torch.stack([_products.slopes(objective, vector) for vector in vectors]) - (vectors @ mean)[:, None]
        known = _doubles(heights @ away.square()) * (objective.examples / (objective.examples - 1))  # of each example

        def draw() -> float:
            signed = _products.signed_gradient(objective, mean, random_signs(objective.examples, mean, self.generator))
            return self._mean_form(signed) - float(heights @ (vectors @ signed).square())

        top = estimate_mean(draw, float(known.mean()), self.plan.error, self.most_probes)
        product = _products.gauss_newton_product(objective, mean)
        bottom = float(mean @ product) - top.value / objective.examples
        moved = _doubles(_products.gauss_newton_form(objective, mean) + 2 * _products.slopes(objective, product))
        errors = np.cov(np.stack([known, moved])) / objective.examples
        errors[0, 0] += top.standard_error**2
        return _ratio(top.value, bottom, errors, quantile)

    def _density(self, largest: float) -> tuple[DensityPoint, ...]:
        """Eigenvalues per decade."""
        probes = self.plan.density_probes
        if not probes or largest <= 0:
            return ()
        self._begin("density")
        objective = self.objective
        found = quadrature(
            partial(_products.gauss_newton_product, objective),
            objective.new_vector(),
            probes,
            _DENSITY_STEPS,
            self.generator,
        )
        at = largest * np.logspace(-_DENSITY_DECADES, 0, _DENSITY_DECADES * _DENSITY_POINTS + 1)
        heights = found.per_decade(at, _DENSITY_WIDTH)
        estimates = [mean_of(heights[:, point]) for point in range(len(at))]
        return tuple(
            DensityPoint(float(curvature), estimate.value, estimate.interval())
            for curvature, estimate in zip(at, estimates, strict=True)
        )


def _require_finite(gradient: _products.Gradient) -> None:
    bad = (~gradient.losses.isfinite()).nonzero().flatten()
    if len(bad):
        value, place = float(gradient.losses[bad[0]]), int(bad[0])
        raise ValueError(f"`model` must have a finite loss on `data`, got {value} for example {place}.")
    if not bool(gradient.vector.isfinite().all()):
        raise ValueError("`model` must have a finite gradient on `data`, got one that is not.")


def _require_curved(found: Krylov) -> None:
    if not found.values[-1] > 0:
        raise ValueError(
            f"`loss` must be curved upwards in the outputs on `data`, got a top curvature of {found.values[-1]:.3g}. "
            "One that is linear in them is not, nor is that of a model that is certain of every example. Where the "
            'model ends in a log-softmax, let it return what goes into that, and take "cross_entropy".'
        )


def _ratio(top: float, bottom: float, errors: FloatArray, quantile: float) -> Ratio:
    return Ratio(top / bottom if bottom > 0 else None, fieller((top, bottom), quantile**2 * errors))


def _told(found: Krylov) -> tuple[float, ...]:
    """Ritz values from the top down, until one is not sure."""
    told: list[float] = []
    for value, bound in zip(found.values[::-1], found.bounds[::-1], strict=True):
        if bound > _TOLD * value:
            break
        told.append(float(value))
    return tuple(told)


def _positions(objective: Objective) -> int:
    """Places of an example that its loss is a mean over: a part of it that large is the likelihood of each."""
    fisher = fisher_of(objective)
    return 1 if fisher is None or fisher.likelihood == "squared_error" else max(1, round(1 / fisher.scale))


def _doubles(values: Tensor) -> FloatArray:
    return values.detach().double().cpu().numpy()
