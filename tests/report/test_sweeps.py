"""The report on a sweep: true to its store, complete, the same every time, and it needs no torch."""

import csv
import json
import math
import os
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from itertools import combinations
from pathlib import Path
from random import Random
from statistics import fmean
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure

from batchlens._drawing import figure_style
from batchlens.report._page.numbers import rows_of
from batchlens.report._sweep import figures as figures
from batchlens.report._sweep.page import plan_panels, write_sweep_report
from batchlens.scaling._critical import DEFINITIONS
from batchlens.scaling._intervals import Interval
from batchlens.scaling.curve import critical_batch_size
from batchlens.sweep._cells import cell_results
from batchlens.sweep._curves import MeasuredCell, MeasuredCurve
from batchlens.sweep._declaration import Declaration
from batchlens.sweep._store import Store
from batchlens.sweep._trial import Key, Status, Trial
from batchlens.sweep.results import SweepResult, read_sweep
from tests.report.test_page import LOADING, NASTY, Reader

BUDGET = 5000
SIZES = (16, 64, 256, 1024)
OPTIMIZERS = ("sgd", "momentum", "adam", "sgd+ema")
VERSIONS = {"batchlens": "0.1", "torch": "2.9", "python": "3.11"}

Fate = Callable[[str, int, Random], tuple[Status, int]]


def scaling(optimizer: str, batch_size: int, random: Random) -> tuple[Status, int]:
    """Perfect scaling up to a critical batch size that depends on the optimizer, with noise from the settings."""
    critical = {"sgd": 100, "momentum": 400}.get(optimizer, 200)
    return "reached", round(40 * (1 + critical / batch_size) * (1 + random.expovariate(3)))


def never(*_: object) -> tuple[Status, int]:
    return "not_reached", BUDGET


def fill(
    path: Path,
    fate: Fate = scaling,
    optimizers: Sequence[str] = OPTIMIZERS,
    sizes: Sequence[int] = SIZES,
    trials: int = 8,
    most: int = 10**6,
    repeats: int = 0,
    **declared: Any,
) -> SweepResult:
    """A store of made-up trials, `most` of them at the most, and what it says."""
    usual: dict[str, Any] = {"workload": "digits", "target_on": "validation"}
    declaration = Declaration(
        **usual | declared,
        size="laptop",
        seed=0,
        target=0.9,
        keep=5,
        optimizers=tuple(optimizers),
        batch_sizes=tuple(sizes),
        trials=trials,
        max_steps=(BUDGET,) * len(sizes),
        spaces={name: {"learning_rate": (0.01, 10.0, "log"), "momentum": (0.0, 0.99, "linear")} for name in optimizers},
    )
    keys = [Key(*cell, number) for cell in declaration.cells for number in range(trials)][:most]
    with Store.open_to_write(path, declaration) as store:
        with store.all_or_nothing():
            for key in keys:
                store.insert(make_trial(key, fate))
            for result in cell_results(store) if repeats else ():
                assert result.winner is not None
                for repeat in range(1, repeats + 1):
                    store.insert(make_trial(result.winner.key._replace(repeat=repeat), fate))
        return read_sweep(path)


def make_trial(key: Key, fate: Fate) -> Trial:
    random = Random(str(key))
    status, taken = fate(key.optimizer, key.batch_size, random)
    position = {"learning_rate": random.uniform(0.1, 0.9), "momentum": random.uniform(0.1, 0.9)}
    settings = {"learning_rate": random.uniform(0.01, 1), "momentum": random.uniform(0, 0.99)}
    steps = taken if status == "reached" else None
    return Trial(key, position, settings, key.number, status, steps, taken, 0.9, 1.0, "host", VERSIONS)


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> SweepResult:
    return fill(tmp_path_factory.mktemp("store") / "sweep.sqlite", repeats=2)


def read_rows(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(path.read_text(encoding="utf-8").splitlines()))


def contains(interval: Interval, value: float) -> bool:
    return (interval.low is None or interval.low <= value) and (interval.high is None or value <= interval.high)


# ---------------------------------------------------------------------------------------------
# Numbers
# ---------------------------------------------------------------------------------------------


