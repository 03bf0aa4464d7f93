"""The two lenses agree: the training loop on a real noisy quadratic has the theory's risk."""

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pytest
import torch
from torch import Tensor, nn, optim

from batchlens import NoisyQuadratic, UpdateRule, risk, risk_path
from batchlens._shapes import SHAPES
from batchlens.training._recipes import RECIPES, Recipe, Task
from batchlens.training.data.loading import Dataset, Split
from batchlens.training.loop import train
from batchlens.training.metrics import Metric
from batchlens.training.workloads import Workload

REPEATS, BATCH_SIZE, STEPS = 1_000, 4, 40
PROBLEM = NoisyQuadratic(curvature=[1.0, 0.5, 0.2, 0.05], noise=[1.0, 0.3, 0.2, 0.1], initial=[1.0, 2.0, 1.0, 3.0])
# How many standard errors the mean of the repeats may be off: 1 in 16,000 is.
WITHIN = 4.0

Floats = npt.NDArray[np.float64]


class Quadratics(nn.Module):
    """Independent copies of the noisy quadratic; a training example is the gradient noise of every copy."""

    def __init__(self) -> None:
        super().__init__()
        starts = torch.from_numpy(np.sqrt(PROBLEM.initial))
        self.coordinates = nn.ParameterList(start.repeat(REPEATS) for start in starts)
        self.curvature = torch.tensor(PROBLEM.curvature)

    def forward(self, noise: Tensor) -> Tensor:
        theta = torch.stack(list(self.coordinates), dim=1)
        risks = 0.5 * (self.curvature * theta.square()).sum(1)
        return risks.expand(len(noise), -1) + (noise * theta).sum(-1)


def draw_data(seed: int, examples: int) -> Dataset:
    """As many examples as the run sees: sampled without replacement, they are then independent."""
    random = np.random.default_rng(seed)
    noise = random.normal(size=(examples, REPEATS, len(PROBLEM.noise))) * np.sqrt(PROBLEM.noise)
    none = torch.zeros(1, *noise.shape[1:], dtype=torch.float64)
    train_split = Split(torch.from_numpy(noise), torch.zeros(len(noise)))
    return Dataset("noise", train_split, Split(none, torch.zeros(1)), 1, (), ())


def run_loop(
    optimizer: str | Recipe,
    settings: Mapping[str, float],
    schedule: str = "constant",
    batch_schedule: Sequence[tuple[int, int, float]] | None = None,
) -> Floats:
    """The risk of every copy after every step, by the training loop; one row a step."""
    rows: list[Floats] = []

    def mean_risk(outputs: Tensor, targets: Tensor) -> Tensor:
        rows.append(outputs[0].double().cpu().numpy().copy())
        return outputs.mean(1)

    workload = Workload(
        name="noisy_quadratic",
        data=lambda _: draw_data(1, STEPS * max(size for _, size, _ in batch_schedule or [(0, BATCH_SIZE, 0.0)])),
        model=Quadratics,
        target=0.0,
        train_target=0.0,
        loss=lambda outputs, targets: outputs.sum(1),
        metric=Metric("risk", mean_risk, best=0.0, higher_is_better=False),
        schedule=schedule,
    )
    batch_size = None if batch_schedule else BATCH_SIZE
    record = train(
        workload, optimizer, batch_size, settings, max_steps=STEPS, lazy=False, batch_schedule=batch_schedule
    )
    assert record.status == "not_reached"
    steps = [entry.step for entry in record.history]
    assert steps[:30] == list(range(30))
    return np.array(
        [rows[steps.index(step)] if step in steps else np.full(REPEATS, np.nan) for step in range(STEPS + 1)]
    )


def deviation(risks: Floats, expected: Floats) -> float:
    """The largest distance between the mean of the copies and the expected risk, in standard errors."""
    measured = ~np.isnan(risks[1:, 0])
    copies, wanted = risks[1:][measured], expected[1:][measured]
    return float((abs(copies.mean(1) - wanted) / (copies.std(1, ddof=1) / np.sqrt(REPEATS))).max())


