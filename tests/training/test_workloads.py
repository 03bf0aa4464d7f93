"""The paper's workloads, in both sizes: what they declare fits together; and workloads of one's own."""

import math
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from torch import nn

from batchlens._shapes import SHAPES
from batchlens.errors import BatchlensError
from batchlens.training._published import PUBLISHED as WORKLOADS
from batchlens.training._recipes import check_settings, recipe_named
from batchlens.training._workload import SIZES
from batchlens.training.metrics import ACCURACY, CROSS_ENTROPY
from batchlens.training.models import MLP, VGG11, ResNet, SimpleCNN, Transformer
from batchlens.training.models._normalization import GHOST_SIZE, hold_channels_at_norm_one
from batchlens.training.workloads import Workload, find_workload

NAMES = (
    "simple_cnn_mnist",
    "simple_cnn_fashion_mnist",
    "resnet8_cifar10",
    "resnet32_cifar10",
    "vgg11_cifar10",
    "transformer_lm1b",
    "digits",
)
NORMALIZED = ("resnet32_cifar10", "vgg11_cifar10")
INPUTS = {"mnist": (1, 28, 28), "cifar10": (3, 32, 32), "digits": (1, 8, 8)}

BOTH = [(name, size) for name in NAMES for size in ("laptop", "paper")]
LARGE = [("transformer_lm1b", "paper"), ("vgg11_cifar10", "paper")]
each_workload = pytest.mark.parametrize(("name", "size"), BOTH)


def test_seven_workloads_in_two_sizes() -> None:
    assert set(WORKLOADS) == set(NAMES)
    assert len(WORKLOADS) == 7
    assert set(SIZES) == {"laptop", "paper"}
    for name, size in BOTH:
        found = find_workload(name, size)
        assert (found.name, found.size) == (name, size)
    assert find_workload("digits").size == "laptop"


# ---------------------------------------------------------------------------------------------
# The paper
# ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "target"),
    [
        ("simple_cnn_mnist", 0.99),
        ("simple_cnn_fashion_mnist", 0.90),
        ("resnet8_cifar10", 0.70),
        ("transformer_lm1b", 3.9),
    ],
)
def test_targets_of_the_paper(name: str, target: float) -> None:
    assert find_workload(name, "paper").target == target


@pytest.mark.parametrize(
    ("name", "kind", "weights"),
    [
        ("simple_cnn_mnist", SimpleCNN, 3_274_634),
        ("simple_cnn_fashion_mnist", SimpleCNN, 3_274_634),
        ("resnet8_cifar10", ResNet, 75_050),
        ("resnet32_cifar10", ResNet, 464_154),
        ("vgg11_cifar10", VGG11, 9_228_362),
        ("transformer_lm1b", Transformer, 23_077_888),
        ("digits", MLP, 4_810),
    ],
)
def test_models_of_the_paper(name: str, kind: type[nn.Module], weights: int) -> None:
    model = find_workload(name, "paper").model()
    assert type(model) is kind
    assert sum(weight.numel() for weight in model.parameters()) == weights
    small = find_workload(name, "laptop").model()
    assert type(small) is kind
    of_small = sum(weight.numel() for weight in small.parameters())
    assert of_small == weights if name == "digits" else of_small < weights / 3


@each_workload
def test_what_the_paper_says_of_each(name: str, size: str) -> None:
    found = find_workload(name, size)
    normalized = name in NORMALIZED
    assert found.trials == (200 if normalized else 100)
    assert found.schedule == ("linear_decay" if normalized else "constant")
    assert found.constraint is (hold_channels_at_norm_one if normalized else None)
    assert found.slice_multiple == (32 if normalized else 1)
    assert found.augment == name.endswith("cifar10")
    assert found.metric is (CROSS_ENTROPY if name.startswith("transformer") else ACCURACY)
    assert found.likelihood == "cross_entropy"


@each_workload
def test_losses_smooth_labels_by_a_tenth_where_the_paper_does(name: str, size: str) -> None:
    outputs, targets = torch.tensor([[2.0, 0.0, -1.0]]), torch.tensor([1])
    logs = [value - math.log(math.exp(2) + 1 + math.exp(-1)) for value in (2, 0, -1)]
    smoothing = 0.1 if name in NORMALIZED else 0.0
    expected = -((1 - smoothing) * logs[1] + smoothing * sum(logs) / 3)
    found = find_workload(name, size)
    assert found.loss(outputs, targets).item() == pytest.approx(expected, rel=1e-5)
    if found.metric is CROSS_ENTROPY:  # the metric has no smoothing
        assert found.metric.scores(outputs, targets).item() == pytest.approx(-logs[1], rel=1e-5)


