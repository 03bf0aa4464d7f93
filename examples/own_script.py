"""How large a batch can this script use? A plain PyTorch loop with three lines more, each marked, and one to ask."""

import tempfile

import matplotlib.pyplot as plt
import torch
from torch import nn

import batchlens as bl  # 1

torch.set_num_threads(1)  # so little work is quickest on one
random = torch.Generator().manual_seed(0)
points = torch.randn(6_000, 20, generator=random)
teacher = nn.Sequential(nn.Linear(20, 16), nn.Tanh(), nn.Linear(16, 4))
for weight in teacher.parameters():
    weight.data.normal_(generator=random)
labels = (teacher(points) + torch.randn(6_000, 4, generator=random)).argmax(dim=1)
train, validation = slice(0, 5_000), slice(5_000, 6_000)
folder = tempfile.mkdtemp()  # a run is never overwritten: one's own names say which run it is


def run(batch_size: int, learning_rate: float, seed: int) -> None:
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=learning_rate)
    name = f"{folder}/b{batch_size}-lr{learning_rate:g}-seed{seed}.jsonl"
    with bl.Monitor(name, batch_size=batch_size, optimizer=optimizer, seed=seed) as monitor:  # 2
        for step in range(1, 251):
            batch = torch.randint(5_000, (batch_size,))
            loss = nn.functional.cross_entropy(model(points[train][batch]), labels[train][batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step % 3 == 0:
                with torch.no_grad():
                    validation_loss = nn.functional.cross_entropy(model(points[validation]), labels[validation]).item()
                monitor.log(step, loss=loss, validation_loss=validation_loss)  # 3
                if validation_loss < 0.8:
                    break


for batch_size in (8, 16, 32, 64, 128, 256, 512):
    for learning_rate in (0.1, 0.3, 0.9):
        for seed in (1, 2):
            run(batch_size, learning_rate, seed)

found = bl.fit(f"{folder}/*.jsonl", metric="validation_loss", target=0.8)
print(found.sentence)
print(found.to_frame().to_string())
print(*found.notes, sep="\n")
figure, ax = plt.subplots(layout="constrained")
found.plot(ax)
figure.savefig("own_script.png")
