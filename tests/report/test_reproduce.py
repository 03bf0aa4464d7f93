"""The report: complete, the same every time, true to its numbers, and written whole or not at all."""

import csv
import dataclasses
import json
import math
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from html import escape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, NoReturn
from xml.etree import ElementTree

import pandas as pd
import pytest

from batchlens import BatchlensError, UpdateRule, risk, tune
from batchlens.report import _paper
from batchlens.report._page.numbers import csv_of, rows_of
from batchlens.report._page.records import Claim, PanelPlan
from batchlens.report._paper import write_paper
from batchlens.report._theory.evidence import check_claims
from batchlens.report._theory.panels import PANELS
from batchlens.report._theory.study import Study
from batchlens.report.reproduction import reproduce
from tests.report.conftest import Report
from tests.report.test_claims import CHECKS

SOME_CLAIM = Claim("some", "Some claim.", "section 1", "A number.", "1", "at least 0", "holds")
SOME_PANEL = next(plan for plan in PANELS if plan.number == "2a")


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def without_seconds(page: bytes) -> str:
    text, count = re.subn(r"in \d+\.\d s\.", "in S s.", page.decode())
    assert count == 1
    return text


def read_rows(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(path.read_text(encoding="utf-8").splitlines()))


@pytest.fixture
def brief(monkeypatch: pytest.MonkeyPatch) -> None:
    """A report of one claim and one figure: as good as a whole one where only the folder matters."""
    monkeypatch.setattr(_paper, "PANELS", (SOME_PANEL,))
    monkeypatch.setattr(_paper, "plan_checks", lambda _: [lambda: SOME_CLAIM])


@pytest.fixture
def nothing_is_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_paper, "plan_checks", break_down(AssertionError("the folder is wrong from the start")))


def break_down(error: BaseException) -> Callable[[Study], list[Callable[[], Claim]]]:
    """`plan_checks`, but the second check raises."""

    def check() -> Claim:
        raise error

    return lambda _: [lambda: SOME_CLAIM, check]


def test_every_file_is_there(report: Report) -> None:
    pictures = {f"{plan.slug}.{kind}" for plan in PANELS for kind in ("svg", "png")}
    tables = {f"{plan.numbers}.csv" for plan in PANELS}
    assert set(files(report.folder)) == {"index.html", "claims.csv"} | pictures | tables


def test_figures_cover_the_papers_and_more() -> None:
    numbers = [plan.number for plan in PANELS]
    assert len(numbers) == len(set(numbers))
    assert {re.sub("[a-z]", "", number) for number in numbers} == {str(i) for i in range(1, 12)}


def test_pictures_are_pictures(report: Report) -> None:
    for plan in PANELS:
        root = ElementTree.parse(report.folder / f"{plan.slug}.svg").getroot()
        assert root.tag.endswith("svg")
        assert (report.folder / f"{plan.slug}.png").read_bytes().startswith(b"\x89PNG\r\n\x1a\n")


@pytest.mark.slow
def test_the_same_parameters_give_the_same_bytes(report: Report, tmp_path: Path) -> None:
    """In another process, with another hash seed, in another time zone, through the command line."""
    command = [sys.executable, "-m", "batchlens", "reproduce", "--dim", "50", "--bins", "10", "--target", "0.05"]
    surroundings = {"PYTHONHASHSEED": "12345", "TZ": "Asia/Tokyo", "LC_ALL": "C"}
    out = tmp_path / "out"
    given = {"check": True, "capture_output": True, "env": os.environ | surroundings, "cwd": tmp_path}
    subprocess.run([*command, "--out", str(out)], **given)  # type: ignore[call-overload]
    ours, theirs = files(report.folder), files(out)
    assert without_seconds(theirs.pop("index.html")) == without_seconds(ours.pop("index.html"))
    assert {name for name in ours if theirs.get(name) != ours[name]} == set()
    assert set(theirs) == set(ours)


@pytest.mark.parametrize("plan", PANELS, ids=lambda plan: plan.number)
def test_csv_has_the_numbers_of_the_figure(report: Report, plan: PanelPlan[Study]) -> None:
    frame = plan.data(report.study)
    rows = read_rows(report.folder / f"{plan.numbers}.csv")
    assert rows == [
        {name: "" if pd.isna(value) else str(value) for name, value in row.items()} for row in rows_of(frame)
    ]
    assert list(rows[0]) == list(frame.columns)


def test_csv_floats_are_in_full(report: Report) -> None:
    cell = ("tuned", 0.5, 256)
    rows = read_rows(report.folder / "learning-rates.csv")
    (row,) = (row for row in rows if (row["kind"], float(row["power"]), float(row["batch_size"])) == cell)
    best = tune(report.study.problem, "momentum", 256, report.study.target, power=0.5)
    assert best.rule is not None
    assert (float(row["learning_rate"]), float(row["momentum"])) == (best.rule.learning_rate, best.rule.momentum)


