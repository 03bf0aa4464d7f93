"""The report on a sweep: curves, best settings and warnings, in one folder."""

import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from html import escape
from pathlib import Path
from typing import get_args

import pandas as pd

from batchlens import __version__
from batchlens.report._page.folder import draw_panel, staged, write_panel
from batchlens.report._page.frame import Badge, Cell, Section, frame_page, render_table
from batchlens.report._page.numbers import csv_of, frame_of
from batchlens.report._page.records import PanelPlan, Progress, say_nothing
from batchlens.report._sweep import figures
from batchlens.scaling._intervals import Interval
from batchlens.sweep._curves import MeasuredCell, MeasuredCurve
from batchlens.sweep._declaration import Declaration
from batchlens.sweep._trial import Status
from batchlens.sweep.results import SweepResult

_UNFINISHED = Badge("limit", "unfinished")
_DEFINITIONS = (
    "Critical batch size: up to where a larger batch saves steps. Knee: where perfect scaling and the plateau meet. "
    "Overhead: the largest batch that costs at most 20% more examples than perfect scaling. Fit: B_crit of "
    "steps = S_min (1 + B_crit / B). In brackets: 95% intervals, from resampling the trials of every search; "
    "a ? stands for an end that the trials do not limit. They show how much the luck of the search matters, not the "
    "luck of the seed."
)
_CELLS = (
    "The trial with the fewest steps wins. The best of resampled trials can only be slower, so intervals of steps "
    "begin at the steps found."
)


def write_sweep_report(sweep: SweepResult, out: Path, progress: Progress = say_nothing) -> None:
    """Write the report on a sweep into a folder.

    Nothing changes there before everything is written beside it; then files of an earlier report are replaced.
    """
    started = time.perf_counter()
    with staged(out) as folder:
        panels = []
        plans = list(plan_panels(sweep))
        for plan, frame in plans:
            panels.append(write_panel(plan, frame, *draw_panel(plan, frame), folder))
            progress(len(panels), len(plans), plan.title)
        (folder / "critical.csv").write_text(csv_of(critical_data(sweep)), encoding="utf-8")
        page = frame_page(
            title_of(sweep),
            _lead(sweep),
            _summary(sweep),
            [_critical_section(sweep)],
            panels,
            _parameters(sweep),
            {**sweep.versions, "this report": f"batchlens {__version__}"},
            time.perf_counter() - started,
            appendix=[_cells_section(sweep)],
        )
        (folder / "index.html").write_text(page, encoding="utf-8")


def plan_panels(sweep: SweepResult) -> Iterator[tuple[PanelPlan[SweepResult], pd.DataFrame]]:
    """The figures for which the sweep has numbers, each with its numbers."""
    number = 0
    for plan in _plans(sweep.declaration):
        frame = plan.data(sweep)
        if len(frame):
            number += 1
            yield replace(plan, number=str(number), caption=plan.caption + _unfinished_caption(frame)), frame


def _unfinished_caption(frame: pd.DataFrame) -> str:
    """Which numbers of a figure may still change, or nothing."""
    searches = frame[["optimizer", "batch_size", "complete"]].drop_duplicates()
    unfinished = searches[~searches["complete"]]
    if unfinished.empty:
        return ""
    names = ", ".join(dict.fromkeys(unfinished["optimizer"]))
    return (
        f" Unfinished: {len(unfinished)} of the {len(searches)} searches behind these numbers still lack trials "
        f"({names}), and theirs may change."
    )


