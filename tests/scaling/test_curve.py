"""Critical batch sizes of curves whose answer is known, of the theory's and of published ones."""

from __future__ import annotations

import math
import pickle
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchlens.scaling._critical import DEFINITIONS, Definition, Steps
from batchlens.scaling.curve import CriticalBatchSize, ScalingCurve, critical_batch_size

POWERS_OF_4 = [4.0**k for k in range(1, 11)]
# 100 bins rounded down, target 0.01, tuned at every batch size.
MOMENTUM = [1285162, 321290, 80323, 20081, 5022, 1263, 342, 182, 159, 152]
SGD = [1501260, 376690, 95633, 25813, 10600, 8079, 7380, 7112, 6995, 6940]
MOMENTUM_HALF = [284593, 71148, 17787, 4447, 1112, 278, 70, 20, 17, 16]
PUBLISHED_SIZES = [32, 128, 512, 2048]
MNIST, FASHION, RESNET = [2360, 676, 303, 177], [1731, 491, 297, 165], [6502, 2037, 898, 961]

GRIDS = {
    "doubling": [2.0**k for k in range(-6, 22)],
    "powers of 4": [4.0**k for k in range(-3, 11)],
    "powers of 16": [16.0**k for k in range(-2, 6)],
    "fine": np.geomspace(0.01, 1e6, 200).tolist(),
    "uneven": [0.01, 0.02, 0.5, 1, 3, 17, 40, 64, 65, 300, 1000, 9000, 1e5, 4e5, 1e6],
}


def model(batch_sizes: Sequence[float], critical: float, least: float = 100.0) -> list[float]:
    return [least * (1 + critical / size) for size in batch_sizes]


def read(batch_sizes: Sequence[float], steps: Sequence[Steps], definition: Definition) -> tuple[Any, str]:
    found = critical_batch_size(batch_sizes, steps, definition)
    assert found.definition == definition
    assert found.value is not None
    return found.value, found.relation


@pytest.mark.parametrize("grid", GRIDS.values(), ids=GRIDS.keys())
@pytest.mark.parametrize("critical", [1.7, 20.0, 64.0, 333.3])
def test_model_curves_give_their_critical_batch_size(grid: list[float], critical: float) -> None:
    steps = model(grid, critical)
    value, relation = read(grid, steps, "fit")
    assert relation == "="
    assert value == pytest.approx(critical, rel=1e-9)
    value, relation = read(grid, steps, "knee")
    assert relation == "="
    assert value == pytest.approx(critical, rel=0.05)
    # Perfect scaling is exceeded by 20% at a fifth of B_crit; between points the chord lies above the curve.
    value, relation = read(grid, steps, "overhead")
    assert relation == "="
    above = min(size for size in grid if size > 0.2 * critical)
    below = max(size for size in grid if size <= 0.2 * critical)
    assert below * 0.95 < value < above
    assert value < 0.22 * critical


@pytest.mark.parametrize("definition", ["knee", "overhead"])
def test_sharp_knee_is_met_exactly(definition: Definition) -> None:
    steps = [max(12_800 / size, 100) for size in GRIDS["doubling"]]
    value, relation = read(GRIDS["doubling"], steps, definition)
    assert relation == "="
    # One doubling past the knee the excess is 2, and 1.2 is log2(1.2) of the way there.
    assert value == pytest.approx({"knee": 128, "overhead": 128 * 1.2}[definition], rel=1e-9)


def test_overhead_reads_between_points_in_log_log() -> None:
    # Excess 1, 1, 1, 1.5: 1.2 lies at log 1.2 / log 1.5 of the last step, a factor of 2.
    expected = 8 * 2 ** (math.log(1.2) / math.log(1.5))
    value, relation = read([2, 4, 8, 16], [800, 400, 200, 150], "overhead")
    assert (value, relation) == (pytest.approx(expected), "=")


def test_overhead_tolerance_is_respected() -> None:
    sizes = GRIDS["fine"]
    for tolerance in (0.05, 0.2, 1.0):
        found = critical_batch_size(sizes, model(sizes, 500), "overhead", tolerance)
        assert found.value == pytest.approx(tolerance * 500, rel=0.01)


@pytest.mark.parametrize("definition", DEFINITIONS)
@pytest.mark.parametrize("count", [2, 3, 6])
@pytest.mark.parametrize("factor", [1.01, 2, 4, 10])
def test_perfect_scaling_only_is_a_lower_bound(definition: Definition, count: int, factor: float) -> None:
    sizes = [4096 / factor**k for k in reversed(range(count))]
    assert read(sizes, [1e6 / size for size in sizes], definition) == (4096, ">=")