def test_curves_are_those_of_the_fewest_steps(sweep: SweepResult) -> None:
    assert [curve.optimizer for curve in sweep.measured] == list(OPTIMIZERS)
    for curve in sweep.measured:
        fewest = [
            min(scaling(*cell, Random(str(Key(*cell, number))))[1] for number in range(8))
            for cell in ((curve.optimizer, size) for size in SIZES)
        ]
        assert (curve.curve.batch_sizes, curve.curve.steps) == (SIZES, tuple(fewest))
        for estimate, definition in zip(curve.estimates, DEFINITIONS, strict=True):
            assert estimate.critical_batch_size == critical_batch_size(SIZES, fewest, definition)


def test_batch_sizes_rise_however_they_were_declared(tmp_path: Path) -> None:
    found = fill(tmp_path / "sweep.sqlite", sizes=(256, 16, 64))
    assert [cell.batch_size for cell in found.measured[0].cells] == [16, 64, 256]


def test_intervals_contain_the_estimates(sweep: SweepResult) -> None:
    for cell in sweep.cells:
        assert cell.interval is not None
        assert cell.steps is not None
        assert cell.interval.low == cell.steps  # the best of resampled trials can only be slower
        assert cell.interval.high is None or cell.interval.high > cell.steps
    limited = [
        (found.value, interval)
        for curve in sweep.measured
        for found, interval in curve.estimates
        if interval is not None
    ]
    assert len(limited) >= 6
    assert all(value is not None and contains(interval, value) for value, interval in limited)


def test_interval_of_steps_is_that_of_the_resampled_minimum(sweep: SweepResult) -> None:
    """P(the best of n resampled is beyond the k-th of n) = (1 - k / n)^n."""
    for cell in sweep.cells:
        steps = sorted(trial.steps or 0 for trial in cell.result.members)
        assert cell.interval is not None
        assert cell.interval.high in steps[1:4]  # (5/8)^8 = 0.023, (6/8)^8 = 0.10, so the third, give or take one


def test_a_resample_without_a_winner_leaves_the_interval_open(tmp_path: Path) -> None:
    found = fill(
        tmp_path / "sweep.sqlite", lambda *cell: scaling(*cell) if cell[2].random() < 0.3 else never(), ("sgd",)
    )
    reached = {cell.batch_size: cell.result.statuses.get("reached", 0) for cell in found.cells}
    once = [cell for cell in found.cells if 0 < reached[cell.batch_size] <= 2]
    assert once
    for cell in once:  # at most two of eight: none of them is drawn with chance (6/8)^8 or more
        assert cell.interval is not None
        assert cell.interval.high is None


def test_a_wide_search_gives_wide_intervals_of_the_critical_batch_size(tmp_path: Path) -> None:
    def noise(scale: float) -> Fate:
        return lambda name, size, random: ("reached", round(40 * (1 + 200 / size) * math.exp(scale * random.random())))

    widths = []
    for scale in (0.02, 1.0):
        found = fill(tmp_path / f"{scale}.sqlite", noise(scale), ("sgd",), [2**k for k in range(2, 14)])
        interval = found.measured[0].estimates[2].interval
        assert interval is not None
        assert interval.low is not None
        assert interval.high is not None
        assert contains(interval, 200)
        widths.append(math.log(interval.high / interval.low))
    assert widths[0] < 0.1
    assert widths[1] > 3 * widths[0]


def test_one_trial_gives_no_interval(tmp_path: Path) -> None:
    found = fill(tmp_path / "sweep.sqlite", trials=1)
    assert all(cell.steps is not None and cell.interval is None for cell in found.cells)
    assert all(interval is None for curve in found.measured for _, interval in curve.estimates)


