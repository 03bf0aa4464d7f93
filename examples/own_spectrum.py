"""Steps against batch size for a spectrum of one's own, with and without preconditioning."""

import matplotlib.pyplot as plt
import numpy as np

import batchlens as bl

eigenvalues = np.concatenate([np.geomspace(1, 0.01, 10), np.full(490, 0.001)])  # a few stiff directions and a bulk
problem = bl.NoisyQuadratic.from_spectrum(eigenvalues, noise=0.5).binned(50)
figure, ax = plt.subplots(layout="constrained")
for power in (0.0, 0.5):
    bl.scaling_curve(problem, "momentum", batch_sizes=[4**k for k in range(1, 9)], target=0.02, power=power).plot(ax)
figure.savefig("own_spectrum.png")
