"""The explorer's documents: those of the command line, and sentences for bad values."""

import base64
import json
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import batchlens as bl
from batchlens.explorer import _export
from batchlens.explorer._answers import Answers
from batchlens.explorer._files import Files, load
from batchlens.explorer._pictures import picture
from batchlens.theory._by_coordinate import risk_by_coordinate
from batchlens.theory._nearby import tune_nearby
from tests.explorer.conftest import QUESTION, Ask
from tests.program import run

PROBLEM = bl.NoisyQuadratic.power_law(dim=10_000).binned(100, rounding="down")


def options(question: dict[str, Any]) -> str:
    """The same question as options of the command line."""
    values = {**{name: value for name, value in question.items() if name != "problem"}, **question["problem"]}
    return " ".join(f"--{name.replace('_', '-')} {shlex.quote(str(value))}" for name, value in values.items())


def test_curves_are_those_that_the_command_line_prints(ask: Ask, capsys: pytest.CaptureFixture[str]) -> None:
    status, answer = ask("/api/steps", QUESTION)
    printed = json.loads(run(f"steps {options(QUESTION)} --json", capsys)[1])
    assert status == 200
    assert answer["exact"]
    assert answer["curves"] == printed["curves"]


def test_a_schedule_is_the_one_that_the_command_line_prints(ask: Ask, capsys: pytest.CaptureFixture[str]) -> None:
    question = {"problem": QUESTION["problem"], "target": "0.1", "batch_size": "16", "power": "0.5"}
    _, answer = ask("/api/schedule", question)
    assert answer == json.loads(run(f"schedule {options(question)} --json", capsys)[1])


def test_the_risk_along_a_training_is_the_one_that_the_command_line_prints(
    ask: Ask, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = {"learning_rate": 0.5, "momentum": 0.3, "averaging": 0.1, "power": 0, "batch_size": 16}
    question = {"problem": QUESTION["problem"], **settings}
    status, answer = ask("/api/risk", question | {"optimizer": "momentum+ema", "steps": 40})
    assert status == 200
    spectrum = answer.pop("spectrum")
    steps = ",".join(map(str, answer["steps"]))
    assert answer == json.loads(run(f"risk {options(question)} --steps {steps} --json", capsys)[1])
    for left, noise in zip(spectrum["learning"], spectrum["noise"], strict=True):
        assert sum(left) + sum(noise) == pytest.approx(10_000, abs=100)  # each of 100 bands is rounded


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("target", "0"), ("target", "abc"), ("target", ""), ("target", "1e-300"), ("dim", "0"), ("dim", "1.5"),
        ("exponent", "-1"), ("exponent", "inf"), ("bins", "-1"), ("power", "1.5"), ("power", "0,x"),
        ("optimizer", "adam"), ("batch_sizes", "4..1"), ("batch_sizes", "0"), ("batch_sizes", "4,,8"),
    ],
)  # fmt: skip
def test_a_bad_value_gets_the_sentence_of_the_command_line(
    ask: Ask, capsys: pytest.CaptureFixture[str], name: str, value: str
) -> None:
    question = {**QUESTION, "problem": dict(QUESTION["problem"])}
    (question["problem"] if name in question["problem"] else question)[name] = value
    status, answer = ask("/api/steps", question)
    assert status == 400
    code, _, printed = run(f"steps {options(question)}", capsys)
    assert code == 2
    assert printed.strip() == f"batchlens: {answer['error']}"


