"""The paper's networks: their sizes, what each layer computes, and what must not change with the batch size."""

import copy
import math
from collections.abc import Callable
from itertools import pairwise

import pytest
import torch
from torch import Tensor, nn

from batchlens.training.models import MLP, VGG11, ResNet, SimpleCNN, Transformer
from batchlens.training.models._normalization import GhostBatchNorm2d, hold_channels_at_norm_one


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def count(model: nn.Module, kind: type[nn.Module]) -> int:
    return sum(isinstance(module, kind) for module in model.modules())


# ---------------------------------------------------------------------------------------------
# Sizes
# ---------------------------------------------------------------------------------------------


def test_simple_cnn_of_the_paper() -> None:
    model = SimpleCNN()
    first, second = 32 * 25 + 32, 64 * 32 * 25 + 64
    hidden, output = 64 * 7 * 7 * 1024 + 1024, 1024 * 10 + 10
    assert sum(weight.numel() for weight in model.parameters()) == first + second + hidden + output == 3_274_634
    assert (count(model, nn.Conv2d), count(model, nn.Linear), count(model, nn.Dropout)) == (2, 2, 0)
    assert model(draw(3, 1, 28, 28)).shape == (3, 10)


@pytest.mark.parametrize("preactivated", [False, True])
@pytest.mark.parametrize(("blocks", "normalized", "size"), [(1, False, 75_050), (5, True, 464_154)])
def test_resnets_of_the_paper(blocks: int, normalized: bool, size: int, preactivated: bool) -> None:
    """Where activations are does not change their number: the stem's serves the first block, the last one is new."""
    model = ResNet(blocks, normalized, preactivated=preactivated)
    channels = [(3, 16)] + [(16, 16)] * 2 * blocks
    for narrow, wide in ((16, 32), (32, 64)):
        channels += [(narrow, wide)] + [(wide, wide)] * (2 * blocks - 1)
    # A normalised convolution has a scale and a shift in place of a bias. Pre-activated, the wide ones of a new stage
    # come one convolution later.
    expected = sum(9 * before * after + (2 if normalized else 1) * after for before, after in channels) + 64 * 10 + 10
    assert sum(weight.numel() for weight in model.parameters()) == expected == size
    assert count(model, nn.Conv2d) == len(channels) == 6 * blocks + 1
    assert count(model, nn.Linear) == 1
    assert count(model, GhostBatchNorm2d) == (len(channels) if normalized else 0)
    assert count(model, nn.BatchNorm2d) == count(model, GhostBatchNorm2d)
    assert model(draw(3, 3, 32, 32)).shape == (3, 10)


def test_vgg11_of_the_paper() -> None:
    model = VGG11()
    channels = [3, 64, 128, 256, 256, 512, 512, 512, 512]
    expected = sum(9 * before * after + 2 * after for before, after in pairwise(channels))
    assert sum(weight.numel() for weight in model.parameters()) == expected + 512 * 10 + 10 == 9_228_362
    assert (count(model, nn.Conv2d), count(model, nn.Linear), count(model, GhostBatchNorm2d)) == (8, 1, 8)
    assert model(draw(2, 3, 32, 32)).shape == (2, 10)


def test_transformer_of_the_paper() -> None:
    model = Transformer()
    attention, norms = 4 * 512 * 512, 2 * 2 * 512
    dense = 512 * 2048 + 2048 + 2048 * 512 + 512
    expected = 32_768 * 512 + 2 * (attention + norms + dense)
    assert sum(weight.numel() for weight in model.parameters()) == expected == 23_077_888
    assert model.output.weight is model.embedding.weight
    assert model(torch.zeros(1, 64, dtype=torch.int64)).shape == (1, 64, 32_768)


def test_mlp_shapes() -> None:
    model = MLP()
    assert sum(weight.numel() for weight in model.parameters()) == 64 * 64 + 64 + 64 * 10 + 10
    assert model(draw(5, 1, 8, 8)).shape == (5, 10)


def test_width_narrows() -> None:
    images = draw(2, 3, 32, 32)
    for narrow in (ResNet(width=4), ResNet(2, normalized=True, width=4), VGG11(width=4)):
        assert sum(weight.numel() for weight in narrow.parameters()) < 60_000
        assert narrow(images).shape == (2, 10)
    assert SimpleCNN(channels=(2, 3), hidden=5)(draw(2, 1, 28, 28)).shape == (2, 10)


