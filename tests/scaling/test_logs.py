"""Logs of every kind, each as the program that writes it leaves it: see logs/README.md."""

import json
import math
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import batchlens as bl
from batchlens.scaling._logs.finding import find_logs
from batchlens.scaling._logs.log import Log
from batchlens.scaling._logs.measuring import Question
from batchlens.scaling._logs.reading import read_path, read_text
from batchlens.scaling._runs import Run, collect_runs

LOGS = Path(__file__).parent / "logs"
# Where val_loss is 0.6: batch size 16 is past it at its first record, after 16 steps.
AT_16, AT_64 = 16.0, 8 + 4 * (0.8139702677726746 - 0.6) / (0.8139702677726746 - 0.5870300531387329)


def read_one(path: Path) -> Log:
    (log,) = read_path(path)
    assert isinstance(log, Log)
    return log


def steps_of(source: Any, **question: Any) -> dict[float, float | None]:
    runs = collect_runs(source, Question(**{"metric": "val_loss", "target": 0.6, **question})).runs
    return {run.batch_size: run.steps for run in runs}


@pytest.mark.parametrize(
    ("source", "options"),
    [
        ("lightning", {}),
        ("lightning/b*/metrics.csv", {}),
        ("wandb/b*.csv", {"batch_size_from": r"b(\d+)"}),
        ("wandb/chart.csv", {"batch_size_from": r"b(\d+)"}),
        ("monitor/*.jsonl", {"batch_size_from": r"b(\d+)"}),
    ],
)
def test_every_kind_of_log_of_the_same_runs_gives_the_same_steps(source: str, options: dict[str, str]) -> None:
    assert steps_of(LOGS / source, **options) == {16: AT_16, 64: pytest.approx(AT_64)}
    assert steps_of(str(LOGS / source), **options) == {16: AT_16, 64: pytest.approx(AT_64)}


def test_a_monitors_file_knows_everything() -> None:
    (first, second) = (read_one(LOGS / "monitor" / name) for name in ("b16.jsonl", "b64.jsonl"))
    assert (first.batch_size, second.batch_size) == (32, 128)  # two batches accumulate
    assert first.optimizer == "momentum"
    assert (first.settings["learning_rate"], first.settings["seed"]) == (0.1, 1)
    assert first.metrics == ("train_loss", "epoch", "val_accuracy", "val_loss")
    (fitted,) = bl.fit(LOGS / "monitor", metric="val_loss", target=0.6)
    assert (fitted.optimizer, fitted.curve.batch_sizes) == ("momentum", (32, 128))
    assert None not in fitted.seconds


def test_lightnings_settings_are_beside_its_metrics(tmp_path: Path) -> None:
    log = read_one(LOGS / "lightning/b64/metrics.csv")
    assert (log.batch_size, dict(log.settings)) == (64, {"learning_rate": 0.1})
    assert log.curve("val_loss").steps.tolist() == [4, 8, 12]  # Lightning writes 3, 7, 11
    (tmp_path / "hparams.yaml").write_text(
        "batch_size: 8\noptimizer: 'adam'\nflag: true\nnone: null\nnested:\n  lr: 3\nlist: [1]\nname: a b\n"
        "odd: !!python/object:x\n"
    )
    (tmp_path / "metrics.csv").write_text("epoch,step,loss\n0,1,3\n")
    log = read_one(tmp_path / "metrics.csv")
    assert (log.batch_size, log.optimizer, dict(log.settings)) == (8, "adam", {"flag": True, "name": "a b"})


def test_of_a_hugging_face_run_the_last_checkpoint_counts() -> None:
    found = bl.fit(LOGS / "transformers", metric="eval_loss", target=0.88)
    (fitted,) = found
    assert fitted.curve.batch_sizes == (16, 64)
    assert fitted.curve.steps == pytest.approx((10.25, 9.86), abs=0.01)
    assert fitted.runs == (1, 1)
    assert any("one process and one micro-batch" in note for note in found.notes)
    log = read_one(LOGS / "transformers/b64/checkpoint-12/trainer_state.json")
    assert log.settings == {"learning_rate": pytest.approx(0.045)}
    named = bl.fit(LOGS / "transformers", metric="eval_loss", target=0.88, batch_size_from=r"/b(\d+)/")
    assert not any("micro-batch" in note for note in named.notes)


