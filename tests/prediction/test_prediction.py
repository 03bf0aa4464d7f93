"""From a measured run to curves: right where the truth is known, and silent where it cannot know."""

import json
import math
import re
import subprocess
import sys
from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np
import pytest

import batchlens as bl
from batchlens.curvature.measurement import Estimate
from batchlens.prediction._confirming import Confirmed, most_telling, update
from batchlens.prediction._model import Reference
from batchlens.prediction._readings import READINGS
from batchlens.prediction._reference import largest_good
from batchlens.prediction.prediction import PredictedBatchSize, Prediction, _critical, _doubts, _interval
from batchlens.scaling._intervals import Interval
from tests.prediction.making import MODEL, TARGET, make_measurement, make_moment, make_reference, make_slow_reference

SIZES = [8, 32, 128, 512]


def predict(reference: Reference, measurement: bl.Measurement | None = None, **options: object) -> Prediction:
    curve = list(zip(reference.steps, reference.losses, strict=True))
    options = {"optimizers": ["sgd", "momentum"], "batch_sizes": SIZES, **options}
    return bl.predict_from(
        measurement or make_measurement(reference),
        curve,
        reference.batch_size,
        reference.learning_rate,
        TARGET,
        **options,  # type: ignore[arg-type]
    )


@pytest.fixture(scope="module")
def prediction() -> Prediction:
    return predict(make_reference())


def test_a_quadratic_is_predicted_as_it_is(prediction: Prediction) -> None:
    truth = bl.scaling_curve(MODEL.problem(), "sgd", SIZES, TARGET)
    found = prediction.curves["sgd"].curve
    np.testing.assert_allclose(np.array(found.steps, dtype=float), np.array(truth.steps, dtype=float), rtol=0.06)
    for steps, interval in zip(truth.steps, found.intervals, strict=True):
        assert interval is not None
        assert interval.low is not None
        assert interval.high is not None
        assert interval.low < (steps or 0) < interval.high
        narrowest = 2 * 1.645 * READINGS["sgd"].steps_error  # of what was found where the truth is known
        assert interval.high / interval.low > math.exp(narrowest) * 0.99
    assert found.settings[0]["learning_rate"] == pytest.approx(truth.settings[0]["learning_rate"], rel=0.1)


def test_the_sentence_says_what_the_critical_batch_size_takes(prediction: Prediction) -> None:
    critical = prediction.curves["sgd"].critical().value or 0.0
    truth = bl.scaling_curve(MODEL.problem(), "sgd", sorted([*SIZES, critical]), TARGET)
    steps = dict(zip(truth.batch_sizes, (count or 0 for count in truth.steps), strict=True))
    said = re.search(
        r"takes ([\d.]+) times the fewest steps and ([\d.]+) times the fewest examples", prediction.sentence
    )
    assert said is not None
    # a straight line between two batch sizes that are four times apart stands above the curve
    assert float(said[1]) == pytest.approx(steps[critical] / min(steps.values()), rel=0.2)
    assert float(said[2]) == pytest.approx(critical * steps[critical] / (8 * steps[8]), rel=0.2)
    cheap = re.search(r"Up to ([\d,]+) it takes at most 1.2 times the fewest examples", prediction.sentence)
    assert cheap is not None
    size = int(cheap[1].replace(",", ""))
    larger = SIZES[SIZES.index(size) + 1]
    assert size * steps[size] < 1.2 * 8 * steps[8] < larger * steps[larger]


def test_momentum_scales_further(prediction: Prediction) -> None:
    critical = {name: entry.critical().value or 0.0 for name, entry in prediction.curves.items()}
    assert critical["momentum"] > 1.5 * critical["sgd"]


