"""Names from outside are printed as they are, but for what would steer a terminal."""

import os
from pathlib import Path

import pytest

from tests.program import run

NAMES = ["[/red]", "[bold red]x", "[link=http://x]y[/link]", ":warning:", "a\x1b[31mb", "a\x07b", "\u202eabc"]


@pytest.mark.parametrize("name", NAMES)
def test_optimizers_of_a_csv(tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    rows = [f"{name},{size},{max(1000 // size, 100)},1" for size in (4, 8, 16, 32, 64)]
    (tmp_path / "runs.csv").write_text("\n".join(["optimizer,batch_size,steps,seconds", *rows]), encoding="utf-8")
    status, out, err = run(f"fit {tmp_path}/runs.csv", capsys)
    assert (status, err) == (0, "")
    shown = "".join(character if character.isprintable() else "?" for character in name)
    assert f"{shown}: critical batch size" in out
    assert f"{shown}: fastest batch size" in out
    assert all(character.isprintable() or character == "\n" for character in out)


@pytest.mark.parametrize("name", ["a\x1b[31mb", "[/red]", "line\nbreak"])
def test_files_that_are_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    status, out, err = run(f"report '{tmp_path}/{name}'", capsys)
    assert (status, out, err.count("\n")) == (1, "", 1)
    assert all(character.isprintable() for character in err.rstrip("\n"))


@pytest.mark.skipif(not os.access("/sys", os.R_OK), reason="needs a folder in which nothing can be made")
def test_merge_into_a_folder_in_which_nothing_can_be_made(capsys: pytest.CaptureFixture[str]) -> None:
    status, _, err = run("merge /sys/new.sqlite docs/digits-sweep/digits.sqlite", capsys)
    assert (status, err) == (
        1, "batchlens: /sys/new.sqlite cannot be opened: is its folder there, and may you write to it?\n",
    )  # fmt: skip
