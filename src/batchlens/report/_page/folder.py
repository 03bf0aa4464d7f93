"""A report on the disk: its files are written beside the folder, and move there once all are complete."""

import io
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pandas as pd

from batchlens.errors import BatchlensError
from batchlens.report._page.numbers import csv_of
from batchlens.report._page.records import Panel, PanelPlan

_REMEDY = "Choose another `out`, on the command line --out."


def prepare_folder(out: Path, remedy: str = _REMEDY) -> Path:
    """Where files can wait for `out`, which raises where they cannot: better said before there is a report.

    Inside `out` where it is there, so that its files only change their names: it may be a mount of its own.
    """
    home = next(path for path in (out, *out.absolute().parents) if path.exists())
    if not home.is_dir():
        where = "is a file" if home == out else f"would be inside {home}, which is a file"
        raise BatchlensError(f"{out} {where}; the report needs a folder. {remedy}")
    try:
        with tempfile.TemporaryDirectory(prefix=".batchlens-", dir=home):
            return home
    except OSError as error:
        raise BatchlensError(f"{out} cannot be written ({error.strerror}). {remedy}") from None


@contextmanager
def staged(out: Path) -> Iterator[Path]:
    """A scratch folder beside `out`, whose files move there once all are written."""
    home = prepare_folder(out)
    scratch = None
    try:
        scratch = Path(tempfile.mkdtemp(prefix=".batchlens-", dir=home))
        yield scratch
        out.mkdir(parents=True, exist_ok=True)
        for file in scratch.iterdir():
            if (out / file.name).is_dir():
                raise BatchlensError(
                    f"{out / file.name} is a folder, where the report has a file: remove it. {_REMEDY}"
                )
        for file in scratch.iterdir():
            os.replace(file, out / file.name)
    except OSError as error:
        raise BatchlensError(f"{out} cannot be written ({error.strerror}). {_REMEDY}") from None
    finally:
        if scratch is not None:
            shutil.rmtree(scratch, ignore_errors=True)


def draw_panel(plan: PanelPlan[Any], frame: pd.DataFrame) -> tuple[str, bytes]:
    """A panel as SVG text and as PNG bytes, the same for the same numbers."""
    from matplotlib.figure import Figure

    from batchlens._drawing import figure_style

    with figure_style():
        figure = Figure()
        plan.draw(figure.add_subplot(), frame)
        figure.draw_without_rendering()
        figure.set_layout_engine("none")  # it is laid out, once for both pictures
        svg, png = io.StringIO(), io.BytesIO()
        figure.savefig(svg, format="svg", metadata={"Date": None, "Creator": None})
        figure.savefig(png, format="png", dpi=160, facecolor="white", transparent=False, metadata={"Software": None})
    return svg.getvalue(), png.getvalue()


def write_panel(plan: PanelPlan[Any], frame: pd.DataFrame, svg: str, png: bytes, folder: Path) -> Panel:
    """Write a panel's SVG, PNG and CSV."""
    csv = f"{plan.numbers}.csv"
    (folder / f"{plan.slug}.svg").write_text(svg, encoding="utf-8")
    (folder / f"{plan.slug}.png").write_bytes(png)
    (folder / csv).write_text(csv_of(frame), encoding="utf-8")
    alt = f"Figure {plan.number}: {plan.title}. {plan.caption}"
    png_name = f"{plan.slug}.png"
    return Panel(plan.slug, plan.number, plan.title, plan.source, plan.caption, alt, svg, png_name, (csv,), plan.part)