def test_weights_start_as_he_says() -> None:
    torch.manual_seed(0)
    model = SimpleCNN()
    layers = [module for module in model.modules() if isinstance(module, nn.Conv2d | nn.Linear)]
    spreads = [*(math.sqrt(2 / inputs) for inputs in (25, 32 * 25, 64 * 49)), 0.01]
    for layer, spread in zip(layers, spreads, strict=True):
        assert float(layer.weight.detach().std()) == pytest.approx(spread, rel=0.1)
        assert layer.bias is not None
        assert not layer.bias.any()


# ---------------------------------------------------------------------------------------------
# Residual networks
# ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("preactivated", [False, True])
@pytest.mark.parametrize("normalized", [False, True])
def test_shortcuts_subsample_and_pad_with_zeros(normalized: bool, preactivated: bool) -> None:
    model = ResNet(2, normalized, width=4, preactivated=preactivated).eval()
    for weight in model.stages.parameters():
        nn.init.zeros_(weight)  # what is left of a block is its shortcut, rectified where blocks end so
    shapes = {4: (4, 8, 1), 8: (8, 4, 2), 16: (16, 2, 4)}
    images = draw(2, 4, 8, 8)
    if not preactivated:
        images = images.abs() + 0.1
    hidden = images
    for number, stage in enumerate(model.stages):
        hidden = stage(hidden)
        channels, side, skip = shapes[4 * 2 ** (number // 2)]
        expected = torch.zeros(2, channels, side, side)
        for row in range(side):
            for column in range(side):
                expected[:, :4, row, column] = images[:, :, skip * row, skip * column]
        assert torch.equal(hidden, expected)


def test_shortcuts_have_no_parameters() -> None:
    for number in range(3):
        block = ResNet(width=4).stages[number]
        assert [len(weight) for weight in block.parameters()] == [4 * 2**number] * 4
        assert count(block, nn.Conv2d) == 2


def rectified(hidden: Tensor) -> Tensor:
    return hidden.clamp(min=0)


def test_a_block_adds_its_input() -> None:
    images = draw(2, 3, 6, 6)
    for preactivated in (False, True):
        blocks = ResNet(2, width=3, preactivated=preactivated).stages
        first, second = (module for module in blocks[1].modules() if isinstance(module, nn.Conv2d))
        if preactivated:
            expected = images + second(rectified(first(rectified(images))))
        else:
            expected = rectified(images + second(rectified(first(images))))
        torch.testing.assert_close(blocks[1](images), expected)


def test_resnet8_by_hand() -> None:
    """Pre-activated: the stem's output is rectified before both paths, later blocks pass on what is negative."""
    torch.manual_seed(0)
    model = ResNet(width=2).double()
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(0.1 * torch.randn_like(weight))  # biases start at zero
    stem, *convolutions = (module for module in model.modules() if isinstance(module, nn.Conv2d))
    images = draw(2, 3, 32, 32).double()
    hidden = rectified(stem(images))
    for first, second in zip(convolutions[::2], convolutions[1::2], strict=True):
        branch = second(rectified(first(rectified(hidden))))
        step, new = hidden.shape[-1] // branch.shape[-1], branch.shape[1] - hidden.shape[1]
        subsampled = hidden[:, :, ::step, ::step]
        nothing = torch.zeros(2, new, *branch.shape[2:], dtype=torch.float64)
        hidden = torch.cat([subsampled, nothing], 1) + branch
    assert bool((hidden < 0).any())
    means = rectified(hidden).flatten(2).sum(2) / 64
    torch.testing.assert_close(model(images), means @ model.head.weight.T + model.head.bias)


def test_normalised_and_pre_activated_by_hand() -> None:
    """Every normalisation but the last is followed by relu and convolution; the first block shares the stem's."""
    torch.manual_seed(0)
    model = ResNet(1, normalized=True, width=2).double().eval()
    kinds = [type(module).__name__ for module in model.modules() if not list(module.children())]
    layer = ["GhostBatchNorm2d", "ReLU", "Conv2d"]
    assert kinds == ["Conv2d", "GhostBatchNorm2d", "Conv2d", *layer * 5, "GhostBatchNorm2d", "ReLU", "Linear"]
    stem, *norms = (module for module in model.modules() if isinstance(module, GhostBatchNorm2d))
    for number, norm in enumerate([stem, *norms]):
        nn.init.constant_(norm.bias, 0.1 * number - 0.2)
    conv, *convolutions = (module for module in model.modules() if isinstance(module, nn.Conv2d))
    images = draw(2, 3, 32, 32).double()
    hidden = rectified(stem(conv(images)))
    hidden = hidden + convolutions[1](rectified(norms[0](convolutions[0](hidden))))
    torch.testing.assert_close(model.stages[0](rectified(stem(conv(images)))), hidden)
    branch = convolutions[3](rectified(norms[2](convolutions[2](rectified(norms[1](hidden))))))
    shortcut = torch.cat([hidden[:, :, ::2, ::2], torch.zeros(2, 2, 16, 16, dtype=torch.float64)], 1)
    torch.testing.assert_close(model.stages[1](hidden), shortcut + branch)


@pytest.mark.parametrize("preactivated", [False, True])
def test_resnet_averages_over_the_image(preactivated: bool) -> None:
    model = ResNet(width=2, preactivated=preactivated)
    images = draw(2, 3, 32, 32)
    features = model.stages(model.stem(images).clamp(min=0)).clamp(min=0)
    assert features.shape == (2, 8, 8, 8)
    means = torch.stack([features[:, :, row, column] for row in range(8) for column in range(8)]).sum(0) / 64
    torch.testing.assert_close(model(images), means @ model.head.weight.T + model.head.bias)


# ---------------------------------------------------------------------------------------------
# Ghost batch normalisation
# ---------------------------------------------------------------------------------------------


def make_norm(channels: int = 3) -> GhostBatchNorm2d:
    norm = GhostBatchNorm2d(channels)
    nn.init.normal_(norm.weight, generator=torch.Generator().manual_seed(1))
    nn.init.normal_(norm.bias, generator=torch.Generator().manual_seed(2))
    return norm


def normalize_by_hand(norm: GhostBatchNorm2d, ghost: Tensor) -> Tensor:
    """One ghost, channel by channel, with the mean and variance of all its values."""
    out = torch.empty_like(ghost)
    for channel in range(ghost.shape[1]):
        values = ghost[:, channel].double()
        mean = values.sum() / values.numel()
        variance = ((values - mean) ** 2).sum() / values.numel()
        scaled = (values - mean) / torch.sqrt(variance + 1e-5)
        out[:, channel] = (scaled * norm.weight[channel] + norm.bias[channel]).float()
    return out.detach()


@pytest.mark.parametrize(
    ("size", "ghosts"), [(96, [32, 32, 32]), (48, [32, 16]), (32, [32]), (7, [7]), (33, [32, 1]), (65, [32, 32, 1])]
)
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_ghosts_are_normalised_each_by_itself(size: int, ghosts: list[int], layout: torch.memory_format) -> None:
    norm = make_norm()
    images = 3 * draw(size, 3, 4, 5) + torch.arange(size)[:, None, None, None]  # every ghost has a mean of its own
    expected, start = [], 0
    for ghost in ghosts:
        expected.append(normalize_by_hand(norm, images[start : start + ghost]))
        start += ghost
    assert start == size
    found = norm(images.contiguous(memory_format=layout))
    assert found.is_contiguous(memory_format=layout)
    torch.testing.assert_close(found.detach(), torch.cat(expected), rtol=1e-4, atol=1e-4)


def test_running_statistics_follow_ghost_after_ghost() -> None:
    norm = make_norm(2)
    images = draw(48, 2, 3, 3) + torch.arange(48)[:, None, None, None]
    norm(images)
    mean, variance = torch.zeros(2), torch.ones(2)
    for ghost in (images[:32], images[32:]):
        mean = 0.9 * mean + 0.1 * ghost.mean((0, 2, 3))
        variance = 0.9 * variance + 0.1 * ghost.var((0, 2, 3), correction=1)
    torch.testing.assert_close(norm.running_mean, mean)
    torch.testing.assert_close(norm.running_var, variance)


def test_evaluation_uses_the_running_statistics() -> None:
    norm = make_norm(2)
    norm(draw(64, 2, 3, 3) * 5 + 2)
    norm.eval()
    assert norm.running_mean is not None
    assert norm.running_var is not None
    mean, variance = norm.running_mean.clone(), norm.running_var.clone()
    images = draw(70, 2, 3, 3, seed=1)
    scale = norm.weight / torch.sqrt(variance + 1e-5)
    expected = (images - mean[:, None, None]) * scale[:, None, None] + norm.bias[:, None, None]
    torch.testing.assert_close(norm(images), expected)
    assert torch.equal(norm.running_mean, mean)
    assert torch.equal(norm.running_var, variance)


@pytest.mark.parametrize(
    "make",
    [
        lambda: ResNet(1, normalized=True, width=2),
        lambda: ResNet(1, normalized=True, width=2, preactivated=False),
        lambda: VGG11(width=2),
    ],
)
def test_slices_of_ghosts_change_nothing(make: Callable[[], nn.Module]) -> None:
    torch.manual_seed(0)
    whole = make()
    sliced = copy.deepcopy(whole)
    images = draw(80, 3, 32, 32)
    weights = draw(80, 10, seed=1)
    outputs = whole(images)
    (outputs * weights).sum().backward()
    parts = []
    for part in (slice(0, 32), slice(32, 80)):
        parts.append(sliced(images[part]))
        (parts[-1] * weights[part]).sum().backward()
    torch.testing.assert_close(torch.cat(parts), outputs, rtol=1e-4, atol=1e-5)
    for (name, one), other in zip(whole.named_parameters(), sliced.parameters(), strict=True):
        assert one.grad is not None
        assert other.grad is not None
        scale = float(one.grad.abs().max())
        assert scale > 0, name
        torch.testing.assert_close(other.grad, one.grad, rtol=1e-3, atol=1e-4 * scale, msg=name)
    for (name, buffer), of_slices in zip(whole.named_buffers(), sliced.buffers(), strict=True):
        torch.testing.assert_close(of_slices, buffer, rtol=1e-4, atol=1e-5, msg=name)


def test_slices_that_cut_a_ghost_do_change_something() -> None:
    norm, images = make_norm(), draw(64, 3, 2, 2)
    cut = torch.cat([norm(images[:16]), norm(images[16:])])
    assert not torch.allclose(cut, norm(images), atol=1e-2)


# ---------------------------------------------------------------------------------------------
# Channels of norm 1
# ---------------------------------------------------------------------------------------------


def norms_of(weight: Tensor) -> list[float]:
    return [math.sqrt(sum(float(value) ** 2 for value in channel.flatten())) for channel in weight.detach()]


def test_channels_are_scaled_to_norm_one_and_nothing_else_is() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3), nn.Flatten(), nn.Linear(3, 2))
    before = copy.deepcopy(model.state_dict())
    hold_channels_at_norm_one(model)
    for name, value in model.state_dict().items():
        if name != "0.weight":
            assert torch.equal(value, before[name]), name
    found = model.state_dict()["0.weight"]
    for channel, norm in enumerate(norms_of(before["0.weight"])):
        torch.testing.assert_close(found[channel], before["0.weight"][channel] / norm)
    assert norms_of(found) == pytest.approx([1] * 3, abs=1e-6)


