"""A run's log: what is in it, what a kill leaves of it, and how it goes on."""

import json
import math
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import batchlens as bl
from batchlens.scaling._logs.log import Log
from batchlens.scaling._logs.reading import read_path


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_the_first_line_says_what_the_run_is(tmp_path: Path) -> None:
    path = tmp_path / "runs" / "b256.jsonl"
    with bl.Monitor(path, batch_size=64, accumulation=2, world_size=2, learning_rate=0.1, seed=3) as monitor:
        assert repr(monitor) == f"<Monitor: {path}, batch size 256>"
    (run,) = lines_of(path)
    assert (run["batch_size"], run["accumulation"], run["world_size"], run["effective_batch_size"]) == (64, 2, 2, 256)
    assert run["settings"] == {"learning_rate": 0.1, "seed": 3}
    assert run["versions"]["batchlens"] == bl.__version__
    assert {"host", "system", "started"} <= run.keys()


@pytest.mark.parametrize(
    ("optimizer", "name", "settings"),
    [
        ("lion", "lion", {}),
        (lambda weights: torch.optim.SGD(weights, lr=0.5), "sgd", {"learning_rate": 0.5, "momentum": 0}),
        (lambda weights: torch.optim.SGD(weights, lr=0.5, momentum=0.9), "momentum", {"momentum": 0.9}),
        (lambda weights: torch.optim.SGD(weights, lr=0.5, momentum=0.9, nesterov=True), "nesterov", {"nesterov": True}),
        (lambda weights: torch.optim.AdamW(weights, betas=(0.8, 0.9)), "adamw", {"betas_0": 0.8, "betas_1": 0.9}),
        (lambda weights: torch.optim.Adam(weights, lr=torch.tensor(0.25)), "adam", {"learning_rate": 0.25}),
    ],
)
def test_an_optimizer_is_noted_with_its_settings(
    tmp_path: Path, optimizer: Any, name: str, settings: dict[str, Any]
) -> None:
    made = optimizer if isinstance(optimizer, str) else optimizer([torch.nn.Parameter(torch.zeros(2))])
    with bl.Monitor(tmp_path / "run.jsonl", batch_size=4, optimizer=made) as monitor:
        assert monitor.run["optimizer"] == name
        assert settings.items() <= monitor.run["settings"].items()


def test_the_learning_rate_is_the_one_before_a_warmup(tmp_path: Path) -> None:
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(2))], lr=0.5)
    torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.0)
    with bl.Monitor(tmp_path / "run.jsonl", batch_size=4, optimizer=optimizer) as monitor:
        assert monitor.run["settings"]["learning_rate"] == 0.5


