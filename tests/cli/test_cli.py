"""The command line: readable tables, the JSON that was promised, and one line where something is wrong."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, NoReturn

import click
import pytest

import batchlens
from batchlens import NoisyQuadratic, UpdateRule, cli, optimal_schedule, risk, steps_to_target, tune
from batchlens._shapes import SHAPES
from batchlens.report import _paper
from batchlens.report._page.records import Claim
from batchlens.report._theory.panels import PANELS

SMALL = "--dim 50 --bins 10"
PROBLEM = NoisyQuadratic.power_law(50).binned(10, rounding="down")
MODULE = [sys.executable, "-m", "batchlens"]


@dataclass(frozen=True)
class Outcome:
    """How a command ended, and what it printed."""

    status: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        """The one JSON document on standard output, with nothing around it."""
        assert (self.status, self.err) == (0, "")
        assert self.out.count("\n") == 1
        return json.loads(self.out, parse_constant=_refuse)


def _refuse(name: str) -> NoReturn:
    raise AssertionError(f"{name} is not JSON")


Run = Callable[[str], Outcome]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """The program in this process."""

    def call(command: str) -> Outcome:
        monkeypatch.setattr(sys, "argv", ["batchlens", *shlex.split(command)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            cli.main()
        assert isinstance(ended.value.code, int)
        return Outcome(ended.value.code, *capsys.readouterr())

    return call


# ---------------------------------------------------------------------------------------------
# What comes out
# ---------------------------------------------------------------------------------------------


def test_risk_as_json(run: Run) -> None:
    found = run(f"risk --learning-rate 0.1 --momentum 0.9 --batch-size 256 --steps 10,1000 {SMALL} --json").document
    assert found["steps"] == [10, 1000]
    assert found["risk"] == risk(PROBLEM, UpdateRule(0.1, 0.9), 256, [10, 1000]).tolist()
    assert [a + b for a, b in zip(found["deterministic"], found["noise"], strict=True)] == pytest.approx(found["risk"])


def test_risk_as_a_table(run: Run) -> None:
    found = run(
        "risk --learning-rate 0.1 --nesterov --momentum 0.9 --averaging 0.99 --batch-size 256 --steps 1024..4096"
    )
    assert (found.status, found.err) == (0, "")
    title, *table = found.out.splitlines()
    assert title == "nesterov+ema, learning rate 0.1, momentum 0.9, averaging 0.99, batch size 256"
    assert re.findall(r"\w+", table[1]) == ["steps", "risk", "deterministic", "noise"]
    assert [re.findall(r"[\d,.e-]+", line)[0] for line in table[3:-1]] == ["1,024", "2,048", "4,096"]


def test_a_diverged_risk_is_null(run: Run) -> None:
    assert run(f"risk --learning-rate 100 --batch-size 4 --steps 1000 {SMALL} --json").document["risk"] == [None]


def test_problem_options(run: Run) -> None:
    command = "risk --learning-rate 0.1 --batch-size 16 --steps 7 --json --dim 30 --exponent 1.5 --bins"
    rule = UpdateRule(0.1)
    whole = NoisyQuadratic.power_law(30, 1.5)
    for end, problem in (("0", whole), ("5", whole.binned(5, "down")), ("5 --rounding mean", whole.binned(5, "mean"))):
        assert run(f"{command} {end}").document["risk"] == [risk(problem, rule, 16, 7)]


def test_tuned_steps_as_json(run: Run) -> None:
    options = "--optimizer sgd,momentum+ema --power 0,0.5 --batch-sizes 4,16,64 --target 0.05"
    curves = run(f"steps {options} {SMALL} --json").document["curves"]
    assert [(curve["optimizer"], curve["power"]) for curve in curves] == [
        ("sgd", 0.0), ("sgd", 0.5), ("momentum+ema", 0.0), ("momentum+ema", 0.5),
    ]  # fmt: skip
    for curve in curves:
        critical = curve["critical_batch_size"]
        assert critical["definition"] == "knee"
        assert critical["relation"] in ("=", ">=", "<=")
        assert isinstance(critical["value"], float)
        for point, size in zip(curve["points"], (4, 16, 64), strict=True):
            best = tune(PROBLEM, curve["optimizer"], size, 0.05, curve["power"])
            assert best.rule is not None
            assert point == {
                "batch_size": size,
                "steps": best.steps,
                "learning_rate": best.rule.learning_rate,
                "momentum": best.rule.momentum,
                "averaging": best.rule.averaging,
                "status": "reached",
                "limits": list(best.limits),
            }
            assert isinstance(point["batch_size"], int)
            assert isinstance(point["steps"], int)


def test_tuned_steps_as_a_table(run: Run) -> None:
    found = run(f"steps --optimizer sgd,momentum --batch-sizes 4..1024 --target 0.05 {SMALL}")
    assert (found.status, found.err) == (0, "")
    first, second = re.split(r"\n(?=momentum)", found.out)
    assert re.match(r"sgd, power 0, target 0\.05: critical batch size [\d.]+\n", first)
    heads = ["batch size", "steps", "learning rate", "momentum", "averaging", "status"]
    for part in (first, second):
        assert all(head in part.splitlines()[2] for head in heads)
        assert "1,024" in part
        assert part.count("reached") == 9


def test_fixed_steps(run: Run) -> None:
    options = "--learning-rate 0.2 --momentum 0.5 --power 0,0.25 --batch-sizes 4,256 --target 0.05"
    curves = run(f"steps {options} {SMALL} --json").document["curves"]
    assert [(curve["optimizer"], curve["power"]) for curve in curves] == [("momentum", 0.0), ("momentum", 0.25)]
    for curve in curves:
        rule = UpdateRule(0.2, 0.5, power=curve["power"])
        small, large = curve["points"]
        assert (small["steps"], small["status"]) == (None, "steady_state_above_target")
        assert (large["steps"], large["status"]) == (steps_to_target(PROBLEM, rule, 256, 0.05), "reached")
        assert (large["learning_rate"], large["momentum"], large["averaging"]) == (0.2, 0.5, 0.0)
    table = run(f"steps {options} {SMALL}").out
    assert "steady_state_above_target" in table
    assert "-" in table


def test_a_target_that_is_met_at_the_start_takes_no_steps(run: Run) -> None:
    (curve,) = run(f"steps --optimizer sgd --batch-sizes 4 --target 100 {SMALL} --json").document["curves"]
    assert curve["points"][0]["steps"] == 0
    assert curve["critical_batch_size"] == {"value": None, "relation": "unknown", "definition": "knee"}


@pytest.mark.parametrize(
    ("text", "sizes"),
    [
        ("4,16,64", [4, 16, 64]),
        ("4..4096", [2**k for k in range(2, 13)]),
        ("64,4,16,4", [4, 16, 64]),
        ("4..16,100", [4, 8, 16, 100]),
        ("3..20", [3, 6, 12]),
        ("8..8", [8]),
        ("0.5,1e3", [0.5, 1000]),
    ],
)
def test_batch_sizes(run: Run, text: str, sizes: list[float]) -> None:
    found = run(f"steps --learning-rate 0.01 --batch-sizes {text} --target 0.5 {SMALL} --json").document
    assert [point["batch_size"] for point in found["curves"][0]["points"]] == sizes


def test_schedule_as_json(run: Run) -> None:
    found = run(f"schedule --batch-size 16 --pieces 7 --target 0.05 {SMALL} --json").document
    plan = optimal_schedule(PROBLEM, 16, 0.05, pieces=7)
    assert {"steps", "risk", "lengths", "learning_rates"} <= set(found)
    assert found["steps"] == plan.steps == sum(found["lengths"])
    assert found["risk"] == plan.risk <= 0.05
    assert found["learning_rates"] == plan.learning_rates.tolist()
    assert len(found["lengths"]) == 7


def test_schedule_as_a_table(run: Run) -> None:
    found = run(f"schedule --batch-size 16 --pieces 3 --target 0.05 {SMALL}")
    assert (found.status, found.err) == (0, "")
    title, *table = found.out.splitlines()
    assert title == f"{optimal_schedule(PROBLEM, 16, 0.05, pieces=3).steps} steps to 0.05 at batch size 16, momentum 0"
    assert len(table) == 3 + 3 + 1


def test_schedules_compared(run: Run) -> None:
    options = f"schedule --batch-size 64 --target 0.05 --power 0.25 {SMALL} --compare"
    found = run(f"{options} --json").document
    assert [row["shape"] for row in found["ready_made"]] == list(SHAPES)
    for row in found["ready_made"]:
        assert row["steps"] >= found["steps"]
        assert row["largest_learning_rate"] > 0
    table = run(options).out
    assert all(shape in table for shape in SHAPES)


def test_schedule_with_tuned_momentum_and_a_cap(run: Run) -> None:
    command = f"schedule --batch-size 1024 --target 0.05 {SMALL} --json"
    plain, tuned = run(command).document, run(f"{command} --momentum tuned").document
    assert 0 < tuned["momentum"] < 1
    assert tuned["steps"] <= plain["steps"]
    capped = run(f"{command} --max-learning-rate 0.5").document
    assert max(capped["learning_rates"]) <= 0.5


RUNS = """batch_size,steps,optimizer,seconds
16,8000,sgd,80
64,2000,sgd,22
256,520,sgd,7
1024,200,sgd,5
4096,190,sgd,9
"""


def test_fit(run: Run, tmp_path: Path) -> None:
    (tmp_path / "runs.csv").write_text(RUNS)
    command = f"fit {tmp_path / 'runs.csv'} --predict 32..128"
    (fit,) = run(f"{command} --json").document["fits"]
    assert (fit["optimizer"], fit["batch_sizes"]) == ("sgd", [16, 64, 256, 1024, 4096])
    assert [entry["definition"] for entry in fit["critical_batch_sizes"]] == ["knee", "overhead", "fit", "bend"]
    assert [entry["batch_size"] for entry in fit["predictions"]] == [32, 64, 128]
    assert fit["fastest"] == 1024
    table = run(command)
    assert (table.status, table.err) == (0, "")
    assert "sgd: critical batch size" in table.out
    assert "sgd: fastest batch size 1,024" in table.out
    assert table.out.startswith("With sgd, the critical batch size is about 843 ")
    assert fit["sentence"].startswith("With sgd, the critical batch size is about 843 ")
    assert fit["fastest_range"][0] <= 1024 <= fit["fastest_range"][1]


def test_fit_writes_a_page(run: Run, tmp_path: Path) -> None:
    (tmp_path / "runs.csv").write_text(RUNS)
    command = f"fit {tmp_path / 'runs.csv'} --out {tmp_path / 'page'}"
    assert f"Page: {tmp_path / 'page' / 'index.html'}" in run(command).out.replace("\n", "")
    assert (tmp_path / "page" / "steps.csv").is_file()
    assert run(f"{command} --json").document["page"] == str(tmp_path / "page" / "index.html")


LOGS = Path(__file__).parent.parent / "scaling" / "logs"


def test_fit_reads_logs(run: Run) -> None:
    command = f"fit {LOGS}/lightning/b64/metrics.csv {LOGS}/wandb/b16*.csv --metric val_loss --target 0.6"
    found = run(f"{command} --batch-size-from b([0-9]+)")
    assert (found.status, found.err) == (0, "")
    assert "Target: val_loss at most 0.6, smoothed by the median of the records within 10% of a step." in found.out
    document = run(f"{command} --batch-size-from b([0-9]+) --smoothing 0 --direction down --runs mean --json").document
    assert document["fits"][0]["batch_sizes"] == [16, 64]
    assert document["notes"][0] == "Target: val_loss at most 0.6, unsmoothed."


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--metric val_los --target 1", "has no metric val_los, only epoch, train_loss, val_accuracy, val_loss. Did"),
        ("--metric val_loss", "--metric and --target must be given together"),
        ("--metric val_loss --target low", "--target must be a number, got low."),
        ("--metric val_loss --target 1 --batch-size-from x", "must have a group for the batch size"),
        ("--metric val_loss --target 1 --smoothing 300%", "must be in [0, 1], got 3.0."),
        ("", "has the metrics epoch, train_loss, val_accuracy, val_loss."),
    ],
)
def test_bad_questions_to_logs_end_with_one_line(run: Run, options: str, message: str) -> None:
    found = run(f"fit {LOGS}/lightning {options}")
    assert found.status in (1, 2)
    assert found.out == ""
    assert message in found.err
    assert found.err.count("\n") == 1


@pytest.mark.parametrize("text", ["", "batch_size\n16\n", "batch_size,steps\n16,many\n", "\0\n", None])
def test_runs_that_cannot_be_read_end_with_one_line(run: Run, tmp_path: Path, text: str | None) -> None:
    path = tmp_path / "runs.csv"
    if text is not None:
        path.write_text(text)
    found = run(f"fit {path}")
    assert found.status in (1, 2)
    assert found.out == ""
    assert re.fullmatch(r"batchlens: .*runs\.csv.*\n", found.err)


SOME = Claim("some", "Some claim.", "section 1", "A number.", "1", "at least 0", "holds")


@pytest.fixture
def brief(monkeypatch: pytest.MonkeyPatch) -> None:
    """A report of one claim and one figure."""
    monkeypatch.setattr(_paper, "PANELS", tuple(plan for plan in PANELS if plan.number == "2a"))
    monkeypatch.setattr(_paper, "plan_checks", lambda _: [lambda: SOME])


@pytest.mark.usefixtures("brief")
def test_reproduce_ends_with_the_claims_and_the_place(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    found = run(f"reproduce --target 0.05 {SMALL}")
    assert (found.status, found.err) == (0, "")
    summary, *table, place = found.out.splitlines()
    assert summary == "1 claim holds, 0 hold with a limit, 0 fail."
    assert [line for line in table if "some" in line and "holds" in line]
    assert place == f"Page: {Path('report') / 'index.html'}"
    assert (tmp_path / "report" / "index.html").is_file()


@pytest.mark.usefixtures("brief")
def test_reproduce_as_json(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # where there is no evidence
    found = run(f"reproduce --out {tmp_path / 'here'} --target 0.05 {SMALL} --json").document
    assert found == {"page": str(tmp_path / "here" / "index.html"), "claims": [vars(SOME)], "networks": []}


def test_reproduce_into_a_file_ends_with_one_line(run: Run, tmp_path: Path) -> None:
    (tmp_path / "report").write_text("mine")
    found = run(f"reproduce --out {tmp_path / 'report'} {SMALL} --target 0.05")
    assert found.status == 1
    assert found.out == ""
    assert re.fullmatch(r"batchlens: .*report is a file; .* --out\.\n", found.err)
    assert [path.name for path in tmp_path.iterdir()] == ["report"]


# ---------------------------------------------------------------------------------------------
# Help
# ---------------------------------------------------------------------------------------------

COMMANDS = sorted(cli.cli.commands)


def examples(command: str) -> list[str]:
    lines = (cli.cli.commands[command].help or "").splitlines()
    return [line.strip() for line in lines if line.strip().startswith("batchlens ")]


def test_commands_of_the_design() -> None:
    assert {"risk", "steps", "schedule", "reproduce"} <= set(COMMANDS)


@pytest.mark.parametrize("flag", ["--help", "-h"])
@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_an_example(run: Run, command: str, flag: str) -> None:
    found = run(f"{command} {flag}")
    assert (found.status, found.err) == (0, "")
    assert re.search(rf"^ +batchlens {command}\b", found.out, re.MULTILINE)
    assert "--json" in found.out
    options = [param for param in cli.cli.commands[command].params if isinstance(param, click.Option)]
    assert [option.name for option in options if not option.help] == []


def test_program_help_names_every_command(run: Run) -> None:
    found = run("--help")
    assert found.status == 0
    for command in COMMANDS:
        assert re.search(rf"^  {command}  +\w", found.out, re.MULTILINE)
    assert "batchlens risk --learning-rate" in found.out


def test_no_command_is_a_question_for_help(run: Run) -> None:
    found = run("")
    assert (found.status, found.out) == (2, "")
    assert found.err.startswith("Usage: ")
    assert all(command in found.err for command in COMMANDS)


def test_version(run: Run) -> None:
    assert run("--version").out == f"batchlens, version {batchlens.__version__}\n"


@pytest.mark.parametrize("example", [line for name in ("risk", "steps", "schedule") for line in examples(name)])
def test_examples_of_the_help_run(run: Run, example: str) -> None:
    assert run(f"{example.removeprefix('batchlens ')} --json").document


# ---------------------------------------------------------------------------------------------
# What goes wrong
# ---------------------------------------------------------------------------------------------

RISK = "risk --learning-rate 0.1 --batch-size 4 --steps 10"
STEPS = "steps --optimizer sgd --batch-sizes 4 --target 0.05"
FIXED = "steps --learning-rate 0.1 --batch-sizes 4 --target 0.05"
SCHEDULE = "schedule --batch-size 4 --target 0.05"

# A command, and what its one line must name: the option, what it takes, what it got.
BAD = [
    (f"{RISK} --momentum often", "--momentum", "a number", "often"),
    (f"{RISK} --momentum 1.2", "--momentum", "[0, 1)", "1.2"),
    (f"{RISK} --momentum 1", "--momentum", "[0, 1)", "1.0"),
    (f"{RISK} --momentum -0.1", "--momentum", "[0, 1)", "-0.1"),
    (f"{RISK} --averaging 1", "--averaging", "[0, 1)", "1.0"),
    (f"{RISK} --power 1.5", "--power", "[0, 1]", "1.5"),
    (f"{RISK} --dim 0", "--dim", "at least 1", "0"),
    (f"{RISK} --dim 2.5", "--dim", "whole number", "2.5"),
    (f"{RISK} --dim ten", "--dim", "whole number", "ten"),
    (f"{RISK} --exponent -1", "--exponent", "at least 0", "-1"),
    (f"{RISK} --exponent nan", "--exponent", "finite", "nan"),
    (f"{RISK} --bins -1", "--bins", "at least", "-1"),
    (f"{RISK} --rounding up", "--rounding", "'down', 'mean'", "'up'"),
    (f"{RISK} --steps 64..4", "--steps", "LOW..HIGH", "64..4"),
    (f"{RISK} --steps 1.5", "--steps", "whole number", "1.5"),
    (f"{RISK} --steps -1", "--steps", "at least 0", "-1"),
    (f"{RISK} --steps inf", "--steps", "whole number", "inf"),
    (f"{RISK} --batch-size 0", "--batch-size", "above 0", "0.0"),
    (f"{RISK} --batch-size inf", "--batch-size", "finite", "inf"),
    (f"{RISK} --learning-rate -1", "--learning-rate", "at least 0", "-1.0"),
    (f"{RISK} --learning-rate nan", "--learning-rate", "at least 0", "nan"),
    (f"{STEPS} --batch-sizes 64..4", "--batch-sizes", "LOW..HIGH", "64..4"),
    (f"{STEPS} --batch-sizes 0..4", "--batch-sizes", "0 < LOW", "0..4"),
    (f"{STEPS} --batch-sizes 4,x", "--batch-sizes", "a number", "x"),
    (f"{STEPS} --batch-sizes 4..inf", "--batch-sizes", "LOW..HIGH", "4..inf"),
    (f"{STEPS} --target 0", "--target", "above 0", "0.0"),
    (f"{STEPS} --target -1", "--target", "above 0", "-1.0"),
    (f"{STEPS} --target 1e-14", "--target", "within reach of 1e12 steps", "1e-14"),
    (f"{STEPS} --power 0,2", "--power", "[0, 1]", "2.0"),
    (f"{STEPS} --optimizer adam", "--optimizer", "sgd, momentum, nesterov, sgd+ema, momentum+ema", "adam"),
    (f"{STEPS} --optimizer sgd,adam", "--optimizer", "sgd, momentum", "adam"),
    (f"{STEPS} --learning-rate 0.1", "--optimizer", "--learning-rate", "either"),
    (f"{FIXED} --momentum 2", "--momentum", "[0, 1)", "2.0"),
    (f"{FIXED} --target 0", "--target", "above 0", "0.0"),
    ("steps --batch-sizes 4 --target 0.1", "--optimizer", "--learning-rate", "either"),
    ("steps --optimizer sgd --target 0.1", "Missing", "--batch-sizes", ""),
    ("steps --optimizer sgd --batch-sizes 4", "Missing", "--target", ""),
    (f"{SCHEDULE} --pieces 0", "--pieces", "at least 1", "0"),
    (f"{SCHEDULE} --pieces 2.5", "--pieces", "whole number", "2.5"),
    (f"{SCHEDULE} --momentum 1", "--momentum", "[0, 1)", "1.0"),
    (f"{SCHEDULE} --momentum often", "--momentum", "number", "often"),
    (f"{SCHEDULE} --power -1", "--power", "[0, 1]", "-1.0"),
    (f"{SCHEDULE} --max-learning-rate 0", "--max-learning-rate", "above 0", "0.0"),
    (f"{SCHEDULE} --target 1e-14", "--target", "within reach", "1e-14"),
    (f"{SCHEDULE} --target 0", "--target", "above 0", "0.0"),
    (f"{SCHEDULE} --batch-size -4", "--batch-size", "above 0", "-4.0"),
    ("schedule --target 0.1", "Missing", "--batch-size", ""),
    ("reproduce --target 100", "--target", "(0, ", "100.0"),
    ("reproduce --target soon", "--target", "a number", "soon"),
    ("reproduce --dim 0", "--dim", "at least 1", "0"),
    ("reproduce --exponent x", "--exponent", "a number", "x"),
    (f"{RISK} --nonsense", "--nonsense", "", ""),
    (f"{RISK} extra", "extra", "", ""),
    ("dance", "dance", "", ""),
]  # fmt: skip


@pytest.mark.parametrize(("command", "words"), [(command, words) for command, *words in BAD])
@pytest.mark.parametrize("end", ["", " --json"])
def test_one_line_says_what_is_wrong(run: Run, command: str, words: list[str], end: str) -> None:
    found = run(command + end if command != "dance" else command)
    assert (found.status, found.out) == (2, "")
    assert re.fullmatch(r"batchlens: .+\n", found.err)
    for word in words:
        assert word in found.err


def test_the_option_that_is_wrong_comes_first(run: Run) -> None:
    assert run(f"{RISK} --momentum 1.2").err == "batchlens: --momentum must be in [0, 1), got 1.2.\n"


def test_bad_batch_sizes_are_named_as_the_option_is(run: Run) -> None:
    assert "--batch-sizes must be" in run(f"{STEPS} --batch-sizes 4,-4").err


@pytest.mark.parametrize("option", ["--dim 1e3", "--steps 1e3", "--bins 20.0"])
def test_whole_numbers_may_be_written_as_floats(run: Run, option: str) -> None:
    assert run(f"{RISK} {option} --json").document


def test_least_number_of_bins_is_what_is_said(run: Run) -> None:
    assert "at least 0" in run(f"{RISK} --bins -1").err


@pytest.mark.parametrize("option", ["--momentum 0.9", "--averaging 0.9", "--nesterov"])
def test_options_of_a_fixed_rule_are_refused_when_tuning(run: Run, option: str) -> None:
    found = run(f"{STEPS} {SMALL} {option}")
    assert found.status == 2
    assert option.split()[0] in found.err


def test_a_target_beyond_reach_under_a_cap_of_ones_own(run: Run) -> None:
    found = run(f"schedule --batch-size 16 --target 1e-14 --max-learning-rate 5 {SMALL}")
    assert found.status == 2


def test_momentum_of_a_schedule_may_be_tuned(run: Run) -> None:
    assert "tuned" in run(f"{SCHEDULE} --momentum often").err


# ---------------------------------------------------------------------------------------------
# As a program of its own
# ---------------------------------------------------------------------------------------------


def start(command: str, **options: Any) -> "subprocess.Popen[str]":
    """The program as users start it: Ctrl-C reaches it even where these tests run in the background."""

    def listen() -> None:
        signal.signal(signal.SIGINT, signal.SIG_DFL)

    return subprocess.Popen(
        [*MODULE, *command.split()], stdout=subprocess.PIPE, text=True, preexec_fn=listen, **options
    )


def test_the_script_and_the_module_are_the_same_program(run: Run) -> None:
    (script,) = entry_points(group="console_scripts", name="batchlens")
    assert script.load() is cli.main
    command = f"{RISK} {SMALL} --json"
    done = subprocess.run([*MODULE, *command.split()], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == (run(command).out, "")


def test_a_bad_value_ends_the_program_with_status_2_and_one_line() -> None:
    done = subprocess.run([*MODULE, *f"{STEPS} --optimizer adam".split()], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert re.fullmatch(r"batchlens: --optimizer must be .+, got adam\.\n", done.stderr)


@pytest.mark.skipif(not hasattr(os, "openpty"), reason="needs a terminal")
def test_progress_goes_to_standard_error_only() -> None:
    terminal, end = os.openpty()
    command = f"steps --optimizer sgd,momentum --batch-sizes 4..4096 --target 0.05 {SMALL} --json"
    with start(command, stderr=end) as process:
        os.close(end)
        out, _ = process.communicate(timeout=60)
        seen = os.read(terminal, 100_000).decode()
    os.close(terminal)
    assert process.returncode == 0
    assert len(json.loads(out)["curves"]) == 2
    assert "Tuning" in seen
    assert "curves" not in seen


def interrupt(_: object) -> NoReturn:
    raise KeyboardInterrupt


def interrupt_a_kernel(_: object) -> NoReturn:
    """What Python makes of a Ctrl-C that arrives while compiled code runs."""
    raise SystemError("CPUDispatcher returned a result with an exception set") from KeyboardInterrupt()


@pytest.mark.parametrize(
    "interruption",
    [
        interrupt,
        pytest.param(interrupt_a_kernel, marks=pytest.mark.slow),
    ],
)
def test_ctrl_c_at_any_moment(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, interruption: Callable[[object], NoReturn]
) -> None:
    monkeypatch.setattr(_paper, "plan_checks", interruption)
    found = run(f"reproduce --out {tmp_path / 'report'} --target 0.05 {SMALL}")
    assert (found.status, found.out, found.err.strip()) == (130, "", "batchlens: interrupted.")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(sys.platform == "win32", reason="has no SIGINT")
def test_ctrl_c_ends_with_status_130_and_leaves_nothing(tmp_path: Path) -> None:
    with start("reproduce --out deep", stderr=subprocess.PIPE, cwd=tmp_path) as process:
        deadline = time.monotonic() + 60
        while not list(tmp_path.iterdir()) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert process.poll() is None
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    # The first line break ends the line on which a terminal shows ^C.
    assert (process.returncode, out, err.strip()) == (130, "", "batchlens: interrupted.")
    assert list(tmp_path.iterdir()) == []