def test_steps_at_the_edge_of_stability_come_before_those_of_sgd(prediction: Prediction) -> None:
    reference = make_reference()
    last = reference.steps[-1]
    moments = (make_moment(0, 9.0), make_moment(last // 12, 8.0), make_moment(last, 1.5))
    held = predict(reference, bl.Measurement(moments, "made"))
    delay = held.reference["delay"]
    assert 0 < delay <= 0.1 * last
    assert (held.curves["sgd"].curve.steps[-1] or 0) > (prediction.curves["sgd"].curve.steps[-1] or 0)
    assert len(held.reference["model_losses"]) == len(reference.steps)
    assert prediction.reference["delay"] == 0


def test_what_comes_after_the_target_does_not_count(prediction: Prediction) -> None:
    """A run that goes on is the run up to its target; measured far beyond it, it is refused."""
    reference = make_reference()
    last = reference.steps[-1]
    curve = [
        *zip(reference.steps, reference.losses, strict=True),
        *((last + k, 0.1 / (1.2 + k)) for k in range(1, 500)),
    ]
    measurement = make_measurement(reference)
    found = bl.predict_from(measurement, curve, 64, 0.7, TARGET, optimizers=["sgd"], batch_sizes=SIZES)
    assert found.reference["steps"] == last + 1
    assert found.curves["sgd"].curve.steps[0] == pytest.approx(prediction.curves["sgd"].curve.steps[0], rel=0.05)
    far = bl.Measurement((replace(measurement.moments[-1], loss=0.01),), "made")
    refused = bl.predict_from(far, curve, 64, 0.7, TARGET, batch_sizes=SIZES)
    assert "measure where the target is met" in refused.reasons[0]
    assert not len(refused.to_frame())


def test_the_last_moment_counts_though_losses_end_before_it(prediction: Prediction) -> None:
    """As where losses are noted every five steps; what is measured early and late decides about the delay."""
    reference = make_reference()
    last = reference.steps[-1]
    moments = (make_moment(0, 9.0), make_moment(last // 12, 8.0), make_moment(last, 1.5))
    curve = list(zip(reference.steps, reference.losses, strict=True))
    whole, cut = (
        bl.predict_from(bl.Measurement(moments, "made"), points, 64, 0.7, 1.1 * TARGET, optimizers=["sgd"],
                        batch_sizes=SIZES)
        for points in (curve, curve[:-1])
    )  # fmt: skip
    assert cut.reference["steps"] < last
    assert cut.reference["delay"] == whole.reference["delay"] > 0


def test_gradients_that_do_not_vary_are_refused() -> None:
    reference = make_reference()
    moments = (replace(make_moment(reference.steps[-1], 1.5), gradient_variance=Estimate(0.0, 0.0)),)
    found = predict(reference, bl.Measurement(moments, "made"))
    assert "do not vary" in found.reasons[0]


def test_a_run_near_the_edge_of_stability_is_predicted() -> None:
    """Curvatures that are drawn anew may not make it unstable."""
    found = predict(make_reference(replace(MODEL, variance=0.5), learning_rate=1.25), optimizers=["sgd"])
    assert found.status == "predicted", found.reasons


def test_a_run_near_the_edge_that_its_own_model_outruns_is_refused() -> None:
    """Far from the edge it is merely timid."""
    slow = make_slow_reference()
    measurement = make_measurement(slow, variance=400.0)
    found = predict(replace(slow, learning_rate=1.25), measurement)
    assert found.status == "not_identifiable"
    assert "is 1.88, close to the edge of stability, and the model that follows the run says that" in found.sentence
    timid = predict(replace(slow, learning_rate=0.9), measurement, optimizers=["sgd"])
    assert timid.status == "predicted"
    assert timid.notes[0].startswith("the run's learning rate was timid: by its own model another one takes")


def test_a_run_that_is_about_as_fast_as_can_be_is_not_timid(prediction: Prediction) -> None:
    assert prediction.notes == ()
    timid = make_reference(learning_rate=0.1)
    best = bl.tune(MODEL.problem(), "sgd", 64, TARGET).steps
    (note,) = predict(timid, optimizers=["sgd"]).notes
    told = re.search(r"takes ([\d,]+) steps where it took ([\d,]+);", note)
    assert told
    assert int(told[1].replace(",", "")) == pytest.approx(best, rel=0.2)
    assert int(told[2].replace(",", "")) == timid.steps[-1]


def test_a_run_with_momentum_near_the_edge_is_held_to_other_rates_at_its_own_momentum() -> None:
    """With another momentum it would take 15 steps, with another rate about as many as it did."""
    momentum = 0.2
    made = make_reference(replace(MODEL, variance=1.0), learning_rate=1.55 * (1 + momentum) / 1.5, momentum=momentum)
    curve = list(zip(made.steps, made.losses, strict=True))
    found = bl.predict_from(make_measurement(made, variance=1.0), curve, 64, made.learning_rate, TARGET,
                            momentum=momentum, optimizers=["sgd"], batch_sizes=SIZES)  # fmt: skip
    assert found.status == "predicted", found.reasons


def test_a_reference_with_momentum_is_followed_as_it_is() -> None:
    reference = make_reference(learning_rate=0.15, momentum=0.7)
    curve = list(zip(reference.steps, reference.losses, strict=True))
    found = bl.predict_from(make_measurement(reference), curve, 64, 0.15, TARGET, momentum=0.7,
                            optimizers=["sgd"], batch_sizes=SIZES)  # fmt: skip
    assert found.reference["curvature_exponent"] == pytest.approx(MODEL.curvature_exponent, rel=0.2)


def test_kfac_and_adam_have_no_learning_rate(prediction: Prediction) -> None:
    found = predict(make_reference(), optimizers=["kfac", "adam"])
    assert all(point["learning_rate"] is None for entry in found.predicted for point in entry.points())
    assert (found.curves["kfac"].curve.steps[0] or 0) < (prediction.curves["sgd"].curve.steps[0] or 0)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"top": 3.0}, "learning rate times top curvature is 2.10, above 1.9"),
        ({"halves": (1.0, 1.5)}, "it is 1 on one half of the examples and 1.5 on the other"),
        ({"variance_error": 0.3}, "the gradient variance is known to 30% only"),
    ],
)
def test_not_identifiable_is_an_answer(change: dict[str, float], reason: str) -> None:
    reference = make_reference()
    found = predict(reference, make_measurement(reference, **change))
    assert found.status == "not_identifiable"
    assert found.predicted == ()
    assert reason in found.sentence
    assert found.as_document()["reasons"]


