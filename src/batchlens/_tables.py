"""CSV files with named columns of numbers."""

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from batchlens._checks import require_number, require_path, require_whole
from batchlens.errors import BatchlensError


class Row(NamedTuple):
    """One line: where it stands, in words, and its cells by the names of their columns."""

    where: str
    cells: dict[str, str]

    def number(self, name: str, default: float | None = None, *, low: float = 0.0, closed: bool = False) -> float:
        """The cell of a column as a finite number above `low`, or from it on if `closed`."""
        text = self.cells.get(name, "").strip()
        if not text and default is not None:
            return default
        try:
            return require_number(name, float(text), low=low, closed=(closed, True))
        except ValueError:
            wanted = f"finite and {'at least' if closed else 'above'} {low:g}"
            raise self._error(name, wanted, text) from None

    def whole(self, name: str, default: int | None = None, *, low: int = 1) -> int:
        """The cell of a column as a whole number from `low` on."""
        text = self.cells.get(name, "").strip()
        if not text and default is not None:
            return default
        try:
            return require_whole(name, float(text), low=low)
        except (ValueError, TypeError):
            raise self._error(name, f"a whole number from {low} on", text) from None

    def _error(self, name: str, wanted: str, text: str) -> BatchlensError:
        return BatchlensError(f"{self.where}: `{name}` must be {wanted}, got {text or 'nothing'}.")


def read_rows(what: str, path: Path | str, required: Sequence[str]) -> list[Row]:
    """The lines of a CSV file below the one that names its columns; empty lines are left out."""
    path = require_path(what, path)
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise BatchlensError(f"{path} cannot be read: {error.strerror or error}.") from None
    except UnicodeDecodeError:
        raise BatchlensError(f"{path} must be UTF-8 text. Save it as CSV in UTF-8.") from None
    lines = csv.reader(io.StringIO(text, newline=""))
    filled = ((lines.line_num, cells) for cells in lines if any(cell.strip() for cell in cells))
    _, names = next(filled, (0, []))
    names = [name.strip().lower() for name in names]
    if missing := [name for name in required if name not in names]:
        got = ", ".join(names) or "nothing"
        named = " and ".join(missing)
        raise BatchlensError(
            f"{path} must begin with a line that names {named}, got {got}. Separate columns by commas."
        )
    return [Row(f"{path}, line {number}", dict(zip(names, cells, strict=False))) for number, cells in filled]