def test_csv_steps_are_what_the_rules_take(report: Report) -> None:
    """The rule of targets.csv is at the target after its steps and above it one before."""
    rows = [row for row in read_rows(report.folder / "targets.csv") if float(row["batch_size"]) == 64]
    assert len(rows) == 5
    for row in rows:
        rule, steps = UpdateRule(float(row["learning_rate"])), int(row["steps"])
        before, after = risk(report.study.problem, rule, 64, [steps - 1, steps])
        assert after <= float(row["target"]) < before


def test_claims_csv_has_every_claim(report: Report) -> None:
    assert read_rows(report.folder / "claims.csv") == [
        {name: str(value) for name, value in vars(claim).items()} for claim in report.claims
    ]


def test_a_reproduction_is_at_home_in_a_notebook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    limited = dataclasses.replace(SOME_CLAIM, name="other", verdict="holds with a limit", note="At power 0.")
    monkeypatch.setattr(_paper, "PANELS", (SOME_PANEL,))
    monkeypatch.setattr(_paper, "plan_checks", lambda _: [lambda: SOME_CLAIM, lambda: limited])
    seen: list[tuple[int, int, str]] = []
    found = reproduce(tmp_path / "here", dim=10, bins=0, target=0.1, progress=lambda *words: seen.append(words))
    assert repr(found) == "<Reproduction: 1 claim holds, 1 holds with a limit, 0 fail.>"
    assert found.claims == (SOME_CLAIM, limited)
    assert found.page == tmp_path / "here" / "index.html"
    assert found.page.is_file()
    assert csv_of(found.to_frame()) == (tmp_path / "here" / "claims.csv").read_text(encoding="utf-8")
    claims = [vars(SOME_CLAIM), vars(limited)]
    assert found.as_document() == {"page": str(found.page), "claims": claims, "networks": []}
    json.dumps(found.as_document())
    assert "At power 0." in found._repr_html_()
    assert seen == [(1, 3, "claim: some"), (2, 3, "claim: other"), (3, 3, "figure 2a")]


@pytest.mark.usefixtures("brief")
def test_parameters_reach_the_page(tmp_path: Path) -> None:
    given: dict[str, Any] = {"dim": 30, "exponent": 1.5, "bins": 7, "rounding": "mean", "target": 0.125}
    page = reproduce(str(tmp_path), **given).page.read_text(encoding="utf-8")
    for name, value in given.items():
        assert f"<dt>{name}</dt><dd>{value}</dd>" in page


def test_every_check_is_made_once(report: Report) -> None:
    names = [claim.name for claim in report.claims]
    assert len(names) == len(set(names)) == len(CHECKS) == 25


def test_progress_knows_how_much_there_is_to_do(report: Report) -> None:
    total = len(report.claims) + len(PANELS)
    assert [(done, of) for done, of, _ in report.progress] == [(done, total) for done in range(1, total + 1)]