def test_records_are_in_the_file_at_once(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    with bl.Monitor(path, batch_size=4) as monitor:
        monitor.log(0, loss=torch.tensor(2.5), accuracy=np.float32(0.5), **{"eval/f1": np.array([1])})
        monitor.log(np.int64(3), loss=math.nan, accuracy=-math.inf)
        monitor.log(3, loss=1)
        records = lines_of(path)[1:]
    assert [record.pop("seconds") >= 0 for record in records] == [True] * 3
    assert records == [
        {"step": 0, "loss": 2.5, "accuracy": 0.5, "eval/f1": 1.0},
        {"step": 3, "loss": None, "accuracy": None},
        {"step": 3, "loss": 1.0},
    ]
    with pytest.raises(bl.BatchlensError, match=r"run\.jsonl is closed: nothing can be logged after the run\."):
        monitor.log(4, loss=1)


@pytest.mark.parametrize(
    ("step", "metrics", "message"),
    [
        (9, {"loss": 1}, "`step` must be at least 10, that of the record before, got 9."),
        (10.5, {"loss": 1}, "`step` must be a whole number, got 10.5."),
        ("a", {"loss": 1}, "`step` must be a whole number, got 'a'."),
        (11, {"loss": "low"}, "`loss` must be a number or a tensor of one, got 'low'."),
        (11, {"loss": None}, "`loss` must be a number or a tensor of one, got None."),
        (11, {"loss": True}, "`loss` must be a number or a tensor of one, got True."),
        (11, {"loss": torch.zeros(2)}, "`loss` must be a number or a tensor of one, got tensor([0., 0.])."),
        (11, {"loss": [1.0]}, "`loss` must be a number or a tensor of one, got [1.0]."),
        (11, {"seconds": 1}, "a metric must not be named 'seconds': batchlens, step, seconds, noise mean something"),
        (11, {"step": 1}, "a metric must not be named 'step'"),
        (11, {"": 1}, "a metric must have a name that can be printed, got ''."),
        (11, {"a\nb": 1}, "a metric must have a name that can be printed, got 'a\\nb'."),
    ],
)
def test_bad_records_are_refused_and_leave_no_trace(
    tmp_path: Path, step: Any, metrics: dict[str, Any], message: str
) -> None:
    path = tmp_path / "run.jsonl"
    with bl.Monitor(path, batch_size=4) as monitor:
        monitor.log(10, loss=1)
        before = path.read_bytes()
        with pytest.raises((ValueError, TypeError)) as caught:
            monitor.log(step, **metrics)
        assert message in str(caught.value)
        assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"batch_size": 0}, "`batch_size` must be at least 1, got 0."),
        ({"batch_size": 4, "accumulation": 1.5}, "`accumulation` must be a whole number, got 1.5."),
        ({"batch_size": 4, "world_size": "all"}, "`world_size` must be a whole number, got 'all'."),
        ({"batch_size": 4, "optimizer": 3}, "`optimizer` must be a name or a torch.optim.Optimizer, got 3."),
        ({"batch_size": 4, "noise": 3}, "`noise` must have a method estimate, as a NoiseScale has, got 3."),
        ({"batch_size": 4, "model": object}, "`model` must be a number, a word or a flag to be a setting of the run"),
        ({"batch_size": 4, "resume": "yes"}, "`resume` must be True or False, got 'yes'."),
    ],
)
def test_bad_runs_are_refused_and_leave_no_file(tmp_path: Path, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises((ValueError, TypeError)) as caught:
        bl.Monitor(tmp_path / "run.jsonl", **arguments)
    assert message in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_a_run_is_never_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    path.write_text("precious")
    with pytest.raises(bl.BatchlensError, match=r"run\.jsonl exists, and a run is never overwritten\. .* resume=True"):
        bl.Monitor(path, batch_size=4)
    assert path.read_text() == "precious"
    with pytest.raises(bl.BatchlensError, match=r"run\.jsonl is no file of a Monitor, and is never overwritten\."):
        bl.Monitor(path, batch_size=4, resume=True)
    assert path.read_text() == "precious"
    with pytest.raises(bl.BatchlensError, match=r"below\.jsonl cannot be written: File exists"):
        bl.Monitor(path / "below.jsonl", batch_size=4)


def test_a_run_goes_on_where_its_checkpoint_was(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    arguments: dict[str, Any] = {"batch_size": 4, "learning_rate": 0.1, "resume": True}
    with bl.Monitor(path, **arguments) as monitor:
        for step in range(0, 40, 10):
            monitor.log(step, loss=100 - step)
    with open(path, "a") as file:
        file.write('{"step": 40, "lo')  # as a kill leaves it
    spent = lines_of_whole(path)[-1]["seconds"]
    with bl.Monitor(path, **arguments) as monitor:
        for step in range(20, 60, 10):
            monitor.log(step, loss=50 - step)
    assert [line.get("step") for line in lines_of(path)] == [None, 0, 10, 20, 30, None, 20, 30, 40, 50]
    assert lines_of(path)[6]["seconds"] >= spent
    (log,) = read_path(path)
    assert isinstance(log, Log)
    assert log.curve("loss").steps.tolist() == [0, 10, 20, 30, 40, 50]
    assert log.curve("loss").values.tolist() == [100, 90, 30, 20, 10, 0]


def lines_of_whole(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().split("\n")[:-1]]


def test_only_the_same_run_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    bl.Monitor(path, batch_size=4, learning_rate=0.1).close()
    before = path.read_bytes()
    with pytest.raises(
        bl.BatchlensError, match=r"is of a run with effective_batch_size 4, and this one has effective_batch_size 8\."
    ):
        bl.Monitor(path, batch_size=8, learning_rate=0.1, resume=True)
    with pytest.raises(
        bl.BatchlensError, match=r"is of a run with learning_rate 0\.1, and this one has learning_rate 0\.2\."
    ):
        bl.Monitor(path, batch_size=4, learning_rate=0.2, resume=True)
    assert path.read_bytes() == before
    with bl.Monitor(path, batch_size=2, accumulation=2, learning_rate=0.1, resume=True) as monitor:  # on other machines
        monitor.log(1, loss=1)


def test_a_run_goes_on_whose_learning_rate_was_changed_by_hand(tmp_path: Path) -> None:
    path, model = tmp_path / "run.jsonl", torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    bl.Monitor(path, batch_size=4, optimizer=optimizer, dropout=0.5).close()
    optimizer.param_groups[0]["lr"] = 0.01
    bl.Monitor(path, batch_size=4, optimizer=optimizer, dropout=0.5, resume=True).close()
    assert lines_of(path)[0]["settings"]["learning_rate"] == 0.1
    with pytest.raises(bl.BatchlensError, match=r"with optimizer sgd, and this one has optimizer adam\."):
        bl.Monitor(path, batch_size=4, optimizer=torch.optim.Adam(model.parameters()), dropout=0.5, resume=True)
    with pytest.raises(bl.BatchlensError, match=r"with dropout 0\.5, and this one has dropout 0\.1\."):
        bl.Monitor(path, batch_size=4, optimizer=optimizer, dropout=0.1, resume=True)


def test_a_run_that_was_killed_at_once_begins_anew(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    path.write_text('{"batchlens": 1, "batch')
    with bl.Monitor(path, batch_size=4, resume=True) as monitor:
        monitor.log(1, loss=1)
    assert [line.get("step") for line in lines_of(path)] == [None, 1]


KILLED = """
import sys, batchlens as bl
monitor = bl.Monitor(sys.argv[1], batch_size=4, resume=True)
for step in range(10**9):
    monitor.log(step, loss=1 / (1 + step))
    if step == 20:
        print("going", flush=True)
"""


def test_a_run_that_is_killed_keeps_its_records_and_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    for _ in range(2):
        process = subprocess.Popen([sys.executable, "-c", KILLED, str(path)], stdout=subprocess.PIPE)
        assert process.stdout is not None
        assert process.stdout.readline() == b"going\n"
        process.send_signal(signal.SIGTERM if os.name == "nt" else signal.SIGKILL)
        process.wait()
        process.stdout.close()
        (fitted,) = bl.fit(path, metric="loss", target=0.1, smoothing=0)
        assert fitted.curve.steps == pytest.approx((9,))


def test_only_the_first_of_several_processes_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "4")
    for rank in ("1", "0", "2"):
        monkeypatch.setenv("RANK", rank)
        with bl.Monitor(tmp_path / "run.jsonl", batch_size=4) as monitor:
            monitor.log(1, rank=int(rank))
    run, record = lines_of(tmp_path / "run.jsonl")
    assert (run["world_size"], run["effective_batch_size"], record["rank"]) == (4, 16, 0)


def test_torch_says_which_process_this_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 3)
    for rank in (2, 0):
        monkeypatch.setattr(torch.distributed, "get_rank", lambda rank=rank: rank)
        with bl.Monitor(tmp_path / "run.jsonl", batch_size=4) as monitor:
            assert monitor.run["effective_batch_size"] == 12
    assert len(lines_of(tmp_path / "run.jsonl")) == 1


class Noise:
    """As a NoiseScale: what it estimates is a result with a document."""

    left_out: tuple[str, ...] = ("a",)

    def estimate(self) -> "Noise":
        return self

    def as_document(self) -> dict[str, Any]:
        return {"value": 256.0, "interval": [128.0, math.inf], "sentence": "It is.", "left_out": list(self.left_out)}


def test_the_noise_scale_goes_into_each_record(tmp_path: Path) -> None:
    with bl.Monitor(tmp_path / "run.jsonl", batch_size=4, noise=Noise()) as monitor:
        monitor.log(1, loss=1)
        monitor.log(2, loss=1)
        Noise.left_out = ("a", "b")
        monitor.log(3, loss=1)
    numbers = {"value": 256.0, "interval": [128.0, None]}
    *records, last = lines_of(tmp_path / "run.jsonl")[1:]
    assert [record["noise"] for record in records] == [
        numbers | {"left_out": ["a"]},
        numbers,
        numbers | {"left_out": ["a", "b"]},
    ]
    assert last == {"batchlens": 1, "noise": numbers | {"sentence": "It is.", "left_out": ["a", "b"]}}
    (fitted,) = bl.fit(tmp_path, metric="loss", target=2, direction="down")
    assert fitted.curve.steps == (1,)


def test_a_monitor_needs_no_torch() -> None:
    code = "import sys, batchlens as bl; bl.Monitor; sys.exit('torch' in sys.modules or 'numba' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
