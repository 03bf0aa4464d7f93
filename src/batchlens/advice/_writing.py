"""Plans and tables on disk."""

from pathlib import Path
from typing import TYPE_CHECKING

from batchlens.errors import BatchlensError

if TYPE_CHECKING:
    import pandas

    from batchlens.advice.plan import Plan


def write_plan(plan: "Plan", folder: Path) -> list[Path]:
    """The picture as plan.svg and plan.png, and its numbers as plan.csv."""
    from matplotlib.figure import Figure

    from batchlens._drawing import figure_style

    pictures = [folder / "plan.svg", folder / "plan.png"]
    table = folder / "plan.csv"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with figure_style():
            figure = Figure(figsize=(7.0, 5.0))
            plan.plot(figure.subplots())
            figure.savefig(pictures[0], metadata={"Date": None})
            figure.savefig(pictures[1], dpi=150, transparent=False)
    except OSError as error:
        raise BatchlensError(f"{folder} cannot be written: {error.strerror or error}.") from None
    write_table(plan.to_frame(), table)
    return [*pictures, table]


def write_table(frame: "pandas.DataFrame", path: Path) -> None:
    """A table as CSV."""
    try:
        frame.to_csv(path, index=False)
    except OSError as error:
        raise BatchlensError(f"{path} cannot be written: {error.strerror or error}.") from None
