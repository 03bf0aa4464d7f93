"""K-FAC used in ways that would make its factors wrong: a sentence instead."""

import copy
import pickle
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from batchlens import BatchlensError
from batchlens.kfac import KFAC


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3)).double()


def batch(size: int = 32, seed: int = 0) -> tuple[Tensor, Tensor]:
    random = torch.Generator().manual_seed(seed)
    inputs = torch.randn(size, 4, generator=random, dtype=torch.float64)
    return inputs, (inputs[:, :3] + 0.1).argmax(1)


def observe(optimizer: KFAC, inputs: Tensor) -> Tensor:
    outputs: Tensor = optimizer.model(inputs)
    optimizer.observe(outputs)
    return outputs


def step(optimizer: KFAC, inputs: Tensor, labels: Tensor) -> None:
    optimizer.zero_grad()
    functional.cross_entropy(observe(optimizer, inputs), labels).backward()
    optimizer.step()


def weights(model: nn.Module) -> Tensor:
    return nn.utils.parameters_to_vector(model.parameters()).detach().clone()


# Weights used outside their layers --------------------------------------------------------------


class Language(nn.Module):
    """A tied output in one of several ways."""

    def __init__(self, output: Callable[[nn.Embedding, Tensor], Tensor]) -> None:
        super().__init__()
        self.embedding = nn.Embedding(7, 4)
        self.hidden = nn.Linear(4, 4)
        self.output = output

    def forward(self, tokens: Tensor) -> Tensor:
        return self.output(self.embedding, torch.tanh(self.hidden(self.embedding(tokens))))


@pytest.mark.parametrize("autocast", [False, True])
@pytest.mark.parametrize(
    "output",
    [
        lambda embedding, hidden: functional.linear(hidden, embedding.weight),
        lambda embedding, hidden: hidden @ embedding.weight.T,
        lambda embedding, hidden: hidden @ (2 * embedding.weight).T + hidden.sum(),
        lambda embedding, hidden: functional.linear(hidden.detach(), embedding.weight) + hidden[..., :1],
        lambda embedding, hidden: functional.linear(hidden, torch.ones(7, 4)) + embedding.weight.sum(),
    ],
    ids=["linear", "product", "scaled", "detached", "regularised"],
)
def test_a_weight_used_outside_its_layer_is_named(
    output: Callable[[nn.Embedding, Tensor], Tensor], autocast: bool
) -> None:
    optimizer = KFAC(Language(output))
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        outputs = optimizer.model(torch.randint(7, (3, 5)))
        with pytest.raises(BatchlensError, match=r"use the weight of embedding in .* outside a call of its layer"):
            optimizer.observe(outputs)


def test_a_layer_that_is_only_used_by_its_weight_is_named() -> None:
    class Functional(nn.Sequential):
        def forward(self, inputs: Tensor) -> Tensor:
            return functional.linear(self[0](inputs), next(self[1].parameters()))

    optimizer = KFAC(Functional(nn.Linear(4, 4), nn.Linear(4, 3, bias=False)))
    with pytest.raises(BatchlensError, match="use the weight of 1 in"):
        observe(optimizer, torch.randn(5, 4))


