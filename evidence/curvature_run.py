"""Measures the curvature of the networks of evidence/curvature.toml along their training, those that are missing.

    python -m evidence.curvature_run                            # all of them, for half an hour or so
    python -m evidence.curvature_run --only digits              # one
    python -m evidence.curvature_run --page report/curvature    # and the page about them
    python -m evidence.curvature_run --page report/curvature --as-it-is   # the page from what is there

A run that is stopped goes on where it was when the same command is run again.
"""

import argparse
import tomllib
from pathlib import Path
from typing import Any

import batchlens as bl

HERE = Path(__file__).parent
DECLARED, MEASURED = HERE / "curvature.toml", HERE / "curvature"


def read_runs() -> list[dict[str, Any]]:
    """The runs, in order."""
    runs: list[dict[str, Any]] = tomllib.loads(DECLARED.read_text(encoding="utf-8"))["runs"]
    return runs


def file_of(run: dict[str, Any], folder: Path = MEASURED) -> Path:
    """Where its measurement is kept."""
    return folder / f"{run['workload']}.json"


def measure(run: dict[str, Any], folder: Path = MEASURED) -> None:
    """Measures what is missing of one run."""
    print(f"{run['workload']}: measuring after {', '.join(map(str, run['steps']))} steps", flush=True)
    found = bl.measure_training(**run, out=file_of(run, folder))
    for moment in found.moments:
        print(f"{run['workload']}: {moment.headline} ({moment.seconds:.0f} s)", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", help="the workload of one run")
    parser.add_argument("--page", type=Path, help="folder to write the page to")
    parser.add_argument("--as-it-is", action="store_true", help="measure nothing")
    asked = parser.parse_args()
    runs = [run for run in read_runs() if asked.only in (None, run["workload"])]
    if not runs:
        parser.error(f"--only must be one of {', '.join(run['workload'] for run in read_runs())}, got {asked.only}.")
    if not asked.as_it_is:
        for run in runs:
            measure(run)
    if asked.page is not None:
        print(bl.write_report([file_of(run) for run in runs if file_of(run).exists()], out=asked.page))


if __name__ == "__main__":
    main()
