"""A damaged checkpoint never leads to another result: it is set aside, and the run starts anew."""

import io
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch

from batchlens import BatchlensError
from batchlens.sweep._executors.job import run_job, run_saved_job
from batchlens.training._checkpoint import DamagedCheckpoint, load_checkpoint, save_checkpoint
from batchlens.training.loop import Interrupted, train
from tests.attack.damage import damage

RUN = partial(train, "digits", "momentum+ema", 32, {"learning_rate": 0.02}, max_steps=16, threads=1)
SETTINGS = {"workload": "digits", "source": "", "size": "laptop", "optimizer": "momentum+ema", "batch_size": 32}
JOB: dict[str, Any] = {
    **SETTINGS, "settings": {"learning_rate": 0.02}, "seed": 0, "max_steps": 16, "target": 0.97,
    "target_on": "validation", "device": "cpu", "threads": 1, "data_dir": None, "also_targets": [],
    "confirm_target": False, "averages": "", "all_targets": False, "pause": None,
}  # fmt: skip


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("saved") / "run.pt"
    with pytest.raises(Interrupted):
        RUN(checkpoint=path, stop=lambda step: "interrupted" if step == 9 else None)
    return path.read_bytes()


@pytest.mark.parametrize("seed", range(40))
def test_damaged_checkpoint_is_set_aside_and_the_run_starts_anew(saved: bytes, tmp_path: Path, seed: int) -> None:
    path, damaged = tmp_path / "run.pt", damage(saved, Random(seed))
    path.write_bytes(damaged)
    message = r"run\.pt is damaged, or no checkpoint; it was renamed to run\.pt\.damaged, and the run starts anew\.$"
    with pytest.warns(DamagedCheckpoint, match=message):
        record = RUN(checkpoint=path)
    assert record.history == RUN().history
    assert record.last_loss == RUN().last_loss
    assert [file.name for file in tmp_path.iterdir()] == ["run.pt.damaged"]
    assert (tmp_path / "run.pt.damaged").read_bytes() == damaged


@pytest.mark.parametrize("seed", range(10))
def test_trial_of_a_sweep_starts_anew_too(saved: bytes, tmp_path: Path, seed: int) -> None:
    path = tmp_path / "run.pt"
    path.write_bytes(damage(saved, Random(seed)))
    answer = run_job({**JOB, "checkpoint": str(path)}, lambda _: None)
    assert len(answer.pop("warnings")) == 1
    undamaged = run_job({**JOB, "checkpoint": None}, lambda _: None)
    assert {**answer, "seconds": 0} == {**undamaged, "seconds": 0}


def test_trial_that_waited_goes_on_from_what_it_saved() -> None:
    answer, saved = run_saved_job({**JOB, "pause": 5}, lambda _: None, None)
    paused = answer["steps_taken"]
    assert answer["paused"]
    assert 5 <= paused < 16
    steps: list[int] = []
    answer, left = run_saved_job(JOB, steps.append, saved)
    assert steps[0] == paused
    assert left is None
    undisturbed = run_job({**JOB, "checkpoint": None}, lambda _: None)
    assert {**answer, "seconds": 0} == {**undisturbed, "seconds": 0}


def test_damaged_checkpoints_are_all_kept(saved: bytes, tmp_path: Path) -> None:
    for _ in range(3):
        (tmp_path / "run.pt").write_bytes(saved[:-1])
        with pytest.warns(DamagedCheckpoint):
            assert load_checkpoint(tmp_path / "run.pt", {}) is None
    assert {file.name for file in tmp_path.iterdir()} == {"run.pt.damaged", "run.pt.damaged1", "run.pt.damaged2"}


def test_whole_checkpoint_that_this_version_cannot_read_is_refused(tmp_path: Path, monkeypatch: Any) -> None:
    path = tmp_path / "run.pt"
    monkeypatch.setattr(torch, "save", lambda _, file: file.write(b"of another version"))
    save_checkpoint(path, {}, {})
    with pytest.raises(BatchlensError, match=r"run\.pt is not a checkpoint that can be read; delete it"):
        load_checkpoint(path, {})


def test_folder_in_place_of_a_checkpoint_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BatchlensError, match=r"cannot be read \(Is a directory\); choose another checkpoint"):
        load_checkpoint(tmp_path, {})


def test_checkpoint_without_its_digest_is_set_aside(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    torch.save({"identity": {}, "state": {}}, buffer)
    (tmp_path / "run.pt").write_bytes(buffer.getvalue())
    with pytest.warns(DamagedCheckpoint):
        assert load_checkpoint(tmp_path / "run.pt", {}) is None
