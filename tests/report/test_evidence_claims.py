"""The paper's claims on networks: numbers, formulas, verdicts and the page, on a committed sweep of digits."""

import json
import math
import re
import shutil
import tomllib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import fmean, stdev

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure
from scipy import stats

import batchlens as bl
from batchlens._arrays import FloatArray
from batchlens.errors import BatchlensError
from batchlens.report import _paper
from batchlens.report._evidence import numbers as numbers_module
from batchlens.report._evidence import predictions
from batchlens.report._evidence.beyond import beyond_rows
from batchlens.report._evidence.contradictions import find_contradictions
from batchlens.report._evidence.faults import fault_rows
from batchlens.report._evidence.figures import averaging_ratio_data, draw_side_by_side, side_by_side_data
from batchlens.report._evidence.formulas import FUNCTIONS, evaluate
from batchlens.report._evidence.judging import (
    Item,
    Judgement,
    Value,
    claim_codes,
    judge_claim,
    judge_item,
    part_codes,
    rests_on_as_much,
)
from batchlens.report._evidence.numbers import (
    NotMeasuredError,
    Numbers,
    Place,
    bound_of_misses,
    mean_of_seeds,
    percentiles,
    rate_scatter,
)
from batchlens.report._evidence.order import find_pairs, order_words, ratio_rows, reversed_rows
from batchlens.report._evidence.panels import plan_network_panels
from batchlens.report._evidence.predictions import doubts_words, predicted_data, prediction_rows, widths_words
from batchlens.report._evidence.reading import Evidence, read_evidence
from batchlens.report._evidence.repeats import _pair, repeat_rows, repeat_words
from batchlens.report._evidence.sections import claims_data, summary_words
from batchlens.report._evidence.tables import (
    cost_rows,
    critical_rows,
    footnotes,
    hours_of,
    misfit,
    outside_rows,
    outside_verdict,
    outside_words,
)
from batchlens.report._page.records import Verdict
from batchlens.report._sweep.figures import draw_sweep_rates, sweep_rates_data
from batchlens.report._theory.study import Study
from batchlens.scaling._critical import DEFINITIONS, read_curves
from batchlens.scaling._intervals import Interval
from batchlens.scaling.curve import ScalingCurve

ROOT = Path(__file__).parents[2]
STORE = ROOT / "docs" / "digits-sweep" / "digits.sqlite"
CLAIMS = tomllib.loads((ROOT / "evidence" / "claims.toml").read_text(encoding="utf-8"))
CLAIMED = {claim["name"]: claim for claim in CLAIMS["claims"]}
DECLARED = """
[[sweeps]]
name = "digits"
workload = "digits"
core_hours = 0.5

[[sweeps]]
name = "mnist"
workload = "simple_cnn_mnist"
core_hours = 4.5
if_time_is_left = true
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("evidence")
    shutil.copy(STORE, found / "digits.sqlite")
    shutil.copy(ROOT / "evidence" / "claims.toml", found)
    (found / "declarations.toml").write_text(DECLARED, encoding="utf-8")
    return found


@pytest.fixture(scope="module")
def evidence(folder: Path) -> Evidence:
    return read_evidence(folder)


@pytest.fixture(scope="module")
def sweep() -> bl.SweepResult:
    """One with several targets."""
    return bl.read_sweep(ROOT / "evidence" / "digits.sqlite")


def make_prediction(optimizer: str) -> dict[str, object]:
    points = [{"batch_size": size, "steps": 10.0, "interval": [5.0, 20.0]} for size in (8, 9)]
    return {"optimizer": optimizer, "critical_batch_sizes": [{"definition": "fit", "value": 50.0}], "points": points}


def test_a_prediction_stands_beside_what_the_sweep_measured(evidence: Evidence) -> None:
    sweep = evidence.measured["digits"]
    data = predicted_data({"curves": [make_prediction("sgd"), make_prediction("lion")]}, sweep)
    assert list(data["optimizer"]) == ["sgd", "sgd"]
    curve = sweep.curves()["sgd"]
    assert data["measured"][0] == curve.steps[curve.batch_sizes.index(8)]
    assert math.isnan(data["measured"][1])
    assert list(data["low"]) == [5.0, 5.0]


def test_how_far_predictions_were_off_is_counted(evidence: Evidence) -> None:
    sweep = evidence.measured["digits"]
    curve = sweep.curves()["sgd"]
    points = [
        {"batch_size": size, "steps": 1.2 * steps, "interval": [steps * (1.1 if size == 8 else 0.9), 2 * steps]}
        for size, steps in zip(curve.batch_sizes, curve.steps, strict=True)
        if steps is not None
    ]
    critical = [{"definition": "fit", "value": 50.0, "interval": [40.0, 60.0]}]
    document = {"curves": [{"optimizer": "sgd", "critical_batch_sizes": critical, "points": points}]}
    _, rows = prediction_rows(replace(evidence, predictions={"digits": document, "mnist": document}))
    (row,) = rows
    assert row[:3] == ["digits (the model was chosen on it)", "sgd", "50 (40 to 60)"]
    assert row[4:] == ["1.20", f"{len(points) - 1} of {len(points)}"]
    refused = {"curves": [], "reasons": ["too few"]}
    assert prediction_rows(replace(evidence, predictions={"digits": refused}))[1][0][2] == "refused: too few"


@pytest.mark.slow
def test_the_page_about_evidence_says_how_far_off_held_out_predictions_were() -> None:
    _, rows = prediction_rows(read_evidence(ROOT / "evidence"))
    off = {(row[0], row[1].partition(" ")[0]): row[4] for row in rows}
    page = " ".join((ROOT / "docs" / "evidence.md").read_text(encoding="utf-8").split())
    pairs = [[off[f"{name} (held out)", optimizer] for name in ("fashion_mnist", "resnet8")]
             for optimizer in ("sgd", "momentum", "kfac")]  # fmt: skip
    sgd, momentum, kfac = (" and ".join(pair) for pair in (*pairs[:2], [f"{float(number):.0f}" for number in pairs[2]]))
    assert f"steps of SGD by {sgd} in the geometric mean, of momentum by {momentum}, of K-FAC" in page
    assert f"drawn as doubtful, by {kfac};" in page


def test_doubts_of_a_prediction_are_said(evidence: Evidence) -> None:
    doubted = {**make_prediction("momentum"), "reasons": ["few steps", "no truth"]}
    document = {"curves": [make_prediction("sgd"), doubted]}
    data = predicted_data(document, evidence.measured["digits"])
    assert dict(zip(data["optimizer"], data["doubts"], strict=True)) == {"sgd": "", "momentum": "few steps; no truth"}
    assert doubts_words(document) == " Doubtful (dash-dotted) is momentum: few steps; no truth."
    assert doubts_words({"curves": [make_prediction("sgd")]}) == ""
    _, rows = prediction_rows(replace(evidence, predictions={"digits": document}))
    assert [row[1] for row in rows] == ["sgd", "momentum (doubtful)"]


def test_whose_errors_made_the_intervals_is_said(evidence: Evidence, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files that do not say are from before Fashion-MNIST counted."""
    old = {"curves": [make_prediction("sgd")]}
    new = {**old, "intervals_from": ["digits", "simple_cnn_mnist", "simple_cnn_fashion_mnist"]}
    assert widths_words(replace(evidence, predictions={})) == ""
    words = widths_words(replace(evidence, predictions={"digits": old}))
    assert words == "Intervals were made so: those of digits from errors on digits, simple_cnn_mnist."
    known = replace(evidence, predictions={"digits": new})
    assert "those of digits from errors on digits, simple_cnn_mnist, simple_cnn_fashion_mnist." in widths_words(known)
    monkeypatch.setattr(predictions, "CHOSEN_ON", ())
    assert prediction_rows(known)[1][0][0] == "digits (its intervals were made from it)"
    assert prediction_rows(replace(evidence, predictions={"digits": old}))[1][0][0] == "digits (held out)"


