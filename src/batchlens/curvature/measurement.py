"""What was measured of a network's curvature and gradient noise: kept as one JSON file, read without torch."""

import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from batchlens._checks import require_path
from batchlens._results import Result, axes_or_new
from batchlens.curvature._estimates import (
    DensityPoint,
    Estimate,
    Ratio,
    estimate_document,
    ratio_document,
    read_estimate,
    read_ratio,
    rows_document,
)
from batchlens.curvature._spectra import Comparison, Decade, Direction, Level
from batchlens.errors import BatchlensError

if TYPE_CHECKING:
    import pandas
    from matplotlib.axes import Axes

__all__ = ["DensityPoint", "Estimate", "Measurement", "Moment", "Ratio", "read_measurement"]

_FORMAT = 1


@dataclass(frozen=True, repr=False)
class Moment(Result):
    """Curvature and gradient noise at one step of training.

    Arguments:
        step: of the run.
        loss: the mean over the examples.
        examples: that everything is measured on.
        parameters: that can be trained.
        positions: that each example's loss is a mean over; 1 but for sequences.
        top_curvature: the largest eigenvalue of the Gauss-Newton matrix, with the error of a sample of examples.
        top_residual: how far the largest Ritz value is from an eigenvalue at most.
        top_halves: the same on either half of the examples.
        top_eigenvalues: those at the top that have been found within 5%, the largest first.
        hessian_top: the largest eigenvalue of the Hessian; None unless asked for.
        curvature_trace: the sum of all eigenvalues.
        gradient_variance: the trace of the gradients' covariance.
        squared_gradient: of the mean gradient over all data, not of the sample.
        noise_scale: gradient_variance / squared_gradient, B_simple.
        curvature_noise_scale: tr(H C) / (G^T H G), B_noise.
        spectrum: curvature, variance and second moment of the gradient by rank of curvature, in a Kronecker eigenbasis.
        scatter: some of its directions.
        decades: how the spectrum falls with its rank, decade by decade.
        comparison: of variance with curvature; None where fewer than three directions are known.
        density: eigenvalues per decade; empty unless asked for.
        left_out: parameters that the Kronecker eigenbasis does not have, with the reason.
        seconds: that it took.

    >>> import batchlens as bl
    >>> import torch
    >>> inputs, targets = torch.eye(4), torch.tensor([0, 1, 0, 1])
    >>> moment = bl.measure(torch.nn.Linear(4, 2), (inputs, targets)).moments[0]
    >>> moment.examples, moment.parameters, moment.top_curvature.value > 0
    (4, 10, True)
    """

    step: int
    loss: float
    examples: int
    parameters: int
    positions: int
    top_curvature: Estimate
    top_residual: float
    top_halves: tuple[float, ...]
    top_eigenvalues: tuple[float, ...]
    hessian_top: float | None
    curvature_trace: Estimate
    gradient_variance: Estimate
    squared_gradient: Estimate
    noise_scale: Ratio
    curvature_noise_scale: Ratio
    spectrum: tuple[Level, ...] = ()
    scatter: tuple[Direction, ...] = ()
    decades: tuple[Decade, ...] = ()
    comparison: Comparison | None = None
    density: tuple[DensityPoint, ...] = ()
    left_out: Mapping[str, str] = field(default_factory=dict)
    seconds: float = 0.0

    @property
    def size_ratio(self) -> float | None:
        """Gradient variance over curvature in the basis, times the positions: 1 if C = H and they are independent."""
        return None if self.comparison is None else self.comparison.ratio * self.positions

    @property
    def headline(self) -> str:
        """What matters most, in one line."""
        return (
            f"step {self.step:,}: loss {self.loss:.3g}, top curvature {self.top_curvature}, gradient variance "
            f"{self.gradient_variance}, noise scale {self.noise_scale}"
        )

    def to_frame(self) -> "pandas.DataFrame":
        """The spectrum: one row per level."""
        import pandas

        return pandas.DataFrame(self.spectrum, columns=list(Level._fields))

    def plot(self, ax: "Axes | None" = None) -> "Axes":
        """Variance of the gradient (times positions) against curvature, by direction; the line is where C = H."""
        ax = axes_or_new(ax)
        shown = [point for point in self.scatter if point.variance > 0]
        ends = [min((p.curvature for p in shown), default=1.0), max((p.curvature for p in shown), default=1.0)]
        ax.plot([p.curvature for p in shown], [p.variance * self.positions for p in shown], ".")
        ax.plot(ends, ends, color="0.5", linewidth=1.0)
        times = " times positions" * (self.positions > 1)
        ax.set(xscale="log", yscale="log", xlabel="curvature", ylabel=f"variance of the gradient{times}")
        return ax

    def as_document(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "step": self.step,
            "loss": self.loss,
            "examples": self.examples,
            "parameters": self.parameters,
            "positions": self.positions,
            "top_curvature": {
                **estimate_document(self.top_curvature),
                "residual": self.top_residual,
                "halves": list(self.top_halves),
                "eigenvalues": list(self.top_eigenvalues),
            },
            "hessian_top": self.hessian_top,
            "curvature_trace": estimate_document(self.curvature_trace),
            "gradient_variance": estimate_document(self.gradient_variance),
            "squared_gradient": estimate_document(self.squared_gradient),
            "noise_scale": ratio_document(self.noise_scale),
            "curvature_noise_scale": ratio_document(self.curvature_noise_scale),
            "spectrum": rows_document(self.spectrum),
            "scatter": rows_document(self.scatter),
            "decades": rows_document(self.decades),
            "comparison": None if self.comparison is None else self.comparison._asdict(),
            "density": rows_document(self.density),
            "left_out": dict(self.left_out),
            "seconds": self.seconds,
        }

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> "Moment":
        """What `as_document` came from."""
        top = document["top_curvature"]
        plain = ("step", "loss", "examples", "parameters", "positions", "hessian_top", "left_out", "seconds")
        return cls(
            **{name: document[name] for name in plain},
            top_curvature=read_estimate(top),
            top_residual=top["residual"],
            top_halves=tuple(top["halves"]),
            top_eigenvalues=tuple(top["eigenvalues"]),
            curvature_trace=read_estimate(document["curvature_trace"]),
            gradient_variance=read_estimate(document["gradient_variance"]),
            squared_gradient=read_estimate(document["squared_gradient"]),
            noise_scale=read_ratio(document["noise_scale"]),
            curvature_noise_scale=read_ratio(document["curvature_noise_scale"]),
            spectrum=tuple(Level(**row) for row in document["spectrum"]),
            scatter=tuple(Direction(**row) for row in document["scatter"]),
            decades=tuple(Decade(**row) for row in document["decades"]),
            comparison=None if document["comparison"] is None else Comparison(**document["comparison"]),
            density=tuple(
                DensityPoint(row["curvature"], row["per_decade"], tuple(row["interval"])) for row in document["density"]
            ),
        )


