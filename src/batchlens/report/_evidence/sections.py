"""What the page says of networks: verdicts, what contradicts the theory, critical batch sizes, and what it all cost."""

from collections.abc import Iterator, Sequence
from html import escape
from typing import Any

import pandas as pd

from batchlens.report._evidence.beyond import beyond_rows
from batchlens.report._evidence.contradictions import Contradiction
from batchlens.report._evidence.faults import fault_rows
from batchlens.report._evidence.judging import SURE, Item, JudgedClaim, Judgement, count_words
from batchlens.report._evidence.order import find_pairs, order_words, ratio_rows, reversed_rows
from batchlens.report._evidence.predictions import READ_AT, prediction_rows, widths_words
from batchlens.report._evidence.reading import Evidence
from batchlens.report._evidence.repeats import repeat_rows, repeat_words
from batchlens.report._evidence.tables import cost_rows, critical_rows, footnotes, outside_rows, outside_words
from batchlens.report._page.frame import Badge, Cell, Section, render_table
from batchlens.report._page.numbers import frame_of
from batchlens.report._page.records import NOT_MEASURED
from batchlens.report._theory.study import Study

_KINDS = {"holds": "holds", "holds with a limit": "limit", "fails": "fails", NOT_MEASURED: "missing"}


def network_sections(study: Study, evidence: Evidence) -> list[Section]:
    """Verdicts, what contradicts the theory, critical batch sizes and costs."""
    return [
        _claims_section(evidence),
        _contradictions_section(evidence),
        _faults_section(evidence),
        _critical_section(study, evidence),
        _predictions_section(evidence),
        _outside_section(evidence),
        _costs_section(evidence),
    ]


def claims_data(evidence: Evidence) -> pd.DataFrame:
    """Every number that a verdict rests on."""
    return frame_of(
        {
            "claim": claim.name,
            "sweep": place,
            "verdict": judgement.verdict,
            "sureness": judgement.sureness,
            "fragile_seeds": " ".join(map(str, judgement.fragile)),
            "items_measured": judgement.measured,
            "items": judgement.asked,
            "part": item.part,
            "optimizers": " ".join(item.optimizers),
            "part_verdict": item.verdict,
            "part_sureness": item.sureness,
            "sureness_assumed": item.assumed,
            "quantity": quantity,
            "value": found[0],
            "low": found[1],
            "high": found[2],
            "reason": item.reason,
            "warnings": "; ".join(item.warnings),
            "cells": " ".join(f"{optimizer}@{size}" for optimizer, size in item.cells),
        }
        for claim in evidence.claims
        for place, judgement in places(claim)
        for item in judgement.items
        for quantity, found in [*item.values.items(), *([] if item.values else [("", (None, None, None))])]
    )


def places(claim: JudgedClaim) -> Iterator[tuple[str, Judgement]]:
    """Its verdicts with the sweep of each, those of repeats after the ones that they repeat."""
    for judgement in claim.judgements:
        yield judgement.sweep, judgement
        for again in claim.again:
            if again.sweep == judgement.sweep:
                yield f"{again.sweep}, again", again


def summary_words(evidence: Evidence) -> str:
    """How many claims hold on networks, in sentences: those about training, and those about curvature."""
    kinds = {
        "training": [claim for claim in evidence.claims if claim.parts],
        "curvature": [claim for claim in evidence.claims if not claim.parts],
    }
    told = " ".join(_kind_words(about, claims) for about, claims in kinds.items() if claims)
    against = sum(found.is_sure for found in evidence.contradictions)
    return (
        f"On networks: {told} Surely: in {SURE:.0%} of resamples of the fresh seeds; what is said of learning rates, "
        "whose scatter was assumed, and of curvature, which was measured once, is not counted among that. "
        f"{against} item{'s' * (against != 1)} contradict{'s' * (against == 1)} the theory: {SURE:.0%} of resamples "
        "say so, or there are none, and neither a repeat nor a longer search speaks against it."
    )


def _kind_words(about: str, claims: Sequence[JudgedClaim]) -> str:
    entries = [entry for claim in claims for entry in claim.measured]
    items = [item for entry in entries for item in entry.items if item.verdict != NOT_MEASURED]
    counts = [len({entry.sweep for entry in claim.measured}) for claim in claims]
    networks = " to ".join(map(str, sorted({min(counts), max(counts)})))
    of_items = f"; of their {len(items)} items {count_words(items)}" if len(items) != len(entries) else ""
    return (
        f"{sum(map(bool, counts))} of {len(claims)} claims about {about} measured, on {networks} "
        f"network{'s' * (max(counts) != 1)}; of {len(entries)} verdicts {count_words(entries)}{of_items}."
    )