def test_predictions_are_read_with_the_folder(folder: Path, study: Study, tmp_path: Path) -> None:
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    (tmp_path / "predictions").mkdir()
    file = tmp_path / "predictions" / "digits.json"
    file.write_text(json.dumps({"curves": [make_prediction("sgd")]}), encoding="utf-8")
    found = read_evidence(tmp_path)
    plans = {plan.title: len(data) for plan, data in plan_network_panels(study, found)}
    assert plans["digits: predicted from one run"] == 2
    file.write_text("{", encoding="utf-8")
    with pytest.raises(BatchlensError, match=r"digits\.json cannot be read"):
        read_evidence(tmp_path)


@pytest.fixture(scope="module")
def numbers(evidence: Evidence) -> Numbers:
    return Numbers(evidence.measured["digits"], resamples=50)


def seed_logs(optimizer: str, size: int) -> dict[int, float]:
    """Log steps of the seeds that report, straight from the store's table."""
    sweep = bl.read_sweep(STORE)
    cell = next(c for c in sweep.cells if (c.result.cell.optimizer, c.batch_size) == (optimizer, size))
    return {trial.key.repeat: math.log(trial.interpolated or math.nan) for trial in cell.result.repeats}


def test_steps_are_geometric_means_and_rows_leave_out_a_seed(numbers: Numbers) -> None:
    logs = list(seed_logs("sgd", 64).values())
    found = numbers.steps("sgd", 64)
    assert found[0] == pytest.approx(math.exp(fmean(logs)))
    assert found[2] == pytest.approx(math.exp(fmean([log for place, log in enumerate(logs) if place != 1])))
    assert len(found) == 1 + len(logs) + 50


def test_pairs_are_paired_by_seed(numbers: Numbers) -> None:
    plain, averaged = seed_logs("sgd", 8), seed_logs("sgd+ema", 8)
    apart = [averaged[seed] - plain[seed] for seed in plain]
    assert numbers.paired("sgd+ema", "sgd", 8)[0] == pytest.approx(math.exp(fmean(apart)))
    frame = averaging_ratio_data(numbers.sweep)
    row = frame[(frame["optimizer"] == "sgd") & (frame["batch_size"] == 8)].iloc[0]
    assert row["low"] <= row["ratio"] <= row["high"]


@pytest.mark.slow
def test_critical_batch_size_and_slopes_are_those_of_the_curve(numbers: Numbers) -> None:
    sizes = numbers.batch_sizes
    steps = [math.exp(fmean(seed_logs("momentum", size).values())) for size in sizes]
    curve = ScalingCurve(sizes, steps)
    assert numbers.critical("momentum")[0] == pytest.approx(curve.critical_batch_size("fit").value, rel=1e-6)
    (first, _), *_ = np.polyfit(np.log(sizes[:3]), np.log(steps[:3]), 1, full=True)
    assert numbers.slope(numbers.steps, "momentum", "small_end")[0] == pytest.approx(first)
    assert numbers._part("large_half") == [size for size in sizes if 8 * size >= sizes[-1]]
    assert numbers._part("every") == sizes


def test_a_cell_that_is_not_complete_or_has_few_seeds_is_not_measured(
    numbers: Numbers, monkeypatch: pytest.MonkeyPatch
) -> None:
    fresh = Numbers(numbers.sweep, resamples=0)
    monkeypatch.setattr(numbers_module, "LEAST_REACHED", 6)
    with pytest.raises(NotMeasuredError, match="5 of 5 seeds of sgd at 8 reached the target"):
        fresh.steps("sgd", 8)


def test_every_formula_of_the_claims_has_a_value(numbers: Numbers) -> None:
    judged = 0
    for claim in CLAIMS["claims"]:
        if "digits" in claim["sweeps"]:
            (judgement,) = [e for e in judge_claim(claim, {"digits": numbers}).judgements if e.sweep == "digits"]
            for item in judgement.items:
                assert item.verdict != "not measured" or item.part == "gaps", (claim["name"], item)
                assert all(math.isfinite(value.value) for value in item.values.values())
                judged += 1
            assert judgement.sureness is None or 0 <= judgement.sureness <= 1
    assert judged > 30


def test_a_claim_says_on_how_many_workloads_it_holds(numbers: Numbers) -> None:
    part = {
        "name": "p",
        "over": [{"o": "momentum", "p": "sgd"}],
        "quantities": {"raised": "critical(o) / critical(p)"},
        "limit": "raised > 0",
        "reason": "",
    }
    base = {"name": "n", "claim": "c", "paper": "p", "where": "w", "sweeps": ["one", "two", "three"]}
    holds = {**base, "parts": [{**part, "holds": "raised >= 1.25"}]}
    found = judge_claim(holds, {"one": numbers, "two": numbers})
    assert (found.verdict, len(found.measured)) == ("holds", 2)
    fails = judge_claim(
        {**base, "parts": [{**part, "holds": "raised >= 100", "limit": "raised >= 99"}]}, {"one": numbers}
    )
    mixed = type(found)("n", "c", "p", "w", (), (*found.judgements[:1], *fails.judgements[:1]))
    assert mixed.verdict == "1 of 2"
    assert [claim.in_all for claim in (mixed, found)] == [
        "1 of 2 holds (1 surely), 1 fails (1 surely)",
        "holds (2 of 2 surely)",
    ]
    limited = replace(
        mixed,
        judgements=tuple(replace(entry, verdict="holds with a limit", sureness=0.5) for entry in mixed.judgements),
    )
    assert limited.in_all == "holds with a limit (none of 2 surely)"
    assert (
        replace(mixed, judgements=(*limited.judgements, fails.judgements[0])).in_all
        == "0 of 3 hold, 2 with a limit (none surely), 1 fails (1 surely)"
    )
    assert judge_claim(holds, {}).verdict == "not measured"