def test_events_need_tensorboard_and_say_so() -> None:
    try:
        import tensorboard  # noqa: F401
    except ImportError:
        with pytest.raises(bl.BatchlensError, match=r"run `pip install \"batchlens\[tensorboard\]\"`"):
            bl.fit(LOGS / "tensorboard", metric="val_loss", target=0.6)
    else:
        assert steps_of(LOGS / "tensorboard") == {16: AT_16, 64: pytest.approx(AT_64)}


def test_a_chart_may_have_another_axis(tmp_path: Path) -> None:
    chart = tmp_path / "chart.csv"
    chart.write_text('"epoch","a - b - _step","a - b - loss","a - b - loss__MIN"\n0,10,3,1\n1,20,1,1\n')
    log = read_one(chart)
    assert (log.name, log.metrics) == (f"{chart}/a - b", ("loss",))
    assert log.curve("loss").steps.tolist() == [10, 20]
    chart.write_text('"trainer/global_step","a - loss"\n9,3\n')
    assert read_one(chart).curve("loss").steps.tolist() == [10]
    chart.write_text('"epoch","a - loss"\n0,3\n')
    with pytest.raises(bl.BatchlensError, match=r"chart\.csv/a has epoch as its x axis\. Export the chart with Step"):
        read_path(chart)


def test_a_history_counts_the_optimizers_steps_where_it_has_them() -> None:
    text = (
        "_step,train/global_step,_timestamp,eval/loss,media\n0,100,1000,2.5,{'a': 1}\n1,200,1010.5,NaN,\n2,300,1020,,\n"
    )
    (log,) = read_text("history.csv", text)
    assert isinstance(log, Log)
    steps, values, seconds = log.curve("eval_loss")
    assert (steps.tolist(), seconds.tolist()) == ([100, 200], [0, 10.5])
    assert values[0] == 2.5
    assert math.isnan(values[1])
    with pytest.raises(bl.BatchlensError, match=r"history\.csv, line 2: `media` must be a number, got \{'a': 1\}\."):
        log.curve("media")


def test_one_table_may_hold_the_records_of_several_runs() -> None:
    frame = pd.DataFrame(
        [
            {"batch_size": size, "seed": seed, "optimizer": "adam", "step": step, "loss": 1 - step * size**0.5 / 1000}
            for size in (4, 16, 64)
            for seed in (1, 2)
            for step in range(0, 1001, 10)
        ]
    )
    frame.loc[frame["seed"] == 2, "loss"] += 0.01
    (fitted,) = bl.fit(frame, metric="loss", target=0.5, smoothing=0)
    assert (fitted.optimizer, fitted.runs) == ("adam", (2, 2, 2))
    assert fitted.curve.steps == pytest.approx([(500 * 510) ** 0.5 / root * 2 for root in (4, 8, 16)], rel=1e-6)


def test_logs_and_tables_may_be_mixed(tmp_path: Path) -> None:
    (tmp_path / "runs.csv").write_text("batch_size,steps\n256,11\n")
    sources = [LOGS / "lightning", tmp_path / "runs.csv"]
    assert steps_of(sources) == {256: 11, 16: AT_16, 64: pytest.approx(AT_64)}


def test_a_file_named_twice_counts_once_and_so_does_its_copy(tmp_path: Path) -> None:
    path = LOGS / "lightning/b64/metrics.csv"
    assert len(find_logs([path, LOGS / "lightning/b16/../b64/*.csv"])) == 1
    copy = tmp_path / "b64.jsonl"
    copy.write_bytes((LOGS / "monitor/b64.jsonl").read_bytes())
    collected = collect_runs([LOGS / "monitor/b64.jsonl", copy], Question("val_loss", 0.6))
    assert len(collected.runs) == 1
    assert f"{copy} has the records of {LOGS / 'monitor/b64.jsonl'}: counted once." in collected.notes


def test_runs_that_only_their_path_tells_apart_are_no_copies(tmp_path: Path) -> None:
    for size in (16, 32):
        (tmp_path / f"b{size}.csv").write_text("step,loss\n10,2.3\n20,2.3\n")
    collected = collect_runs(tmp_path, Question("loss", 1, "down", batch_size_from=r"b(\d+)"))
    assert collected.runs == [Run(16, None), Run(32, None)]
    assert len(collected.notes) == 1


def test_a_run_that_ended_before_its_first_record_is_left_out_where_others_remain(tmp_path: Path) -> None:
    write_runs(tmp_path, batch_size=4, learning_rate=1.0)
    bl.Monitor(tmp_path / "killed.jsonl", batch_size=16).close()
    collected = collect_runs(tmp_path, Question("loss", 0.1))
    assert [run.batch_size for run in collected.runs] == [4]
    assert collected.notes[1] == (f"Left out, as the run ended before its first record: {tmp_path / 'killed.jsonl'}.")
    with pytest.raises(bl.BatchlensError, match="holds no record"):
        collect_runs(tmp_path / "killed.jsonl", Question("loss", 0.1))