def _claims_section(evidence: Evidence) -> Section:
    told = {entry.sweep for claim in evidence.claims for entry in claim.measured}
    measured = [sweep.name for sweep in evidence.sweeps if sweep.name in told]
    rows = [
        [
            claim.sentence,
            Badge(_KINDS.get(claim.verdict, "limit"), claim.in_all),
            *(_cell(_of(claim, name)) for name in measured),
            _missing(claim, measured),
        ]
        for claim in evidence.claims
    ]
    table = render_table("Claims on networks", "networks", ("Claim", "In all", *measured, "Not run"), rows)
    remark = (
        "Thresholds and formulas were written down before the sweeps were run; rules added later say when "
        "(evidence/claims.toml). A verdict is that of the numbers as they were measured. In brackets: the share of "
        "1,000 resamples of the fresh seeds that come to the same verdict (luck of the search is not in it), of "
        "learning rates the share of draws from a scatter that was assumed; without which one seed it would be "
        "another one; 3 of 5 where it rests on three of the claim's five items, the others being of optimizers or "
        "batch sizes that were not measured; 1 fails where one of them does, though the claim as a whole does not; "
        "order not seen where no critical batch size is told from the one below it. In all: the same words where all "
        "workloads agree, else on how many of them it holds without a limit, and what it does on the others; how many "
        f"of each {SURE:.0%} of resamples of the seeds come to."
    )
    if evidence.repeats:
        remark += f" {repeat_words(evidence)}"
    link = '<p class="files"><span>Numbers: <a href="network-claims.csv">CSV</a></span></p>'
    details = "\n".join([*map(_details, evidence.claims), _repeat_details(evidence)])
    return Section(
        "networks", "Claims on networks", f'{table}\n<p class="remark">{escape(remark)}</p>\n{link}\n{details}'
    )


def _repeat_details(evidence: Evidence) -> str:
    heads, rows = repeat_rows(evidence)
    summary = "On what a sweep and the one that repeats it differ"
    return (
        f"<details><summary>{summary}</summary>\n{render_table(summary, 'items', heads, rows)}</details>"
        if rows
        else ""
    )


def _missing(claim: JudgedClaim, measured: Sequence[str]) -> str:
    return ", ".join(entry.sweep for entry in claim.judgements if entry.sweep not in measured)


def _of(claim: JudgedClaim, sweep: str) -> Judgement | None:
    return next((entry for entry in claim.judgements if entry.sweep == sweep), None)


def _badge(verdict: str) -> Badge:
    return Badge(_KINDS.get(verdict, "limit"), verdict)


def _cell(judgement: Judgement | None) -> Cell:
    if judgement is None:
        return ""
    return [_badge(judgement.verdict), judgement.notes] if judgement.notes else _badge(judgement.verdict)


def _details(claim: JudgedClaim) -> str:
    rows = [
        [
            place,
            item.part.replace("_", " "),
            ", ".join(item.optimizers),
            values_words(item),
            "; ".join(item.warnings),
            _badge(item.verdict),
        ]
        for place, judgement in places(claim)
        for item in judgement.items
    ]
    heads = ("Sweep", "Part", "Optimizers", "Found (90% interval)", "To mind of its cells", "Verdict")
    table = render_table(claim.sentence, "items", heads, rows) if rows else "<p>Not measured.</p>"
    thresholds = "".join(
        f"<li><b>{escape(part['name'].replace('_', ' '))}</b>: holds where <code>{escape(part['holds'])}</code>, with "
        f"a limit where <code>{escape(part['limit'])}</code>; {escape(_formulas(part))}. {escape(part['reason'])}</li>"
        for part in claim.parts
    )
    return (
        f"<details><summary>{escape(claim.sentence)}</summary>\n<blockquote>{escape(claim.paper)} "
        f"({escape(claim.where)})</blockquote>\n{table}\n<ul>{thresholds}</ul></details>"
    )


def _formulas(part: Any) -> str:
    return ", ".join(f"{name} = {formula}" for name, formula in part["quantities"].items())


def values_words(item: Item) -> str:
    """What was found of an item."""
    told = [f"{name} {found}" for name, found in item.values.items()]
    return ", ".join([*told, item.reason] if item.reason else told)


def _contradictions_section(evidence: Evidence) -> Section:
    heading = "Where networks contradict the theory"
    sure = [found for found in evidence.contradictions if found.is_sure]
    unsure = [found for found in evidence.contradictions if not found.is_sure]
    remark = (
        "Every item of a claim that fails. Tested on the sweep itself: whether other seeds would say so, whether the "
        "search ended at its edge or missed what the optimizer contains (a search that was too short shows in "
        "neither), and what other targets of the same runs say, for which settings were not tuned; and where a sweep "
        "was run again, whether that says so too."
    )
    return Section(
        "contradictions",
        heading,
        f'{_contradictions(heading, sure)}\n<p class="remark">{escape(remark)}</p>\n'
        "<h3>Fails, but other seeds or another search might not say so</h3>\n"
        f"{_contradictions('Fails by chance, maybe', unsure)}\n{_beyond(evidence)}",
    )


