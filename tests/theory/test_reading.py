"""Problems from files."""

import json
from pathlib import Path
from typing import Any

import pytest

import batchlens as bl
from tests.program import run

LEVELS = [
    {"rank": 1, "directions": 2, "curvature": 2.0, "variance": 1.0, "second_moment": 1.2},
    {"rank": 5, "directions": 10, "curvature": 0.1, "variance": 0.03, "second_moment": 0.03},
    {"rank": 50, "directions": 7, "curvature": 0.0, "variance": 0.0, "second_moment": 0.0},
]


def moment(**changes: Any) -> dict[str, Any]:
    return {"step": 0, "loss": 0.9, "top_curvature": {"value": 6.0}, "spectrum": LEVELS} | changes


def write(folder: Path, document: object) -> Path:
    path = folder / "measured.json"
    path.write_text(json.dumps(document))
    return path


def test_a_measurement_gives_its_spectrum_with_the_top_curvature_on_it(tmp_path: Path) -> None:
    first = moment(loss=5.0, spectrum=[LEVELS[0]])
    document = {"moments": [first, moment(), moment(spectrum=[], loss=0.1)]}
    found = bl.read_problem(write(tmp_path, document))
    assert found.curvature.tolist() == [2.0, 0.1, 6.0]
    assert found.count.tolist() == [1.0, 10.0, 1.0]  # a direction of the largest level is the top one
    assert found.noise.tolist() == [1.0, 0.03, 3.0]
    assert found.initial_risk == pytest.approx(0.9)


def test_a_top_curvature_below_the_spectrum_changes_nothing(tmp_path: Path) -> None:
    found = bl.read_problem(write(tmp_path, {"moments": [moment(top_curvature={"value": 1.0})]}))
    assert found.curvature.tolist() == [2.0, 0.1]


def test_columns_of_a_csv_come_in_any_order_and_case(tmp_path: Path) -> None:
    path = tmp_path / "spectrum.csv"
    path.write_text("Count, name ,CURVATURE,noise\n\n2,a,1,0.5\n3,b,0.25,0\n")
    found = bl.read_problem(path)
    assert [found.curvature.tolist(), found.noise.tolist(), found.count.tolist()] == [[1, 0.25], [0.5, 0], [2, 3]]
    assert found.initial.tolist() == [1, 1]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "line 1 must name the column curvature, and each column once, got nothing."),
        ("a,b\n1,2\n", "line 1 must name the column curvature, and each column once, got a, b."),
        ("curvature\n1,2\n", "line 2 must have 1 cells, one per column, got 2."),
        ("curvature\nnan\n", "line 2: `curvature` must be a finite number, got nan."),
        ("curvature\n", "`curvature` must have at least one entry, got none."),
        ("{", "must be CSV or JSON, got JSON that is damaged."),
        ("{}", "must hold a measurement or the column curvature, got neither."),
        ('{"moments": [{"spectrum": [{}]}]}', "must be a measurement as batchlens measure writes it, got another."),
        ('{"moments": []}', "must have a spectrum at one of its moments, got none."),
    ],
)
def test_a_file_that_holds_no_problem_says_why(tmp_path: Path, text: str, sentence: str) -> None:
    path = tmp_path / "problem"
    path.write_text(text)
    with pytest.raises(bl.BatchlensError) as error:
        bl.read_problem(path)
    assert str(error.value).endswith(sentence)


def test_commands_take_a_problem_from_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "spectrum.csv"
    path.write_text("curvature\n1\n0.3\n")
    code, out, _ = run(f"steps --optimizer sgd --batch-sizes 8 --target 0.1 --problem {path} --json", capsys)
    assert code == 0
    expected = bl.tune(bl.NoisyQuadratic.from_spectrum([1, 0.3]), "sgd", 8, 0.1).steps
    assert json.loads(out)["curves"][0]["points"][0]["steps"] == expected
    code, _, err = run(f"steps --optimizer sgd --batch-sizes 8 --target 0.1 --problem {path} --dim 5", capsys)
    assert (code, err) == (2, "batchlens: --problem has its own curvatures; leave out --dim and --exponent.\n")