@pytest.mark.parametrize("scale", [1e-12, 1e12])
def test_norm_one_from_any_scale(scale: float) -> None:
    layer = nn.Conv2d(2, 3, 3)
    with torch.no_grad():
        layer.weight.mul_(scale)
    hold_channels_at_norm_one(layer)
    assert norms_of(layer.weight) == pytest.approx([1] * 3, abs=1e-6)


def test_a_channel_of_zeros_stays() -> None:
    layer = nn.Conv2d(1, 2, 1)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([0.0, -4.0]).view(2, 1, 1, 1))
    hold_channels_at_norm_one(layer)
    assert layer.weight.flatten().tolist() == [0.0, -1.0]


def test_norm_one_keeps_weights_trainable_in_place() -> None:
    layer = nn.Conv2d(2, 3, 3).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    weight, memory = layer.weight, layer.weight.data_ptr()
    hold_channels_at_norm_one(layer)
    assert layer.weight is weight
    assert weight.data_ptr() == memory
    assert weight.requires_grad
    assert weight.is_leaf


@pytest.mark.parametrize("make", [lambda: ResNet(1, normalized=True), VGG11])
def test_normalised_networks_start_at_norm_one(make: Callable[[], nn.Module]) -> None:
    for module in make().modules():
        if isinstance(module, nn.Conv2d):
            assert module.bias is None
            squares = module.weight.detach().double().flatten(1).square().sum(1)
            torch.testing.assert_close(squares, torch.ones_like(squares), rtol=1e-5, atol=0)


