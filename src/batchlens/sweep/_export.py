"""A sweep's tables, and their CSV files."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from batchlens.errors import BatchlensError
from batchlens.sweep._cells import CellResult, Reported

if TYPE_CHECKING:
    import pandas


def results_table(results: Sequence[CellResult]) -> "pandas.DataFrame":
    """One row per cell: the winner, its settings and what speaks against it."""
    import pandas

    rows = []
    for result in results:
        winner, reported = result.winner, result.reported
        rows.append(
            {
                "optimizer": result.cell.optimizer,
                "batch_size": result.cell.batch_size,
                "steps": None if winner is None else winner.steps,
                **({} if reported is None else _reported_columns(reported)),
                "number": None if winner is None else winner.key.number,
                **({} if winner is None else winner.settings),
                "counted": result.counted,
                "complete": result.complete,
                "steps_saved_at_most": result.steps_saved,
                "flags": "; ".join(result.flags),
            }
        )
    whole = ["number"] if any(result.reported is not None for result in results) else ["number", "steps"]
    return pandas.DataFrame(rows).astype(dict.fromkeys(whole, "Int64"))


def _reported_columns(reported: Reported) -> dict[str, object]:
    """Of a guided search, in place of the winner's steps: the mean of its fresh seeds, and how sure it is."""
    low, high = reported.interval or (None, None)
    return {
        "steps": reported.steps,
        "low": low,
        "high": high,
        "seeds": len(reported.seeds),
        "search_minimum": reported.minimum,
        "weights": reported.weights,
    }


def write_tables(tables: "Mapping[str, pandas.DataFrame]", folder: Path) -> list[Path]:
    """Writes each table as a CSV file of its name into `folder`."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, table in tables.items():
            table.to_csv(folder / f"{name}.csv", index=False)
    except OSError as error:
        raise BatchlensError(f"{folder} cannot be written to: {error.strerror}.") from error
    return [folder / f"{name}.csv" for name in tables]