def test_an_item_names_its_cells_whatever_was_judged_before(numbers: Numbers) -> None:
    part = {"name": "made_up", "over": [{"o": "sgd"}], "quantities": {"found": "critical(o)"}, "holds": "found > 0",
            "limit": "found > 0"}  # fmt: skip
    first, again = (judge_item(part, {"o": "sgd"}, numbers)[0] for _ in range(2))
    assert first.cells == again.cells != ()


@pytest.mark.parametrize(
    ("side", "threshold", "verdict"),
    [(1, "raised >= 1.25", "holds"), (1, "raised <= 100", "not measured"), (-1, "raised >= 1.25", "not measured")],
)
def test_a_bound_is_used_where_it_decides(
    numbers: Numbers, monkeypatch: pytest.MonkeyPatch, side: int, threshold: str, verdict: str
) -> None:

    def bounded(*arguments: object) -> object:
        log_value, _ = read_curves(*arguments)  # type: ignore[arg-type]
        return log_value, np.full(len(log_value), side)

    fresh = Numbers(numbers.sweep, resamples=5)
    fresh.critical("sgd")
    monkeypatch.setattr(numbers_module, "read_curves", bounded)
    part = {
        "name": "p",
        "over": [{"o": "momentum", "p": "sgd"}],
        "quantities": {"raised": "critical(o) / critical(p)"},
        "holds": threshold,
        "limit": "raised < 0",
        "reason": "",
    }
    claim = {"name": "n", "claim": "c", "paper": "p", "where": "w", "sweeps": ["one"], "parts": [part]}
    assert judge_claim(claim, {"one": fresh}).verdict == verdict


def test_verdicts_follow_the_rules() -> None:
    holds, limit, fails, unknown = np.eye(4, dtype=np.int64)[:, :1] * 0 + np.array([[2], [1], [0], [-1]])
    assert part_codes([holds, unknown], 1)[0] == 2
    assert part_codes([limit, fails], 1)[0] == 1
    assert part_codes([limit, fails, fails], 1)[0] == 0
    assert part_codes([], 1)[0] == -1
    assert claim_codes([holds, fails], 1)[0] == 1
    assert claim_codes([fails, fails, holds], 1)[0] == 0
    assert claim_codes([unknown], 1)[0] == -1


@pytest.mark.parametrize("formula", ["open('x')", "steps.__class__", "[1 for b in (1,)]", "lambda: 1", "unknown"])
def test_a_formula_can_do_nothing_else(formula: str) -> None:
    with pytest.raises(ValueError, match="a formula cannot hold"):
        evaluate(formula, {"steps": 1, **FUNCTIONS})


def test_the_page_has_networks_beside_the_theory(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_paper, "PANELS", ())  # the theory's own take longer, and are tested elsewhere
    monkeypatch.setattr(_paper, "plan_checks", lambda study: [])
    found = bl.reproduce(tmp_path, dim=20, bins=5, target=0.3, evidence=folder)
    page = found.page.read_text(encoding="utf-8")
    assert len(found.networks) == 11
    assert page.index('<div class="figures">') < page.index('<h2 id="networks-heading">')
    for name in ("networks.csv", "digits-steps.csv", "digits-averaging.csv", "network-claims.csv", "figure-13a.svg"):
        assert (tmp_path / name).is_file(), name
    document = found.as_document()["networks"]
    assert {entry["name"] for entry in document} == {claim["name"] for claim in CLAIMS["claims"]}


def test_what_fails_is_named_with_what_was_tested(sweep: bl.SweepResult) -> None:
    part = {
        "name": "smallest_batch",
        "over": [{"o": "momentum", "p": "sgd"}],
        "quantities": {"saved": "1 - steps(o, smallest) / steps(p, smallest)"},
        "holds": "saved > 5",
        "limit": "saved > 4",
    }
    claim = {"name": "made_up", "claim": "A.", "paper": "B.", "where": "C", "sweeps": ["digits"], "parts": [part]}
    judged = judge_claim(claim, {"digits": Numbers(sweep)})
    remark = {
        "claim": "made_up",
        "part": "smallest_batch",
        "sweep": "digits",
        "optimizers": ["momentum", "sgd"],
        "remark": "It is made up.",
    }
    (found,) = find_contradictions([judged], {"digits": sweep}, [remark])
    assert found.remark == "It is made up."
    assert found.tested[0] == "Seeds: it fails in 100% of resamples"
    assert found.tested[1].startswith("Search: ")
    assert [words.partition(" (")[0] for words in found.tested if words.startswith("Target: ")] == [
        f"Target: at {target} it fails" for target in sweep.declaration.also_targets
    ]
    assert found.is_sure
    (searched,) = find_contradictions([judged], {"digits": sweep}, [{**remark, "against": "a longer search"}])
    assert (searched.is_sure, searched.words) == (False, "may be chance: a longer search")
    unknown = replace(judged, name="another")
    assert next(find_contradictions([unknown], {"digits": sweep}, [remark])).remark == ""


@pytest.mark.slow
def test_every_remark_is_of_something_that_fails() -> None:
    evidence = read_evidence(ROOT / "evidence")
    failing = {(found.claim.name, found.item.part, found.sweep, found.item.optimizers)
               for found in evidence.contradictions}  # fmt: skip
    assert {
        (entry["claim"], entry["part"], entry["sweep"], tuple(entry["optimizers"])) for entry in evidence.remarks
    } == failing


def test_a_missed_seed_may_be_far_off(sweep: bl.SweepResult) -> None:
    """K-FAC with averaging at 512 has a seed that missed its target: what it decides is not measured."""
    numbers = Numbers(sweep, 0)
    found, late = (which.steps("kfac+ema", 512)[0] for which in (numbers, numbers.later))
    assert numbers.rests_on_a_miss
    assert late == pytest.approx(found * 100 ** (1 / 5))
    part = {
        "name": "made_up", "over": [{"o": "kfac+ema"}], "quantities": {"steps_taken": "steps(o, 512)"},
        "holds": f"steps_taken < {1.5 * found}", "limit": "steps_taken < 0",
    }  # fmt: skip
    item, _ = judge_item(part, {"o": "kfac+ema"}, numbers)
    assert (item.verdict, item.reason) == ("not measured", "a seed missed its target")


