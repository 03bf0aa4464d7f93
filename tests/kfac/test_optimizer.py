"""K-FAC in a training loop: observing, micro-batches, saving, closing, refusing, failing."""

import copy
import gc
import io
import weakref
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from batchlens import BatchlensError
from batchlens.kfac import KFAC, CurvatureError
from batchlens.kfac._graph import Call
from batchlens.kfac._labels import Uniforms, output_gradients


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 3, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(27, 5),
        nn.Tanh(),
        nn.Linear(5, 4),
    ).double()


def batch(size: int = 64, seed: int = 0) -> tuple[Tensor, Tensor]:
    random = torch.Generator().manual_seed(seed)
    images = torch.randn(size, 1, 6, 6, generator=random, dtype=torch.float64)
    return images, images.flatten(1)[:, :4].argmax(1)


def backward(optimizer: KFAC, inputs: Tensor, labels: Tensor, share: float = 1.0) -> None:
    outputs = optimizer.model(inputs)
    optimizer.observe(outputs, labels)
    (share * functional.cross_entropy(outputs, labels)).backward()


def train(optimizer: KFAC, steps: range) -> None:
    for step in steps:
        optimizer.zero_grad()
        backward(optimizer, *batch(seed=step))
        optimizer.step()


def weights(model: nn.Module) -> Tensor:
    return nn.utils.parameters_to_vector(model.parameters()).detach().clone()


def hooks(model: nn.Module) -> int:
    return sum(len(module._forward_hooks) for module in model.modules())


def live_calls() -> int:
    return sum(type(thing) is Call for thing in gc.get_objects())


# Observing --------------------------------------------------------------------------------------


def test_observing_leaves_the_gradient_alone() -> None:
    inputs, labels = batch()
    model, plain = network(), network()
    optimizer = KFAC(model)
    outputs = model(inputs)
    optimizer.observe(outputs)
    assert all(parameter.grad is None for parameter in model.parameters())
    functional.cross_entropy(outputs, labels).backward()
    functional.cross_entropy(plain(inputs), labels).backward()
    for one, other in zip(model.parameters(), plain.parameters(), strict=True):
        assert one.grad is not None
        assert other.grad is not None
        assert torch.equal(one.grad, other.grad)


def test_global_random_numbers_are_not_used() -> None:
    optimizer = KFAC(network())
    before = torch.get_rng_state()
    train(optimizer, range(2))
    assert torch.equal(torch.get_rng_state(), before)


def test_label_smoothing_does_not_change_the_factors() -> None:
    factors = []
    for smoothing in (0.0, 0.3):
        optimizer = KFAC(network())
        inputs, labels = batch()
        outputs = optimizer.model(inputs)
        optimizer.observe(outputs)
        functional.cross_entropy(outputs, labels, label_smoothing=smoothing).backward()
        optimizer.step()
        factors.append(optimizer.factors()["0"][1])
    assert torch.equal(factors[0], factors[1])


def test_factors_change_only_when_due() -> None:
    optimizer = KFAC(network(), factor_every=3, frequent_start=False)
    seen = []
    for step in range(5):
        train(optimizer, range(step, step + 1))
        seen.append(optimizer.factors()["4"][0].clone())
    assert torch.equal(seen[0], seen[2])
    assert not torch.equal(seen[2], seen[3])
    assert torch.equal(seen[3], seen[4])


def test_the_first_steps_renew_factors_and_inverses_more_often() -> None:
    optimizer = KFAC(network(), factor_every=10, inverse_every=20)
    renewed: dict[str, list[int]] = {"factor": [], "inverse": []}
    seen: dict[str, Tensor] = {}
    for step in range(42):
        train(optimizer, range(step, step + 1))
        for kind, steps in renewed.items():
            now = optimizer.state[optimizer.model[4].weight][f"output_{kind}"]  # type: ignore[index]
            if kind not in seen or not torch.equal(seen[kind], now):
                steps.append(step)
            seen[kind] = now.clone()
    often = [0, 1, 2, 3, 4, 6, 8, 10, 15, 20, 25, 30]
    assert renewed == {"factor": [*often, 40], "inverse": [*often, 40]}


