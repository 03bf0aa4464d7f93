"""Slow, independent, obviously right answers for the noisy quadratic model.

Nothing here is clever and nothing here imports the package: these functions are what the package
is tested against. Every coordinate i has curvature h, gradient noise variance c (per example),
starting second moment s = E[theta(0)^2] and a count n. One step at batch size B is

    g   = h^-power (h theta + eps)              Var[eps] = c / B
    m   <- momentum m + g                       m(0) = 0
    theta <- theta - learning_rate m            or, with nesterov,
    theta <- theta - learning_rate (g + momentum m)                  with the new m
    avg <- averaging avg + (1 - averaging) theta                     avg(0) = theta(0)

and the risk is 1/2 sum_i n_i h_i E[avg_i^2].

* `risk_mp`: any number of steps, in as many digits as asked for.
* `risk_by_steps`, `first_hit_by_steps`, `path_by_steps`: float64 covariances, one step at a time.
* `monte_carlo_risk`: stochastic gradient descent with drawn noise.
* `monte_carlo_adamw`: AdamW on one coordinate, with drawn noise.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import mpmath
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import ArrayLike, NDArray

    Floats: TypeAlias = NDArray[np.float64]
    Matrix: TypeAlias = list[list[mpmath.mpf]]
    # (A, W): the second moments S of (theta, m, avg) go to A S A^T + W.
    MomentMap: TypeAlias = tuple[Matrix, Matrix]


@dataclass(frozen=True)
class Setting:
    """The settings of one update rule."""

    learning_rate: float
    momentum: float = 0.0
    nesterov: bool = False
    averaging: float = 0.0
    power: float = 0.0


# ---------------------------------------------------------------------------------------------
# Many digits, any number of steps
# ---------------------------------------------------------------------------------------------

GUARD_DIGITS = 40
NEGLIGIBLE = mpmath.mpf(10) ** -400  # the smallest positive float64 is 5e-324


def risk_mp(
    h: ArrayLike,
    c: ArrayLike,
    s: ArrayLike,
    n: ArrayLike,
    setting: Setting,
    batch_size: float,
    steps: int,
    digits: int = 60,
) -> tuple[mpmath.mpf, mpmath.mpf]:
    """The risk after `steps` steps, as (deterministic part, noise part), to `digits` digits.

    Arguments are taken as the exact values of the doubles given. One step is an affine map of the
    3 x 3 second moments; `steps` of them are one map, found by repeated squaring.

    Working precision: squaring rounds about 2 log2(steps) times, an error made early is multiplied
    by up to `steps`, and powers of a 3 x 3 matrix whose eigenvalues nearly meet grow like
    steps^2 |eigenvalue|^steps, so that at most steps^5 times a constant is lost. The constant
    (an amplitude caught near a zero crossing, 1 / (1 - momentum)) is not bounded beforehand.
    Hence every answer is computed twice, the second time with `GUARD_DIGITS` more digits. What
    rounding loses does not depend on the precision, so the difference of the two is the error of
    the first, and the second is better by `GUARD_DIGITS` digits. If they differ in the first
    `digits` digits, the precision is doubled and both are computed again. Parts below `NEGLIGIBLE`
    are not held to this.
    """
    if steps < 0 or steps != int(steps):
        raise ValueError(f"`steps` must be a whole number >= 0, got {steps}.")
    precision = digits + math.ceil(5 * math.log10(int(steps) + 1)) + 15
    while True:
        rough = _risk_at_precision(h, c, s, n, setting, batch_size, int(steps), precision)
        fine = _risk_at_precision(h, c, s, n, setting, batch_size, int(steps), precision + GUARD_DIGITS)
        with mpmath.workdps(precision + GUARD_DIGITS):
            tolerance = mpmath.mpf(10) ** -digits
            if all(
                abs(a - b) <= tolerance * abs(b) or max(a, b) < NEGLIGIBLE for a, b in zip(rough, fine, strict=True)
            ):
                return fine
        precision *= 2


def _risk_at_precision(
    h: ArrayLike,
    c: ArrayLike,
    s: ArrayLike,
    n: ArrayLike,
    setting: Setting,
    batch_size: float,
    steps: int,
    precision: int,
) -> tuple[mpmath.mpf, mpmath.mpf]:
    with mpmath.workdps(precision):
        deterministic = noise = mpmath.mpf(0)
        for h_i, c_i, s_i, n_i in _coordinates(h, c, s, n):
            curvature = mpmath.mpf(h_i)
            power, moments = _repeat(_one_step(curvature, setting), steps)
            # Both theta(0) and avg(0) are the starting point, and m(0) = 0.
            amplitude = power[2][0] + power[2][2]
            weight = mpmath.mpf(n_i) * curvature / 2
            deterministic += weight * amplitude**2 * mpmath.mpf(s_i)
            noise += weight * moments[2][2] * mpmath.mpf(c_i) / mpmath.mpf(batch_size)
        return deterministic, noise


def _one_step(h: mpmath.mpf, setting: Setting) -> MomentMap:
    """One step for noise of variance 1: the update, written on forms in (theta, m, avg, eps)."""

    def combine(*terms: tuple[mpmath.mpf, list[mpmath.mpf]]) -> list[mpmath.mpf]:
        return [sum((f * form[k] for f, form in terms), mpmath.mpf(0)) for k in range(4)]

    one = mpmath.mpf(1)
    alpha, beta = mpmath.mpf(setting.learning_rate), mpmath.mpf(setting.momentum)
    gamma, power = mpmath.mpf(setting.averaging), mpmath.mpf(setting.power)
    theta, m, avg, eps = ([one if k == j else mpmath.mpf(0) for k in range(4)] for j in range(4))

    scale = h**-power
    g = combine((scale * h, theta), (scale, eps))
    m = combine((beta, m), (one, g))
    if setting.nesterov:
        theta = combine((one, theta), (-alpha, g), (-alpha * beta, m))
    else:
        theta = combine((one, theta), (-alpha, m))
    avg = combine((gamma, avg), (one - gamma, theta))

    forms = [theta, m, avg]
    return [form[:3] for form in forms], [[x[3] * y[3] for y in forms] for x in forms]


def _repeat(one: MomentMap, times: int) -> MomentMap:
    """`one` applied `times` times. Powers of one map commute, so their order does not matter."""
    zero = mpmath.mpf(0)
    identity = [[mpmath.mpf(int(i == j)) for j in range(3)] for i in range(3)]
    result = (identity, [[zero] * 3 for _ in range(3)])
    square = one
    while times:
        if times % 2:
            result = _then(result, square)
        times //= 2
        if times:
            square = _then(square, square)
    return result


def _then(first: MomentMap, second: MomentMap) -> MomentMap:
    """S -> A2 (A1 S A1^T + W1) A2^T + W2."""
    (a1, w1), (a2, w2) = first, second
    carried = _product(_product(a2, w1), [list(column) for column in zip(*a2, strict=True)])
    total = [[x + y for x, y in zip(row, other, strict=True)] for row, other in zip(carried, w2, strict=True)]
    return _product(a2, a1), total


def _product(a: Matrix, b: Matrix) -> Matrix:
    return [[row[0] * b[0][j] + row[1] * b[1][j] + row[2] * b[2][j] for j in range(3)] for row in a]


def _coordinates(h: ArrayLike, c: ArrayLike, s: ArrayLike, n: ArrayLike) -> Iterator[tuple[float, float, float, float]]:
    columns = (np.atleast_1d(np.asarray(x, dtype=np.float64)).tolist() for x in (h, c, s, n))
    return zip(*columns, strict=True)


# ---------------------------------------------------------------------------------------------
# Float64, one step at a time
# ---------------------------------------------------------------------------------------------


def risk_by_steps(
    h: ArrayLike,
    c: ArrayLike,
    s: ArrayLike,
    n: ArrayLike,
    setting: Setting,
    batch_size: float,
    steps: int,
    growth: ArrayLike = 0.0,
) -> Floats:
    """The risk after 0, 1, ..., `steps` steps; a unit of loss adds `growth` to the noise c."""
    return path_by_steps(h, c, s, n, [setting], [batch_size], [steps], growth)


def path_by_steps(
    h: ArrayLike,
    c: ArrayLike,
    s: ArrayLike,
    n: ArrayLike,
    pieces: Sequence[Setting],
    batch_sizes: Sequence[float],
    lengths: Sequence[int],
    growth: ArrayLike = 0.0,
) -> Floats:
    """The risk after 0, 1, ..., sum(lengths) steps, piece k taking lengths[k] of them.

    theta, m and avg go from one piece to the next as they are: m is the raw sum of gradients and
    is not rescaled when the learning rate, or anything else, changes.
    """
    h, c, s, n = (np.atleast_1d(np.asarray(x, dtype=np.float64)) for x in (h, c, s, n))
    covariance = _start(s)
    risks = [_risk_of(h, n, covariance)]
    for setting, batch_size, length in zip(pieces, batch_sizes, lengths, strict=True):
        a, b = _matrices(h, setting)
        for _ in range(length):
            loss = np.sum(n * h * covariance[:, 0, 0]) / 2
            covariance = _advance(covariance, a, b, (c + np.asarray(growth) * loss) / batch_size)
            risks.append(_risk_of(h, n, covariance))
    return np.array(risks)


def first_hit_by_steps(
    h: ArrayLike,
    c: ArrayLike,
    s: ArrayLike,
    n: ArrayLike,
    setting: Setting,
    batch_size: float,
    target: float,
    max_steps: int,
) -> int | None:
    """The first step (0 included) with risk <= `target`; None if none of `max_steps` has it."""
    h, c, s, n = (np.atleast_1d(np.asarray(x, dtype=np.float64)) for x in (h, c, s, n))
    covariance = _start(s)
    a, b = _matrices(h, setting)
    for step in range(max_steps + 1):
        if _risk_of(h, n, covariance) <= target:
            return step
        covariance = _advance(covariance, a, b, c / batch_size)
    return None


def _matrices(h: Floats, setting: Setting) -> tuple[Floats, Floats]:
    """A (d, 3, 3) and b (d, 3) with (theta, m, avg) <- A (theta, m, avg) + b eps."""
    alpha, beta, gamma = setting.learning_rate, setting.momentum, setting.averaging
    scale = h**-setting.power
    if setting.nesterov:
        reach, carry = alpha * (1 + beta), alpha * beta**2
    else:
        reach, carry = alpha, alpha * beta
    a = np.zeros((len(h), 3, 3))
    b = np.zeros((len(h), 3))
    a[:, 0, 0] = 1 - reach * scale * h
    a[:, 0, 1] = -carry
    b[:, 0] = -reach * scale
    a[:, 1, 0] = scale * h
    a[:, 1, 1] = beta
    b[:, 1] = scale
    a[:, 2, :] = (1 - gamma) * a[:, 0, :]
    a[:, 2, 2] += gamma
    b[:, 2] = (1 - gamma) * b[:, 0]
    return a, b


def _start(s: Floats) -> Floats:
    both = np.array([1.0, 0.0, 1.0])  # theta and avg start at the same point, m at 0
    covariance: Floats = s[:, None, None] * np.outer(both, both)
    return covariance


def _advance(covariance: Floats, a: Floats, b: Floats, variance: Floats) -> Floats:
    drawn = b[:, :, None] * b[:, None, :] * variance[:, None, None]
    moved: Floats = a @ covariance @ a.transpose(0, 2, 1) + drawn
    return moved


def _risk_of(h: Floats, n: Floats, covariance: Floats) -> float:
    return float(np.sum(n * h * covariance[:, 2, 2]) / 2)


# ---------------------------------------------------------------------------------------------
# Drawn noise
# ---------------------------------------------------------------------------------------------


def monte_carlo_risk(
    h: ArrayLike,
    c: ArrayLike,
    s: ArrayLike,
    n_repeats: int,
    setting: Setting,
    batch_size: float,
    steps: int,
    seed: int,
    growth: ArrayLike = 0.0,
) -> tuple[float, float]:
    """Mean and standard error of the loss after `steps` steps over `n_repeats` simulated runs.

    Every count is 1, theta(0) ~ N(0, s) and the gradient noise is Gaussian; a unit of loss adds `growth` to its
    variance.
    """
    h, c, s = (np.atleast_1d(np.asarray(x, dtype=np.float64)) for x in (h, c, s))
    random = np.random.default_rng(seed)
    theta = np.sqrt(s) * random.standard_normal((n_repeats, len(h)))
    m = np.zeros_like(theta)
    avg = theta.copy()
    for _ in range(steps):
        loss = np.sum(h * theta**2, axis=1, keepdims=True) / 2
        eps = np.sqrt((c + np.asarray(growth) * loss) / batch_size) * random.standard_normal(theta.shape)
        g = h**-setting.power * (h * theta + eps)
        m = setting.momentum * m + g
        if setting.nesterov:
            theta = theta - setting.learning_rate * (g + setting.momentum * m)
        else:
            theta = theta - setting.learning_rate * m
        avg = setting.averaging * avg + (1 - setting.averaging) * theta
    losses = np.sum(h * avg**2, axis=1) / 2
    return float(losses.mean()), float(losses.std(ddof=1) / math.sqrt(n_repeats))


def monte_carlo_adamw(
    h: float, c: float, start: float, settings: dict[str, float], batch_size: float, n_repeats: int, seed: int
) -> float:
    """Mean of theta^2 after `settings["steps"]` steps of AdamW, as Loshchilov & Hutter (2019) write it."""
    random = np.random.default_rng(seed)
    theta, m, v = np.full(n_repeats, start), np.zeros(n_repeats), np.zeros(n_repeats)
    rate, decay, epsilon = settings["learning_rate"], settings["weight_decay"], settings["epsilon"]
    beta1, beta2 = settings["beta1"], settings["beta2"]
    for step in range(1, round(settings["steps"]) + 1):
        g = h * theta + math.sqrt(c / batch_size) * random.standard_normal(n_repeats)
        m = beta1 * m + (1 - beta1) * g
        v = beta2 * v + (1 - beta2) * g**2
        towards = m / (1 - beta1**step) / (np.sqrt(v / (1 - beta2**step)) + epsilon)
        theta = theta - rate * (towards + decay * theta)
    return float(np.mean(theta**2))


# ---------------------------------------------------------------------------------------------
# K-FAC: factors and Fisher blocks, one row, location and output at a time
# ---------------------------------------------------------------------------------------------
#
# `gradients` has one entry for every backward pass: the gradients at the layer's output, in its shape.
# N is the number of examples in the loss. All arrays are float64.

if TYPE_CHECKING:
    from torch import Tensor


def linear_factors(inputs: Floats, gradients: Floats, examples: int, bias: bool) -> tuple[Floats, Floats]:
    """A = 1/N sum a a^T and S = 1/rows sum g g^T over the rows: every leading index is a row."""
    rows = [np.append(row, 1.0) if bias else row for row in inputs.reshape(-1, inputs.shape[-1])]
    input_factor = sum(np.outer(row, row) for row in rows) / examples
    output_factor = np.zeros((gradients.shape[-1], gradients.shape[-1]))
    for one_pass in gradients:
        for row in one_pass.reshape(-1, one_pass.shape[-1]):
            output_factor += np.outer(row, row) / len(rows)
    return np.asarray(input_factor), output_factor


def conv_factors(
    inputs: Floats,
    gradients: Floats,
    kernel: tuple[int, int],
    stride: tuple[int, int],
    before: tuple[int, int],
    dilation: tuple[int, int],
    bias: bool,
) -> tuple[Floats, Floats]:
    """Eqn (15): A = sum_i E[a_i a_i^T], S = 1/|I| sum_i E[g_i g_i^T] over locations i; `before` counts zeros."""
    n_images, channels, height, width = inputs.shape
    n_locations = gradients.shape[-2] * gradients.shape[-1]
    size = channels * kernel[0] * kernel[1] + bias
    input_factor = np.zeros((size, size))
    output_factor = np.zeros((gradients.shape[2], gradients.shape[2]))
    for image in range(n_images):
        for row in range(gradients.shape[-2]):
            for column in range(gradients.shape[-1]):
                patch = []
                for channel in range(channels):
                    for k in range(kernel[0]):
                        for m in range(kernel[1]):
                            y = row * stride[0] - before[0] + k * dilation[0]
                            x = column * stride[1] - before[1] + m * dilation[1]
                            inside = 0 <= y < height and 0 <= x < width
                            patch.append(inputs[image, channel, y, x] if inside else 0.0)
                if bias:
                    patch.append(1.0)
                input_factor += np.outer(patch, patch) / n_images
                for one_pass in gradients:
                    g = one_pass[image, :, row, column]
                    output_factor += np.outer(g, g) / (n_images * n_locations)
    return input_factor, output_factor


def embedding_factors(
    tokens: NDArray[np.int64], gradients: Floats, examples: int, vocabulary: int
) -> tuple[Floats, Floats]:
    """The factors of a Linear whose inputs are the one-hot tokens; the input factor is its diagonal."""
    one_hot = np.eye(vocabulary)[tokens.reshape(-1)]
    input_factor, output_factor = linear_factors(one_hot, gradients, examples, bias=False)
    return np.diag(input_factor), output_factor


def tied_factors(
    tokens: NDArray[np.int64], token_gradients: Floats, inputs: Floats, gradients: Floats, vocabulary: int
) -> tuple[Floats, Floats]:
    """A weight shared by an embedding and the output layer: both uses are examples of one, 2N in all.

    `token_gradients` stand at the embedding's output; `inputs` and `gradients` at the output layer.
    """
    input_factor = np.zeros(vocabulary)
    output_factor = np.zeros((inputs.shape[-1], inputs.shape[-1]))
    for token in tokens.reshape(-1):
        input_factor[token] += 1
    for one_pass in gradients:
        for row in one_pass.reshape(-1, vocabulary):
            input_factor += row**2
    for one_pass in token_gradients:
        for row in one_pass.reshape(-1, inputs.shape[-1]):
            output_factor += np.outer(row, row)
    for row in inputs.reshape(-1, inputs.shape[-1]):
        output_factor += np.outer(row, row)
    return input_factor / (2 * tokens.size), output_factor / (2 * tokens.size)


def fisher_scalars(outputs: Tensor, loss: str) -> Iterator[Tensor]:
    """Scalars whose gradients v have sum v v^T = N times the Fisher: one for every example n and output k.

    squared_error: z_nk. cross_entropy: sqrt(p_nk) (z_nk - sum_j p_nj z_nj), with p held fixed.
    """
    for z in outputs.reshape(-1, outputs.shape[-1]):
        p = z.detach().exp() / z.detach().exp().sum()
        for k in range(len(z)):
            yield z[k] if loss == "squared_error" else p[k].sqrt() * (z[k] - (p * z).sum())


def dense_fisher(outputs: Tensor, weight: Tensor, bias: Tensor | None, loss: str) -> Floats:
    """The exact Fisher block of a layer: E over examples, sum over outputs; parameters are the rows of [W | b]."""
    import torch

    examples = outputs.numel() // outputs.shape[-1]
    size = weight.numel() + (0 if bias is None else bias.numel())
    fisher = np.zeros((size, size))
    for scalar in fisher_scalars(outputs, loss):
        parameters = [weight] if bias is None else [weight, bias]
        gradients = torch.autograd.grad(scalar, parameters, retain_graph=True)
        matrix = torch.cat([g.reshape(len(weight), -1) for g in gradients], dim=1)
        v = matrix.flatten().numpy()
        fisher += np.outer(v, v) / examples
    return fisher
