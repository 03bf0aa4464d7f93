import os
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from batchlens.errors import BatchlensError
from batchlens.sweep import _lock as lock
from batchlens.sweep import _store as store_module
from batchlens.sweep._declaration import Cell
from batchlens.sweep._search import Generation
from batchlens.sweep._store import Store
from batchlens.sweep._trial import Key, Trial
from batchlens.sweep.merging import merge_sweeps
from batchlens.sweep.results import read_sweep
from tests.sweep.simulation import make_declaration

SWEEP = make_declaration()
CELL = Cell("sgd", 16)


def make_trial(number: int = 0, **changes: object) -> Trial:
    trial = Trial(
        key=Key(*CELL, number),
        position={"learning_rate": 0.5, "momentum": 0.9},
        settings={"learning_rate": 0.1, "momentum": 0.9},
        seed=7,
        status="reached",
        steps=12,
        steps_taken=12,
        metric=0.95,
        seconds=1.5,
        host="here",
        versions={"torch": "2"},
        history=((0, 0.1, "<="), (12, 0.95, "=")),
    )
    return replace(trial, **changes)  # type: ignore[arg-type]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "sweep.sqlite"


@pytest.fixture
def store(path: Path) -> Iterator[Store]:
    with Store.open_to_write(path, SWEEP) as store:
        yield store


def test_what_is_kept_is_what_is_read(store: Store, path: Path) -> None:
    trials = [make_trial(0), make_trial(1, status="failed", steps=None, metric=None, reason="why", history=())]
    for trial in trials:
        store.add(trial)
    with Store.open(path) as reader:
        assert reader.read_trials(histories=True) == trials
        assert reader.declaration == SWEEP


def test_tables_as_frames(store: Store) -> None:
    store.add(make_trial(0))
    store.add(make_trial(1, status="pruned", steps=None, metric=None, history=((0, 0.1, "<="),)))
    trials, histories = store.trials(), store.histories()
    assert trials["steps"].isna().tolist() == [False, True]
    assert (trials["learning_rate"][0], trials["momentum"][0]) == (0.1, 0.9)
    assert {"settings", "position", "versions"}.isdisjoint(trials.columns)
    assert histories[["number", "step"]].to_numpy().tolist() == [[0, 0], [0, 12], [1, 0]]


def test_frames_of_an_empty_store(store: Store, tmp_path: Path) -> None:
    assert len(store.trials()) == len(store.histories()) == 0
    read_sweep(store.path).to_csv(tmp_path / "tables")


def test_trial_is_never_kept_twice(store: Store) -> None:
    store.add(make_trial())
    with pytest.raises(BatchlensError, match="UNIQUE"):
        store.add(make_trial())
    assert len(store.read_trials(histories=True)[0].history) == 2


def test_only_the_histories_asked_for_are_kept(store: Store, path: Path) -> None:
    long = tuple((step, 0.1, "=") for step in range(2_000))
    trials = [make_trial(number, history=long) for number in range(3)]
    for trial in trials:
        store.add(trial)
    before = path.stat().st_size
    store.keep_histories([trials[1].key])
    assert store.read_trials() == [replace(trial, history=()) for trial in trials]
    assert [len(trial.history) for trial in store.read_trials(histories=True)] == [0, 2_000, 0]
    assert path.stat().st_size < before / 2
    store.add(make_trial(3))  # it is still a store, and locked
    with pytest.raises(BatchlensError, match="in use"):
        Store.open_to_write(path, SWEEP)


def test_a_store_open_for_reading_forgets_nothing(store: Store, path: Path) -> None:
    store.add(make_trial())
    with Store.open(path) as reader, pytest.raises(BatchlensError, match="reading only"):
        reader.keep_histories([])


def test_generations_are_kept(store: Store) -> None:
    wider = Generation(4, {"learning_rate": (-0.5, 1.0), "momentum": (0.0, 1.0)})
    store.add_generation(CELL, wider)
    assert store.generations()[CELL][1:] == [wider]
    assert store.generations()[Cell("sgd", 64)][1:] == []


