"""A sweep's tables as CSV files, and several stores as one."""

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from batchlens.errors import BatchlensError
from batchlens.sweep._results import cell_results
from batchlens.sweep._store import Store
from batchlens.sweep._trial import Key, Trial

if TYPE_CHECKING:
    import pandas

# Of two stores' versions of a trial the one that says more is kept.
_WORTH = {"failed": 0, "pruned": 1, "diverged": 2, "not_reached": 2, "reached": 2}


def results_table(store: Store) -> "pandas.DataFrame":
    """One row a cell: the winner, its settings and what to be wary of."""
    import pandas

    rows = []
    for result in cell_results(store):
        winner = result.winner
        rows.append(
            {
                "optimizer": result.cell.optimizer,
                "batch_size": result.cell.batch_size,
                "steps": None if winner is None else winner.steps,
                "number": None if winner is None else winner.key.number,
                **({} if winner is None else winner.parameters),
                "counted": result.counted,
                "complete": result.complete,
                "steps_saved_at_most": result.steps_saved,
                "flags": "; ".join(result.flags),
            }
        )
    return pandas.DataFrame(rows).astype({"steps": "Int64", "number": "Int64"})


def trials_table(store: Store) -> "pandas.DataFrame":
    """One row a trial, one column a setting."""
    import pandas

    frame = store.trials()
    settings = pandas.DataFrame(frame["parameters"].tolist(), index=frame.index)
    versions = pandas.DataFrame(frame["versions"].tolist(), index=frame.index).add_suffix("_version")
    rest = frame.drop(columns=["parameters", "position", "versions"])
    return pandas.concat([rest.iloc[:, :4], settings, rest.iloc[:, 4:], versions], axis=1)


def export_csv(store: Store, folder: Path | str) -> list[Path]:
    """Writes results.csv, trials.csv and histories.csv into `folder`."""
    folder = Path(folder)
    tables = {"results": results_table(store), "trials": trials_table(store), "histories": store.histories()}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, table in tables.items():
            table.to_csv(folder / f"{name}.csv", index=False)
    except OSError as error:
        raise BatchlensError(f"{folder} cannot be written to: {error.strerror}.") from error
    return [folder / f"{name}.csv" for name in tables]


def merge_stores(out: Path | str, inputs: Sequence[Path | str]) -> None:
    """Joins stores of the same sweep, its shards for instance, into a new one.

    Running the sweep on the new one adds what is still missing, such as trials in place of those that diverged.
    """
    out = Path(out)
    if out.exists():
        raise BatchlensError(f"{out} is there already.")
    if not inputs:
        raise ValueError("`inputs` must name at least one store, got none.")
    with ExitStack() as stack:
        stores = [stack.enter_context(Store.open(path)) for path in inputs]
        for store in stores:
            store.refuse_if_locked()
        _require_same(stores)
        try:
            _write(out, stores)
        except BaseException:
            out.unlink(missing_ok=True)
            raise


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
    found: dict[Key, Trial] = {}
    for store in stores:
        for trial in store.read_trials(histories=True):
            known = found.get(trial.key)
            if known is None or _WORTH[trial.status] > _WORTH[known.status]:
                found[trial.key] = trial
    return found