@dataclass(frozen=True, repr=False)
class Measurement(Result):
    """Curvature and gradient noise of a network, at one or several steps of its training.

    Arguments:
        moments: one for each step, in order.
        name: of the workload or of the model.
        declaration: the run and how it was measured, where it was a run of a workload.
        status: "complete", "unfinished" or "diverged".
        reason: why it diverged.
        loss_curve: training losses of the run by step.
        top_curvatures: the largest eigenvalue after further steps.
        versions: of what the numbers may depend on.

    >>> import batchlens as bl
    >>> import torch
    >>> inputs, targets = torch.eye(4), torch.tensor([0, 1, 0, 1])
    >>> measurement = bl.measure(torch.nn.Linear(4, 2), (inputs, targets))
    >>> measurement.to_frame()[["step", "examples"]].to_dict("records")
    [{'step': 0, 'examples': 4}]
    """

    moments: tuple[Moment, ...]
    name: str
    declaration: Mapping[str, Any] = field(default_factory=dict)
    status: str = "complete"
    reason: str = ""
    loss_curve: tuple[tuple[int, float], ...] = ()
    top_curvatures: tuple[tuple[int, float], ...] = ()
    versions: Mapping[str, str] = field(default_factory=dict)

    @property
    def headline(self) -> str:
        """The last moment in one line."""
        end = "" if self.status == "complete" else f" ({self.status}{': ' * bool(self.reason)}{self.reason})"
        return f"{self.name}: {self.moments[-1].headline if self.moments else 'nothing measured'}{end}"

    def to_frame(self) -> "pandas.DataFrame":
        """One row per moment."""
        import pandas

        return pandas.DataFrame([_summary(moment) for moment in self.moments])

    def plot(self, ax: "Axes | None" = None) -> "Axes":
        """Curvature by rank at every moment; dashed, what falls as 1/i."""
        ax = axes_or_new(ax)
        for moment in self.moments:
            shown = [level for level in moment.spectrum if level.curvature > 0]
            ax.plot(
                [level.rank for level in shown], [level.curvature for level in shown], label=f"step {moment.step:,}"
            )
        if self.moments and self.moments[-1].spectrum:
            last = self.moments[-1].spectrum
            at = [level.rank for level in last]
            anchor = min(last, key=lambda level: abs(math.log(level.rank / 30)))
            ax.plot(at, [anchor.curvature * anchor.rank / rank for rank in at], "--", color="0.5", label="1/i")
        ax.set(xscale="log", yscale="log", xlabel="rank i", ylabel="curvature")
        ax.legend()
        return ax

    def as_document(self) -> dict[str, Any]:
        """For JSON: what `save` writes and `--json` prints."""
        return {
            "format": _FORMAT,
            "name": self.name,
            "status": self.status,
            "reason": self.reason,
            "declaration": dict(self.declaration),
            "moments": [moment.as_document() for moment in self.moments],
            "loss_curve": [list(point) for point in self.loss_curve],
            "top_curvatures": [list(point) for point in self.top_curvatures],
            "versions": dict(self.versions),
        }

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the file in one go: whoever looks sees the old one or the new one."""
        target = require_path("path", path)
        text = json.dumps(self.as_document(), indent=None, separators=(",", ":"), allow_nan=False) + "\n"
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            beside = target.with_name(f".{target.name}.{os.getpid()}")
            beside.write_text(text, encoding="utf-8")
            os.replace(beside, target)
        except OSError as error:
            raise BatchlensError(f"{target} cannot be written ({error.strerror}).") from None


def read_measurement(path: str | os.PathLike[str]) -> Measurement:
    """What was measured, from the file that `Measurement.save` or `batchlens measure --out` wrote; needs no torch.

    Arguments:
        path: of the file.

    >>> import tempfile
    >>> import batchlens as bl
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     bl.Measurement((), "nothing").save(f"{folder}/nothing.json")
    ...     bl.read_measurement(f"{folder}/nothing.json")
    <Measurement: nothing: nothing measured>
    """
    source = require_path("path", path)
    try:
        document = json.loads(source.read_text(encoding="utf-8"))
    except OSError as error:
        raise BatchlensError(f"{source} cannot be read ({error.strerror}).") from None
    except ValueError:
        raise BatchlensError(f"{source} is not a measurement: it is not JSON.") from None
    if not isinstance(document, dict) or "moments" not in document or document.get("format") != _FORMAT:
        raise BatchlensError(f"{source} is not a measurement of format {_FORMAT}, as `batchlens measure` writes it.")
    try:
        return Measurement(
            tuple(Moment.from_document(moment) for moment in document["moments"]),
            document["name"],
            document["declaration"],
            document["status"],
            document["reason"],
            _points(document["loss_curve"]),
            _points(document.get("top_curvatures", ())),
            document["versions"],
        )
    except (KeyError, TypeError, ValueError) as error:
        raise BatchlensError(f"{source} is a damaged measurement ({type(error).__name__}: {error}).") from None


def _points(rows: Sequence[Sequence[float]]) -> tuple[tuple[int, float], ...]:
    return tuple((int(step), float(value)) for step, value in rows)


def _summary(moment: Moment) -> dict[str, Any]:
    """A moment's numbers, without lists."""
    pairs = {
        name: getattr(moment, name)
        for name in ("top_curvature", "curvature_trace", "gradient_variance", "squared_gradient")
    }
    row: dict[str, Any] = {"step": moment.step, "loss": moment.loss, "examples": moment.examples}
    row["positions"] = moment.positions
    for name, estimate in pairs.items():
        row |= {name: estimate.value, f"{name}_error": estimate.standard_error}
    for name in ("noise_scale", "curvature_noise_scale"):
        ratio: Ratio = getattr(moment, name)
        low, high = ratio.interval or (None, None)
        row |= {name: ratio.value, f"{name}_low": low, f"{name}_high": high}
    compared = moment.comparison
    for name in ("slope", "correlation", "ratio"):
        row[f"variance_{name}"] = None if compared is None else getattr(compared, name)
    return row