def test_misses_on_both_sides_of_a_ratio_do_not_cancel(sweep: bl.SweepResult) -> None:
    """K-FAC with averaging has a miss at 128 too: together they move the ratio by less than each by itself."""
    numbers = Numbers(sweep, 50)
    found, together = (
        (which.steps("kfac+ema", 128) / which.steps("kfac+ema", 512))[0] for which in (numbers, numbers.later)
    )
    assert together == pytest.approx(found * 100 ** (1 / 10 - 1 / 5))
    part = {
        "name": "made_up", "over": [{"o": "kfac+ema"}], "quantities": {"ratio": "steps(o, 128) / steps(o, 512)"},
        "holds": f"ratio > {0.5 * found} and ratio < {1.5 * found}", "limit": "ratio < 0",
    }  # fmt: skip
    item, _ = judge_item(part, {"o": "kfac+ema"}, numbers)
    assert (item.verdict, item.reason) == ("not measured", "a seed missed its target")
    assert item.values["ratio"].low < found * 100 ** (-1 / 5)
    assert item.values["ratio"].high > found * 100 ** (1 / 10)


def steps_of_kfac_at_16(most: float) -> dict[str, object]:
    part = {
        "name": "few_steps", "over": [{"o": "kfac"}], "quantities": {"taken": "steps(o, 16)"}, "reason": "",
        "holds": f"taken < {most}", "limit": f"taken < {2 * most}",
    }  # fmt: skip
    return {"name": "made_up", "claim": "A.", "paper": "B.", "where": "C", "sweeps": ["digits"], "parts": [part]}


def test_a_search_that_found_less_than_it_contains_is_named_with_what_that_changes(
    evidence: Evidence, sweep: bl.SweepResult
) -> None:
    """K-FAC takes 68 steps at batch size 16, and 61 without momentum."""
    claims = [steps_of_kfac_at_16(65.0), {**steps_of_kfac_at_16(70.0), "name": "another"}]
    sweeps = (replace(evidence.sweeps[0], result=sweep), *evidence.sweeps[1:])
    found = replace(evidence, sweeps=sweeps, document={**evidence.document, "claims": claims})
    item = found.claims[0].judgements[0].items[0]
    assert item.warnings == ("kfac at 16: slower than kfac_no_momentum, which it contains",)
    assert item.warnings[0] in set(claims_data(found)["warnings"])
    heads, rows = fault_rows(found)
    assert [row[:2] for row in rows] == [["digits", "adam_no_momentum+ema at 512"], ["digits", "kfac at 16"]]
    assert len(heads) == len(rows[0])
    assert [row[-1] for row in rows] == [
        "nothing",
        "made up, few steps, kfac: holds with a limit, then holds; and so the claim: holds with a limit, then holds",
    ]


def test_numbers_can_take_other_cells_instead(sweep: bl.SweepResult) -> None:
    """Those of plain SGD in place of averaged ones, also to another target."""
    numbers = Numbers(sweep, 0, instead={("sgd+ema", 64): ("sgd", 64)})
    target = sweep.declaration.also_targets[0]
    assert numbers.steps("sgd+ema", 64).tolist() == numbers.steps("sgd", 64).tolist()
    assert numbers.steps_at(target, "sgd+ema", 64).tolist() == numbers.steps_at(target, "sgd", 64).tolist()
    assert numbers.steps("sgd+ema", 128)[0] != numbers.steps("sgd", 128)[0]


@pytest.mark.parametrize(("missed", "bound"), [((), ""), ((1024,), "at most "), ((8,), "at least "), ((8, 1024), "")])
def test_a_critical_batch_size_is_a_bound_where_seeds_missed_the_target(
    sweep: bl.SweepResult, monkeypatch: pytest.MonkeyPatch, missed: tuple[int, ...], bound: str
) -> None:
    """Of a curve without misses, as if seeds had missed at some batch sizes."""
    monkeypatch.setattr(Numbers, "_logs", with_misses(Numbers._logs, {("sgd", size) for size in missed}))
    assert bound_of_misses(Numbers(sweep, 0), "sgd") == bound


def with_misses(logs: Callable[..., FloatArray], missed: set[Place]) -> Callable[..., FloatArray]:
    """Log steps as they are, those of the first seed of some cells as if it had missed the target."""

    def found(numbers: Numbers, target: str, optimizer: str, size: int) -> FloatArray:
        known = logs(numbers, target, optimizer, size).copy()
        if (optimizer, size) in missed:
            numbers._missed.add((optimizer, size))
            known[0] += math.log(100.0) * ((optimizer, size) in numbers.late)
        return known

    return found


def test_where_a_seed_missed_what_averaging_saves_is_open_above(sweep: bl.SweepResult) -> None:
    frame = averaging_ratio_data(sweep)
    row = frame[(frame["optimizer"] == "kfac") & (frame["batch_size"] == 512)].iloc[0]
    numbers = Numbers(sweep)
    _, high = percentiles(numbers.paired("kfac+ema", "kfac", 512), numbers.seeds)
    assert row["high"] > 2 * high


def test_a_resample_that_decides_less_comes_to_another_verdict() -> None:
    """What the seeds as they are leave open does not count."""
    decided, never, sometimes = np.array([[2, 2, 2], [-1, 1, -1], [1, 1, -1]])
    assert rests_on_as_much([decided, never], 3).tolist() == [True, True, True]
    assert rests_on_as_much([decided, sometimes], 3).tolist() == [True, True, False]


@pytest.mark.parametrize("unknown", [0, 30])
def test_intervals_of_few_seeds_are_students(unknown: int) -> None:
    """90% intervals of the mean of five normal numbers hold it in 90% of cases, also where other cells have more."""
    random = np.random.default_rng(0)
    held = 0
    for _ in range(1000):
        means = mean_of_seeds(np.append(random.standard_normal(5), [np.nan] * unknown), 400)
        low, high = percentiles(means, 5 + unknown)
        held += low <= 0.0 <= high
    assert held / 1000 == pytest.approx(0.9, abs=0.03)


