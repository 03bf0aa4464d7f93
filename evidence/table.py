"""Critical batch sizes of every network that was measured, as the table of README.md and docs/evidence.md.

python -m evidence.table
"""

from batchlens.report._evidence.reading import read_evidence
from batchlens.report._evidence.tables import critical_rows
from batchlens.report._theory.study import Study
from evidence.run import HERE


def render() -> str:
    """The table in Markdown."""
    heads, rows = critical_rows(Study.of_power_law(), read_evidence(HERE))
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


if __name__ == "__main__":
    print(render())