# ---------------------------------------------------------------------------------------------
# Transformer
# ---------------------------------------------------------------------------------------------


def small_transformer(**changes: int) -> Transformer:
    torch.manual_seed(0)
    return Transformer(**{"vocabulary": 11, "width": 8, "layers": 2, "heads": 2, "hidden": 12, "length": 6, **changes})


def test_later_tokens_never_change_earlier_outputs() -> None:
    model = small_transformer().eval()
    tokens = torch.tensor([[3, 1, 4, 1, 5, 9]])
    outputs = model(tokens)
    for position in range(6):
        changed = tokens.clone()
        changed[0, position] = 7
        difference = (model(changed) - outputs).abs().amax(-1)[0]
        assert bool((difference[:position] == 0).all())
        assert bool((difference[position:] > 1e-4).all())  # and every one from there on sees it


def test_shorter_sequences_say_the_same() -> None:
    model = small_transformer().eval()
    tokens = torch.tensor([[3, 1, 4, 1, 5, 9]])
    torch.testing.assert_close(model(tokens[:, :4]), model(tokens)[:, :4])


def test_positions_are_those_of_vaswani() -> None:
    model = small_transformer(width=16, length=64)
    for position in range(64):
        for pair in range(8):
            angle = position / 10_000 ** (2 * pair / 16)
            assert float(model.positions[position, 2 * pair]) == pytest.approx(math.sin(angle), abs=1e-5)
            assert float(model.positions[position, 2 * pair + 1]) == pytest.approx(math.cos(angle), abs=1e-5)