def test_chosen_rates_scatter_as_they_are_taken_to(sweep: bl.SweepResult) -> None:
    """By the same search with other seeds: less than the assumed 0.25, but by as much as 1.0 with K-FAC."""
    again = {cell.result.cell: cell for cell in bl.read_sweep(ROOT / "evidence" / "digits_again.sqlite").cells}
    apart: dict[float, list[float]] = {}
    for cell in sweep.cells:
        rates = cell.effective_learning_rate, again[cell.result.cell].effective_learning_rate
        assert rates[0]
        assert rates[1]
        apart.setdefault(rate_scatter(cell.result.cell.optimizer), []).append(math.log(rates[0] / rates[1]))
    found = {taken: math.sqrt(fmean(value**2 for value in values) / 2) for taken, values in apart.items()}
    assert 0.1 < found[0.25] < 0.25
    assert found[1.0] == pytest.approx(1.0, abs=0.1)


def test_a_rate_is_its_own_where_momentum_was_not_searched() -> None:
    """As with K-FAC on the Transformer: the rule of claims.toml; figures show it as learning rate only."""
    sweep = bl.read_sweep(ROOT / "evidence" / "transformer.sqlite")
    (cell,) = (cell for cell in sweep.cells if cell.result.cell == ("kfac", 64))
    assert "momentum" not in cell.settings
    assert Numbers(sweep, 0).rate("kfac", 64)[0] == cell.settings["learning_rate"]
    rows = sweep_rates_data(sweep)
    drawn = {"learning_rate": {"sgd", "momentum", "kfac"}, "effective_learning_rate": {"sgd", "momentum"}}
    for column, names in drawn.items():
        ax = Figure().add_subplot()
        draw_sweep_rates(ax, rows, sweep.declaration.optimizers, column)
        assert {text.get_text() for text in ax.texts} == names


def test_rates_have_a_bar_of_what_seeds_cannot_tell_apart(sweep: bl.SweepResult) -> None:
    """The rates of runs no slower than 95 of 100 seeds of the chosen settings; counted here by hand for one cell."""
    rows = sweep_rates_data(sweep)
    row = rows[(rows["optimizer"] == "momentum") & (rows["batch_size"] == 64)].iloc[0]
    (cell,) = (cell for cell in sweep.cells if cell.result.cell == ("momentum", 64))
    assert cell.result.reported is not None
    logs = [math.log(steps) for steps in cell.result.reported.seeds if steps]
    most = fmean(logs) + stats.t.ppf(0.95, len(logs) - 1) * stdev(logs) * math.sqrt(1 + 1 / len(logs))
    runs = [trial for trial in cell.result.members if trial.interpolated and math.log(trial.interpolated) <= most]
    rates = [trial.settings["learning_rate"] / (1 - trial.settings["momentum"]) for trial in runs]
    assert 1 < len(runs) < len(cell.result.members)
    assert row["effective_learning_rate_low"] == min(rates)
    assert row["effective_learning_rate_high"] == max(rates)
    low, high = rows["effective_learning_rate_low"], rows["effective_learning_rate_high"]
    assert (rows["effective_learning_rate"].between(low, high) | low.isna()).all()
    again = sweep_rates_data(bl.read_sweep(ROOT / "evidence" / "digits_again.sqlite"))
    assert again["optimizer"].tolist() == rows["optimizer"].tolist()
    within = again["effective_learning_rate"].between(low, high)
    assert (within.sum(), low.notna().sum()) == (79, 94)  # as docs/evidence.md says


