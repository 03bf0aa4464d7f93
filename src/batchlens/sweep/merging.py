"""Several stores of one sweep as one."""

from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

from batchlens._checks import require_path, require_sequence
from batchlens.errors import BatchlensError
from batchlens.sweep._store import Store
from batchlens.sweep._trial import Key, Trial
from batchlens.sweep.results import SweepResult, read_sweep

__all__ = ["merge_sweeps"]

# Of two stores' versions of a trial the one that says more is kept.
_WORTH = {"failed": 0, "pruned": 1, "diverged": 2, "not_reached": 2, "reached": 2}
_FINAL = 2
# Trials that a refusal names.
_MOST_NAMED = 10


def merge_sweeps(out: Path | str, inputs: Sequence[Path | str]) -> SweepResult:
    """Joins stores of the same sweep, its shards for instance, into a new one.

    Running the sweep on the new one adds what is still missing, such as trials in place of those that diverged.

    Arguments:
        out: the file to make; refused where it exists.
        inputs: the stores to join. They must be of the same sweep, and trials that several of them hold must agree.

    >>> merge_sweeps("all.sqlite", [])
    Traceback (most recent call last):
    ...
    ValueError: `inputs` must name at least one store, got none.
    """
    out = require_path("out", out)
    if out.exists():
        raise BatchlensError(f"{out} is there already.")
    paths = [require_path("inputs", path) for path in require_sequence("inputs", inputs)]
    if not paths:
        raise ValueError("`inputs` must name at least one store, got none.")
    with ExitStack() as stack:
        stores = [stack.enter_context(Store.open(path)) for path in paths]
        for store in stores:
            store.refuse_if_locked()
        _require_same(stores)
        try:
            _write(out, stores)
        except BaseException:
            with suppress(OSError):  # where nothing can be made, nothing can be taken away
                out.unlink(missing_ok=True)
            raise
    return read_sweep(out)


def _write(out: Path, stores: Sequence[Store]) -> None:
    with Store.open_to_write(out, stores[0].declaration) as merged, merged.all_or_nothing():
        for cell, generations in stores[0].generations().items():
            for generation in generations[1:]:
                merged.insert_generation(cell, generation)
        for trial in _joined(stores).values():
            merged.insert(trial)


def _require_same(stores: Sequence[Store]) -> None:
    first = stores[0]
    for other in stores[1:]:
        differences = first.declaration.differences(other.declaration)
        if first.declaration.trials != other.declaration.trials:
            differences.append(f"trials is {first.declaration.trials}, not {other.declaration.trials}")
        if not differences and first.generations() != other.generations():
            differences.append("their search spaces were extended differently")
        if differences:
            raise BatchlensError(f"{first.path} and {other.path} are of different sweeps: {'; '.join(differences)}.")


def _joined(stores: Sequence[Store]) -> dict[Key, Trial]:
    found: dict[Key, tuple[Store, Trial]] = {}
    differing: list[str] = []
    for store in stores:
        for trial in store.read_trials(histories=True):
            first, known = found.setdefault(trial.key, (store, trial))
            if _WORTH[trial.status] > _WORTH[known.status]:
                found[trial.key] = store, trial
            elif not _agree(known, trial):
                differing.append(f"{trial.key}: {_words(known)} in {first.path}, {_words(trial)} in {store.path}")
    if differing:
        more = f"; and {len(differing) - _MOST_NAMED} more" if len(differing) > _MOST_NAMED else ""
        raise BatchlensError(f"trials differ: {'; '.join(differing[:_MOST_NAMED])}{more}.")
    return {key: trial for key, (_, trial) in found.items()}


def _agree(one: Trial, other: Trial) -> bool:
    """Whether two ends of a trial can be of the same run: where a pruned or a failed one ended is a matter of time."""
    if (one.settings, one.seed) != (other.settings, other.seed):
        return False
    final = _WORTH[one.status] == _WORTH[other.status] == _FINAL
    return not final or (one.status, one.steps) == (other.status, other.steps)


def _words(trial: Trial) -> str:
    if trial.status == "reached":
        return f"{trial.steps:,} steps"
    return trial.status.replace("_", " ")
