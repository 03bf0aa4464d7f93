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
from batchlens.report._page.critical import critical_rows, critical_section, estimate_words
from batchlens.report._page.folder import draw_panel, staged, write_panel
from batchlens.report._page.frame import Badge, Cell, Section, frame_page, render_table
from batchlens.report._page.numbers import csv_of, frame_of
from batchlens.report._page.records import PanelPlan, Progress, say_nothing
from batchlens.report._sweep import figures
from batchlens.sweep._curves import MeasuredCell, MeasuredCurve
from batchlens.sweep._declaration import Declaration
from batchlens.sweep._trial import Status
from batchlens.sweep.results import SweepResult

_UNFINISHED = Badge("limit", "unfinished")
_INTERVALS = {
    "sobol": "In brackets: 95% intervals, from resampling the trials of every search; a ? stands for an end that the "
    "trials do not limit. They show how much the luck of the search matters, not the luck of the seed.",
    "guided": "In brackets: 95% intervals, from the scatter of the fresh seeds; a ? stands for an end that they do not "
    "limit. They show how much the luck of the seed matters, not that of the search.",
}
_FASTEST = (
    " Fastest: the batch size with the least seconds to the target, in brackets those that cannot be told from it."
)
_CELLS = {
    "sobol": "The trial with the fewest steps wins. The best of resampled trials can only be slower, so intervals of "
    "steps begin at the steps found.",
    "guided": "Steps are the geometric mean over fresh seeds of the setting that was chosen; these had no part in the "
    "choice. The 90% interval is that of the mean, by Student's distribution. The search minimum is the fewest "
    "steps of any one run of the search: it is the paper's protocol, and low by luck. Weights are those that count: "
    "plain, or an average by its coefficient, or by its window as a part of the run.",
}


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
            found = figures.averaging_words(frame) if plan.numbers == "averaging" else ""
            yield replace(plan, number=str(number), caption=plan.caption + found + _unfinished_caption(frame)), frame


def _unfinished_caption(frame: pd.DataFrame) -> str:
    """Which numbers of a figure may still change, or nothing."""
    points = frame[frame["kind"] == "measured"] if "kind" in frame else frame
    searches = points[["optimizer", "batch_size", "complete"]].drop_duplicates()
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
    optimizers, words = declaration.optimizers, _CAPTIONS[declaration.search]
    return [
        PanelPlan(
            "",
            "Steps to the target",
            "figure 5" if declaration.target_on == "validation" else "figure 8",
            f"Each optimizer tuned at each batch size. {words['steps']} A cross at the step budget is a search in "
            "which no trial reached the target.",
            "steps",
            figures.sweep_steps_data,
            partial(figures.draw_sweep_steps, optimizers=optimizers),
        ),
        *(
            PanelPlan(
                "",
                f"Fitted curves{words_of_averaging}",
                "",
                "The line is the fitted curve, its sharpness fitted too; the band is its 95% interval. Dotted: perfect "
                "scaling, where twice the batch takes half the steps. Vertical lines are critical batch sizes by fit, "
                "the bars at the upper edge their 95% intervals. A cross at the lower edge: no trial reached the "
                "target.",
                f"fitted{'-averaged' * with_averaging}",
                partial(figures.fitted_data, with_averaging=with_averaging),
                partial(figures.draw_fitted, optimizers=optimizers),
            )
            for with_averaging, words_of_averaging in _AVERAGING
        ),
        *(
            PanelPlan(
                "",
                f"Time to the target{words_of_averaging}",
                "",
                "Steps times the seconds of a step in the sweep, evaluations included; runs that shared a machine "
                "slowed each other. The line is the fitted curve in seconds, with the 95% interval of its steps. "
                "Vertical lines are the fastest batch sizes, the bars above them those that cannot be told from them.",
                f"seconds{'-averaged' * with_averaging}",
                partial(figures.times_data, with_averaging=with_averaging),
                partial(figures.draw_sweep_times, optimizers=optimizers),
            )
            for with_averaging, words_of_averaging in _AVERAGING
        ),
        PanelPlan(
            "",
            "Averaging",
            "figure 6",
            "With an exponential moving average of the weights (dashed, dotted where momentum was taken away) and "
            "without (solid, dash-dotted). In theory averaging saves steps at small batches and none at large ones.",
            "averaging",
            figures.averaging_data,
            partial(figures.draw_sweep_steps, optimizers=optimizers),
        ),
        PanelPlan(
            "",
            "Optimal learning rate",
            "figure 7",
            "The winners' learning rate, divided by 1 - momentum where momentum adds gradients up (momentum, nesterov, "
            "kfac); Adam's and Muon's momentum is a mean of gradients and leaves the rate as it is. "
            "Bars: rates of all tries that fresh seeds cannot tell from the winner, where there are some. "
            f"{words['edges']}",
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
            words["repeats title"],
            "",
            words["repeats"],
            "repeats",
            figures.repeats_data,
            partial(figures.draw_repeats, optimizers=optimizers),
        ),
    ]


