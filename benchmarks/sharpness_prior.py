"""How wide the prior of log a should be, by the curves measured in this repository: see docs/fitting.md.

    python benchmarks/sharpness_prior.py

For spreads of a normal prior of log a around 0, the marginal likelihood of the curves in docs/digits-sweep, and of
those together with the ones of evidence/digits.sqlite that are not the same runs; and the residuals of the fits.
Takes half a minute.
"""

from pathlib import Path

import numpy as np

import batchlens as bl
from batchlens._arrays import FloatArray
from batchlens.scaling._bend import NOISE, NOISE_WEIGHT, fit_bends, predict_bends
from batchlens.scaling._critical import reached

ROOT = Path(__file__).parent.parent
SPREADS = (0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.5, 0.7, 1.0)
LOG_SHARPNESS = np.linspace(-2.5, 2.5, 201)
LEAST = 5  # batch sizes of a curve


def read_curves(path: Path) -> dict[bytes, tuple[FloatArray, FloatArray]]:
    """Log batch sizes and log steps, by what tells curves of the same runs."""
    curves = [reached(entry.curve.batch_sizes, entry.curve.steps) for entry in bl.read_sweep(path).measured]
    return {steps.tobytes(): (sizes, steps) for sizes, steps in curves if sizes.size >= LEAST}


def likelihood(log_batch: FloatArray, log_steps: FloatArray) -> FloatArray:
    """Of every log a, B_crit, S_min and the noise being integrated out, up to a factor."""
    log_critical = np.linspace(log_batch[0] - 3, log_batch[-1] + 6, 300)[:, None, None]
    sharpness = np.exp(LOG_SHARPNESS)[None, :, None]
    shape = np.logaddexp(0, sharpness * (log_critical - log_batch)) / sharpness
    squares = (log_steps - shape).var(axis=2) * log_batch.size
    powers = -(NOISE_WEIGHT + log_batch.size - 1) / 2 * np.log(NOISE_WEIGHT * NOISE**2 + squares)
    found: FloatArray = np.exp(powers - powers.max()).sum(axis=0)
    return found


def show(name: str, curves: list[tuple[FloatArray, FloatArray]]) -> None:
    """The log marginal likelihood of every spread, below that of the best."""
    likelihoods = [likelihood(*curve) for curve in curves]
    priors = [np.exp(-((LOG_SHARPNESS / spread) ** 2) / 2) / spread for spread in SPREADS]
    logs = np.array([sum(np.log(each @ prior) for each in likelihoods) for prior in priors])
    print(f"{name}, {len(curves)} curves, most likely spread of log a {SPREADS[int(logs.argmax())]}:")
    print("  " + ", ".join(f"{spread}: {log:.2f}" for spread, log in zip(SPREADS, logs - logs.max(), strict=True)))
    bends = [fit_bends(sizes, steps[None]) for sizes, steps in curves]
    residuals = [
        float(np.std(steps - np.log(predict_bends(np.exp(sizes), bend)[0])))
        for (sizes, steps), bend in zip(curves, bends, strict=True)
    ]
    print(f"  residuals of log steps: {min(residuals):.3f} to {max(residuals):.3f}, median {np.median(residuals):.3f}")


if __name__ == "__main__":
    documented = read_curves(ROOT / "docs" / "digits-sweep" / "digits.sqlite")
    show("docs/digits-sweep", list(documented.values()))
    both = documented | read_curves(ROOT / "evidence" / "digits.sqlite")
    show("with evidence/digits.sqlite", list(both.values()))
