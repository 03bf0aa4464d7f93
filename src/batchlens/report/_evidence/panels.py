"""The networks' figures: theory and networks side by side, then those of every sweep."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import pandas as pd

from batchlens.report._evidence.figures import (
    RATES,
    averaging_ratio_data,
    bounded_words,
    draw_averaging_ratio,
    draw_predicted,
    draw_rates_apart,
    draw_side_by_side,
    draw_with_and_without,
    rates_side_by_side_data,
    side_by_side_data,
    without_bounds,
)
from batchlens.report._evidence.predictions import READ_AT, doubts_words, predicted_data
from batchlens.report._evidence.reading import Evidence
from batchlens.report._evidence.tables import theory_ratio, times_words
from batchlens.report._page.records import PanelPlan
from batchlens.report._sweep import figures, thresholds
from batchlens.report._sweep.page import target_words
from batchlens.report._theory.study import Study
from batchlens.sweep.results import SweepResult

PART = "Networks"
_FIRST = 12  # the number of the networks' first figure
_LEAST_SIZES = 3  # fewer batch sizes have no critical one, and their learning rates no course
_CRITICAL = (
    "Triangles: critical batch sizes by fit, where they are no bounds. Marks at one batch size are drawn side by side."
)
_TOO_FEW = "There are too few batch sizes for a critical one."
_OPEN = " An arrow: a seed missed the target, and the mark below it is a lower bound."


def plan_network_panels(study: Study, evidence: Evidence) -> Iterator[tuple[PanelPlan[Any], pd.DataFrame]]:
    """The figures for which there are numbers, each with its numbers."""
    if not evidence.measured:
        return
    for letter, plan in zip("abc", _together(study, evidence.measured), strict=False):
        yield _with_data(replace(plan, number=f"{_FIRST}{letter}"), None)
    headings = headings_of(evidence.measured)
    for number, (name, sweep) in enumerate(evidence.measured.items(), start=_FIRST + 1):
        plans = _plans(name, sweep, evidence.predictions.get(name, {"curves": []}), headings[name])
        shown = [_with_data(plan, sweep) for plan in plans]
        for letter, (plan, frame) in zip("abcdefghij", [pair for pair in shown if len(pair[1])], strict=False):
            yield replace(plan, number=f"{number}{letter}", title=_title_of(name, plan.title)), frame


def _title_of(sweep: str, title: str) -> str:
    """As it is read away from its heading, in the table of contents."""
    return f"{sweep}: {title[0].lower()}{title[1:]}"


def _beyond_words(study: Study) -> str:
    """Where the theory's curves bend, which lies beyond axes that have room for networks."""
    ratios = {name: theory_ratio(study, name) for name in ("momentum", "adam", "kfac")}
    told = [f"{name} at {times_words(ratio)}" for name, ratio in ratios.items() if ratio is not None]
    return f" Its critical batch sizes lie far to the right: {', '.join(told)} SGD's." if told else ""


def _together(study: Study, sweeps: Mapping[str, SweepResult]) -> list[PanelPlan[Any]]:
    """Theory and networks with the same axes."""
    again = f"{bounded_words(sweeps)} Measured again by: make evidence INTO=again."
    return [
        PanelPlan(
            "",
            "Theory and networks",
            "figures 3 and 5",
            "Steps against batch size, each in units of SGD's own critical batch size and fewest steps, so that all "
            "pictures have the same axes; networks with 90% intervals. In theory Adam is preconditioning with power "
            f"0.5 and K-FAC with 0.75.{_beyond_words(study)}" + again,
            "networks",
            lambda _: side_by_side_data(study, sweeps),
            draw_side_by_side,
            part=PART,
        ),
        PanelPlan(
            "",
            "Learning rates in theory and on networks",
            "figures 5 and 7",
            "Effective learning rates of SGD and momentum against batch size, in units of SGD's own critical batch "
            "size and of its rate at the largest batch size that it has. Dotted: proportional to the batch size. Bars: "
            "rates of all tries that fresh seeds cannot tell from the chosen one." + again,
            "network-rates",
            lambda _: rates_side_by_side_data(study, sweeps),
            partial(draw_side_by_side, side=RATES),
            part=PART,
        ),
    ]


def _with_data(plan: PanelPlan[Any], source: Any) -> tuple[PanelPlan[Any], pd.DataFrame]:
    """A figure with its numbers, and with a word on arrows where it has some."""
    frame = plan.data(source)
    return replace(plan, caption=plan.caption + _OPEN * figures.has_open_bars(frame)), frame