@pytest.mark.parametrize("definition", DEFINITIONS)
def test_perfect_scaling_with_rounded_steps_is_a_lower_bound(definition: Definition) -> None:
    sizes = [2.0**k for k in range(13)]
    found = critical_batch_size(sizes, [math.ceil(1e5 / size) for size in sizes], definition)
    assert found == CriticalBatchSize(4096.0, ">=", definition)
    assert str(found) == "at least 4,096"


@pytest.mark.parametrize("definition", DEFINITIONS)
@pytest.mark.parametrize("count", [2, 3, 6])
@pytest.mark.parametrize("factor", [1.01, 2, 4, 10])
def test_plateau_only_is_an_upper_bound(definition: Definition, count: int, factor: float) -> None:
    sizes = [64 * factor**k for k in range(count)]
    value, relation = read(sizes, [500] * count, definition)
    assert relation == "<="
    # 20% more examples than at the first point: passed by the next, or on a fine grid by none.
    after = sizes[1] if factor > 1.2 else sizes[-1]
    assert value == (after if definition == "overhead" else sizes[0])


@pytest.mark.parametrize("definition", DEFINITIONS)
@pytest.mark.parametrize("critical", [2.0**k for k in range(-4, 20)])
@pytest.mark.parametrize("stretch", [slice(0, 4), slice(0, 7), slice(3, 9), slice(5, 13), slice(0, 13, 3)])
def test_bounds_hold(definition: Definition, critical: float, stretch: slice) -> None:
    """A part of a model curve never bounds away the truth."""
    sizes = [2.0**k for k in range(13)][stretch]
    value, relation = read(sizes, model(sizes, critical), definition)
    truth = critical
    if definition == "overhead":  # 20% more than the small end's examples, which are S_min (B + B_crit)
        small = np.array([size for size in sizes if size <= 4 * sizes[0]]) if relation != "<=" else np.zeros(1)
        truth = 1.2 * float(np.exp(np.log(small + critical).mean())) - critical
    if relation == ">=":
        assert truth >= 0.85 * value  # N_0 is read at the small end, where the excess is up to a fifth
    elif relation == "<=":
        assert truth <= value * 1.3  # S_inf is read at the large end
    else:
        assert sizes[0] <= value <= sizes[-1]
        assert value / 1.6 < truth < 1.6 * value  # as far as a grid of factor 8 can miss


@pytest.mark.parametrize("definition", DEFINITIONS)
def test_one_point_tells_nothing(definition: Definition) -> None:
    for sizes, steps in (([8], [100]), ([8, 16], [None, 3]), ([8, 16], [None, None]), ([8, 16, 32], [0, 0, 5])):
        assert critical_batch_size(sizes, steps, definition) == CriticalBatchSize(None, "unknown", definition)
    assert str(critical_batch_size([8], [100], definition)) == "unknown"


def test_curve_between_the_regimes_is_bounded() -> None:
    sizes = [256, 512, 1024]
    assert read(sizes, model(sizes, 900), "knee") == (256, ">=")
    assert read(sizes, model(sizes, 300), "knee") == (1024, "<=")
    assert read(sizes, model(sizes, 512), "fit") == (pytest.approx(512), "=")
    assert read(sizes[:2], model(sizes[:2], 400), "fit") == (256, ">=")  # any curve fits two points


@pytest.mark.parametrize("definition", DEFINITIONS)
def test_missing_points_are_left_out(definition: Definition) -> None:
    steps: list[Steps] = [*SGD]
    steps[0] = steps[5] = steps[9] = None
    kept = [k for k in range(10) if k not in (0, 5, 9)]
    expected = critical_batch_size([POWERS_OF_4[k] for k in kept], [SGD[k] for k in kept], definition)
    assert critical_batch_size(POWERS_OF_4, steps, definition) == expected


@pytest.mark.parametrize(
    ("steps", "knee", "overhead", "fit", "bend"),
    [
        (MOMENTUM, 33_067, 19_545, 36_949, 32_971),
        (SGD, 863, 328, 821, 835),
        (MOMENTUM_HALF, 69_024, 68_678, 86_101, 69_963),
    ],
    ids=["momentum", "sgd", "momentum, power 0.5"],
)
def test_theory_curves(steps: list[int], knee: float, overhead: float, fit: float, bend: float) -> None:
    for definition, expected in zip(DEFINITIONS, (knee, overhead, fit, bend), strict=True):
        value, relation = read(POWERS_OF_4, steps, definition)
        assert relation == "="
        assert value == pytest.approx(expected, rel=1e-3)
    # Independently: examples at the smallest batch over steps at the largest.
    assert knee == pytest.approx(4 * steps[0] / steps[-1], rel=0.04)
    # Independently: the points on either side of 20% more examples than the smallest batch takes.
    ratios = [size * count / (4 * steps[0]) for size, count in zip(POWERS_OF_4, steps, strict=True)]
    crossing = next(k for k, ratio in enumerate(ratios) if ratio > 1.2)
    assert POWERS_OF_4[crossing - 1] < overhead < POWERS_OF_4[crossing]
    assert overhead < knee < fit * 1.1 < knee * 1.4


