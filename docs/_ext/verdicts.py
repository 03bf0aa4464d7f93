"""Claims and their verdicts as tables: `.. theory-verdicts::` and `.. network-verdicts::`."""

import csv
from collections.abc import Sequence
from pathlib import Path

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from batchlens.report._evidence.reading import read_evidence

DOCS = Path(__file__).parents[1]


def table_of(head: Sequence[str], rows: Sequence[Sequence[str]]) -> nodes.table:
    group = nodes.tgroup("", *(nodes.colspec(colwidth=1) for _ in head), cols=len(head))
    group += nodes.thead("", row_of(head))
    group += nodes.tbody("", *map(row_of, rows))
    return nodes.table("", group, classes=["verdicts"])


def row_of(cells: Sequence[str]) -> nodes.row:
    return nodes.row("", *(nodes.entry("", nodes.paragraph("", cell)) for cell in cells))


class TheoryVerdicts(SphinxDirective):  # type: ignore[misc]
    """What `make reproduce` wrote into claims.csv, kept as theory-claims.csv."""

    def run(self) -> list[nodes.Node]:
        self.env.note_dependency(str(DOCS / "theory-claims.csv"))
        with (DOCS / "theory-claims.csv").open(encoding="utf-8", newline="") as file:
            claims = list(csv.DictReader(file))
        rows = [(claim["sentence"], claim["verdict"], claim["found"], claim["note"]) for claim in claims]
        return [table_of(("The paper says", "Verdict", "Found", "What limits it"), rows)]


class NetworkVerdicts(SphinxDirective):  # type: ignore[misc]
    """What the stores of evidence/ say, judged in the build."""

    def run(self) -> list[nodes.Node]:
        claims = read_evidence(DOCS.parent / "evidence").claims
        sweeps = list(dict.fromkeys(found.sweep for claim in claims for found in claim.measured))
        rows = []
        for claim in claims:
            verdicts = {found.sweep: found.words for found in claim.measured}
            rows.append((claim.sentence, claim.in_all, *(verdicts.get(sweep, "not measured") for sweep in sweeps)))
        return [table_of(("The paper says", "In all", *sweeps), rows)]


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_directive("theory-verdicts", TheoryVerdicts)
    app.add_directive("network-verdicts", NetworkVerdicts)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
