"""`measure` and what it leaves behind: against dense matrices, on disk, and when it is given something wrong."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pytest
import torch
from torch import Tensor, nn

import batchlens as bl
from batchlens.errors import BatchlensError
from tests.curvature.dense import CASES, dense

mpl.use("Agg")
EXAMPLES = 24


def measured(name: str, **options: Any) -> tuple[bl.Moment, Any]:
    torch.manual_seed(5)
    case = CASES[name]
    model, inputs, targets = case.model().double().eval(), case.inputs(EXAMPLES), case.targets(EXAMPLES)
    inputs = inputs.double() if inputs.is_floating_point() else inputs
    targets = targets.double() if targets.is_floating_point() else targets
    found = bl.measure(model, (inputs, targets), case.loss, chunk_size=16, **options)
    return found.moments[0], dense(model, inputs, targets, case.loss)


@pytest.mark.parametrize("name", ["dense", "values", "tied", "normalised"])
def test_measure_against_dense_matrices(name: str) -> None:
    moment, truth = measured(name, hessian=True)
    fisher, hessian = truth.gauss_newton.mean(0), truth.hessian.mean(0)
    assert moment.loss == pytest.approx(float(truth.losses.mean()), rel=1e-12)
    assert moment.positions == (3 if name == "tied" else 1)
    values, vectors = torch.linalg.eigh(fisher)
    assert moment.top_curvature.value == pytest.approx(float(values[-1]), rel=1e-3)
    assert abs(moment.top_curvature.value - float(values[-1])) <= moment.top_residual
    moved = torch.einsum("i,nij,j->n", vectors[:, -1], truth.gauss_newton, vectors[:, -1])
    assert moment.top_curvature.standard_error == pytest.approx(float(moved.std()) / EXAMPLES**0.5, rel=0.05)
    halves = [float(torch.linalg.eigvalsh(truth.gauss_newton[first::2].mean(0))[-1]) for first in (0, 1)]
    assert moment.top_halves == pytest.approx(halves, rel=0.02)
    assert moment.hessian_top == pytest.approx(float(torch.linalg.eigvalsh(hessian)[-1]), rel=1e-3)
    low, high = moment.curvature_trace.interval(0.999)
    assert low <= float(fisher.trace()) * (1 + 1e-9)
    assert high >= float(fisher.trace()) * (1 - 1e-9)
    variance = float(truth.covariance.trace())
    low, high = moment.gradient_variance.interval(0.99)
    exact = name in ("dense", "values")
    assert moment.gradient_variance.value == pytest.approx(variance, rel=1e-9 if exact else 0.5)
    assert low <= variance <= high
    squared = float(truth.gradients.mean(0).square().sum()) - variance / EXAMPLES
    if exact:
        assert moment.squared_gradient.value == pytest.approx(squared, rel=1e-9)
        assert moment.noise_scale.value == (pytest.approx(variance / squared, rel=1e-9) if squared > 0 else None)


def test_curvature_noise_scale_against_dense_matrices() -> None:
    moment, truth = measured("values", error=0.02)
    fisher, covariance, gradient = truth.gauss_newton.mean(0), truth.covariance, truth.gradients.mean(0)
    top = float((fisher @ covariance).trace())
    bottom = float(gradient @ fisher @ gradient) - top / EXAMPLES
    assert moment.curvature_noise_scale.interval is not None
    low, high = moment.curvature_noise_scale.interval
    assert low <= top / bottom <= high
    assert moment.curvature_noise_scale.value == pytest.approx(top / bottom, rel=0.5)


def test_a_smaller_error_takes_more_probes() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(20, 30), nn.Tanh(), nn.Linear(30, 3))
    data = torch.randn(40, 20), torch.randint(3, (40,))
    for error in (0.1, 0.01):
        found = bl.measure(model, data, error=error).moments[0].curvature_trace
        assert found.standard_error <= 2 * error * found.value  # as well as ten probes can tell how many it takes
    assert found.degrees > 64


@pytest.mark.parametrize(("mean", "positions"), [(True, 4), (False, 1)])
def test_positions_are_those_that_a_loss_is_a_mean_over(mean: bool, positions: int) -> None:
    def losses(outputs: Tensor, targets: Tensor) -> Tensor:
        each = nn.functional.cross_entropy(outputs.transpose(1, 2), targets, reduction="none")
        return each.mean(1) if mean else each.sum(1)

    torch.manual_seed(0)
    model = nn.Linear(2, 3)
    nn.init.zeros_(model.weight)  # classes are as likely as they are drawn
    nn.init.zeros_(model.bias)
    moment = bl.measure(model, (torch.randn(200, 4, 2), torch.randint(3, (200, 4))), losses).moments[0]
    assert moment.positions == positions
    assert moment.size_ratio == pytest.approx(1.0, rel=0.3)


def test_a_loss_of_ones_own_and_data_in_batches_give_the_same() -> None:
    torch.manual_seed(0)
    model, inputs, targets = nn.Linear(3, 2), torch.randn(20, 3), torch.randint(2, (20,))
    whole = bl.measure(model, (inputs, targets), step=7).moments[0]
    batches = list(zip(inputs.split(6), targets.split(6), strict=True))
    own = bl.measure(
        model, batches, lambda outputs, labels: nn.functional.cross_entropy(outputs, labels, reduction="none"), step=7
    ).moments[0]
    part = bl.measure(model, batches, examples=10).moments[0]
    assert whole.step == own.step == 7
    assert own.top_curvature == pytest.approx(whole.top_curvature, rel=1e-6)
    assert own.gradient_variance == pytest.approx(whole.gradient_variance, rel=1e-6)
    assert part.examples == 10


def test_memory_grows_with_the_chunk_and_not_with_the_data() -> None:
    """The largest batch that a layer sees."""
    seen: list[int] = []
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    model[0].register_forward_hook(lambda _, given, __: seen.append(len(given[0])))
    bl.measure(model, (torch.randn(100, 3), torch.randint(2, (100,))), chunk_size=16, density_probes=2)
    assert max(seen) == 16


def test_weights_gradients_and_mode_are_left_as_they_are() -> None:
    model = nn.Sequential(nn.Conv2d(1, 2, 2), nn.BatchNorm2d(2), nn.Flatten(), nn.Linear(8, 3)).eval()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    bl.measure(model, (torch.randn(12, 1, 3, 3), torch.randint(3, (12,))))
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(weight.grad is None for weight in model.parameters())
    assert not model.training
    assert not any(module._forward_hooks for module in model.modules())


def test_frozen_parameters_do_not_count() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    model[0].requires_grad_(False)
    moment = bl.measure(model, (torch.randn(12, 3), torch.randint(2, (12,)))).moments[0]
    assert moment.parameters == 10
    assert moment.left_out == {}


# On disk -----------------------------------------------------------------------------------------


def test_a_measurement_is_read_as_it_was_written_without_torch(tmp_path: Path) -> None:
    model, data = nn.Linear(3, 2), (torch.randn(20, 3), torch.randint(2, (20,)))
    found = bl.measure(model, data, density_probes=2)
    found.save(tmp_path / "one.json")
    again = bl.read_measurement(tmp_path / "one.json")
    assert again.as_document() == found.as_document()
    assert again.moments[0].noise_scale == found.moments[0].noise_scale
    code = (
        "import sys; import batchlens as bl; found = bl.read_measurement('one.json'); found.to_frame();"
        "assert 'torch' not in sys.modules; print(found)"
    )
    said = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert said.stdout.strip() == repr(found)


def test_the_document_has_the_shape_that_was_agreed_on() -> None:
    found = bl.measure(nn.Linear(3, 2), (torch.randn(20, 3), torch.randint(2, (20,))))
    document = json.loads(json.dumps(found.as_document(), allow_nan=False))
    (moment,) = document["moments"]
    assert {"step", "loss", "top_curvature", "gradient_variance", "curvature_trace", "noise_scale", "spectrum"} <= set(
        moment
    )
    for name in ("top_curvature", "gradient_variance", "curvature_trace"):
        assert {"value", "standard_error"} <= set(moment[name])
    assert set(moment["noise_scale"]) == {"value", "interval"}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "is not JSON"),
        ("[]", "is not a measurement of format 1"),
        ('{"moments": []}', "is not a measurement of format 1"),
        ('{"format": 1, "moments": [{"step": 1}]}', "damaged measurement"),
    ],
)
def test_what_is_no_measurement_is_refused(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "bad.json").write_text(text)
    with pytest.raises(BatchlensError, match=says):
        bl.read_measurement(tmp_path / "bad.json")
    with pytest.raises(BatchlensError, match="cannot be read"):
        bl.read_measurement(tmp_path / "missing.json")


def test_results_can_be_shown() -> None:
    found = bl.measure(nn.Linear(3, 2), (torch.randn(20, 3), torch.randint(2, (20,))))
    assert "top curvature" in repr(found)
    assert "<table" in found._repr_html_()
    assert len(found.moments[0].to_frame()) == len(found.moments[0].spectrum)
    assert found.plot().get_xlabel() == "rank i"
    assert found.moments[0].plot().get_xlabel() == "curvature"


def test_the_plot_of_a_sequence_has_its_variance_times_positions() -> None:
    moment, _ = measured("positions")
    ax = moment.plot()
    (shown, _), (first, *_) = (line.get_ydata() for line in ax.get_lines()), moment.scatter
    assert np.asarray(shown)[0] == pytest.approx(4 * first.variance)
    assert ax.get_ylabel() == "variance of the gradient times positions"


# Wrong input -------------------------------------------------------------------------------------

INPUTS, TARGETS = torch.zeros(4, 3), torch.zeros(4, dtype=torch.int64)


@pytest.mark.parametrize(
    ("data", "error", "says"),
    [
        ((INPUTS[:0], TARGETS[:0]), ValueError, "two examples at least, which a variance takes, got none"),
        ((INPUTS[:1], TARGETS[:1]), ValueError, "got one"),
        ([], ValueError, "got none"),
        ((INPUTS, TARGETS[:2]), ValueError, "as many targets as inputs, got 2 and 4"),
        (INPUTS, TypeError, "must be a pair of tensors"),
        ([INPUTS], TypeError, "an iterable of a Tensor"),
        (3, TypeError, "got a int"),
    ],
)
def test_wrong_data_is_refused(data: Any, error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        bl.measure(nn.Linear(3, 2), data)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"loss": "hinge"}, "`loss` must be one of cross_entropy, squared_error, got 'hinge'"),
        ({"loss": nn.CrossEntropyLoss()}, r"one number for each of 4 examples, got the shape \(\).*reduction="),
        ({"loss": nn.NLLLoss(reduction="none")}, "curved upwards in the outputs on `data`, got a top curvature of 0.*"),
        ({"chunk_size": 0}, "`chunk_size` must be at least 1"),
        ({"error": 0}, "`error` must be in"),
        ({"density_probes": 1}, "`density_probes` must be 0 or at least 2"),
        ({"examples": 1}, "`examples` must be at least 2"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        bl.measure(nn.Linear(3, 2), (INPUTS, TARGETS), **options)


def test_a_loss_that_is_not_finite_is_refused() -> None:
    inputs = INPUTS.clone()
    inputs[2] = torch.inf
    with pytest.raises(ValueError, match="finite loss on `data`, got nan for example 2"):
        bl.measure(nn.Linear(3, 2), (inputs, TARGETS))


@pytest.mark.parametrize(
    ("weight", "scale", "says"),
    [(1e-10, 1e20, "finite curvature on `data`"), (1.0, 1e15, "gradients of finite variance on `data`")],
)
def test_what_is_too_large_for_its_precision_is_refused(weight: float, scale: float, says: str) -> None:
    torch.manual_seed(0)
    model = nn.Linear(3, 1, bias=False)
    nn.init.constant_(model.weight, weight)
    with pytest.raises(ValueError, match=says):
        bl.measure(model, (scale * torch.randn(8, 3), torch.zeros(8, 1)), "squared_error")


class Scattered(nn.Module):
    """Drops out without a module that says so."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 2)

    def forward(self, inputs: Tensor) -> Tensor:
        return nn.functional.dropout(self.layer(inputs), training=self.training)


