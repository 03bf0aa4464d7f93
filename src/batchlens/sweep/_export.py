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
                **_steps_of(result),
                "number": None if winner is None else winner.key.number,
                **({} if winner is None else winner.settings),
                "counted": result.counted,
                "complete": result.complete,
                "steps_saved_at_most": result.steps_saved,
                "flags": "; ".join(result.flags),
            }
        )
    whole = {} if any(result.reported for result in results) else {"steps": "Int64"}
    return pandas.DataFrame(rows).astype({**whole, "number": "Int64"})


def _steps_of(result: CellResult) -> dict[str, object]:
    """The winner's steps; of a guided search what its fresh seeds say, and the search's own minimum."""
    if result.reported is None:
        return {"steps": None if result.winner is None else result.winner.steps}
    low, high = result.reported.interval or (None, None)
    return {
        "steps": result.reported.steps,
        "low": low,
        "high": high,
        "seeds": len(result.reported.seeds),
        "search_steps": result.reported.minimum,
        "weights": result.reported.weights,
        # A column without an interval cannot say that it has a bound.
        **{
            f"steps to {target}": None if found.is_bound else found.steps
            for target, found in result.reported.also.items()
        },
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
