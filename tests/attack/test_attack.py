"""An attack on everything: a little of it always, ten minutes of it with `make attack`."""

import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random

import pytest

from tests.attack import calls, commands, files, kills, watching
from tests.attack.tally import Tally

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")

# Seconds that the hostile calls and the hostile command lines have between them.
CALLS, COMMANDS = 90.0, 120.0


@pytest.fixture
def tally() -> Tally:
    return Tally()


def require_none(tally: Tally) -> None:
    assert not tally.failures, "\n" + tally.table()


def test_well_meant_calls_and_commands_are_answered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else hostile ones would show nothing."""
    watching.prepare(tmp_path)
    monkeypatch.setenv("BATCHLENS_DATA", str(tmp_path))
    for function, arguments in calls.doors(tmp_path).values():
        function(**arguments)
    refused = {name for name, words in commands.WELL.items() if commands.run(_words(name, words, tmp_path))[0]}
    assert refused == {"reproduce", "data fetch", "data verify"}


def _words(name: str, words: str, folder: Path) -> list[str]:
    return [*name.split(), *words.format(folder).split()]


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "count"), [("calls", 600), ("commands", 60)])
def test_hostile(kind: str, count: int, tmp_path: Path, tally: Tally) -> None:
    watching.attack(kind, 0, count, tmp_path, tally)
    assert tally.attempts.total() == count
    require_none(tally)


@pytest.mark.slow
def test_damaged(tmp_path: Path, tally: Tally) -> None:
    files.damage_stores(60, Random(0), tmp_path, tally)
    files.damage_checkpoints(30, Random(0), tmp_path, tally)
    require_none(tally)


@pytest.mark.slow
def test_killed(tmp_path: Path, tally: Tally) -> None:
    kills.kill_sweeps(12, Random(0), tmp_path, tally)
    require_none(tally)


@pytest.mark.attack
def test_everything(tmp_path: Path, tally: Tally, capfd: pytest.CaptureFixture[str]) -> None:
    """Seeded by $SEED, 0 unless given; prints a table."""
    seed = int(os.environ.get("SEED", "0"))
    random = Random(seed)
    folders = [tmp_path / name for name in ("first", "second")]
    with ThreadPoolExecutor() as pool:  # one a core
        running = []
        for folder in folders:
            folder.mkdir()
            own = Random(f"{seed} {folder.name}")
            running.append(pool.submit(kills.kill_sweeps, 90, own, folder, tally))
        for future in running:
            future.result()
    kills.kill_workers(20, random, tmp_path, tally)
    files.damage_stores(600, random, tmp_path, tally)
    files.damage_checkpoints(400, random, tmp_path, tally)
    for kind, seconds in (("calls", CALLS), ("commands", COMMANDS)):
        folder = tmp_path / kind
        folder.mkdir()
        watching.attack(kind, seed, sys.maxsize, folder, tally, time.monotonic() + seconds)
    with capfd.disabled():
        print("\n" + tally.table())
    require_none(tally)
