"""The noisy quadratic model: a quadratic loss whose gradients are seen through noise.

Notation: h, curvature; c, per-example gradient noise variance; s = E[theta(0)^2]; n, how many coordinates an
entry stands for.  The loss is 1/2 sum_i n_i h_i theta_i^2 (eqn. 1 of the paper), and a gradient over a batch of B
examples has variance c_i / B around h_i theta_i; (c_i + g_i loss) / B where the noise follows the loss.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt

from batchlens._arrays import FloatArray
from batchlens._checks import require_choice, require_number, require_vector, require_whole
from batchlens._results import Result, axes_or_new
from batchlens.theory._types import Rounding

if TYPE_CHECKING:
    import pandas
    from matplotlib.axes import Axes

# An eigenvalue this close to a bin's edge (in bins) lies on it: the ends of the grid always do.
_ON_EDGE = 1e-9


@dataclass(frozen=True, eq=False, init=False, repr=False)
class NoisyQuadratic(Result):
    """What training has to minimise: curvature, gradient noise and starting point of every coordinate.

    Arguments:
        curvature: h, above 0.
        noise: c, variance of one example's gradient, at least 0.
        initial: s = E[theta(0)^2], at least 0.
        count: n >= 1, how many coordinates each entry stands for; ones by default.
        noise_growth: g, what a unit of loss adds to c, at least 0; zeros, as in the paper, by default. In networks
            gradients vary less as the loss falls. Coordinates are coupled then, and every step is taken: `risk`,
            `steps_to_target`, `tune` and `scaling_curve` answer still, in milliseconds to seconds.

    >>> problem = NoisyQuadratic(curvature=[1.0, 0.1], noise=[1.0, 0.1], initial=[1.0, 1.0])
    >>> problem.dim, problem.trace, problem.initial_risk
    (2.0, 1.1, 0.55)
    >>> problem
    <NoisyQuadratic: 2 coordinates, curvature 1 to 0.1, trace 1.1, initial risk 0.55>
    """

    curvature: FloatArray
    noise: FloatArray
    initial: FloatArray
    count: FloatArray
    noise_growth: FloatArray

    def __init__(
        self,
        curvature: npt.ArrayLike,
        noise: npt.ArrayLike,
        initial: npt.ArrayLike,
        count: npt.ArrayLike | None = None,
        noise_growth: npt.ArrayLike | None = None,
    ) -> None:
        h = require_vector("curvature", curvature)
        if h.size == 0:
            raise ValueError("`curvature` must have at least one entry, got none.")
        columns = {
            "curvature": h,
            "noise": require_vector("noise", noise, h.size),
            "initial": require_vector("initial", initial, h.size),
            "count": np.ones(h.size) if count is None else require_vector("count", count, h.size),
            "noise_growth": (
                np.zeros(h.size) if noise_growth is None else require_vector("noise_growth", noise_growth, h.size)
            ),
        }
        if h.min() <= 0:
            raise ValueError(f"`curvature` must be above 0, got {h.min():g}.")
        for name, low in (("noise", 0), ("initial", 0), ("count", 1), ("noise_growth", 0)):
            if columns[name].min() < low:
                raise ValueError(f"`{name}` must be at least {low}, got {columns[name].min():g}.")
        for name, column in columns.items():
            column.setflags(write=False)
            object.__setattr__(self, name, column)

    @classmethod
    def power_law(cls, dim: int, exponent: float = 1.0, noise: float = 1.0, initial: float = 1.0) -> Self:
        """The paper's problem (section 3.5): h_i = i^-exponent, c = noise * h, s = initial.

        >>> round(NoisyQuadratic.power_law(dim=10_000).trace, 3)
        9.788
        """
        dim = require_whole("dim", dim, low=1, high=10**8)
        exponent = require_number("exponent", exponent, low=0)
        h = np.arange(1.0, dim + 1.0) ** -exponent
        if h[-1] == 0:
            raise ValueError(f"`exponent` must leave the smallest curvature above 0, got {exponent}.")
        return cls.from_spectrum(h, noise, initial)

    @classmethod
    def from_spectrum(
        cls,
        curvature: npt.ArrayLike,
        noise: float = 1.0,
        initial: float = 1.0,
        count: npt.ArrayLike | None = None,
    ) -> Self:
        """A problem with a spectrum of one's own, c = noise * h and s = initial.

        >>> NoisyQuadratic.from_spectrum([2.0, 1.0], noise=0.5).noise.tolist()
        [1.0, 0.5]
        """
        h = require_vector("curvature", curvature)
        noise = require_number("noise", noise, low=0)
        initial = require_number("initial", initial, low=0)
        with np.errstate(over="ignore"):  # what overflows is refused
            return cls(h, noise * h, np.full(h.size, initial), count)

    @property
    def dim(self) -> float:
        """Number of coordinates."""
        with np.errstate(over="ignore"):
            return float(self.count.sum())

    @property
    def trace(self) -> float:
        """Sum of the curvatures."""
        with np.errstate(over="ignore"):
            return float(self.count @ self.curvature)

    @property
    def initial_risk(self) -> float:
        """Expected loss before the first step."""
        with np.errstate(over="ignore"):
            return float(0.5 * self.count @ (self.curvature * self.initial))

    @property
    def noise_follows_loss(self) -> bool:
        """Whether gradients vary more where the loss is higher."""
        return bool(self.noise_growth.any())

    @property
    def headline(self) -> str:
        """Size, range of curvature, trace and initial risk."""
        size = f"{self.dim:,.0f} coordinates"
        if self.curvature.size != self.dim:
            size += f" in {self.curvature.size:,} bins"
        curvature = f"curvature {self.curvature.max():.4g} to {self.curvature.min():.4g}"
        follows = ", noise follows the loss" if self.noise_follows_loss else ""
        return f"{size}, {curvature}, trace {self.trace:.4g}, initial risk {self.initial_risk:.4g}{follows}"

    def to_frame(self) -> "pandas.DataFrame":
        """One row per entry: curvature, noise, initial, count, and noise_growth where the noise follows the loss."""
        import pandas

        names = ["curvature", "noise", "initial", "count", *(["noise_growth"] if self.noise_follows_loss else [])]
        return pandas.DataFrame({name: getattr(self, name) for name in names})

    def plot(self, ax: "Axes | None" = None) -> "Axes":
        """Draws the spectrum: curvature against rank, from the largest to the smallest."""
        ax = axes_or_new(ax)
        order = np.argsort(-self.curvature, kind="stable")
        ranks, heights = np.cumsum(self.count[order]), self.curvature[order]
        ax.plot(np.append(1.0, ranks), np.append(heights[0], heights), drawstyle="steps-pre")
        ax.set_xscale("log")
        ax.set_yscale("log")
        ax.set_xlabel("rank")
        ax.set_ylabel("curvature")
        return ax

    def as_document(self) -> dict[str, Any]:
        return {
            "coordinates": self.dim,
            "bins": self.curvature.size,
            "curvature": [float(self.curvature.max()), float(self.curvature.min())],
            "trace": self.trace,
            "initial_risk": self.initial_risk,
        }

    def binned(self, bins: int, rounding: Rounding = "mean") -> Self:
        """Fewer entries that behave alike: coordinates of similar curvature share a bin.

        "mean" cuts the range of log h into `bins` equal parts and keeps, bin by bin, the number of coordinates
        and the sums of h, of c and its growth, and of h s.  "down" is the paper's quantisation: every eigenvalue is
        rounded down to the next of `bins` points spaced geometrically from the largest to the smallest, c / h and s
        kept; it loses a few percent of the trace.  Empty bins are dropped.

        >>> paper = NoisyQuadratic.power_law(dim=10_000).binned(100, rounding="down")
        >>> paper.dim, round(paper.trace, 5), paper.curvature.size
        (10000.0, 9.40499, 84)
        """
        bins = require_whole("bins", bins, low=1, high=10**9)
        require_choice("rounding", rounding, ("mean", "down"))
        with np.errstate(over="ignore", invalid="ignore"):  # what overflows is refused
            h = self.curvature
            if h.max() == h.min():
                bins = 1
            cells = bins if rounding == "mean" else bins - 1
            width = (np.log(h.max()) - np.log(h.min())) / max(cells, 1)
            height = (np.log(h) - np.log(h.min())) / (width or 1.0)
            index = np.clip(np.floor(height + _ON_EDGE).astype(np.int64), 0, bins - 1)
            used, place = np.unique(-index, return_inverse=True)

            def total(values: FloatArray) -> FloatArray:
                sums: FloatArray = np.bincount(place, weights=values).astype(np.float64)
                return sums

            n = self.count
            count = total(n)
            if rounding == "mean":
                curvature = total(n * h) / count
                noise, growth = (total(n * values) / count for values in (self.noise, self.noise_growth))
                initial = total(n * h * self.initial) / total(n * h)
            else:
                curvature = h.min() * np.exp(-used * width)
                noise, growth = (curvature * total(n * v / h) / count for v in (self.noise, self.noise_growth))
                initial = total(n * self.initial) / count
        return type(self)(curvature, noise, initial, count, growth)
