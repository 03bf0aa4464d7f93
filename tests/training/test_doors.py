"""What a workload of one's own may get wrong ends in a sentence; what a run leaves behind is at home in a notebook."""

import json
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from matplotlib.figure import Figure
from torch import Tensor, nn
from torch.utils.data import DataLoader

import batchlens as bl
from batchlens.training import _threads
from batchlens.training._arguments import check_arguments
from batchlens.training._threads import WORK_OF_A_THREAD, choose_threads, work_of_an_example

DIGITS = bl.find_workload("digits")
RATE = {"learning_rate": 0.1}


class Wrapped(nn.Module):
    """A model that returns its outputs in something."""

    def __init__(self, wrap: Any) -> None:
        super().__init__()
        self.model, self.wrap = DIGITS.model(), wrap

    def forward(self, images: Tensor) -> Any:
        return self.wrap(self.model(images))


@pytest.mark.parametrize(
    ("wrap", "words"),
    [
        (lambda logits: {"logits": logits, "loss": logits.mean()}, "got a dict with logits and loss. Wrap it"),
        (lambda logits: SimpleNamespace(logits=logits), "got a SimpleNamespace with logits. Wrap it"),
        (lambda logits: (logits, None), "got a tuple. Wrap it"),
    ],
)
def test_outputs_that_are_no_tensor_are_named(wrap: Any, words: str) -> None:
    workload = replace(DIGITS, model=lambda: Wrapped(wrap))
    with pytest.raises(TypeError, match="the model of digits must return a tensor of outputs, ") as error:
        bl.train(workload, "sgd", 64, RATE, max_steps=2)
    assert words in str(error.value)


def test_a_loader_is_no_data_set() -> None:
    examples = DIGITS.data(None).train
    pairs: Any = list(zip(examples.inputs, examples.targets, strict=True))
    loader: Any = DataLoader(pairs, batch_size=8)
    with pytest.raises(TypeError, match=r"`data` of digits must return a Dataset, got a DataLoader\. Put the examples"):
        bl.train(replace(DIGITS, data=lambda _: loader), "sgd", 64, RATE)
    with pytest.raises(TypeError, match="`data` of a workload must be a function, got a DataLoader"):
        replace(DIGITS, data=loader)


def test_data_that_raise_are_named() -> None:
    def broken(_: object) -> bl.Dataset:
        raise KeyError("images")

    with pytest.raises(bl.BatchlensError, match="the data of digits cannot be loaded: KeyError: 'images'"):
        bl.train(replace(DIGITS, data=broken), "sgd", 64, RATE)


@pytest.mark.parametrize("target", [97, 1.0001, float("inf")])
def test_an_accuracy_beyond_1_is_refused(target: float) -> None:
    with pytest.raises(ValueError, match="`target` must be "):
        bl.train("digits", "sgd", 64, RATE, target=target)
    with pytest.raises(ValueError, match="`train_target` must be "):
        replace(DIGITS, train_target=target)


