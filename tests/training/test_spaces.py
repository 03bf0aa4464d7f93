"""Ranges of hyper-parameters: even on their scale, and there and back again."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchlens.training._recipes import recipe_named
from batchlens.training.spaces import _AVERAGING, _MOMENTUM, Range, Scale, search_spaces

RANGES = {
    "log": Range(1e-5, 10.0),
    "linear": Range(-2.0, 6.0, "linear"),
    "log_one_minus": Range(0.5, 0.9999, "log_one_minus"),
}


@given(kind=st.sampled_from(list(RANGES)), fraction=st.floats(0, 1))
def test_values_are_even_on_their_scale(kind: str, fraction: float) -> None:
    space = RANGES[kind]
    expected = {
        "log": 1e-5 * 10 ** (6 * fraction),
        "linear": -2 + 8 * fraction,
        "log_one_minus": 1 - 0.5 * (1e-4 / 0.5) ** fraction,
    }[kind]
    assert space.at(fraction) == pytest.approx(expected, rel=1e-9, abs=1e-12)


@given(kind=st.sampled_from(list(RANGES)), fraction=st.floats(0, 1))
def test_at_and_fraction_are_inverses(kind: str, fraction: float) -> None:
    space = RANGES[kind]
    assert space.fraction(space.at(fraction)) == pytest.approx(fraction, abs=1e-9)
    value = space.low + (space.high - space.low) * fraction
    assert space.at(space.fraction(value)) == pytest.approx(value, rel=1e-9, abs=1e-12)


@given(low=st.floats(1e-6, 0.4), high=st.floats(0.41, 0.999), scale=st.sampled_from(["log", "linear", "log_one_minus"]))
def test_ends_and_order(low: float, high: float, scale: Scale) -> None:
    space = Range(low, high, scale)
    values = [space.at(k / 10) for k in range(11)]
    assert (values[0], values[-1]) == pytest.approx((low, high), rel=1e-9)
    assert values == sorted(values)
    assert (space.fraction(low), space.fraction(high)) == (0, 1)


def test_values_outside_have_fractions_outside() -> None:
    space = Range(0.01, 1.0)
    assert space.fraction(0.001) == pytest.approx(-0.5)
    assert space.fraction(10.0) == pytest.approx(1.5)


def test_scale_is_logarithmic_unless_told() -> None:
    assert Range(1.0, 100.0).at(0.5) == pytest.approx(10)


def test_momentum_never_reaches_one() -> None:
    assert _MOMENTUM.at(1.0) < 1
    assert _AVERAGING.at(1.0) < 1
    # Even in 1 - momentum: half way lies at the geometric mean of 1 and 0.001.
    assert 1 - _MOMENTUM.at(0.5) == pytest.approx(math.sqrt(0.001))


@pytest.mark.parametrize(
    ("outer", "setting"),
    [("momentum", "momentum"), ("nesterov", "momentum"), ("adam", "beta1"), ("kfac", "momentum")],
)
def test_with_momentum_contains_without(outer: str, setting: str) -> None:
    space = search_spaces()[outer][setting]
    assert space.at(0.0) == 0
    assert space.fraction(0.0) == 0
    assert recipe_named(outer).settings[setting].low == 0


def test_search_spaces() -> None:
    sgd, momentum, adam, kfac, decay = (Range(1.0 * k, 2.0 * k) for k in (1, 2, 3, 4, 5))
    spaces = search_spaces(sgd, momentum, adam, kfac, {"final_fraction": decay})
    plain = {"sgd", "momentum", "nesterov", "adam", "adam_no_momentum", "adamw", "muon", "kfac", "kfac_no_momentum"}
    assert set(spaces) == plain | {f"{name}+ema" for name in plain}
    rates = {"sgd": sgd, "momentum": momentum, "nesterov": momentum, "kfac": kfac, "kfac_no_momentum": kfac}
    for name, space in spaces.items():
        base = name.removesuffix("+ema")
        assert space["learning_rate"] == rates.get(base, adam)
        assert space["final_fraction"] == decay
        # Every setting of the optimizer is searched, and nothing that it does not have.
        left = {
            "factor_every",
            "inverse_every",
            "frequent_start",
            "input_examples",
            "rank",
            "window",
        }  # matters of cost, not of tuning
        if base == "muon":  # of the optimizer that takes the rest
            left = {"beta1", "beta2", "epsilon", "window"}
        assert set(space) == {*recipe_named(name).settings, "final_fraction"} - left
    assert "final_fraction" not in search_spaces(sgd, momentum, adam, kfac)["sgd"]