def _plans(declaration: Declaration) -> list[PanelPlan[SweepResult]]:
    # All figures know all optimizers, so that each looks the same in every one.
    optimizers = declaration.optimizers
    return [
        PanelPlan(
            "",
            "Steps to the target",
            "figure 8" if declaration.target_on == "train" else "figure 5",
            "Each optimizer tuned at each batch size. Vertical lines are 95% intervals, from resampling the trials; "
            "a cross at the step budget is a search in which no trial reached the target.",
            "steps",
            figures.sweep_steps_data,
            partial(figures.draw_sweep_steps, optimizers=optimizers),
        ),
        PanelPlan(
            "",
            "Averaging",
            "figure 6",
            "With an exponential moving average of the weights (dashed) and without (solid). In theory it saves steps "
            "at small batches and nothing at large ones.",
            "averaging",
            figures.averaging_data,
            partial(figures.draw_sweep_steps, optimizers=optimizers),
        ),
        PanelPlan(
            "",
            "Optimal learning rate",
            "figure 7",
            "The winners' learning rate, divided by 1 - momentum where momentum adds gradients up (momentum, nesterov, "
            "kfac); Adam's and Muon's momentum is a mean of gradients and leaves the rate as it is. Ringed where a "
            "setting of the winner is near an end of its range.",
            "learning-rates",
            figures.sweep_rates_data,
            partial(figures.draw_sweep_rates, optimizers=optimizers),
        ),
        PanelPlan(
            "",
            "How much the number of trials matters",
            "",
            "Expected steps of the best of n trials, drawn at random from those of the search. A line that still falls "
            "at its end asks for more trials; it begins where nine of ten draws are known to reach the target.",
            "best-of",
            figures.best_of_data,
            partial(figures.draw_best_of, optimizers=optimizers),
        ),
        PanelPlan(
            "",
            "Winners with other seeds",
            "",
            "The winners' steps (lines), and those of the same settings with other seeds (hollow markers). A winner "
            "was lucky where most of its repeats are slower; repeats that missed the target are not drawn.",
            "repeats",
            figures.repeats_data,
            partial(figures.draw_repeats, optimizers=optimizers),
        ),
    ]


def critical_data(sweep: SweepResult) -> pd.DataFrame:
    """The critical batch size of every optimizer by each definition, with the interval's ends."""
    return frame_of(
        {
            "optimizer": curve.optimizer,
            **found._asdict(),
            "low": None if interval is None else interval.low,
            "high": None if interval is None else interval.high,
            "complete": is_complete(curve),
        }
        for curve in sweep.measured
        for found, interval in curve.estimates
    )


def title_of(sweep: SweepResult) -> str:
    """The question that the sweep answers."""
    return f"How large a batch can {sweep.declaration.workload} use, and with which optimizer?"


def is_complete(curve: MeasuredCurve) -> bool:
    """Whether every search of the optimizer has all its trials."""
    return all(cell.result.complete for cell in curve.cells)


def estimate_words(curve: MeasuredCurve) -> list[str]:
    """The critical batch size by each definition: "657 (310 to 1,200)", and whether it may still change."""
    return [words if is_complete(curve) else f"{words}, unfinished" for words in _estimates(curve)]


def _estimates(curve: MeasuredCurve) -> list[str]:
    unlimited = Interval(None, None)
    return [
        str(found) if found.value is None else f"{found} ({interval or unlimited})"
        for found, interval in curve.estimates
    ]


def settings_words(settings: Mapping[str, float]) -> str:
    """ "momentum 0.9, averaging 0.99"."""
    return ", ".join(f"{name} {value:.4g}" for name, value in settings.items())


def _lead(sweep: SweepResult) -> str:
    declaration = sweep.declaration
    where = "training" if declaration.target_on == "train" else "validation"
    part = f" This is shard {sweep.shard} only: its winners are not yet those of the sweep." if sweep.shard else ""
    unfinished = "" if sweep.complete or sweep.shard else " The sweep is not finished; what is here may still change."
    lost = f" The store is damaged: {sweep.lost}. This is of the rest." if sweep.lost else ""
    optimizers, sizes = len(declaration.optimizers), len(declaration.batch_sizes)
    return (
        f"{optimizers} optimizer{'s' * (optimizers > 1)} at {sizes} batch size{'s' * (sizes > 1)} on the workload "
        f"{declaration.workload} ({declaration.size} size): for each pair, a search of {declaration.trials} trials for "
        f"the settings that reach {declaration.target:g} on the {where} set in the fewest steps."
        f"{part}{unfinished}{lost}"
    )


def _summary(sweep: SweepResult) -> str:
    cells = sweep.cells
    done = sum(cell.result.complete for cell in cells)
    won = sum(cell.steps is not None for cell in cells)
    flagged = sum(bool(cell.result.flags) for cell in cells)
    unfinished = "" if sweep.complete else " Numbers of the others are marked as unfinished."
    return (
        f"{done} of {len(cells)} searches are complete, {won} {'has' if won == 1 else 'have'} a winner, "
        f"{flagged} {'has' if flagged == 1 else 'have'} warnings.{unfinished}"
    )


