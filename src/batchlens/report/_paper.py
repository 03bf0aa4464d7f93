"""The paper in one folder: every figure and claim of its theory, and of its networks what an evidence folder has."""

import time
from collections.abc import Iterator, Mapping
from importlib.metadata import version
from pathlib import Path
from platform import python_version

import pandas as pd

from batchlens import __version__
from batchlens.report._evidence.panels import plan_network_panels
from batchlens.report._evidence.reading import Evidence
from batchlens.report._evidence.sections import claims_data, network_sections, summary_words
from batchlens.report._page.folder import draw_panel, staged, write_panel
from batchlens.report._page.frame import claims_section, frame_page, summarise
from batchlens.report._page.numbers import csv_of, frame_of
from batchlens.report._page.records import Claim, PanelPlan, Progress, say_nothing
from batchlens.report._theory.evidence import plan_checks
from batchlens.report._theory.panels import PANELS
from batchlens.report._theory.study import Study

TITLE = "Which algorithmic choices matter at which batch sizes?"
LEAD = (
    "The theory of Zhang et al. (NeurIPS 2019), computed anew with an exact engine and exact optima: its figures, "
    "what it says about the noisy quadratic model and whether that holds, and what lies beyond it."
)
_WITH_NETWORKS = "Beside it, what the paper says of real networks, measured anew at laptop size with fresh seeds."
_WITHOUT = "Networks are not on this page: there is no evidence folder (--evidence)."
_LIBRARIES = ("numpy", "scipy", "numba", "matplotlib")


def write_paper(
    study: Study, out: Path, evidence: Evidence | None = None, progress: Progress = say_nothing
) -> list[Claim]:
    """Write the page on a study, and on networks, into a folder and return the claims on the theory.

    Nothing changes there before everything is computed and written beside it; then files of an earlier report are
    replaced.
    """
    started = time.perf_counter()
    with staged(out) as folder:
        checks = plan_checks(study)
        networks = [] if evidence is None else list(plan_network_panels(study, evidence))
        total = len(checks) + len(PANELS) + len(networks)
        claims = []
        for check in checks:
            claims.append(check())
            progress(len(claims), total, f"claim: {claims[-1].name}")
        panels = []
        for plan, frame in [*_numbers(study), *networks]:
            panels.append(write_panel(plan, frame, *draw_panel(plan, frame), folder))
            progress(len(claims) + len(panels), total, f"figure {plan.number}")
        csv = csv_of(frame_of(vars(claim) for claim in claims))
        (folder / "claims.csv").write_text(csv, encoding="utf-8")
        appendix = [claims_section(claims)]
        if evidence is not None:
            (folder / "network-claims.csv").write_text(csv_of(claims_data(evidence)), encoding="utf-8")
            appendix = [*network_sections(study, evidence), *appendix]
        page = frame_page(
            TITLE,
            f"{LEAD}\n\n{_WITHOUT if evidence is None else _WITH_NETWORKS}",
            f"{summarise(claims)}{'' if evidence is None else f' {summary_words(evidence)}'}",
            [],
            panels,
            study.description,
            _versions(),
            time.perf_counter() - started,
            appendix=appendix,
        )
        (folder / "index.html").write_text(page, encoding="utf-8")
    return claims


def _numbers(study: Study) -> Iterator[tuple[PanelPlan[Study], pd.DataFrame]]:
    """Every panel's plan with its numbers, each computed once."""
    frames: dict[str, pd.DataFrame] = {}
    for plan in PANELS:
        if plan.numbers not in frames:
            frames[plan.numbers] = plan.data(study)
        yield plan, frames[plan.numbers]


def _versions() -> Mapping[str, str]:
    return {"batchlens": __version__, "python": python_version(), **{name: version(name) for name in _LIBRARIES}}