def test_the_state_beside_the_checkpoints_of_a_run_counts_alone(tmp_path: Path) -> None:
    paths = [tmp_path / name / "trainer_state.json" for name in ("", "checkpoint-6", "checkpoint-12", "b/checkpoint-3")]
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("{}")
    assert find_logs([tmp_path]) == [paths[3], paths[0]]
    paths[0].unlink()
    assert find_logs([tmp_path]) == [paths[3], paths[2]]


def test_runs_that_tell_no_settings_are_averaged_with_a_note(tmp_path: Path) -> None:
    for number in (1, 2):
        (tmp_path / f"b8-{number}.csv").write_text(f"step,loss\n1,2\n{10 * number},0\n")
    found = bl.fit(tmp_path, metric="loss", target=1, batch_size_from=r"b(\d+)")
    assert (
        "The runs at batch size 8 tell neither settings nor seeds, and are averaged as runs alike." in found.notes[-1]
    )
    assert len(bl.fit(tmp_path, metric="loss", target=1, batch_size_from=r"b(\d+)-(?P<seed>\d)").notes) == 1


@pytest.mark.parametrize("column", ["lr", "learning_rate", "lr-SGD"])
def test_a_learning_rate_that_never_changes_is_a_setting(tmp_path: Path, column: str) -> None:
    for rate, steps in (("0.1", 40), ("0.3", 20)):
        rows = "".join(f"{step},{step / steps},{rate}\n" for step in range(0, 101, 4))
        (tmp_path / f"b8-{steps}.csv").write_text(f"step,accuracy,{column}\n{rows}")
    found = bl.fit(tmp_path, metric="accuracy", target=1, batch_size_from=r"b(\d+)")
    assert "8: learning_rate 0.3 (of 2)" in found.notes[-1]
    (tmp_path / "b8-20.csv").write_text(f"step,accuracy,{column}\n0,0,0.1\n20,1,0.2\n")
    assert "learning_rate" not in read_one(tmp_path / "b8-20.csv").settings


def test_a_folder_counts_one_kind_of_log(tmp_path: Path) -> None:
    (tmp_path / "data.jsonl").write_text('{"text": "no log"}\n')
    (tmp_path / "metrics.csv").write_text("epoch,step,loss\n0,1,3\n")
    (tmp_path / "other.csv").write_text("step,loss\n1,3\n")
    (tmp_path / "events.out.tfevents.1").write_bytes(b"")
    assert find_logs([tmp_path]) == [tmp_path / "metrics.csv"]
    (tmp_path / "run.jsonl").write_bytes((LOGS / "monitor/b16.jsonl").read_bytes())
    assert find_logs([tmp_path]) == [tmp_path / "run.jsonl"]
    assert find_logs([tmp_path / "events.out.tfevents.1"]) == [tmp_path]


