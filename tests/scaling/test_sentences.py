"""What fitted runs say in words, of every kind of answer."""

from __future__ import annotations

import numpy as np
import pytest

from batchlens.scaling._runs import Run
from batchlens.scaling.fitting import FittedRuns, fit


def fit_one(steps: dict[float, float], optimizer: str = "", seconds: dict[float, float] | None = None) -> FittedRuns:
    known = seconds or {}
    (fitted,) = fit([Run(size, count, optimizer, known.get(size)) for size, count in steps.items()])
    return fitted


def hyperbola(critical: float, sizes: list[float]) -> dict[float, float]:
    return {size: 100 * (1 + critical / size) for size in sizes}


def test_a_number_with_its_price() -> None:
    sizes = [8.0, 16, 32, 64, 128, 256, 512]
    assert fit_one(hyperbola(200, sizes), seconds={size: 1000 / size for size in sizes}).sentence == (
        "The critical batch size is about 200 (200 to 200): there training takes twice the fewest steps and twice the "
        "fewest examples. Up to 40 it takes at most 1.2 times the fewest examples; 512 takes 0.7 of the steps of 200 "
        "for 1.8 times its examples. Fastest on this hardware: 512."
    )


def test_the_optimizer_is_named_and_without_seconds_nothing_is_fastest() -> None:
    sentence = fit_one(hyperbola(200, [8, 32, 128, 512]), "sgd").sentence
    assert sentence.startswith("With sgd, the critical batch size is about 200")
    assert "Fastest" not in sentence


def test_without_a_larger_batch_twice_the_critical_one_is_priced() -> None:
    assert "400 takes 0.75 of the steps of 200 for 1.5 times its examples" in (
        fit_one(hyperbola(200, [8, 32, 128, 256])).sentence
    )


def test_what_is_cheap_below_the_smallest_batch_is_said_so() -> None:
    sentence = fit_one(hyperbola(200, [64, 128, 256, 512])).sentence
    assert "Up to 40, which is below the smallest measured, it takes at most 1.2 times the fewest examples;" in sentence


@pytest.mark.parametrize(
    ("steps", "words"),
    [
        ({32: 100, 64: 50, 128: 25}, "is at least 128, the largest batch measured: it takes 0.25 of the steps of 32"),
        ({32: 100, 64: 99, 128: 100}, "is at most 32, the smallest batch measured: 128 takes 1 of the steps of 32"),
        ({32: 100, 64: 50}, "is at least 32, as far as two batch sizes tell."),
        ({32: 100, 64: 99}, "is at most 64, as far as two batch sizes tell."),
        ({32: 100}, "is unknown: only one batch size reached the target"),
        ({32: 400, 64: 300, 128: 240}, "(too few runs for an interval)"),
    ],
)
def test_what_is_not_known_is_not_said(steps: dict[float, float], words: str) -> None:
    assert words in fit_one(steps).sentence


def test_nothing_reached() -> None:
    (fitted,) = fit([Run(4, None), Run(8, None)])
    assert "is unknown: no batch size reached the target" in fitted.sentence


def test_another_bend_is_said() -> None:
    sizes = [2.0**k for k in range(2, 18)]
    sharp = {size: 100 * (1 + (256 / size) ** 3) ** (1 / 3) for size in sizes}
    runs = [Run(size, steps * factor) for size, steps in sharp.items() for factor in (0.99, 1.0, 1.01)]
    (fitted,) = fit(runs)
    assert "The runs bend more sharply than that curve (a = " in fitted.sentence
    assert "with the bend fitted too, the critical batch size is 25" in fitted.sentence


def test_batch_sizes_that_noise_cannot_tell_apart_stand_together() -> None:
    random = np.random.default_rng(0)
    sizes = [2.0**k for k in range(1, 13)]
    runs = [
        Run(size, steps * factor, seconds=steps * factor * (1 + size / 512))
        for size, steps in hyperbola(512, sizes).items()
        for factor in np.exp(0.1 * random.normal(size=3))
    ]
    (fitted,) = fit(runs)
    assert fitted.cheapest_range is not None
    assert fitted.fastest_range is not None
    low, high = fitted.cheapest_range
    assert low == 2
    assert 8 <= high <= 256  # 8 takes 1% more examples than 2, 512 twice as many
    low, high = fitted.fastest_range  # seconds are least at 512: 2 + 512 / B + B / 512
    assert 128 <= low < high <= 2048
    assert f"Fastest on this hardware: {fitted.fastest:,.0f} ({low:,.0f} to {high:,.0f} cannot be told apart)." in (
        fitted.sentence
    )
    document = fitted.as_document()
    assert document["cheapest_range"] == list(fitted.cheapest_range)
    assert document["sentence"] == fitted.sentence


def test_a_bound_is_the_end_of_its_interval() -> None:
    said = set()
    for seed in range(60):
        random = np.random.default_rng(seed)
        (fitted,) = fit(
            [Run(size, 100 * (1 + 300 / size) * np.exp(0.1 * random.normal())) for size in (64.0, 128, 256, 512)],
            resamples=100,
        )
        found, interval = fitted.estimate("fit")
        if found.relation != ">=" or (interval and interval.low and interval.low >= 511):
            continue
        assert "is at least 512" not in fitted.sentence
        if interval and interval.low:
            said.add(
                f"is at least {interval.low:.3g} by its 95% interval, though the best fit is above 512"
                in fitted.sentence
            )
    assert said == {True}


def test_fastest_takes_the_seconds_of_every_batch_size() -> None:
    steps = hyperbola(200, [8, 32, 128, 512])
    fitted = fit_one(steps, seconds={8: 50.0, 32: 20.0})
    assert fitted.fastest is None
    assert "Fastest" not in fitted.sentence
    assert fit_one(steps, seconds=dict.fromkeys(steps, 2.0)).fastest == 8
    (missed,) = fit([*(Run(size, count, "", size) for size, count in steps.items()), Run(1024, None)])
    assert missed.fastest == 8