def test_what_one_question_may_ask_for_is_limited(ask: Ask) -> None:
    def sentence(**values: Any) -> str:
        status, answer = ask("/api/steps", {**QUESTION, **values})
        assert status == 400
        return str(answer["error"])

    law = QUESTION["problem"]
    assert sentence(problem={**law, "dim": 10**7}) == "--dim must be at most 1000000, got 10000000."
    assert sentence(problem={**law, "dim": 10**5}) == "--bins must be at least 1 beyond 1000 coordinates, got 0."
    assert sentence(problem=[]) == "--problem must be an object, got []."
    assert sentence(power=",".join(f"{k / 20}" for k in range(20))).startswith("--optimizer with --power must make at")
    assert sentence(batch_sizes=",".join(map(str, range(1, 80)))) == "--batch-sizes must be at most 50, got 79."
    assert sentence(near=[{}]) == "--near must be the curves of an earlier answer, got something else."
    assert sentence(batch_sizes="4" * 2000) == "--batch-sizes must be shorter than 1000 characters, got 2000."


@pytest.mark.parametrize("family", ["sgd", "momentum", "nesterov", "sgd+ema", "momentum+ema"])
def test_following_the_best_rule_comes_close_to_finding_it(family: str) -> None:
    """From a problem a few moves of a slider away; within 5%, and 1% in the median."""
    moved = bl.NoisyQuadratic.power_law(dim=10_000, exponent=1.06).binned(100, rounding="down")
    errors = []
    for size in (4, 256, 4096, 65536):
        known, exact = bl.tune(PROBLEM, family, size, 0.01), bl.tune(moved, family, size, 0.012)
        assert known.rule is not None
        assert known.steps is not None
        assert exact.steps is not None
        found = tune_nearby(moved, family, size, 0.012, 0.0, known.rule, known.steps)
        assert found is not None
        errors.append(abs(np.log(found[0] / exact.steps)))
    assert max(errors) < 0.05
    assert np.median(errors) < 0.01


def test_a_rule_that_is_far_off_is_of_no_help() -> None:
    assert tune_nearby(PROBLEM, "sgd", 4, 1e-4, 0.0, bl.UpdateRule(1.9), 1) is None


def test_curves_that_are_followed_say_so(ask: Ask) -> None:
    _, first = ask("/api/steps", QUESTION)
    question = {**QUESTION, "target": "0.09", "near": first["curves"], "batch_sizes": "4..128"}
    _, followed = ask("/api/steps", question)
    _, exact = ask("/api/steps", {**question, "near": None})
    assert not followed["exact"]
    assert exact["exact"]
    for about, curve in zip(followed["curves"], exact["curves"], strict=True):
        steps = [[point["steps"] for point in each["points"]] for each in (about, curve)]
        assert steps[0] == pytest.approx(steps[1], rel=0.05)


def test_the_moment_at_which_a_target_is_reached_is_shown(ask: Ask) -> None:
    answer = ask("/api/steps", QUESTION)[1]
    point = answer["curves"][0]["points"][0]
    asked = {**QUESTION, **point, "optimizer": "sgd", "power": 0}
    training = ask("/api/risk", asked)[1]
    reached = training["steps"].index(point["steps"])
    assert training["risk"][reached] <= 0.1 < training["risk"][reached - 1]


WARM = """
import json, pkgutil
import batchlens.theory._kernels as kernels
from importlib import import_module
from batchlens.explorer._answers import Answers, go_on, warm_up
from batchlens.explorer._files import Files
from tests.explorer.conftest import QUESTION

def compiled():
    modules = [import_module(f"{kernels.__name__}.{each.name}") for each in pkgutil.iter_modules(kernels.__path__)]
    found = {id(entry): entry for module in modules for entry in vars(module).values()}
    return sum(len(entry.signatures) for entry in found.values() if hasattr(entry, "signatures"))

warm_up()
before = compiled()
answers, question = Answers(Files()), QUESTION | {"optimizer": "sgd,momentum,nesterov,sgd+ema,momentum+ema"}
curves = answers.steps(question, go_on)["curves"]
answers.steps(question | {"target": 0.11, "near": curves}, go_on)
for curve in curves:
    asked = question | curve["points"][-1] | {"optimizer": curve["optimizer"], "power": curve["power"]}
    answers.risk(asked, go_on), answers.schedule(asked, go_on)
print(json.dumps([before, compiled()]))
"""


