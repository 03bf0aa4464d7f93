"""Why K-FAC's best learning rate jumps at the largest batch of digits: with a KL clip the rate hardly matters.

    python benchmarks/kfac_rates.py

Steps to a training loss of 0.1 at batch size 1,024 with the settings that the sweep of evidence/ chose there, at other
learning rates, with its KL clip and without one: geometric mean over six seeds, and how many of them got there.
"""

import math

from batchlens.training.loop import train

BATCH_SIZE, TARGET, SEEDS, MOST = 1024, 0.1, range(900, 906), 60
CHOSEN = {"damping": 0.000232, "factor_decay": 0.801, "momentum": 0.704}
CLIPS = {"as chosen": 0.126, "none": 1e9}
RATES = (0.15, 0.3, 0.6, 1.2, 2.4, 4.7, 9.4)


def steps(rate: float, clip: float, seed: int) -> float | None:
    settings = {**CHOSEN, "kl_clip": clip, "learning_rate": rate}
    record = train(
        "digits", "kfac", BATCH_SIZE, settings, seed=seed, target_on="train-loss", target=TARGET, threads=1,
        max_steps=MOST,
    )  # fmt: skip
    found = record.crossings.get(f"train-loss {TARGET:g}", {}).get("plain")
    return None if found is None else found.interpolated


def main() -> None:
    print("KL clip     learning rate  steps  reached")
    for words, clip in CLIPS.items():
        for rate in RATES:
            found = [count for seed in SEEDS if (count := steps(rate, clip, seed)) is not None]
            mean = math.exp(sum(map(math.log, found)) / len(found)) if found else math.nan
            print(f"{words:10}  {rate:13g}  {mean:5.1f}  {len(found)} of {len(SEEDS)}", flush=True)


if __name__ == "__main__":
    main()
