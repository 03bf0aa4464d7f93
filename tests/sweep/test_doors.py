"""A sweep from a name or from an object, read again, and refused where what it is of has changed."""

import json
import re
import sqlite3
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from matplotlib.figure import Figure
from torch import Tensor, nn

import batchlens as bl
from batchlens.sweep._declare import declare
from batchlens.sweep._executors.job import run_job
from batchlens.sweep._filling import SweepInterrupted
from batchlens.sweep._store import VERSION, Store

OLD = Path(__file__).with_name("version-1.sqlite")
FILE = """
from dataclasses import replace
from torch import nn
import batchlens as bl

mine = replace(bl.find_workload("digits"), name="mine", model=lambda: nn.Sequential(
    nn.Flatten(), nn.Linear(64, {hidden}), nn.ReLU(), nn.Linear({hidden}, 10)))
"""
SMALL = {"batch_sizes": [256], "trials": 2, "target": 0.8, "max_steps": 60, "search": "sobol"}


def write_workload(folder: Path, hidden: int) -> str:
    (folder / "mine.py").write_text(FILE.format(hidden=hidden))
    return f"{folder / 'mine.py'}:mine"


def small_mlp() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 10))


DIGITS = bl.find_workload("digits")
MADE_HERE = replace(DIGITS, name="made here", model=small_mlp)


@pytest.mark.slow
def test_a_sweep_of_an_object_is_that_of_its_name(tmp_path: Path) -> None:
    by_name = bl.run_sweep("digits", ["sgd"], **SMALL, store=tmp_path / "name", workers=1)  # type: ignore[arg-type]
    found = bl.find_workload("digits")
    by_object = bl.run_sweep(found, ["sgd"], **SMALL, store=tmp_path / "object", workers=1)  # type: ignore[arg-type]
    assert by_object.declaration == by_name.declaration
    assert by_object.curves() == by_name.curves()


def test_a_workload_made_here_is_trained_here(tmp_path: Path) -> None:
    store = tmp_path / "sweep.sqlite"
    result = bl.run_sweep(MADE_HERE, ["sgd", "momentum"], **SMALL, store=store, repeats=1)  # type: ignore[arg-type]
    assert result.complete
    assert result.summary is not None
    assert result.summary.ran == result.ended == len(result.trials())
    again = bl.run_sweep(MADE_HERE, ["sgd", "momentum"], **SMALL, store=store, repeats=1)  # type: ignore[arg-type]
    assert again.summary is not None
    assert again.summary.ran == 0
    assert again.curves() == result.curves() == bl.read_sweep(store).curves()


def test_another_object_of_the_same_name_is_refused(tmp_path: Path) -> None:
    store = tmp_path / "sweep.sqlite"
    bl.run_sweep(MADE_HERE, ["sgd"], **SMALL, store=store)  # type: ignore[arg-type]

    def other_activation() -> nn.Module:
        return nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.Tanh(), nn.Linear(16, 10))

    def other_losses(outputs: Tensor, targets: Tensor) -> Tensor:
        return 2 * nn.functional.cross_entropy(outputs, targets, reduction="none")

    for change in ({"model": other_activation}, {"loss": other_losses}, {"data": lambda _: DIGITS.data(None)}):
        with pytest.raises(bl.BatchlensError, match="holds another sweep: the workload made here has changed"):
            bl.run_sweep(replace(MADE_HERE, **change), ["sgd"], **SMALL, store=store)  # type: ignore[arg-type]


@pytest.mark.parametrize("where", [{"workers": 2}, {"ray": "auto"}])
def test_no_other_process_can_find_what_was_made_here(tmp_path: Path, where: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"`workload` must be a name where several processes run it.*FILE\.py:NAME"):
        bl.run_sweep(MADE_HERE, ["sgd"], **SMALL, store=tmp_path / "a", **where)  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []


def test_a_sweep_in_this_process_can_be_interrupted(tmp_path: Path) -> None:
    import os
    import signal

    def losses(outputs: Tensor, targets: Tensor) -> Tensor:
        os.kill(os.getpid(), signal.SIGINT)
        return nn.functional.cross_entropy(outputs, targets, reduction="none")

    stubborn = replace(MADE_HERE, loss=losses)
    with pytest.raises(SweepInterrupted, match="0 trials are in"):
        bl.run_sweep(stubborn, ["sgd"], **SMALL, store=tmp_path / "sweep.sqlite")  # type: ignore[arg-type]
    assert bl.read_sweep(tmp_path / "sweep.sqlite").ended == 0


