"""Figure 3a of the paper (steps against batch size) for a spectrum of one's own."""

import matplotlib.pyplot as plt
import numpy as np

from batchlens import NoisyQuadratic
from batchlens.report._theory.figures.steps import draw_tuned_steps, tuned_steps_data
from batchlens.report._theory.study import Study

eigenvalues = np.concatenate([np.geomspace(1, 0.01, 10), np.full(490, 0.001)])  # a few stiff directions and a bulk

problem = NoisyQuadratic.from_spectrum(eigenvalues, noise=0.5).binned(50)
data = tuned_steps_data(Study(problem, target=0.02, powers=(0.0, 0.5)))
figure, axis = plt.subplots(layout="constrained")
draw_tuned_steps(axis, data)
figure.savefig("own_spectrum.png")
