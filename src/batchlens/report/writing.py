"""Pages about what batchlens made: a sweep's store, or a fit."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path

from batchlens._checks import require_path
from batchlens.curvature.measurement import Measurement, read_measurement
from batchlens.prediction.prediction import Prediction
from batchlens.report._curvature.page import is_measurement, write_curvature_report
from batchlens.report._fit.page import write_fit_report
from batchlens.report._page.records import say_nothing
from batchlens.report._prediction.page import write_prediction_report
from batchlens.report._sweep.page import write_sweep_report
from batchlens.scaling.fitting import Fit
from batchlens.sweep.results import SweepResult, read_sweep

__all__ = ["write_report"]

_Measured = str | os.PathLike[str] | Measurement


def write_report(
    path: _Measured | SweepResult | Fit | Prediction | Sequence[_Measured],
    out: str | os.PathLike[str] | None = None,
    progress: Callable[[int, int, str], None] | None = None,
) -> Path:
    """What does a file say? Writes a page about it, with figures and their numbers, and returns where the page is.

    Arguments:
        path: a sweep's store, as `run_sweep` and `batchlens sweep --store` write it; the sweep may still be running. Or
            what `run_sweep`, `read_sweep`, `fit` or `predict` returned. Or a measurement or its file, as
            `batchlens measure --out` writes it, or several of them.
        out: the folder to write into, made where there is none; by default digits-report beside digits.sqlite, and
            fit-report or prediction-report here. Files of an earlier report are replaced once all is written.
        progress: is told how many figures are done, of how many, and which was the last.

    >>> import tempfile
    >>> import batchlens as bl
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     store = f"{folder}/one.sqlite"
    ...     sweep = bl.run_sweep("digits", ["sgd"], [64], trials=1, store=store, workers=1, max_steps=5)
    ...     bl.write_report(store).relative_to(folder).as_posix()
    'one-report/index.html'
    """
    tell = progress or say_nothing
    if isinstance(path, Fit):
        folder = require_path("out", "fit-report" if out is None else out)
        write_fit_report(path, folder, tell)
        return folder / "index.html"
    if isinstance(path, Prediction):
        folder = require_path("out", "prediction-report" if out is None else out)
        write_prediction_report(path, folder, tell)
        return folder / "index.html"
    measured = _measured(path)
    if measured is not None:
        folder = _folder(path, out)
        write_curvature_report(measured, folder, tell)
        return folder / "index.html"
    assert not isinstance(path, Measurement)
    sweep = path if isinstance(path, SweepResult) else read_sweep(require_path("path", path))
    folder = _folder(sweep.path, out)
    write_sweep_report(sweep, folder, tell)
    return folder / "index.html"


def _measured(path: object) -> list[Measurement] | None:
    """Measurements, if that is what was given."""
    if isinstance(path, list | tuple):
        return [one if isinstance(one, Measurement) else read_measurement(one) for one in path]
    if isinstance(path, Measurement):
        return [path]
    if not isinstance(path, SweepResult) and is_measurement(require_path("path", path)):
        return [read_measurement(require_path("path", path))]
    return None


def _folder(path: object, out: str | os.PathLike[str] | None) -> Path:
    if out is not None:
        return require_path("out", out)
    if isinstance(path, str | os.PathLike):
        file = Path(path)
        return file.with_name(f"{file.stem}-report")
    raise ValueError("`out` must be given for measurements that are not one file: the folder to write into.")
