"""Schedules of the batch size against single steps, finite differences, constant batches and dense searches."""

import csv
import json
import math
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import batchlens as bl
from batchlens.theory._batch_course import share_out
from batchlens.theory._kernels.path import momentum_path, sgd_path
from batchlens.theory._lanes import into_lanes
from batchlens.theory._search import fewest_steps
from tests.reference import Setting, path_by_steps

Floats = npt.NDArray[np.float64]

PROBLEM = bl.NoisyQuadratic.power_law(dim=10_000).binned(100, rounding="down")
SMALL = bl.NoisyQuadratic([2.0, 0.7, 0.11, 0.013], [1.0, 0.3, 0.2, 0.01], [0.5, 1.0, 3.0, 20.0], [1, 3, 2, 7])
TARGET = 0.01


def stepped_risk(rates: Floats, batches: Floats, lengths: list[int], momentum: float, power: float) -> float:
    """Of `SMALL`, step by step."""
    columns = SMALL.curvature, SMALL.noise, SMALL.initial, SMALL.count
    pieces = [Setting(float(rate), momentum, power=power) for rate in rates]
    return float(path_by_steps(*columns, pieces, batches.tolist(), lengths)[-1])


@pytest.mark.parametrize("momentum", [0.0, 0.4, 0.9])
@pytest.mark.parametrize("power", [0.0, 0.5])
def test_gradients_agree_with_finite_differences_of_single_steps(momentum: float, power: float) -> None:
    rates, batches, lengths = np.array([0.3, 0.2, 0.05]), np.array([3.0, 7.0, 40.0]), [5, 1, 12]
    lanes = into_lanes(SMALL, power, 1.0)
    if momentum:
        found = momentum_path(*lanes, rates, momentum, 1 / batches, np.array(lengths))
    else:
        found = sgd_path(*lanes, rates, 1 / batches, np.array(lengths))
    assert found[0] == pytest.approx(stepped_risk(rates, batches, lengths, momentum, power), rel=1e-11)
    for j in range(3):
        up, down = rates.copy(), rates.copy()
        width = 1e-4 * rates[j]
        up[j] += width
        down[j] -= width
        slope = (
            stepped_risk(up, batches, lengths, momentum, power) - stepped_risk(down, batches, lengths, momentum, power)
        ) / (2 * width)
        assert found[1][j] == pytest.approx(slope, rel=1e-6, abs=1e-9)
        more, less = batches.copy(), batches.copy()
        more[j], less[j] = 1 / (0.9 / batches[j]), 1 / (1.1 / batches[j])
        slope = (
            stepped_risk(rates, less, lengths, momentum, power) - stepped_risk(rates, more, lengths, momentum, power)
        ) / (0.2 / batches[j])
        assert found[2][j] == pytest.approx(slope, rel=1e-6)


def test_the_slope_by_momentum_agrees_with_finite_differences() -> None:
    rates, batches, lengths = np.array([0.3, 0.2, 0.05]), np.array([3.0, 7.0, 40.0]), [5, 1, 12]
    found = momentum_path(*into_lanes(SMALL, 0.0, 1.0), rates, 0.6, 1 / batches, np.array(lengths))
    ends = [stepped_risk(rates, batches, lengths, momentum, 0.0) for momentum in (0.6 - 1e-5, 0.6 + 1e-5)]
    assert found[1][-1] == pytest.approx((ends[1] - ends[0]) / 2e-5, rel=1e-6)


@settings(derandomize=True, deadline=None, max_examples=200)
@given(
    st.lists(st.floats(0, 1e6), min_size=1, max_size=8),
    st.floats(1.0, 1e9),
    st.floats(1e-3, 1.0),
    st.floats(1.0, 1e9),
    st.integers(1, 1000),
)
def test_examples_are_shared_out_within_limits(
    shares: list[float], examples: float, low: float, high: float, length: int
) -> None:
    lengths = np.arange(1, len(shares) + 1) * length
    low = min(low, examples / float(lengths.sum()))
    batches = share_out(np.array(shares), lengths, examples, low, high)
    assert (batches >= low * (1 - 1e-12)).all()
    assert (batches <= high).all()
    used = float(lengths @ batches)
    assert used == pytest.approx(min(examples, high * float(lengths.sum())), rel=1e-6)
    free = (batches > low * 1.0001) & (batches < high * 0.9999) & (np.array(shares) > 0)
    ratios = batches[free] / np.array(shares)[free]
    assert ratios == pytest.approx(np.full(ratios.size, ratios.mean() if ratios.size else 0.0), rel=1e-6)


