"""Every example runs and writes the files that it names."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).parent.parent / "examples").glob("*.py"))


def test_there_are_examples() -> None:
    assert EXAMPLES


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_example_runs_and_writes_what_it_says(example: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", str(example)],
        cwd=tmp_path,
        env=os.environ | {"MPLBACKEND": "Agg"},
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, "")
    text = example.read_text(encoding="utf-8")
    named = re.findall(r"savefig\(\"(.+?)\"", text)
    logs = re.findall(r"\"(\w+)/.+?\.jsonl\"", text)
    assert {path.name for path in tmp_path.iterdir()} == {*named, *logs}
    for path in tmp_path.glob("*.*"):
        assert path.read_bytes().startswith(b"\x89PNG")
