"""The report as one HTML page: it loads nothing, runs nothing and reads well on a wide screen, a phone and paper."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from itertools import groupby
from typing import NamedTuple
from urllib.parse import quote

from batchlens.report._page.records import Claim, Panel, Verdict
from batchlens.report._page.svg import aspect_ratio, inline_svg

# A figure at least this much wider than high takes both columns.
WIDE = 2.0

_MARKS: dict[Verdict, tuple[str, str]] = {
    "holds": ("holds", "✓"),
    "holds with a limit": ("limit", "◐"),
    "fails": ("fails", "✕"),
    "not measured": ("missing", "-"),
}


@dataclass(frozen=True)
class Section:
    """A part of a page above its figures; `html` is put there as it is."""

    slug: str
    heading: str
    html: str


def summarise(claims: Iterable[Claim]) -> str:
    """How many claims hold, hold with a limit and fail, in one sentence.

    >>> summarise([Claim("a", "A is B.", "section 1", "A - B", "0", "at most 0", "holds")])
    '1 claim holds, 0 hold with a limit, 0 fail.'
    """
    counts = Counter(claim.verdict for claim in claims)
    hold, limit, fail, _ = (counts[verdict] for verdict in _MARKS)
    return (
        f"{hold} {'claim holds' if hold == 1 else 'claims hold'}, "
        f"{limit} {'holds' if limit == 1 else 'hold'} with a limit, "
        f"{fail} {'fails' if fail == 1 else 'fail'}."
    )


def claims_section(claims: Sequence[Claim]) -> Section:
    """A table of claims with their verdicts."""
    _require_distinct("claims", "name", [claim.name for claim in claims])
    return Section("claims", "Claims", render_claims(claims))


def frame_page(
    title: str,
    lead: str,
    summary: str,
    sections: Sequence[Section],
    panels: Sequence[Panel],
    parameters: Mapping[str, str],
    versions: Mapping[str, str],
    seconds: float,
    appendix: Sequence[Section] = (),
) -> str:
    """A page of sections, figures, more sections and where the numbers come from, as HTML.

    Arguments:
        title: the question that the page answers.
        lead: what the page shows; an empty line begins a new paragraph.
        summary: the answer in a sentence or two.
        sections: above the figures.
        panels: the figures; those of one `part` in a row.
        parameters: what the numbers came from, shown in the order given.
        versions: of what computed them, shown in the order given.
        seconds: how long it took; the only part that differs between two runs with the same parameters.
        appendix: sections below the figures.
    """
    _require_distinct("panels", "slug", [panel.slug for panel in panels])
    paragraphs = "\n".join(f"<p>{escape(' '.join(part.split()))}</p>" for part in lead.split("\n\n") if part.strip())
    return f"""\
<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; img-src data:">
<link rel="icon" href="data:,">
<title>{escape(title)}</title>
<style>
{style_sheet()}</style>
</head>
<body>
<header id="top">
<h1>{escape(title)}</h1>
<div class="lead">
{paragraphs}
</div>
{f'<p class="summary">{escape(summary)}</p>' if summary else ""}
</header>
{_render_bar([*sections, *appendix], panels)}
<main>
{_join(map(_render_section, sections))}
<section id="figures" aria-labelledby="figures-heading">
<h2 id="figures-heading">Figures</h2>
{_render_contents(panels)}
{_join(_render_part_of_page(part, list(some)) for part, some in groupby(panels, lambda panel: panel.part))}
</section>{"".join(f"{chr(10)}{_render_section(section)}" for section in appendix)}
</main>
<footer id="origin" aria-labelledby="origin-heading">
<h2 id="origin-heading">Where the numbers come from</h2>
<div class="origin">
<div>
<h3>Parameters</h3>
{_render_pairs(parameters)}
</div>
<div>
<h3>Versions</h3>
{_render_pairs(versions)}
</div>
</div>
<p>Computed and drawn in {seconds:.1f} s.</p>
</footer>
</body>
</html>
"""


class Badge(NamedTuple):
    """A few words that stand out; `kind` is "holds", "limit" or "fails"."""

    kind: str
    words: str


Cell = str | Badge | Sequence[str | Badge]


def style_sheet() -> str:
    """The style sheet of every page."""
    return files("batchlens.report._page").joinpath("style.css").read_text(encoding="utf-8")


def render_table(label: str, kind: str, heads: Sequence[str], rows: Iterable[Sequence[Cell]]) -> str:
    """A plain table that scrolls sideways where it is too wide.

    Arguments:
        label: names it for those who cannot see it.
        kind: a class for the style.
        heads: of the columns.
        rows: of cells; a cell is text, or several texts and badges side by side.
    """
    head = "".join(f'<th scope="col">{escape(text)}</th>' for text in heads)
    body = _join("<tr>" + "".join(f"<td>{_render_cell(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f"""\
<div class="table {kind}" role="region" aria-label="{escape(label)}" tabindex="0">
<table>
<thead><tr>{head}</tr></thead>
<tbody>
{body}
</tbody>
</table>
</div>"""


def _render_cell(cell: Cell) -> str:
    parts = [cell] if isinstance(cell, str | Badge) else cell
    return " ".join(map(_render_part, parts))


def _render_part(part: str | Badge) -> str:
    if isinstance(part, Badge):
        return f'<span class="badge {part.kind}">{escape(part.words)}</span>'
    return escape(part)


def _require_distinct(argument: str, field: str, values: Sequence[str]) -> None:
    for value, count in Counter(values).items():
        if count > 1:
            raise ValueError(f"`{argument}` must differ in `{field}`, got {value!r} {count} times.")


def _join(parts: Iterable[str]) -> str:
    return "\n".join(parts)


def _claim_id(claim: Claim) -> str:
    return escape("claim-" + "-".join(claim.name.split()))


def _render_section(section: Section) -> str:
    return f"""\