def test_nothing_is_captured_between_updates_or_in_evaluation() -> None:
    inputs, _ = batch()
    optimizer = KFAC(network(), factor_every=2, frequent_start=False)
    outputs = optimizer.model(inputs)
    assert live_calls() == 3
    del outputs
    optimizer.model.eval()
    outputs = optimizer.model(inputs)
    optimizer.observe(outputs)
    assert live_calls() == 0
    optimizer.model.train()
    with torch.no_grad():
        optimizer.observe(optimizer.model(inputs))
    assert live_calls() == 0
    train(optimizer, range(1))
    outputs = optimizer.model(inputs)
    optimizer.observe(outputs)
    assert live_calls() == 0


def test_forward_passes_that_are_never_observed_leave_nothing() -> None:
    inputs, labels = batch()
    for stray in (False, True):
        optimizer = KFAC(network())
        if stray:
            optimizer.model(3 * inputs)
            aside = optimizer.model(5 * inputs)
        backward(optimizer, inputs, labels)
        optimizer.step()
        if not stray:
            expected = optimizer.factors()["0"]
    assert aside.requires_grad
    for one, other in zip(optimizer.factors()["0"], expected, strict=True):
        assert torch.equal(one, other)
    del aside
    assert live_calls() == 0


def test_two_forward_passes_may_be_observed_as_one() -> None:
    inputs, labels = batch()
    whole, halves = (KFAC(network(), fisher="exact", input_examples=None) for _ in range(2))
    backward(whole, inputs, labels)
    whole.step()
    outputs = torch.cat([halves.model(inputs[:20]), halves.model(inputs[20:])])
    halves.observe(outputs)
    functional.cross_entropy(outputs, labels).backward()
    halves.step()
    torch.testing.assert_close(halves.factors()["4"][1], whole.factors()["4"][1])
    torch.testing.assert_close(weights(halves.model), weights(whole.model))


def test_two_optimizers_may_share_a_model() -> None:
    model = network()
    first, second = KFAC(model, fisher="exact"), KFAC(model, fisher="exact")
    inputs, labels = batch()
    outputs = model(inputs)
    first.observe(outputs)
    second.observe(outputs)
    functional.cross_entropy(outputs, labels).backward()
    first.step()
    second.step()
    assert torch.equal(first.factors()["4"][1], second.factors()["4"][1])


def test_factors_keep_their_precision_under_autocast() -> None:
    inputs, labels = batch()
    factors = []
    for enabled in (False, True):
        optimizer = KFAC(network().float(), fisher="exact")
        with torch.autocast("cpu", torch.bfloat16, enabled=enabled):
            backward(optimizer, inputs.float(), labels)
        optimizer.step()
        factors.append(optimizer.factors())
    for name in factors[0]:
        for one, other in zip(factors[0][name], factors[1][name], strict=True):
            assert other.dtype == torch.float32
            assert float((one - other).abs().max()) < 0.05 * float(one.abs().max())
    assert torch.equal(factors[0]["0"][0], factors[1]["0"][0])  # the images are not rounded


def test_a_layer_may_join_later() -> None:
    class Growing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(3, 3), nn.Linear(3, 3)
            self.deep = False

        def forward(self, values: Tensor) -> Tensor:
            hidden: Tensor = self.first(values)
            return self.second(hidden) if self.deep else hidden

    model = Growing()
    optimizer = KFAC(model, factor_every=1, inverse_every=10)
    inputs, labels = torch.randn(8, 3), torch.randint(3, (8,))
    for deep in (False, True):
        model.deep = deep
        before = weights(model.second)
        backward(optimizer, inputs, labels)
        optimizer.step()
        assert torch.equal(weights(model.second), before) != deep