@pytest.mark.parametrize("autocast", [False, True])
def test_usual_networks_use_no_weight_outside_its_layer(autocast: bool) -> None:
    class Residual(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.convolution = nn.Conv2d(2, 2, 3, padding=1)
            self.first, self.again = nn.Linear(2, 4, bias=False), nn.Linear(4, 4)
            self.output = nn.Linear(4, 3, bias=False)

        def forward(self, images: Tensor) -> Tensor:
            images = images + self.convolution(torch.relu_(self.convolution(images)))
            hidden = self.first(images.flatten(2).transpose(1, 2))
            return self.output((hidden + self.again(self.again(hidden))).mean(1))  # type: ignore[no-any-return]

    for leaf in (False, True):
        optimizer = KFAC(Residual())
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            observe(optimizer, torch.randn(5, 2, 4, 4, requires_grad=leaf)).sum().backward()
        optimizer.step()


# Outputs that are not what they seem ------------------------------------------------------------


class Segmenting(nn.Module):
    def __init__(self, classes: int = 3) -> None:
        super().__init__()
        self.features, self.output = nn.Conv2d(1, 2, 3, padding=1), nn.Conv2d(2, classes, 1)

    def forward(self, images: Tensor) -> Tensor:
        return self.output(torch.relu(self.features(images)))  # type: ignore[no-any-return]


@pytest.mark.parametrize("classes", [3, 6])
@pytest.mark.parametrize("enlarge", [False, True])
def test_images_of_logits_are_not_misread(classes: int, enlarge: bool) -> None:
    optimizer = KFAC(Segmenting(classes))
    outputs = optimizer.model(torch.randn(2, 1, 6, 6))
    outputs = functional.interpolate(outputs, scale_factor=2) if enlarge else outputs
    with pytest.raises(BatchlensError, match=r"classes in dimension 1.*outputs.movedim\(1, -1\)"):
        optimizer.observe(outputs)


def test_images_of_logits_may_be_turned() -> None:
    optimizer = KFAC(Segmenting(6), fisher="empirical")
    outputs = optimizer.model(torch.randn(2, 1, 6, 6))
    targets = torch.randint(6, (2, 6, 6))
    optimizer.observe(outputs.movedim(1, -1), targets)
    functional.cross_entropy(outputs, targets).backward()
    optimizer.step()
    assert optimizer.factors()["output"][1].shape == (6, 6)


def test_sequences_of_logits_are_not_misread() -> None:
    optimizer = KFAC(nn.Linear(4, 3))
    outputs = optimizer.model(torch.randn(2, 5, 4)).transpose(1, 2)
    with pytest.raises(BatchlensError, match="classes in dimension 1"):
        optimizer.observe(outputs)


def test_targets_of_turned_logits_say_what_to_do() -> None:
    optimizer = KFAC(Segmenting(), fisher="empirical")
    outputs = optimizer.model(torch.randn(2, 1, 6, 6))
    with pytest.raises(ValueError, match=r"got \(2, 6, 6\). Classes come last: observe outputs.movedim"):
        optimizer.observe(outputs, torch.zeros(2, 6, 6, dtype=torch.long))


@pytest.mark.parametrize(
    "part",
    [
        lambda outputs: outputs[:8],
        lambda outputs: outputs[::4],
        lambda outputs: outputs[torch.arange(32) < 8],
        lambda outputs: outputs.split(8)[0],
        lambda outputs: outputs.index_select(0, torch.arange(8)).tanh(),
    ],
)
def test_a_part_of_the_batch_is_refused(part: Callable[[Tensor], Tensor]) -> None:
    optimizer = KFAC(network())
    outputs = optimizer.model(batch()[0])
    with pytest.raises(BatchlensError, match="8 of the 32 examples that 2 was given"):
        optimizer.observe(part(outputs))


def test_the_last_position_of_a_sequence_is_an_example() -> None:
    optimizer = KFAC(network())
    outputs = optimizer.model(torch.randn(6, 5, 4, dtype=torch.float64))[:, -1]
    optimizer.observe(outputs)
    outputs.sum().backward()
    optimizer.step()


def test_observing_after_backward_is_named() -> None:
    optimizer = KFAC(network())
    inputs, labels = batch()
    outputs = optimizer.model(inputs)
    functional.cross_entropy(outputs, labels).backward()
    with pytest.raises(BatchlensError, match=r"observe\(outputs\) must come before backward"):
        optimizer.observe(outputs)
    step(optimizer, inputs, labels)


def test_outputs_of_no_model_are_named() -> None:
    with pytest.raises(ValueError, match="must come from the model"):
        KFAC(network()).observe(torch.zeros(3, 4, requires_grad=True))


# Steps that were never taken --------------------------------------------------------------------


@pytest.mark.parametrize("went_backward", [False, True])
def test_an_abandoned_batch_leaves_nothing(went_backward: bool) -> None:
    optimizer, fresh = KFAC(network(), fisher="exact"), KFAC(network(), fisher="exact")
    inputs, labels = batch()
    outputs = observe(optimizer, 100 * inputs)
    if went_backward:
        functional.cross_entropy(outputs, labels).backward()
    step(optimizer, inputs, labels)
    step(fresh, inputs, labels)
    assert torch.equal(optimizer.factors()["0"][0], fresh.factors()["0"][0])
    assert torch.equal(weights(optimizer.model), weights(fresh.model))


def test_gradients_may_be_cleared_after_the_forward_pass() -> None:
    """As in Lightning: forward, zero_grad, backward. Micro-batches may follow."""
    later, usual = KFAC(network(), fisher="exact"), KFAC(network(), fisher="exact")
    inputs, labels = batch()
    outputs = observe(later, inputs[:20])
    later.zero_grad()
    (functional.cross_entropy(outputs, labels[:20]) * 20 / 32).backward()
    (functional.cross_entropy(observe(later, inputs[20:]), labels[20:]) * 12 / 32).backward()
    later.step()
    step(usual, inputs, labels)
    torch.testing.assert_close(later.factors()["0"][0], usual.factors()["0"][0])
    torch.testing.assert_close(weights(later.model), weights(usual.model))


def test_what_was_set_aside_does_not_stand_in_for_an_observation() -> None:
    optimizer = KFAC(network())
    inputs, labels = batch()
    functional.cross_entropy(observe(optimizer, inputs), labels).backward()
    optimizer.zero_grad()
    functional.cross_entropy(optimizer.model(inputs), labels).backward()
    with pytest.raises(BatchlensError, match="observe"):
        optimizer.step()


# Models that change, copies and saved states ----------------------------------------------------


def test_a_model_without_parameters_is_named() -> None:
    for model in (nn.Tanh(), nn.Linear(2, 2).requires_grad_(False)):
        with pytest.raises(ValueError, match="`model` must have a parameter that requires a gradient, and has none"):
            KFAC(model)


def test_parameters_unfrozen_later_are_named() -> None:
    model = network()
    model[2].requires_grad_(False)
    optimizer = KFAC(model)
    step(optimizer, *batch())
    model[2].requires_grad_(True)
    with pytest.raises(BatchlensError, match=r"2\.weight has a gradient, but did not require one when this KFAC"):
        step(optimizer, *batch())


def test_half_a_layer_frozen_later_is_named() -> None:
    optimizer = KFAC(network())
    step(optimizer, *batch())
    before = weights(optimizer.model)
    optimizer.model[0].weight.requires_grad_(False)  # type: ignore[index]
    with pytest.raises(BatchlensError, match=r"0\.weight was frozen after this KFAC was made"):
        step(optimizer, *batch())
    assert torch.equal(weights(optimizer.model), before)
    optimizer.model[0].bias.requires_grad_(False)  # type: ignore[index]
    frozen = weights(optimizer.model[0])  # type: ignore[index]
    step(optimizer, *batch())
    assert torch.equal(weights(optimizer.model[0]), frozen)  # type: ignore[index]


def test_a_copy_goes_on_as_its_original() -> None:
    optimizer = KFAC(network(), lr=0.3, seed=4)
    step(optimizer, *batch())
    model, other = copy.deepcopy((optimizer.model, optimizer))
    assert other.model is model
    for seed in range(3):
        step(optimizer, *batch(seed=seed))
    assert not torch.equal(weights(model), weights(optimizer.model))
    for seed in range(3):
        step(other, *batch(seed=seed))
    assert torch.equal(weights(model), weights(optimizer.model))


def test_pickling_says_what_to_save() -> None:
    with pytest.raises(TypeError, match=r"Save state_dict\(\) instead"):
        pickle.dumps(KFAC(network()))


def test_the_state_of_another_model_is_refused() -> None:
    optimizer = KFAC(network())
    step(optimizer, *batch())
    narrow = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 3)).double()
    with pytest.raises(BatchlensError, match=r"another model: its .* for 0\.weight has the shape \(5, [45]\)"):
        KFAC(narrow).load_state_dict(optimizer.state_dict())
    with pytest.raises(BatchlensError, match="another model: it has 4 parameters, this one 2"):
        KFAC(nn.Linear(2, 2)).load_state_dict(optimizer.state_dict())


def test_a_state_from_before_some_settings_means_what_it_meant() -> None:
    settings = {"weight_decay": 0.0, "frequent_start": False, "input_examples": None, "rank": None}
    optimizer = KFAC(network(), **settings)  # type: ignore[arg-type]
    step(optimizer, *batch())
    saved = optimizer.state_dict()
    for name in settings:
        del saved["param_groups"][0][name]
    resumed = KFAC(copy.deepcopy(optimizer.model))
    resumed.load_state_dict(saved)
    step(optimizer, *batch())
    step(resumed, *batch())
    assert torch.equal(weights(resumed.model), weights(optimizer.model))


# Parameters without factors ---------------------------------------------------------------------


def test_parameters_without_factors_are_told_with_the_reason() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4), nn.Linear(4, 3))
    unfactored = KFAC(model, other="sgd").unfactored
    reason = "a parameter of LayerNorm"
    assert dict(unfactored) == {"1.weight": reason, "1.bias": reason}
    with pytest.raises(TypeError):
        unfactored["0.weight"] = "no"  # type: ignore[index]