def test_nothing_is_left_to_compile_once_the_page_is_there() -> None:
    done = subprocess.run([sys.executable, "-c", WARM], capture_output=True, text=True, check=True, timeout=600,
                          cwd=Path(__file__).parents[2])  # fmt: skip
    before, after = json.loads(done.stdout)
    assert 5 < before == after


def test_a_target_that_is_met_at_the_start_takes_no_step(ask: Ask) -> None:
    _, first = ask("/api/steps", QUESTION)
    for near in (None, first["curves"]):
        _, answer = ask("/api/steps", {**QUESTION, "target": "100", "near": near})
        assert {point["steps"] for curve in answer["curves"] for point in curve["points"]} == {0}


@pytest.mark.parametrize("rule", [bl.UpdateRule(1.5), bl.UpdateRule(0.2, 0.9), bl.UpdateRule(0.2, 0.9, True, 0.8, 0.5)])
def test_the_risk_of_coordinates_adds_up_and_is_that_of_each_alone(rule: bl.UpdateRule) -> None:
    problem = bl.NoisyQuadratic.power_law(dim=37)
    steps = [0, 1, 7, 1000]
    left, noise = risk_by_coordinate(problem, rule, 8, steps)
    whole = bl.risk_terms(problem, rule, 8, steps)
    assert left.sum(axis=1) == pytest.approx(whole.deterministic, rel=1e-12)
    assert noise.sum(axis=1) == pytest.approx(whole.noise, rel=1e-12)
    for i in (0, 16, 36):
        alone = bl.risk_terms(
            bl.NoisyQuadratic(problem.curvature[[i]], problem.noise[[i]], problem.initial[[i]]), rule, 8, steps
        )
        assert left[:, i] == pytest.approx(alone.deterministic, rel=1e-12)
        assert noise[:, i] == pytest.approx(alone.noise, rel=1e-12)


@pytest.mark.parametrize(("dim", "bands"), [(37, 128), (37, 8), (1000, 20)])
def test_bands_of_the_picture_hold_every_coordinate_once(dim: int, bands: int) -> None:
    problem = bl.NoisyQuadratic.power_law(dim)
    seen = picture(problem, bl.UpdateRule(0.5), 16, np.array([1, 10, 100]), bands)
    assert sum(seen["coordinates"]) == dim
    assert len(seen["curvature"]) <= bands
    assert seen["curvature"] == sorted(seen["curvature"], reverse=True)


def test_files_hold_problems_or_curves(ask: Ask, tmp_path: Path) -> None:
    def opened(name: str, text: str) -> dict[str, Any]:
        status, answer = ask("/api/open", {"name": name, "content": base64.b64encode(text.encode()).decode()})
        assert status == 200, answer
        return dict(answer)

    spectrum = opened("spectrum.csv", "curvature,noise,count\n2,1,1\n0.5,0.25,10\n")
    assert spectrum["problem"]["bins"] == 2
    assert spectrum["curves"] == []
    question = {**QUESTION, "problem": {"file": spectrum["file"], "bins": "100", "rounding": "mean"}}
    _, answer = ask("/api/steps", question)
    problem = bl.NoisyQuadratic([2, 0.5], [1, 0.25], [1, 1], [1, 10])
    best = bl.tune(problem, "sgd", 4, 0.1)
    assert answer["curves"][0]["points"][0]["steps"] == best.steps
    assert ask("/api/file", {"file": spectrum["file"]})[1] == spectrum

    runs = opened("runs.csv", "optimizer,batch_size,steps\nsgd,8,100\nsgd,16,60\nsgd,32,\nadam,8,70\n")
    assert [curve["optimizer"] for curve in runs["curves"]] == ["sgd", "adam"]
    assert [point["steps"] for point in runs["curves"][0]["points"]] == [100, 60, None]
    predicted = {"curves": [{"optimizer": "sgd", "points": [{"batch_size": 8, "steps": 50, "interval": [40, 70]}]}],
                 "problem": {"curvature": [1.0, 0.1]}}  # fmt: skip
    both = opened("prediction.json", json.dumps(predicted))
    assert both["problem"]["bins"] == 2
    assert both["curves"][0]["points"] == [{"batch_size": 8, "steps": 50, "interval": [40, 70]}]
    printed = opened("fit.json", json.dumps(bl.fit(bl.ScalingCurve([4, 16, 64], [100, 30, 12], optimizer="sgd"),
                                                   resamples=100).as_document()))  # fmt: skip
    assert [point["steps"] for point in printed["curves"][0]["points"]] == [100, 30, 12]