HEADER = json.dumps({"batchlens": 1, "effective_batch_size": 8, "optimizer": "sgd", "settings": {"learning_rate": 1}})


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.jsonl", f'{HEADER}\n{{"step": 1, "loss": 2.0}}\n', "a.jsonl has no metric accuracy, only loss."),
        ("a.jsonl", f'{HEADER}\n{{"step": 1, "Accurcy": 2.0}}\n', "only Accurcy. Did you mean Accurcy?"),
        ("a.jsonl", f"{HEADER}\n", "a.jsonl holds no record: the run ended before its first. Leave it out."),
        ("a.jsonl", f"{HEADER}\nrubbish\n", "a.jsonl, line 2 must be a JSON object, got rubbish. Remove the line."),
        ("a.jsonl", f'{HEADER}\n{{"accuracy": 1}}\n', 'a.jsonl, line 2 must have a step, got {"accuracy": 1}.'),
        ("a.jsonl", f'{HEADER}\n{{"step": 1, "accuracy": "high"}}\n', "step 1: accuracy must be a number, got 'high'."),
        ("a.jsonl", HEADER[:30], "a.jsonl holds nothing but a line cut short: its run was killed at once. Remove it."),
        ("a.jsonl", '{"batchlens": 2}\n', "a.jsonl is of version 2, and this batchlens reads 1. Update it."),
        ("a.jsonl", '{"text": 1}\n', "a.jsonl must be the file of a Monitor or a trainer_state.json, got other JSON."),
        ("a.json", '{"log_history": [', "a.json must be JSON to its end: "),
        ("a.csv", "step,accuracy\n0,0.1\n5,0.9\n", "a.csv does not say its batch size. Give batch_size_from"),
        ("a.csv", "step,accuracy,batch_size\n0,0.1,many\n", "a.csv: `batch_size` must be a number, got many."),
        ("a.csv", "step,accuracy,batch_size\n0,0.1,-4\n", "a.csv: the batch size must be finite and above 0"),
        ("a.csv", "step,accuracy,batch_size\n0,low,4\n", "a.csv, line 2: `accuracy` must be a number, got low."),
        ("a.csv", "step,accuracy,batch_size\n-3,0,4\n", "a.csv must have steps that are finite and at least 0"),
        ("a.csv", "step,accuracy,batch_size\n,0.1,4\n", "a.csv has no record of the metric with a step. Leave it out."),
        ("a.csv", "epoch,accuracy\n0,0.1\n", "a.csv, line 1 must name batch_size and steps, got epoch, accuracy."),
        ("a.csv", b"\xff\xfea", "a.csv must be UTF-8 text."),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_named_with_a_remedy(tmp_path: Path, name: str, text: str | bytes, message: str) -> None:
    (tmp_path / name).write_bytes(text.encode() if isinstance(text, str) else text)
    with pytest.raises(bl.BatchlensError) as caught:
        bl.fit(tmp_path / name, metric="accuracy", target=0.5)
    assert message in str(caught.value)
    assert str(caught.value).startswith(str(tmp_path))
    assert "\n" not in str(caught.value)


def test_paths_that_name_nothing_are_refused(tmp_path: Path) -> None:
    with pytest.raises(bl.BatchlensError, match=r"none\*\.jsonl matches no file\."):
        bl.fit(str(tmp_path / "none*.jsonl"), metric="loss", target=1)
    with pytest.raises(bl.BatchlensError, match=r"none\.jsonl cannot be read: No such file or directory\."):
        bl.fit([tmp_path / "none.jsonl"], metric="loss", target=1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "`metric` and `target` must be given for the log of a run, .*b16.jsonl has the metrics train_loss, epoch"),
        ({"metric": "val_loss"}, "`metric` and `target` must be given together"),
        ({"target": 1}, "`metric` and `target` must be given together"),
        ({"metric": "val_loss", "target": math.nan}, "`target` must be finite, got nan"),
        ({"metric": "val_loss", "target": 0.6, "direction": "left"}, "`direction` must be one of up, down, got 'left'"),
        ({"metric": "val_loss", "target": 0.6, "smoothing": 2}, r"`smoothing` must be in \[0, 1\], got 2"),
        ({"metric": "val_loss", "target": 0.6, "several": "worst"}, "`several` must be one of best, mean, got 'worst'"),
        ({"metric": "val_loss", "target": 0.6, "batch_size_from": "("}, "`batch_size_from` must be a regular"),
        ({"metric": "val_loss", "target": 0.6, "batch_size_from": "b"}, "`batch_size_from` must have a group"),
        ({"metric": "val_accuracy", "target": 0.1}, "`direction` must be given, up or down: val_accuracy"),
    ],
)  # fmt: skip
def test_bad_questions_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        bl.fit(LOGS / "monitor", **options)


def test_a_question_to_runs_that_are_counted_is_refused() -> None:
    with pytest.raises(ValueError, match="`metric` is for logs of runs"):
        bl.fit(bl.ScalingCurve([4, 8], [5, 4]), metric="loss", target=1)


def test_a_path_that_does_not_match_is_named() -> None:
    with pytest.raises(bl.BatchlensError, match=r"b16\.jsonl does not match batch_size_from, x\(\\d\+\)\."):
        bl.fit(LOGS / "monitor", metric="val_loss", target=0.6, batch_size_from=r"x(\d+)")


def write_runs(folder: Path, **settings: Any) -> None:
    """Runs whose loss falls to 0.1 after 1000 / root(batch size) / learning rate steps, and beyond."""
    size, rate = settings["batch_size"], settings["learning_rate"]
    name = "-".join(f"{key}{value}" for key, value in settings.items())
    with bl.Monitor(folder / f"{name}.jsonl", **settings) as monitor:
        for step in range(0, 2001, 5):
            monitor.log(step, loss=10 ** (-step * rate * size**0.5 / 1000 - settings.get("seed", 0) / 100))