@pytest.mark.slow
def test_an_edited_file_is_refused_by_name(tmp_path: Path) -> None:
    name, store = write_workload(tmp_path, 8), tmp_path / "sweep.sqlite"
    bl.run_sweep(name, ["sgd"], **SMALL, store=store, workers=1)  # type: ignore[arg-type]
    job = {**_job(name), "source": declare(name, ["sgd"]).declaration.source}
    write_workload(tmp_path, 9)
    with pytest.raises(bl.BatchlensError, match=r"mine\.py has changed: its digest was \w{12}, now it is \w{12}"):
        bl.run_sweep(name, ["sgd"], **SMALL, store=store, workers=1)  # type: ignore[arg-type]
    bl.run_sweep(name, ["sgd"], **SMALL, store=tmp_path / "new", workers=1)  # type: ignore[arg-type]
    with pytest.raises(bl.BatchlensError, match=r"of different sweeps: .*mine\.py has changed"):
        bl.merge_sweeps(tmp_path / "all", [store, tmp_path / "new"])
    # A worker of another machine, where the file lies in another version.
    assert re.search(r"mine\.py is not what the sweep was declared with", run_job(job, lambda _: None)["error"])


def test_an_edited_neighbour_is_refused(tmp_path: Path) -> None:
    write_workload(tmp_path, 8)
    file = tmp_path / "mine.py"
    file.write_text(f"import hidden_size\n{file.read_text()}")
    (tmp_path / "hidden_size.py").write_text("import deeper_still\n")
    (tmp_path / "deeper_still.py").write_text("HIDDEN = 8\n")
    before = bl.find_workload(f"{file}:mine").source
    assert bl.find_workload(f"{file}:mine").source == before
    (tmp_path / "deeper_still.py").write_text("HIDDEN = 9\n")
    assert bl.find_workload(f"{file}:mine").source != before


def test_a_workload_file_hides_no_module(tmp_path: Path) -> None:
    import random

    (tmp_path / "random.py").write_text(FILE.format(hidden=4))
    assert bl.find_workload(f"{tmp_path / 'random.py'}:mine").name == "mine"
    assert sys.modules["random"] is random
    (tmp_path / "broken.py").write_text("raise KeyError('no')")
    with pytest.raises(bl.BatchlensError, match=r"broken\.py does not run: KeyError: 'no'"):
        bl.find_workload(f"{tmp_path / 'broken.py'}:mine")
    assert not [name for name in sys.modules if name.endswith("broken")]


def _job(workload: str) -> dict[str, object]:
    return {
        "workload": workload,
        "size": "laptop",
        "optimizer": "sgd",
        "batch_size": 256,
        "settings": {"learning_rate": 0.1},
        "seed": 0,
        "max_steps": 2,
        "target": 0.8,
        "target_on": "validation",
        "device": "cpu",
        "threads": 1,
        "data_dir": None,
        "checkpoint": None,
    }


def test_a_workload_file_is_executed_once(tmp_path: Path) -> None:
    counter = tmp_path / "executions"
    name = write_workload(tmp_path, 8)
    source = (tmp_path / "mine.py").read_text()
    (tmp_path / "mine.py").write_text(f"{source}\nwith open({str(counter)!r}, 'a') as file:\n    file.write('x')\n")
    declare(name, ["sgd", "momentum"], batch_sizes=[16, 64])
    declare(name, ["adam"])
    assert counter.read_text() == "x"


def test_a_workload_without_spaces_has_the_usual_ones(tmp_path: Path) -> None:
    bare = bl.Workload("bare", bl.find_workload("digits").data, small_mlp, target=0.5, train_target=0.5)
    result = bl.run_sweep(bare, ["sgd"], [256], trials=2, store=tmp_path / "a", max_steps=30)
    assert result.declaration.spaces["sgd"] == {"learning_rate": (1e-3, 10.0, "log")}


def test_parameters_without_factors_are_named_in_record_and_report(tmp_path: Path) -> None:
    class Recurrent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rnn, self.head = nn.GRU(8, 4, batch_first=True), nn.Linear(4, 10)

        def forward(self, images: Tensor) -> Tensor:
            logits: Tensor = self.head(self.rnn(images.squeeze(1))[0][:, -1])
            return logits

    workload = replace(MADE_HERE, name="recurrent", model=Recurrent)
    record = bl.train(workload, "kfac", 64, {"learning_rate": 0.1}, max_steps=2)
    (note,) = record.notes
    assert note.startswith("not preconditioned, but moved by plain SGD: rnn.weight_ih_l0")
    assert "GRU" in note
    assert bl.train(workload, "sgd", 64, {"learning_rate": 0.1}, max_steps=2).notes == ()
    result = bl.run_sweep(workload, ["kfac"], [64], trials=1, store=tmp_path / "a.sqlite", max_steps=2)
    assert result.notes == {"kfac": (note,)}
    assert "rnn.weight_ih_l0" in bl.write_report(tmp_path / "a.sqlite").read_text()
    assert result.as_document()["notes"] == {"kfac": [note]}