@pytest.mark.parametrize(
    ("optimizer", "settings", "effective"),
    [
        ("momentum", {"learning_rate": 0.1, "momentum": 0.9}, 1.0),
        ("nesterov+ema", {"learning_rate": 0.1, "momentum": 0.5, "averaging": 0.9}, 0.2),
        ("kfac", {"learning_rate": 0.1, "momentum": 0.75}, 0.4),
        ("kfac", {"learning_rate": 0.1}, None),
        ("sgd", {"learning_rate": 0.1}, 0.1),
        ("adam", {"learning_rate": 0.1, "beta1": 0.9}, 0.1),
        ("muon", {"learning_rate": 0.1, "momentum": 0.9}, 0.1),
    ],
)
def test_effective_learning_rate(
    tmp_path: Path, optimizer: str, settings: dict[str, float], effective: float | None
) -> None:
    found = fill(tmp_path / "sweep.sqlite", optimizers=(optimizer,), sizes=(16,), trials=1).cells[0].result
    assert found.winner is not None
    object.__setattr__(found.winner, "settings", settings)
    assert MeasuredCell(found, None).effective_learning_rate == pytest.approx(effective)


def test_best_of_n_is_the_mean_over_all_draws(sweep: SweepResult) -> None:
    rows = rows_of(figures.best_of_data(sweep).query("optimizer == 'momentum' and batch_size == 64"))
    steps = [trial.steps or 0 for trial in sweep.measured[1].cells[1].result.members]
    assert [row["trials"] for row in rows] == list(range(1, 9))
    for row in rows:
        wanted = fmean(min(draw) for draw in combinations(steps, row["trials"]))
        assert (row["chance"], row["steps"]) == (1.0, pytest.approx(wanted))


def test_averaging_is_shown_of_pairs_only(sweep: SweepResult, tmp_path: Path) -> None:
    assert set(figures.averaging_data(sweep)["optimizer"]) == {"sgd", "sgd+ema"}
    alone = fill(tmp_path / "sweep.sqlite", optimizers=("momentum", "sgd+ema"))
    assert len(figures.averaging_data(alone)) == 0


# ---------------------------------------------------------------------------------------------
# The folder
# ---------------------------------------------------------------------------------------------


def test_files_and_their_numbers(sweep: SweepResult, tmp_path: Path) -> None:
    seen: list[tuple[int, int, str]] = []
    write_sweep_report(sweep, tmp_path, lambda *words: seen.append(words))
    plans = list(plan_panels(sweep))
    assert seen == [(number, 9, plan.title) for number, (plan, _) in enumerate(plans, 1)]
    pictures = {f"{plan.slug}.{kind}" for plan, _ in plans for kind in ("svg", "png")}
    tables = {f"{plan.numbers}.csv" for plan, _ in plans}
    assert {path.name for path in tmp_path.iterdir()} == {"index.html", "critical.csv"} | pictures | tables
    found = {(row["optimizer"], int(row["batch_size"])): row["steps"] for row in read_rows(tmp_path / "steps.csv")}
    assert found == {tuple(cell.result.cell): str(cell.steps) for cell in sweep.cells}
    rates = {(row["optimizer"], int(row["batch_size"])): row for row in read_rows(tmp_path / "learning-rates.csv")}
    for cell in sweep.cells:
        assert float(rates[cell.result.cell]["learning_rate"]) == cell.settings["learning_rate"]
    repeats = read_rows(tmp_path / "repeats.csv")
    assert [int(row["steps"]) for row in repeats if row["repeat"] == "2"] == [
        cell.result.repeat_steps()[1] for cell in sweep.cells
    ]
    critical = read_rows(tmp_path / "critical.csv")
    assert [(row["optimizer"], row["definition"]) for row in critical] == [
        (name, definition) for name in OPTIMIZERS for definition in DEFINITIONS
    ]


def test_page_tells_everything(sweep: SweepResult, tmp_path: Path) -> None:
    write_sweep_report(sweep, tmp_path)
    reader = Reader((tmp_path / "index.html").read_text(encoding="utf-8"))
    assert not LOADING & {tag for tag, _ in reader.elements}
    assert "How large a batch can digits use" in reader.text
    assert "16 of 16 searches are complete, 16 have a winner" in reader.text
    assert reader.text.count("In the paper: figure 5") == 1
    for cell in sweep.cells:
        assert f"{cell.steps:,}" in reader.text
        assert str(cell.interval) in reader.text
    for value in ("2.9", "at most 20%", "5,000 at 1,024", "0.01 to 10 (log)"):
        assert value in reader.text
    for link in reader.values("href"):
        assert link.startswith(("#", "data:")) or (tmp_path / link).is_file()
    ids = reader.values("id")
    assert len(ids) == len(set(ids))
    assert {link[1:] for link in reader.values("href") if link.startswith("#")} <= set(ids)