@pytest.mark.parametrize(
    ("model", "named"),
    [
        (nn.Sequential(nn.Linear(3, 8), nn.Dropout(), nn.Linear(8, 2)), r"\(Dropout\)"),
        (nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.Linear(8, 2)), r"\(BatchNorm1d\)"),
        (Scattered(), "outputs differ:"),
    ],
)
def test_a_model_in_the_wrong_mode_is_refused(model: nn.Module, named: str) -> None:
    torch.manual_seed(0)
    data = torch.randn(8, 3), torch.randint(2, (8,))
    buffers = {name: buffer.clone() for name, buffer in model.named_buffers()}
    with pytest.raises(ValueError, match=rf"evaluation mode, got one in training mode.*{named}.*"):
        bl.measure(model, data)
    assert model.training
    assert all(torch.equal(buffer, buffers[name]) for name, buffer in model.named_buffers())
    assert bl.measure(model.eval(), data).moments[0].examples == 8


def normalised(**options: Any) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8, **options), nn.Linear(8, 2))


def test_a_part_in_evaluation_mode_stays_in_it_and_is_measured_so() -> None:
    data = torch.randn(8, 3), torch.randint(2, (8,))
    model = normalised().train()
    model[1].eval()
    found = bl.measure(model, data).moments[0]
    assert [module.training for module in model] == [True, False, True]
    assert found.top_curvature == bl.measure(model.eval(), data).moments[0].top_curvature