def _critical_section(sweep: SweepResult) -> Section:
    rows = [
        [curve.optimizer, *(_marked(words, is_complete(curve)) for words in [*_estimates(curve), _fewest(curve)])]
        for curve in sweep.measured
    ]
    heads = ("Optimizer", "Knee", "Overhead", "Fit", "Fewest steps")
    table = render_table("Critical batch size of every optimizer", "critical", heads, rows)
    link = '<p class="files"><span>Numbers: <a href="critical.csv">CSV</a></span></p>'
    return Section("critical", "Critical batch size", f'{table}\n<p class="remark">{escape(_DEFINITIONS)}</p>\n{link}')


def _fewest(curve: MeasuredCurve) -> str:
    won = [(cell.steps, cell.batch_size) for cell in curve.cells if cell.steps is not None]
    return f"{min(won)[0]:,} at batch size {min(won)[1]:,}" if won else "no winner"


def _marked(words: str, complete: bool) -> Cell:
    """A number, and beside it whether it may still change."""
    return words if complete or not words else [words, _UNFINISHED]


def _cells_section(sweep: SweepResult) -> Section:
    heads = (
        "Optimizer",
        "Batch size",
        "Steps",
        "95% interval",
        "Learning rate",
        "Other settings",
        "Trials",
        "Warnings",
    )
    table = render_table("Every search", "searches", heads, map(_cell_row, sweep.cells))
    remark = f'<p class="remark">{escape(_CELLS)}</p>'
    return Section("searches", "Searches", "\n".join([table, remark, *_notes(sweep)]))


def _notes(sweep: SweepResult) -> list[str]:
    """What the trials of an optimizer noted, one paragraph per optimizer."""
    return [
        f'<p class="remark"><b>Note on {escape(optimizer)}:</b> {escape("; ".join(some))}</p>'
        for optimizer, some in sweep.notes.items()
        if some
    ]


def _cell_row(cell: MeasuredCell) -> list[Cell]:
    rate = cell.settings.get("learning_rate")
    others = ", ".join(
        _unbroken(settings_words({name: value})) for name, value in cell.settings.items() if name != "learning_rate"
    )
    statuses = cell.result.statuses
    counts = ", ".join(
        _unbroken(f"{statuses[name]} {name.replace('_', ' ')}") for name in get_args(Status) if name in statuses
    )
    complete = cell.result.complete
    steps: Cell
    if cell.status == "reached":
        steps = _marked(f"{cell.steps:,}", complete)
    else:
        steps = Badge("fails", "no winner") if cell.status == "not_reached" else _UNFINISHED
    return [
        cell.result.cell.optimizer,
        f"{cell.batch_size:,}",
        steps,
        _marked("" if cell.interval is None else str(cell.interval), complete),
        _marked("" if rate is None else f"{rate:.4g}", complete),
        _marked(others, complete),
        counts,
        "; ".join(cell.result.flags),
    ]


def _unbroken(words: str) -> str:
    """Words that stay on one line, such as a setting and its value."""
    return words.replace(" ", "\N{NO-BREAK SPACE}")


def _parameters(sweep: SweepResult) -> dict[str, str]:
    declaration = sweep.declaration
    budgets = dict(sorted(zip(declaration.batch_sizes, declaration.max_steps, strict=True)))
    spaces = {
        f"range of {setting}, {optimizer}": f"{low:g} to {high:g} ({scale.replace('_', ' ')})"
        for optimizer, space in declaration.spaces.items()
        for setting, (low, high, scale) in space.items()
    }
    saved = sweep.steps_saved
    so_far = "" if sweep.complete else " (unfinished)"
    return {
        "file": sweep.name,
        "workload": declaration.workload,
        "size": declaration.size,
        "target": f"{declaration.target:g} on the {declaration.target_on} set",
        "trials per search": str(declaration.trials),
        "trials known exactly (keep)": str(declaration.keep),
        "seed": str(declaration.seed),
        "step budgets": ", ".join(f"{budget:,} at {size:,}" for size, budget in budgets.items()),
        "trials in all": f"{sweep.ended:,}{so_far}",
        "steps in all": f"{sweep.steps:,}{so_far}",
        "steps saved by pruning": f"at most {saved:,}: what was left of the step budgets{so_far}" if saved else "none",
        "time of all trials": f"{sweep.seconds:,.0f} s{so_far}",
        **spaces,
    }
