"""Gradients of single examples from layers' inputs and output gradients: against one backward pass per example."""

import gc
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint

import batchlens as bl
from batchlens.monitor._ghost import squared_norms
from batchlens.monitor._layers import Call
from tests.monitor import exact

EXAMPLES = 6


class Net(nn.Module):
    """A model made of layers with names and of a function that uses them."""

    def __init__(self, run: Callable[["Net", Tensor], Any], **layers: nn.Module) -> None:
        super().__init__()
        self.run = run
        for name, layer in layers.items():
            self.add_module(name, layer)

    def __getattr__(self, name: str) -> Any:
        return super().__getattr__(name)

    def forward(self, inputs: Tensor) -> Any:
        return self.run(self, inputs)


def chain(*layers: nn.Module) -> Net:
    return Net(lambda net, inputs: net.layers(inputs), layers=nn.Sequential(*layers))


def tied() -> Net:
    """A language model: the embedding is the output layer too."""

    def run(net: Net, tokens: Tensor) -> Any:
        hidden = net.embedding(tokens)
        return net.head(torch.tanh(hidden.cumsum(1)))

    net = Net(run, embedding=nn.Embedding(7, 4, padding_idx=2), head=nn.Linear(4, 7, bias=False))
    net.head.weight = net.embedding.weight
    return net


def twice(net: Net, inputs: Tensor) -> Any:
    return net.layer(torch.tanh(net.layer(inputs)))


def shared_weight() -> Net:
    net = Net(
        lambda net, inputs: net.second(torch.tanh(net.first(inputs))), first=nn.Linear(4, 4), second=nn.Linear(4, 4)
    )
    net.second.weight = net.first.weight
    return net


def images(*shape: int) -> Tensor:
    return torch.randn(EXAMPLES, *shape)


def tokens(length: int) -> Tensor:
    return torch.randint(7, (EXAMPLES, length))


CASES: dict[str, Callable[[], tuple[nn.Module, Tensor]]] = {
    "linear": lambda: (chain(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 3, bias=False)), images(5)),
    "linear on short sequences": lambda: (chain(nn.Linear(9, 8), nn.Tanh(), nn.Linear(8, 9)), images(3, 9)),
    "linear on long sequences": lambda: (chain(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 2)), images(11, 2)),
    "linear on a grid": lambda: (chain(nn.Linear(3, 2)), images(4, 5, 3)),
    "conv2d": lambda: (
        chain(nn.Conv2d(2, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 2, 2, bias=False)),
        images(2, 5, 5),
    ),
    "conv2d, strided, dilated, in groups": lambda: (
        chain(nn.Conv2d(4, 6, (3, 2), stride=(2, 1), padding=(1, 2), dilation=(1, 2), groups=2)),
        images(4, 7, 6),
    ),
    "conv2d, depthwise": lambda: (chain(nn.Conv2d(3, 6, 3, groups=3, padding="same")), images(3, 4, 5)),
    "conv2d in place": lambda: (
        chain(nn.Conv2d(1, 3, 3), nn.ReLU(inplace=True), nn.Flatten(), nn.Linear(27, 2)),
        images(1, 5, 5),
    ),
    "conv1d": lambda: (chain(nn.Conv1d(3, 4, 3, stride=2, padding=1)), images(3, 9)),
    "conv3d": lambda: (chain(nn.Conv3d(2, 3, 2)), images(2, 3, 4, 3)),
    "embedding": lambda: (chain(nn.Embedding(7, 3), nn.Tanh(), nn.Linear(3, 2)), tokens(9)),
    "embedding with padding": lambda: (chain(nn.Embedding(7, 3, padding_idx=1)), tokens(9)),
    "embedding of one token": lambda: (chain(nn.Embedding(7, 3)), torch.randint(7, (EXAMPLES,))),
    "layer norm": lambda: (chain(nn.LayerNorm((3, 4)), nn.Flatten(), nn.Linear(60, 2)), images(5, 3, 4)),
    "layer norm without bias": lambda: (chain(nn.Linear(4, 4), nn.LayerNorm(4, bias=False)), images(3, 4)),
    "group norm": lambda: (chain(nn.Conv2d(1, 4, 2), nn.GroupNorm(2, 4)), images(1, 4, 4)),
    "rms norm": lambda: (chain(nn.Linear(4, 4), nn.RMSNorm(4)), images(4)),
    "embedding tied to the output, few positions": lambda: (tied(), tokens(2)),
    "embedding tied to the output": lambda: (tied(), tokens(9)),
    "a layer used twice": lambda: (Net(twice, layer=nn.Linear(4, 4)), images(4)),
    "a convolution used twice": lambda: (Net(twice, layer=nn.Conv2d(2, 2, 3, padding=1, groups=2)), images(2, 4, 3)),
    "a layer norm used twice": lambda: (Net(twice, layer=nn.LayerNorm(4)), images(4)),
    "two layers with one weight": lambda: (shared_weight(), images(4)),
    "double precision": lambda: (chain(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 3)).double(), images(5).double()),
}


