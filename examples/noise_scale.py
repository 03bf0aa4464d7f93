"""A plain PyTorch loop that says up to which batch size a larger batch would help."""

import torch
from torch import nn

import batchlens as bl

torch.manual_seed(0)
inputs = torch.randn(4_000, 20)
labels = (inputs @ torch.randn(20, 3) + 2 * torch.randn(4_000, 3)).argmax(1)

model = nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, 3))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
noise = bl.NoiseScale(model)

for epoch in range(4):
    for batch in torch.randperm(len(inputs)).split(32):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs[batch]), labels[batch]).backward()
        noise.step()
        optimizer.step()
    print(f"epoch {epoch}: {noise.estimate().sentence}")

noise.estimate().plot().figure.savefig("noise_scale.png", dpi=150)  # type: ignore[union-attr]