class Links(HTMLParser):
    """What a page refers to, and what can be referred to in it."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.targets: list[str] = []
        self.ids: set[str] = set()
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name in ("href", "src"):
                self.targets.append(value or "")
            if name == "id":
                self.ids.add(value or "")


def test_page_tells_everything(report: Report) -> None:
    page = (report.folder / "index.html").read_text(encoding="utf-8")
    for claim in report.claims:
        for words in (claim.sentence, claim.source, claim.measure, claim.found, claim.threshold, claim.note):
            assert escape(words) in page
    for plan in PANELS:
        assert f'<span class="number">{plan.number}</span>' in page
        assert escape(plan.title) in page
        assert escape(plan.caption) in page
    for name, value in report.study.parameters.items():
        assert f"<dt>{name}</dt><dd>{value}</dd>" in page
    assert page.count("<svg ") == len(PANELS)


def test_page_refers_to_nothing_outside_the_folder(report: Report) -> None:
    page = (report.folder / "index.html").read_text(encoding="utf-8")
    links = Links(page)
    assert len(links.targets) > 2 * len(PANELS)
    for target in links.targets:
        inside = target[1:] in links.ids if target.startswith("#") else (report.folder / target).is_file()
        assert inside or target == "data:,", target
    assert re.findall(r"https?://|@import|<script|url\((?!#)", page) == []


def test_progress_names_what_is_done(report: Report) -> None:
    names = [name for _, _, name in report.progress]
    assert names == [
        *(f"claim: {claim.name}" for claim in report.claims),
        *(f"figure {plan.number}" for plan in PANELS),
    ]


def test_found_numbers_are_numbers(report: Report) -> None:
    assert [claim.name for claim in report.claims if re.search(r"\bnan\b|\binf\b", claim.found)] == []


def test_another_problem_gives_other_numbers(report: Report) -> None:
    other = Study.of_power_law(dim=80, exponent=1.5, bins=8, rounding="mean", target=0.02)
    found = {claim.name: claim.found for claim in check_claims(other)}
    same = {claim.name for claim in report.claims if found[claim.name] == claim.found}
    # One coordinate at alpha h = 0.0005 is all that is looked at there, and shares of nothing or of all are alike.
    assert same <= {"momentum_moves_like_sgd", "averaging_large_batches", "dimensions"}


def test_harder_targets_leave_out_what_is_reached_at_the_start() -> None:
    study = Study.of_power_law(dim=50, bins=5, target=0.5)
    (claim,) = (claim for claim in check_claims(study) if claim.name == "harder_targets")
    assert len(claim.found.split(",")) == 4


def test_variances_that_start_below_the_target_are_left_out() -> None:
    study = Study.of_power_law(dim=20, bins=5, target=0.5)
    (claim,) = (claim for claim in check_claims(study) if claim.name == "initial_variance")
    assert "nan" not in claim.found


def test_targets_near_the_initial_risk_can_be_studied() -> None:
    study = Study.of_power_law(dim=100, bins=5, target=1.5)
    assert len(list(check_claims(study))) == len(CHECKS)


def test_targets_beyond_reach_end_in_one_line() -> None:
    study = Study.of_power_law(dim=20, bins=5, target=1e-13)
    with pytest.raises((ValueError, BatchlensError), match="target"):
        list(check_claims(study))


@pytest.mark.usefixtures("brief")
def test_an_earlier_report_is_replaced_and_other_files_stay(study: Study, tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text("old")
    (tmp_path / "notes.txt").write_text("mine")
    write_paper(study, tmp_path)
    assert (tmp_path / "index.html").read_text().startswith("<!DOCTYPE html>")
    assert (tmp_path / "notes.txt").read_text() == "mine"
    assert set(files(tmp_path)) == {
        "notes.txt", "index.html", "claims.csv", "momentum.csv", "figure-2a.svg", "figure-2a.png",
    }  # fmt: skip


@pytest.mark.usefixtures("brief")
def test_missing_parents_are_made(study: Study, tmp_path: Path) -> None:
    write_paper(study, tmp_path / "one" / "two")
    assert [path.name for path in tmp_path.iterdir()] == ["one"]
    assert [path.name for path in (tmp_path / "one").iterdir()] == ["two"]


@pytest.mark.usefixtures("brief")
def test_the_current_folder_will_do(study: Study, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_paper(study, Path())
    assert "index.html" in files(tmp_path)
    assert [name for name in files(tmp_path) if name.startswith(".")] == []


@pytest.mark.usefixtures("nothing_is_computed")
def test_a_file_in_the_way(study: Study, tmp_path: Path) -> None:
    (tmp_path / "report").write_text("mine")
    for out in (tmp_path / "report", tmp_path / "report" / "inside"):
        with pytest.raises(BatchlensError, match=f"{re.escape(str(out))} .*--out") as caught:
            write_paper(study, out)
        assert "\n" not in str(caught.value)
    assert files(tmp_path) == {"report": b"mine"}


@pytest.mark.skipif(not Path("/sys/kernel").is_dir(), reason="needs a folder in which nobody can write")
def test_a_folder_that_cannot_be_made(study: Study) -> None:
    before = set(Path("/sys").iterdir())
    with pytest.raises(BatchlensError, match=r"^/sys/report cannot be written \(.+\)\. Choose .* --out\.$"):
        write_paper(study, Path("/sys/report"))
    assert set(Path("/sys").iterdir()) == before


def test_a_folder_that_may_not_be_written(study: Study, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "report"
    out.mkdir(mode=0o500)

    def refuse(*_: object, **__: object) -> NoReturn:  # root may write everywhere
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(tempfile, "mkdtemp", refuse)
    with pytest.raises(BatchlensError, match=r"report cannot be written \(Permission denied\)"):
        write_paper(study, out)
    assert list(tmp_path.iterdir()) == [out]
    assert list(out.iterdir()) == []


@pytest.mark.parametrize("error", [RuntimeError("oh"), KeyboardInterrupt(), OSError(28, "No space left on device")])
def test_an_error_midway_leaves_everything_as_it_was(
    study: Study, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    out = tmp_path / "report"
    out.mkdir()
    (out / "index.html").write_text("old")
    monkeypatch.setattr(_paper, "plan_checks", break_down(error))
    expected = BatchlensError if isinstance(error, OSError) else type(error)
    with pytest.raises(expected):
        write_paper(study, out)
    assert files(out) == {"index.html": b"old"}
    assert list(tmp_path.iterdir()) == [out]


@pytest.mark.usefixtures("brief")
def test_an_error_while_a_figure_is_drawn_leaves_nothing(
    study: Study, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def draw(*_: object) -> None:
        raise RuntimeError("oh")

    monkeypatch.setattr(_paper, "draw_panel", draw)
    with pytest.raises(RuntimeError, match="oh"):
        write_paper(study, tmp_path / "report")
    assert list(tmp_path.iterdir()) == []


def test_an_error_leaves_no_parents_behind(study: Study, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_paper, "plan_checks", break_down(RuntimeError("oh")))
    with pytest.raises(RuntimeError, match="oh"):
        write_paper(study, tmp_path / "one" / "report")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("brief")
def test_a_folder_in_the_place_of_a_file_leaves_everything_as_it_was(study: Study, tmp_path: Path) -> None:
    (tmp_path / "figure-2a.png").mkdir()
    with pytest.raises(BatchlensError, match="--out"):
        write_paper(study, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["figure-2a.png"]


@pytest.mark.usefixtures("brief")
@pytest.mark.skipif(not os.path.ismount("/dev/shm"), reason="needs a mounted folder")
def test_a_mounted_folder_will_do(study: Study, monkeypatch: pytest.MonkeyPatch) -> None:
    before = set(Path("/dev/shm").iterdir())
    try:
        write_paper(study, Path("/dev/shm"))
        assert Path("/dev/shm/index.html").is_file()
    finally:
        for path in set(Path("/dev/shm").iterdir()) - before:
            path.unlink()


@pytest.fixture(scope="module")
def paper() -> dict[str, Claim]:
    """The claims on the paper's problem."""
    return {claim.name: claim for claim in check_claims(Study.of_power_law())}