# Figures with many curves are made twice: of optimizers without averaging, and of those with it.
_AVERAGING = ((False, ""), (True, ", weights averaged"))
_CAPTIONS = {
    "sobol": {
        "steps": "Vertical lines are 95% intervals, from resampling the trials.",
        "edges": "Ringed where a setting of the winner is near an end of its range.",
        "repeats title": "Winners with other seeds",
        "repeats": "The winners' steps (lines), and those of the same settings with other seeds (hollow markers). A "
        "winner was lucky where most of its repeats are slower; repeats that missed the target are not drawn.",
    },
    "guided": {
        "steps": "Steps are the geometric mean over fresh seeds of the setting that the search chose; vertical lines "
        "are 90% intervals of that mean.",
        "edges": "Ringed where a setting has left its range as far as a search may.",
        "repeats title": "The seeds behind the means",
        "repeats": "The means that are reported (lines), and the single seeds behind them (hollow markers); seeds that "
        "missed the target are not drawn.",
    },
}


def critical_data(sweep: SweepResult) -> pd.DataFrame:
    """The critical batch size of every optimizer by each definition, with the interval's ends."""
    return frame_of(
        {**row, "complete": is_complete(curve)}
        for curve in sweep.measured
        for row in critical_rows(curve.optimizer, curve.estimates)
    )


def title_of(sweep: SweepResult) -> str:
    """The question that the sweep answers."""
    return f"How large a batch can {sweep.declaration.workload} use, and with which optimizer?"


def is_complete(curve: MeasuredCurve) -> bool:
    """Whether every search of the optimizer has all its trials."""
    return all(cell.result.complete for cell in curve.cells)


def curve_words(curve: MeasuredCurve) -> list[str]:
    """The critical batch size by each definition: "657 (310 to 1,200)", and whether it may still change."""
    words = map(estimate_words, curve.estimates)
    return [word if is_complete(curve) else f"{word}, unfinished" for word in words]


def steps_words(steps: float) -> str:
    """Steps, of means and crossings to one decimal below 100.

    >>> steps_words(1234), steps_words(34.06), steps_words(1234.5)
    ('1,234', '34.1', '1,234')
    """
    return f"{steps:,.0f}" if isinstance(steps, int) or steps >= 99.95 else f"{steps:.1f}"


def target_words(declaration: Declaration) -> str:
    """ "0.97 on the validation set", or "a training loss of 0.1"."""
    if declaration.target_on == "train-loss":
        return f"a training loss of {declaration.target:g}"
    return f"{declaration.target:g} on the {'training' if declaration.target_on == 'train' else 'validation'} set"


def settings_words(settings: Mapping[str, float]) -> str:
    """ "momentum 0.9, averaging 0.99"."""
    return ", ".join(f"{name} {value:.4g}" for name, value in settings.items())


