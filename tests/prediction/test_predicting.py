"""The whole way on digits: range test, reference, measurement, curves, page, command line."""

import json
from pathlib import Path

import pytest

import batchlens as bl
from tests.program import run


@pytest.fixture(scope="module")
def prediction() -> bl.Prediction:
    return bl.predict(
        "digits",
        target_on="train-loss",
        target=0.1,
        optimizers=["sgd", "momentum"],
        batch_sizes=[8, 32, 128, 512, 2048],
    )


def test_digits_is_predicted_about_right(prediction: bl.Prediction) -> None:
    assert prediction.status == "predicted", prediction.reasons
    truth = json.loads((Path(__file__).parents[2] / "benchmarks" / "truth.json").read_text())
    for size, steps in zip((8, 32, 128, 512), prediction.curves["sgd"].curve.steps, strict=False):
        assert 0.5 < (steps or 0) / truth["sgd"][str(size)]["train-loss 0.1"]["steps"] < 2


def test_confirming_trains_cells(prediction: bl.Prediction) -> None:
    rate = prediction.reference["learning_rate"]
    found = bl.predict("digits", target_on="train-loss", target=0.3, optimizers=["sgd"], batch_sizes=[32, 256, 1024],
                       learning_rate=rate, confirm=1)  # fmt: skip
    (cell,) = found.confirmed
    assert cell.optimizer == "sgd"
    assert cell.steps is None or cell.steps > 0


def test_a_missed_target_is_not_identifiable() -> None:
    found = bl.predict("digits", target_on="validation", target=1.0, learning_rate=1e-4)
    assert found.status == "not_identifiable"
    assert "missed the target" in found.reasons[0]


def test_page_shows_the_prediction(prediction: bl.Prediction, tmp_path: Path) -> None:
    page = bl.write_report(prediction, tmp_path / "page").read_text(encoding="utf-8")
    assert "How large a batch can digits use?" in page
    for name in ("steps.csv", "settings.csv", "reference.csv", "prediction.csv"):
        assert (tmp_path / "page" / name).is_file()


def test_the_command_prints_json(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = run("predict digits --target-on train-loss --target 0.3 --learning-rate 0.5 --optimizers sgd "
                           "--batch-sizes 16,64,256 --json", capsys)  # fmt: skip
    assert status == 0, err
    document = json.loads(out)
    assert document["status"] == "predicted"
    assert document["curves"][0]["optimizer"] == "sgd"


def test_wrong_arguments_end_in_a_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    status, _, err = run("predict digits --optimizers sgd,lion", capsys)
    assert status == 2
    assert "lion" in err
