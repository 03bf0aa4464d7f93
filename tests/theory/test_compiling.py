"""Where compiled code is kept, and what happens where there is no place for it."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import batchlens

ASK = "from batchlens.theory._kernels.maps import digits; print(digits(1000), end='')"
NO_TEMPORARY_FOLDER = """
import tempfile
def fail(*_): raise FileNotFoundError
tempfile.gettempdir = fail
"""


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A copy of the package; beside its kernels no folder can be made, whoever asks."""
    source = Path(batchlens.__file__).parent
    shutil.copytree(source, tmp_path / "src" / "batchlens", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "src/batchlens/theory/_kernels/__pycache__").write_text("", encoding="utf-8")
    (tmp_path / "tmp").mkdir()
    return tmp_path


def run(package: Path, code: str) -> subprocess.CompletedProcess[str]:
    """Runs code in a process whose home is no folder."""
    kept = {name: value for name, value in os.environ.items() if name not in ("NUMBA_CACHE_DIR", "XDG_CACHE_HOME")}
    settings = {"PYTHONPATH": str(package / "src"), "HOME": os.devnull, "TMPDIR": str(package / "tmp")}
    environment = kept | settings | {"PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-c", code]
    return subprocess.run(command, env=environment, cwd=package, capture_output=True, encoding="utf-8", check=False)


def test_a_temporary_folder_stands_in_for_one_that_cannot_be_written_to(package: Path) -> None:
    found = run(package, ASK)
    assert found.stdout == "10"
    assert found.stderr.count("\n") == 1
    assert found.stderr.startswith("batchlens: compiled code is kept in ")
    (folder,) = (package / "tmp").glob("batchlens-*")
    assert list(folder.rglob("*.nbi"))


def test_without_any_folder_kernels_are_compiled_anew(package: Path) -> None:
    found = run(package, NO_TEMPORARY_FOLDER + ASK)
    assert found.stdout == "10"
    assert found.stderr == "batchlens: no folder can be written to; compiling takes its time in every process.\n"


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="needs owners of files")
def test_a_temporary_folder_that_others_can_write_to_is_not_used(package: Path) -> None:
    folder = package / "tmp" / f"batchlens-{os.getuid()}"
    folder.mkdir()
    folder.chmod(0o777)
    found = run(package, ASK)
    assert found.stdout == "10"
    assert found.stderr.startswith("batchlens: no folder can be written to")
    assert not list(folder.iterdir())


@pytest.mark.slow
def test_a_change_in_one_kernel_recompiles_those_that_use_it(package: Path) -> None:
    ask = (
        "from batchlens.theory._kernels.quick import rule_at; import numpy; print(rule_at(numpy.zeros(3), 1.0, False))"
    )
    update = package / "src/batchlens/theory/_kernels/update.py"
    before = run(package, ask)
    update.write_text(update.read_text(encoding="utf-8").replace("2.0 * both, ", "4.0 * both, "), encoding="utf-8")
    after = run(package, ask)
    assert (before.stdout, after.stdout) == ("(1.0, 0.0, 0.0)\n", "(2.0, 0.0, 0.0)\n")
