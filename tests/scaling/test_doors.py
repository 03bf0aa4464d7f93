"""Ways in (a path, a file, a frame, a curve) and ways out (a line, a table, a plot, a document)."""

import io
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

import batchlens as bl

TEXT = "Batch_Size,STEPS, Optimizer \n16,8000,sgd\n64,2000,sgd\n256,510,sgd\n1024,200,sgd\n4096,190,sgd\n"
CURVE = bl.ScalingCurve([16, 64, 256, 1024, 4096], [8000, 2000, 510, 200, 190], optimizer="sgd")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "runs.csv"
    file.write_text(TEXT)
    return file


def test_every_source_gives_the_same_fit(path: Path) -> None:
    wanted = bl.fit(path, predict=[512])
    frame = pd.read_csv(io.StringIO(TEXT.lower().replace(" ", "")))
    with path.open() as text, path.open("rb") as binary:
        for source in (str(path), text, binary, frame, CURVE):
            assert bl.fit(source, predict=[512]).as_document() == wanted.as_document()


def test_a_frame_with_missing_steps() -> None:
    frame = pd.DataFrame({"batch_size": [4, 16, 64], "steps": [100.0, None, 20.0]})
    (fitted,) = bl.fit(frame)
    assert fitted.curve.steps == (100.0, None, 20.0)


def test_a_frame_by_batch_size() -> None:
    frame = pd.DataFrame({"batch_size": [4, 16, 64], "steps": [100, 30, 20]})
    assert bl.fit(frame.set_index("batch_size")).as_document() == bl.fit(frame).as_document()
    with pytest.raises(ValueError, match="`runs` must have the column batch_size, got steps"):
        bl.fit(frame[["steps"]])


@pytest.mark.parametrize("source", [3, None, {"batch_size": [1]}, b"batch_size,steps", [1, 2]])
def test_anything_else_is_refused(source: object) -> None:
    with pytest.raises(TypeError, match="`runs` must be paths, an open file, a DataFrame or a ScalingCurve, got"):
        bl.fit(source)  # type: ignore[arg-type]


def test_text_that_is_not_utf8_is_refused() -> None:
    with pytest.raises(bl.BatchlensError, match="the file must be UTF-8 text"):
        bl.fit(io.BytesIO("batch_size,steps\n4,5\n".encode("utf-16")))


def test_a_fit_is_a_collection_by_optimizer(path: Path) -> None:
    found = bl.fit(path)
    assert len(found) == 1
    assert found["sgd"] is next(iter(found))
    with pytest.raises(KeyError, match="the runs are of 'sgd', not of 'adam'"):
        found["adam"]


def test_predictions_beyond_the_range_of_numbers_are_refused() -> None:
    for size in (10**400, float("nan"), -1):
        with pytest.raises(ValueError, match="`batch_sizes` must be finite and above 0"):
            CURVE.predict([size])
    assert CURVE.predict(64).shape == (1,)


@pytest.mark.parametrize("result", [CURVE, bl.fit(CURVE), bl.fit(CURVE)["sgd"]], ids=lambda r: type(r).__name__)
def test_results_are_at_home_in_a_notebook(result: bl.ScalingCurve | bl.Fit | bl.FittedRuns) -> None:
    assert repr(result).startswith(f"<{type(result).__name__}: sgd")
    assert "\n" not in repr(result)
    assert len(repr(result)) < 120
    html = result._repr_html_()
    assert "<table" in html
    assert "4096" in html
    frame = result.to_frame()
    assert frame["batch_size"].tolist() == [16, 64, 256, 1024, 4096]
    assert frame["steps"].tolist() == [8000, 2000, 510, 200, 190]
    json.dumps(result.as_document(), allow_nan=False)
    ax = Figure().add_subplot()
    assert result.plot(ax) is ax
    assert ax.get_xscale() == ax.get_yscale() == "log"
    assert "critical batch size" in ax.get_title(loc="left")
    # A curve marks the knee, a fit what its sentence is about.
    marked = "657" if isinstance(result, bl.ScalingCurve) else str(CURVE.critical_batch_size("fit"))
    assert [text.get_text() for text in ax.texts] == [marked]


def test_plots_make_axes_where_none_are_given() -> None:
    from matplotlib import pyplot

    ax = CURVE.plot()
    pyplot.close(ax.figure)  # type: ignore[arg-type]
    assert len(ax.lines) >= 2


def test_curves_share_axes() -> None:
    ax = Figure().add_subplot()
    faster = bl.ScalingCurve([4, 16, 64], [90, 30, 9], optimizer="kfac")
    CURVE.plot(ax)
    faster.plot(ax)
    low, high = ax.get_ylim()
    assert low < 9 < 8000 < high
    curves = [line for line in ax.lines if line.get_gid()]
    assert len({line.get_color() for line in curves}) == 2
    np.testing.assert_array_equal(curves[1].get_xdata(), [4, 16, 64])


def test_batch_sizes_that_missed_the_target_are_crosses() -> None:
    ax = bl.ScalingCurve([4, 16, 64, 256], [None, 30, 9, None]).plot(Figure().add_subplot())
    (crosses,) = (line for line in ax.lines if line.get_marker() == "x")
    np.testing.assert_array_equal(crosses.get_xdata(), [4, 256])
    low, high = ax.get_xlim()
    assert low < 4 < 256 < high


def test_what_belongs_to_single_batch_sizes_has_an_entry_for_each() -> None:
    full = bl.ScalingCurve(
        [4, 8], [10, None], statuses=["reached", "unstable"], limits=[["stability"], []], intervals=[(9.0, None), None]
    )
    assert full.as_document()["points"] == [
        {"batch_size": 4, "steps": 10, "learning_rate": None, "momentum": None, "averaging": None, "status": "reached",
         "limits": ["stability"], "interval": [9.0, None]},
        {"batch_size": 8, "steps": None, "learning_rate": None, "momentum": None, "averaging": None,
         "status": "unstable", "limits": [], "interval": None},
    ]  # fmt: skip
    assert full.to_frame()["steps"].isna().tolist() == [False, True]
    for name in ("settings", "statuses", "limits", "intervals"):
        with pytest.raises(ValueError, match=f"`{name}` must have 2 entries, one per batch size, or none, got 1"):
            bl.ScalingCurve([4, 8], [10, 5], **{name: [{}]})  # type: ignore[arg-type]