<section id="{section.slug}" aria-labelledby="{section.slug}-heading">
<h2 id="{section.slug}-heading">{escape(section.heading)}</h2>
{section.html}
</section>"""


def _render_bar(sections: Sequence[Section], panels: Sequence[Panel]) -> str:
    parts = "".join(f'<a href="#{section.slug}">{escape(section.heading)}</a>' for section in sections)
    links = "".join(
        f'<a href="#figure-{panel.slug}" title="{escape(panel.title)}"'
        f' aria-label="Figure {escape(panel.number)}: {escape(panel.title)}">{escape(panel.number)}</a>'
        for panel in panels
    )
    return (
        f'<nav class="bar" aria-label="Page"><a href="#top">Top</a>{parts}'
        f'<a href="#origin">Parameters</a><a href="#figures">Figures</a><span class="numbers">{links}</span></nav>'
    )


def _render_part_of_page(part: str, panels: Sequence[Panel]) -> str:
    """Figures that belong together, under their own heading where they have one."""
    heading = f'<h3 class="part">{escape(part)}</h3>\n' if part else ""
    return f'{heading}<div class="figures">\n{_join(map(_render_panel, panels, _place(panels)))}\n</div>'


def _render_contents(panels: Sequence[Panel]) -> str:
    items = _join(
        f'<li><a href="#figure-{panel.slug}"><span class="number">{escape(panel.number)}</span>'
        f"<span>{escape(panel.title)}</span></a></li>"
        for panel in panels
    )
    return f'<nav class="contents" aria-label="Figures">\n<ul>\n{items}\n</ul>\n</nav>'


def render_claims(claims: Sequence[Claim]) -> str:
    """The table of claims."""
    # The roles keep it a table for screen readers where the style turns rows into cards.
    heads = "".join(
        f'<th role="columnheader" scope="col">{head}</th>' for head in ("Verdict", "Claim", "Found", "In the paper")
    )
    return f"""\
<table class="claims" role="table" aria-labelledby="claims-heading">
<thead role="rowgroup"><tr role="row">{heads}</tr></thead>
<tbody role="rowgroup">
{_join(map(_render_claim, claims))}
</tbody>
</table>"""


def _render_claim(claim: Claim) -> str:
    kind, mark = _MARKS[claim.verdict]
    note = f'\n<p class="note"><b>Note</b> {escape(claim.note)}</p>' if claim.note else ""
    return f"""\
<tr role="row" id="{_claim_id(claim)}" class="{kind}">
<td role="cell" class="verdict"><span class="badge {kind}"><span aria-hidden="true">{mark}</span> \
{escape(claim.verdict)}</span></td>
<td role="cell" class="claim">
<p class="sentence">{escape(claim.sentence)}</p>{note}
<details><summary>How it is measured</summary><p>{escape(claim.measure)}</p><p><code>{escape(claim.name)}</code></p>\
</details>
</td>
<td role="cell" class="found"><p>{escape(claim.found)}</p><p class="threshold"><span>threshold</span> \
{escape(claim.threshold)}</p></td>
<td role="cell" class="source"><span class="label">In the paper: </span>{escape(claim.source)}</td>
</tr>"""


def _place(panels: Sequence[Panel]) -> list[str]:
    """Which figures take both columns: the wide ones, and those that would stand beside an empty place."""
    wide = [aspect_ratio(panel.svg) >= WIDE for panel in panels]
    places = []
    left = True
    for is_wide, next_is_wide in zip(wide, [*wide[1:], True], strict=False):
        places.append("wide" if is_wide else "alone" if left and next_is_wide else "beside")
        left = places[-1] != "beside" or not left
    return places


def _render_panel(panel: Panel, place: str) -> str:
    slug = panel.slug
    source = f"In the paper: {panel.source}" if panel.source else "Beyond the paper"
    origin = "" if panel.source is None else f"<span>{escape(source)}</span>"
    files = [_render_link(name, _file_label(name, len(panel.csv))) for name in panel.csv]
    files.append(_render_link(panel.png, "PNG"))
    return f"""\
<figure id="figure-{slug}" class="{place}">
<h3><span class="number">{escape(panel.number)}</span><span>{escape(panel.title)}</span></h3>
<div class="plot">{inline_svg(panel.svg, panel.alt, slug)}</div>
<figcaption>
<p>{escape(panel.caption)}</p>
<p class="files">{origin}\
<span>Numbers and picture: {", ".join(files)}</span></p>
</figcaption>
</figure>"""


def _file_label(name: str, count: int) -> str:
    return "CSV" if count == 1 else name.rpartition("/")[2]


def _render_link(name: str, label: str) -> str:
    return f'<a href="{escape(quote(name))}">{escape(label)}</a>'


def _render_pairs(pairs: Mapping[str, str]) -> str:
    rows = _join(f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>" for name, value in pairs.items())
    return f"<dl>\n{rows}\n</dl>"
