"""What a user waits for: importing the package, a cold command, the whole report.

Each runs in a new process; the kernels are on disk already (`python -m batchlens.theory._kernels`), except where noted.

    python benchmarks/bench_start.py
"""

import os
import subprocess
import sys
import tempfile
import time


def seconds(*arguments: str, environment: dict[str, str] | None = None) -> float:
    """How long a new Python process takes."""
    begin = time.perf_counter()
    subprocess.run(
        [sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL, env={**os.environ, **(environment or {})}
    )
    return time.perf_counter() - begin


def main() -> None:
    """Measure and print."""
    options = {"--learning-rate": "0.1", "--momentum": "0.9", "--batch-size": "256", "--steps": "10,1000"}
    risk = ["-m", "batchlens", "risk", *(word for pair in options.items() for word in pair), "--json"]
    with tempfile.TemporaryDirectory() as folder:
        report = ["-m", "batchlens", "reproduce", "--out", f"{folder}/report"]
        nothing = min(seconds("-c", "pass") for _ in range(3))
        rows = [
            ("import batchlens", min(seconds("-c", "import batchlens") for _ in range(3)) - nothing, 0.5),
            ("batchlens risk ... --json", min(seconds(*risk) for _ in range(3)), 2.0),
            ("batchlens reproduce", seconds(*report), 30.0),
            ("batchlens reproduce, compiling", seconds(*report, environment={"NUMBA_CACHE_DIR": folder}), 60.0),
        ]
    print(f"{'':34}{'seconds':>10}{'limit':>8}")
    for name, found, limit in rows:
        print(f"{name:34}{found:>10.2f}{limit:>8.1f}")


if __name__ == "__main__":
    main()