def loss(model: nn.Module, inputs: Tensor) -> Tensor:
    """Examples with gradients of different size, and signs that do not cancel."""
    outputs: Tensor = model(inputs)
    return (outputs.square() + outputs).flatten(1).sum(1).mean()


def check_last_step(noise: bl.NoiseScale, rows: Tensor) -> None:
    wanted = exact.of_batch(rows)
    found = noise._records[-1]
    assert found[:2] == pytest.approx(wanted, rel=1e-4)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_a_step_says_what_single_examples_say(case: str, reduction: str) -> None:
    torch.manual_seed(1)
    model, inputs = CASES[case]()
    noise = bl.NoiseScale(model, by="examples", examples=None, reduction=reduction)
    whole = loss(model, inputs) * (1 if reduction == "mean" else len(inputs))
    whole.backward()
    noise.step()
    assert noise.left_out == {}
    rows = exact.gradients(model, loss, zip(inputs, strict=True), dict(model.named_parameters()))
    check_last_step(noise, rows * (1 if reduction == "mean" else len(inputs)))


def run_step(model: nn.Module, noise: bl.NoiseScale, inputs: Tensor) -> None:
    model.zero_grad()
    loss(model, inputs).backward()
    noise.step()


def exact_rows(model: nn.Module, inputs: Tensor, left_out: dict[str, str] | None = None) -> Tensor:
    names = [name for name, own in model.named_parameters() if own.requires_grad and name not in (left_out or {})]
    return exact.gradients(model, loss, zip(inputs, strict=True), names)


def test_some_examples_stand_for_all() -> None:
    torch.manual_seed(0)
    model, inputs = chain(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(18, 2)), images(1, 5, 5)
    noise = bl.NoiseScale(model, by="examples", examples=2)
    run_step(model, noise, inputs)
    rows = exact_rows(model, inputs)
    small, large = float(rows[:2].square().sum(1).mean()), float(rows.mean(0).square().sum())
    assert noise._records[-1].noise == pytest.approx((small - large) / (1 - 1 / EXAMPLES), rel=1e-4)


@pytest.mark.parametrize(
    "case",
    ["linear", "linear on long sequences", "conv2d, strided, dilated, in groups", "embedding with padding",
     "layer norm without bias", "embedding tied to the output", "a layer used twice"],
)  # fmt: skip
def test_adam_weighs_every_entry(case: str) -> None:
    torch.manual_seed(2)
    model, inputs = CASES[case]()
    adam = torch.optim.Adam(model.parameters(), lr=1e-3, eps=1e-3)
    noise = bl.NoiseScale(model, by="examples", examples=None, geometry=adam)
    for _ in range(3):
        run_step(model, noise, inputs)
        adam.step()
    assert (noise.skipped, noise.estimate().steps) == (1, 2)  # the first step had no second moments
    model.zero_grad()
    loss(model, inputs).backward()
    rows = exact_rows(model, inputs)
    weights = [1 / ((own["exp_avg_sq"] / (1 - 0.999**3)).sqrt() + 1e-3) for own in adam.state.values()]
    noise.step()
    check_last_step(noise, rows * torch.cat([weight.flatten() for weight in weights]).sqrt())


def position_model(add: Callable[[Net, Tensor], Tensor]) -> Net:
    def run(net: Net, given: Tensor) -> Any:
        return net.head(net.embedding(given) + add(net, given))

    return Net(run, embedding=nn.Embedding(7, 4), positions=nn.Embedding(EXAMPLES, 4), head=nn.Linear(4, 7))


