"""Where a smoothed curve first reaches its target, against a slow reference."""

import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchlens.scaling._logs.crossing import Crossing, Direction, find_crossing
from batchlens.scaling._logs.log import Curve, make_curve


def curve_of(steps: Sequence[float], values: Sequence[float], seconds_a_step: float = math.nan) -> Curve:
    return make_curve((step, value, step * seconds_a_step) for step, value in zip(steps, values, strict=True))


def slow_crossing(steps: Sequence[float], values: Sequence[float], target: float, smoothing: float) -> float | None:
    """Lower is better; the median by sorting, the window record by record, the worse of two in the middle."""
    smooth = []
    for step in steps:
        reach = min(smoothing * step, steps[-1] - step)
        inside = [
            math.inf if math.isnan(value) else value
            for other, value in zip(steps, values, strict=True)
            if abs(other - step) <= reach + 1e-6
        ]
        smooth.append(sorted(inside)[len(inside) // 2])
    for index, value in enumerate(smooth):
        if value <= target:
            if index == 0 or math.isinf(smooth[index - 1]) or math.isinf(value):
                return steps[index]
            part = (smooth[index - 1] - target) / (smooth[index - 1] - value)
            return steps[index - 1] + part * (steps[index] - steps[index - 1])
    return None


@given(
    gaps=st.lists(st.integers(1, 30), min_size=1, max_size=40),
    seed=st.integers(0, 10**6),
    smoothing=st.sampled_from([0.0, 0.1, 0.5, 1.0]),
    diverges=st.booleans(),
)
def test_crossings_are_those_of_the_slow_reference(
    gaps: list[int], seed: int, smoothing: float, diverges: bool
) -> None:
    steps = np.cumsum(gaps).tolist()
    values = 1 / np.sqrt(steps) + 0.1 * np.random.default_rng(seed).normal(size=len(steps))
    if diverges:
        values[len(steps) // 2 :] = np.random.default_rng(seed).choice([math.nan, math.inf, 1e30])
    wanted = slow_crossing(steps, values.tolist(), 0.2, smoothing)
    for sign, direction in ((1, "down"), (-1, "up")):
        found = find_crossing(curve_of(steps, sign * values), sign * 0.2, direction, smoothing)  # type: ignore[arg-type]
        assert (found and found.steps) == (wanted and pytest.approx(wanted))


def test_between_records_step_and_seconds_are_interpolated() -> None:
    curve = curve_of([0, 100, 200], [1.0, 0.5, 0.1], seconds_a_step=0.25)
    assert find_crossing(curve, 0.3, "down", 0.1) == pytest.approx((150, 37.5, False))
    assert find_crossing(curve, 0.5, "down", 0.1) == Crossing(100.0, 25.0, first=False)
    assert find_crossing(curve, 0.05, "down", 0.1) is None


def test_a_lucky_record_among_many_is_no_crossing() -> None:
    steps = list(range(1, 1001))
    values = [1 - step / 1000 for step in steps]
    values[299] = 0.0
    found = find_crossing(curve_of(steps, values), 0.2, "down", 0.1)
    assert found is not None
    assert found.steps == pytest.approx(800, rel=0.01)
    raw = find_crossing(curve_of(steps, values), 0.2, "down", 0.0)
    assert raw is not None
    assert raw.steps < 300


def test_a_run_that_stopped_at_its_target_reached_it() -> None:
    steps = list(range(10, 501, 10))
    values = [step / 500 for step in steps]
    assert find_crossing(curve_of(steps, values), 1.0, "up", 0.1) == Crossing(500.0, None, first=False)


@pytest.mark.parametrize("direction", ["up", "down"])
def test_what_is_no_number_has_not_reached_the_target(direction: Direction) -> None:
    steps = list(range(1, 51))
    assert find_crossing(curve_of(steps, [math.nan] * 50), 0.5, direction, 0.1) is None


def test_noise_of_a_dense_curve_hardly_moves_the_crossing_at_any_batch_size() -> None:
    """The training loss is noisier at a small batch, and has as many more records in a window."""
    for size in (16, 64):
        count = 64_000 // size
        found = []
        for seed in range(20):
            steps = np.arange(1, 2 * count)
            noise = np.random.default_rng(seed).normal(size=steps.size) / math.sqrt(size)
            crossing = find_crossing(curve_of(steps.tolist(), (steps / count) ** -0.5 + noise), 1.0, "down", 0.1)  # type: ignore[arg-type]
            assert crossing is not None
            found.append(crossing.steps / count)
        assert np.mean(found) == pytest.approx(1, rel=0.02)