def test_a_closure_is_called_with_gradients_enabled() -> None:
    optimizer, same = KFAC(network()), KFAC(network())
    inputs, labels = batch()

    def closure() -> str:
        backward(optimizer, inputs, labels)
        return "loss"

    with torch.no_grad():
        assert optimizer.step(closure) == "loss"
    train(same, range(1))
    assert torch.equal(weights(optimizer.model), weights(same.model))


# Micro-batches ----------------------------------------------------------------------------------


@pytest.mark.parametrize("sizes", [[16] * 4, [10, 1, 53]])
@pytest.mark.parametrize("fisher", ["sampled", "empirical", "exact"])
def test_micro_batches_make_the_same_step(fisher: str, sizes: list[int]) -> None:
    whole, sliced = KFAC(network(), fisher=fisher), KFAC(network(), fisher=fisher)
    for _ in range(2):
        whole.zero_grad()
        backward(whole, *batch())
        whole.step()
        sliced.zero_grad()
        for inputs, labels in zip(*(part.split(sizes) for part in batch()), strict=True):
            backward(sliced, inputs, labels, len(inputs) / 64)
        sliced.step()
    for name, factors in whole.factors().items():
        for one, other in zip(factors, sliced.factors()[name], strict=True):
            torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-14)
    torch.testing.assert_close(weights(whole.model), weights(sliced.model), rtol=1e-10, atol=1e-14)


def test_uniform_numbers_do_not_depend_on_slices() -> None:
    whole, sliced = Uniforms(3), Uniforms(3)
    parts = [sliced.take(count) for count in (1, 4095, 10, 9000)]
    assert torch.equal(whole.take(13106), torch.cat(parts))
    whole.end_step()
    sliced.end_step()
    assert torch.equal(whole.take(5), sliced.take(5))


def test_a_class_of_no_probability_is_never_drawn() -> None:
    class Zeros(Uniforms):
        def take(self, examples: int, each: int = 1) -> Tensor:
            return torch.zeros(examples * each)

    logits = torch.tensor([[-1000.0, 0.0, 0.0]])
    (gradient,) = output_gradients("cross_entropy", "sampled", logits, None, Zeros(0))
    torch.testing.assert_close(gradient, torch.tensor([[0.0, -0.5, 0.5]]))


def test_seeds_and_steps_draw_other_labels() -> None:
    factors = []
    for seed in (0, 1):
        optimizer = KFAC(network(), seed=seed, lr=0.0, factor_decay=0.0, factor_every=1)
        for _ in range(2):
            optimizer.zero_grad()
            backward(optimizer, *batch())
            optimizer.step()
            factors.append(optimizer.factors()["6"][1])
    assert len({tuple(factor.flatten().tolist()) for factor in factors}) == 4


# Saving and closing -----------------------------------------------------------------------------


@pytest.mark.parametrize("through_a_file", [False, True])
def test_a_saved_run_continues_to_the_bit(through_a_file: bool) -> None:
    settings: dict[str, Any] = {"factor_every": 2, "inverse_every": 3, "seed": 5}
    optimizer = KFAC(network(), **settings)
    train(optimizer, range(7))
    saved: Any = {"model": optimizer.model.state_dict(), "optimizer": optimizer.state_dict()}
    if through_a_file:
        buffer = io.BytesIO()
        torch.save(saved, buffer)
        buffer.seek(0)
        saved = torch.load(buffer)
    model = network()
    model.load_state_dict(saved["model"])
    resumed = KFAC(model, lr=7.0, seed=99)
    resumed.load_state_dict(saved["optimizer"])
    train(optimizer, range(7, 14))
    train(resumed, range(7, 14))
    assert torch.equal(weights(optimizer.model), weights(resumed.model))
    for name, factors in optimizer.factors().items():
        assert all(torch.equal(one, other) for one, other in zip(factors, resumed.factors()[name], strict=True))


def test_a_state_of_another_optimizer_is_refused() -> None:
    model = network()
    with pytest.raises(BatchlensError, match="not of a KFAC"):
        KFAC(model).load_state_dict(torch.optim.SGD(model.parameters(), lr=0.1).state_dict())