def test_a_part_in_training_mode_is_noticed() -> None:
    model = normalised().eval()
    model[1].train()
    with pytest.raises(ValueError, match=r"evaluation mode.*\(BatchNorm1d\)"):
        bl.measure(model, (torch.randn(8, 3), torch.randint(2, (8,))))


def test_a_model_whose_examples_change_each_other_is_refused() -> None:
    model = normalised(track_running_stats=False).eval()
    with pytest.raises(ValueError, match="whatever is beside it, got others among 2 than among 4"):
        bl.measure(model, (torch.randn(8, 3), torch.randint(2, (8,))))


def test_a_model_without_trainable_parameters_is_refused() -> None:
    with pytest.raises(ValueError, match="parameter with requires_grad"):
        bl.measure(nn.Linear(3, 2).requires_grad_(False), (INPUTS, TARGETS))
    with pytest.raises(TypeError, match="`model` must be a Module"):
        bl.measure("digits", (INPUTS, TARGETS))  # type: ignore[arg-type]


def test_layers_that_the_basis_does_not_know_are_named_and_left_out_of_that_figure_only() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4), nn.Linear(4, 2))
    moment = bl.measure(model, (torch.randn(30, 3), torch.randint(2, (30,)))).moments[0]
    assert moment.left_out == {"1.weight": "a parameter of LayerNorm", "1.bias": "a parameter of LayerNorm"}
    assert sum(level.directions for level in moment.spectrum) == moment.parameters - 8
    assert np.isfinite(moment.gradient_variance.value)