def _lead(sweep: SweepResult) -> str:
    declaration = sweep.declaration
    part = f" This is shard {sweep.shard} only: its winners are not yet those of the sweep." if sweep.shard else ""
    unfinished = "" if sweep.complete or sweep.shard else " The sweep is not finished; what is here may still change."
    lost = f" The store is damaged: {sweep.lost}. This is of the rest." if sweep.lost else ""
    optimizers, sizes = len(declaration.optimizers), len(declaration.batch_sizes)
    return (
        f"{optimizers} optimizer{'s' * (optimizers > 1)} at {sizes} batch size{'s' * (sizes > 1)} on the workload "
        f"{declaration.workload} ({declaration.size} size): for each pair, a {declaration.search} search of "
        f"{declaration.trials} trials for the settings that reach {target_words(declaration)} in the fewest steps."
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
    rows = []
    for curve in sweep.measured:
        words = [*map(estimate_words, curve.estimates), _fewest(curve), _fastest(curve)]
        rows.append([curve.optimizer, *(_marked(word, is_complete(curve)) for word in words)])
    return critical_section(["Fewest steps", "Fastest"], rows, _INTERVALS[sweep.declaration.search] + _FASTEST)


def _fewest(curve: MeasuredCurve) -> str:
    won = [(cell.steps, cell.batch_size) for cell in curve.cells if cell.steps is not None]
    return f"{steps_words(min(won)[0])} at batch size {min(won)[1]:,}" if won else "no winner"


def _fastest(curve: MeasuredCurve) -> str:
    if curve.fastest is None:
        return ""
    low, high = curve.fastest_range or (curve.fastest, curve.fastest)
    return f"{curve.fastest:,}" if low == high else f"{curve.fastest:,} ({low:,.0f} to {high:,.0f})"


def _marked(words: str, complete: bool) -> Cell:
    """A number, and beside it whether it may still change."""
    return words if complete or not words else [words, _UNFINISHED]


def _cells_section(sweep: SweepResult) -> Section:
    guided = sweep.declaration.search == "guided"
    heads = (
        "Optimizer",
        "Batch size",
        "Steps",
        *(("90% interval", "Search minimum", "Weights") if guided else ("95% interval",)),
        "Learning rate",
        "Other settings",
        "Trials",
        "Warnings",
    )
    table = render_table("Every search", "searches", heads, (_cell_row(cell, guided) for cell in sweep.cells))
    remark = f'<p class="remark">{escape(_CELLS[sweep.declaration.search])}</p>'
    return Section("searches", "Searches", "\n".join([table, remark, *_notes(sweep)]))


def _notes(sweep: SweepResult) -> list[str]:
    """What the trials of an optimizer noted, one paragraph per optimizer."""
    return [
        f'<p class="remark"><b>Note on {escape(optimizer)}:</b> {escape("; ".join(some))}</p>'
        for optimizer, some in sweep.notes.items()
        if some
    ]


def _cell_row(cell: MeasuredCell, guided: bool) -> list[Cell]:
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
    if cell.steps is not None:
        steps = _marked(steps_words(cell.steps), complete)
    else:
        steps = Badge("fails", "no winner") if cell.status == "not_reached" else _UNFINISHED
    return [
        cell.result.cell.optimizer,
        f"{cell.batch_size:,}",
        steps,
        _marked("" if cell.interval is None else str(cell.interval), complete),
        *(_beside(cell, complete) if guided else []),
        _marked("" if rate is None else f"{rate:.4g}", complete),
        _marked(others, complete),
        counts,
        "; ".join(cell.result.flags),
    ]


def _beside(cell: MeasuredCell, complete: bool) -> list[Cell]:
    """What stands beside the mean of fresh seeds: the search's own minimum, and whose weights count."""
    reported = cell.result.reported
    if reported is None:
        return ["", ""]
    return [_marked(steps_words(reported.minimum), complete), _marked(reported.weights, complete)]


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
        "target": target_words(declaration) + (", twice in a row" if declaration.confirm_target else ""),
        "search": declaration.search,
        "trials per search": str(declaration.trials),
        **_protocol(declaration),
        "seed": str(declaration.seed),
        "step budgets": ", ".join(f"{budget:,} at {size:,}" for size, budget in budgets.items()),
        "trials in all": f"{sweep.ended:,}{so_far}",
        "steps in all": f"{sweep.steps:,}{so_far}",
        "steps saved by pruning": f"at most {saved:,}: what was left of the step budgets{so_far}" if saved else "none",
        "time of all trials": f"{sweep.seconds:,.0f} s{so_far}",
        **spaces,
    }


def _protocol(declaration: Declaration) -> dict[str, str]:
    """What only one kind of search has."""
    if declaration.search == "sobol":
        return {"trials known exactly (keep)": str(declaration.keep)}
    also = {"targets noted on the way": ", ".join(declaration.also_targets)} if declaration.also_targets else {}
    return {"fresh seeds per search": str(declaration.seeds), **also}