def test_closing_leaves_the_model_as_it_was() -> None:
    inputs, _ = batch()
    model = network()
    outputs = model(inputs)
    optimizer = KFAC(model)
    assert hooks(model) == 3
    assert torch.equal(model(inputs), outputs)
    optimizer.close()
    assert hooks(model) == 0
    assert torch.equal(model(inputs), outputs)
    optimizer.close()


def test_hooks_go_with_the_optimizer() -> None:
    model = network()
    optimizer = KFAC(model)
    train(optimizer, range(1))
    outputs = model(batch()[0])
    gone = weakref.ref(optimizer)
    gc.disable()
    try:
        del optimizer
        assert gone() is None
    finally:
        gc.enable()
    assert hooks(model) == 0
    assert outputs.requires_grad


def test_copies_of_the_model_are_free_of_the_optimizer() -> None:
    inputs, labels = batch()
    optimizer = KFAC(network())
    copied = copy.deepcopy(optimizer.model)
    buffer = io.BytesIO()
    torch.save(optimizer.model, buffer)
    buffer.seek(0)
    for model in (copied, torch.load(buffer, weights_only=False)):
        outputs = model(inputs)
        assert live_calls() == 0
        assert torch.equal(outputs, copied(inputs))
    backward(optimizer, inputs, labels)
    optimizer.step()


# Refusing ---------------------------------------------------------------------------------------


class Attending(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.positions = nn.Parameter(torch.zeros(3, 4))
        self.attention = nn.MultiheadAttention(4, 1)
        self.norm = nn.LayerNorm(4)
        self.depthwise = nn.Conv2d(4, 4, 3, groups=4)
        self.circular = nn.Conv2d(4, 4, 3, padding=1, padding_mode="circular")
        self.frozen = nn.BatchNorm2d(4).requires_grad_(False)
        self.out = nn.Linear(4, 2)


def test_other_parameters_are_refused_by_name() -> None:
    with pytest.raises(ValueError, match='other="sgd"') as error:
        KFAC(Attending())
    listed = dict(line.strip().split(": ") for line in str(error.value).splitlines()[1:])
    assert listed["positions"] == "a parameter of Attending"
    assert listed["norm.weight"] == "a parameter of LayerNorm"
    assert listed["depthwise.weight"] == "a convolution with 4 groups"
    assert listed["circular.weight"] == "a convolution padded by 'circular'"
    assert listed["attention.in_proj_weight"] == "a parameter of MultiheadAttention"
    assert listed["attention.out_proj.weight"] == "part of a MultiheadAttention, which never calls it"
    assert not any(name.startswith(("out.", "frozen")) for name in listed)
    assert hooks(KFAC(Attending(), other="sgd").model) == 1


def test_a_bias_beside_a_shared_weight_is_another_parameter() -> None:
    model = nn.Sequential(nn.Embedding(5, 3), nn.Linear(3, 5))
    model[1].weight = model[0].weight
    with pytest.raises(ValueError, match=r"1\.bias: the bias of a Linear whose weight is shared"):
        KFAC(model)


def test_biases_beside_one_weight_of_two_layers_are_other_parameters() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    model[1].weight = model[0].weight
    with pytest.raises(ValueError, match=r"0\.bias: the bias of a Linear[^\n]*\n  1\.bias: the bias of a Linear"):
        KFAC(model)


@pytest.mark.parametrize("option", [{"max_norm": 1.0}, {"scale_grad_by_freq": True}, {"sparse": True}])
def test_embeddings_with_other_gradients_are_refused(option: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=f"an embedding with {next(iter(option))}"):
        KFAC(nn.Embedding(5, 3, **option))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"damping": -1}, "`damping` must be finite and above 0, got -1."),
        ({"damping": 0.0}, "`damping` must be finite and above 0, got 0.0."),
        ({"lr": -0.1}, "`lr` must be finite and at least 0, got -0.1."),
        ({"momentum": 1.0}, "`momentum` must be in [0, 1), got 1.0."),
        ({"kl_clip": 0}, "`kl_clip` must be finite and above 0, got 0."),
        ({"factor_decay": 1}, "`factor_decay` must be in [0, 1), got 1."),
        ({"factor_every": 0}, "`factor_every` must be at least 1, got 0."),
        ({"inverse_every": 1.5}, "`inverse_every` must be a whole number, got 1.5."),
        ({"loss": "hinge"}, "`loss` must be one of cross_entropy, squared_error, got 'hinge'."),
        ({"fisher": "true"}, "`fisher` must be one of sampled, empirical, exact, got 'true'."),
        ({"other": "adam"}, "`other` must be one of refuse, sgd, got 'adam'."),
    ],
)
def test_bad_arguments_are_named(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError) as error:  # noqa: PT011
        KFAC(network(), **arguments)
    assert str(error.value) == message