def test_a_store_of_version_1_is_read(tmp_path: Path) -> None:
    with sqlite3.connect(OLD) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (1,)
    result = bl.read_sweep(OLD)
    assert result.complete
    assert result.ended == len(result.trials()) == 805
    assert {"learning_rate", "momentum", "averaging"} <= set(result.trials().columns)
    assert result.notes == {}


def test_a_store_of_version_1_is_renewed_when_it_is_run_on(tmp_path: Path) -> None:
    path = tmp_path / "old.sqlite"
    path.write_bytes(OLD.read_bytes())
    before = bl.read_sweep(path)
    with Store.open_to_write(path, before.declaration):
        pass
    with sqlite3.connect(path) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (VERSION,)
    after = bl.read_sweep(path)
    assert after.curves() == before.curves()
    assert after.trials().equals(before.trials())


def test_trials_that_differ_are_not_merged(tmp_path: Path) -> None:
    first, second = tmp_path / "first.sqlite", tmp_path / "second.sqlite"
    for path in (first, second):
        path.write_bytes(OLD.read_bytes())
    with sqlite3.connect(second) as connection:
        connection.execute(
            "UPDATE trials SET steps = steps + 1000 WHERE id IN (SELECT id FROM trials WHERE steps > 0 LIMIT 2)"
        )
    for inputs in ([first, second], [second, first]):
        with pytest.raises(bl.BatchlensError, match=r"trials differ: trial \d+ of \w+ at batch size \d+: [\d,]+ steps"):
            bl.merge_sweeps(tmp_path / "all.sqlite", inputs)
    assert not (tmp_path / "all.sqlite").exists()
    bl.merge_sweeps(tmp_path / "all.sqlite", [first, OLD])
    assert bl.read_sweep(tmp_path / "all.sqlite").curves() == bl.read_sweep(OLD).curves()


def test_a_sweep_is_at_home_in_a_notebook() -> None:
    result = bl.read_sweep(OLD)
    assert repr(result).startswith("<SweepResult: digits, 5 optimizers at 8 batch sizes, 40 of 40 searches complete; ")
    assert repr(result).endswith(" (knee)>")
    assert "<table" in result._repr_html_()
    assert len(result.to_frame()) == 40
    json.dumps(result.as_document(), allow_nan=False)
    ax = Figure().add_subplot()
    assert result.plot(ax) is ax
    assert len({line.get_color() for line in ax.lines if line.get_gid()}) == 5


def test_training_seeds_are_left_alone() -> None:
    torch.manual_seed(0)
    declare(MADE_HERE, ["sgd"])
    torch.testing.assert_close(torch.rand(1), torch.rand(1, generator=torch.Generator().manual_seed(0)))


SWEEP = {"workload": "digits", "optimizers": ["sgd"], "batch_sizes": [64], "store": "a"}


@pytest.mark.parametrize(
    ("door", "arguments", "message"),
    [
        (bl.read_sweep, {"path": "x" * 300}, "`path` must be a path that can be used, got x+: File name too long"),
        (bl.read_sweep, {"path": 0.5}, r"`path` must be a path, got 0\.5\."),
        (bl.merge_sweeps, {"out": "a\0b", "inputs": ["b"]}, "`out` must be a path that can be used"),
        (bl.merge_sweeps, {"out": "a", "inputs": iter(())}, "`inputs` must be a sequence"),
        (bl.run_sweep, {**SWEEP, "shard": 0.5}, r"`shard` must be a str, got 0\.5"),
        (bl.run_sweep, {**SWEEP, "trials": 10**9}, "`trials` must be at most 1000000, got 1000000000"),
        (bl.run_sweep, {**SWEEP, "spaces": iter(())}, "`spaces` must be a Mapping"),
        (bl.run_sweep, {**SWEEP, "pruning": 3}, "`pruning` must be True or False, got 3"),
        (partial(replace, MADE_HERE), {"name": 3}, "`name` must be a str, got 3"),
        (partial(replace, MADE_HERE), {"batch_sizes": (0,)}, "`batch_sizes` must be at least 1, got 0"),
    ],
)
def test_what_nobody_should_pass_is_refused_in_a_sentence(
    door: Callable[..., object], arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        door(**arguments)