def test_of_several_settings_the_best_count_with_all_their_seeds(tmp_path: Path) -> None:
    for size in (4, 16, 64):
        for rate in (0.5, 1.0):
            for seed in (1, 2):
                write_runs(tmp_path, batch_size=size, learning_rate=rate, seed=seed)
    found = bl.fit(tmp_path, metric="loss", target=0.1)
    (fitted,) = found
    assert fitted.runs == (2, 2, 2)
    assert fitted.curve.steps == pytest.approx([(990 * 980) ** 0.5 / root for root in (2, 4, 8)], rel=1e-3)
    assert found.notes == (
        "Target: loss at most 0.1, smoothed by the median of the records within 10% of a step.",
        "Best settings by mean steps: 4: learning_rate 1.0 (of 2); 16: learning_rate 1.0 (of 2); "
        "64: learning_rate 1.0 (of 2).",
    )
    assert found.as_document()["notes"] == list(found.notes)
    (everything,) = bl.fit(tmp_path, metric="loss", target=0.1, several="mean")
    assert everything.runs == (4, 4, 4)


def test_settings_that_rarely_reach_the_target_are_not_the_best(tmp_path: Path) -> None:
    runs = {(0.1, 1): 50.0, (0.1, 2): None, (0.1, 3): None, (0.2, 1): 80.0, (0.2, 2): 90.0}
    for (rate, seed), steps in runs.items():
        with bl.Monitor(tmp_path / f"{rate}-{seed}.jsonl", batch_size=4, learning_rate=rate, seed=seed) as monitor:
            for step in range(0, 101, 10):
                monitor.log(step, loss=1 - (step + rate + seed / 1e3) / (2 * steps) if steps else 1.0 - seed / 1e6)
    found = bl.fit(tmp_path, metric="loss", target=0.5, direction="down")
    (fitted,) = found
    assert (fitted.runs, fitted.reached) == ((2,), (2,))
    assert "4: learning_rate 0.2 (of 2)" in found.notes[1]


def test_settings_may_be_in_the_name(tmp_path: Path) -> None:
    for rate, steps in (("0.1", 40), ("0.3", 20)):
        rows = "".join(f"{step},{step / steps}\n" for step in range(0, 101, 4))
        (tmp_path / f"b8-lr{rate}.csv").write_text(f"step,accuracy\n{rows}")
    pattern = r"b(\d+)-lr(?P<learning_rate>[\d.]+)\.csv"
    found = bl.fit(tmp_path, metric="accuracy", target=1, batch_size_from=pattern)
    assert collect_runs(tmp_path, Question("accuracy", 1, batch_size_from=pattern)).runs == [Run(8.0, 20.0)]
    assert "8: learning_rate 0.3 (of 2)" in found.notes[-1]


def test_of_a_path_the_last_match_is_the_batch_size(tmp_path: Path) -> None:
    folder = tmp_path / "b2" / "b512"
    folder.mkdir(parents=True)
    (folder / "log.csv").write_text("step,loss\n1,1\n2,0.5\n3,0\n")
    (run,) = collect_runs(folder / "log.csv", Question("loss", 0.5, batch_size_from=r"b(\d+)")).runs
    assert run == Run(512, 2)


def test_a_run_that_never_reaches_the_target_counts_as_one(tmp_path: Path) -> None:
    write_runs(tmp_path, batch_size=4, learning_rate=1.0)
    write_runs(tmp_path, batch_size=16, learning_rate=0.001)
    (fitted,) = bl.fit(tmp_path, metric="loss", target=0.1)
    assert fitted.curve.steps == pytest.approx((500, None))
    assert (fitted.runs, fitted.reached) == ((1, 1), (1, 0))


def test_a_target_that_is_reached_before_training_is_refused(tmp_path: Path) -> None:
    write_runs(tmp_path, batch_size=4, learning_rate=1.0)
    with pytest.raises(bl.BatchlensError, match=r"has reached loss 2 at step 0\. Choose a harder target\."):
        bl.fit(tmp_path, metric="loss", target=2, direction="down")


def test_the_last_line_of_a_table_may_be_cut_short(tmp_path: Path) -> None:
    whole = "epoch,step,loss\n0,1,3\n0,2,2\n"
    (tmp_path / "metrics.csv").write_text(f"{whole}0,3")
    assert read_one(tmp_path / "metrics.csv").curve("loss").steps.tolist() == [2, 3]
    (tmp_path / "metrics.csv").write_text(f"{whole}0,3\n0,4,1\n")
    with pytest.raises(bl.BatchlensError, match=r"line 4 must have 3 cells"):
        read_path(tmp_path / "metrics.csv")