@pytest.mark.parametrize("family", ["sgd", bl.UpdateRule(0.0, momentum=0.9), "momentum"])
@pytest.mark.parametrize(("steps", "batch_size"), [(500, 64.0), (2000, 256.0), (8000, 4096.0)])
def test_it_is_never_worse_than_the_best_constant_batch(
    family: str | bl.UpdateRule, steps: int, batch_size: float
) -> None:
    momentum = family.momentum if isinstance(family, bl.UpdateRule) else 0.0 if family == "sgd" else "tuned"
    constant = bl.best_schedule(PROBLEM, batch_size, steps, pieces=8, momentum=momentum)  # type: ignore[arg-type]
    ramp = bl.best_batch_schedule(PROBLEM, family, steps=steps, examples=steps * batch_size, pieces=8)  # type: ignore[arg-type]
    assert ramp.examples <= steps * batch_size * (1 + 1e-9)
    assert ramp.risk <= constant.risk * (1 + 1e-9)


def test_the_risk_is_what_the_exact_engine_says() -> None:
    ramp = bl.best_batch_schedule(PROBLEM, steps=1000, examples=100_000, pieces=10)
    path = bl.risk_path(PROBLEM, ramp.rules, ramp.batch_sizes, ramp.lengths)
    assert ramp.risk == pytest.approx(float(path[-1]), rel=1e-12)


def two_piece_risk(rates: Floats, other: Floats, first: Floats, examples: float, lengths: tuple[int, int]) -> Floats:
    """Of the paper's problem, by geometric series: `first` is the part of the examples in the first piece."""
    h, n = PROBLEM.curvature, PROBLEM.count
    start, noise = 0.5 * n * h * PROBLEM.initial, 0.5 * n * PROBLEM.noise / h
    risks = np.broadcast_to(start, (*np.broadcast(rates, other, first).shape, h.size))
    for eta, part, length in zip((rates, other), (first, 1 - first), lengths, strict=True):
        a = eta[..., None] * h
        decay = (1 - a) ** (2 * length)
        batch = part * examples / length
        risks = decay * risks + noise / batch[..., None] * a**2 * (1 - decay) / (1 - (1 - a) ** 2)
    return np.asarray(risks.sum(axis=-1))