def test_bad_outputs_and_targets_are_named() -> None:
    inputs, labels = batch()
    optimizer = KFAC(network(), fisher="empirical")
    outputs = optimizer.model(inputs)
    with pytest.raises(ValueError, match=r"observe\(outputs, targets\)"):
        optimizer.observe(outputs)
    with pytest.raises(ValueError, match=r"`targets` must have the shape \(64,\), got \(63,\)"):
        optimizer.observe(outputs, labels[1:])
    with pytest.raises(ValueError, match=r"`outputs` must have the shape"):
        optimizer.observe(outputs.sum(0), labels)
    optimizer.observe(outputs, labels)
    with pytest.raises(BatchlensError, match="not observed before"):
        optimizer.observe(outputs, labels)


def test_a_step_without_curvature_or_gradient_is_refused() -> None:
    inputs, labels = batch()
    optimizer = KFAC(network())
    before = weights(optimizer.model)
    with pytest.raises(BatchlensError, match="backward"):
        optimizer.step()
    functional.cross_entropy(optimizer.model(inputs), labels).backward()
    with pytest.raises(BatchlensError, match="observe"):
        optimizer.step()
    with pytest.raises(ValueError, match="groups as `groups`"):
        optimizer.add_param_group({"params": [nn.Parameter(torch.zeros(1))]})
    assert torch.equal(weights(optimizer.model), before)


def test_a_layer_in_evaluation_mode_is_named() -> None:
    optimizer = KFAC(network())
    optimizer.model[4].eval()  # type: ignore[index]
    backward(optimizer, *batch())
    with pytest.raises(BatchlensError, match="4 has a gradient but no factors"):
        optimizer.step()


# Failing ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_gradient_that_is_not_finite_leaves_the_weights(value: float) -> None:
    optimizer = KFAC(network(), frequent_start=False)
    train(optimizer, range(3))
    before, state = weights(optimizer.model), copy.deepcopy(optimizer.state_dict())
    assert optimizer.model[4].weight.grad is not None  # type: ignore[index]
    optimizer.model[4].weight.grad[0, 0] = value  # type: ignore[index]
    with pytest.raises(CurvatureError, match=r"not finite at step 3 \(4.weight\): the run has diverged"):
        optimizer.step()
    assert torch.equal(weights(optimizer.model), before)
    train(optimizer, range(3, 4))
    again = KFAC(network())
    nn.utils.vector_to_parameters(before, again.model.parameters())
    again.load_state_dict(state)
    train(again, range(3, 4))
    assert torch.equal(weights(optimizer.model), weights(again.model))


def test_a_step_that_overflows_leaves_the_weights() -> None:
    optimizer = KFAC(network(), frequent_start=False)
    train(optimizer, range(1))
    before = weights(optimizer.model)
    for parameter in optimizer.model.parameters():
        parameter.grad = torch.full_like(parameter, 1e308)
    with pytest.raises(CurvatureError, match="step is not finite at step 1"):
        optimizer.step()
    assert torch.equal(weights(optimizer.model), before)