# ---------------------------------------------------------------------------------------------
# Each by itself
# ---------------------------------------------------------------------------------------------


# The large ones have their shapes tested with the models.
@pytest.mark.parametrize(("name", "size"), [both for both in BOTH if both not in LARGE])
def test_models_take_their_inputs_and_are_fresh(name: str, size: str) -> None:
    found = find_workload(name, size)
    torch.manual_seed(0)
    one, other = found.model(), found.model()
    assert not torch.equal(next(one.parameters()), next(other.parameters()))
    torch.manual_seed(0)
    again = found.model()
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), again.parameters(), strict=True))
    if name.startswith("transformer"):
        assert one(torch.full((2, 32), 1_023)).shape == (2, 32, 1_024)
    else:
        data = next(key for key in INPUTS if name.endswith(key))
        assert one(torch.randn(2, *INPUTS[data])).shape == (2, 10)


@each_workload
def test_targets_can_be_reached(name: str, size: str) -> None:
    found = find_workload(name, size)
    for target in (found.target, found.train_target):
        if found.metric is ACCURACY:
            assert 0.1 < target < 1
        else:
            assert 0 < target < math.log(1_024 if size == "laptop" else 32_768)


@each_workload
def test_training_losses_can_be_targets(name: str, size: str) -> None:
    found = find_workload(name, size)
    assert found.train_loss_target is not None
    assert 0 < found.train_loss_target < math.log(10 if found.metric is ACCURACY else 1_024)


@each_workload
def test_the_whole_set_is_measured(name: str, size: str) -> None:
    assert find_workload(name, size).evaluation_examples == (
        512 if (name, size) == ("transformer_lm1b", "laptop") else 5_000
    )


@each_workload
def test_batch_sizes_double(name: str, size: str) -> None:
    sizes = find_workload(name, size).batch_sizes
    assert len(sizes) >= 7
    assert all(large == 2 * small for small, large in pairwise(sizes))
    assert sizes[0] == {"digits": 8}.get(name, 32 if name in NORMALIZED else 16)
    ends = {"transformer_lm1b": (1_024, 16_384), "digits": (1_024, 1_024), "simple": (4_096, 65_536)}
    last = ends.get(name, ends["simple"] if name.startswith("simple") else (2_048, 65_536))
    assert sizes[-1] == last[size == "paper"]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", NORMALIZED)
def test_batches_are_whole_ghosts(name: str, size: str) -> None:
    assert all(batch % GHOST_SIZE == 0 for batch in find_workload(name, size).batch_sizes)


@each_workload
def test_searches_name_settings_that_exist_and_may_have_those_values(name: str, size: str) -> None:
    found = find_workload(name, size)
    of_schedule = SHAPES[found.schedule].settings
    plain = {"sgd", "momentum", "nesterov", "adam", "adam_no_momentum", "adamw", "muon"}
    assert set(found.spaces) >= plain | {f"{optimizer}+ema" for optimizer in plain}
    for optimizer in found.spaces:
        recipe = recipe_named(optimizer)
        space = found.space(optimizer, max_steps=1_000)
        assert set(space) <= {*recipe.settings, *of_schedule}, optimizer
        assert set(space) >= {"learning_rate", *of_schedule}, optimizer
        for setting, values in space.items():
            assert values.low < values.high, (optimizer, setting)
        for fraction in (0.0, 0.5, 1.0):
            drawn = {setting: values.at(fraction) for setting, values in space.items()}
            of_recipe = {setting: value for setting, value in drawn.items() if setting in recipe.settings}
            assert check_settings(recipe.settings, of_recipe, optimizer).items() >= of_recipe.items()


@pytest.mark.parametrize("name", NORMALIZED)
def test_decay_is_searched_in_parts_of_the_budget(name: str) -> None:
    found = find_workload(name)
    parts = found.spaces["sgd"]["decay_steps"]
    for max_steps in (500, 12_345):
        space = found.space("sgd", max_steps)
        steps = space["decay_steps"]
        assert (steps.low, steps.high, steps.scale) == (parts.low * max_steps, parts.high * max_steps, "log")
        assert 0 < steps.low < steps.high <= max_steps
        assert space["learning_rate"] == found.spaces["sgd"]["learning_rate"]
        assert 0 < space["final_fraction"].low < space["final_fraction"].high < 1
    assert found.spaces["sgd"]["decay_steps"] is parts  # nothing was changed in place