@pytest.mark.parametrize("cut", range(2, 7))
@pytest.mark.parametrize("definition", DEFINITIONS)
def test_theory_curve_cut_before_its_knee_is_bounded(cut: int, definition: Definition) -> None:
    assert read(POWERS_OF_4[:cut], MOMENTUM[:cut], definition) == (POWERS_OF_4[cut - 1], ">=")


@pytest.mark.parametrize("definition", DEFINITIONS)
def test_theory_curve_after_its_knee_is_bounded(definition: Definition) -> None:
    value, relation = read(POWERS_OF_4[5:], SGD[5:], definition)
    assert relation == "<="
    assert value <= POWERS_OF_4[6]


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        (MNIST, [(427, ">="), (168, "="), (477, "="), (494, "=")]),
        (FASHION, [(336, ">="), (154, "="), (316, "="), (322, "=")]),
        (RESNET, [(251, "="), (152, "="), (228, "="), (234, "=")]),
    ],
    ids=["MNIST", "Fashion-MNIST", "ResNet8"],
)
def test_published_curves(steps: list[int], expected: list[tuple[float, str]]) -> None:
    for definition, (value, relation) in zip(DEFINITIONS, expected, strict=True):
        assert read(PUBLISHED_SIZES, steps, definition) == (pytest.approx(value, rel=5e-3), relation)


def test_fit_is_the_least_squares_optimum() -> None:
    for steps in (MNIST, FASHION, RESNET):
        best, _ = read(PUBLISHED_SIZES, steps, "fit")

        def squares(critical: float, steps: list[int] = steps) -> float:
            residual = np.log(steps) - np.log(model(PUBLISHED_SIZES, critical))
            return float(((residual - residual.mean()) ** 2).sum())

        others = np.geomspace(1e-3, 1e7, 5000)
        assert squares(best) <= min(map(squares, others))


@pytest.mark.parametrize("definition", DEFINITIONS)
@pytest.mark.parametrize("steps", [MOMENTUM, SGD, MOMENTUM_HALF])
def test_scale_invariance(definition: Definition, steps: list[int]) -> None:
    value, relation = read(POWERS_OF_4, steps, definition)
    for factor in (1e-3, 7.0, 1e6):
        scaled_steps = [factor * count for count in steps]
        assert read(POWERS_OF_4, scaled_steps, definition) == (pytest.approx(value, rel=1e-9), relation)
        scaled_sizes = [factor * size for size in POWERS_OF_4]
        assert read(scaled_sizes, steps, definition) == (pytest.approx(factor * value, rel=1e-9), relation)


@pytest.mark.parametrize("definition", DEFINITIONS)
def test_noise_seldom_hides_the_regimes(definition: Definition) -> None:
    """10% of noise at each point of a curve over three decades on either side."""
    random = np.random.default_rng(0)
    sizes = [2.0**k for k in range(21)]
    exact = np.array(model(sizes, 1024))
    noiseless, _ = read(sizes, exact.tolist(), definition)
    noise = np.exp(0.1 * random.normal(size=(500, 21)))
    found = [read(sizes, row, definition) for row in (exact * noise).tolist()]
    assert sum(relation != "=" for _, relation in found) <= 5
    assert np.median([value for value, _ in found]) == pytest.approx(noiseless, rel=0.15)


positive = st.floats(1e-6, 1e12)


@given(st.data(), st.integers(1, 9), st.sampled_from(DEFINITIONS), st.floats(1e-3, 10))
def test_any_curve_has_an_answer_in_its_range(
    data: st.DataObject, count: int, definition: Definition, tolerance: float
) -> None:
    sizes = sorted(data.draw(st.lists(positive, min_size=count, max_size=count, unique=True)))
    steps = data.draw(st.lists(st.none() | positive | st.integers(0, 10**12), min_size=count, max_size=count))
    curve = ScalingCurve(sizes, steps)
    found = curve.critical_batch_size(definition, tolerance)
    telling = [size for size, count in zip(sizes, steps, strict=True) if count]
    if len(telling) < 2:
        assert found == (None, "unknown", definition)
    else:
        assert found.value is not None
        assert telling[0] * (1 - 1e-12) <= found.value <= telling[-1] * (1 + 1e-12)
        predicted = curve.predict(sizes)
        assert np.isfinite(predicted).all()
        assert (np.diff(predicted) <= 0).all()
    for part, taken in zip(curve.efficiency(), steps, strict=True):
        assert (part is None) == (not taken)
        assert part is None or (part > 0 and math.isfinite(part))
    covered = curve.perfect_scaling_range(tolerance)
    assert covered is None or covered[0] == telling[0] <= covered[1] * (1 + 1e-12)