@pytest.mark.parametrize("lengths", [EXAMPLES, 4])
def test_positions_shared_by_all_examples_are_left_out(lengths: int) -> None:
    """Also where there are as many positions as examples."""
    torch.manual_seed(0)
    model, inputs = position_model(lambda net, given: net.positions(torch.arange(given.shape[1]))), tokens(lengths)
    noise = bl.NoiseScale(model, by="examples")
    run_step(model, noise, inputs)
    assert list(noise.left_out) == ["positions.weight"]
    run_step(model, noise, inputs)
    check_last_step(noise, exact_rows(model, inputs, noise.left_out))
    assert "positions.weight" in noise.estimate().sentence


def test_other_parameters_are_named_and_count_nowhere() -> None:
    torch.manual_seed(0)

    class Scale(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.factor = nn.Parameter(torch.ones(4))

        def forward(self, values: Tensor) -> Tensor:
            return values * self.factor

    circular = nn.Conv1d(1, 1, 3, padding=1, padding_mode="circular")
    model = Net(
        lambda net, given: net.circular(net.scale(net.first(given)).unsqueeze(1)),
        first=nn.Linear(4, 4),
        scale=Scale(),
        circular=circular,
    )
    inputs = images(4)
    noise = bl.NoiseScale(model, by="examples")
    assert noise.left_out == {
        "scale.factor": "a parameter of Scale",
        "circular.weight": "a convolution padded by 'circular'",
        "circular.bias": "a convolution padded by 'circular'",
    }
    run_step(model, noise, inputs)
    check_last_step(noise, exact_rows(model, inputs, noise.left_out))


def test_a_weight_used_outside_its_layer_is_left_out() -> None:
    torch.manual_seed(0)
    decayed = Net(lambda net, given: net.layer(given) + 3 * given @ net.layer.weight.T, layer=nn.Linear(4, 4))
    only_outside = Net(
        lambda net, given: functional.linear(given, net.layer.weight) + net.other(given),
        layer=nn.Linear(4, 4, bias=False),
        other=nn.Linear(4, 4),
    )
    for model in (decayed, only_outside):
        noise = bl.NoiseScale(model, by="examples")
        run_step(model, noise, images(4))
        assert list(noise.left_out) == ["layer.weight"]


def test_attention_of_torch_is_left_out_by_name() -> None:
    model = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
    noise = bl.NoiseScale(model, by="examples")
    assert list(noise.left_out) == [
        "self_attn.in_proj_weight", "self_attn.in_proj_bias", "self_attn.out_proj.weight", "self_attn.out_proj.bias",
    ]  # fmt: skip
    inputs = images(3, 8)
    run_step(model, noise, inputs)
    check_last_step(noise, exact_rows(model, inputs, noise.left_out))


def test_frozen_parameters_do_not_count() -> None:
    torch.manual_seed(0)
    model, inputs = chain(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 3)), images(5)
    first, _, last = model.layers
    first.requires_grad_(False)
    last.bias.requires_grad_(False)
    noise = bl.NoiseScale(model, by="examples")
    run_step(model, noise, inputs)
    check_last_step(noise, exact_rows(model, inputs))


def test_batch_norm_is_refused_unless_it_is_frozen() -> None:
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Flatten(), nn.Linear(18, 2))
    with pytest.raises(ValueError, match="`1` is a batch norm, which mixes the examples"):
        bl.NoiseScale(model, by="examples")
    model[1].eval()
    noise = bl.NoiseScale(model, by="examples")
    run_step(model, noise, images(1, 5, 5))
    assert list(noise.left_out) == ["1.weight", "1.bias"]
    model.train()
    with pytest.raises(bl.BatchlensError, match="mixes the examples"):
        run_step(model, noise, images(1, 5, 5))


def test_a_model_called_twice_in_a_step_has_pairs_as_examples() -> None:
    torch.manual_seed(0)
    model, inputs = chain(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 2)), images(2, 4)

    def pair_loss(net: nn.Module, given: Tensor) -> Tensor:
        first, second = net(given[:, 0]), net(given[:, 1])
        result: Tensor = (first * second + first).flatten(1).sum(1).mean()
        return result

    noise = bl.NoiseScale(model, by="examples")
    pair_loss(model, inputs).backward()
    noise.step()
    check_last_step(noise, exact.gradients(model, pair_loss, zip(inputs, strict=True), dict(model.named_parameters())))


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpointed_layers_count_once(reentrant: bool) -> None:
    torch.manual_seed(0)

    def run(net: Net, given: Tensor) -> Any:
        hidden: Tensor = checkpoint(net.inner, net.first(given), use_reentrant=reentrant)
        return net.last(hidden)

    inner = nn.Sequential(nn.Linear(4, 4), nn.Tanh())
    model, inputs = Net(run, first=nn.Linear(4, 4), inner=inner, last=nn.Linear(4, 2)), images(4)
    noise = bl.NoiseScale(model, by="examples")
    run_step(model, noise, inputs)
    assert noise.left_out == {}
    check_last_step(noise, exact_rows(model, inputs))