@pytest.mark.parametrize(("steps", "examples"), [(1000, 64_000.0), (6000, 1_500_000.0)])
def test_two_pieces_come_within_1_percent_of_a_dense_search(steps: int, examples: float) -> None:
    found = bl.best_batch_schedule(PROBLEM, steps=steps, examples=examples, pieces=2)
    rates = np.geomspace(0.02, 1.999, 40)
    grid = np.meshgrid(rates, rates, np.linspace(0.02, 0.98, 49), indexing="ij")
    dense = float(two_piece_risk(*grid, examples, (steps // 2, steps // 2)).min())
    assert found.risk <= dense * (1 + 1e-9)
    assert found.risk >= 0.99 * dense


@pytest.mark.parametrize(("steps", "examples"), [(1000, 64_000.0), (6000, 1_500_000.0)])
def test_fifty_pieces_do_better_than_two_of_any_lengths(steps: int, examples: float) -> None:
    found = bl.best_batch_schedule(PROBLEM, steps=steps, examples=examples)
    rates = np.geomspace(0.02, 1.999, 20)
    grid = np.meshgrid(rates, rates, np.linspace(0.04, 0.96, 24), indexing="ij")
    for switch in (0.1, 0.3, 0.5, 0.7, 0.8, 0.9, 0.96):
        lengths = round(switch * steps), steps - round(switch * steps)
        assert found.risk <= float(two_piece_risk(*grid, examples, lengths).min())


def test_the_fewest_steps_are_found_and_one_fewer_does_not_do() -> None:
    plan = bl.optimal_batch_schedule(PROBLEM, target=TARGET, examples=2_341_888, pieces=10)
    assert plan.risk <= TARGET
    assert plan.least_examples <= plan.examples <= 2_341_888 * (1 + 1e-9)
    assert bl.lower_bound_risk(PROBLEM, plan.least_examples, kind="bayes") <= plan.risk
    assert bl.lower_bound_risk(PROBLEM, plan.least_examples - 1, kind="bayes") > plan.risk
    fewer = bl.best_batch_schedule(PROBLEM, steps=plan.steps - 1, examples=2_341_888, pieces=10)
    assert fewer.risk > TARGET
    assert plan.steps < bl.optimal_schedule(PROBLEM, 256, TARGET, pieces=10).steps


def test_the_fewest_examples_are_found() -> None:
    plan = bl.optimal_batch_schedule(PROBLEM, target=TARGET, steps=9148, pieces=10)
    assert plan.steps == 9148
    assert plan.risk == pytest.approx(TARGET, rel=1e-3)
    assert plan.risk <= TARGET * (1 + 1e-9)
    assert bl.best_batch_schedule(PROBLEM, steps=9148, examples=0.999 * plan.examples, pieces=10).risk > TARGET


def test_a_risk_that_hardly_falls_any_more_is_searched_in_few_evaluations() -> None:
    """Few examples: from 18,670 to 65,536 steps the least risk goes from 0.01 to 0.00995 only."""
    evaluations = 0

    def excess(steps: int) -> float:
        nonlocal evaluations
        evaluations += 1
        return 0.0046 * ((18_669.5 / steps) ** 6 - 1)

    assert fewest_steps(excess, 16_384, 65_536, excess(65_536)) == 18_670
    assert evaluations <= 15


@settings(derandomize=True, deadline=None, max_examples=300)
@given(st.integers(0, 1000), st.integers(1, 50_000), st.integers(0, 50_000), st.floats(0.01, 20), st.floats(1e-4, 10))
def test_the_search_finds_the_first_step_of_any_curve_that_falls(
    low: int, more: int, beyond: int, exponent: float, scale: float
) -> None:
    first = low + more

    def excess(steps: int) -> float:
        return scale * math.expm1(exponent * math.log((first - 0.5) / steps))

    assert fewest_steps(excess, low, first + beyond, excess(first + beyond)) == first


def test_no_batch_is_larger_or_smaller_than_allowed() -> None:
    plan = bl.best_batch_schedule(PROBLEM, steps=2000, examples=200_000, max_batch=150, min_batch=60, pieces=20)
    assert plan.batch_sizes.max() <= 150
    assert plan.batch_sizes.min() >= 60 * (1 - 1e-12)
    free = bl.best_batch_schedule(PROBLEM, steps=2000, examples=200_000, pieces=20)
    assert free.batch_sizes.max() > 150
    assert free.risk < plan.risk


def test_ramps_are_no_better_than_the_optimum_of_as_many_steps() -> None:
    for shape in ("doubling", "square_root_decay", "constant"):
        ramp = bl.tune_batch_ramp(PROBLEM, shape, target=TARGET, examples=7_000_000)
        assert ramp.risk <= TARGET * (1 + 1e-9)
        assert ramp.examples <= 7_000_000
        best = bl.optimal_batch_schedule(PROBLEM, target=TARGET, examples=7_000_000)
        assert best.steps <= ramp.steps
    ratios = ramp.batch_sizes[1:] / ramp.batch_sizes[:-1]
    assert ratios == pytest.approx(np.ones(4))


def test_a_constant_ramp_is_what_tune_finds() -> None:
    ramp = bl.tune_batch_ramp(PROBLEM, "constant", target=TARGET, examples=7_000_000, stages=1)
    tuned = bl.tune(PROBLEM, "sgd", float(ramp.batch_sizes[0]), TARGET)
    assert tuned.steps is not None
    assert ramp.steps == pytest.approx(tuned.steps, rel=1e-3)


def test_the_frontier_saves_examples_and_never_loses_any() -> None:
    frontier = bl.batch_frontier(PROBLEM, target=TARGET, steps=[8000, 16_000], pieces=8)
    frame = frontier.to_frame()
    assert (frame["saved"] > -1e-4).all()
    assert (frame["examples"] >= frame["least_examples"]).all()
    assert frame["examples"].is_monotonic_decreasing
    document = json.loads(json.dumps(frontier.as_document()))
    assert len(document["points"]) == 2
    assert frontier.plot().get_xlabel() == "steps to target"


def test_it_is_written_as_a_plain_table(tmp_path: Path) -> None:
    plan = bl.best_batch_schedule(PROBLEM, steps=1000, examples=100_000, pieces=5)
    whole = plan.rounded()
    assert (whole.batch_sizes == np.round(plan.batch_sizes)).all()
    assert whole.risk == pytest.approx(plan.risk, rel=0.01)
    whole.to_csv(tmp_path / "schedule.csv")
    with open(tmp_path / "schedule.csv", encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [int(row["step"]) for row in rows] == [0, 200, 400, 600, 800]
    assert [int(row["batch_size"]) for row in rows] == whole.batch_sizes.tolist()
    assert float(rows[-1]["learning_rate"]) == pytest.approx(plan.learning_rates[-1])
    assert plan.plot().get_ylabel() == "batch size"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "`examples` or `steps` must be given, one of them, got None and None"),
        ({"examples": 1e6, "steps": 10}, "`examples` or `steps` must be given"),
        ({"examples": 1000}, "`examples` must be at least 4[0-9]{2},[0-9]{3}, which no learner can do without"),
        ({"examples": 1e6, "family": "adam"}, "`family` must be one of sgd, momentum"),
        ({"examples": 1e6, "max_batch": 0.5}, "`max_batch` must be finite and at least 1"),
        ({"examples": 1e6, "target": 0}, "`target` must be finite and above 0"),
        ({"steps": 10, "max_batch": 64}, "`steps` must suffice for the target"),
        ({"examples": 1e6, "family": bl.UpdateRule(0.1, averaging=0.9)}, "`family` must be a rule without"),
    ],
)
def test_bad_input_is_refused_by_name(arguments: dict[str, object], message: str) -> None:
    usual: dict[str, object] = {"target": TARGET}
    with pytest.raises(ValueError, match=message):
        bl.optimal_batch_schedule(PROBLEM, **(usual | arguments))  # type: ignore[arg-type]


def test_a_target_at_the_start_takes_no_step() -> None:
    plan = bl.optimal_batch_schedule(PROBLEM, target=math.ceil(PROBLEM.initial_risk), examples=100)
    assert (plan.steps, plan.examples) == (0, 0.0)
