"""Of a damaged store what can be read is shown, and what cannot is said in one sentence."""

import sqlite3
import warnings
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from batchlens.errors import BatchlensError
from batchlens.sweep._declaration import Cell, Declaration
from batchlens.sweep._reading import COLUMNS, trials_of
from batchlens.sweep._search import Generation
from batchlens.sweep._store import Store
from batchlens.sweep._trial import Key, Task, Trial
from batchlens.sweep.merging import merge_sweeps
from batchlens.sweep.results import SweepResult, read_sweep
from tests.attack.damage import damage
from tests.program import run
from tests.sweep.simulation import BUDGET, make_declaration, make_trial, random_fates

SWEEP = make_declaration(trials=20, optimizers=("sgd", "momentum"))
BOX = {"learning_rate": (0.0, 1.5), "momentum": (0.0, 1.0)}


def make_trials(declaration: Declaration) -> list[Trial]:
    random, fates, trials = Random(0), random_fates(0), []
    for cell in declaration.cells:
        for number in range(60):
            point = {"learning_rate": random.random(), "momentum": random.random()}
            task = Task(Key(*cell, number), point, point, number, BUDGET)
            trial = make_trial(task, *fates(task.key))
            history = tuple((step, random.random(), "=") for step in range(20))
            trials.append(replace(trial, history=history, versions={"torch": "2"}, host="here"))
    return trials


def make_store(path: Path) -> list[Trial]:
    trials = make_trials(SWEEP)
    with Store.open_to_write(path, SWEEP) as store, store.all_or_nothing():
        store.insert_generation(Cell("sgd", 16), Generation(30, BOX))
        for trial in trials:
            store.insert(trial)
    return trials