def test_a_reference_that_misses_the_target_says_so() -> None:
    whole = make_reference()
    short = Reference(whole.steps[:20], whole.losses[:20], 64, 0.7, 0.0, TARGET)
    assert "misses the target" in predict(short).sentence


def test_a_plateau_of_a_few_steps_is_doubted() -> None:
    found = predict(make_reference(), optimizers=["kfac"], batch_sizes=[8, 64, 4096, 65536])
    assert "under 8" in found.predicted[0].reasons[-1]


@pytest.mark.parametrize(("optimizer", "last", "doubts"), [("momentum", 12, 0), ("momentum", 7, 1), ("kfac", 7, 2)])
def test_a_plateau_is_doubted_for_all_its_steps(optimizer: str, last: int, doubts: int) -> None:
    """Those of the delay too, which were measured; K-FAC has no delay, and a doubt of its own."""
    assert len([*_doubts(bl.ScalingCurve([8, 64], [100, last]), READINGS[optimizer])]) == doubts


def test_a_delay_counts_to_the_plateau(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("batchlens.prediction.prediction.LEAST_PLATEAU", 12)
    reference = make_reference()
    last = reference.steps[-1]
    moments = (make_moment(0, 60.0), make_moment(last // 5, 59.0), make_moment(last, 1.5))
    found = predict(reference, bl.Measurement(moments, "made"), optimizers=["momentum"], batch_sizes=[8, 64, 4096])
    steps, delay = found.curves["momentum"].curve.steps[-1] or 0, found.reference["delay"]
    assert steps - delay < 12 < steps
    assert found.curves["momentum"].reasons == ()


@pytest.mark.parametrize(
    ("sizes", "relation", "words"),
    [
        ([1, 2, 4], ">=", "is at least 4; ask for larger"),
        ([4096, 8192, 16384], "<=", "is at most 4,096; ask for smaller"),
    ],
)
def test_what_the_batch_sizes_do_not_show_is_a_bound(sizes: list[int], relation: str, words: str) -> None:
    found = predict(make_reference(), optimizers=["sgd"], batch_sizes=sizes)
    assert found.curves["sgd"].critical().relation == relation
    assert words in found.sentence
    assert found.as_document()["curves"][0]["critical_batch_sizes"][0]["relation"] == relation
    interval = found.curves["sgd"].curve.intervals[0]
    after = update(found, [Confirmed("sgd", sizes[0], 10.0, interval, 11.0, 1000, "reached", 11)])
    assert after.curves["sgd"].critical().relation == relation


def test_a_draw_that_says_nothing_leaves_the_critical_batch_size_as_it_is() -> None:
    curve = bl.ScalingCurve([16, 64, 256], [909, 714, 656])
    steps = np.array([[909.0, 714.0, 656.0], [900.0, 700.0, 640.0], [920.0, 720.0, 660.0], [910.0, math.nan, 650.0]])
    found = {entry.definition: entry for entry in _critical(curve, steps, READINGS["sgd+ema"])}
    assert (found["fit"].value, found["fit"].relation) == (16.0, "<=")
    assert found["fit"].interval is not None
    assert found["fit"].interval.low is None
    steps[1:, 1] = math.nan
    for entry in _critical(curve, steps, READINGS["sgd+ema"]):
        assert entry.value is not None
        assert entry.interval is None


def test_a_curve_of_one_batch_size_has_no_critical_one() -> None:
    found = predict(make_reference(), optimizers=["sgd"], batch_sizes=[64]).curves["sgd"].critical()
    assert (found.value, found.relation) == (None, "unknown")


def test_what_is_doubted_is_said_where_it_comes_first() -> None:
    found = predict(make_reference(), optimizers=["kfac"], batch_sizes=[8, 64, 4096, 65536])
    assert "Do not rely on it: on two networks that were held out" in found.sentence
    assert found.sentence.endswith("the model is not about a few large steps.")  # and no advice after it


def test_what_definitions_disagree_about_is_said(prediction: Prediction) -> None:
    sizes = {entry.definition: entry.value or 0.0 for entry in prediction.curves["sgd"].critical_batch_sizes}
    known = {**sizes, "B_simple": 70.0, "B_noise": 90.0}
    low, high = min(known, key=known.__getitem__), max(known, key=known.__getitem__)
    factor = f"{known[high] / known[low]:.2g}"
    assert prediction.apart.startswith(f"Definitions are up to {factor} times apart for sgd: {low} ")
    assert replace(prediction, predicted=()).apart == ""


def test_a_note_is_no_reason_against_a_curve() -> None:
    found = predict(make_reference(), optimizers=["sgd", "nesterov"])
    assert "no truth stands behind its intervals" in found.curves["nesterov"].notes[0]
    assert found.as_document()["curves"][1]["notes"] == list(found.curves["nesterov"].notes)
    assert "times too large" in found.curves["nesterov"].notes[1]
    assert found.curves["nesterov"].reasons == ()
    assert "learning rates were off by a factor of" in found.curves["sgd"].notes[0]


def test_the_sentence_ends_with_what_scales_furthest_of_those_with_truth(prediction: Prediction) -> None:
    """Nesterov scales further here, and no truth stands behind it."""
    sgd, momentum = prediction.predicted
    huge = (PredictedBatchSize("fit", 9999.0, Interval(9000.0, 11_000.0)),)
    nesterov = replace(momentum, optimizer="nesterov", critical_batch_sizes=huge)
    found = replace(prediction, predicted=(sgd, nesterov, momentum))
    assert found.sentence.endswith(f" The critical batch size of momentum is about {momentum.critical()}.")
    assert f"({momentum.critical().interval})" in found.sentence


def test_document_has_the_keys_of_the_contract(prediction: Prediction) -> None:
    document = json.loads(json.dumps(prediction.as_document()))
    assert {"status", "reasons", "sentence", "seconds", "target_loss", "curves"} <= set(document)
    networks = ["digits", "simple_cnn_mnist", "simple_cnn_fashion_mnist", "resnet8_cifar10"]
    assert document["intervals_from"] == networks
    assert {"optimizer", "critical_batch_sizes", "points"} <= set(document["curves"][0])
    assert {"batch_size", "steps", "interval", "learning_rate", "momentum", "averaging"} <= set(
        document["curves"][0]["points"][0]
    )
    assert [entry["definition"] for entry in document["noise_scales"]] == ["B_simple", "B_noise"]


def test_the_same_seed_gives_the_same_prediction(prediction: Prediction) -> None:
    again = predict(make_reference())
    assert again.to_frame().equals(prediction.to_frame())


def ended(
    prediction: Prediction, size: int, factor: float | None, status: str = "reached", given: int = 1000
) -> Prediction:
    """After a confirming run of SGD that took so many times the predicted steps, or did not arrive."""
    curve = prediction.curves["sgd"].curve
    place = SIZES.index(size)
    steps = float(curve.steps[place] or 0)
    taken = None if factor is None else factor * steps
    return update(prediction, [Confirmed("sgd", size, steps, curve.intervals[place], taken, given, status, given)])


def test_an_interval_has_the_scatter_of_the_draws_as_of_a_sample() -> None:
    logs = np.array([0.1, -0.2, 0.3])
    found = _interval(np.exp([0.0, *logs]), 0.0)
    assert found is not None
    assert math.log(found.high or 0.0) == pytest.approx(1.645 * math.sqrt(((logs - logs.mean()) ** 2).sum() / 2))


def test_the_cells_to_confirm_lie_apart(prediction: Prediction) -> None:
    sizes = [size for name, size in most_telling(prediction, 9) if name == "sgd"]
    assert len(sizes) > 1
    assert all(abs(math.log(one / other)) >= 1.25 for one, other in combinations(sizes, 2))
    assert all(size <= 16 for _, size in most_telling(prediction, 9, largest=16))


def test_confirming_runs_move_the_curve_and_leave_it_as_wide(prediction: Prediction) -> None:
    before, after = (found.curves["sgd"].curve for found in (prediction, ended(prediction, 32, 1.3)))
    moved = [float(new or 0) / float(old or 1) for new, old in zip(after.steps, before.steps, strict=True)]
    assert 1.1 < moved[1] < 1.3
    assert 1.0 < moved[3] < moved[1]
    for old, new in zip(before.intervals, after.intervals, strict=True):
        assert isinstance(old, Interval)
        assert isinstance(new, Interval)
        assert (new.high or 0) / (new.low or 1) == pytest.approx((old.high or 0) / (old.low or 1))
    assert ended(prediction, 32, 1.3).curves["momentum"] == prediction.curves["momentum"]


def test_a_confirming_run_that_misses_leaves_no_upper_end(prediction: Prediction) -> None:
    """It took as many steps as it was given, at least; the others move with it."""
    before = prediction.curves["sgd"].curve
    given = int(4 * float(before.steps[3] or 0))
    after = ended(prediction, 512, None, "not_reached", given)
    curve = after.curves["sgd"].curve
    assert after.confirmed[0].words == f"not within {given:,}"
    assert curve.steps[3] == given
    assert curve.intervals[3] == Interval(given, None)
    assert 1.5 < float(curve.steps[2] or 0) / float(before.steps[2] or 1) < 4.1
    few = ended(prediction, 512, None, "not_reached", 1)
    assert few.curves["sgd"] == prediction.curves["sgd"]


def test_a_confirming_run_that_diverges_says_nothing_of_steps(prediction: Prediction) -> None:
    """Its settings are no longer listed, and the curve is not to be relied on."""
    after = ended(prediction, 512, None, "diverged")
    before, found = prediction.curves["sgd"], after.curves["sgd"]
    assert (found.curve.steps, found.curve.intervals) == (before.curve.steps, before.curve.intervals)
    assert [*found.curve.settings] == [*before.curve.settings[:3], {}]
    rate = before.curve.settings[3]["learning_rate"]
    reason = f"at batch size 512 its predicted learning rate of {rate:.3g} diverged"
    assert found.reasons == (reason,)
    assert after.sentence.endswith(f"Do not rely on it: {reason}.")
    assert "diverged after 1,000 steps: the predicted learning rate is too large" in after.confirmed[0].words
    assert after.as_document()["confirmed"][0]["status"] == "diverged"
    assert after.curves["momentum"] == prediction.curves["momentum"]


def test_an_optimizer_that_diverged_is_not_recommended(prediction: Prediction) -> None:
    curve = prediction.curves["momentum"].curve
    cell = Confirmed("momentum", 512, curve.steps[3] or 0.0, curve.intervals[3], None, 99, "diverged", 3)
    assert "The critical batch size of momentum" in prediction.sentence
    assert "The critical batch size of momentum" not in update(prediction, [cell]).sentence


def test_a_critical_batch_size_that_becomes_a_bound_has_an_open_interval(prediction: Prediction) -> None:
    """The smaller the batch, the more steps it took: no plateau is left."""
    curve = prediction.curves["sgd"].curve
    predicted = [float(steps or 0) for steps in curve.steps]
    cells = [
        Confirmed("sgd", size, steps, None, steps * 512 / size, 9999, "reached", 1)
        for size, steps in zip(SIZES, predicted, strict=True)
    ]
    found = update(prediction, cells).curves["sgd"].critical("fit")
    assert (prediction.curves["sgd"].critical("fit").relation, found.relation) == ("=", ">=")
    assert found.interval is not None
    assert found.interval.high is None


def test_the_largest_good_rate_is_taken_and_luck_smoothed_away() -> None:
    rates = [0.1, 0.2, 0.4, 0.8, 1.6, 3.2]
    assert largest_good(rates, [-0.5, -1.0, -1.5, -1.5, -1.45, 1.6]) == 0.8
    assert largest_good(rates, [-1.0, -2.2, -1.0, 1.6, 1.6, 1.6]) == 0.2


@pytest.mark.parametrize(
    ("curve", "message"),
    [
        ([(0, 2.0)], "must hold"),
        ([(1, 2.0), (2, 1.0)], "that of step 0 first"),
        ([(0, 2.0), (5, 1.0), (5, 0.5)], "rising steps"),
        ([(0, 0.05), (5, 0.01)], "`target` must be below the loss at step 0"),
        ([(0, 2.0), (5, -1.0)], "`loss_curve` must be finite and above 0"),
    ],
)
def test_bad_curves_are_refused(curve: list[tuple[int, float]], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        bl.predict_from(make_measurement(make_reference()), curve, 64, 0.7, TARGET)


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"optimizers": []}, "`optimizers` must have at least one entry, got none"),
        ({"batch_sizes": []}, "`batch_sizes` must have at least one entry, got none"),
        ({"batch_sizes": [64, 8]}, "`batch_sizes` must rise, got 8 after 64"),
    ],
)
def test_bad_wishes_are_refused(asked: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        predict(make_reference(), **asked)


def test_a_definition_that_a_curve_does_not_have_is_refused(prediction: Prediction) -> None:
    with pytest.raises(ValueError, match="`definition` must be one of knee, overhead, fit, bend, got 'B_simple'"):
        prediction.curves["sgd"].critical("B_simple")


def test_predicting_from_a_measurement_needs_no_torch() -> None:
    code = "import sys; import batchlens.prediction.prediction; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
