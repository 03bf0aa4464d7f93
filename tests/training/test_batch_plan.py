"""Batch sizes that change on the way: what a plan says, the files it is read from, and runs that follow one."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import batchlens as bl
from batchlens.errors import BatchlensError
from batchlens.training._arguments import check_arguments
from batchlens.training._batch_plan import BatchPlan, check_batch_schedule
from batchlens.training.loop import Interrupted, train
from tests.program import run

GROWING = [(0, 16, 0.3), (10, 48, 0.5), (25, 128, 0.4)]


@st.composite
def plans(draw: st.DrawFn) -> BatchPlan:
    lengths = draw(st.lists(st.integers(1, 6), min_size=1, max_size=4))
    starts = tuple(sum(lengths[:count]) for count in range(len(lengths)))
    return BatchPlan(starts, tuple(draw(st.integers(1, 9)) for _ in lengths))


@given(plans(), st.integers(0, 200))
def test_a_plan_counts_as_one_step_after_the_other_would(plan: BatchPlan, examples: int) -> None:
    seen = [0]
    for step in range(210):
        piece = max(number for number, start in enumerate(plan.starts) if start <= step)
        assert plan.batch_size(step) == plan.batch_sizes[piece]
        seen.append(seen[-1] + plan.batch_sizes[piece])
        assert plan.examples(step) == seen[step]
    assert plan.steps_of(examples) == next(step for step, count in enumerate(seen) if count >= examples)


def test_a_schedule_written_by_the_theory_is_read_as_it_was(tmp_path: Path) -> None:
    problem = bl.NoisyQuadratic.power_law(dim=100)
    schedule = bl.best_batch_schedule(problem, "sgd", steps=100, examples=1600, pieces=4).rounded()
    schedule.to_csv(tmp_path / "schedule.csv")
    plan = check_batch_schedule(tmp_path / "schedule.csv")
    assert plan.starts == (0, 25, 50, 75)
    assert plan.batch_sizes == tuple(schedule.batch_sizes)
    assert plan.learning_rates == pytest.approx(schedule.learning_rates, rel=1e-12)
    assert plan == check_batch_schedule(schedule.to_frame().to_numpy())


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "must begin with a line that names step and batch_size and learning_rate, got nothing"),
        ("step,batch_size\n0,4\n", "names learning_rate, got step, batch_size"),
        ("step,batch_size,learning_rate\n", "`batch_schedule` must begin with step 0, got no row"),
        ("step,batch_size,learning_rate\n5,4,0.1\n", "must begin with step 0, got step 5"),
        ("step,batch_size,learning_rate\n0,4,0.1\n0,8,0.1\n", "steps that grow from row to row, got 0 after 0"),
        (
            "step,batch_size,learning_rate\n0,6.17,0.1\n",
            "line 2: `batch_size` must be a whole number from 1 on, got 6.17",
        ),
        ("step,batch_size,learning_rate\n0,4,-1\n", "line 2: `learning_rate` must be finite and at least 0, got -1"),
        ("step,batch_size,learning_rate\n0,4,nan\n", "`learning_rate` must be finite and at least 0, got nan"),
        ("step,batch_size,learning_rate\n0,4,0\n", "must begin with a learning rate above 0, got 0"),
        ("step,batch_size,learning_rate\n0,4\n", "`learning_rate` must be finite and at least 0, got nothing"),
    ],
)
def test_a_damaged_file_is_one_sentence(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "schedule.csv"
    path.write_text(text)
    with pytest.raises((BatchlensError, ValueError)) as caught:
        check_batch_schedule(path)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("given", [[(0, 4)], [(0, 4, 0.1, 2)], [("0", 4, 0.1)], [(0, True, 0.1)], 3])
def test_rows_that_are_none_are_refused(given: Any) -> None:
    with pytest.raises((TypeError, ValueError), match="must"):
        check_batch_schedule(given)


def test_what_a_schedule_decides_must_not_be_given_beside_it() -> None:
    for more, said in (
        ({"batch_size": 8}, "`batch_size` must be left out"),
        ({"settings": {"learning_rate": 1.0}}, "`learning_rate` must be left out"),
        ({"schedule": "cosine"}, "`schedule` must be left out"),
    ):
        arguments: dict[str, Any] = {"batch_size": None, "settings": {}, "batch_schedule": GROWING} | more
        with pytest.raises(ValueError, match=said):
            check_arguments("digits", "sgd", **arguments)


def test_the_usual_budget_counts_the_examples_of_the_schedule() -> None:
    budget = bl.find_workload("digits").max_examples
    checked = check_arguments("digits", "sgd", None, {}, batch_schedule=GROWING)
    assert checked.batches.examples(checked.max_steps - 1) < budget <= checked.batches.examples(checked.max_steps)


def test_a_schedule_that_changes_nothing_is_the_run_without_it() -> None:
    usual = train("digits", "momentum", 32, {"learning_rate": 0.1, "momentum": 0.8}, seed=3, max_steps=60, lazy=False)
    rows = [(0, 32, 0.1), (20, 32, 0.1)]
    same = train("digits", "momentum", None, {"momentum": 0.8}, seed=3, max_steps=60, lazy=False, batch_schedule=rows)
    assert (same.history, same.examples, same.last_loss) == (usual.history, usual.examples, usual.last_loss)


def test_slices_change_neither_the_examples_nor_the_update() -> None:
    whole, sliced = (
        train("digits", "sgd", None, {}, batch_schedule=GROWING, max_steps=40, target=1.0, lazy=False, micro_batch=size)
        for size in (128, 20)
    )
    assert whole.examples == sliced.examples == 10 * 16 + 15 * 48 + 15 * 128
    assert whole.last_loss == pytest.approx(sliced.last_loss, rel=1e-3)


@pytest.mark.parametrize("stop_at", [7, 10, 30])
def test_an_interrupted_run_goes_on_as_if_nothing_had_been(tmp_path: Path, stop_at: int) -> None:
    def follow(schedule: list[tuple[int, int, float]] = GROWING, **more: Any) -> bl.Record:
        return train("digits", "momentum", None, {"momentum": 0.5}, batch_schedule=schedule, max_steps=50, **more)

    straight, checkpoint = follow(), tmp_path / "run.pt"
    with pytest.raises(Interrupted):
        follow(checkpoint=checkpoint, stop=lambda step: "interrupted" if step == stop_at else None)
    with pytest.raises(BatchlensError, match="belongs to a run with batch_schedule"):
        follow([*GROWING[:2], (25, 128, 0.6)], checkpoint=checkpoint)
    resumed = follow(checkpoint=checkpoint)
    assert (resumed.history, resumed.last_loss, resumed.examples) == (
        straight.history,
        straight.last_loss,
        straight.examples,
    )


def test_the_command_follows_a_schedule_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("growing.csv").write_text("step,batch_size,learning_rate\n0,16,0.3\n10,48,0.5\n25,128,0.4\n")
    command = "train digits --optimizer sgd --max-steps 40 --checkpoint run.pt"
    status, out, _ = run(f"{command} --batch-schedule growing.csv", capsys)
    assert status == 0
    assert "batch sizes from 16 to 128" in out
    document = json.loads(run(f"{command} --batch-schedule growing.csv --json", capsys)[1])
    assert document["batch_schedule"] == [list(row) for row in GROWING]
    assert document["settings"]["learning_rate"] == 0.3


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ("", "--batch-size or --batch-schedule must be given, got neither."),
        ("--batch-schedule none.csv", "none.csv cannot be read: No such file or directory."),
        ("--batch-schedule growing.csv --batch-size 8", "--batch-size must be left out with --batch-schedule"),
    ],
)
def test_wrong_input_is_one_line(
    more: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("growing.csv").write_text("step,batch_size,learning_rate\n0,16,0.3\n")
    status, _, err = run(f"train digits --optimizer sgd {more}", capsys)
    assert status != 0
    assert said in err
