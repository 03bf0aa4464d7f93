"""transfer, plan and time on the command line."""

import json
from pathlib import Path

import pytest

import batchlens as bl
from tests.program import run

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    """Runs and step times."""
    runs, times = tmp_path / "runs.csv", tmp_path / "times.csv"
    sizes = [16, 64, 256, 1024, 4096]
    runs.write_text("\n".join(["batch_size,steps", *(f"{size},{400 * (1 + 1500 / size)}" for size in sizes)]))
    times.write_text("\n".join(["batch_size,seconds", *(f"{size},{0.02 + size / 8000}" for size in sizes)]))
    return runs, times


def test_transfer_prints_a_line_for_each_setting_and_the_json_that_was_promised(capsys: Capture) -> None:
    command = "transfer --optimizer adamw --from 256 --to 4096 --set learning_rate=3e-4 --set weight_decay=0.1"
    status, out, _ = run(f"{command} --critical-batch-size 1000", capsys)
    assert status == 0
    assert "learning_rate 0.0003 -> 0.0005929" in out
    assert "weight_decay" in out
    assert "accumulate the gradients of 16 batches of 256" in out
    status, out, _ = run(f"{command} --critical-batch-size 1000 --json", capsys)
    document = json.loads(out)
    assert status == 0
    assert [entry["name"] for entry in document["settings"]] == ["learning_rate", "weight_decay"]
    assert {"steps_ratio", "warnings", "theory"} <= document.keys()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            "--optimizer sgd --set learning_rate=0.1 --rule saturating",
            "--critical-batch-size must be given for the rule",
        ),
        ("--optimizer sgd --set learning_rate=-1", "--set learning_rate must be finite and at least 0, got -1"),
        ("--optimizer sgd --set beta2=0.9", "--set of sgd must be among learning_rate"),
        ("--optimizer sgd --set beta2", "--set must be NAME=NUMBER, got beta2."),
        ("--optimizer sgd --set learning_rate=1 --set learning_rate=2", "--set must give a setting once"),
        ("--optimizer lion --set learning_rate=1", "--optimizer must be one of sgd"),
    ],
)
def test_transfer_says_in_one_line_what_is_wrong(options: str, message: str, capsys: Capture) -> None:
    status, out, err = run(f"transfer --from 8 --to 64 {options}", capsys)
    assert (status, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1


def test_a_batch_size_that_is_none_is_named_as_typed(capsys: Capture) -> None:
    status, _, err = run("transfer --optimizer sgd --set learning_rate=1 --from 0 --to 64", capsys)
    assert status == 2
    assert "--from must be in (0," in err


def test_plan_prints_a_sentence_and_writes_the_picture(
    files: tuple[Path, Path], tmp_path: Path, capsys: Capture
) -> None:
    runs, times = files
    folder = tmp_path / "plan"
    command = f"plan {runs} --step-times {times} --price 2.5/h --devices 1..8 --deadline 2m --memory-limit 512"
    status, out, _ = run(f"{command} --out {folder}", capsys)
    assert status == 0
    assert out.startswith("Fastest: batch size")
    assert "cheapest within 2 min" in out
    assert "What a doubling of devices buys" in out
    assert {path.name for path in folder.iterdir()} == {"plan.svg", "plan.png", "plan.csv"}
    assert (folder / "plan.png").read_bytes().startswith(b"\x89PNG")
    status, out, _ = run(f"{command} --json", capsys)
    document = json.loads(out)
    assert document["sentence"] == bl.plan(runs, times, [1, 2, 4, 8], 2.5, 120, 512).sentence
    assert {"points", "fastest", "cheapest", "meets_deadline"} <= document.keys()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--price 2.5", "--price must be a price with its unit, such as 2.5/h, got 2.5."),
        ("--price x/h", "--price must be a price with its unit, such as 2.5/h, got x/h."),
        ("--deadline soon", "--deadline must be such as 90s, 20m or 3h, got soon."),
        ("--devices 0", "--devices must be at least 1, got 0."),
        ("--optimizer adam", "--optimizer must be one of"),
    ],
)
def test_plan_says_in_one_line_what_is_wrong(
    options: str, message: str, files: tuple[Path, Path], capsys: Capture
) -> None:
    status, out, err = run(f"plan {files[0]} --step-times {files[1]} {options}", capsys)
    assert (status, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1


def test_step_times_that_do_not_grow_are_refused(files: tuple[Path, Path], capsys: Capture) -> None:
    files[1].write_text("batch_size,seconds\n16,0.2\n64,0.1\n")
    status, _, err = run(f"plan {files[0]} --step-times {files[1]}", capsys)
    assert status == 2
    assert "--step-times must grow with the batch size, got 0.2 s at 16 and 0.1 s at 64." in err


def test_a_curve_of_one_batch_size_is_named_by_its_file(files: tuple[Path, Path], capsys: Capture) -> None:
    files[0].write_text("batch_size,steps\n16,200\n")
    status, _, err = run(f"plan {files[0]} --step-times {files[1]}", capsys)
    assert status == 2
    assert f"{files[0]} must tell the steps of at least two batch sizes, got 1." in err


@pytest.mark.parametrize(("typed", "hourly"), [("2.5/h", 2.5), ("60/d", 2.5), ("0.001/s", 3.6), ("0.5/m", 30.0)])
def test_prices_are_read_with_their_unit(typed: str, hourly: float) -> None:
    from batchlens.cli.terminal import PRICE

    assert PRICE.convert(typed, None, None) == pytest.approx(hourly)


def test_time_prints_and_writes_what_plan_reads(tmp_path: Path, capsys: Capture) -> None:
    file = tmp_path / "times.csv"
    status, out, _ = run(f"time digits --batch-sizes 8,8192 --steps 5 --out {file} --json", capsys)
    assert status == 0
    document = json.loads(out)
    assert [point["batch_size"] for point in document["points"]] == [8, 8192]
    assert bl.StepTimes.read(file).seconds == tuple(point["seconds"] for point in document["points"])