def _beyond(evidence: Evidence) -> str:
    heads, rows = beyond_rows(evidence)
    heading = "Better than perfect scaling"
    remark = (
        "Where a larger batch needs fewer examples. No claim asks about it, and no gradient noise explains it: the "
        "search at the smaller batch size may have found too little."
    )
    return (
        f'<h3>{heading}</h3>\n{render_table(heading, "beyond", heads, rows)}\n<p class="remark">{remark}</p>'
        if rows
        else ""
    )


def _contradictions(label: str, found: Sequence[Contradiction]) -> str:
    rows = [
        [
            entry.sweep,
            entry.claim.sentence,
            ", ".join(entry.item.optimizers),
            values_words(entry.item),
            "; ".join([*entry.tested, *([f"Against it: {entry.against}"] if entry.against else [])]),
            entry.remark or "not known",
        ]
        for entry in found
    ]
    heads = ("Sweep", "Claim", "Optimizers", "Found (90% interval)", "Tested", "Likely reason")
    return render_table(label, "contradictions", heads, rows) if rows else "<p>Nothing that was measured.</p>"


def _faults_section(evidence: Evidence) -> Section:
    heads, rows = fault_rows(evidence)
    heading = "Searches that found too little"
    table = render_table(heading, "faults", heads, rows) if rows else "<p>None that is known.</p>"
    remark = (
        "Cells where an optimizer that the cell's own contains takes fewer steps, by more than the interval, or where "
        "a chosen setting lies as far out as a search may go. Verdicts stay; the last column says which would be "
        "others with the settings of what is contained, one cell at a time."
    )
    return Section("faults", heading, f'{table}\n<p class="remark">{remark}</p>')


def _critical_section(study: Study, evidence: Evidence) -> Section:
    heads, rows = critical_rows(study, evidence)
    table = render_table("Critical batch size on networks", "critical words", heads, rows)
    remark = (
        "B_crit of steps = S_min (1 + B_crit / B), with the 95% interval that the scatter of fresh seeds gives, and "
        "how many times SGD's it is. In theory Adam is preconditioning with power 0.5 and K-FAC with 0.75. Its ratios "
        "are those of the paper's problem: they depend on how many coordinates there are and on the target."
    )
    remark = " ".join([remark, *footnotes(evidence)])
    return Section(
        "network-critical",
        "Critical batch size on networks",
        f'{table}\n<p class="remark">{escape(remark)}</p>\n{_order(study, evidence)}',
    )


def _order(study: Study, evidence: Evidence) -> str:
    """Which optimizers come in another order than in theory, and how much smaller than there ratios are."""
    pairs = list(find_pairs(study, evidence))
    tables = {"In another order than in theory": reversed_rows(pairs), "Over SGD's": ratio_rows(study, evidence)}
    shown = {label: render_table(label, "order", heads, rows) for label, (heads, rows) in tables.items() if rows}
    return "\n".join(
        [f"<p>{escape(order_words(pairs))}</p>", *(f"<h3>{label}</h3>\n{table}" for label, table in shown.items())]
    )


def _predictions_section(evidence: Evidence) -> Section:
    heads, rows = prediction_rows(evidence)
    heading = "Predicted from one run"
    table = render_table(heading, "predictions", heads, rows) if rows else "<p>Nothing has been predicted.</p>"
    remark = (
        "One run with plain SGD at batch size 64, and what was measured on it, against tuning every optimizer at every "
        f"batch size. {widths_words(evidence)} Only what was held out puts them to the test. {READ_AT} It has more "
        "runs of each network too."
    )
    return Section("network-predictions", heading, f'{table}\n<p class="remark">{escape(remark)}</p>')


def _outside_section(evidence: Evidence) -> Section:
    heads, rows = outside_rows(evidence)
    heading = "Against published steps"
    table = render_table(heading, "outside", heads, rows)
    remark = f"Why these thresholds: {evidence.document['outside']['reason']}"
    return Section(
        "outside", heading, f'<p>{escape(outside_words(evidence))}</p>\n{table}\n<p class="remark">{escape(remark)}</p>'
    )


def _costs_section(evidence: Evidence) -> Section:
    heads, rows = cost_rows(evidence)
    table = render_table("What was run", "costs words", heads, rows)
    remark = (
        "What the time did not allow stays declared and is shown as missing. make evidence goes on with it. The paper "
        "runs every trial to its budget, and searches again for averaged weights. Runs that report were repeated by "
        "python -m evidence.verify SWEEP: those of another kind of processor cannot be the same to the bit."
    )
    return Section("network-costs", "What was run", f'{table}\n<p class="remark">{remark}</p>')