def test_a_negative_cross_entropy_is_refused() -> None:
    with pytest.raises(ValueError, match="`target` must be at least 0, the best cross_entropy there is, got -1"):
        replace(bl.find_workload("transformer_lm1b"), target=-1)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"target": float("nan")}, "`target` must be finite"),
        ({"max_examples": float("nan")}, "`max_examples` must be a whole number"),
        ({"min_steps": 0}, "`min_steps` must be at least 1"),
        ({"likelihood": "poisson"}, "`likelihood` must be one of cross_entropy, squared_error"),
        ({"schedule": "linear"}, "`schedule` must be one of constant, linear_decay"),
        ({"size": "huge"}, "`size` must be one of laptop, paper"),
    ],
)
def test_a_workload_of_bad_values_is_refused(change: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        replace(DIGITS, **change)


@pytest.mark.parametrize("name", [3, None, b"digits"])
def test_a_workload_is_found_by_words_only(name: Any) -> None:
    with pytest.raises(TypeError, match="`workload` must be a str, got"):
        bl.find_workload(name)


@pytest.mark.parametrize(
    "ends", [(1.0, 1.0), (2.0, 1.0), (0.0, 1.0), (-1.0, 1.0), (float("nan"), 1.0), (0.5, 1.0, "log_one_minus")]
)
def test_a_range_of_bad_ends_is_refused(ends: Any) -> None:
    with pytest.raises(ValueError, match=r"`(low|high)` must be"):
        bl.Range(*ends)


# ---------------------------------------------------------------------------------------------
# Threads
# ---------------------------------------------------------------------------------------------


def threads_for(workload: bl.Workload, batch_size: int, cores: int, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(_threads, "count_cores", lambda: cores)
    arguments = check_arguments(workload, "sgd", batch_size, RATE)
    return choose_threads(arguments, workload.data(None))


def test_work_is_that_of_the_layers() -> None:
    arguments = check_arguments(DIGITS, "sgd", 8, RATE)
    assert work_of_an_example(arguments, DIGITS.data(None)) == 2 * (64 * 64 + 64 * 10)


@pytest.mark.parametrize("layer", ["lstm", "gru", "encoder"])
def test_work_hidden_in_fused_kernels_is_counted(layer: str) -> None:
    class Sequence(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner: nn.Module = (
                nn.TransformerEncoderLayer(8, 2, 64, batch_first=True)
                if layer == "encoder"
                else {"lstm": nn.LSTM, "gru": nn.GRU}[layer](8, 64, batch_first=True)
            )
            self.head = nn.Linear(8 if layer == "encoder" else 64, 10)

        def forward(self, images: Tensor) -> Tensor:
            rows = self.inner(images.squeeze(1))
            logits: Tensor = self.head((rows if layer == "encoder" else rows[0])[:, -1])
            return logits

    arguments = check_arguments(replace(DIGITS, model=Sequence), "sgd", 8, RATE)
    least = {"lstm": 2 * 8 * 4 * 64 * (8 + 64), "gru": 2 * 8 * 3 * 64 * (8 + 64), "encoder": 2 * 8 * 2 * 8 * 64}
    assert work_of_an_example(arguments, DIGITS.data(None)) >= least[layer]


def test_threads_follow_the_work_and_never_exceed_the_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    assert threads_for(DIGITS, 1024, 8, monkeypatch) == 1
    wide = replace(DIGITS, model=lambda: nn.Sequential(nn.Flatten(), nn.Linear(64, 5000), nn.Linear(5000, 10)))
    work = 2 * (64 * 5000 + 5000 * 10)
    for batch_size in (64, 1024):
        wanted = max(1, int(batch_size * work / WORK_OF_A_THREAD))
        assert threads_for(wide, batch_size, 64, monkeypatch) == wanted
    assert threads_for(wide, 1024, 1, monkeypatch) == 1


def test_a_run_says_its_threads_and_gives_them_back() -> None:
    before = torch.get_num_threads()
    assert bl.train("digits", "sgd", 8, RATE, max_steps=1).threads == 1
    assert bl.train("digits", "sgd", 8, RATE, max_steps=1, threads=2).threads == 2
    assert torch.get_num_threads() == before


# ---------------------------------------------------------------------------------------------
# Records
# ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def record() -> bl.Record:
    return bl.train("digits", "momentum", 64, {"learning_rate": 0.1, "momentum": 0.9})


def test_a_record_is_at_home_in_a_notebook(record: bl.Record) -> None:
    assert repr(record) == f"<Record: digits, momentum, batch size 64: reached 0.97 after {record.steps} steps>"
    assert "<table" in record._repr_html_()
    frame = record.to_frame()
    assert list(frame.columns) == ["step", "metric", "relation"]
    assert len(frame) == len(record.history)
    json.dumps(record.as_document(), allow_nan=False)
    ax = Figure().add_subplot()
    assert record.plot(ax) is ax
    assert ax.get_xlabel() == "steps"
