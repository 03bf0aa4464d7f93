"""Predicts the sweeps of evidence/, each from one run, into predictions/NAME.json.

    make predictions                  those that are missing
    make predictions SWEEP=digits     one of them, again

The reference is the same everywhere, fixed before any was run: batch size 64, seed 0, the sweep's own target.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import batchlens as bl
from batchlens._results import finite
from batchlens.prediction._readings import READINGS
from evidence.run import HERE, arguments_of, read_sweeps, say

BATCH_SIZE, SEED = 64, 0


def predict(sweep: Mapping[str, Any], path: Path) -> None:
    """What one run says of a sweep."""
    arguments = arguments_of(sweep)
    found = bl.predict(
        arguments["workload"],
        size=arguments["size"],
        optimizers=[name for name in arguments["optimizers"] if name in READINGS],
        batch_sizes=arguments["batch_sizes"],
        target_on=arguments["target_on"],
        target=arguments.get("target"),
        batch_size=BATCH_SIZE,
        seed=SEED,
        threads=1,
    )
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(finite(found.as_document()), indent=1) + "\n", encoding="utf-8")
    say(f"{sweep['name']}: {found.sentence}")


def main(arguments: Sequence[str] | None = None) -> None:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    sweeps = {sweep["name"]: sweep for sweep in read_sweeps() if sweep["size"] == "laptop" and "again" not in sweep}
    parser.add_argument("--sweep", choices=list(sweeps), default="", help="this one, again")
    asked = parser.parse_args(arguments)
    for name, sweep in sweeps.items():
        path = HERE / "predictions" / f"{name}.json"
        missing = not path.exists() and "if_time_is_left" not in sweep
        if name == asked.sweep or (missing and not asked.sweep):
            predict(sweep, path)


if __name__ == "__main__":
    main()