def test_a_model_of_layers_that_the_basis_does_not_know_has_all_but_that_figure(tmp_path: Path) -> None:
    torch.manual_seed(0)
    found = bl.measure(nn.LayerNorm(4), (torch.randn(30, 4), torch.randint(4, (30,))))
    moment = found.moments[0]
    assert set(moment.left_out) == {"weight", "bias"}
    assert (moment.spectrum, moment.comparison) == ((), None)
    assert moment.top_curvature.value > 0
    assert moment.gradient_variance.value > 0
    bl.write_report(found, tmp_path / "page")
    assert (tmp_path / "page" / "index.html").exists()


def test_training_mode_without_dropout_changes_nothing_and_is_measured() -> None:
    """In evaluation mode attention has a kernel of its own, which rounds otherwise."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True), nn.Linear(8, 3))
    data = torch.randn(12, 5, 8), torch.randint(3, (12, 5))
    found = bl.measure(model, data).moments[0].top_curvature
    assert found.value == pytest.approx(bl.measure(model.eval(), data).moments[0].top_curvature.value, rel=1e-4)


def test_what_cannot_be_differentiated_twice_is_named() -> None:
    model = nn.Sequential(nn.EmbeddingBag(6, 3), nn.Linear(3, 2))
    with pytest.raises(BatchlensError, match=r"neither forward nor twice: .*embedding_bag"):
        bl.measure(model, (torch.randint(6, (8, 4)), torch.randint(2, (8,))))


class Encoder(nn.Module):
    """Attention as torch has it, whose fast path has no derivatives, and an LSTM, whose fused kernel has one."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(10, 8)
        self.attention = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        self.memory = nn.LSTM(8, 4, batch_first=True)
        self.output = nn.Linear(4, 10)

    def forward(self, tokens: Tensor) -> Tensor:
        outputs: Tensor = self.output(self.memory(self.attention(self.words(tokens)))[0])
        return outputs


def test_layers_with_fused_kernels_are_measured_all_the_same() -> None:
    torch.manual_seed(0)
    model, data = Encoder().eval(), (torch.randint(10, (12, 5)), torch.randint(10, (12, 5)))
    moment = bl.measure(model, data, hessian=True).moments[0]
    assert moment.top_curvature.value > 0
    assert {"attention.self_attn.in_proj_weight", "memory.weight_ih_l0"} <= set(moment.left_out)
    assert torch.backends.mha.get_fastpath_enabled()


@pytest.mark.parametrize(
    ("model", "says"),
    [
        (nn.Conv2d(1, 3, 3, padding=1), "Classes come last"),
        (nn.Conv2d(1, 3, 3, padding=1).bfloat16(), "float32 or of float64, got bfloat16"),
    ],
)
def test_outputs_and_precisions_that_mean_something_else_are_refused(model: nn.Module, says: str) -> None:
    inputs = torch.zeros(4, 1, 5, 5).to(next(model.parameters()).dtype)
    with pytest.raises(ValueError, match=says):
        bl.measure(model, (inputs, torch.zeros(4, 5, 5, dtype=torch.int64)))