def test_gradients_that_are_only_asked_for_do_not_count() -> None:
    """Those of another loss, before and after the backward pass; and K-FAC's own passes."""
    torch.manual_seed(0)
    model, inputs = chain(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 2)), images(4)
    noise = bl.NoiseScale(model, by="examples")
    outputs = model(inputs)
    torch.autograd.grad(outputs.sum(), list(model.parameters()), retain_graph=True)
    noise.close()
    noise = bl.NoiseScale(model, by="examples")
    kfac = bl.KFAC(model, "squared_error")
    outputs = model(inputs)
    kfac.observe(outputs)
    (outputs.square() + outputs).flatten(1).sum(1).mean().backward()
    noise.step()
    check_last_step(noise, exact_rows(model, inputs))


def test_a_second_backward_pass_through_one_graph_is_refused() -> None:
    model, inputs = chain(nn.Linear(4, 2)), images(4)
    noise = bl.NoiseScale(model, by="examples")
    run_step(model, noise, inputs)
    model.zero_grad()
    whole = loss(model, inputs)
    whole.backward(retain_graph=True)
    whole.backward()
    with pytest.raises(bl.BatchlensError, match="second backward pass"):
        noise.step()


def test_half_precision_by_autocast_is_measured_in_single() -> None:
    torch.manual_seed(0)
    model, inputs = chain(nn.Linear(16, 8), nn.Tanh(), nn.Linear(8, 4)), images(16)
    noise = bl.NoiseScale(model, by="examples")
    with torch.autocast("cpu", dtype=torch.bfloat16):
        whole = loss(model, inputs)
    whole.backward()
    noise.step()
    assert noise.left_out == {}
    wanted = exact.of_batch(exact_rows(model, inputs))
    assert noise._records[-1][:2] == pytest.approx(wanted, rel=0.05)


class Largest(TorchDispatchMode):
    """How many entries the largest new tensor has."""

    entries = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = function(*args, **kwargs or {})
        storage = result.untyped_storage() if isinstance(result, Tensor) else None
        given = {own.untyped_storage().data_ptr() for own in args if isinstance(own, Tensor)}
        if storage is not None and storage.data_ptr() not in given:
            self.entries = max(self.entries, storage.nbytes() // 4)
        return result


@pytest.mark.parametrize("weighted", [False, True])
def test_no_more_is_held_at_once_than_a_layer_holds(weighted: bool) -> None:
    """The second convolution of the paper's Simple CNN: all its patches would be 26 times its input."""
    layer = nn.Conv2d(32, 64, 5, padding=2)
    call = Call(layer, torch.randn(64, 32, 14, 14), torch.randn(64, 64, 14, 14))
    weight = next(layer.parameters())
    with Largest() as largest:  # type: ignore[no-untyped-call]
        squared_norms(weight, [call], 64, torch.rand_like(weight) if weighted else None)
    assert 0 < largest.entries <= call.inputs.numel() + call.gradients.numel()


def test_nothing_is_held_beyond_the_backward_pass() -> None:
    """The inputs of layers are let go with the backward pass, even where the loss, and so its graph, is kept."""
    model, inputs = chain(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 2)), images(4)
    noise = bl.NoiseScale(model, by="examples")
    kept = []
    for _ in range(3):
        model.zero_grad()
        whole = loss(model, inputs)
        whole.backward()
        kept.append(whole)
        noise.step()
    uses = [found for found in gc.get_objects() if type(found).__name__ == "_Use"]
    assert uses
    assert all(use.inputs is None and use.call is None for use in uses)
    for _ in range(3):  # forward passes that no backward pass follows
        loss(model, inputs)
    gc.collect()
    assert [found for found in gc.get_objects() if type(found).__name__ == "_Use" and found.inputs is not None] == []
