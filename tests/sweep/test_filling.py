"""Small sweeps of the digits workload; worker processes take seconds to start, so there are few."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from batchlens.errors import BatchlensError
from batchlens.sweep._cells import cell_results
from batchlens.sweep._declaration import Cell, Shard
from batchlens.sweep._declare import DeclaredSweep, declare
from batchlens.sweep._filling import RETRIES, fill
from batchlens.sweep._points import unit_point
from batchlens.sweep._progress import Progress
from batchlens.sweep._search import MOST_GENERATIONS
from batchlens.sweep._store import Store
from batchlens.sweep.merging import merge_sweeps
from batchlens.sweep.results import read_sweep
from batchlens.training.loop import train
from batchlens.training.spaces import Range

SOBOL: Any = {"search": "sobol", "target": 0.9}
SWEEP = declare("digits", ["sgd", "momentum"], batch_sizes=[256, 1024], trials=6, keep=2, max_steps=120, **SOBOL)
CRASHES = Path(__file__).with_name("crash_workload.py")


def winners(path: Path) -> list[list[tuple[int, int | None]]]:
    """Number and steps of the best trials of every cell."""
    with Store.open(path) as store:
        results = cell_results(store)
    assert all(result.complete for result in results)
    best = [[result.winner, *result.runners_up] for result in results]
    return [[(trial.key.number, trial.steps) for trial in trials if trial is not None] for trials in best]


def steps_taken(path: Path) -> int:
    with Store.open(path) as store:
        return sum(trial.steps_taken for trial in store.read_trials())


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("finished") / "sweep.sqlite"
    fill(SWEEP, path, workers=2)
    return path


def test_trial_is_the_run_that_its_row_says(finished: Path) -> None:
    with Store.open(finished) as store:
        trials = store.read_trials(histories=True)
    trial = next(trial for trial in trials if trial.status == "reached")
    key = trial.key
    arguments = {"seed": trial.seed, "max_steps": 120, "target": SWEEP.declaration.target, "threads": 1}
    record = train("digits", key.optimizer, key.batch_size, trial.settings, **arguments)  # type: ignore[arg-type]
    assert (record.status, record.steps, record.best_metric) == (trial.status, trial.steps, trial.metric)
    assert [(entry.step, entry.metric, entry.relation) for entry in record.history] == list(trial.history)


def test_second_run_has_nothing_to_do(finished: Path) -> None:
    before = finished.read_bytes()
    summary = fill(SWEEP, finished)
    assert (summary.ran, read_sweep(finished).complete) == (0, True)
    connection = sqlite3.connect(finished)
    assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    connection.close()
    assert len(before) == finished.stat().st_size


def test_result_depends_on_neither_order_nor_pruning_nor_workers(finished: Path, tmp_path: Path) -> None:
    path = tmp_path / "other.sqlite"
    fill(SWEEP, path, workers=1, pruning=False, shuffle=5)
    assert read_sweep(path).steps_saved == 0
    assert winners(path) == winners(finished)
    taken = {file: steps_taken(file) for file in (finished, path)}
    print(f"pruning saved {taken[path] - taken[finished]} of {taken[path]} steps")
    assert taken[finished] < taken[path]


def test_more_trials_repeats_and_extensions_are_added(finished: Path, tmp_path: Path) -> None:
    path = tmp_path / "copy.sqlite"
    path.write_bytes(finished.read_bytes())
    with Store.open(path) as store:
        before = store.read_trials()
    more = replace(SWEEP, declaration=replace(SWEEP.declaration, trials=7))
    seen: list[Progress] = []
    fill(more, path, workers=1, repeats=1, extend=True, watch=seen.append)
    assert read_sweep(path).complete
    assert seen[-1].ended <= read_sweep(path).ended
    with Store.open(path) as store:
        after = store.read_trials()
        results = cell_results(store)
        extended = [cell for cell, generations in store.generations().items() if len(generations) > 1]
    assert {trial.key for trial in before} < {trial.key for trial in after}
    assert [trial for trial in after if trial.key in {old.key for old in before}] == before
    for result in results:
        assert result.winner is not None
        (repeat,) = result.repeats
        assert repeat.settings == result.winner.settings
        assert repeat.seed != result.winner.seed
    assert all(result.counted > more.declaration.trials for result in results if result.cell in extended)
    again = fill(more, path, repeats=1, extend=True)
    assert again.ran == 0


@pytest.mark.slow
def test_search_is_extended_until_its_winner_is_inside(tmp_path: Path) -> None:
    """Learning rates so small that the largest is the best."""
    cell, rates = Cell("sgd", 256), Range(1e-2, 1e-1)
    seed = next(seed for seed in count() if max(unit_point(seed, cell, number, 1)[0] for number in range(4)) > 0.95)
    spaces = {"sgd": {"learning_rate": rates}}
    sweep = declare("digits", ["sgd"], batch_sizes=[256], trials=4, seed=seed, max_steps=300, spaces=spaces, **SOBOL)
    path = tmp_path / "sweep.sqlite"
    fill(sweep, path, workers=1, extend=False)
    with Store.open(path) as store:
        assert cell_results(store)[0].edges == (("learning_rate", "high"),)
    fill(sweep, path, workers=1, extend=True)
    with Store.open(path) as store:
        generations = store.generations()[cell]
        trials = store.read_trials()
        (result,) = cell_results(store)
    assert [generation.box["learning_rate"] for generation in generations[:2]] == [(0.0, 1.0), (0.0, 1.5)]
    assert result.complete
    assert max(trial.settings["learning_rate"] for trial in trials) > rates.high
    assert not result.edges or len(generations) == MOST_GENERATIONS
    assert fill(sweep, path, workers=1, extend=True).ran == 0


@pytest.mark.slow
def test_shards_together_are_the_sweep(finished: Path, tmp_path: Path) -> None:
    shards = [tmp_path / "1", tmp_path / "2"]
    for index, path in enumerate(shards, start=1):
        fill(SWEEP, path, workers=1, shard=Shard(index, 2))
    merge_sweeps(tmp_path / "all", shards)
    fill(SWEEP, tmp_path / "all", workers=1)
    assert winners(tmp_path / "all") == winners(finished)


def crashing(name: str, rates: Range, **changes: int) -> DeclaredSweep:
    spaces = {"sgd": {"learning_rate": rates}}
    sweep = declare(
        f"{CRASHES}:{name}", ["sgd"], batch_sizes=[256], trials=2, max_steps=20, spaces=spaces, search="sobol"
    )
    return replace(sweep, declaration=replace(sweep.declaration, **changes))  # type: ignore[arg-type]


@pytest.mark.slow
def test_trial_that_kills_its_worker_fails_alone(tmp_path: Path) -> None:
    path = tmp_path / "sweep.sqlite"
    cell = Cell("sgd", 256)
    points = ([unit_point(seed, cell, number, 1)[0] for number in range(3)] for seed in count())
    seed = next(seed for seed, (first, *others) in enumerate(points) if first > 0.95 and max(others) < 0.5)
    summary = fill(crashing("deadly", Range(1e-3, 1e3), seed=seed), path, workers=1, extend=False)
    assert (read_sweep(path).complete, summary.failed, summary.retried) == (True, 1, RETRIES)
    with Store.open(path) as store:
        failed, *others = store.read_trials()
    assert (failed.key.number, failed.status) == (0, "failed")
    assert failed.reason == "the worker was ended by SIGKILL (out of memory?), 3 times"
    assert [trial.status for trial in others if trial.status == "failed"] == []
    assert len(others) == 2


@pytest.fixture
def children(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where workloads name the processes that they leave behind; ended here."""
    folder = tmp_path / "children"
    folder.mkdir()
    monkeypatch.setenv("CHILDREN", str(folder))
    yield folder
    for child in folder.iterdir():
        os.kill(int(child.name), signal.SIGKILL)


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_child_that_holds_the_pipe_of_a_worker_does_not_hold_up_the_sweep(tmp_path: Path, children: Path) -> None:
    sweep = crashing("parent", Range(1e-3, 1e-2), trials=1)
    with Store.open_to_write(tmp_path / "sweep.sqlite", sweep.declaration):
        pass  # data are not looked at in this process where there is a store
    fill(sweep, tmp_path / "sweep.sqlite", workers=1)
    assert read_sweep(tmp_path / "sweep.sqlite").complete
    assert len(list(children.iterdir())) == 1


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_killed_worker_is_noticed_while_its_child_holds_the_pipe(tmp_path: Path, children: Path) -> None:
    sweep = crashing("deadly_parent", Range(1e-3, 1e-2), trials=1)
    with Store.open_to_write(tmp_path / "sweep.sqlite", sweep.declaration):
        pass
    summary = fill(sweep, tmp_path / "sweep.sqlite", workers=1)
    assert (summary.failed, summary.retried) == (0, 1)
    assert read_sweep(tmp_path / "sweep.sqlite").complete


