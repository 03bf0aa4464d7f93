"""References whose truth is known: runs of a noisy quadratic itself, with what a measurement of it would say."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from batchlens.curvature.measurement import Estimate, Measurement, Moment, Ratio
from batchlens.prediction._model import Model, Reference

TARGET = 0.1
MODEL = Model(top=1.5, variance=7.0, curvature_exponent=0.7, loss_exponent=0.8, start=2.3, target=TARGET)


def make_reference(
    model: Model = MODEL, batch_size: int = 64, learning_rate: float = 0.7, momentum: float = 0.0, most: int = 2000
) -> Reference:
    """A run of the model to the target."""
    blank = Reference((0, 1), (model.start, model.start), batch_size, learning_rate, momentum, TARGET)
    steps = sorted({int(step) for step in np.geomspace(1, most, 160)})
    losses = model.losses(blank, steps)
    last = next(place for place, loss in enumerate(losses) if loss <= TARGET)
    kept = [0, *steps[: last + 1]]
    return Reference(
        tuple(kept), (model.start, *losses[: last + 1].tolist()), batch_size, learning_rate, momentum, TARGET
    )  # fmt: skip


def make_moment(step: int, top: float, variance: float = 7.0, variance_error: float = 0.05,
                halves: Sequence[float] | None = None) -> Moment:  # fmt: skip
    return Moment(
        step=step,
        loss=TARGET,
        examples=1000,
        parameters=5000,
        positions=1,
        top_curvature=Estimate(top, 0.02 * top),
        top_residual=0.0,
        top_halves=tuple(halves or (top, top)),
        top_eigenvalues=(top,),
        hessian_top=None,
        curvature_trace=Estimate(10.0, 0.1),
        gradient_variance=Estimate(variance, variance_error * variance),
        squared_gradient=Estimate(0.1, 0.01),
        noise_scale=Ratio(70.0, (60.0, math.inf)),
        curvature_noise_scale=Ratio(90.0, None),
    )


def make_measurement(reference: Reference, top: float = 1.5, **last: Any) -> Measurement:
    """As `measure_training` gives it: late moments, the last at the target."""
    steps = reference.steps[-1]
    moments = (make_moment(int(0.9 * steps), top), make_moment(steps, top, **last))
    return Measurement(moments, "made", loss_curve=tuple(zip(reference.steps, reference.losses, strict=True)))


def make_slow_reference() -> Reference:
    """Of a run with much noise and a small learning rate, which is told as one at a large rate."""
    return make_reference(replace(MODEL, variance=400.0), learning_rate=0.02, most=20_000)
