"""The page about one's own runs: what they say, the curve behind it, and every number."""

import time
from collections.abc import Iterator
from dataclasses import replace
from html import escape
from importlib.metadata import version
from pathlib import Path
from platform import python_version

import pandas as pd

from batchlens import __version__
from batchlens._results import short
from batchlens.report._page.critical import critical_rows, critical_section, estimate_words
from batchlens.report._page.folder import draw_panel, staged, write_panel
from batchlens.report._page.frame import Section, frame_page, render_table
from batchlens.report._page.numbers import csv_of, frame_of, known_rows
from batchlens.report._page.records import PanelPlan, Progress, say_nothing
from batchlens.scaling._figure import draw_steps, draw_times, steps_rows, time_rows
from batchlens.scaling._sentences import best_words
from batchlens.scaling.fitting import Fit, FittedRuns

TITLE = "How large a batch can this training use?"
_INTERVALS = (
    "In brackets: 95% intervals, from resampling the noise of the steps; a ? stands for an end that the runs do not "
    "limit."
)
_NOISE = {
    "repeats": "scatter of runs alike",
    "residuals": "distance of the points from the fitted curve",
    None: "not known: too few runs for intervals",
}
_PLANS: tuple[PanelPlan[Fit], ...] = (
    PanelPlan(
        "",
        "Steps to the target",
        None,
        "Points are the runs, geometric means where there are several. The line is the fitted curve, its sharpness "
        "fitted too, dashed beyond the runs; the band is its 95% interval. Dotted: perfect scaling, where twice the "
        "batch takes half the steps. The vertical line is the critical batch size by fit, the bar above it the 95% "
        "interval. A cross at the lower edge: the target was not reached.",
        "steps",
        lambda fit: frame_of(
            row for entry in fit for row in steps_rows(entry.curve, entry.band, entry.estimate("fit"))
        ),
        lambda ax, frame: draw_steps(ax, known_rows(frame)),
    ),
    PanelPlan(
        "",
        "Time to the target",
        None,
        "The line is the fitted curve times the seconds of a step, read between batch sizes in log-log; the band holds "
        "the noise of the steps, not that of the clock. The vertical line is the fastest batch size, the bar above it "
        "those that the runs cannot tell from it.",
        "seconds",
        lambda fit: frame_of(
            row for entry in fit for row in time_rows(entry.curve, entry.band, entry.seconds, entry.fastest_range)
        ),
        lambda ax, frame: draw_times(ax, known_rows(frame)),
    ),
)


def write_fit_report(fit: Fit, out: Path, progress: Progress = say_nothing) -> None:
    """Write the page about fitted runs into a folder; files of an earlier one are replaced once all is written."""
    started = time.perf_counter()
    with staged(out) as folder:
        plans = list(plan_panels(fit))
        panels = []
        for plan, frame in plans:
            panels.append(write_panel(plan, frame, *draw_panel(plan, frame), folder))
            progress(len(panels), len(plans), plan.title)
        rows = [row for entry in fit for row in critical_rows(entry.optimizer, entry.estimates)]
        for name, frame in (("critical", frame_of(rows)), ("runs", fit.to_frame())):
            (folder / f"{name}.csv").write_text(csv_of(frame), encoding="utf-8")
        page = frame_page(
            TITLE,
            fit.sentence.replace("\n", "\n\n"),
            "",
            [critical_section(["Sharpness a"], [_critical_row(entry) for entry in fit], _INTERVALS)],
            panels,
            _parameters(fit),
            {
                "batchlens": __version__,
                **{name: version(name) for name in ("numpy", "scipy", "matplotlib")},
                "Python": python_version(),
            },
            time.perf_counter() - started,
            appendix=[_runs_section(fit), *_predictions_section(fit)],
        )
        (folder / "index.html").write_text(page, encoding="utf-8")


def plan_panels(fit: Fit) -> Iterator[tuple[PanelPlan[Fit], pd.DataFrame]]:
    """The figures for which the runs have numbers, each with its numbers."""
    number = 0
    for plan in _PLANS:
        frame = plan.data(fit)
        if len(frame):
            number += 1
            yield replace(plan, number=str(number)), frame


def _critical_row(fitted: FittedRuns) -> list[str]:
    sharpness = "unknown"
    if fitted.sharpness is not None:
        value, interval = fitted.sharpness
        sharpness = f"{value:.2f} ({interval or '?'})"
    return [_name(fitted), *map(estimate_words, fitted.estimates), sharpness]


def _runs_section(fit: Fit) -> Section:
    timed = any(seconds is not None for fitted in fit for seconds in fitted.seconds)
    heads = ("Optimizer", "Batch size", "Runs", "Reached", "Steps", "Efficiency", *(["Seconds"] if timed else []))
    rows = [
        [
            _name(fitted),
            f"{short(size):,}",
            str(fitted.runs[place]),
            str(fitted.reached[place]),
            _number(fitted.curve.steps[place]),
            "" if efficiency is None else f"{efficiency:.0%}",
            *([_number(fitted.seconds[place])] if timed else []),
        ]
        for fitted in fit
        for place, (size, efficiency) in enumerate(
            zip(fitted.curve.batch_sizes, fitted.curve.efficiency(), strict=True)
        )
    ]
    table = render_table("Runs at every batch size", "runs", heads, rows)
    remark = (
        '<p class="remark">Efficiency: which part of the examples used perfect scaling would have needed.</p>\n'
        '<p class="files"><span>Numbers: <a href="runs.csv">CSV</a></span></p>'
    )
    best = [f"{_best(fitted, name)}." for fitted in fit for name in ("fastest", "cheapest") if _best(fitted, name)]
    notes = "\n".join(f'<p class="remark">{escape(note)}</p>' for note in (*best, *fit.notes))
    return Section("runs", "Runs", f"{table}\n{notes}\n{remark}")


def _best(fitted: FittedRuns, name: str) -> str:
    """ "sgd: fastest batch size 256 (128 to 512 cannot be told apart)"; nothing where it is not known."""
    size, tied = getattr(fitted, name), getattr(fitted, f"{name}_range")
    return "" if size is None else f"{_name(fitted)}: {name} batch size {best_words(size, tied)}"


def _predictions_section(fit: Fit) -> list[Section]:
    rows = [
        [
            _name(fitted),
            f"{short(entry.batch_size):,}",
            _number(entry.steps),
            "none" if entry.interval is None else str(entry.interval),
            "extrapolated" if entry.extrapolated else "",
        ]
        for fitted in fit
        for entry in fitted.predictions
    ]
    heads = ("Optimizer", "Batch size", "Steps", "95% interval", "")
    return [Section("predictions", "Predictions", render_table("Predicted steps", "runs", heads, rows))] if rows else []


def _parameters(fit: Fit) -> dict[str, str]:
    sizes = sorted({size for fitted in fit for size in fitted.curve.batch_sizes})
    return {
        "runs": f"{sum(sum(fitted.runs) for fitted in fit):,}",
        "of them reached the target": f"{sum(sum(fitted.reached) for fitted in fit):,}",
        "batch sizes": ", ".join(f"{short(size):,}" for size in sizes),
        "noise": "; ".join(dict.fromkeys(_NOISE[fitted.noise] for fitted in fit)),
    }


def _name(fitted: FittedRuns) -> str:
    return fitted.optimizer or "runs"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
