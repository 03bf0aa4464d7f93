"""Critical batch sizes of every network that was measured, as README.md and docs/evidence.md show them.

python -m evidence.table            prints the table
python -m evidence.table --write    puts it into both
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from batchlens.report._evidence.reading import read_evidence
from batchlens.report._evidence.tables import critical_rows
from batchlens.report._theory.study import Study
from evidence.run import HERE

PAGES = (HERE.parent / "README.md", HERE.parent / "docs" / "evidence.md")
_BEGIN, _END = "<!-- python -m evidence.table --write -->\n\n", "\n\n<!-- end of the table -->"


def render() -> str:
    """The table in Markdown."""
    heads, rows = critical_rows(Study.of_power_law(), read_evidence(HERE))
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def shown_in(page: str) -> str:
    """The table that a page has."""
    return page.partition(_BEGIN)[2].partition(_END)[0]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="into README.md and docs/evidence.md")
    table = render()
    print(table)
    for path in PAGES if parser.parse_args(arguments).write else ():
        page = path.read_text(encoding="utf-8")
        path.write_text(page.replace(f"{_BEGIN}{shown_in(page)}{_END}", f"{_BEGIN}{table}{_END}"), encoding="utf-8")


if __name__ == "__main__":
    main()