def test_perfect_scaling_range() -> None:
    assert ScalingCurve(POWERS_OF_4, SGD).perfect_scaling_range() == pytest.approx((4, 328), rel=1e-2)
    assert ScalingCurve(POWERS_OF_4, SGD).perfect_scaling_range(0.01) == pytest.approx((4, 33.25), rel=1e-2)
    assert ScalingCurve([4, 16, 64], [None, 200, 50]).perfect_scaling_range() == (16, 64)
    assert ScalingCurve([4, 16, 64], [200, 200, 200]).perfect_scaling_range() is None
    assert ScalingCurve([4], [200]).perfect_scaling_range() is None


def test_efficiency() -> None:
    assert ScalingCurve([4, 16, 64, 256], [800, 200, None, 50]).efficiency() == pytest.approx((1, 1, None, 0.25))
    assert ScalingCurve([4, 16], [100, 100]).efficiency() == pytest.approx((1, 0.25))
    assert ScalingCurve([4], [100]).efficiency() == pytest.approx((1,))
    assert ScalingCurve([4, 8], [None, None]).efficiency() == (None, None)


def test_predict_continues_what_the_curve_shows() -> None:
    sizes = [4.0, 16.0, 64.0]
    np.testing.assert_allclose(ScalingCurve(sizes, model(sizes, 20)).predict([1, 1024]), model([1, 1024], 20))
    np.testing.assert_allclose(ScalingCurve(sizes, [800, 200, 50]).predict(128), [25], rtol=1e-5)
    np.testing.assert_allclose(ScalingCurve(sizes, [7, 7, 7]).predict([1, 1e6]), [7, 7], rtol=1e-5)
    with pytest.raises(ValueError, match="`steps` must tell of at least two batch sizes to predict others, got 1"):
        ScalingCurve([4], [100]).predict([8])
    with pytest.raises(ValueError, match="`batch_sizes` must be finite and above 0, got 0"):
        ScalingCurve(sizes, [7, 7, 7]).predict([0])


def test_curve_is_a_plain_record() -> None:
    sizes: Any = np.array([4, 16])
    steps: Any = [np.int64(3), 2.5]
    curve = ScalingCurve(sizes, steps, [{"learning_rate": 0.1}, {}], "momentum", power=0.5, target=0.01)
    assert curve.batch_sizes == (4.0, 16.0)
    assert curve.steps == (3, 2.5)
    assert [type(count) for count in curve.steps] == [int, float]
    assert curve == pickle.loads(pickle.dumps(curve))
    with pytest.raises(AttributeError):
        curve.power = 0.1  # type: ignore[misc]


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"batch_sizes": []}, ValueError, "`batch_sizes` must have at least one entry, got none."),
        ({"batch_sizes": [4, 4]}, ValueError, "`batch_sizes` must rise, got 4 after 4."),
        ({"batch_sizes": [16, 4]}, ValueError, "`batch_sizes` must rise, got 4 after 16."),
        ({"batch_sizes": [0, 4]}, ValueError, "`batch_sizes` must be finite and above 0, got 0."),
        ({"batch_sizes": [4, math.inf]}, ValueError, "`batch_sizes` must be finite and above 0, got inf."),
        ({"batch_sizes": ["4", 8]}, TypeError, "`batch_sizes` must be a number, got '4'."),
        ({"steps": [1]}, ValueError, "`steps` must have 2 entries, one per batch size, got 1."),
        ({"steps": [1, -1]}, ValueError, "`steps` must be finite and at least 0, got -1."),
        ({"steps": [1, math.nan]}, ValueError, "got nan. Use None where the target was not reached."),
        ({"steps": [1, "2"]}, TypeError, "`steps` must be a number, got '2'."),
        ({"settings": [{}]}, ValueError, "`settings` must have 2 entries, one per batch size, or none, got 1."),
        ({"settings": [{}, 3]}, TypeError, "`settings` must hold mappings"),
        ({"optimizer": 3}, TypeError, "`optimizer` must be a string, got 3."),
        ({"power": math.nan}, ValueError, "`power` must be finite, got nan."),
        ({"target": "low"}, TypeError, "`target` must be a number, got 'low'."),
    ],
)
def test_bad_curves_are_refused(arguments: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error) as caught:
        ScalingCurve(**({"batch_sizes": [4, 16], "steps": [10, 3]} | arguments))
    assert message in str(caught.value)


def test_bad_questions_are_refused() -> None:
    with pytest.raises(ValueError, match=r"`definition` must be one of knee, overhead, fit, bend, got 'elbow'\."):
        critical_batch_size([4, 16], [10, 3], "elbow")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"`tolerance` must be finite and above 0, got 0\."):
        critical_batch_size([4, 16], [10, 3], tolerance=0)
