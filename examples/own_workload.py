"""A workload of one's own: which half moon is a point on?

batchlens train examples/own_workload.py:workload --optimizer momentum --batch-size 32 --set learning_rate=0.1
"""

import math
from pathlib import Path

import torch
from torch import nn

import batchlens as bl


def draw_moons(_: Path | None) -> bl.Dataset:
    random = torch.Generator().manual_seed(0)
    moon = torch.randint(2, (3_000,), generator=random)
    angle = math.pi * (torch.rand(3_000, generator=random) + moon)
    points = torch.stack([angle.cos() + moon, angle.sin() + 0.5 * moon], dim=1)
    points += 0.1 * torch.randn(points.shape, generator=random)
    train, validation = bl.Split(points[:2_000], moon[:2_000]), bl.Split(points[2_000:], moon[2_000:])
    return bl.Dataset("moons", train, validation, classes=2)


workload = bl.Workload(
    name="moons",
    data=draw_moons,
    model=lambda: nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 2)),
    target=0.99,
    train_target=0.99,
    spaces=bl.search_spaces(sgd=bl.Range(1e-2, 10), adam=bl.Range(1e-4, 1)),  # others as usual
)

if __name__ == "__main__":
    for optimizer, rate in (("sgd", 1.0), ("momentum", 0.3), ("adam", 0.03), ("kfac", 0.3)):
        record = bl.train(workload, optimizer, 32, {"learning_rate": rate})
        print(f"{optimizer}: {record.status} after {record.steps_taken} steps")
