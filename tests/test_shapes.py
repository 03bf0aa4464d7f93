"""Learning-rate schedules: their formulas, their bounds, and no jumps."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchlens._shapes import SHAPES

FRACTIONS = st.floats(0, 1)
TOTALS = st.integers(1, 10_000)


def factor(name: str, step: int, **values: float) -> float:
    return SHAPES[name].of_step(step, values)


def test_names_and_defaults() -> None:
    assert {name: (dict(shape.fractions), shape.length) for name, shape in SHAPES.items()} == {
        "constant": ({}, ""),
        "linear_decay": ({"final_fraction": 0.0}, "decay_steps"),
        "cosine": ({"final_fraction": 0.0}, "total_steps"),
        "step_decay": ({}, "total_steps"),
        "warmup_stable_decay": (
            {"warmup_fraction": 0.05, "decay_fraction": 0.2, "final_fraction": 0.0},
            "total_steps",
        ),
    }


@given(name=st.sampled_from(list(SHAPES)), steps=st.integers(1, 500))
def test_training_and_theory_use_the_same_shape(name: str, steps: int) -> None:
    """A step counts as the part at its middle, up to half a step's change."""
    shape = SHAPES[name]
    settings = {**shape.fractions, "decay_steps": steps, "total_steps": steps}
    fine = np.linspace(0, 1, 20 * steps + 1)
    values = shape.at(fine).reshape(-1)
    for step in range(0, steps, max(1, steps // 7)):
        within = values[20 * step : 20 * step + 21]
        assert within.min() - 1e-12 <= shape.of_step(step, settings) <= within.max() + 1e-12


@given(st.integers(0, 10**9))
def test_constant(step: int) -> None:
    assert factor("constant", step) == 1


@given(rate=st.floats(1e-4, 10), gamma=FRACTIONS, total=TOTALS, step=st.integers(0, 20_000))
def test_linear_decay_is_the_mended_formula(rate: float, gamma: float, total: int, step: int) -> None:
    """alpha_0 (1 - (1 - gamma) t / T), then gamma alpha_0."""
    found = rate * factor("linear_decay", step, final_fraction=gamma, decay_steps=total)
    expected = rate * (1 - (1 - gamma) * step / total) if step <= total else gamma * rate
    assert found == pytest.approx(expected, abs=1e-12 * rate)


def test_linear_decay_over_part_of_a_step() -> None:
    assert factor("linear_decay", 0, final_fraction=0.1, decay_steps=0.5) == 1
    assert factor("linear_decay", 1, final_fraction=0.1, decay_steps=0.5) == pytest.approx(0.1)


@given(gamma=FRACTIONS, total=TOTALS, step=st.integers(0, 20_000))
def test_cosine(gamma: float, total: int, step: int) -> None:
    found = factor("cosine", step, total_steps=total, final_fraction=gamma)
    # cos^2 of half the angle says the same.
    share = math.cos(math.pi / 2 * step / total) ** 2 if step <= total else 0.0
    assert found == pytest.approx(gamma * (1 - share) + share, abs=1e-12)


@pytest.mark.parametrize("final", [0.0, 0.25])
def test_warmup_stable_decay(final: float) -> None:
    values = {"total_steps": 200, "warmup_fraction": 0.1, "decay_fraction": 0.25, "final_fraction": final}
    for step in range(260):
        if step < 20:
            expected = (step + 1) / 20
        elif step <= 150:
            expected = 1.0
        elif step <= 200:
            expected = 1 - (1 - final) * (step - 150) / 50
        else:
            expected = final
        assert factor("warmup_stable_decay", step, **values) == pytest.approx(expected, abs=1e-12), step


def test_no_warmup_and_no_decay_is_constant() -> None:
    values = {"total_steps": 10, "warmup_fraction": 0.0, "decay_fraction": 0.0, "final_fraction": 0.0}
    assert [factor("warmup_stable_decay", step, **values) for step in range(10)] == [1.0] * 10


@given(
    name=st.sampled_from(list(SHAPES)),
    total=TOTALS,
    step=st.integers(0, 20_000),
    final=FRACTIONS,
    warmup=FRACTIONS,
    decay=FRACTIONS,
)
def test_factors_lie_between_zero_and_one(
    name: str, total: int, step: int, final: float, warmup: float, decay: float
) -> None:
    given = {
        "total_steps": float(total),
        "decay_steps": float(total),
        "final_fraction": final,
        "warmup_fraction": warmup,
        "decay_fraction": decay,
    }
    values = {key: given[key] for key in SHAPES[name].settings}
    assert 0 <= factor(name, step, **values) <= 1
    if name in ("linear_decay", "cosine"):
        assert factor(name, 0, **values) == 1
        assert factor(name, total, **values) == pytest.approx(final, abs=1e-12)
        assert factor(name, step + 1, **values) <= factor(name, step, **values) + 1e-12


@given(
    total=st.integers(100, 10_000),
    place=FRACTIONS,
    final=FRACTIONS,
    warmup=st.floats(0.05, 1),
    decay=st.floats(0.05, 1),
)
def test_factors_do_not_jump(total: int, place: float, final: float, warmup: float, decay: float) -> None:
    for step in {0, round(place * total), round(warmup * total), round((1 - decay) * total), total - 1, total}:
        steepest = {
            "linear_decay": ((1 - final) / total, {"decay_steps": total, "final_fraction": final}),
            "cosine": (math.pi / 2 * (1 - final) / total, {"total_steps": total, "final_fraction": final}),
            "warmup_stable_decay": (
                max(1 / warmup, (1 - final) / decay) / total,
                {
                    "total_steps": total,
                    "warmup_fraction": warmup,
                    "decay_fraction": decay,
                    "final_fraction": final,
                },
            ),
        }
        for name, (slope, values) in steepest.items():
            change = factor(name, step + 1, **values) - factor(name, step, **values)
            assert abs(change) <= slope + 1e-12, name