@pytest.fixture(scope="module")
def content(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("whole") / "sweep.sqlite"
    make_store(path)
    return path.read_bytes()


def read_all(path: Path) -> SweepResult | str:
    """What a store says, or the one sentence that it ends in."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            answer: SweepResult | str = read_tables(path)
        except BatchlensError as error:
            answer = str(error)
    assert all(str(warning.message).startswith(f"{path} is damaged: ") for warning in caught)
    assert not isinstance(answer, str) or (answer.startswith(str(path)) and "\n" not in answer)
    return answer


def read_tables(path: Path) -> SweepResult:
    sweep = read_sweep(path)
    for read in (sweep.to_frame, sweep.trials, sweep.histories, sweep.as_document):
        read()
    return sweep


@pytest.mark.parametrize("seed", range(60))
def test_whatever_is_damaged_the_rest_is_read_or_one_sentence_says_why_not(
    content: bytes, tmp_path: Path, seed: int
) -> None:
    path = tmp_path / "sweep.sqlite"
    path.write_bytes(damage(content, Random(seed)))
    read_all(path)


@pytest.fixture
def path(content: bytes, tmp_path: Path) -> Path:
    path = tmp_path / "sweep.sqlite"
    path.write_bytes(content)
    return path


def change(path: Path, statement: str) -> None:
    connection = sqlite3.connect(path)
    with connection:
        connection.execute("PRAGMA ignore_check_constraints = ON")
        connection.execute(statement)
    connection.close()


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("settings", "'{\"learning_rate\": 0.'"),
        ("settings", "'[]'"),
        ("settings", '\'{"learning_rate": "a"}\''),
        ("position", "'{\"momentun\": 0.1}'"),
        ("versions", "x'ff00'"),
        ("notes", "'3'"),
        ("status", "'reachee'"),
        ("steps", "'many'"),
        ("steps_taken", "-1"),
        ("seconds", "9e999"),
        ("seed", "'a'"),
        ("optimizer", "'sge'"),
        ("batch_size", "17"),
        ("number", "-3"),
        ("reason", "x'00'"),
    ],
)
def test_trial_that_cannot_be_read_is_left_out(path: Path, column: str, value: str) -> None:
    change(path, f"UPDATE trials SET {column} = {value} WHERE id = 7")
    with pytest.warns(UserWarning, match=r"sweep\.sqlite is damaged: 1 of 240 trials cannot be read\.$"):
        sweep = read_sweep(path)
    assert (sweep.ended, sweep.lost) == (239, "1 of 240 trials cannot be read")


def test_trial_of_an_earlier_generation_that_is_lost_is_open_again(path: Path) -> None:
    change(path, "DELETE FROM trials WHERE optimizer = 'sgd' AND batch_size = 16 AND number = 3")
    cell = next(cell for cell in read_sweep(path).cells if cell.result.cell == Cell("sgd", 16))
    assert not cell.result.complete


def test_two_trials_with_the_same_key_are_both_left_out(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        rows = connection.execute(f"SELECT id, {', '.join(COLUMNS)} FROM trials").fetchall()
    found, bad = trials_of([*rows, (999, *rows[6][1:])], SWEEP)
    assert (len(found), bad) == (239, 2)


@pytest.mark.parametrize("box", ["'{'", "'{\"learning_rate\": [0, 1]}'", "'[1]'", "NULL"])
def test_search_space_that_cannot_be_read_is_named(path: Path, box: str) -> None:
    if box == "NULL":
        change(path, "UPDATE generations SET batch_size = 17")
    else:
        change(path, f"UPDATE generations SET box = {box}")
    with pytest.warns(UserWarning, match="1 widened search space cannot be read"):
        read_sweep(path)


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM meta",
        "UPDATE meta SET value = substr(value, 1, 100) WHERE name = 'declaration'",
        "UPDATE meta SET value = '{}' WHERE name = 'declaration'",
        "UPDATE meta SET value = replace(value, 'sgd', 'sge') WHERE name = 'declaration'",
        "UPDATE meta SET value = x'ff' WHERE name = 'declaration'",
    ],
)
def test_nothing_can_be_told_without_the_declaration(path: Path, statement: str) -> None:
    change(path, statement)
    answer = read_all(path)
    assert isinstance(answer, str)
    assert "is damaged: its declaration" in answer


def test_page_in_the_middle_that_is_lost_leaves_the_trials_before_and_after(path: Path) -> None:
    connection = sqlite3.connect(path)
    (size,) = connection.execute("PRAGMA page_size").fetchone()
    leaves = connection.execute("SELECT pageno FROM dbstat WHERE name = 'trials' AND pagetype = 'leaf'").fetchall()
    connection.close()
    data, (page,) = bytearray(path.read_bytes()), leaves[len(leaves) // 2]
    data[(page - 1) * size : page * size] = bytes(size)
    path.write_bytes(data)
    with pytest.warns(UserWarning, match=r"of its trials (\d+) can be read, and others not"):
        sweep = read_sweep(path)
    assert 0 < sweep.ended < 240
    assert {cell.result.cell.optimizer for cell in sweep.cells if cell.result.members} == {"sgd", "momentum"}


def test_sweep_does_not_go_on_with_a_damaged_store_but_with_what_merge_keeps(path: Path, tmp_path: Path) -> None:
    change(path, "UPDATE trials SET settings = '{' WHERE id = 7")
    with Store.open_to_write(path, SWEEP) as store, pytest.raises(BatchlensError, match="batchlens merge NEW"):
        store.read_trials()
    with pytest.warns(UserWarning, match="1 of 240 trials cannot be read"):
        merge_sweeps(tmp_path / "new.sqlite", [path])
    with Store.open_to_write(tmp_path / "new.sqlite", SWEEP) as store:
        assert len(store.read_trials()) == 239


@pytest.mark.filterwarnings("default")
def test_report_shows_what_can_be_read(path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    change(path, "UPDATE trials SET settings = '{' WHERE id = 7")
    status, out, err = run(f"report {path} --out {tmp_path}/page", capsys)
    assert (status, err) == (0, f"batchlens: {path} is damaged: 1 of 240 trials cannot be read.\n")
    assert "sgd" in out
    assert "The store is damaged: 1 of 240 trials cannot be read." in (tmp_path / "page" / "index.html").read_text()