def test_a_sweep_is_laid_over_with_its_intervals() -> None:
    store = Path(__file__).parents[2] / "docs" / "digits-sweep" / "digits.sqlite"
    loaded = load("digits.sqlite", store.read_bytes())
    curves = bl.read_sweep(store).curves()
    assert [curve["optimizer"] for curve in loaded.curves] == list(curves)
    assert loaded.curves[0]["points"][0]["steps"] == next(iter(curves.values())).steps[0]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.csv", b"\xff\xfe"), ("a.csv", b""), ("a.csv", b"curvature\n-1\n"), ("a.csv", b"curvature\nx\n"),
        ("a.json", b"{"), ("a.json", b"{}"), ("a.json", b'{"curves": [{}]}'), ("a.json", b'{"moments": 3}'),
        ("a.json", b'{"moments": []}'), ("a.json", b'{"curvature": []}'),
        ("a.sqlite", b"SQLite format 3\0" + b"x" * 99),
        ("../../a.sqlite", b"SQLite format 3\0"), ("a.json", b'{"curves": 1}'), ("a.json", b'{"curvature": 1}'),
        ("a.json", b"[" * 100_000), ("a.csv", b"batch_size,steps\n1,-2\n"), ("a.json", b'{"problem": 1, "curves": []}'),
    ],
)  # fmt: skip
def test_a_file_that_cannot_be_read_is_refused_in_a_sentence(ask: Ask, name: str, content: bytes) -> None:
    status, answer = ask("/api/open", {"name": name, "content": base64.b64encode(content).decode()})
    assert status == 400
    assert answer["error"].endswith(".")
    assert "batchlens-" not in answer["error"]  # no temporary folder


def test_a_file_that_is_not_open_says_so(ask: Ask) -> None:
    for path, question in (("/api/file", {"file": "0" * 16}), ("/api/steps", QUESTION | {"problem": {
            "file": "x", "bins": "100", "rounding": "mean"}})):  # fmt: skip
        status, answer = ask(path, question)
        assert status == 400
        assert answer["error"] == "the file of this address is not open here. Choose it again."


def test_old_files_are_forgotten() -> None:
    files = Files()
    first = files.add("0.csv", b"curvature\n1\n")
    for k in range(2, 20):
        files.add(f"{k}.csv", f"curvature\n{k}\n".encode())
    with pytest.raises(bl.BatchlensError, match="not open"):
        files.find(first.digest)


def test_answers_are_remembered() -> None:
    answers = Answers(Files())
    checks: list[int] = []
    first = answers.steps(QUESTION, lambda: checks.append(1))
    asked = len(checks)
    assert asked
    assert answers.steps(QUESTION, lambda: checks.append(1)) == first
    assert len(checks) == asked


@pytest.mark.parametrize("place", ["no/such/folder/talk.html", "folder"])
def test_a_page_that_cannot_be_written_is_refused_before_it_is_computed(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "folder").mkdir()
    monkeypatch.setattr(_export, "build", pytest.fail)
    with pytest.raises(bl.BatchlensError, match=f"{place} cannot be written"):
        bl.export_explorer(tmp_path / place)
    assert [path.name for path in tmp_path.rglob("*")] == ["folder"]


def test_an_export_that_fails_leaves_no_file(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="optimizer"):
        bl.export_explorer(tmp_path / "talk.html", optimizers=["adam"])
    assert not list(tmp_path.iterdir())
