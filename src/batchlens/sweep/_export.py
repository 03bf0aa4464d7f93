"""A sweep's tables, and their CSV files."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from batchlens.errors import BatchlensError
from batchlens.sweep._cells import CellResult

if TYPE_CHECKING:
    import pandas


def results_table(results: Sequence[CellResult]) -> "pandas.DataFrame":
    """One row per cell: the winner, its settings and what speaks against it."""
    import pandas

    rows = []
    for result in results:
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


def write_tables(tables: "Mapping[str, pandas.DataFrame]", folder: Path) -> list[Path]:
    """Writes each table as a CSV file of its name into `folder`."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, table in tables.items():
            table.to_csv(folder / f"{name}.csv", index=False)
    except OSError as error:
        raise BatchlensError(f"{folder} cannot be written to: {error.strerror}.") from error
    return [folder / f"{name}.csv" for name in tables]