def test_reading_needs_no_torch(store: Store, path: Path) -> None:
    store.add(make_trial())
    code = (
        "import sys; from batchlens.sweep._store import Store; from batchlens.sweep._cells import cell_results\n"
        f"with Store.open({str(path)!r}) as store: cell_results(store), store.trials(), store.histories()\n"
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_file_that_is_no_store_is_refused(path: Path) -> None:
    path.write_text("optimizer,steps\nsgd,12\n" * 100, encoding="utf-8")
    with pytest.raises(BatchlensError, match="is not a sweep's store"):
        Store.open(path)
    with pytest.raises(BatchlensError, match="is not a sweep's store"):
        Store.open_to_write(path, SWEEP)


def test_other_database_is_refused(path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE trials (a)")
    connection.close()
    for open_it in (Store.open, lambda path: Store.open_to_write(path, SWEEP)):
        with pytest.raises(BatchlensError, match="is not a sweep's store"):
            open_it(path)


def test_other_version_is_refused(path: Path) -> None:
    Store.open_to_write(path, SWEEP).close()
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    with pytest.raises(BatchlensError, match="is a store of version 99; this batchlens reads 1"):
        Store.open(path)


def test_missing_file_and_folder(path: Path, tmp_path: Path) -> None:
    with pytest.raises(BatchlensError, match="is not a file"):
        Store.open(path)
    with pytest.raises(BatchlensError, match="cannot be opened"):
        Store.open_to_write(tmp_path / "nowhere" / "sweep.sqlite", SWEEP)


def test_empty_file_is_as_good_as_none(path: Path) -> None:
    path.touch()  # what is left where the first transaction was cut short
    with pytest.raises(BatchlensError, match="is empty"):
        Store.open(path)
    with Store.open_to_write(path, SWEEP) as store:
        assert store.read_trials() == []


def test_other_declaration_is_refused_with_what_differs(path: Path) -> None:
    Store.open_to_write(path, SWEEP).close()
    with pytest.raises(BatchlensError, match=r"holds another sweep: seed is 0, not 3; keep is 2, not 4\."):
        Store.open_to_write(path, replace(SWEEP, seed=3, keep=4))


def test_trials_may_grow_but_not_shrink(path: Path) -> None:
    Store.open_to_write(path, SWEEP).close()
    with Store.open_to_write(path, replace(SWEEP, trials=9)) as store:
        assert store.declaration.trials == 9
    with pytest.raises(BatchlensError, match="was made for 9 trials; it cannot be cut to 4"):
        Store.open_to_write(path, SWEEP)


def test_other_shard_is_refused(path: Path) -> None:
    Store.open_to_write(path, SWEEP, "1/2").close()
    with pytest.raises(BatchlensError, match="holds shard 1/2, not the whole sweep"):
        Store.open_to_write(path, SWEEP)


def test_store_in_use_is_refused(store: Store, path: Path) -> None:
    with pytest.raises(BatchlensError, match=f"is in use by a sweep on .* \\(process {os.getpid()}\\)"):
        Store.open_to_write(path, SWEEP)


def test_closed_store_is_free(store: Store, path: Path) -> None:
    store.close()
    with Store.open_to_write(path, SWEEP) as again:
        again.add(make_trial())
        assert again.read_trials(histories=True) == [make_trial()]


def set_lock(path: Path, **values: object) -> None:
    connection = sqlite3.connect(path)
    with connection:
        for name, value in values.items():
            connection.execute(f"UPDATE lock SET {name} = ?", (value,))
    connection.close()


def test_lock_of_a_dead_process_is_taken_over(store: Store, path: Path) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    set_lock(path, pid=ended.pid)
    Store.open_to_write(path, SWEEP).close()
    with pytest.raises(BatchlensError, match="was taken over by another sweep"):
        store.add(make_trial())


def test_number_of_a_dead_process_in_use_again_is_noticed(store: Store, path: Path) -> None:
    set_lock(path, started=f"{lock._place()}|at another time")
    Store.open_to_write(path, SWEEP).close()
    with pytest.raises(BatchlensError, match="was taken over by another sweep"):
        store.add(make_trial())


class Clock:
    """Time that passes only while someone sleeps, who is then told."""

    def __init__(self, wall: float) -> None:
        self.wall, self.passed = wall, 0.0
        self.beats: Callable[[], None] = lambda: None

    def monotonic(self) -> float:
        return self.passed

    def time(self) -> float:
        return self.wall + self.passed

    def sleep(self, seconds: float) -> None:
        self.passed += seconds
        self.beats()


@pytest.fixture(params=[0, -70, 70, 86_400], ids="clock {:+d} s".format)
def clock(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The time of a newcomer, of which the wall clock may be wrong."""
    clock = Clock(time.time() + request.param)
    monkeypatch.setattr(lock, "time", clock)
    return clock


# Beside this process, but in a container; and on another machine.
ELSEWHERE = [{"started": "this boot:pid:[1]|12345"}, {"host": "elsewhere", "started": ""}]


@pytest.mark.parametrize("place", ELSEWHERE)
def test_sweep_elsewhere_is_alive_while_its_heartbeat_changes(
    store: Store, path: Path, clock: Clock, place: dict[str, object]
) -> None:
    set_lock(path, **place)
    clock.beats = lambda: set_lock(path, heartbeat=clock.passed) if clock.passed > 14 else None
    with (
        pytest.warns(UserWarning, match="watching 60 s for a sign of life"),
        pytest.raises(BatchlensError, match="in use by a sweep on"),
    ):
        Store.open_to_write(path, SWEEP)
    assert clock.passed < lock.DEAD_AFTER
    store.add(make_trial())


@pytest.mark.parametrize("place", ELSEWHERE)
def test_sweep_elsewhere_is_dead_once_its_heartbeat_has_not_changed_for_long(
    store: Store, path: Path, clock: Clock, place: dict[str, object]
) -> None:
    set_lock(path, **place)
    with pytest.warns(UserWarning, match="watching 60 s for a sign of life"):
        Store.open_to_write(path, SWEEP).close()
    assert clock.passed >= lock.DEAD_AFTER
    with pytest.raises(BatchlensError, match="was taken over by another sweep"):
        store.add(make_trial())


def test_store_that_was_taken_meanwhile_is_refused(store: Store, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    holder = lock.find_holder(store._connection)
    assert holder is not None
    monkeypatch.setattr(store_module, "find_dead", lambda *_: holder._replace(token="of the one that was dead"))
    with pytest.raises(BatchlensError, match="in use"):
        Store.open_to_write(path, SWEEP)


def test_store_is_taken_over_where_one_asks_for_it(store: Store, path: Path) -> None:
    with Store.open_to_write(path, SWEEP, take_over=True) as taker:
        taker.add(make_trial(0))
        with pytest.raises(BatchlensError, match=r"was taken over by another sweep\.$"):
            store.add(make_trial(1))
    with Store.open(path) as reader:
        assert [trial.key.number for trial in reader.read_trials()] == [0]


def test_process_that_the_system_hides_is_watched(store: Store, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock, "process_start", lambda _: None)
    holder = lock.find_holder(store._connection)
    assert holder is not None
    assert holder.is_dead is None


def test_heartbeat_goes_on_and_changes_even_where_the_clock_is_set_back(
    store: Store, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def heartbeat() -> float:
        found = lock.find_holder(store._connection)
        assert found is not None
        return found.heartbeat

    before = heartbeat()
    store.beat()
    assert heartbeat() == before  # not yet due
    monkeypatch.setattr(lock, "HEARTBEAT", -1.0)
    monkeypatch.setattr(time, "time", lambda: 0.0)
    store.beat()
    assert heartbeat() > before


def test_full_disk_is_one_line_and_loses_nothing(store: Store, path: Path) -> None:
    store.add(make_trial(0))
    (pages,) = store._connection.execute("PRAGMA page_count").fetchone()
    store._connection.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(BatchlensError, match="the disk is full") as caught:
        store.add(make_trial(1, history=tuple((step, 0.5, "=") for step in range(5000))))
    assert "\n" not in str(caught.value)
    with Store.open(path) as reader:
        assert [trial.key.number for trial in reader.read_trials()] == [0]


def test_no_write_ahead_log(store: Store) -> None:
    assert store._connection.execute("PRAGMA journal_mode").fetchone() == ("delete",)


def test_csv_files(store: Store, tmp_path: Path) -> None:
    store.add(make_trial())
    files = read_sweep(store.path).to_csv(tmp_path / "tables")
    assert [file.name for file in files] == ["results.csv", "trials.csv", "histories.csv"]
    header, row = (tmp_path / "tables" / "trials.csv").read_text(encoding="utf-8").splitlines()
    assert header.startswith("optimizer,batch_size,number,repeat,learning_rate,momentum,status,steps,")
    assert row.startswith("sgd,16,0,0,0.1,0.9,reached,12,")


def write_store(path: Path, *trials: Trial, seed: int = 0, shard: str = "") -> Path:
    with Store.open_to_write(path, replace(SWEEP, seed=seed), shard) as store:
        for trial in trials:
            store.add(trial)
    return path


def test_merge_joins_shards(tmp_path: Path) -> None:
    trials = [make_trial(number) for number in range(4)]
    inputs = [write_store(tmp_path / f"{index}", *trials[index::2], shard=f"{index + 1}/2") for index in (0, 1)]
    merge_sweeps(tmp_path / "out", inputs)
    with Store.open(tmp_path / "out") as merged:
        assert merged.read_trials(histories=True) == trials
        assert merged.shard == ""


def test_merge_keeps_of_two_trials_the_one_that_says_more(tmp_path: Path) -> None:
    pruned = make_trial(0, status="pruned", steps=None)
    inputs = [write_store(tmp_path / "a", pruned), write_store(tmp_path / "b", make_trial(0))]
    merge_sweeps(tmp_path / "out", inputs)
    with Store.open(tmp_path / "out") as merged:
        assert merged.read_trials(histories=True) == [make_trial(0)]


def test_merge_refuses_other_sweeps_and_files_that_exist(tmp_path: Path) -> None:
    inputs = [write_store(tmp_path / "a"), write_store(tmp_path / "b", seed=1)]
    with pytest.raises(BatchlensError, match="are of different sweeps: seed is 0, not 1"):
        merge_sweeps(tmp_path / "out", inputs)
    with pytest.raises(BatchlensError, match="is there already"):
        merge_sweeps(tmp_path / "a", inputs)


def test_merge_refuses_a_store_in_use(store: Store, path: Path, tmp_path: Path) -> None:
    with pytest.raises(BatchlensError, match="is in use"):
        merge_sweeps(tmp_path / "out", [path])