@pytest.mark.slow
def test_trial_without_memory_is_run_again(tmp_path: Path) -> None:
    sweep = crashing("hungry", Range(1e-3, 1e-2), trials=1)
    summary = fill(sweep, tmp_path / "sweep.sqlite", workers=1)
    assert summary.failed == read_sweep(tmp_path / "sweep.sqlite").ended == 5
    assert summary.retried == RETRIES * 5
    assert fill(sweep, tmp_path / "sweep.sqlite", workers=1).ran == 0
    assert fill(sweep, tmp_path / "sweep.sqlite", workers=1, retry_failed=True).ran == 5


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("absent", "the data set is not there"),
        pytest.param("faulty", "trial 0 of sgd at batch size 256: KeyError", marks=pytest.mark.slow),
    ],
)
def test_error_that_every_trial_would_meet_ends_the_sweep(tmp_path: Path, name: str, message: str) -> None:
    path = tmp_path / "sweep.sqlite"
    with pytest.raises(BatchlensError, match=message):
        fill(crashing(name, Range(1e-3, 1e-2)), path, workers=1)
    if name == "absent":  # told before anything is made
        assert not path.exists()
        return
    with Store.open(path) as store:
        assert store.read_trials() == []
        store.refuse_if_locked()


def test_store_of_another_sweep_is_refused(finished: Path) -> None:
    with pytest.raises(BatchlensError, match=r"holds another sweep: target is 0\.9, not 0\.8"):
        fill(replace(SWEEP, declaration=replace(SWEEP.declaration, target=0.8)), finished)