def test_steps_saved_are_an_upper_bound(tmp_path: Path) -> None:
    pruned = fill(tmp_path / "a.sqlite", lambda *cell: scaling(*cell) if cell[2].random() < 0.7 else ("pruned", 4000))
    count = sum(cell.result.statuses.get("pruned", 0) for cell in pruned.cells)
    write_sweep_report(pruned, tmp_path / "report")
    text = Reader((tmp_path / "report/index.html").read_text(encoding="utf-8")).text
    assert count > 0
    assert f"at most {1000 * count:,}: what was left of the step budgets" in text


def test_cells_without_a_winner_are_shown(tmp_path: Path) -> None:
    found = fill(tmp_path / "sweep.sqlite", lambda *cell: never() if cell[1] == 256 else scaling(*cell), ("sgd",))
    write_sweep_report(found, tmp_path / "report")
    page = (tmp_path / "report/index.html").read_text(encoding="utf-8")
    assert page.count("no winner</span>") == 1
    assert "no trial reached the target" in page
    (row,) = (row for row in read_rows(tmp_path / "report/steps.csv") if row["batch_size"] == "256")
    assert (row["status"], row["steps"]) == ("not_reached", "")
    assert found.measured[0].curve.steps[2] is None


def table_of(page: str, kind: str) -> list[list[str]]:
    """The cells of a table, as HTML."""
    (table,) = re.findall(rf'<div class="table {kind}".*?</div>', page, re.DOTALL)
    return [re.findall(r"<td>(.*?)</td>", row) for row in re.findall(r"<tr><td>.*?</tr>", table)]


def test_every_number_of_an_unfinished_search_is_marked(tmp_path: Path) -> None:
    """Of four optimizers at four batch sizes with eight trials each, seven searches are complete and one has begun."""
    found = fill(tmp_path / "sweep.sqlite", most=60)
    write_sweep_report(found, tmp_path / "report")
    page = (tmp_path / "report/index.html").read_text(encoding="utf-8")
    mark = '<span class="badge limit">unfinished</span>'
    assert "7 of 16 searches are complete, 8 have a winner" in page
    rows = table_of(page, "searches")
    for cell, (_, _, *numbers, _, _) in zip(found.cells, rows, strict=True):
        marked = [mark in number for number in numbers if number]
        assert marked == [not cell.result.complete] * len(marked), numbers
    assert [row[2] for row in rows[8:]] == [mark] * 8
    for curve, (name, *numbers) in zip(found.measured, table_of(page, "critical"), strict=True):
        assert name == curve.optimizer
        assert [number.endswith(mark) for number in numbers] == [name != "sgd" and bool(number) for number in numbers]
    steps = read_rows(tmp_path / "report/steps.csv")
    assert [row["complete"] for row in steps] == [str(cell.result.complete) for cell in found.cells]
    critical = read_rows(tmp_path / "report/critical.csv")
    assert {row["optimizer"]: row["complete"] for row in critical} == {name: str(name == "sgd") for name in OPTIMIZERS}
    assert f"<dd>{found.ended:,} (unfinished)</dd>" in page


def test_figures_of_an_unfinished_sweep_say_so(tmp_path: Path) -> None:
    found = fill(tmp_path / "sweep.sqlite", most=60)
    labels = {}
    for plan, frame in plan_panels(found):
        ax = Figure().add_subplot()
        plan.draw(ax, frame)
        labels[plan.numbers] = {text.get_text() for text in ax.texts}
        assert "Unfinished: " in plan.caption
    begun = {"sgd", "momentum (unfinished)"}
    # The best of n trials is drawn at a batch size at which both searches are complete.
    assert labels == {
        "steps": begun,
        "fitted": begun,
        "seconds": begun,
        "averaging": {"sgd"},
        "learning-rates": begun,
        "best-of": {"sgd", "momentum"},
    }


