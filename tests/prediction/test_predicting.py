"""The whole way on digits: range test, reference, measurement, curves, page, command line."""

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure

import batchlens as bl
from batchlens.errors import BatchlensError
from batchlens.prediction import _reference, predicting
from batchlens.prediction._readings import EXAMPLES, READINGS
from batchlens.prediction._reference import Plan, Referred
from batchlens.report._prediction import figures
from tests.prediction.making import make_measurement, make_moment, make_reference, make_slow_reference
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
    assert cell.steps is not None
    assert 1 / 3 < cell.steps / cell.predicted < 3
    place = found.curves["sgd"].curve.batch_sizes.index(cell.batch_size)
    moved = (found.curves["sgd"].curve.steps[place] or 0) / cell.predicted
    assert 1 < moved ** math.copysign(1, cell.steps - cell.predicted) < 3


def run_with_rate(
    rate: float | None,
    monkeypatch: pytest.MonkeyPatch,
    out: Path | None = None,
    measurement: bl.Measurement | None = None,
) -> Referred:
    """A reference whose range test says 1, on a network whose top curvature is 3 unless measured otherwise."""
    made = measurement or make_measurement(make_reference(), top=3.0)

    def run_at(plan: Plan, rate: float, tell: object) -> Referred:
        if rate > 0.9:
            return Referred(rate, 20, math.nan, None, "diverged", True)
        return Referred(rate, made.moments[-1].step, 0.1, made)

    monkeypatch.setattr(_reference, "find_rate", lambda plan, tell: 1.0)
    monkeypatch.setattr(_reference, "_run_at", run_at)
    workload = bl.find_workload("digits")
    plan = Plan(workload, 64, rate, "train-loss", 0.1, 100, 0, out, {})
    return _reference.run_reference(plan, lambda *_: None)


def range_tested(
    loss_of: Callable[[float, int], float], monkeypatch: pytest.MonkeyPatch, start: float = 2.3
) -> tuple[float | None, list[int]]:
    """The rate that a range test takes where losses are a function of rate and steps, and how long its runs were."""
    tried: list[int] = []

    def train(*arguments: Any, max_steps: int, **_: Any) -> SimpleNamespace:
        tried.append(max_steps)
        loss = loss_of(arguments[3]["learning_rate"], max_steps)
        history = [SimpleNamespace(metric=start), SimpleNamespace(metric=loss)]
        return SimpleNamespace(history=history, status="not_reached" if math.isfinite(loss) else "diverged")

    monkeypatch.setattr(_reference, "train", train)
    plan = Plan(bl.find_workload("resnet8_cifar10"), 64, None, "train-loss", 1.4, None, 0, None, {})
    return _reference.find_rate(plan, lambda *_: None), sorted(set(tried[1:]))


