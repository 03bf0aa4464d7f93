"""The README's picture: steps to a target against batch size, and the critical batch sizes of SGD and momentum."""

import matplotlib.pyplot as plt

import batchlens as bl

problem = bl.NoisyQuadratic.power_law(dim=10_000).binned(100)  # curvature and noise 1/i, as in the paper
figure, ax = plt.subplots(figsize=(7, 4), layout="constrained")
for optimizer in ("sgd", "momentum"):
    bl.scaling_curve(problem, optimizer, batch_sizes=[4**k for k in range(1, 11)], target=0.01).plot(ax)
figure.savefig("critical_batch_size.png", dpi=110)
