"""From a curve and step times to a plan: the fastest and the cheapest batch size, and the settings to use there."""

import matplotlib.pyplot as plt

import batchlens as bl

problem = bl.NoisyQuadratic.power_law(dim=10_000).binned(100)
curve = bl.scaling_curve(problem, "momentum", batch_sizes=[4**k for k in range(3, 9)], target=0.01)
times = bl.StepTimes([64, 256, 1024, 4096], [0.023, 0.032, 0.071, 0.225])  # your own, or bl.time_steps(...)
plan = bl.plan(curve, times, devices=[1, 2, 4, 8, 16, 32, 64], price=2.5)
print(plan.sentence)

size = plan.cheapest.option.batch_size
print(bl.transfer({"learning_rate": 1e-3, "beta2": 0.9999}, "adamw", 64, size, critical_batch_size=900))

figure, ax = plt.subplots(figsize=(8, 5), layout="constrained")
plan.plot(ax)
figure.savefig("plan.png", dpi=110)