@pytest.mark.parametrize(("best", "lost"), [(2.29, True), (1.5, False)])
def test_a_run_that_learned_nothing_counts_as_lost(best: float, lost: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A rate that is too large may leave a network at chance for good, without a loss that is not finite."""
    history = [SimpleNamespace(metric=2.3)]
    record = SimpleNamespace(
        steps=None, steps_taken=9, status="not_reached", history=history, best_metric=best, target=1.4
    )
    monkeypatch.setattr(_reference, "train", lambda *_, **__: record)
    plan = Plan(bl.find_workload("resnet8_cifar10"), 64, None, "train-loss", 1.4, None, 0, None, {})
    found = _reference._run_at(plan, 0.6, lambda *_: None)
    assert found.diverged == lost
    assert found.reason.startswith("the reference missed the target within 9 steps; the best was")
    assert ("smaller learning rate" in found.reason) == lost


@pytest.mark.parametrize(("learns_after", "steps"), [(40, [40]), (100, [40, 160])])
def test_a_range_test_goes_on_until_something_is_learned(
    learns_after: int, steps: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where all rates are still at chance, the largest would be taken for as good as any."""
    rate, tried = range_tested(
        lambda rate, steps: 0.8 if steps >= learns_after and 0.05 < rate < 0.2 else 2.3, monkeypatch
    )
    assert tried == steps
    assert rate is not None
    assert rate < 0.2


def test_a_range_test_in_which_nothing_is_learned_has_no_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    rate, tried = range_tested(lambda rate, _: 2.3 if rate < 0.2 else math.nan, monkeypatch)
    assert rate is None
    assert tried == [40, 160, 640]


def test_a_range_test_tells_rates_apart_at_large_losses(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a language model has them: it starts at 7.5, has learned at 6.2, and diverges beyond."""

    def loss_of(rate: float, _: int) -> float:
        return math.nan if rate > 0.3 else 6.2 if 0.02 < rate < 0.1 else 7.4

    rate, tried = range_tested(loss_of, monkeypatch, start=7.5)
    assert tried == [40]
    assert rate is not None
    assert 0.02 < rate < 0.1


def test_without_a_rate_nothing_is_predicted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_reference, "find_rate", lambda plan, tell: None)
    found = bl.predict("digits")
    assert found.status == "not_identifiable"
    assert "no learning rate of the range test learned anything within 640 steps: give a" in found.sentence
    assert found.reference["learning_rate"] is None


def test_a_rate_that_is_too_fast_gives_way_to_a_smaller_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """1 diverges, 2/3 has a sharpness of 2 and 4/9 one of 4/3."""
    assert run_with_rate(None, monkeypatch).learning_rate == pytest.approx(4 / 9)


def test_a_rate_that_the_model_outruns_gives_way_to_a_smaller_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """2/3 has a sharpness of 1.8, close to the edge, and 4/9 one of 1.2."""
    measurement = make_measurement(make_slow_reference(), top=2.7, variance=400.0)
    found = run_with_rate(None, monkeypatch, measurement=measurement)
    assert found.learning_rate == pytest.approx(4 / 9)


def test_a_file_of_another_run_is_left_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A run that diverges has measured nothing, so what lies there is not its own."""
    monkeypatch.setattr(_reference, "_MOST_TRIES", 2)
    monkeypatch.setattr(_reference, "_kept", lambda plan, file: {"settings": {"learning_rate": 2.0}})
    file = tmp_path / "other.json"
    file.write_text("{}")
    assert run_with_rate(None, monkeypatch, file).diverged
    assert file.exists()


def test_a_rate_that_was_asked_for_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    assert run_with_rate(0.8, monkeypatch).learning_rate == 0.8


@pytest.mark.parametrize(("asked", "measured"), [(None, 2 * EXAMPLES), (EXAMPLES, EXAMPLES)])
def test_where_halves_disagree_twice_as_many_examples_are_measured_on(
    asked: int | None, measured: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unless it was said how many; a second measurement that disagrees too is left as it is."""
    made: list[int] = []

    def measure_training(*_: object, examples: int, **__: object) -> bl.Measurement:
        made.append(examples)
        moment = replace(make_moment(1, 3.0, halves=(2.0, 4.0)), examples=examples)
        return bl.Measurement((moment,), "made")

    monkeypatch.setattr(_reference, "measure_training", measure_training)
    plan = Plan(bl.find_workload("digits"), 64, 0.5, "train-loss", 0.5, asked, 0, None, {})
    found = _reference.run_reference(plan, lambda *_: None)
    assert found.measurement is not None
    assert found.measurement.moments[-1].examples == measured == made[-1]
    assert len(made) == (2 if asked is None else 1)


def test_the_same_again_with_a_kept_file_gives_the_same_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a network that is at the edge at every rate: four are tried, not four more each time."""
    made, tried = make_reference(), []

    def run_at(plan: Plan, rate: float, tell: object) -> Referred:
        tried.append(rate)
        declared = {**_reference._declaration(plan), "settings": {"learning_rate": rate}}
        found = replace(make_measurement(made, top=1.95 / rate), declaration=declared)
        found.save(tmp_path / "kept.json")
        return Referred(rate, made.steps[-1], 0.1, found)

    monkeypatch.setattr(_reference, "find_rate", lambda plan, tell: 1.0)
    monkeypatch.setattr(_reference, "_run_at", run_at)
    first, again = (
        bl.predict("digits", target_on="train-loss", target=0.1, optimizers=["sgd"], keep=tmp_path / "kept.json")
        for _ in range(2)
    )
    assert tried == pytest.approx([1.0, 1 / 1.5, 1 / 1.5**2, 1 / 1.5**3, 1 / 1.5**3])
    assert first.reasons == again.reasons
    assert "4 learning rates were tried" in again.reasons[0]
    assert again.reference == first.reference


def test_a_rate_that_twice_as_many_examples_show_to_be_too_fast_gives_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """Halves of the examples disagree, and say nothing of the edge; twice as many have a sharpness of 1.96."""
    made = make_reference()

    def measured(top: float, examples: int, halves: tuple[float, float]) -> bl.Measurement:
        found = make_measurement(made, top=top, halves=halves)
        return replace(found, moments=tuple(replace(moment, examples=examples) for moment in found.moments))

    def run_at(plan: Plan, rate: float, tell: object) -> Referred:
        halves = (2.0, 3.2) if rate == 0.7 else (1.5, 1.5)
        return Referred(rate, made.steps[-1], 0.1, measured(2.6 if rate == 0.7 else 1.5, EXAMPLES, halves))

    monkeypatch.setattr(_reference, "find_rate", lambda plan, tell: 0.7)
    monkeypatch.setattr(_reference, "_run_at", run_at)
    monkeypatch.setattr(_reference, "_measure", lambda *_: measured(2.8, 2 * EXAMPLES, (2.8, 2.8)))
    plan = Plan(bl.find_workload("digits"), 64, None, "train-loss", 0.1, None, 0, None, {})
    found = _reference.run_reference(plan, lambda *_: None)
    assert found.learning_rate == pytest.approx(0.7 / 1.5)
    assert found.tried == 2


def test_what_is_kept_needs_no_other_range_test(tmp_path: Path) -> None:
    first, again = (
        bl.predict("digits", target_on="train-loss", target=0.3, optimizers=["sgd"], batch_sizes=[16, 64, 256],
                   keep=tmp_path / "kept.json", learning_rate=rate)
        for rate in (0.5, None)
    )  # fmt: skip
    assert again.reference == first.reference


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"seed": 1}, "seed 0, not 1"),
        ({"batch_size": 32}, "batch_size 64, not 32"),
        ({"learning_rate": 0.25}, "settings"),
        ({"workload": "simple_cnn_mnist"}, "workload digits, not simple_cnn_mnist"),
    ],
)
def test_what_is_kept_of_another_run_is_refused_before_anything_is_run(
    asked: dict[str, Any], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    declared = {"workload": "digits", "size": "laptop", "source": "", "optimizer": "sgd", "batch_size": 64, "seed": 0,
                "schedule": "constant", "settings": {"learning_rate": 0.5}}  # fmt: skip
    bl.Measurement((), "digits", declared).save(tmp_path / "kept.json")
    monkeypatch.setattr(_reference, "train", lambda *_, **__: pytest.fail("it ran"))
    with pytest.raises(BatchlensError, match=rf"kept.json holds another measurement \({words}"):
        bl.predict(**{"workload": "digits", "keep": tmp_path / "kept.json", **asked})


def test_ctrl_c_before_anything_is_kept_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(bl, "predict", stop)
    file = tmp_path / "kept.json"
    assert (
        "nothing is kept so far; run the same command again to begin anew"
        in run(f"predict digits --keep {file}", capsys)[2]
    )
    file.touch()
    assert "run the same command again to go on" in run(f"predict digits --keep {file}", capsys)[2]


def test_what_is_kept_of_a_harder_target_answers_for_an_easier_one(tmp_path: Path) -> None:
    def ask(target: float, keep: Path | None) -> bl.Prediction:
        return bl.predict("digits", target_on="train-loss", target=target, optimizers=["sgd"],
                          batch_sizes=[16, 64, 256], keep=keep, learning_rate=0.5)  # fmt: skip

    ask(0.2, tmp_path / "kept.json")
    assert ask(0.4, tmp_path / "kept.json").reference == ask(0.4, None).reference


def test_a_target_that_is_met_at_the_start_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    status, _, err = run("predict digits --target-on train-loss --target 3 --learning-rate 0.5", capsys)
    assert status == 2
    assert err == "batchlens: --target must not be met before the first step, got 3.\n"


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"optimizers": []}, "`optimizers` must have"),
        ({"batch_sizes": [64, 8]}, "`batch_sizes` must rise"),
        ({"target": 97}, "`target` must be at most 1, the best accuracy"),
        ({"target_on": "test"}, "`target_on` must be one of"),
    ],
)
def test_bad_wishes_are_refused_before_anything_is_run(
    asked: dict[str, Any], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(predicting, "run_reference", lambda *_: pytest.fail("it ran"))
    with pytest.raises(ValueError, match=message):
        bl.predict("digits", **asked)


def test_a_page_that_cannot_be_written_is_refused_before_anything_is_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bl, "predict", lambda *_, **__: pytest.fail("it ran"))
    (tmp_path / "file").touch()
    status, _, err = run(f"predict digits --out {tmp_path / 'file'}", capsys)
    assert status == 1
    assert "is a file; the report needs a folder. Choose another --out." in err


