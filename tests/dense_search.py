"""The best rule by trying very many: what the tuner is held against.  Nothing here imports the package.

Preconditioning is taken out first: SGD preconditioned by H^-power is SGD with curvature h^(1 - power), noise
c h^-power and start s h^power.  Coordinates are then scaled so that the risk is the sum of their second moments.

A rule is a row (learning rate, 1 - momentum, 1 - averaging).

* `first_hits`: second moments moved one step at a time, for as many rules as asked for.
* `risks_at`: the risk at given step counts from the roots of the characteristic polynomial and geometric sums, for
  step counts that cannot be counted up to, rule by rule.
* `fewest_steps`, `least_risk`: the best rule of a dense grid, then of finer ones around it.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar, cast

import numba
import numpy as np
import numpy.typing as npt

Floats: TypeAlias = npt.NDArray[np.float64]
Ints: TypeAlias = npt.NDArray[np.int64]
_F = TypeVar("_F", bound=Callable[..., Any])


def compiled(function: _F) -> _F:
    """Machine code that lets other threads run."""
    made: Any = numba.njit(nogil=True, error_model="numpy", fastmath={"reassoc", "contract", "nsz"})(function)
    return cast(_F, made)


@dataclass(frozen=True)
class Quadratic:
    """Rates at learning rate 1, starting risk and noise weight of every coordinate, preconditioning taken out."""

    curvature: Floats
    start: Floats
    noise: Floats  # what a unit step adds to the risk, at batch size 1


def quadratic(h: npt.ArrayLike, c: npt.ArrayLike, s: npt.ArrayLike, n: npt.ArrayLike, power: float = 0.0) -> Quadratic:
    h, c, s, n = (np.asarray(x, dtype=np.float64) for x in (h, c, s, n))
    return Quadratic(h ** (1 - power), n * h * s / 2, n * h ** (1 - 2 * power) * c / 2)


def paper_problem() -> tuple[Floats, Floats, Floats, Floats]:
    """h, c, s, n of the paper: h = c = 1/i up to 10^4, each rounded down to one of 100 values; s = 1."""
    values = np.geomspace(1, 1e-4, 100)
    curvature = 1 / np.arange(1.0, 10_001.0)
    # the first value that is not above it; the last one's rounding must not push 10^-4 out
    place = np.minimum(np.searchsorted(-values, -curvature * (1 + 1e-12)), 99)
    count = np.bincount(place, minlength=100).astype(np.float64)
    h = values[count > 0]
    return h, h, np.ones_like(h), count[count > 0]


# ---------------------------------------------------------------------------------------------
# One step at a time
# ---------------------------------------------------------------------------------------------


@compiled
def _first_hit(
    curvature: Floats,
    start: Floats,
    noise: Floats,
    learning_rate: float,
    slip: float,
    fresh: float,
    nesterov: bool,
    target: float,
    most: int,
) -> int:
    """The first step, 0 included, with risk <= target; `most` + 1 if there is none up to `most`.

    In units of the learning rate, v = learning_rate m: w = a x + noise is new, v <- momentum v + w, and
    x <- x - (k w + l v_old), with (k, l) = (1, momentum), or (1 + momentum, momentum^2) for Nesterov.
    """
    momentum, averaging = 1.0 - slip, 1.0 - fresh
    k = 1.0 + momentum if nesterov else 1.0
    l = momentum * momentum if nesterov else momentum  # noqa: E741
    size = curvature.size
    a = learning_rate * curvature
    xx, xv, vv = start.copy(), np.zeros(size), np.zeros(size)
    yy, yx, yv = start.copy(), start.copy(), np.zeros(size)
    kick = learning_rate * learning_rate * noise
    risk = start.sum()
    for step in range(most + 1):
        if risk <= target:
            return step
        risk = 0.0
        if momentum == 0.0 and averaging == 0.0:
            for i in range(size):
                xx[i] = (1.0 - a[i]) * (1.0 - a[i]) * xx[i] + kick[i]
                risk += xx[i]
        elif momentum == 0.0:
            for i in range(size):
                xx[i] = (1.0 - a[i]) * (1.0 - a[i]) * xx[i] + kick[i]
                moved = (1.0 - a[i]) * yx[i]
                yy[i] = averaging * averaging * yy[i] + fresh * (2.0 * averaging * moved + fresh * xx[i])
                yx[i] = averaging * moved + fresh * xx[i]
                risk += yy[i]
        else:
            for i in range(size):
                ww = a[i] * a[i] * xx[i] + kick[i]
                xw = a[i] * xx[i]
                vw = a[i] * xv[i]
                zz = k * k * ww + 2.0 * k * l * vw + l * l * vv[i]
                xz = k * xw + l * xv[i]
                zv = k * ww + (k * momentum + l) * vw + l * momentum * vv[i]
                xx[i] = xx[i] - 2.0 * xz + zz
                xv[i] = xw + momentum * xv[i] - zv
                vv[i] = ww + 2.0 * momentum * vw + momentum * momentum * vv[i]
                risk += xx[i]
            if averaging > 0.0:
                risk = 0.0
                for i in range(size):
                    yw = a[i] * yx[i]
                    moved = yx[i] - k * yw - l * yv[i]
                    pushed = yw + momentum * yv[i]
                    yy[i] = averaging * averaging * yy[i] + fresh * (2.0 * averaging * moved + fresh * xx[i])
                    yx[i] = averaging * moved + fresh * xx[i]
                    yv[i] = averaging * pushed + fresh * xv[i]
                    risk += yy[i]
    return most + 1


@compiled
def _first_hits(
    curvature: Floats,
    start: Floats,
    noise: Floats,
    rules: Floats,
    nesterov: bool,
    target: float,
    most: int,
) -> Ints:
    hits = np.empty(rules.shape[0], dtype=np.int64)
    for j in range(rules.shape[0]):
        hits[j] = _first_hit(curvature, start, noise, rules[j, 0], rules[j, 1], rules[j, 2], nesterov, target, most)
    return hits


def first_hits(problem: Quadratic, rules: Floats, nesterov: bool, batch_size: float, target: float, most: int) -> Ints:
    """The first step with risk <= target of every rule, `most` + 1 where there is none up to `most`."""
    noise = problem.noise / batch_size
    return _spread(
        lambda part: _first_hits(problem.curvature, problem.start, noise, part, nesterov, target, most), rules
    )


# ---------------------------------------------------------------------------------------------
# Any number of steps
# ---------------------------------------------------------------------------------------------

_APART = 1e-5  # roots closer than this, relatively, are moved apart: what that costs and what rounding costs is 1e-6


@compiled
def _risk_at(
    curvature: Floats,
    start: Floats,
    noise: Floats,
    rate: float,
    slip: float,
    fresh: float,
    nesterov: bool,
    steps: float,
    enough: float,
) -> float:
    """The risk after so many steps; inf once it is clear that it is above `enough`.

    What is measured p steps after the start, or after an impulse of noise, is a sum of amplitude times root^p over
    the roots of a coordinate's map.  The roots are carried as u = 1 - root, which keeps slow ones exact.
    """
    momentum = 1.0 - slip
    k = 1.0 + momentum if nesterov else 1.0
    l = momentum * momentum if nesterov else momentum  # noqa: E741
    moving = 1 if slip == 1.0 else 2
    modes = moving + (1 if fresh < 1.0 else 0)
    u = np.empty(3, dtype=np.complex128)
    begun = np.empty(3, dtype=np.complex128)  # amplitudes of the start
    kicked = np.empty(3, dtype=np.complex128)  # amplitudes of an impulse, p = 0 being its own step
    logs = np.empty(3, dtype=np.complex128)
    risk = 0.0
    for i in range(curvature.size - 1, -1, -1):  # the slowest carry most of the risk
        a = rate * curvature[i]
        if moving == 1:
            u[0] = a if a != 1.0 else 1.0 - 1e-14
            begun[0] = 1.0
            kicked[0] = -k
        else:
            # root^2 - trace root + product = 0 is u^2 - b u + a = 0
            b = slip + (a * (2.0 - slip) if nesterov else a)
            inner = b * b - 4.0 * a
            if abs(inner) < (_APART * b) ** 2:
                inner = (_APART * b) ** 2
            if inner > 0.0:
                u[0] = 0.5 * (b + np.sqrt(inner))
                u[1] = a / u[0]
            else:
                u[0] = complex(0.5 * b, 0.5 * np.sqrt(-inner))
                u[1] = complex(0.5 * b, -0.5 * np.sqrt(-inner))
            # matched at the first value and at its change in the step after
            apart = u[1] - u[0]
            begun[0] = (u[1] - k * a) / apart
            begun[1] = 1.0 - begun[0]
            kicked[0] = (k * k * a - l - k * u[1]) / apart
            kicked[1] = -k - kicked[0]
        if fresh < 1.0:
            # average(p) = averaging average(p - 1) + fresh x(p), from 0 before an impulse, from 1 at the start
            v = fresh
            for m in range(moving):
                if abs(u[m] - v) < _APART * v:
                    v *= 1.0 + 2.0 * _APART
            u[moving] = v
            begun[moving] = 1.0
            kicked[moving] = 0.0
            for m in range(moving):
                share = fresh / (v - u[m])
                kicked[moving] -= kicked[m] * share * (1.0 - v)
                kicked[m] *= share * (1.0 - u[m])
                begun[m] *= share * (1.0 - u[m])
                begun[moving] -= begun[m]
        x = 0.0
        for m in range(modes):  # log root, then root^steps
            real, imaginary = u[m].real, u[m].imag
            size = 0.5 * np.log1p(real * (real - 2.0) + imaginary * imaginary)
            turn = np.arctan2(-imaginary, 1.0 - real) if imaginary != 0.0 or real > 1.0 else 0.0
            logs[m] = complex(size, turn)
            x += (begun[m] * _exp(steps * logs[m])).real
        total = 0.0
        for m in range(modes):
            for o in range(m + 1):
                # sum over p < steps of the product of two modes; rest is 1 - (1 - u)(1 - u')
                rest = u[m] + u[o] - u[m] * u[o]
                both = kicked[m] * kicked[o] * _minus_expm1(steps * (logs[m] + logs[o])) / rest
                total += both.real if m == o else 2.0 * both.real
        risk += start[i] * x * x + noise[i] * rate * rate * total
        if risk > enough:
            return np.inf
    return risk


@compiled
def _exp(x: complex) -> complex:
    size = np.exp(x.real)
    return complex(size * np.cos(x.imag), size * np.sin(x.imag)) if x.imag != 0.0 else complex(size, 0.0)


@compiled
def _minus_expm1(x: complex) -> complex:
    """1 - exp(x), exact for small x."""
    grown = np.expm1(x.real)
    if x.imag == 0.0:
        return complex(-grown, 0.0)
    half = np.sin(0.5 * x.imag)
    return complex(2.0 * half * half - grown * np.cos(x.imag), -(grown + 1.0) * np.sin(x.imag))


@compiled
def _risks_at(
    curvature: Floats,
    start: Floats,
    noise: Floats,
    rules: Floats,
    nesterov: bool,
    steps: int,
    enough: float,
) -> Floats:
    risks = np.empty(rules.shape[0])
    for j in range(rules.shape[0]):
        rate, slip, fresh = rules[j]
        risks[j] = _risk_at(curvature, start, noise, rate, slip, fresh, nesterov, float(steps), enough)
    return risks


def risks_at(
    problem: Quadratic, rules: Floats, nesterov: bool, batch_size: float, steps: int, enough: float = math.inf
) -> Floats:
    """The risk of every rule after so many steps; inf where it is above `enough`."""
    noise = problem.noise / batch_size
    return _spread(
        lambda part: _risks_at(problem.curvature, problem.start, noise, part, nesterov, steps, enough), rules
    )


_T = TypeVar("_T", Floats, Ints)


def _spread(function: Callable[[Floats], _T], rules: Floats) -> _T:
    """`function` over the rules, on every core; neighbours cost alike, so the shares are interleaved."""
    shares = min(len(rules), 8 * (os.cpu_count() or 1))
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        parts = list(pool.map(function, [rules[first::shares] for first in range(shares)]))
    result = np.empty(len(rules), dtype=parts[0].dtype)
    for first, part in enumerate(parts):
        result[first::shares] = part
    return cast(_T, result)


# ---------------------------------------------------------------------------------------------
# The best of many
# ---------------------------------------------------------------------------------------------

_FREE = {  # which of (learning rate, momentum, averaging) a family has
    "sgd": (True, False, False),
    "momentum": (True, True, False),
    "nesterov": (True, True, False),
    "sgd+ema": (True, False, True),
    "momentum+ema": (True, True, True),
}
# Points along (learning rate, momentum, averaging), by the number of them that are free: first grid, then finer ones.
_FIRST = {1: (2000, 1, 1), 2: (160, 120, 120), 3: (48, 28, 28)}
_FINER = {1: (400, 1, 1), 2: (48, 48, 48), 3: (14, 14, 14)}
# A rule this many times above the target is of no interest.
_FAR = 4.0


@dataclass(frozen=True)
class Search:
    """The rules of a family on a problem, at one batch size.

    A rule's place is the logarithm of (learning rate times largest curvature over 1 - momentum, 1 - momentum,
    1 - averaging): its first entry is what moves slow coordinates.
    """

    problem: Quadratic
    family: str
    batch_size: float
    target: float

    @property
    def nesterov(self) -> bool:
        return self.family == "nesterov"

    def fewest_steps(self, most: int) -> int:
        """Fewest steps to the target, `most` + 1 if there are none up to `most`, counted one by one.

        On a dense grid, then on two finer ones around the best rule: of those that take equally few steps, the one
        closest to the target a step earlier.
        """
        places, spacing = self._first_grid(most)
        best = (most + 1, math.inf)
        for _ in range(3):
            rules = self._rules(places)
            hits = self.first_hits(rules, most)
            tied = np.flatnonzero(hits == hits.min())
            before = self.risks(rules[tied], max(int(hits.min()) - 1, 1))
            here = int(np.argmin(before))
            if (int(hits.min()), float(before[here])) <= best:
                best = int(hits.min()), float(before[here])
                around = places[tied[here]]
            places, spacing = self._finer_grid(around, spacing)
        return best[0]

    def best_rules(self, steps: int, basins: int = 3, zooms: int = 2) -> tuple[Floats, Floats]:
        """Rules with little risk after so many steps, and their risks, the best first.

        From a dense grid's best places that are not neighbours; around each, ever finer grids.
        """
        places, spacing = self._first_grid(steps)
        risks = self.risks(self._rules(places), steps)
        order = np.argsort(risks)
        starts: list[Floats] = []
        for place in places[order[: 100 * basins]]:
            if all((np.abs(place - start) > 1.5 * spacing).any() for start in starts):
                starts.append(place)
        rules, values = [self._rules(places[order[:1]])], [risks[order[:1]]]
        for start in starts[:basins]:
            around, width = start, spacing
            for _ in range(zooms):
                places, width = self._finer_grid(around, width)
                rules.append(self._rules(places))
                values.append(self.risks(rules[-1], steps))
                around = places[np.argmin(values[-1])]
        order = np.argsort(np.concatenate(values))
        return np.concatenate(rules)[order], np.concatenate(values)[order]

    def first_hits(self, rules: Floats, most: int) -> Ints:
        return first_hits(self.problem, rules, self.nesterov, self.batch_size, self.target, most)

    def risks(self, rules: Floats, steps: int) -> Floats:
        return risks_at(self.problem, rules, self.nesterov, self.batch_size, steps, _FAR * self.target)

    @property
    def _free(self) -> npt.NDArray[np.bool_]:
        return np.array(_FREE[self.family])

    def _first_grid(self, steps: int) -> tuple[Floats, Floats]:
        """From where nothing moves in so many steps up to the stability limit; places, and their spacing."""
        low = np.where(self._free, math.log(0.02 / steps), 0.0)
        high = np.array([math.log(4.0) - low[1], 0.0, 0.0])
        return self._grid(low, high, _FIRST)

    def _finer_grid(self, around: Floats, spacing: Floats) -> tuple[Floats, Floats]:
        high = np.minimum(around + 1.5 * spacing, np.array([np.inf, 0.0, 0.0]))
        return self._grid(around - 1.5 * spacing, high, _FINER)

    def _grid(self, low: Floats, high: Floats, sizes: dict[int, tuple[int, int, int]]) -> tuple[Floats, Floats]:
        """The stable places between two corners."""
        free = self._free
        axes = [np.linspace(low[d], high[d], sizes[int(free.sum())][d] if free[d] else 1) for d in range(3)]
        places = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, 3)
        momentum = -np.expm1(places[:, 1])
        limit = 2.0 * (1.0 + momentum) / (1.0 + 2.0 * momentum if self.nesterov else 1.0)
        spacing = np.array([axis[1] - axis[0] if axis.size > 1 else 0.0 for axis in axes])
        return places[np.exp(places[:, 0] + places[:, 1]) < limit], spacing

    def _rules(self, places: Floats) -> Floats:
        slip = np.exp(places[:, 1])
        rate = np.exp(places[:, 0]) * slip / self.problem.curvature.max()
        return np.stack([rate, slip, np.exp(places[:, 2])], axis=1)
