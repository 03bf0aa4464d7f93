"""Whether training is still what the stores of evidence/ were measured with.

`digest.txt` has a digest of the sources of training and K-FAC, from when the first sweep was started, `golden.json` the
steps that a dozen small runs took then, for every kind of machine that sweeps ran on.  Sources may change as long as
these runs take the same steps, to the bit; if they do not, the stores are void. On another kind of machine bits differ,
and the steps must be nearly the same.

    python evidence/digest.py             is it?
    python evidence/digest.py --add       records the steps that the present sources take on this kind of machine too
    python evidence/digest.py --write     records all anew; the stores are void then, unless the steps stay the same
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
SOURCES = ("training", "kfac")
DIGEST, GOLDEN = HERE / "digest.txt", HERE / "golden.json"
BATCH_SIZE, SEEDS, TARGET = 64, (0, 1), 0.1
SETTINGS: dict[str, dict[str, float]] = {
    "sgd": {"learning_rate": 0.5},
    "momentum": {"learning_rate": 0.1, "momentum": 0.9},
    "adam_no_momentum": {"learning_rate": 0.01},
    "adam": {"learning_rate": 0.01},
    "kfac_no_momentum": {"learning_rate": 0.3, "damping": 0.1},
    "kfac": {"learning_rate": 0.05, "momentum": 0.9, "damping": 0.1},
}
# Of recorded machines steps differ by 2.4e-7 of them at most (Intel with AVX2, AMD), changes by far more.
NEARLY = 1e-5
VOID = (
    "Training takes other steps than when the sweeps of evidence/ were begun: {names}. Later changes keep the golden "
    "steps, or the stores are void: mend the change, or remove evidence/*.sqlite, write the digest anew "
    "(python evidence/digest.py --write) and measure again."
)


def digest(root: Path | None = None) -> str:
    """Of the sources below the package `root`, whatever their line ends and the spaces before them."""
    if root is None:
        import batchlens

        root = Path(batchlens.__file__).parent
    found = hashlib.sha256()
    for path in sorted(path for name in SOURCES for path in (root / name).rglob("*.py")):
        lines = [line.rstrip() for line in path.read_text(encoding="utf-8").splitlines()]
        found.update("\n".join([path.relative_to(root).as_posix(), *lines, ""]).encode())
    return found.hexdigest()


def machine() -> dict[str, str]:
    """What bits may depend on beside the sources."""
    import numpy

    from batchlens.training._arguments import versions

    found = versions()
    return {"torch": found["torch"], "numpy": numpy.__version__, "processor": found["processor"]}


def run_golden() -> dict[str, dict[str, float | None]]:
    """Interpolated steps of the plain weights, and of the first average to arrive by then, run by run."""
    from batchlens import train

    found: dict[str, dict[str, float | None]] = {}
    for optimizer, settings in SETTINGS.items():
        for seed in SEEDS:
            record = train(
                "digits",
                optimizer,
                BATCH_SIZE,
                settings,
                seed=seed,
                threads=1,
                target_on="train-loss",
                target=TARGET,
                averages="best",
            )
            crossings = record.crossings.get(f"train-loss {TARGET:g}", {})
            averaged = [crossing.interpolated for name, crossing in crossings.items() if name != "plain"]
            found[f"{optimizer}, seed {seed}"] = {
                "steps_interpolated": record.steps_interpolated,
                "averaged": min(averaged, default=None),
            }
    found["sgd, long, every average"] = _long_run()
    return found


def _long_run() -> dict[str, float | None]:
    """One that is long enough for the slowest averages."""
    from batchlens import train

    record = train(
        "digits", "sgd+ema", 8, {"learning_rate": 0.05}, threads=1, target_on="train-loss", target=0.1, averages="each"
    )
    crossings = record.crossings[f"train-loss {TARGET:g}"]
    return {name: crossing.interpolated for name, crossing in crossings.items()}


def write(keep: bool = False) -> None:
    """Records the golden steps of the present sources on this machine, and where others are not kept the digest."""
    others = [entry for entry in recorded() if entry["machine"] != machine()] if keep else []
    golden = [*others, {"machine": machine(), "runs": run_golden()}]
    GOLDEN.write_text(json.dumps(golden, indent=1) + "\n", encoding="utf-8")
    if not keep:
        DIGEST.write_text(digest() + "\n", encoding="utf-8")


def is_recorded() -> bool:
    """Whether the first sweep has been started."""
    return DIGEST.exists() and GOLDEN.exists()


def is_same() -> bool:
    """Whether the sources are those of the digest."""
    return DIGEST.read_text(encoding="utf-8").strip() == digest()


def recorded() -> list[dict[str, Any]]:
    """The golden runs of every machine that they ran on, that of the first sweep first."""
    found: list[dict[str, Any]] = json.loads(GOLDEN.read_text(encoding="utf-8"))
    return found


def recorded_here() -> dict[str, Any] | None:
    """Those of a machine like this one."""
    return next((entry["runs"] for entry in recorded() if entry["machine"] == machine()), None)


def differing() -> list[str]:
    """Golden runs that do not take the steps of a machine like this one, or nearly those of the first, in words."""
    here, now = recorded_here(), run_golden()
    before = recorded()[0]["runs"] if here is None else here
    most = NEARLY if here is None else 0.0
    return [
        f"{name} took {before[name]}, now {now.get(name)}"
        for name in before
        if not _are_alike(before[name], now.get(name, {}), most)
    ]


def _are_alike(before: dict[str, float | None], now: dict[str, float | None], most: float) -> bool:
    """Whether steps differ by that part of them at most."""
    if before.keys() != now.keys():
        return False
    pairs = [(before[name], now[name]) for name in before]
    return all(
        one == other or (one is not None and other is not None and abs(other / one - 1) <= most) for one, other in pairs
    )


def check() -> str:
    """Why the stores are void; empty where they are not."""
    names = [] if is_same() else differing()
    return VOID.format(names="; ".join(names)) if names else ""


def main() -> None:
    """Checks, or writes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="record the digest and the golden steps")
    parser.add_argument("--add", action="store_true", help="record the golden steps of this kind of machine too")
    asked = parser.parse_args()
    if asked.write or asked.add:
        write(keep=asked.add)
    elif not is_recorded():
        print("Nothing is recorded yet: the first sweep has not been started.")
    elif problem := check():
        sys.exit(problem)
    elif is_same():
        print("The sources are those of the digest.")
    elif recorded_here() is not None:
        print("The sources have changed, and the golden steps are the same.")
    else:
        print(f"The sources have changed, and the golden steps are the same but for {NEARLY:g} of them.")


if __name__ == "__main__":
    main()
