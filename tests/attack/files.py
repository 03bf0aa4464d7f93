"""Damaged stores and checkpoints."""

import warnings
from collections.abc import Callable
from pathlib import Path
from random import Random

from batchlens.errors import BatchlensError
from batchlens.report.writing import write_report
from batchlens.sweep.merging import merge_sweeps
from batchlens.training.loop import Interrupted, train
from tests.attack.damage import damage
from tests.attack.tally import Tally
from tests.sweep.test_damaged_stores import make_store, read_tables


def damage_stores(count: int, random: Random, folder: Path, tally: Tally) -> None:
    """Each is read, and now and then merged or reported on."""
    make_store(folder / "whole.sqlite")
    content = (folder / "whole.sqlite").read_bytes()
    path, merged = folder / "damaged.sqlite", folder / "merged.sqlite"
    actions: list[Callable[[], object]] = [lambda: read_tables(path)] * 8
    actions += [lambda: merge_sweeps(merged, [path]), lambda: write_report(path, folder / "page")]
    for number in range(count):
        path.write_bytes(damage(content, random))
        merged.unlink(missing_ok=True)
        tally.count("damaged store", _says_why(random.choice(actions), f"damage {number}"))


def _says_why(action: Callable[[], object], what: str) -> str:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            action()
    except BatchlensError as error:
        return f"{what}: {error}" if "\n" in str(error) else ""
    except Exception as error:
        return f"{what}: {type(error).__name__}: {error}"
    return ""


def damage_checkpoints(count: int, random: Random, folder: Path, tally: Tally) -> None:
    """Each belongs to a run that is then run again."""
    path = folder / "run.pt"
    optimizers = ("momentum+ema", "adam", "kfac")
    saved = {name: _save(name, folder / f"{name}.pt") for name in optimizers}
    wanted = {name: _train(name, None) for name in optimizers}
    for number in range(count):
        name = random.choice(optimizers)
        path.write_bytes(damage(saved[name], random))
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                found = _train(name, path)
        except Exception as error:
            tally.count("damaged checkpoint", f"damage {number}: {type(error).__name__}: {error}")
        else:
            tally.count("damaged checkpoint", "" if found == wanted[name] else f"damage {number}: another result")
        for file in folder.glob("run.pt*"):
            file.unlink()


def _train(optimizer: str, path: Path | None, stop: int | None = None) -> tuple[object, ...]:
    record = train(
        "digits",
        optimizer,
        32,
        {"learning_rate": 0.01},
        max_steps=8,
        threads=1,
        checkpoint=path,
        stop=lambda step: "interrupted" if step == stop else None,
    )
    return record.history, record.last_loss, record.status, record.steps


def _save(optimizer: str, path: Path) -> bytes:
    try:
        _train(optimizer, path, stop=5)
    except Interrupted:
        return path.read_bytes()
    raise AssertionError
