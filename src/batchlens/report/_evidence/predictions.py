"""What one run predicted of a sweep, beside what the sweep measured."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from batchlens.prediction._readings import CHOSEN_ON
from batchlens.prediction.prediction import PredictedBatchSize
from batchlens.report._evidence.reading import Evidence
from batchlens.report._page.numbers import frame_of, groups
from batchlens.report._prediction.figures import with_doubts
from batchlens.report._sweep.page import curve_words
from batchlens.scaling._critical import DEFINITIONS
from batchlens.scaling._intervals import Interval
from batchlens.scaling.curve import ScalingCurve
from batchlens.sweep.results import SweepResult

# Of critical batch sizes that a prediction in the evidence folder has.
READ_AT = (
    "Predicted critical batch sizes are read at the batch sizes of the sweep alone, beyond which they are bounds or "
    "unknown; docs/prediction.md has them read from 4 to 8,192, and how far off they are then."
)


def predicted_data(document: Mapping[str, Any], sweep: SweepResult) -> pd.DataFrame:
    """What one run predicted of every optimizer, with the interval's ends, and what complete searches measured."""
    reference = document.get("reference", {})
    measured = {(cell.result.cell.optimizer, cell.batch_size): cell.steps for cell in sweep.cells
                if cell.result.complete}  # fmt: skip
    return frame_of(
        {
            "optimizer": curve["optimizer"],
            "batch_size": point["batch_size"],
            "steps": point["steps"],
            "low": (point["interval"] or (None, None))[0],
            "high": (point["interval"] or (None, None))[1],
            "critical_batch_size": found.value if found.relation == "=" else None,
            "measured": measured.get((curve["optimizer"], point["batch_size"])),
            "run_batch_size": reference.get("batch_size"),
            "run_steps": reference.get("steps"),
            "doubts": "; ".join(curve.get("reasons", ())),
        }
        for curve in document["curves"]
        if curve["optimizer"] in sweep.declaration.optimizers
        for found in [_critical(curve)]
        for point in curve["points"]
    )


def doubts_words(document: Mapping[str, Any]) -> str:
    """Which curves should not be relied on, and why, as it was said when they were predicted."""
    doubts = [f"{curve['optimizer']}: {'; '.join(curve['reasons'])}" for curve in document["curves"]
              if curve.get("reasons")]  # fmt: skip
    return f" Doubtful (dash-dotted) is {'. '.join(doubts)}." if doubts else ""


def _critical(curve: Mapping[str, Any]) -> PredictedBatchSize:
    """By "fit"; whether it is a bound follows from the curve."""
    points = curve["points"]
    found = ScalingCurve([point["batch_size"] for point in points], [point["steps"] for point in points])
    (entry,) = (entry for entry in curve["critical_batch_sizes"] if entry["definition"] == "fit")
    interval = entry.get("interval")
    relation = found.critical_batch_size("fit").relation
    return PredictedBatchSize("fit", entry["value"], None if interval is None else Interval(*interval), relation)


def prediction_rows(evidence: Evidence) -> tuple[Sequence[str], list[list[str]]]:
    """How far predictions were off: heads, and a row per sweep and optimizer."""
    heads = (
        "Sweep",
        "Optimizer",
        "Predicted critical batch size (90% interval)",
        "Measured (95% interval)",
        "Steps off by a factor of",
        "Measured steps within the 90% interval",
    )
    known = [(name, sweep) for name, sweep in evidence.measured.items() if name in evidence.predictions]
    return heads, [row for name, sweep in known for row in _rows(name, sweep, evidence.predictions[name])]


def widths_words(evidence: Evidence) -> str:
    """On which workloads the errors were found that made the intervals, of those that are shown."""
    made: dict[tuple[str, ...], list[str]] = {}
    for name in evidence.measured:
        document = evidence.predictions.get(name, {"curves": []})
        if document["curves"]:
            made.setdefault(_widths_from(document), []).append(name)
    parts = [f"those of {', '.join(names)} from errors on {', '.join(workloads)}" for workloads, names in made.items()]
    return f"Intervals were made so: {'; '.join(parts)}." if parts else ""


def _widths_from(document: Mapping[str, Any]) -> tuple[str, ...]:
    """Older files do not say: then it was what the model was chosen on."""
    return tuple(document.get("intervals_from", CHOSEN_ON))


def _standing(workload: str, document: Mapping[str, Any]) -> str:
    """What a comparison with its sweep is worth."""
    if workload in CHOSEN_ON:
        return "the model was chosen on it"
    return "its intervals were made from it" if workload in _widths_from(document) else "held out"


def _rows(name: str, sweep: SweepResult, document: Mapping[str, Any]) -> Iterator[list[str]]:
    label = f"{name} ({_standing(sweep.declaration.workload, document)})"
    if not document["curves"]:
        yield [label, "", f"refused: {'; '.join(document.get('reasons', ()))}", "", "", ""]
    predicted = {curve["optimizer"]: _critical(curve) for curve in document["curves"]}
    critical = {curve.optimizer: curve_words(curve)[DEFINITIONS.index("fit")] for curve in sweep.measured}
    data = predicted_data(document, sweep)
    for (optimizer, doubts), part in groups(data, "optimizer", "doubts") if len(data) else ():
        known = part.dropna(subset=["steps", "measured"])
        if len(known):
            off = math.exp(float(np.abs(np.log(known["steps"] / known["measured"])).mean()))
            held = int(known["measured"].between(known["low"], known["high"]).sum())
            told = [str(predicted[optimizer]), critical[optimizer], f"{off:.2f}", f"{held} of {len(known)}"]
            yield [label, with_doubts(optimizer, doubts), *told]