def test_a_failed_step_leaves_nothing_to_the_next() -> None:
    optimizer, fresh = KFAC(network(), fisher="exact"), KFAC(network(), fisher="exact")
    inputs, labels = batch()
    backward(optimizer, 3 * inputs, labels)
    optimizer.model[4].weight.grad.fill_(float("nan"))  # type: ignore[index]
    with pytest.raises(CurvatureError, match="gradient"):
        optimizer.step()
    train(optimizer, range(1))
    train(fresh, range(1))
    assert torch.equal(weights(optimizer.model), weights(fresh.model))


def test_factors_that_are_not_finite_leave_the_weights() -> None:
    inputs, labels = batch()
    optimizer = KFAC(network())
    before = weights(optimizer.model)
    optimizer.observe(optimizer.model(1e200 * inputs))  # squares overflow; the gradient may not
    functional.cross_entropy(optimizer.model(inputs), labels).backward()
    with pytest.raises(CurvatureError, match=r"input factor is not finite at step 0 \(0, 4\)"):
        optimizer.step()
    assert torch.equal(weights(optimizer.model), before)
    train(optimizer, range(1))


@pytest.mark.parametrize(("shift", "survives"), [(-0.5, True), (-50.0, False)])
def test_an_indefinite_factor_raises_damping_once(shift: float, survives: bool) -> None:
    """Damping 0.1 becomes 1 for that factor: enough for an eigenvalue -0.5, not for -50."""
    optimizer = KFAC(network(), inverse_every=1)
    train(optimizer, range(1))
    before = weights(optimizer.model)
    inputs, outputs = optimizer.factors()["6"]
    inputs.copy_(torch.eye(len(inputs)))  # both traces 1 a dimension, so that pi is near 1
    outputs.copy_(torch.diag(torch.tensor([shift, 1.5 - shift, 1.5, 1.5])))
    if survives:
        train(optimizer, range(1, 2))
        assert weights(optimizer.model).isfinite().all()
        return
    with pytest.raises(CurvatureError, match="A factor of 6 has no inverse at step 1"):
        train(optimizer, range(1, 2))
    assert torch.equal(weights(optimizer.model), before)


def test_a_layer_without_curvature_is_no_error() -> None:
    """Dead units: no gradient reaches the first layer, whose output factor is 0."""
    first = nn.Linear(3, 2)
    nn.init.constant_(first.bias, -1e3)
    model = nn.Sequential(first, nn.ReLU(), nn.Linear(2, 2))
    optimizer = KFAC(model)
    outputs = model(torch.randn(8, 3))
    optimizer.observe(outputs)
    outputs.logsumexp(1).mean().backward()
    optimizer.step()
    assert float(optimizer.factors()["0"][1].abs().max()) == 0
    assert weights(model).isfinite().all()


# Looking ----------------------------------------------------------------------------------------


def test_the_summary_lists_every_parameter() -> None:
    model = nn.ModuleDict({"embedding": nn.Embedding(100, 8), "norm": nn.LayerNorm(8)})
    model["hidden"] = nn.Linear(8, 8)
    model["output"] = nn.Linear(8, 100, bias=False)
    model["output"].weight = model["embedding"].weight
    lines = KFAC(model, other="sgd").summary().splitlines()
    cells = [[cell for cell in line.split("  ") if cell] for line in lines]
    assert [[cell.strip() for cell in line] for line in cells] == [
        ["layer", "treatment", "input factor", "output factor", "memory"],
        ["embedding + output", "K-FAC, Embedding + Linear", "100 diagonal", "8 dense", "1.31 kB"],
        ["hidden", "K-FAC, Linear with bias", "9 dense", "8 dense", "1.16 kB"],
        ["norm.weight", "gradient only: a parameter of LayerNorm"],
        ["norm.bias", "gradient only: a parameter of LayerNorm"],
        ["total", "2.47 kB"],
    ]