def test_unknown_optimizers_list_those_with_a_space() -> None:
    with pytest.raises(ValueError, match="`optimizer` must be one of sgd, momentum"):
        find_workload("digits").space("lbfgs", 100)


@pytest.mark.parametrize(
    ("name", "size", "batch_size", "steps"),
    [
        ("digits", "laptop", 8, 12_500),
        ("digits", "laptop", 7, 14_286),
        ("digits", "laptop", 1_024, 300),
        ("simple_cnn_mnist", "laptop", 64, 9_375),
        ("transformer_lm1b", "laptop", 1_024, 1_000),
        ("simple_cnn_mnist", "paper", 16, 343_750),
        ("simple_cnn_mnist", "paper", 65_536, 5_000),
        ("transformer_lm1b", "paper", 16, 3_750_000),
    ],
)
def test_step_budgets(name: str, size: str, batch_size: int, steps: int) -> None:
    """As many steps as use up the examples, rounded up, but never fewer than the least."""
    assert find_workload(name, size).max_steps(batch_size) == steps


# ---------------------------------------------------------------------------------------------
# Finding them
# ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["", "mnist", "Digits", "digits "])
def test_unknown_names_list_the_known(name: str) -> None:
    with pytest.raises(ValueError, match="`workload` must be one of") as error:
        find_workload(name)
    assert all(known in str(error.value) for known in (*NAMES, "FILE.py:NAME", repr(name)))


@pytest.mark.parametrize("size", ["", "huge", "Paper"])
def test_unknown_sizes_list_the_known(size: str) -> None:
    with pytest.raises(ValueError, match=f"`size` must be one of laptop, paper, got '{size}'"):
        find_workload("digits", size)


OWN = """
from dataclasses import replace
from batchlens.training.workloads import find_workload

mine = replace(find_workload("digits"), name="mine", target=0.5)
sizes = {"laptop": mine, "paper": replace(mine, name="large", size="paper")}
number = 3
"""


def test_a_workload_of_ones_own(tmp_path: Path) -> None:
    file = tmp_path / "my.workload.py"
    file.write_text(OWN)
    found = find_workload(f"{file}:mine")
    assert isinstance(found, Workload)
    assert (found.name, found.target) == ("mine", 0.5)
    assert find_workload(f"{file}:sizes").name == "mine"
    assert find_workload(f"{file}:sizes", "paper").name == "large"


def test_a_folder_with_a_colon(tmp_path: Path) -> None:
    folder = tmp_path / "a:b"
    folder.mkdir()
    (folder / "own.py").write_text(OWN)
    assert find_workload(f"{folder}/own.py:mine").name == "mine"


@pytest.mark.parametrize("name", ["number", "nothing", "Workload", ""])
def test_a_file_without_that_workload(name: str, tmp_path: Path) -> None:
    file = tmp_path / "own.py"
    file.write_text(OWN)
    with pytest.raises(BatchlensError, match=rf"own.py has (nothing|a \w+, not a Workload,) called {name}"):
        find_workload(f"{file}:{name}")


def test_a_workload_of_one_size_is_not_taken_for_another(tmp_path: Path) -> None:
    file = tmp_path / "own.py"
    file.write_text(OWN)
    with pytest.raises(BatchlensError, match=r"own.py has mine in size laptop only, not paper"):
        find_workload(f"{file}:mine", "paper")


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    for path in (tmp_path / "missing.py", tmp_path):
        with pytest.raises(BatchlensError, match=r"is not a file.*FILE.py:NAME"):
            find_workload(f"{path}:mine")


def test_a_file_that_is_not_python(tmp_path: Path) -> None:
    file = tmp_path / "own.txt"
    file.write_text(OWN)
    with pytest.raises(BatchlensError, match=r"own.txt is not a Python file"):
        find_workload(f"{file}:mine")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("1 / 0", "ZeroDivisionError: division by zero"),
        ("import no_such_module", "ModuleNotFoundError: No module named 'no_such_module'"),
        ("mine = (", "SyntaxError"),
        ("\0", "SyntaxError|ValueError"),
    ],
)
def test_a_file_that_does_not_run(text: str, says: str, tmp_path: Path) -> None:
    file = tmp_path / "own.py"
    file.write_text(text)
    with pytest.raises(BatchlensError, match=rf"own.py does not run: .*({says})"):
        find_workload(f"{file}:mine")
