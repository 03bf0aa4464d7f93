"""The report: every figure, table and claim of the paper's theory in one folder."""

import io
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from platform import python_version

from batchlens import __version__
from batchlens.errors import BatchlensError
from batchlens.report.evidence import check_claims
from batchlens.report.figures.drawing import figure_style
from batchlens.report.page import render_page
from batchlens.report.panels import PANELS, PanelPlan
from batchlens.report.records import Claim, Panel
from batchlens.report.study import Study
from batchlens.report.table import Table

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
    with _staged(out) as folder:
        claims = []
        for claim in check_claims(study):
            progress(f"claim: {claim.name}")
            claims.append(claim)
        panels = [_make_panel(plan, table, folder) for plan, table in _numbers(study, progress)]
        csv = Table.from_rows(vars(claim) for claim in claims).to_csv()
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


def _numbers(study: Study, progress: Callable[[str], None]) -> Iterator[tuple[PanelPlan, Table]]:
    """Every panel's plan with its numbers, each computed once."""
    tables: dict[str, Table] = {}
    for plan in PANELS:
        progress(f"figure {plan.number}")
        if plan.numbers not in tables:
            tables[plan.numbers] = plan.data(study)
        yield plan, tables[plan.numbers]


def _make_panel(plan: PanelPlan, table: Table, folder: Path) -> Panel:
    """Draw a panel; write its SVG, PNG and CSV."""
    svg, png = draw_panel(plan, table)
    csv = f"{plan.numbers}.csv"
    (folder / f"{plan.slug}.svg").write_text(svg, encoding="utf-8")
    (folder / f"{plan.slug}.png").write_bytes(png)
    (folder / csv).write_text(table.to_csv(), encoding="utf-8")
    alt = f"Figure {plan.number}: {plan.title}. {plan.caption}"
    return Panel(plan.slug, plan.number, plan.title, plan.source, plan.caption, alt, svg, f"{plan.slug}.png", (csv,))


def draw_panel(plan: PanelPlan, table: Table) -> tuple[str, bytes]:
    """A panel as SVG text and as PNG bytes, the same for the same numbers."""
    from matplotlib.figure import Figure

    with figure_style():
        figure = Figure()
        plan.draw(figure.add_subplot(), table)
        svg, png = io.StringIO(), io.BytesIO()
        figure.savefig(svg, format="svg", metadata={"Date": None, "Creator": None})
        figure.savefig(png, format="png", dpi=160, facecolor="white", transparent=False, metadata={"Software": None})
    return svg.getvalue(), png.getvalue()


def _versions() -> Mapping[str, str]:
    return {"batchlens": __version__, "python": python_version(), **{name: version(name) for name in _LIBRARIES}}


@contextmanager
def _staged(out: Path) -> Iterator[Path]:
    """A scratch folder beside `out`, whose files move there once all are written."""
    if out.exists() and not out.is_dir():
        raise BatchlensError(f"{out} is a file; the report needs a folder. Choose another with --out.")
    scratch = None
    try:
        # Inside `out` where it is there, so that its files only change their names: it may be a mount of its own.
        home = next(folder for folder in (out, *out.absolute().parents) if folder.is_dir())
        scratch = Path(tempfile.mkdtemp(prefix=".batchlens-", dir=home))
        yield scratch
        out.mkdir(parents=True, exist_ok=True)
        for file in scratch.iterdir():
            if (out / file.name).is_dir():
                raise BatchlensError(
                    f"{out / file.name} is a folder, where the report has a file. Remove it or choose another --out."
                )
        for file in scratch.iterdir():
            os.replace(file, out / file.name)
    except OSError as error:
        raise BatchlensError(f"{out} cannot be written ({error.strerror}). Choose another folder with --out.") from None
    finally:
        if scratch is not None:
            shutil.rmtree(scratch, ignore_errors=True)
