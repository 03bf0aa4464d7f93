"""Update rules: what they hold and what rate a coordinate sees."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, astuple
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
import pytest

from batchlens import UpdateRule

NAMES = ("learning_rate", "momentum", "averaging", "power")


def test_defaults_are_plain_sgd() -> None:
    assert astuple(UpdateRule(0.1)) == (0.1, 0.0, False, 0.0, 0.0)


def test_rules_are_frozen() -> None:
    rule = UpdateRule(0.1)
    with pytest.raises(FrozenInstanceError):
        rule.momentum = 0.5  # type: ignore[misc]


def test_rules_compare_by_value() -> None:
    assert UpdateRule(0.1, momentum=0.5) == UpdateRule(0.1, 0.5, False, 0.0, 0.0)
    assert UpdateRule(0.1, momentum=0.5) != UpdateRule(0.1, momentum=0.5, nesterov=True)
    assert len({UpdateRule(0.1), UpdateRule(0.1), UpdateRule(0.2)}) == 2


def test_every_number_becomes_a_float() -> None:
    rule = UpdateRule(1, 0, False, np.float32(0.5), np.int64(1))  # type: ignore[arg-type]
    assert [type(getattr(rule, name)) for name in NAMES] == [float] * 4
    assert UpdateRule(Fraction(1, 4)).learning_rate == 0.25  # type: ignore[arg-type]
    assert type(UpdateRule(0.1, nesterov=np.bool_(True)).nesterov) is bool  # type: ignore[arg-type]


@pytest.mark.parametrize("name", NAMES)
def test_the_ends_of_a_range_that_belong_to_it(name: str) -> None:
    settings: dict[str, Any] = {"learning_rate": 0.1, name: 0.0}
    assert getattr(UpdateRule(**settings), name) == 0.0
    largest = {"learning_rate": 1.7e308, "power": 1.0}.get(name, 1 - 2.0**-53)
    assert getattr(UpdateRule(**settings | {name: largest}), name) == largest


@pytest.mark.parametrize("power", [0.0, 0.25, 1 / 3, 0.5, 0.9, 1.0])
def test_rates_hold_what_rounding_takes(power: float) -> None:
    curvature = np.array([1e-9, 0.1, 1 / 3, 1.0, 7.7, 1e6])
    rates, tails = UpdateRule(0.1, power=power).rates(curvature)
    assert (np.abs(tails) <= np.spacing(rates)).all()
    with mpmath.workdps(40):
        for h, rate, tail in zip(curvature.tolist(), rates.tolist(), tails.tolist(), strict=True):
            exact = mpmath.mpf(0.1) * mpmath.mpf(h) ** (1 - mpmath.mpf(power))
            assert abs(mpmath.mpf(rate) + mpmath.mpf(tail) - exact) <= 4e-19 * exact


def test_power_0_leaves_the_curvature_and_power_1_removes_it() -> None:
    curvature = np.array([0.5, 0.25, 4.0])
    assert UpdateRule(0.5).rates(curvature)[0].tolist() == [0.25, 0.125, 2.0]
    assert UpdateRule(0.5, power=1.0).rates(curvature)[0].tolist() == [0.5] * 3
    assert UpdateRule(0.5, power=0.5).rates(curvature)[0].tolist()[1:] == [0.25, 1.0]
