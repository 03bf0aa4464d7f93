"""What was found on networks, as README.md and docs/evidence.md show it: tables that follow from the stores.

python -m evidence.table            prints them
python -m evidence.table --write    puts them into both pages, each where its name stands
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from textwrap import fill

from batchlens.report._evidence.beyond import beyond_rows
from batchlens.report._evidence.faults import fault_rows
from batchlens.report._evidence.order import find_pairs, order_words, ratio_rows, reversed_rows
from batchlens.report._evidence.reading import Evidence, read_evidence
from batchlens.report._evidence.repeats import repeat_rows, repeat_words
from batchlens.report._evidence.sections import places, summary_words, values_words
from batchlens.report._evidence.tables import cost_rows, critical_rows, footnotes, outside_rows, outside_words
from batchlens.report._theory.study import Study
from evidence.extent import reach_rows, size_rows
from evidence.run import HERE


def critical(evidence: Evidence) -> str:
    """Critical batch sizes, optimizer by network."""
    notes = [fill(note, 120) for note in footnotes(evidence)]
    return "\n\n".join([_table(*critical_rows(Study.of_power_law(), evidence)), *notes])


def order(evidence: Evidence) -> str:
    """Which optimizers come in another order than in theory."""
    pairs = list(find_pairs(Study.of_power_law(), evidence))
    return f"{fill(order_words(pairs), 120)}\n\n{_table(*reversed_rows(pairs))}"


def ratios(evidence: Evidence) -> str:
    """Critical batch sizes over SGD's, in theory, of a quadratic like the network, and measured."""
    return _table(*ratio_rows(Study.of_power_law(), evidence))


def sizes(evidence: Evidence) -> str:
    """How small networks, data and targets are."""
    return _table(*size_rows(evidence))


def reach(evidence: Evidence) -> str:
    """How much of perfect scaling, less and none the batch sizes show."""
    return _table(*reach_rows(evidence))


def verdicts(evidence: Evidence) -> str:
    """How many claims hold, and which on which network."""
    judged = [(claim, dict(places(claim))) for claim in evidence.claims]
    names = list(dict.fromkeys(name for _, found in judged for name, one in found.items() if one.measured))
    rows = [
        [claim.sentence, claim.in_all, *(found[name].words if name in found else "" for name in names)]
        for claim, found in judged
    ]
    sentences = [summary_words(evidence), *([repeat_words(evidence)] if evidence.repeats else [])]
    return "\n\n".join(
        [*(fill(sentence, 120) for sentence in sentences), _table(("The paper says", "In all", *names), rows)]
    )


def again(evidence: Evidence) -> str:
    """On what a sweep and the one that repeats it differ."""
    return _table(*repeat_rows(evidence))


def contradictions(evidence: Evidence) -> str:
    """Every item of a claim that fails, those that are sure first."""
    rows = [
        [
            entry.sweep,
            entry.claim.sentence,
            ", ".join(entry.item.optimizers),
            values_words(entry.item),
            entry.item.sureness_words,
            "" if entry.again is None else entry.again.verdict,
            entry.words,
        ]
        for entry in sorted(evidence.contradictions, key=lambda entry: not entry.is_sure)
    ]
    heads = ("Network", "Fails", "Optimizers", "Found (90% interval)", "Of resamples", "Again", "A contradiction")
    return _table(heads, rows)


def beyond(evidence: Evidence) -> str:
    """Where steps fall faster than the batch grows."""
    return _table(*beyond_rows(evidence))


def faults(evidence: Evidence) -> str:
    """Cells whose search is known to have found too little."""
    return _table(*fault_rows(evidence))


def outside(evidence: Evidence) -> str:
    """Whether a search finds the steps that others published."""
    return f"{fill(outside_words(evidence), 120)}\n\n{_table(*outside_rows(evidence))}"


def costs(evidence: Evidence) -> str:
    """What the sweeps cost and saved."""
    return _table(*cost_rows(evidence))


_ALL = (
    sizes, critical, order, ratios, again, reach, verdicts, contradictions, beyond, faults, outside, costs,
)  # fmt: skip
BLOCKS: dict[str, Callable[[Evidence], str]] = {function.__name__: function for function in _ALL}
# Which blocks each page has.
PAGES = {
    HERE.parent / "README.md": {"critical"},
    HERE.parent / "docs" / "evidence.md": set(BLOCKS),
}


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return "\n".join(f"| {' | '.join(line)} |" for line in (heads, ["---"] * len(heads), *rows))


def marks(name: str) -> tuple[str, str]:
    """Between which a page has a block."""
    return f"<!-- python -m evidence.table --write: {name} -->", f"<!-- end of {name} -->"


def put_into(page: str, evidence: Evidence) -> str:
    """A page with every block that it has marks of written anew."""
    for name, block in BLOCKS.items():
        begin, end = marks(name)
        if begin in page:
            before, after = page.index(begin), page.index(end)
            page = f"{page[:before]}{begin}\n\n{block(evidence)}\n\n{page[after:]}"
    return page


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="into README.md and docs/evidence.md")
    write, evidence = parser.parse_args(arguments).write, read_evidence(HERE)
    if not write:
        print("\n\n".join(block(evidence) for block in BLOCKS.values()))
    for path in PAGES if write else ():
        _write(path, evidence)


def _write(path: Path, evidence: Evidence) -> None:
    path.write_text(put_into(path.read_text(encoding="utf-8"), evidence), encoding="utf-8")


if __name__ == "__main__":
    main()
