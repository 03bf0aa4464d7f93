"""Text of columns separated by commas, cell by cell."""

import csv
import io
from typing import NamedTuple

from batchlens.errors import BatchlensError


class Row(NamedTuple):
    """Cells without the blanks around them; `where` is the file and the line, as messages name it."""

    where: str
    cells: tuple[str, ...]


class Table(NamedTuple):
    """The names in a file's first line, which is `header`, and what stands below."""

    header: Row
    rows: list[Row]


def read_table(where: str, text: str, may_be_torn: bool = False) -> Table | None:
    """The cells of CSV text, all rows as wide as the first; None where there is none.

    A last line that is too short and has no end is that of a run that was killed; `may_be_torn` leaves it out.
    """
    lines = csv.reader(io.StringIO(text, newline=""), strict=True)
    rows: list[Row] = []
    try:
        for cells in lines:
            if any(cell.strip() for cell in cells):
                rows.append(Row(f"{where}, line {lines.line_num}", tuple(cell.strip() for cell in cells)))
    except csv.Error as error:
        raise BatchlensError(f"{where}, line {lines.line_num} must be CSV: {error}.") from None
    if not rows:
        return None
    header, *rows = rows
    width = len(header.cells)
    if may_be_torn and rows and len(rows[-1].cells) < width and not text.endswith(("\n", "\r")):
        rows.pop()
    for row in rows:
        if len(row.cells) != width:
            raise BatchlensError(f"{row.where} must have {width} cells, one per column, got {len(row.cells)}.")
    return Table(header, rows)
