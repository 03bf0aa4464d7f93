"""The report: every figure, table and claim of the paper's theory in one folder."""

import time
from collections.abc import Callable, Iterator, Mapping
from importlib.metadata import version
from pathlib import Path
from platform import python_version

import pandas as pd

from batchlens import __version__
from batchlens.report._page.folder import draw_panel, staged, write_panel
from batchlens.report._page.frame import render_page
from batchlens.report._page.numbers import csv_of, frame_of
from batchlens.report._page.records import Claim, PanelPlan
from batchlens.report._theory.evidence import check_claims
from batchlens.report._theory.panels import PANELS
from batchlens.report._theory.study import Study

TITLE = "Which algorithmic choices matter at which batch sizes?"
LEAD = (
    "The theory of Zhang et al. (NeurIPS 2019), computed anew with an exact engine and exact optima: its figures, "
    "what it says about the noisy quadratic model and whether that holds, and what lies beyond it."
)
_LIBRARIES = ("numpy", "scipy", "numba", "matplotlib")


def reproduce(study: Study, out: Path, progress: Callable[[str], None] = lambda _: None) -> list[Claim]:
    """Write the report on a study into a folder and return its claims.

    Nothing changes there before everything is computed and written beside it; then files of an earlier report are
    replaced.
    """
    started = time.perf_counter()
    with staged(out) as folder:
        claims = []
        for claim in check_claims(study):
            progress(f"claim: {claim.name}")
            claims.append(claim)
        panels = [
            write_panel(plan, frame, *draw_panel(plan, frame), folder) for plan, frame in _numbers(study, progress)
        ]
        csv = csv_of(frame_of(vars(claim) for claim in claims))
        (folder / "claims.csv").write_text(csv, encoding="utf-8")
        page = render_page(
            TITLE,
            LEAD,
            claims,
            panels,
            study.description,
            _versions(),
            time.perf_counter() - started,
        )
        (folder / "index.html").write_text(page, encoding="utf-8")
    return claims


def _numbers(study: Study, progress: Callable[[str], None]) -> Iterator[tuple[PanelPlan[Study], pd.DataFrame]]:
    """Every panel's plan with its numbers, each computed once."""
    frames: dict[str, pd.DataFrame] = {}
    for plan in PANELS:
        progress(f"figure {plan.number}")
        if plan.numbers not in frames:
            frames[plan.numbers] = plan.data(study)
        yield plan, frames[plan.numbers]


def _versions() -> Mapping[str, str]:
    return {"batchlens": __version__, "python": python_version(), **{name: version(name) for name in _LIBRARIES}}