def expected_risks(**rule: float) -> Floats:
    return np.asarray(risk(PROBLEM, UpdateRule(**rule), BATCH_SIZE, steps=list(range(STEPS + 1))))  # type: ignore[arg-type]


def preconditioned(power: float) -> Recipe:
    """Each coordinate with a learning rate of its own, h^-power times the common one."""

    def build(model: nn.Module, settings: Mapping[str, float], task: Task) -> optim.Optimizer:
        assert isinstance(model, Quadratics)
        groups = [
            {"params": [coordinate], "lr": settings["learning_rate"] * h**-power}
            for coordinate, h in zip(model.coordinates, PROBLEM.curvature, strict=True)
        ]
        return optim.SGD(groups, momentum=settings["momentum"])

    return Recipe("preconditioned", build, RECIPES["momentum"].settings)


CASES: dict[str, tuple[str | Recipe, dict[str, float], dict[str, float]]] = {
    "sgd": ("sgd", {"learning_rate": 0.3}, {}),
    "momentum": ("momentum", {"learning_rate": 0.1, "momentum": 0.8}, {}),
    "nesterov": ("nesterov", {"learning_rate": 0.1, "momentum": 0.8}, {"nesterov": True}),
    "sgd+ema": ("sgd+ema", {"learning_rate": 0.3, "averaging": 0.8}, {}),
    "momentum+ema": ("momentum+ema", {"learning_rate": 0.1, "momentum": 0.7, "averaging": 0.8}, {}),
    "power 0.5": (preconditioned(0.5), {"learning_rate": 0.1, "momentum": 0.5}, {"power": 0.5}),
    "power 1": (preconditioned(1.0), {"learning_rate": 0.05, "momentum": 0.0}, {"power": 1.0}),
}


@pytest.mark.parametrize("name", CASES)
def test_the_loop_has_the_risk_of_the_theory(name: str) -> None:
    optimizer, settings, more = CASES[name]
    risks = run_loop(optimizer, settings)
    assert deviation(risks, expected_risks(**settings, **more)) < WITHIN
    # The copies tell rules apart that differ by a tenth of the learning rate.
    other = {**settings, "learning_rate": 0.9 * settings["learning_rate"]}
    assert deviation(risks, expected_risks(**other, **more)) > WITHIN


def test_the_loop_follows_a_schedule_as_the_theory_does() -> None:
    shape = {"final_fraction": 0.1, "decay_steps": 20.0}
    risks = run_loop("momentum", {"learning_rate": 0.2, "momentum": 0.5, **shape}, schedule="linear_decay")
    rates = [0.2 * SHAPES["linear_decay"].of_step(step, shape) for step in range(STEPS)]
    rules = [UpdateRule(learning_rate=rate, momentum=0.5) for rate in rates]
    path = risk_path(PROBLEM, rules, BATCH_SIZE, [1] * STEPS)
    expected = np.concatenate([risk(PROBLEM, rules[0], BATCH_SIZE, steps=[0]), path])
    assert deviation(risks, expected) < WITHIN
    assert deviation(risks, expected_risks(learning_rate=0.2, momentum=0.5)) > WITHIN


@pytest.mark.parametrize("momentum", [0.0, 0.6])
def test_the_loop_follows_batches_that_change_as_the_theory_does(momentum: float) -> None:
    rows = [(0, 2, 0.3), (8, 4, 0.25), (20, 12, 0.2)]
    risks = run_loop("momentum", {"momentum": momentum}, batch_schedule=rows)
    lengths = [8, 12, STEPS - 20]

    def expected(sizes: Sequence[int]) -> Floats:
        rules = [UpdateRule(rate, momentum) for (_, _, rate), length in zip(rows, lengths, strict=True)
                 for _ in range(length)]  # fmt: skip
        each = [float(size) for size, length in zip(sizes, lengths, strict=True) for _ in range(length)]
        path = risk_path(PROBLEM, rules, each, [1] * STEPS)
        return np.concatenate([risk(PROBLEM, rules[0], BATCH_SIZE, steps=[0]), path])

    assert deviation(risks, expected([2, 4, 12])) < WITHIN
    # The copies tell it apart from a batch that grows later.
    assert deviation(risks, expected([2, 4, 4])) > WITHIN
