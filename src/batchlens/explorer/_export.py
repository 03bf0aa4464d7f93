"""The page with its answers inside: every place of the sliders, computed beforehand."""

import json
import zlib
from collections.abc import Callable
from itertools import product
from typing import Any

from batchlens import __version__
from batchlens._results import finite
from batchlens.explorer._answers import Answers, go_on
from batchlens.explorer._files import Files
from batchlens.explorer._page import whole_page
from batchlens.explorer._pictures import reduced

EXPONENTS = (0.5, 0.75, 1.0, 1.25, 1.5)
# Targets as parts of the initial risk; a power law has absolute ones.
TARGETS, SHARES = (0.003, 0.01, 0.03, 0.1, 0.3), (0.001, 0.003, 0.01, 0.03, 0.1)
BATCH_SIZES = ",".join(str(4**k) for k in range(1, 11))


def build(files: Files, optimizers: list[str], powers: list[float], progress: Callable[[int, int, str], None]) -> str:
    """The page as text."""
    answers = Answers(files, moments=32, bands=24)
    problems, targets = _grid(files)
    common = {"optimizer": ",".join(optimizers), "power": ",".join(f"{power:g}" for power in powers),
              "batch_sizes": BATCH_SIZES}  # fmt: skip
    cells = list(product(problems, targets))
    stored = []
    for done, (problem, target) in enumerate(cells, start=1):
        stored.append(_cell(answers, {"problem": problem, "target": target, **common}))
        progress(done, len(cells), f"target {target:g}")
    facts = {
        "version": __version__,
        "files": [file.as_document() for file in files.given()],
        "stored": {"problems": problems, "targets": targets, "optimizers": optimizers, "powers": powers,
                   "batch_sizes": BATCH_SIZES},
    }  # fmt: skip
    content = json.dumps(finite(stored), separators=(",", ":")).encode()
    return whole_page(facts, zlib.compress(content, 9))


def _grid(files: Files) -> tuple[list[dict[str, Any]], list[float]]:
    """Problems and targets at which the sliders stop."""
    for file in files.given():
        if file.problem is not None:
            risk = file.problem.initial_risk
            targets = [float(f"{share * risk:.2g}") for share in SHARES]
            return [{"file": file.digest, "bins": 100, "rounding": "mean"}], targets
    problems = [{"dim": 10_000, "exponent": exponent, "bins": 100, "rounding": "down"} for exponent in EXPONENTS]
    return problems, list(TARGETS)


def _cell(answers: Answers, question: dict[str, Any]) -> dict[str, Any]:
    """All that can be asked at one place of the sliders of problem and target."""
    steps = answers.steps(question, go_on)
    schedules, risks = {}, {}
    for curve in steps["curves"]:
        power = curve["power"]
        for point in curve["points"]:
            size = point["batch_size"]
            asked = question | point | {"optimizer": curve["optimizer"], "power": power}
            if point["steps"]:
                risks[f"{curve['optimizer']} {power:g} {size}"] = reduced(answers.risk(asked, go_on))
            if f"{power:g} {size}" not in schedules and point["steps"]:
                schedules[f"{power:g} {size}"] = answers.schedule(asked, go_on)
    return {"steps": steps, "schedule": schedules, "risk": risks}
