"""How soon a slider's move is on the screen: 200 moves of the real page in a real browser, on one core.

Needs chromium and playwright (tests/explorer/browsing.py). Three optimizers at ten batch sizes, a spectrum of 100 bins.
A move is a key on a focused slider; its time runs from that event to the frame after the curves, with critical batch
sizes, best settings and the sentence, have been drawn anew; the picture of the training follows. Half of the moves
start from rest, half up to half a second after another, while its exact curves are being computed.
Aim: 100 ms in the median, 250 ms at worst. How long the exact curves take is told too.

    python benchmarks/bench_explorer.py [MOVES]
"""

import os
import random
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from tests.explorer.browsing import browser, settle, why_not  # noqa: E402

SLIDERS = ("exponent-slider", "target-slider", "dim-slider", "batch_size-slider")
WATCH = """() => {
  window.moves = []; let began = null;
  document.addEventListener("input", (event) => { began = event.timeStamp; window.moves.push({}); }, true);
  document.addEventListener("batchlens:drawn", ({ detail }) => requestAnimationFrame(() => setTimeout(() => {
    window.moves.at(-1)[detail.what] ??= performance.now() - began;
  })));
}"""
AWAIT = """(what) => new Promise((resolve) => {
  const look = () => (window.moves.at(-1)[what] ? resolve(window.moves.at(-1)[what]) : setTimeout(look, 5));
  look();
})"""


def move(page: Any, chance: random.Random) -> dict[str, float]:
    """Moves a slider by a key; after how many milliseconds curves and picture of the training are on the screen."""
    page.locator(f"#{chance.choice(SLIDERS)}").focus()
    page.keyboard.press(chance.choice(["ArrowLeft", "ArrowRight"]))
    return {what: float(page.evaluate(AWAIT, what)) for what in ("curves", "training")}


def describe(name: str, times: list[float]) -> str:
    ordered = sorted(times)
    tenth = ordered[int(0.9 * (len(ordered) - 1))]
    return f"{name:28} {len(times):5} {statistics.median(times):8.0f} {tenth:8.0f} {ordered[-1]:8.0f}"


def main() -> None:
    if reason := why_not():
        print(f"bench_explorer: left out, {reason}.")
        return
    moves = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    if hasattr(os, "sched_setaffinity"):  # the server and the browser inherit the one core
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    server = subprocess.Popen(
        [sys.executable, "-m", "batchlens", "explore", "--no-browser"],
        stdout=subprocess.PIPE, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert server.stdout is not None
    address = server.stdout.readline().split()[1]
    chance = random.Random(0)
    try:
        with browser() as chromium:
            page = chromium.new_page(viewport={"width": 1600, "height": 1000})
            page.goto(address)
            settle(page)
            page.evaluate(WATCH)
            for _ in range(5):  # the first moves compile the page's own code
                move(page, chance)
                settle(page)
            rest, busy, exact = [], [], []
            for i in range(moves):
                if i % 2:
                    page.wait_for_timeout(chance.uniform(0, 500))
                    busy.append(move(page, chance))
                    settle(page)
                    exact += page.evaluate("[window.moves.at(-1).exact].filter(Boolean)")
                else:
                    rest.append(move(page, chance))
    finally:
        server.terminate()
        server.wait()
    print(f"{'milliseconds':28} {'moves':>5} {'median':>8} {'90%':>8} {'worst':>8}")
    for what, name in (("curves", "curves on the screen"), ("training", "and picture of the training")):
        print(describe(name, [each[what] for each in rest + busy]))
        print(describe("  from rest", [each[what] for each in rest]))
        print(describe("  while curves are refined", [each[what] for each in busy]))
    print(describe("exact curves", exact))


if __name__ == "__main__":
    main()
