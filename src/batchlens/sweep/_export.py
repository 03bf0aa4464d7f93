"""A sweep's tables as CSV files."""

from pathlib import Path
from typing import TYPE_CHECKING

from batchlens.errors import BatchlensError
from batchlens.sweep._results import cell_results
from batchlens.sweep._store import Store

if TYPE_CHECKING:
    import pandas


def results_table(store: Store) -> "pandas.DataFrame":
    """One row per cell: the winner, its settings and what to be wary of."""
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
                **({} if winner is None else winner.settings),
                "counted": result.counted,
                "complete": result.complete,
                "steps_saved_at_most": result.steps_saved,
                "flags": "; ".join(result.flags),
            }
        )
    return pandas.DataFrame(rows).astype({"steps": "Int64", "number": "Int64"})


def export_csv(path: Path | str, folder: Path | str) -> list[Path]:
    """Writes results.csv, trials.csv and histories.csv of the store at `path` into `folder`."""
    folder = Path(folder)
    with Store.open(path) as store:
        tables = {"results": results_table(store), "trials": store.trials(), "histories": store.histories()}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, table in tables.items():
            table.to_csv(folder / f"{name}.csv", index=False)
    except OSError as error:
        raise BatchlensError(f"{folder} cannot be written to: {error.strerror}.") from error
    return [folder / f"{name}.csv" for name in tables]
