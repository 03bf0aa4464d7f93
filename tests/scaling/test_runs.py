"""Runs from CSV, their curves and intervals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from batchlens.errors import BatchlensError
from batchlens.scaling._critical import DEFINITIONS
from batchlens.scaling._intervals import Interval
from batchlens.scaling._runs import Run, collect_runs
from batchlens.scaling.curve import critical_batch_size
from batchlens.scaling.fitting import FittedRuns, fit

SIZES = [4.0**k for k in range(1, 8)]
PUBLISHED = {
    "MNIST": [2360, 676, 303, 177],
    "Fashion-MNIST": [1731, 491, 297, 165],
    "ResNet8": [6502, 2037, 898, 961],
}


def exact_steps(sizes: Sequence[float], critical: float = 256.0) -> list[float]:
    return [100 * (1 + critical / size) for size in sizes]


def noisy_runs(seed: int, repeats: int, sizes: Sequence[float] = SIZES, noise: float = 0.1) -> list[Run]:
    random = np.random.default_rng(seed)
    return [
        Run(size, steps * math.exp(noise * random.normal()), repeat=str(repeat))
        for size, steps in zip(sizes, exact_steps(sizes), strict=True)
        for repeat in range(repeats)
    ]


def fit_one(runs: Sequence[Run], batch_sizes: Sequence[float] = ()) -> FittedRuns:
    (fitted,) = fit(runs, predict=batch_sizes)
    return fitted


def covers(interval: Interval | None, truth: float) -> bool:
    assert interval is not None
    return (interval.low or 0) <= truth <= (interval.high or math.inf)


def write(folder: Path, text: str | bytes) -> Path:
    path = folder / "runs.csv"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def test_runs_of_a_file(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        "\ufeffnote, steps,batch_size,optimizer,seconds,repeat\r\n"
        '"a, b",800,16,sgd,12.5,1\r\n'
        "\r\n"
        ",,64,sgd,3,1\r\n"
        ",NaN,64,momentum,,2\r\n",
    )
    assert collect_runs(path).runs == [
        Run(16.0, 800.0, "sgd", 12.5, "1"),
        Run(64.0, None, "sgd", 3.0, "1"),
        Run(64.0, None, "momentum", None, "2"),
    ]
    assert collect_runs(str(path)) == collect_runs(path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "must begin with a line that names the columns batch_size and steps, got nothing."),
        ("\n \n", "must begin with a line that names the columns"),
        ("batch_size,steps\n", "must hold at least one run below the line of column names, got none."),
        ("batch,steps\n4,5\n", ", line 1 must name batch_size, got batch, steps. Separate"),
        ("batch_size;steps\n4;5\n", "must name batch_size and steps, got batch_size;steps. Separate"),
        ("batch_size,steps,steps\n4,5,6\n", ", line 1 must name the column steps once, got 2 times."),
        ("batch_size,steps\n4,5\n8,many\n", ", line 3: `steps` must be finite and above 0, got many. Leave it empty"),
        ("batch_size,steps\n4,-5\n", ", line 2: `steps` must be finite and above 0, got -5. Leave it empty"),
        ("batch_size,steps\n4,0\n", ", line 2: `steps` must be finite and above 0, got 0. Leave it empty"),
        ("batch_size,steps\n4,inf\n", ", line 2: `steps` must be finite and above 0, got inf."),
        ("batch_size,steps\n,5\n", ", line 2: `batch_size` must be finite and above 0, got nothing."),
        ("batch_size,steps\nnan,5\n", ", line 2: `batch_size` must be finite and above 0, got nan."),
        ("batch_size,steps,seconds\n4,5,-1\n", ", line 2: `seconds` must be finite and above 0, got -1. Leave"),
        ("batch_size,steps\n4\n", ", line 2 must have 2 cells, one per column, got 1."),
        ("batch_size,steps\n4,1,000\n", ", line 2 must have 2 cells, one per column, got 3."),
        ('batch_size,steps\n4,"5\n', ", line 2 must be CSV: unexpected end of data."),
        ("batch_size,steps,repeat\n4,5,1\n\n4,6,1\n", ", line 4 must not have batch size, optimizer and repeat of"),
        ("batch_size,steps\n4,5\n".encode("utf-16"), "must be UTF-8 text. Save it as CSV in UTF-8."),
    ],
)  # fmt: skip
def test_bad_files_are_refused(tmp_path: Path, text: str | bytes, message: str) -> None:
    path = write(tmp_path, text)
    with pytest.raises(BatchlensError) as caught:
        collect_runs(path)
    assert str(caught.value).startswith(str(path))
    assert message in str(caught.value)


def test_files_that_cannot_be_opened_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BatchlensError, match=r"none\.csv cannot be read: No such file or directory\."):
        collect_runs(tmp_path / "none.csv")
    with pytest.raises(BatchlensError, match=r"is a folder without a log\."):
        collect_runs(tmp_path)


def test_exact_runs_give_the_exact_answer() -> None:
    fitted = fit_one([Run(size, steps) for size, steps in zip(SIZES, exact_steps(SIZES), strict=True)], [2, 512])
    value, relation, _ = fitted.estimate("fit").critical_batch_size
    assert relation == "="
    assert value == pytest.approx(256, rel=1e-9)
    assert fitted.estimate("fit").interval == pytest.approx((256, 256), rel=1e-6)
    assert fitted.least_steps == pytest.approx(100)
    assert [prediction.steps for prediction in fitted.predictions] == pytest.approx([12_900, 150])
    assert [prediction.extrapolated for prediction in fitted.predictions] == [True, False]
    assert fitted.noise == "residuals"


def test_estimates_are_those_of_the_curve() -> None:
    fitted = fit_one(noisy_runs(0, repeats=3))
    for definition in DEFINITIONS:
        expected = critical_batch_size(fitted.curve.batch_sizes, fitted.curve.steps, definition)
        assert fitted.estimate(definition).critical_batch_size == expected


def test_steps_are_the_geometric_mean_of_the_repeats_that_reached() -> None:
    runs = [Run(4, 100), Run(4, 400), Run(16, 50), Run(16, None), Run(64, 9), Run(64, None), Run(64, None)]
    fitted = fit_one(runs)
    assert fitted.curve.steps == pytest.approx((200, 50, None))
    assert (fitted.runs, fitted.reached) == ((2, 2, 3), (2, 1, 1))


# 95% in truth; of 100 seeds, fewer than 86% or all of them would be a sign of a wrong interval.
@pytest.mark.slow
@pytest.mark.parametrize("repeats", [1, 2, 5])
def test_intervals_cover_the_truth_at_about_the_nominal_rate(repeats: int) -> None:
    sizes = [2.0**k for k in range(15)]
    seeds = 100
    fits = [fit_one(noisy_runs(seed, repeats, sizes), [64.0]) for seed in range(seeds)]
    assert {fitted.noise for fitted in fits} == {"residuals" if repeats == 1 else "repeats"}
    for definition in DEFINITIONS:
        truth = critical_batch_size(sizes, exact_steps(sizes), definition).value
        assert truth is not None
        covered = sum(covers(fitted.estimate(definition).interval, truth) for fitted in fits)
        assert 0.86 * seeds <= covered <= (0.99 * seeds if definition == "fit" else seeds)
    assert 0.86 * seeds <= sum(covers(fitted.predictions[0].interval, 500) for fitted in fits) <= 0.99 * seeds


def test_intervals_narrow_with_repeats() -> None:
    widths = []
    for repeats in (2, 8, 32):
        interval = fit_one(noisy_runs(1, repeats)).estimate("fit").interval
        assert interval is not None
        assert interval.low is not None
        assert interval.high is not None
        widths.append(math.log(interval.high / interval.low))
    assert widths[0] > 1.3 * widths[1] > 1.69 * widths[2]


def test_intervals_depend_on_the_seed_only() -> None:
    runs = noisy_runs(0, repeats=3)
    assert fit(runs) == fit(runs[::-1]) == fit(runs, seed=0)
    assert fit(runs) != fit(runs, seed=1)
    other = [run._replace(optimizer="sgd", steps=7.0) for run in runs]
    assert fit([*other, *runs])[""] == fit_one(runs)


def test_too_few_runs_give_no_interval() -> None:
    for runs in ([Run(4, 100)], [Run(4, 100), Run(16, 30)], [Run(4, 100), Run(16, 30), Run(64, 20)]):
        fitted = fit_one(runs, [8])
        assert fitted.noise is None
        assert [estimate.interval for estimate in fitted.estimates] == [None] * len(DEFINITIONS)
        assert [prediction.interval for prediction in fitted.predictions] == [None] * (len(runs) > 1)
    assert fit_one([Run(4, 100)]).estimate("knee").critical_batch_size.relation == "unknown"


def test_intervals_of_bounds_stay_open() -> None:
    random = np.random.default_rng(0)
    noise = np.exp(0.02 * random.normal(size=(len(SIZES), 4)))
    perfect = [Run(size, 1e6 / size * factor) for size, row in zip(SIZES, noise, strict=True) for factor in row]
    flat = [Run(size, 50 * factor) for size, row in zip(SIZES, noise, strict=True) for factor in row]
    for definition in DEFINITIONS:
        critical, interval = fit_one(perfect).estimate(definition)
        assert critical.relation == ">="
        assert interval is not None
        assert interval.low == pytest.approx(SIZES[-1], rel=1e-9)
        assert interval.high is None
        critical, interval = fit_one(flat).estimate(definition)
        assert critical.relation == "<="
        assert interval is not None
        assert interval.low is None
        assert interval.high is not None
        assert interval.high <= SIZES[1] * (1 + 1e-9)
    assert fit_one(perfect).least_steps is None
    assert fit_one(flat).least_steps == pytest.approx(50, rel=0.02)


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_curves(name: str) -> None:
    runs = [Run(size, steps, name) for size, steps in zip([32, 128, 512, 2048], PUBLISHED[name], strict=True)]
    fitted = fit_one(runs, [256, 1024])
    assert fitted.optimizer == fitted.curve.optimizer == name
    assert fitted.noise == "residuals"
    value = fitted.estimate("fit").critical_batch_size.value
    assert value is not None
    assert covers(fitted.estimate("fit").interval, value)
    for prediction, around in zip(fitted.predictions, [(128, 512), (512, 2048)], strict=True):
        low, high = sorted(PUBLISHED[name][[32, 128, 512, 2048].index(size)] for size in around)
        assert 0.9 * low < prediction.steps < 1.25 * high
    assert fitted.cheapest == 32
    assert fitted.fastest is None


def test_fastest_and_cheapest() -> None:
    runs = [
        Run(16, 800, seconds=80),
        Run(64, 200, seconds=22),
        Run(256, 60, seconds=8),
        Run(1024, 50, seconds=10),
        Run(4096, None, seconds=1),
    ]
    fitted = fit_one(runs)
    assert fitted.seconds == (80, 22, 8, 10, None)
    assert fitted.fastest == 256
    assert fitted.cheapest == 64  # as few examples as 16 in fewer steps
    assert fit_one([run._replace(seconds=None) for run in runs]).fastest is None
    assert fit_one([Run(16, None, seconds=3)]).fastest is None
    assert fit_one([Run(16, None, seconds=3)]).cheapest is None


def test_optimizers_are_fitted_apart() -> None:
    runs = [Run(size, steps, "sgd") for size, steps in zip(SIZES, exact_steps(SIZES), strict=True)]
    runs += [Run(size, steps, "kfac") for size, steps in zip(SIZES, exact_steps(SIZES, 1000), strict=True)]
    first, second = fit(runs)
    assert (first.optimizer, second.optimizer) == ("sgd", "kfac")
    assert second.estimate("fit").critical_batch_size.value == pytest.approx(1000)


def test_bad_arguments_are_refused() -> None:
    with pytest.raises(ValueError, match=r"`runs` must hold at least one run, got none\."):
        fit([])
    with pytest.raises(ValueError, match=r"`steps` must be finite and above 0, got 0\."):
        fit([Run(4, 0)])
    with pytest.raises(ValueError, match=r"`batch_size` must be finite and above 0, got nan\."):
        fit([Run(math.nan, 3)])
    with pytest.raises(ValueError, match=r"`predict` must be finite and above 0, got -1\."):
        fit([Run(4, 3)], predict=[-1])
    with pytest.raises(ValueError, match=r"`resamples` must be at least 100, got 10\."):
        fit([Run(4, 3)], resamples=10)
