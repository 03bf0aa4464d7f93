"""The page about one's own runs: the sentence, every figure with its numbers, and nothing from outside."""

import csv
from pathlib import Path

import matplotlib.pyplot as plt
import pytest

import batchlens as bl
from batchlens.scaling._sentences import best_words
from tests.report.test_page import LOADING, Reader

SIZES = (16, 64, 256, 1024, 4096)


def write_runs(path: Path, timed: bool) -> Path:
    lines = ["batch_size,steps,optimizer,seconds"]
    for optimizer, critical in (("sgd", 200), ("adam", 800)):
        for size in SIZES:
            steps = 100 * (1 + critical / size)
            lines.append(f"{size},{steps},{optimizer},{steps * (1 + size / 500) / 100 if timed else ''}")
    lines.append("16384,,sgd,")
    path.write_text("\n".join(lines) + "\n")
    return path


def read_rows(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(path.read_text(encoding="utf-8").splitlines()))


def test_the_page_says_and_shows_what_the_fit_found(tmp_path: Path) -> None:
    found = bl.fit(write_runs(tmp_path / "runs.csv", timed=True), predict=[32768])
    page = bl.write_report(found, tmp_path / "page")
    text = page.read_text(encoding="utf-8")
    reader = Reader(text)
    for sentence in found.sentence.splitlines():
        assert sentence in reader.text
    assert not LOADING & {tag for tag, _ in reader.elements}
    assert "Beyond the paper" not in text
    assert len(reader.having("svg")) == 2
    linked = {link for link in reader.values("href") if not link.startswith(("#", "data:"))}
    assert {path.name for path in page.parent.iterdir()} >= linked
    assert {"steps.csv", "seconds.csv", "critical.csv", "runs.csv"} <= linked


def test_the_page_says_how_logs_were_read_and_which_batch_sizes_are_best(tmp_path: Path) -> None:
    for size in SIZES:
        with bl.Monitor(tmp_path / f"b{size}.jsonl", batch_size=size) as monitor:
            for step in range(0, 800, 5):
                monitor.log(step, loss=2 * 0.5 ** (step / (1000 / size + 50)))
    found = bl.fit(tmp_path / "*.jsonl", metric="loss", target=1)
    (fitted,) = found
    text = Reader(bl.write_report(found, tmp_path / "page").read_text(encoding="utf-8")).text
    assert "Target: loss at most 1, smoothed by the median of the records within 10% of a step." in text
    assert f"fastest batch size {best_words(fitted.fastest or 0, fitted.fastest_range)}" in text
    assert f"cheapest batch size {best_words(fitted.cheapest or 0, fitted.cheapest_range)}" in text


def test_the_figures_are_in_their_numbers(tmp_path: Path) -> None:
    found = bl.fit(write_runs(tmp_path / "runs.csv", timed=True), predict=[32768])
    bl.write_report(found, tmp_path / "page")
    rows = [row for row in read_rows(tmp_path / "page" / "steps.csv") if row["optimizer"] == "sgd"]
    measured = {float(row["batch_size"]): row["steps"] for row in rows if row["kind"] == "measured"}
    assert list(measured) == [*SIZES, 16384]
    assert measured[16384] == ""
    fitted = {float(row["batch_size"]): row for row in rows if row["kind"] == "fitted"}
    assert set(SIZES) | {32768} <= fitted.keys()
    (prediction,) = found["sgd"].predictions
    assert prediction.interval is not None
    assert float(fitted[32768]["steps"]) == prediction.steps
    assert (float(fitted[32768]["low"]), float(fitted[32768]["high"])) == prediction.interval
    (critical,) = [row for row in rows if row["kind"] == "critical"]
    value, interval = found["sgd"].estimate("fit")
    assert float(critical["batch_size"]) == value.value
    assert (float(critical["low"]), float(critical["high"])) == interval
    perfect = [float(row["batch_size"]) * float(row["steps"]) for row in rows if row["kind"] == "perfect"]
    assert perfect[0] == pytest.approx(perfect[1])
    times = [row for row in read_rows(tmp_path / "page" / "seconds.csv") if row["optimizer"] == "sgd"]
    assert [float(row["batch_size"]) for row in times if row["kind"] == "fastest"] == [found["sgd"].fastest]
    curve = [row for row in times if row["kind"] == "fitted"]
    assert float(curve[-1]["batch_size"]) == SIZES[-1]  # the seconds of a step are not extrapolated
    seconds = dict(zip(SIZES, found["sgd"].seconds, strict=False))
    for row in curve:
        if float(row["batch_size"]) in seconds:
            assert float(row["seconds"]) == pytest.approx(seconds[int(float(row["batch_size"]))], rel=1e-4)


def test_without_seconds_there_is_no_figure_of_time(tmp_path: Path) -> None:
    page = bl.write_report(bl.fit(write_runs(tmp_path / "runs.csv", timed=False)), tmp_path / "page")
    assert "Time to the target" not in page.read_text(encoding="utf-8")
    assert not (tmp_path / "page" / "seconds.csv").exists()


def test_runs_that_tell_nothing_make_a_page_too(tmp_path: Path) -> None:
    (tmp_path / "one.csv").write_text("batch_size,steps\n16,\n32,\n")
    page = bl.write_report(bl.fit(tmp_path / "one.csv"), tmp_path / "page")
    assert "is unknown: no batch size reached the target" in page.read_text(encoding="utf-8")


def test_plot_draws_points_curve_band_and_critical_batch_size(tmp_path: Path) -> None:
    fitted = bl.fit(write_runs(tmp_path / "runs.csv", timed=True))["adam"]
    ax = fitted.plot()
    names = ax.get_legend_handles_labels()[1]
    for name in ("measured", "fitted curve", "its 95% interval", "perfect scaling", "critical batch size"):
        assert name in names
    plt.close("all")