def test_transformer_by_hand() -> None:
    model = small_transformer().double()
    state: dict[str, Tensor] = {name: value.double() for name, value in model.state_dict().items()}
    tokens = torch.tensor([[2, 7, 1, 8]])

    def norm(hidden: Tensor, name: str) -> Tensor:
        centred = hidden - hidden.mean(-1, keepdim=True)
        scaled: Tensor = centred / (centred.square().mean(-1, keepdim=True) + 1e-5).sqrt()
        return scaled * state[f"{name}.weight"] + state[f"{name}.bias"]

    hidden = state["embedding.weight"][tokens[0]] * math.sqrt(8) + model.positions[:4].double()
    for layer in ("layers.0", "layers.1"):
        query, key, value = (hidden @ state[f"{layer}.attention.{name}.weight"].T for name in ("query", "key", "value"))
        heads = []
        for head in (slice(0, 4), slice(4, 8)):
            rows = []
            for now in range(4):
                scores = torch.stack([query[now, head] @ key[past, head] / 2 for past in range(now + 1)])
                share = scores.exp() / scores.exp().sum()
                rows.append((share[:, None] * value[: now + 1, head]).sum(0))
            heads.append(torch.stack(rows))
        mixed = torch.cat(heads, -1) @ state[f"{layer}.attention.output.weight"].T
        hidden = norm(hidden + mixed, f"{layer}.attention_norm")
        inner = (hidden @ state[f"{layer}.dense.0.weight"].T + state[f"{layer}.dense.0.bias"]).clamp(min=0)
        dense = inner @ state[f"{layer}.dense.2.weight"].T + state[f"{layer}.dense.2.bias"]
        hidden = norm(hidden + dense, f"{layer}.dense_norm")
    torch.testing.assert_close(model(tokens)[0], hidden @ state["embedding.weight"].T)


def test_embedding_stays_tied() -> None:
    model = small_transformer()
    copied, loaded = copy.deepcopy(model), small_transformer()
    loaded.load_state_dict(model.state_dict())
    for one in (copied, loaded):
        assert one.output.weight is one.embedding.weight
        assert sum(weight.numel() for weight in one.parameters()) == sum(w.numel() for w in model.parameters())
    # The gradient has the part of the output: tokens that were never read get one too.
    model(torch.tensor([[1, 2]])).sum().backward()
    assert model.embedding.weight.grad is not None
    assert bool(model.embedding.weight.grad[5].any())


@pytest.mark.parametrize(
    "make",
    [
        small_transformer,
        lambda: ResNet(1, normalized=True, width=2),
        lambda: SimpleCNN(channels=(1, 2), hidden=3),
        lambda: VGG11(width=2),
        MLP,
    ],
)
def test_state_round_trip(make: Callable[[], nn.Module]) -> None:
    one = make()
    inputs = {SimpleCNN: draw(3, 1, 28, 28), MLP: draw(3, 1, 8, 8), Transformer: torch.tensor([[1, 2, 3]])}.get(
        type(one), draw(3, 3, 32, 32)
    )
    one(inputs)  # running statistics move
    torch.manual_seed(99)
    other = make()
    with torch.no_grad():
        for weight in other.parameters():
            weight.add_(0.5)
    assert not torch.equal(other.eval()(inputs), one.eval()(inputs))
    other.load_state_dict(one.state_dict())
    assert torch.equal(other.eval()(inputs), one.eval()(inputs))