def test_fewer_confirming_runs_than_asked_for_are_said(capsys: pytest.CaptureFixture[str]) -> None:
    """Adam's learning rate is not predicted."""
    status, _, err = run("predict digits --target-on train-loss --target 0.3 --learning-rate 0.5 --optimizers adam "
                         "--batch-sizes 16,64,256 --confirm 2 --json", capsys)  # fmt: skip
    assert status == 0
    assert "0 of 2 cells were trained to confirm it" in err


def test_as_many_examples_are_measured_on_as_are_asked_for(tmp_path: Path) -> None:
    file = tmp_path / "kept.json"
    bl.predict("digits", target_on="train-loss", target=0.5, optimizers=["sgd"], batch_sizes=[16, 64, 256],
               keep=file, learning_rate=0.5, examples=200)  # fmt: skip
    assert bl.read_measurement(file).moments[-1].examples == 200


def test_a_target_on_accuracy_says_what_stands_for_it(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    command = "predict digits --target 0.9 --learning-rate 0.3 --optimizers sgd --batch-sizes 16,64,256"
    status, out, err = run(f"{command} --out {tmp_path / 'page'}", capsys)
    assert status == 0, err
    words = "he training loss at which 3 runs first met the accuracy, in the median, stands for it"
    assert f"T{words}" in out
    assert words in (tmp_path / "page" / "index.html").read_text(encoding="utf-8")


def test_an_accuracy_is_the_median_loss_at_which_runs_meet_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reference's seed and two others; one that misses does not count, and the spread is said where it is large."""
    rate, asked = 0.3, []

    def train(*_: Any, seed: int, target_on: str, target: float, **__: Any) -> SimpleNamespace:
        asked.append((seed, target_on, target))
        return SimpleNamespace(steps=None if seed == max(others) else 20, target=target)

    others = [_reference._MET_SEED + 3 * 7 + number for number in range(2)]
    losses = {7: 0.04, others[0]: 0.08}
    made = make_measurement(make_reference())
    monkeypatch.setattr(_reference, "train", train)
    monkeypatch.setattr(_reference, "_loss_after", lambda plan, rate, steps, seed: losses[seed])
    monkeypatch.setattr(_reference, "_measure", lambda *_: made)
    plan = Plan(bl.find_workload("digits"), 64, rate, "validation", 0.97, None, 7, None, {})
    found = _reference._run_at(plan, rate, lambda *_: None)
    assert found.losses == (0.04, 0.08)
    assert found.target_loss == pytest.approx(0.06)
    assert asked == [(seed, "validation", 0.97) for seed in (7, *others)] + [(7, "train-loss", pytest.approx(0.06))]
    assert "stands for it; it was 0.04 to 0.08. To 97% on digits" in predicting._stand_in_words(found)
    assert "it was" not in predicting._stand_in_words(found._replace(losses=(0.05, 0.06, 0.07)))


def test_a_missed_target_is_not_identifiable() -> None:
    found = bl.predict("digits", target_on="validation", target=1.0, learning_rate=1e-4)
    assert found.status == "not_identifiable"
    assert "missed the target" in found.reasons[0]


def test_a_refused_page_has_the_target_and_the_name(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    referred = Referred(0.5, 20, math.nan, None, "the reference diverged: use a smaller learning rate", True, 4)
    monkeypatch.setattr(predicting, "run_reference", lambda *_: referred)
    found = bl.predict("digits", target_on="validation", target=0.9)
    assert found.reasons[0].startswith("the reference diverged: 4 learning rates were tried, each 1.5 times smaller")
    page = bl.write_report(found, tmp_path / "page").read_text(encoding="utf-8")
    assert "How large a batch can digits use?" in page
    assert "0.9 on the validation set" in page
    assert "nan" not in page.split("<body")[1]
    assert bl.predict("digits", target_on="train-loss", target=0.1).target_loss == 0.1
    monkeypatch.setattr(predicting, "run_reference", lambda *_: referred._replace(tried=1))
    assert "use a smaller learning rate" in bl.predict("digits", learning_rate=0.5).reasons[0]


def test_a_refused_page_has_the_noise_scales_that_were_measured(tmp_path: Path) -> None:
    reference = make_reference()
    curve = list(zip(reference.steps, reference.losses, strict=True))
    found = bl.predict_from(make_measurement(reference, top=3.0), curve, 64, 0.7, 0.1)
    page = bl.write_report(found, tmp_path / "page").read_text(encoding="utf-8")
    assert "Here: B_simple 70 (60 to ?), B_noise 90." in page


def page_of(prediction: bl.Prediction, folder: Path) -> str:
    """What the page says, in one line."""
    return " ".join(bl.write_report(prediction, folder).read_text(encoding="utf-8").split())


def test_page_shows_the_prediction(prediction: bl.Prediction, tmp_path: Path) -> None:
    page = page_of(prediction, tmp_path / "page")
    assert "How large a batch can digits use?" in page
    for name in ("steps.csv", "settings.csv", "reference.csv", "prediction.csv"):
        assert (tmp_path / "page" / name).is_file()
    assert "Beyond the paper" not in page


def test_page_has_the_settings_to_use_at_each_batch_size(prediction: bl.Prediction, tmp_path: Path) -> None:
    page = page_of(prediction, tmp_path / "page")
    for entry in prediction.predicted:
        point, interval = next(entry.points()), entry.curve.intervals[0]
        cells = ["8", f"{point['steps']:,.0f} ({interval})", f"{point['learning_rate']:.3g}"]
        cells += [] if point["momentum"] is None else [f"{point['momentum']:.3g}"]
        assert f"<tr>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>" in page
        for note in entry.notes:
            assert f"{entry.optimizer}: {note}." in page


def test_page_explains_itself(prediction: bl.Prediction, tmp_path: Path) -> None:
    """How far to trust it, what names and definitions mean, and why the run lies beside its curve."""
    page = page_of(prediction, tmp_path / "page")
    assert "digits, simple_cnn_mnist, simple_cnn_fashion_mnist, resnet8_cifar10 were tuned at every batch size" in page
    assert f"a factor of {math.exp(READINGS['sgd'].steps_error):.1f} (sgd), " in page
    assert "resnet8_cifar10 were held out: nobody had looked" in page
    assert "Momentum adds to each step that part of the last one." in page
    assert "Knee: where perfect scaling and the plateau meet." in page
    curve, run = prediction.curves["sgd"].curve, prediction.reference
    assert f"the run, at its own learning rate of {run['learning_rate']:.3g}." in page  # 64 was not asked for
    moved = replace(prediction, reference={**run, "batch_size": 128})
    rate = curve.settings[curve.batch_sizes.index(128)]["learning_rate"]
    assert f"; the curve is for the best, {rate:.3g}." in page_of(moved, tmp_path / "moved")


def test_every_band_has_a_picture_of_its_own(prediction: bl.Prediction) -> None:
    figure = Figure()
    figures.draw_steps_apart(figure.add_subplot(), figures.steps_data(prediction), list(prediction.curves))
    assert [ax.get_title(loc="left") for ax in figure.axes] == ["sgd", "momentum"]
    assert [len(ax.collections) for ax in figure.axes] == [1, 1]
    crosses = [[line for line in ax.lines if line.get_marker() == "x"] for ax in figure.axes]
    assert [len(found) for found in crosses] == [1, 0]  # the run is one with plain SGD
    assert np.ravel(crosses[0][0].get_ydata()).tolist() == [prediction.reference["steps"]]


def test_the_command_prints_json(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = run("predict digits --target-on train-loss --target 0.3 --learning-rate 0.5 --optimizers sgd "
                           "--batch-sizes 16,64,256 --json", capsys)  # fmt: skip
    assert status == 0, err
    document = json.loads(out)
    assert document["status"] == "predicted"
    assert document["curves"][0]["optimizer"] == "sgd"


def test_the_command_has_every_definition(
    prediction: bl.Prediction, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    noted = replace(prediction, predicted=(replace(prediction.predicted[0], notes=("wide",)),))
    monkeypatch.setattr(bl, "predict", lambda *_, **__: noted)
    status, out, err = run("predict digits", capsys)
    assert status == 0, err
    assert all(f"{entry.definition} {entry}" in out for entry in prediction.noise_scales)
    assert "Definitions are up to" in out
    assert "sgd: wide." in out
    assert "overhead" in out


def test_wrong_arguments_end_in_a_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    status, _, err = run("predict digits --optimizers sgd,lion", capsys)
    assert status == 2
    assert "lion" in err
