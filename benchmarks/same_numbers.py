"""Are the numbers of this code those of another commit?

Runs `batchlens reproduce` and a small sweep with the code of REF, in a work tree of its own, and with the code here;
then compares every CSV of the report and the winners of the sweep: the same bytes, or else the same words and whole
numbers and floats that agree to a relative 1e-12.  The exit status is 1 where something differs.

    python benchmarks/same_numbers.py main
    python benchmarks/same_numbers.py main --reproduce "--dim 1000 --exponent 1.5 --target 0.05" --no-sweep
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).resolve().parent.parent
SWEEP = "digits --optimizers sgd,momentum --batch-sizes 16,128 --trials 6 --search sobol"
TOLERANCE = 1e-12

Rows = list[list[str]]


class Verdict(NamedTuple):
    """How two tables compare; `largest` is the largest relative difference of two floats."""

    same: bool
    words: str
    largest: float = 0.0


def compare_numbers(before: str, after: str) -> float | None:
    """The relative difference of two entries; None where they differ and are no floats."""
    if before == after:
        return 0.0
    try:
        old, new = float(before), float(after)
    except ValueError:
        return None
    if old == new:
        return 0.0
    if old.is_integer() and new.is_integer():
        return None
    return abs(new - old) / max(abs(old), abs(new))


def compare_tables(before: Rows, after: Rows) -> Verdict:
    """Entry by entry; the first row that differs is named."""
    if [len(row) for row in before] != [len(row) for row in after]:
        return Verdict(False, f"another shape: {len(before)} rows, now {len(after)}")
    largest = 0.0
    for number, (old_row, new_row) in enumerate(zip(before, after, strict=True)):
        for old, new in zip(old_row, new_row, strict=True):
            difference = compare_numbers(old, new)
            if difference is None or not difference <= TOLERANCE:
                return Verdict(False, f"row {number}: {old!r}, now {new!r}", difference or 0.0)
            largest = max(largest, difference)
    return Verdict(True, "the same words and whole numbers, floats within 1e-12", largest)


def compare_files(before: Path, after: Path) -> Verdict:
    """Two CSV files."""
    for path, where in ((before, "before"), (after, "now")):
        if not path.exists():
            return Verdict(False, f"there is none {where}")
    if before.read_bytes() == after.read_bytes():
        return Verdict(True, "the same bytes")
    return compare_tables(read_rows(before), read_rows(after))


def read_rows(path: Path) -> Rows:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.reader(file))


def winners(document: dict[str, Any]) -> Rows:
    """A sweep's winners, a row per optimizer and batch size."""
    return [
        [curve["optimizer"], str(point["batch_size"]), str(point["steps"]),
         *(f"{name}={value!r}" for name, value in sorted((point["settings"] or {}).items()))]
        for curve in document["curves"]
        for point in curve["points"]
    ]  # fmt: skip


@contextmanager
def worktree_of(ref: str, folder: Path) -> Iterator[Path]:
    """The files of a commit, in a work tree that is removed afterwards."""
    tree = folder / "tree"
    subprocess.run(["git", "-C", HERE, "worktree", "add", "--quiet", "--detach", tree, ref], check=True)
    try:
        yield tree
    finally:
        subprocess.run(["git", "-C", HERE, "worktree", "remove", "--force", tree], check=True)


def run(tree: Path, folder: Path, arguments: list[str]) -> str:
    """What a command prints with the code of a tree."""
    environment = os.environ | {"PYTHONPATH": str(tree / "src"), "PYTHONSAFEPATH": "1"}
    command = [sys.executable, "-m", "batchlens", *arguments]
    print(f"{tree.name}: batchlens {shlex.join(arguments)}", file=sys.stderr)
    return subprocess.run(
        command, cwd=folder, env=environment, check=True, stdout=subprocess.PIPE, encoding="utf-8"
    ).stdout


def compare_reports(trees: tuple[Path, Path], folder: Path, options: str) -> Iterator[tuple[str, Verdict]]:
    """Every CSV of `batchlens reproduce`."""
    folders = []
    for index, tree in enumerate(trees):
        folders.append(folder / f"report-{index}")
        run(tree, folder, ["reproduce", *shlex.split(options), "--out", folders[-1].name])
    names = sorted({path.name for report in folders for path in report.glob("*.csv")})
    for name in names:
        yield name, compare_files(folders[0] / name, folders[1] / name)


def compare_sweeps(trees: tuple[Path, Path], folder: Path, options: str) -> Verdict:
    """The winners of `batchlens sweep`."""
    found = []
    for index, tree in enumerate(trees):
        printed = run(tree, folder, ["sweep", *shlex.split(options), "--store", f"sweep-{index}.sqlite", "--json"])
        found.append(winners(json.loads(printed)))
    verdict = compare_tables(*found)
    return verdict._replace(words="the same winners") if verdict.same else verdict


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ref", help="commit to compare with")
    parser.add_argument("--reproduce", action="append", metavar="OPTIONS", help="of reproduce; may be given repeatedly")
    parser.add_argument("--sweep", default=SWEEP, metavar="ARGUMENTS", help=f"of sweep; by default {SWEEP}")
    parser.add_argument("--no-sweep", action="store_true", help="leave the sweep out")
    return parser.parse_args()


def main() -> int:
    """Compare, print a table, and say by the exit status whether all is the same."""
    asked = parse()
    verdicts: list[tuple[str, Verdict]] = []
    with tempfile.TemporaryDirectory() as name, worktree_of(asked.ref, Path(name)) as tree:
        trees = tree, HERE
        for number, options in enumerate(asked.reproduce or [""]):
            folder = Path(name) / f"reproduce-{number}"
            folder.mkdir()
            title = f"reproduce {options}".strip()
            verdicts += [(f"{title}: {file}", verdict) for file, verdict in compare_reports(trees, folder, options)]
        if not asked.no_sweep:
            verdicts.append((f"sweep {asked.sweep}", compare_sweeps(trees, Path(name), asked.sweep)))
    width = max(len(title) for title, _ in verdicts)
    for title, verdict in verdicts:
        words = f"{verdict.words} ({verdict.largest:.1e})" if verdict.largest else verdict.words
        print(f"{title:{width}}  {'' if verdict.same else 'DIFFERS: '}{words}")
    return 0 if all(verdict.same for _, verdict in verdicts) else 1


if __name__ == "__main__":
    sys.exit(main())
