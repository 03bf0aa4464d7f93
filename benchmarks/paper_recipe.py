"""The paper's own recipe for the noisy quadratic model, in numpy, as the yardstick for speed.

The second moments of one coordinate move by a 3 x 3 transition matrix T (appendix B for momentum,
the proof of theorem 2, corrected, for averaging): v(t+1) = T v(t) + n. With T = V L V^-1,

    v(t) = V L^t V^-1 v(0) + V (1 - L^t) / (1 - L) V^-1 n,

so that the risk is a constant plus a sum of powers of eigenvalues. Steps to a target are found by
doubling and bisection, as if the risk fell monotonically; learning rate and momentum are tuned on
a grid. All learning rates of one momentum are decomposed and bisected together.

Its limits are the recipe's: where eigenvalues nearly meet (critical damping) V is nearly singular
and digits are lost, and where the risk oscillates the step found need not be the first.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    Floats: TypeAlias = NDArray[np.float64]

MOMENTA = 1 - np.logspace(0, -5, 20)
RATES_PER_DECADE = 50
DECADES = 3
MAX_STEPS = 2.0**50


@dataclass(frozen=True)
class Modes:
    """risk(t) = limit + Re sum(weights * eigenvalues^t), for each of the learning rates."""

    eigenvalues: NDArray[np.complex128]  # learning rates x (3 per coordinate)
    weights: NDArray[np.complex128]
    limit: Floats

    def risk(self, steps: Floats) -> Floats:
        powers = self.eigenvalues ** steps[:, None]
        total: Floats = self.limit + np.einsum("ij,ij->i", self.weights, powers).real
        return total

    def subset(self, chosen: NDArray[np.bool_]) -> Modes:
        return Modes(self.eigenvalues[chosen], self.weights[chosen], self.limit[chosen])


@dataclass(frozen=True)
class Tuned:
    """The best point of the grid; `steps` is None if no point reaches the target."""

    steps: int | None
    learning_rate: float
    momentum: float


def risk(
    h: ArrayLike,
    c: ArrayLike,
    s: ArrayLike,
    n: ArrayLike,
    learning_rate: float,
    momentum: float,
    batch_size: float,
    steps: float,
    averaging: float = 0.0,
) -> float:
    """The risk after `steps` steps of heavy-ball momentum, or of plain SGD with averaging."""
    rates = np.array([learning_rate])
    modes = decompose(h, c, s, n, rates, momentum, batch_size, averaging)
    return float(modes.risk(np.array([float(steps)]))[0])


def steps_to_target(
    h: ArrayLike,
    c: ArrayLike,
    s: ArrayLike,
    n: ArrayLike,
    learning_rate: float,
    momentum: float,
    batch_size: float,
    target: float,
    averaging: float = 0.0,
) -> int | None:
    """Steps to `target`, as if the risk fell monotonically; None if its limit lies above."""
    rates = np.array([learning_rate])
    steps = bisect(decompose(h, c, s, n, rates, momentum, batch_size, averaging), target)[0]
    return int(steps) if np.isfinite(steps) else None


def tune_on_grid(
    h: ArrayLike,
    c: ArrayLike,
    s: ArrayLike,
    n: ArrayLike,
    batch_size: float,
    target: float,
    power: float,
    momenta: Floats = MOMENTA,
) -> Tuned:
    """Fewest steps over a grid of learning rates and momenta, preconditioned by H^power.

    For each momentum the learning rates are the `DECADES` decades (`RATES_PER_DECADE` points each)
    below the largest one that is stable and whose steady-state risk (theorem 1) is below `target`.
    Plain SGD is `momenta=np.zeros(1)`.
    """
    h, c, s, n = _arrays(h, c, s, n)
    # Preconditioned SGD is SGD with curvature h^(1-p), noise c h^-p and start s h^p.
    h, c, s = h ** (1 - power), c * h**-power, s * h**power
    best = Tuned(None, float("nan"), float("nan"))
    for momentum in momenta.tolist():
        highest = 2 * (1 + momentum) / h.max()
        candidates = highest * 10 ** (-np.arange(1, 12 * RATES_PER_DECADE) / RATES_PER_DECADE)
        steady = _steady_risk(h, c, n, candidates, momentum, batch_size)
        rates = candidates[steady < target][: DECADES * RATES_PER_DECADE]
        if not len(rates):
            continue
        steps = bisect(decompose(h, c, s, n, rates, momentum, batch_size), target)
        k = int(np.argmin(steps))
        if np.isfinite(steps[k]) and (best.steps is None or steps[k] < best.steps):
            best = Tuned(int(steps[k]), float(rates[k]), momentum)
    return best


def decompose(
    h: ArrayLike,
    c: ArrayLike,
    s: ArrayLike,
    n: ArrayLike,
    learning_rates: Floats,
    momentum: float,
    batch_size: float,
    averaging: float = 0.0,
) -> Modes:
    """The modes of the risk, one eigendecomposition for each learning rate and coordinate."""
    if momentum and averaging:
        raise ValueError(f"the paper has momentum or averaging, not both, got {momentum} and {averaging}.")
    h, c, s, n = _arrays(h, c, s, n)
    a = learning_rates[:, None] * h
    noise = learning_rates[:, None] ** 2 * c / batch_size
    weight = n * h / 2
    if not momentum and not averaging:
        return _plain_modes(a, noise, s, weight)
    if averaging:
        if (np.abs(1 - a - averaging) < 1e-6).any():
            raise ValueError(
                f"`averaging` must differ from 1 - learning_rate * h, got {averaging}: "
                "the transition matrix has no eigenbasis there."
            )
        transition = _averaging_matrix(a, averaging)
        # The state is A(theta), A(avg) / (1 - gamma)^2, C / (1 - gamma), and avg(0) = theta(0).
        lead = 1 / (1 - averaging)
        start, row, weight = [1.0, lead**2, lead], 1, weight / lead**2
    else:
        transition = _momentum_matrix(a, momentum)
        start, row = [1.0, 0.0, 0.0], 0
    sources = np.empty((*a.shape, 3, 2))
    sources[..., 0] = s[:, None] * np.array(start)
    sources[..., 1] = noise[..., None]
    eigenvalues, vectors = np.linalg.eig(transition)
    parts = np.linalg.solve(vectors, sources)
    parts *= vectors[..., row, :, None] * weight[:, None, None]
    settled = parts[..., 1] / (1 - eigenvalues)
    flat = (len(learning_rates), -1)
    return Modes(
        eigenvalues.reshape(flat).astype(np.complex128),
        (parts[..., 0] - settled).reshape(flat).astype(np.complex128),
        settled.sum(axis=(1, 2)).real,
    )


def bisect(modes: Modes, target: float) -> Floats:
    """Steps to `target` for each learning rate, infinite where the limit is not below it."""
    steps = np.full(len(modes.limit), np.inf)
    start = modes.risk(np.zeros(len(steps)))
    steps[start <= target] = 0
    stable = np.abs(modes.eigenvalues).max(axis=1) < 1
    chosen = (modes.limit < target) & (start > target) & stable
    modes = modes.subset(chosen)

    low, high = np.zeros(len(modes.limit)), np.ones(len(modes.limit))
    above = np.ones(len(high), dtype=bool)
    while above.any():
        above[above] = modes.subset(above).risk(high[above]) > target
        above &= high < MAX_STEPS
        low[above] = high[above]
        high[above] *= 2
    while (wide := high - low > 1).any():
        middle = np.floor((low + high) / 2)
        falls = modes.subset(wide).risk(middle[wide]) <= target
        high[wide] = np.where(falls, middle[wide], high[wide])
        low[wide] = np.where(falls, low[wide], middle[wide])
    steps[chosen] = high
    return steps


def decompose_one_by_one(
    h: Floats, c: Floats, s: Floats, n: Floats, learning_rates: Floats, momentum: float, batch_size: float
) -> Modes:
    """`decompose`, one coordinate after the other: the recipe as it reads, before anyone makes it fast."""
    parts = [decompose(h[[i]], c[[i]], s[[i]], n[[i]], learning_rates, momentum, batch_size) for i in range(len(h))]
    eigenvalues = np.concatenate([part.eigenvalues for part in parts], axis=1)
    weights = np.concatenate([part.weights for part in parts], axis=1)
    return Modes(eigenvalues, weights, np.sum([part.limit for part in parts], axis=0))


def _momentum_matrix(a: Floats, beta: float) -> Floats:
    """Appendix B, on A(theta), alpha^2 A(m), -alpha C; a is alpha h."""
    matrix = np.empty((*a.shape, 3, 3))
    matrix[..., 0, 0] = (1 - a) ** 2
    matrix[..., 0, 2] = 2 * (1 - a) * beta
    matrix[..., 1, 0] = a**2
    matrix[..., 1, 2] = -2 * beta * a
    matrix[..., 2, 0] = -(1 - a) * a
    matrix[..., 2, 2] = (1 - 2 * a) * beta
    matrix[..., :, 1] = beta**2
    return matrix


def _averaging_matrix(a: Floats, gamma: float) -> Floats:
    """The proof of theorem 2 with row 2, column 3 corrected to 2 gamma (1 - alpha h)."""
    matrix = np.zeros((*a.shape, 3, 3))
    matrix[..., :, 0] = ((1 - a) ** 2)[..., None]
    matrix[..., 1, 1] = gamma**2
    matrix[..., 1, 2] = 2 * gamma * (1 - a)
    matrix[..., 2, 2] = gamma * (1 - a)
    return matrix


def _plain_modes(a: Floats, noise: Floats, s: Floats, weight: Floats) -> Modes:
    """Eqn. 4: plain SGD needs no decomposition."""
    eigenvalues = (1 - a) ** 2
    settled = weight * noise / (1 - eigenvalues)
    return Modes(
        eigenvalues.astype(np.complex128),
        (weight * s - settled).astype(np.complex128),
        settled.sum(axis=1),
    )


def _steady_risk(h: Floats, c: Floats, n: Floats, rates: Floats, beta: float, batch_size: float) -> Floats:
    """The second term of theorem 1, summed over coordinates."""
    a = rates[:, None] * h
    each = n * (1 + beta) * rates[:, None] * c / (2 * batch_size * (2 + 2 * beta - a) * (1 - beta))
    total: Floats = each.sum(axis=1)
    return total


def _arrays(*columns: ArrayLike) -> tuple[Floats, ...]:
    return tuple(np.atleast_1d(np.asarray(column, dtype=np.float64)) for column in columns)
