"""Pages about what batchlens made: a sweep's store, or a fit."""

import os
from collections.abc import Callable
from pathlib import Path

from batchlens._checks import require_path
from batchlens.report._fit.page import write_fit_report
from batchlens.report._page.records import say_nothing
from batchlens.report._sweep.page import write_sweep_report
from batchlens.scaling.fitting import Fit
from batchlens.sweep.results import SweepResult, read_sweep

__all__ = ["write_report"]


def write_report(
    path: str | os.PathLike[str] | SweepResult | Fit,
    out: str | os.PathLike[str] | None = None,
    progress: Callable[[int, int, str], None] | None = None,
) -> Path:
    """What does a file say? Writes a page about it, with figures and their numbers, and returns where the page is.

    Arguments:
        path: a sweep's store, as `run_sweep` and `batchlens sweep --store` write it; the sweep may still be running. Or
            what `run_sweep`, `read_sweep` or `fit` returned.
        out: the folder to write into, made where there is none; by default digits-report beside digits.sqlite, and
            fit-report here for a fit. Files of an earlier report are replaced once all is written.
        progress: is told how many figures are done, of how many, and which was the last.

    >>> import tempfile
    >>> import batchlens as bl
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     store = f"{folder}/one.sqlite"
    ...     sweep = bl.run_sweep("digits", ["sgd"], [64], trials=1, store=store, workers=1, max_steps=5)
    ...     bl.write_report(store).relative_to(folder).as_posix()
    'one-report/index.html'
    """
    if isinstance(path, Fit):
        folder = require_path("out", "fit-report" if out is None else out)
        write_fit_report(path, folder, progress or say_nothing)
        return folder / "index.html"
    sweep = path if isinstance(path, SweepResult) else read_sweep(require_path("path", path))
    folder = sweep.path.with_name(f"{sweep.path.stem}-report") if out is None else require_path("out", out)
    write_sweep_report(sweep, folder, progress or say_nothing)
    return folder / "index.html"
