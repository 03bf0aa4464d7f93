"""The page about measured curvature."""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pandas as pd

from batchlens import __version__
from batchlens.curvature.measurement import Measurement, Moment
from batchlens.report._curvature import figures
from batchlens.report._curvature.claims import judge_measurement
from batchlens.report._page.folder import draw_panel, staged, write_panel
from batchlens.report._page.frame import Section, frame_page, render_claims, render_table, summarise
from batchlens.report._page.numbers import csv_of, stack
from batchlens.report._page.records import PanelPlan, Progress, say_nothing

_LEAD = (
    "The noisy quadratic stands for a network by its curvature and its gradient noise. Here both are measured on real "
    "networks along their training: the largest eigenvalue by Lanczos, traces with their errors, and curvature and "
    "variance of the gradient in every direction of a Kronecker eigenbasis.\n\n"
    "The Gauss-Newton (Fisher) matrix stands for curvature. The basis sees a largest curvature below the true top "
    "eigenvalue: stability limits come from the latter only."
)
_PLANS: tuple[PanelPlan[Measurement], ...] = (
    PanelPlan("", "Spectrum over training", "appendix, eigenspectra",
              "Curvature by rank in the Kronecker eigenbasis; dashed, what falls as 1/i.", "spectra",
              figures.spectra_data, figures.draw_spectra),
    PanelPlan("", "Exponent by decade of rank", "appendix, comparison with 1/i",
              "Slope of log curvature over log rank within decades of ranks; dashed, 1/i. Decades are shown as far as "
              "curvature is above a millionth of the largest.", "decades", figures.decades_data, figures.draw_decades),
    PanelPlan("", "Variance against curvature", "appendix, C = H",
              "Each dot is a direction of the Kronecker eigenbasis, before and at the end of training; dashed, C = H. "
              "Slope and correlation are of logarithms, over all directions; the ratio is that of the traces. Of a "
              "sequence, whose loss is a mean over positions, variance and ratio are times their number.",
              "scatter", figures.scatter_data, figures.draw_scatter),
    PanelPlan("", "Second moment against variance", "appendix, second moment against variance",
              "The same directions; dashed, where they are equal. What the second moment has beyond the variance is "
              "the square of the mean gradient.", "scatter", figures.scatter_data, figures.draw_second_moments),
    PanelPlan("", "Noise scales", "",
              "B_simple is tr C / |G|^2, B_noise is tr(HC) / G'HG; vertical lines are 90% intervals.", "noise",
              figures.noise_data, figures.draw_noise),
    PanelPlan("", "Curvature, noise and loss", "",
              "Top curvature and traces with 90% intervals (of a sample of examples; of random probes alone for the "
              "trace of curvature), the largest curvature that the Kronecker eigenbasis sees, and the loss.", "sizes",
              figures.sizes_data, figures.draw_sizes),
    PanelPlan("", "Density of eigenvalues", "",
              "By stochastic Lanczos quadrature, under a window of 0.2 decades; the band is the last moment's 90% "
              "interval over probes.", "density", figures.density_data, figures.draw_density),
)  # fmt: skip


def write_curvature_report(measurements: Sequence[Measurement], out: Path, progress: Progress = say_nothing) -> None:
    """Write the page about one or several networks into a folder."""
    started = time.perf_counter()
    with staged(out) as folder:
        plans = list(plan_panels(measurements))
        panels = []
        for plan, frame in plans:
            panels.append(write_panel(plan, frame, *draw_panel(plan, frame), folder))
            progress(len(panels), len(plans), plan.title)
        claims = [claim for measurement in measurements for claim in judge_measurement(measurement)]
        moments = [found.to_frame().assign(network=found.name) for found in measurements if found.moments]
        if moments:
            (folder / "moments.csv").write_text(csv_of(stack(moments)), encoding="utf-8")
        sections = [Section("claims", "Claims", render_claims(claims))] if claims else []
        sections.append(Section("moments", "Every moment", _moments_table(measurements)))
        page = frame_page(
            "What does the loss surface of real networks look like?",
            _LEAD,
            summarise(claims) if claims else "; ".join(found.headline for found in measurements),
            sections,
            panels,
            _parameters(measurements),
            {**(measurements[0].versions if measurements else {}), "this report": f"batchlens {__version__}"},
            time.perf_counter() - started,
        )
        (folder / "index.html").write_text(page, encoding="utf-8")


def is_measurement(path: Path) -> bool:
    """Whether a file looks like one: JSON, which a sweep's store is not."""
    with suppress(OSError), path.open("rb") as file:
        return file.read(1) == b"{"
    return False


def plan_panels(measurements: Sequence[Measurement]) -> Iterator[tuple[PanelPlan[Measurement], pd.DataFrame]]:
    """The figures for which there are numbers, each with its numbers."""
    number = 0
    for measurement in measurements:
        for plan in _PLANS:
            frame = plan.data(measurement)
            if len(frame):
                number += 1
                title, numbers = f"{measurement.name}: {plan.title}", f"{measurement.name}-{plan.numbers}"
                yield replace(plan, number=str(number), title=title, numbers=numbers), frame


def _moments_table(measurements: Sequence[Measurement]) -> str:
    heads = (
        *("network", "step", "loss", "top curvature", "its halves", "trace of curvature", "trace of covariance"),
        *("B_simple", "B_noise", "slope", "correlation", "ratio"),
    )
    rows = [_row(found.name, moment) for found in measurements for moment in found.moments]
    return render_table("Every moment", "moments", heads, rows)


def _row(name: str, moment: Moment) -> list[str]:
    compared = moment.comparison
    shown = ("", "", "") if compared is None else (compared.slope, compared.correlation, moment.size_ratio)
    return [
        name,
        f"{moment.step:,}",
        f"{moment.loss:.3g}",
        str(moment.top_curvature),
        ", ".join(f"{half:.3g}" for half in moment.top_halves),
        str(moment.curvature_trace),
        str(moment.gradient_variance),
        str(moment.noise_scale),
        str(moment.curvature_noise_scale),
        *(value if isinstance(value, str) else f"{value:.2f}" for value in shown),
    ]


def _parameters(measurements: Sequence[Measurement]) -> dict[str, str]:
    rows = {}
    for found in measurements:
        rows[found.name] = _declared(found)
        if found.moments and found.moments[-1].left_out:
            rows[f"{found.name}, not in the Kronecker eigenbasis"] = _left_out(found.moments[-1].left_out)
    return rows


def _left_out(reasons: Mapping[str, str]) -> str:
    """Parameters by the reason why they are left out."""
    names: dict[str, list[str]] = {}
    for name, reason in reasons.items():
        names.setdefault(reason, []).append(name)
    return "; ".join(f"{reason}: {', '.join(some)}" for reason, some in names.items())


def _declared(found: Measurement) -> str:
    declared = {name: value for name, value in found.declaration.items() if name not in ("workload", "source")}
    words = [f"{name.replace('_', ' ')} {_value(value)}" for name, value in declared.items() if value not in ("", None)]
    return ", ".join(words) or f"{found.moments[-1].examples if found.moments else 0:,} examples"


def _value(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {part:g}" for name, part in value.items())
    return f"{value:g}" if isinstance(value, float) else str(value)