def test_the_caption_of_averaging_says_what_was_found(tmp_path: Path) -> None:
    """Half the steps at the smallest batch size, and more than without averaging at the largest."""

    def fate(optimizer: str, batch_size: int, _: Random) -> tuple[Status, int]:
        steps = 40 * (1 + 100 / batch_size)
        return "reached", round(steps * (1 if optimizer == "sgd" else 0.5 if batch_size == 16 else 1.25))

    found = fill(tmp_path / "sweep.sqlite", fate, optimizers=("sgd", "sgd+ema"))
    (caption,) = [plan.caption for plan, _ in plan_panels(found) if plan.numbers == "averaging"]
    assert caption.endswith("without averaging: sgd+ema takes 0.50 at 16 and 1.25 at 1,024.")


def test_time_to_the_target_is_that_of_the_steps(sweep: SweepResult) -> None:
    """Every made-up run takes a second."""
    for curve in sweep.measured:
        for cell in curve.cells:
            runs = [*cell.result.members, *cell.result.repeats]
            assert cell.steps is not None
            assert cell.seconds == pytest.approx(cell.steps * np.median([1 / run.steps_taken for run in runs]))
        least = min(curve.cells, key=lambda cell: cell.seconds or math.inf)
        assert curve.fastest == least.batch_size
        assert curve.fastest_range is not None
        assert curve.fastest_range[0] <= curve.fastest <= curve.fastest_range[1]


def test_a_finished_sweep_has_no_such_marks(sweep: SweepResult, tmp_path: Path) -> None:
    write_sweep_report(sweep, tmp_path)
    assert "unfinished" not in (tmp_path / "index.html").read_text(encoding="utf-8").lower()


def test_notes_of_trials_stand_under_the_searches(tmp_path: Path) -> None:
    found = fill(tmp_path / "sweep.sqlite", optimizers=("sgd", "kfac"))
    notes = ("not preconditioned: rnn.weight_ih_l0 (a parameter of GRU)", "a < b")
    object.__setattr__(found, "notes", {"kfac": notes, "sgd": ()})
    write_sweep_report(found, tmp_path / "report")
    page = (tmp_path / "report/index.html").read_text(encoding="utf-8")
    expected = "<b>Note on kfac:</b> not preconditioned: rnn.weight_ih_l0 (a parameter of GRU); a &lt; b</p>"
    assert page.index('id="searches"') < page.index(expected) < page.index('id="origin"')
    assert "Note on sgd" not in page


@pytest.mark.parametrize(
    ("options", "panels"),
    [
        ({"fate": never}, {"Steps to the target", "Averaging"}),
        ({"fate": never, "sizes": (100,), "optimizers": ("adam",), "trials": 1}, {"Steps to the target"}),
        ({"most": 0, "optimizers": ("adam", "kfac")}, {"Steps to the target"}),
        ({"most": 3}, None),
        ({"optimizers": ("sgd",), "sizes": (100,)}, None),
        ({"optimizers": ("sgd",), "sizes": (100,), "trials": 1}, None),
        ({"target_on": "train", "optimizers": ("kfac",)}, None),
        ({"fate": lambda *_: ("failed", 0)}, {"Steps to the target", "Averaging"}),
    ],
)
def test_a_report_on_little(tmp_path: Path, options: dict[str, Any], panels: set[str] | None) -> None:
    found = fill(tmp_path / "sweep.sqlite", **options)
    write_sweep_report(found, tmp_path / "report")
    page = (tmp_path / "report/index.html").read_text(encoding="utf-8")
    Reader(page)
    assert page.count("<tr>") == 2 + len(found.measured) + len(found.cells)
    assert panels is None or {plan.title for plan, _ in plan_panels(found)} == panels
    assert ("The sweep is not finished" in page) == (not found.complete)
    assert ("figure 8" in page) == (options.get("target_on") == "train")


def test_nasty_text_stays_text(tmp_path: Path) -> None:
    found = fill(tmp_path / "sweep.sqlite", workload=NASTY, sizes=(16,), optimizers=("sgd",))
    write_sweep_report(found, tmp_path / "report")
    page = (tmp_path / "report/index.html").read_text(encoding="utf-8")
    reader = Reader(page)
    assert not LOADING & {tag for tag, _ in reader.elements}
    assert reader.text.count(NASTY) == 4  # twice in the title, in the lead and among the parameters