def test_ends_that_share_a_batch_size_have_no_slope(sweep: bl.SweepResult, monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = Numbers(sweep, 0)
    assert numbers.slope(numbers.steps, "sgd", "small_end")[0] < -0.5
    numbers.batch_sizes = [16, 64, 256]
    for part in ("small_end", "large_half"):
        with pytest.raises(NotMeasuredError, match="share a batch size"):
            numbers.slope(numbers.steps, "sgd", part)
    assert numbers.slope(numbers.steps, "sgd", "every")[0] < -0.3


def test_runs_that_two_optimizers_share_are_named(sweep: bl.SweepResult) -> None:
    """K-FAC's best setting at batch size 8 has momentum 0: its runs are those of K-FAC without."""
    part = {
        "name": "made_up", "over": [{"o": "kfac", "p": "kfac_no_momentum"}], "limit": "ratio > 0", "holds": "ratio > 0",
        "quantities": {"ratio": "steps(o, smallest) / steps(p, smallest)"},
    }  # fmt: skip
    item, _ = judge_item(part, {"o": "kfac", "p": "kfac_no_momentum"}, Numbers(sweep, 0))
    assert item.reason == "the same runs: kfac and kfac_no_momentum at 8"
    assert item.values["ratio"].value == 1.0


def test_a_bound_leaves_an_interval_open(numbers: Numbers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numbers_module, "read_curves", lambda *asked: (read_curves(*asked)[0], np.ones(1 + 5 + 50)))
    part = {"name": "p", "over": [{"o": "sgd"}], "quantities": {"found": "critical(o)"}, "holds": "found > 1",
            "limit": "found > 1"}  # fmt: skip
    item, _ = judge_item(part, {"o": "sgd"}, Numbers(numbers.sweep, resamples=50))
    assert item.values["found"].high == math.inf
    assert str(item.values["found"]).endswith("to ?)")


def test_a_sweep_that_repeats_another_is_no_workload_and_is_held_against_it(folder: Path, tmp_path: Path) -> None:
    again = DECLARED + '[[sweeps]]\nname = "once_more"\nworkload = "digits"\ncore_hours = 1\nagain = "digits"\n'
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    (tmp_path / "declarations.toml").write_text(again, encoding="utf-8")
    shutil.copy(ROOT / "evidence" / "digits.sqlite", tmp_path / "once_more.sqlite")
    found = read_evidence(tmp_path)
    assert list(found.measured) == list(found.repeats) == ["digits"]
    assert {claim.again[0].sweep for claim in found.claims if claim.again} == {"digits"}
    assert {len(claim.measured) for claim in found.claims if claim.again} == {0, 1}  # one asks for another target
    assert "digits, again" in set(claims_data(found)["sweep"])
    words = repeat_words(found)
    assert "Run again with another search and other seeds, digits comes to the same verdict on" in words
    told = re.search(r"verdict on (\d+) of (\d+) claims and on (\d+) of (\d+) of their items", words)
    assert told
    _, rows = repeat_rows(found)
    same_claims, claims, same_items, items = map(int, told.groups())
    assert sum(row[2] == "the claim" for row in rows) == claims - same_claims
    assert sum(row[2] != "the claim" for row in rows) == items - same_items > 0
    assert all(first != second and "not measured" not in (first, second) for *_, first, second in rows)
    counts = re.search(r"Of (\d+) critical batch sizes with intervals (\d+) differs? by more than", words)
    assert counts
    assert 0 < int(counts[2]) < int(counts[1])
    contradictions = {
        (entry.claim.name, entry.item.optimizers): (entry.is_sure, entry.again) for entry in found.contradictions
    }
    sure, other = contradictions["averaging", ("kfac+ema", "kfac")]
    assert other is not None
    assert other.verdict == "holds"  # so it may be chance, though resamples are sure
    assert not sure


@pytest.mark.parametrize(("second", "by_seeds"), [(119.0, True), (84.0, True), (121.0, False), (83.0, False)])
def test_seeds_explain_what_both_intervals_together_reach(second: float, by_seeds: bool) -> None:
    """Half widths add as squares: two that are each 1 / sqrt(2) of the logarithm of 1.2 reach a factor of 1.2."""
    wide = math.log(1.2) / math.sqrt(2)
    intervals = [Interval(value * math.exp(-wide), value * math.exp(wide)) for value in (100.0, second)]
    (pair,) = _pair("kfac", (100.0, second), (intervals[0], intervals[1]))
    assert pair.reach == pytest.approx(math.log(1.2))
    assert pair.by_seeds == by_seeds
    assert not list(_pair("kfac", (100.0, second), (Interval(90.0, None), intervals[1])))
    assert not list(_pair("kfac", (100.0, None), (intervals[0], intervals[1])))


def test_of_intervals_the_halves_count_that_point_to_each_other() -> None:
    lopsided = Interval(50.0, 110.0), Interval(100.0, 400.0)
    (up,) = _pair("sgd", (100.0, 200.0), lopsided)
    assert up.reach == pytest.approx(math.hypot(math.log(1.1), math.log(2)))
    (down,) = _pair("sgd", (200.0, 100.0), lopsided[::-1])
    assert down.reach == pytest.approx(up.reach)


def test_where_a_larger_batch_needs_fewer_examples_is_named(evidence: Evidence, sweep: bl.SweepResult) -> None:
    sweeps = (replace(evidence.sweeps[0], result=sweep), *evidence.sweeps[1:])
    _, rows = beyond_rows(replace(evidence, sweeps=sweeps))
    assert [row[:3] for row in rows] == [["digits", "sgd", "8 and 16"], ["digits", "kfac", "16 and 32"]]
    steps = {cell.batch_size: cell.steps or 0.0 for cell in sweep.cells if cell.result.cell.optimizer == "kfac"}
    assert rows[1][3].startswith(f"{16 * steps[16] / (32 * steps[32]):.3g} (1.")


def test_networks_are_counted_as_one_number_where_all_claims_have_as_many(evidence: Evidence) -> None:
    words = summary_words(evidence)
    assert "measured, on 0 to 1 network;" in words
    only = replace(evidence, document={**evidence.document, "claims": [CLAIMED["momentum"]]})
    assert "1 of 1 claims about training measured, on 1 network;" in summary_words(only)
    assert re.search(r"\d+ items? contradicts? the theory", words)


def test_items_are_counted_with_how_many_are_sure(evidence: Evidence) -> None:
    """Counted here by hand, without learning rates."""
    names = ("momentum", "averaging", "learning_rates")
    found = replace(evidence, document={**evidence.document, "claims": [CLAIMED[name] for name in names]})
    items = [item for claim in found.claims for entry in claim.measured for item in entry.items]
    holding = [item for item in items if item.verdict == "holds"]
    sure = [item for item in holding if item.part in ("smallest_batch", "largest_batch", "critical_batch_size")
            and (item.sureness or 0.0) >= 0.9]  # fmt: skip
    assert 0 < len(sure) < len(holding)
    assert f"of their {len(items)} items {len(holding)} hold ({len(sure)} surely)" in summary_words(found)


def test_shares_of_learning_rates_are_of_an_assumed_scatter(evidence: Evidence) -> None:
    """They have no seeds that could make them surer."""
    rates, averaging = (
        next(claim for claim in evidence.claims if claim.name == name) for name in ("learning_rates", "averaging")
    )
    assert re.match(r"\(\d+% by an assumed scatter", rates.measured[0].notes)
    assert "surely" not in replace(rates, judgements=(replace(rates.measured[0], sureness=1.0),)).in_all
    assert "assumed" not in averaging.measured[0].notes
    assert averaging.in_all.endswith("surely)")
    rows = claims_data(evidence)
    assert set(rows[rows["claim"] == "learning_rates"]["sureness_assumed"]) == {True}
    assert set(rows[rows["claim"] == "averaging"]["sureness_assumed"]) == {False}


@pytest.mark.parametrize(
    ("verdicts", "notes"),
    [
        (("holds with a limit", "fails"), "(100%, 1 fails, order not seen)"),
        (("holds with a limit", "holds"), "(100%)"),
        (("holds with a limit", "not measured"), "(100%, 1 of 2, order not seen)"),
        (("not measured", "not measured"), "(100%, 0 of 2)"),
    ],
)
def test_an_order_that_no_ratio_shows_is_said_to_be_not_seen(verdicts: tuple[Verdict, ...], notes: str) -> None:
    """Held with a limit, critical batch sizes may as well be the same."""
    items = tuple(Item("p", ("kfac", "adam"), {"raised": Value(1.0, 0.9, 1.1)}, verdict) for verdict in verdicts)
    assert Judgement("mnist", "holds with a limit", 1.0, (), items, asked=2).notes == notes
    saved = (Item("p", ("kfac", "sgd"), {"saved": Value(0.1, 0.0, 0.2)}, "holds with a limit"),)
    assert Judgement("mnist", "holds with a limit", 1.0, (), saved).notes == "(100%)"


def test_a_verdict_says_how_sure_it_is_and_what_it_rests_on() -> None:
    items = (Item("p", ("sgd",), {}, "fails"), Item("p", ("adam",), {}, "holds"))
    judged = Judgement("digits", "holds", 0.91, (2, 4), items, asked=3)
    assert judged.notes == "(91%, not without seed 2 or 4, 2 of 3, 1 fails)"
    assert replace(judged, sureness=None).words == "holds"


def test_another_target_can_be_the_main_one(sweep: bl.SweepResult) -> None:
    target = sweep.declaration.also_targets[0]
    there = Numbers(sweep, 0, main=target).steps("sgd", 64)
    assert there.tolist() == Numbers(sweep, 0).steps_at(target, "sgd", 64).tolist()
    assert there[0] != Numbers(sweep, 0).steps("sgd", 64)[0]


def test_averaging_in_the_same_runs_saves_a_search(evidence: Evidence) -> None:
    sweep = evidence.measured["digits"]
    heads, rows = cost_rows(evidence)
    shared = 0
    for cell in sweep.cells:
        own = f"{cell.result.cell.optimizer}+ema"
        for other in sweep.cells:
            if (other.result.cell.optimizer, other.batch_size) == (own, cell.batch_size):
                shared += sum(trial.steps_taken for trial in cell.result.members)
                shared -= sum(trial.steps_taken for trial in other.result.members)
    share, _, hours = rows[0][heads.index("Saved by averaging in the same runs")].partition(", ")
    assert share == f"{shared / (sweep.steps + shared):.0%}"
    assert hours.endswith(" core-hours")
    assert shared


def test_steps_saved_are_told_in_hours_at_the_pace_of_their_cells(sweep: bl.SweepResult) -> None:
    """As many steps as a cell took again take as long again."""
    small, large = (next(cell for cell in sweep.cells if cell.result.cell == ("sgd", size)) for size in (8, 1024))
    runs = {cell.batch_size: [*cell.result.members, *cell.result.repeats] for cell in (small, large)}
    taken = {("sgd", size): sum(trial.steps_taken for trial in found) for size, found in runs.items()}
    seconds = {size: sum(trial.seconds for trial in found) for size, found in runs.items()}
    assert hours_of(sweep, taken) == pytest.approx(sum(seconds.values()) / 3600)
    doubled = {("sgd", 8): 2 * taken["sgd", 8]}
    assert hours_of(sweep, doubled) == pytest.approx(2 * seconds[8] / 3600)


def test_tables_show_what_was_not_run(evidence: Evidence, study: Study) -> None:
    heads, rows = cost_rows(evidence)
    assert [row[:2] for row in rows] == [["digits", "complete"], ["mnist (only if time is left)", "not run"]]
    assert len(heads) == len(rows[0])
    repeated = {"digits": {"runs": 10, "like_here": 7, "same": 7, "close": 2}}
    ((*_, words), _) = cost_rows(replace(evidence, verified=repeated))[1]
    assert words == "7 of 7 the same to the bit; 2 of 3 within the range of one more seed"
    known = evidence.measured["digits"].ended
    for ended, says in ((known, ""), (known - 1, "; before 1 more run"), (known - 41, "; before 41 more runs")):
        ((*_, later), _) = cost_rows(replace(evidence, verified={"digits": {**repeated["digits"], "ended": ended}}))[1]
        assert later == f"{words}{says}"
    heads, rows = critical_rows(study, evidence)
    assert heads[:2] == ("Optimizer", "digits")
    places = {row[0]: int(row[2].partition(" ")[0]) for row in rows}
    assert list(places.values()) == list(range(1, len(rows) + 1))
    assert places["sgd+ema"] < places["sgd"] < places["momentum"] < places["kfac"]
    assert {row[0] for row in rows} == set(evidence.measured["digits"].declaration.optimizers)
    assert set(claims_data(evidence)["claim"]) < {claim["name"] for claim in CLAIMS["claims"]}


def test_critical_batch_sizes_stand_with_how_many_times_sgds_they_are(evidence: Evidence, study: Study) -> None:
    curves = evidence.measured["digits"].curves()
    fits = {name: curve.critical_batch_size("fit").value or math.nan for name, curve in curves.items()}
    words = {row[0]: row[1] for row in critical_rows(study, evidence)[1]}
    ratio = float(f"{fits['momentum'] / fits['sgd']:.2g}")
    assert words["momentum"].endswith(f"), {ratio:g} times")
    assert words["sgd"].endswith(")")


def test_pairs_in_another_order_than_in_theory_are_found(
    study: Study, evidence: Evidence, sweep: bl.SweepResult
) -> None:
    """On digits averaged momentum has a larger critical batch size than Adam without, by more than seeds scatter."""
    swept = replace(evidence, sweeps=(replace(evidence.sweeps[0], result=sweep), *evidence.sweeps[1:]))
    pairs = list(find_pairs(study, swept))
    reversed_ = {(pair.larger, pair.smaller): pair for pair in pairs if pair.is_reversed}
    fits = {name: curve.critical_batch_size("fit").value or math.nan for name, curve in sweep.curves().items()}
    assert ("adam_no_momentum", "momentum+ema") in reversed_
    assert all(fits[larger] < fits[smaller] for larger, smaller in reversed_)
    assert all(pair.theory >= 1.25 for pair in pairs)
    assert not {(pair.smaller, pair.larger) for pair in pairs} & {(pair.larger, pair.smaller) for pair in pairs}
    told = re.match(r"Of (\d+) pairs .*, (\d+) come in its order on networks, and (\d+) in", order_words(pairs))
    assert told
    assert int(told[1]) == int(told[2]) + int(told[3]) == len(pairs)
    assert len(reversed_rows(pairs)[1]) == len(reversed_) <= int(told[3])
    pair = reversed_["adam_no_momentum", "momentum+ema"]
    assert pair._replace(again=pair.found).is_reversed
    assert not pair._replace(again=replace(pair.found, verdict="holds")).is_reversed
    assert not pair._replace(found=replace(pair.found, sureness=0.8)).is_reversed


def test_ratios_of_the_paper_of_a_quadratic_like_the_network_and_measured(evidence: Evidence, study: Study) -> None:
    curves = {
        optimizer: [{"batch_size": size, "steps": 100.0 * (1 + critical / size)} for size in (8, 64, 512)]
        for optimizer, critical in (("sgd", 20.0), ("momentum", 60.0))
    }
    document = {"curves": [{"optimizer": name, "points": points} for name, points in curves.items()]}
    heads, rows = ratio_rows(study, replace(evidence, predictions={"digits": document}))
    (row,) = rows
    assert len(heads) == len(row)
    assert (row[:2], row[3]) == (["digits", "momentum"], "3 times")
    refused = ratio_rows(study, replace(evidence, predictions={"digits": {"curves": []}}))[1]
    assert {row[3] for row in refused} == {"refused"}
    assert ratio_rows(study, evidence)[1] == []


def test_a_curve_of_another_shape_is_marked(evidence: Evidence, sweep: bl.SweepResult, study: Study) -> None:
    curves = {curve.optimizer: curve for curve in sweep.measured}
    sizes = curves["kfac"].curve.batch_sizes
    steps = 20 * (1 + 64 / np.array(sizes))
    exact = ScalingCurve(sizes, steps.tolist())
    assert misfit(replace(curves["kfac"], curve=exact)) == pytest.approx(0, abs=1e-6)
    bent = ScalingCurve(sizes, (steps * np.exp(0.2 * (-1.0) ** np.arange(len(sizes)))).tolist())
    assert misfit(replace(curves["kfac"], curve=bent)) > 0.2 > 0.1 > misfit(curves["sgd"])
    shown = replace(evidence, sweeps=(replace(evidence.sweeps[0], result=sweep), *evidence.sweeps[1:]))
    words = {row[0]: row[1] for row in critical_rows(study, shown)[1]}
    assert words["kfac"].endswith("§")
    assert "§" not in words["sgd"]
    assert footnotes(shown)[0].startswith("§ the curve")


def test_of_a_bound_the_table_has_the_end_of_its_interval(evidence: Evidence, study: Study) -> None:
    """K-FAC's on ResNet8 lies beyond 256 by the fit, and above 176 as far as seeds can tell."""
    sweep = bl.read_sweep(ROOT / "evidence" / "resnet8.sqlite")
    shown = replace(evidence, sweeps=(replace(evidence.sweeps[0], result=sweep), *evidence.sweeps[1:]))
    words = {row[0]: row[1] for row in critical_rows(study, shown)[1]}
    (kfac, sgd) = (
        next(curve.estimates[DEFINITIONS.index("fit")] for curve in sweep.measured if curve.optimizer == name)
        for name in ("kfac", "sgd")
    )
    assert kfac.critical_batch_size.relation == ">="
    assert kfac.interval is not None
    assert kfac.interval.low is not None
    times = kfac.interval.low / (sgd.critical_batch_size.value or 0.0)
    assert words["kfac"] == f"above {kfac.interval.low:.3g}, at least {times:.2g} times"


def test_a_critical_batch_size_of_a_short_search_has_a_footnote(evidence: Evidence, study: Study) -> None:
    notes = [{"sweep": sweep, "optimizer": "kfac", "note": "nine trials"} for sweep in ("mnist", "digits")]
    noted = replace(evidence, footnotes=tuple(notes))
    assert footnotes(noted) == [*footnotes(evidence), "† digits, kfac: nine trials."]
    found = {row[0]: row[1] for row in critical_rows(study, noted)[1]}
    assert [name for name, words in found.items() if words.endswith(" †")] == ["kfac"]


def against_published(evidence: Evidence, *ratios: float, size: int | None = None) -> Evidence:
    """The first cells of digits held against steps that they are so many times as many as, and a dropped one."""
    cells = evidence.measured["digits"].cells[: len(ratios)]
    steps = [cell.result.reported.minimum for cell in cells if cell.result.reported]
    published = {str(cell.batch_size): taken / ratio for cell, taken, ratio in zip(cells, steps, ratios, strict=True)}
    outside = {"sweep": "digits", "optimizer": "sgd", "published": {**published, "4096": 1.0}, "within": 0.15,
               "batch_sizes": [*(cell.batch_size for cell in cells), *([size] if size else [])]}  # fmt: skip
    return replace(evidence, document={**evidence.document, "outside": outside})


def test_published_steps_stand_beside_the_search(evidence: Evidence) -> None:
    heads, rows = outside_rows(evidence)
    assert [row[:2] for row in rows] == [["128", "676"], ["512", "303"], ["2,048", "177"]]
    assert [row[-1] for row in rows] == ["not measured", "not measured", "dropped"]
    assert len(heads) == len(rows[0])
    rows = outside_rows(against_published(evidence, 1.1, 1.2))[1]
    assert [row[-1] for row in rows] == ["holds", "fails", "dropped"]
    cell = evidence.measured["digits"].cells[0]
    assert cell.interval is not None
    assert rows[0][3:5] == ["1.10", f"{cell.steps:,.0f} ({cell.interval})"]


@pytest.mark.parametrize(
    ("ratios", "verdict", "says"),
    [
        ((1.1, 0.9), "holds", "at 2 of 2 batch sizes"),
        ((1.1, 0.8), "holds with a limit", "at 1 of 2 batch sizes"),
        ((1.2, 0.8), "fails", "at none of 2 batch sizes"),
    ],
)
def test_published_steps_hold_at_every_batch_size_or_with_a_limit_at_one(
    evidence: Evidence, ratios: tuple[float, ...], verdict: str, says: str
) -> None:
    made = against_published(evidence, *ratios)
    assert outside_verdict(made) == verdict
    words = outside_words(made)
    assert words.startswith(f"{verdict.capitalize()}: ")
    assert f"; they are {says} (4,096 was dropped" in words


def test_published_steps_are_not_judged_before_every_cell_is_complete(evidence: Evidence) -> None:
    made = against_published(evidence, 1.0, 1.0, size=4096)
    assert outside_verdict(made) == outside_verdict(evidence) == "not measured"
    assert "; it is complete at 2 of 3 batch sizes" in outside_words(made)
    assert "; it is complete at 0 of 2 batch sizes (2,048 was dropped" in outside_words(evidence)


def test_two_batch_sizes_have_no_critical_batch_size(evidence: Evidence, study: Study) -> None:
    found = evidence.measured["digits"]
    declared = found.declaration
    cut = replace(declared, batch_sizes=declared.batch_sizes[:2], max_steps=declared.max_steps[:2])
    few = replace(found, declaration=cut)
    sweeps = (replace(evidence.sweeps[0], name="few", result=few), *evidence.sweeps)
    heads, _ = critical_rows(study, replace(evidence, sweeps=sweeps))
    assert "digits" in heads
    assert "few" not in heads


def test_theory_and_networks_have_the_same_units(evidence: Evidence) -> None:
    frame = side_by_side_data(Study.of_power_law(50, 1.0, 10, "down", 0.1), evidence.measured)
    for place in ("theory", "digits"):
        sgd = frame[(frame["place"] == place) & (frame["optimizer"] == "sgd")]
        largest = sgd.iloc[-1]
        expected = 1 + 1 / largest["relative_batch_size"]
        assert largest["relative_steps"] == pytest.approx(expected, rel=0.3)
    networks = frame[frame["place"] == "digits"]
    assert (networks["relative_low"] < networks["relative_steps"]).all()
    assert (networks["relative_steps"] < networks["relative_high"].fillna(math.inf)).all()


def test_the_legend_names_what_some_picture_has(evidence: Evidence) -> None:
    frame = side_by_side_data(Study.of_power_law(50, 1.0, 10, "down", 0.1), evidence.measured)
    last = frame[(frame["place"] == "digits") & (frame["optimizer"] != "adam")].assign(place="another")
    figure = Figure()
    draw_side_by_side(figure.add_subplot(), pd.concat([frame, last]))
    assert {"adam"} < set(frame["optimizer"])
    legend = figure.axes[0].get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == ["sgd", "momentum", "adam", "kfac", "perfect scaling"]


def test_a_folder_without_evidence_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BatchlensError, match=r"declarations\.toml cannot be read"):
        bl.reproduce(tmp_path / "out", evidence=tmp_path)