@pytest.mark.parametrize(("name", "value"), [("workers", 0), ("device", "gpu")])
def test_bad_arguments_leave_no_store_behind(tmp_path: Path, name: str, value: object) -> None:
    with pytest.raises(ValueError, match=f"`{name}` must be"):
        fill(SWEEP, tmp_path / "a", **{name: value})  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []


def test_missing_data_leaves_no_store_behind(tmp_path: Path) -> None:
    sweep = declare("simple_cnn_mnist", ["sgd"], batch_sizes=[64], trials=1)
    with pytest.raises(BatchlensError, match="batchlens data fetch mnist"):
        fill(sweep, tmp_path / "a", data_dir=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_arguments_that_exclude_each_other(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="`repeats` and `extend` need the whole sweep"):
        fill(SWEEP, tmp_path / "a", shard=Shard(1, 2), repeats=1)
    with pytest.raises(ValueError, match="give one of them"):
        fill(SWEEP, tmp_path / "a", workers=1, ray="auto")


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)])
def test_signal_stops_a_sweep_and_says_how_to_go_on(tmp_path: Path, number: signal.Signals) -> None:
    path = tmp_path / "sweep.sqlite"
    code = f"""
from batchlens.sweep._search import MOST_GENERATIONS
from batchlens.sweep._declare import DeclaredSweep, declare
from batchlens.sweep._filling import SweepInterrupted, fill
sweep = declare("digits", ["sgd"], batch_sizes=[8], trials=50, max_steps=100_000, target=1.0, search="sobol")
try:
    fill(sweep, {str(path)!r}, workers=1, watch=lambda progress: print(progress.running, flush=True))
except SweepInterrupted as interrupted:
    print(interrupted)
"""
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    while process.stdout.readline().strip() != "1":
        pass
    time.sleep(0.5)
    process.send_signal(number)
    last = process.communicate()[0].splitlines()[-1]
    assert last == f"stopped: 0 trials are in {path}, 0 of them from this run; run the same again to go on"
    with Store.open(path) as store:
        store.refuse_if_locked()
    assert [file.name for file in path.with_name("sweep.sqlite.runs").iterdir()] == ["sgd-8-0-0.pt"]


def test_sweep_warns_of_a_damaged_checkpoint_and_finds_the_same(tmp_path: Path) -> None:
    sweep = replace(SWEEP, named=False)
    undamaged, path = tmp_path / "undamaged.sqlite", tmp_path / "sweep.sqlite"
    fill(sweep, undamaged)
    checkpoint = tmp_path / "sweep.sqlite.runs" / "momentum-256-3-0.pt"
    checkpoint.parent.mkdir()
    checkpoint.write_bytes(b"batchlens checkpoint\nand then nothing")
    with pytest.warns(UserWarning, match="trial 3 of momentum at batch size 256: .* is damaged") as caught:
        summary = fill(sweep, path)
    assert (len(caught), summary.failed) == (1, 0)
    assert winners(path) == winners(undamaged)


def test_space_of_a_cell_is_the_declared_one() -> None:
    sweep = declare("resnet32_cifar10", ["sgd"], batch_sizes=[64], spaces={"sgd": {"learning_rate": Range(0.1, 0.2)}})
    space = sweep.space(Cell("sgd", 64))
    assert space["learning_rate"] == Range(0.1, 0.2)
    assert space["decay_steps"].high == sweep.declaration.budget(64)
    assert json.loads(sweep.declaration.as_json())["spaces"]["sgd"]["decay_steps"] == [0.02, 1.0, "log"]


def test_reach_ends_where_settings_must() -> None:
    space = {"learning_rate": Range(0.1, 1.0), "momentum": Range(0.5, 0.99, "log_one_minus")}
    sweep = declare("digits", ["momentum"], batch_sizes=[64], spaces={"momentum": space})
    reach = sweep.reach(Cell("momentum", 64))
    assert reach["learning_rate"] == (float("-inf"), float("inf"))
    assert space["momentum"].at(reach["momentum"][0]) == pytest.approx(0)
    assert reach["momentum"][1] == float("inf")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"optimizers": ["sdg"]}, "`optimizers` must be one of sgd,"),
        ({"optimizers": ["sgd"], "target_on": "test"}, "`target_on` must be one of validation, train"),
        ({"optimizers": ["sgd"], "trials": 0}, "`trials` must be at least 1"),
        ({"optimizers": ["sgd"], "max_steps": 0}, "`max_steps` must be at least 1"),
        ({"optimizers": ["sgd"], "spaces": {"sgd": {"momentum": Range(0.1, 0.2)}}}, "got momentum"),
    ],
)
def test_bad_declaration_is_refused(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        declare("digits", **arguments)  # type: ignore[arg-type]