@pytest.mark.slow
def test_the_same_store_gives_the_same_bytes_without_torch(sweep: SweepResult, tmp_path: Path) -> None:
    """In another process, where torch cannot be imported, through the command line."""
    fill(tmp_path / "sweep.sqlite", repeats=2)
    (tmp_path / "torch.py").write_text("raise ImportError('no torch here')")
    path = os.pathsep.join(filter(None, [str(tmp_path), os.environ.get("PYTHONPATH")]))
    surroundings = {"PYTHONHASHSEED": "12345", "TZ": "Asia/Tokyo", "LC_ALL": "C", "PYTHONPATH": path}
    command = [sys.executable, "-m", "batchlens", "report", "sweep.sqlite", "--csv", "tables", "--json"]
    ended = subprocess.run(
        command, check=True, capture_output=True, text=True, cwd=tmp_path, env=os.environ | surroundings
    )
    assert ended.stderr == ""
    assert json.loads(ended.stdout)["page"] == "sweep-report/index.html"
    write_sweep_report(sweep, tmp_path / "again")
    theirs, ours = (
        {path.name: path.read_bytes() for path in (tmp_path / name).iterdir()} for name in ("sweep-report", "again")
    )
    pages = [re.sub(r"in \d+\.\d s\.", "in S s.", files.pop("index.html").decode()) for files in (theirs, ours)]
    assert pages[0] == pages[1]
    assert theirs == ours
    assert len(read_rows(tmp_path / "tables/trials.csv")) == sweep.ended


# ---------------------------------------------------------------------------------------------
# Drawings
# ---------------------------------------------------------------------------------------------

MANY = ("sgd", "momentum", "nesterov", "adam", "adamw", "kfac", "muon", "sgd+ema", "kfac+ema")


@pytest.fixture(scope="module")
def crowded(tmp_path_factory: pytest.TempPathFactory) -> SweepResult:
    def fate(optimizer: str, batch_size: int, random: Random) -> tuple[Status, int]:
        return never() if optimizer == "muon" or batch_size == 1024 else scaling(optimizer, batch_size, random)

    return fill(tmp_path_factory.mktemp("store") / "sweep.sqlite", fate, MANY)


@pytest.mark.parametrize("number", range(4))
def test_everything_is_on_the_canvas_and_labels_do_not_overlap(crowded: SweepResult, number: int) -> None:
    plan, table = list(plan_panels(crowded))[number]
    with figure_style():
        figure = Figure()
        ax = figure.add_subplot()
        plan.draw(ax, table)
        figure.draw_without_rendering()
        width, height = figure.get_size_inches()
        inside = figure.get_tightbbox()
        boxes = [text.get_window_extent() for text in ax.texts]
    assert min(inside.x0, inside.y0) > -0.01
    assert inside.x1 < width + 0.01
    assert inside.y1 < height + 0.01
    labels = {text.get_text().removesuffix(" (not reached)") for text in ax.texts}
    assert labels == set(table["optimizer"])
    assert [pair for pair in combinations(boxes, 2) if pair[0].overlaps(pair[1])] == []
    assert all(not box.overlaps(ax.bbox) for box in boxes)


def test_crosses_are_at_the_budget(crowded: SweepResult) -> None:
    ax = Figure().add_subplot()
    figures.draw_sweep_steps(ax, figures.sweep_steps_data(crowded), MANY)
    crosses = [line for line in ax.lines if line.get_marker() == "x" and line.get_transform() == ax.transData]
    heights = np.concatenate([np.asarray(line.get_ydata(), dtype=float) for line in crosses])
    assert heights.tolist() == [BUDGET] * (len(MANY) - 1 + 4)


def test_records_say_what_they_are_of(sweep: SweepResult) -> None:
    assert isinstance(sweep.measured[0], MeasuredCurve)
    assert sweep.ended == len(OPTIMIZERS) * len(SIZES) * 10
    assert sweep.versions == VERSIONS