@pytest.mark.slow
def test_verdicts_on_the_papers_problem(paper: dict[str, Claim]) -> None:
    assert len(paper) == len(CHECKS)
    assert [claim.name for claim in paper.values() if claim.verdict == "fails"] == []
    assert {claim.name for claim in paper.values() if claim.verdict == "holds with a limit"} == {
        "momentum_small_batches",
        "optimal_momentum_overdamped",
        "momentum_moves_like_sgd",
        "schedules_large_batches",
    }


@pytest.mark.slow
def test_the_documentation_shows_these_verdicts(paper: dict[str, Claim]) -> None:
    """docs/theory-claims.csv is the claims.csv of `make reproduce`: copy it anew where a claim has changed."""
    with (Path(__file__).parents[2] / "docs" / "theory-claims.csv").open(encoding="utf-8", newline="") as file:
        shown = {row["name"]: (row["sentence"], row["verdict"]) for row in csv.DictReader(file)}
    assert shown == {claim.name: (claim.sentence, claim.verdict) for claim in paper.values()}


@pytest.mark.slow
def test_only_extreme_momentum_helps_at_small_batches(paper: dict[str, Claim]) -> None:
    found = re.fullmatch(r"(.+)% at 0\.9, (.+)% at (.+)", paper["momentum_small_batches"].found)
    assert found
    moderate, tuned, momentum = map(float, found.groups())
    assert abs(moderate) < 1
    assert 14 <= tuned <= 21
    assert momentum > 0.9999


@pytest.mark.slow
def test_where_the_bound_on_momentum_fails(paper: dict[str, Claim]) -> None:
    """Only at powers 0.5 and 0.75, from batch size 262,144 on."""
    claim = paper["optimal_momentum_overdamped"]
    assert claim.note.startswith("Exceeded at powers 0.5, 0.75 from batch size 262,144 on")
    study = Study.of_power_law()
    for power in study.powers:
        flattest = float(study.problem.curvature.min()) ** (1 - power)
        for size in (65_536, 262_144, 1_048_576):
            best = tune(study.problem, "momentum", size, study.target, power)
            assert best.rule is not None
            limit = (1 - math.sqrt(best.rule.learning_rate * flattest)) ** 2
            if power < 0.5 or size < 262_144:
                assert best.rule.momentum <= limit


@pytest.mark.slow
def test_schedules_help_at_large_batches_beyond_the_cap(paper: dict[str, Claim]) -> None:
    claim = paper["schedules_large_batches"]
    times = re.search(r"risk (.+) times as high", claim.found)
    assert times
    assert float(times[1]) > 100
    assert "cap only" in claim.note


@pytest.mark.slow
def test_a_steeper_problem_can_be_reproduced(tmp_path: Path) -> None:
    """The issue's other problem: nothing is hard-wired to the paper's numbers."""
    study = Study.of_power_law(dim=1000, exponent=1.5, target=0.05)
    found = write_paper(study, tmp_path)
    assert len(found) == len(CHECKS)
    assert [claim.name for claim in found if re.search(r"\bnan\b|\binf\b", claim.found)] == []
    assert "<dt>exponent</dt><dd>1.5</dd>" in (tmp_path / "index.html").read_text(encoding="utf-8")