def headings_of(sweeps: Mapping[str, SweepResult]) -> dict[str, str]:
    """The workload of each, and where two sweeps share it their names and sizes."""
    workloads = Counter(sweep.declaration.workload for sweep in sweeps.values())
    headings = {}
    for name, sweep in sweeps.items():
        declaration = sweep.declaration
        which = f" ({name}, {declaration.size} size)" if workloads[declaration.workload] > 1 else ""
        headings[name] = f"{PART}: {declaration.workload}{which}"
    return headings


def _plans(name: str, sweep: SweepResult, prediction: Mapping[str, Any], part: str) -> list[PanelPlan[SweepResult]]:
    """Of one sweep; averaged optimizers have a figure of their own, and few batch sizes their steps only."""
    optimizers, target = sweep.declaration.optimizers, target_words(sweep.declaration)
    again = f" Measured again by: make evidence SWEEP={name} INTO=again."
    few = len(sweep.declaration.batch_sizes) < _LEAST_SIZES
    steps = PanelPlan[SweepResult](
        "",
        f"Steps to {target}",
        "figure 5" if sweep.declaration.target_on == "validation" else "figure 8",
        "Every optimizer tuned at every batch size; geometric means over fresh seeds, with 90% intervals. Dotted: "
        f"perfect scaling. {_TOO_FEW if few else _CRITICAL}{again}",
        f"{name}-steps",
        figures.steps_alone_data if few else partial(without_bounds, figures.plain_steps_data),
        partial(figures.draw_sweep_steps, optimizers=optimizers),
        part=part,
    )
    if few:
        return [steps]
    return [
        steps,
        PanelPlan(
            "",
            "Predicted from one run",
            "",
            "Lines with 90% bands are predicted from one run with plain SGD and what was measured on it; stars, joined "
            "by thin lines, are what the sweep measured. SGD, momentum and K-FAC are drawn, others are in the numbers."
            f"{doubts_words(prediction)} {READ_AT} Again by: make predictions SWEEP={name}.",
            f"{name}-predicted",
            partial(predicted_data, prediction),
            draw_predicted,
            part=part,
        ),
        PanelPlan(
            "",
            "With and without averaging",
            "figure 6",
            "An exponential moving average of the weights (dashed, hollow) and the weights themselves (solid), each "
            "with its own best settings; 90% intervals. Dotted: perfect scaling. Triangles: critical batch sizes by "
            "fit, where they are no bounds." + again,
            f"{name}-averaged-steps",
            partial(without_bounds, figures.averaging_data),
            partial(draw_with_and_without, optimizers=optimizers),
            part=part,
        ),
        PanelPlan(
            "",
            "What averaging saves",
            "figure 6",
            "Steps of the chosen average of the weights over those of the plain winner, paired by fresh seed, with 90% "
            "intervals from resampling the seeds: below 1 averaging saves steps. Where a seed missed the target, a bar "
            "may leave the picture." + again,
            f"{name}-averaging",
            averaging_ratio_data,
            partial(draw_averaging_ratio, optimizers=optimizers),
            part=part,
        ),
        PanelPlan(
            "",
            "Best learning rates",
            "figure 7",
            "Of the chosen settings, without averaging (with it in the numbers). Bars: rates of all tries that fresh "
            "seeds cannot tell from the chosen one, as optima are flat; flattest for K-FAC, which is drawn apart: its "
            "KL clip sets the length of a step." + again,
            f"{name}-rates",
            figures.sweep_rates_data,
            partial(draw_rates_apart, optimizers=optimizers, column="learning_rate"),
            part=part,
        ),
        PanelPlan(
            "",
            "Best effective learning rates",
            "figure 7",
            "Learning rates of the chosen settings divided by 1 - momentum where momentum adds gradients up; bars as "
            "before." + again,
            f"{name}-rates",
            figures.sweep_rates_data,
            partial(draw_rates_apart, optimizers=optimizers, column="effective_learning_rate"),
            part=part,
        ),
        PanelPlan(
            "",
            "Measured on the other set",
            "figure 8" if sweep.declaration.target_on == "validation" else "figure 5",
            "Steps of the same runs to a target on the other set; settings were tuned for the main target. A gap: "
            "fewer than three seeds met it." + again,
            f"{name}-other-set",
            thresholds.other_set_data,
            partial(thresholds.draw_other_set, optimizers=optimizers),
            part=part,
        ),
        PanelPlan(
            "",
            "Easier and harder targets",
            "appendix E",
            "The same runs, other thresholds on the same set, from the easiest (light) to the hardest (dark). Only the "
            "main target was tuned for. A gap: fewer than three seeds met it. Other optimizers are in the numbers."
            + again,
            f"{name}-thresholds",
            thresholds.thresholds_data,
            thresholds.draw_thresholds,
            part=part,
        ),
    ]
