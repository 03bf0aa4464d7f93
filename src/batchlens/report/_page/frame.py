"""The report as one HTML page: it loads nothing, runs nothing and reads well on a wide screen, a phone and paper."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
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
    hold, limit, fail = (counts[verdict] for verdict in _MARKS)
    return (
        f"{hold} {'claim holds' if hold == 1 else 'claims hold'}, "
        f"{limit} {'holds' if limit == 1 else 'hold'} with a limit, "
        f"{fail} {'fails' if fail == 1 else 'fail'}."
    )


def render_page(
    title: str,
    lead: str,
    claims: Sequence[Claim],
    panels: Sequence[Panel],
    parameters: Mapping[str, str],
    versions: Mapping[str, str],
    seconds: float,
) -> str:
    """The whole page as HTML.

    title: the question that the page answers.
    lead: what the page shows; an empty line begins a new paragraph.
    parameters, versions: what the numbers came from, shown in the order given.
    seconds: how long it took; the only part that differs between two runs with the same parameters.
    """
    _require_distinct("claims", "name", [claim.name for claim in claims])
    section = Section("claims", "Claims", _render_claims(claims))
    return frame_page(title, lead, summarise(claims), [section], panels, parameters, versions, seconds)


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
    """A page of sections, figures, more sections and where the numbers come from, as HTML."""
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
{_STYLE}</style>
</head>
<body>
<header id="top">
<h1>{escape(title)}</h1>
<div class="lead">
{paragraphs}
</div>
<p class="summary">{escape(summary)}</p>
</header>
{_render_bar([*sections, *appendix], panels)}
<main>
{_join(map(_render_section, sections))}
<section id="figures" aria-labelledby="figures-heading">
<h2 id="figures-heading">Figures</h2>
{_render_contents(panels)}
<div class="figures">
{_join(map(_render_panel, panels, _place(panels)))}
</div>
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


def render_table(label: str, kind: str, heads: Sequence[str], rows: Iterable[Sequence[str | Badge]]) -> str:
    """A plain table that scrolls sideways where it is too wide.

    label: names it for those who cannot see it.
    kind: a class for the style.
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


def _render_cell(cell: str | Badge) -> str:
    if isinstance(cell, Badge):
        return f'<span class="badge {cell.kind}">{escape(cell.words)}</span>'
    return escape(cell)


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


def _render_contents(panels: Sequence[Panel]) -> str:
    items = _join(
        f'<li><a href="#figure-{panel.slug}"><span class="number">{escape(panel.number)}</span>'
        f"<span>{escape(panel.title)}</span></a></li>"
        for panel in panels
    )
    return f'<nav class="contents" aria-label="Figures">\n<ul>\n{items}\n</ul>\n</nav>'


def _render_claims(claims: Sequence[Claim]) -> str:
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
    files = [_render_link(name, _file_label(name, len(panel.csv))) for name in panel.csv]
    files.append(_render_link(panel.png, "PNG"))
    return f"""\
<figure id="figure-{slug}" class="{place}">
<h3><span class="number">{escape(panel.number)}</span><span>{escape(panel.title)}</span></h3>
<div class="plot">{inline_svg(panel.svg, panel.alt, slug)}</div>
<figcaption>
<p>{escape(panel.caption)}</p>
<p class="files"><span>{escape(source)}</span>\
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


_STYLE = """\
:root {
  color-scheme: light dark;
  --page: #ffffff; --surface: #f5f6f8; --text: #202124; --muted: #575d66; --line: #d8dbe0; --link: #0b57a4;
  --holds: #14603a; --holds-surface: #e2f2e8;
  --limit: #744600; --limit-surface: #fbeed3;
  --fails: #981c1c; --fails-surface: #fbe4e2;
}
@media screen and (prefers-color-scheme: dark) {
  :root {
    --page: #15171a; --surface: #1e2125; --text: #e4e6e9; --muted: #a5abb4; --line: #383d44; --link: #8dbaf2;
    --holds: #92dcac; --holds-surface: #163421;
    --limit: #f1c97c; --limit-surface: #3a2c0e;
    --fails: #f6aaa5; --fails-surface: #451c1b;
  }
}
*, *::before, *::after { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; text-size-adjust: 100%; }
body {
  margin: 0 auto; max-width: 84rem; padding: 0 2rem 4rem; background: var(--page); color: var(--text);
  font: 1rem/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", "Liberation Sans", Arial, sans-serif;
  overflow-wrap: break-word;
}
h1, h2, h3, p, ul, dl, dd, figure { margin: 0; padding: 0; }
h1 { max-width: 26em; font-size: clamp(1.6rem, 1.2rem + 1.6vw, 2.4rem); line-height: 1.2; letter-spacing: -0.01em;
  text-wrap: balance; }
h2 { margin: 3.5rem 0 1rem; font-size: 1.5rem; line-height: 1.25; }
h3 { font-size: 1.0625rem; line-height: 1.35; }
a { color: var(--link); text-underline-offset: 0.15em; }
a:focus-visible, summary:focus-visible { outline: 2px solid var(--link); outline-offset: 2px; border-radius: 2px; }
code { font: 0.9em ui-monospace, SFMono-Regular, Menlo, Consolas, "Liberation Mono", monospace; }
header { padding-top: 3rem; }
.lead { margin-top: 1rem; max-width: 68ch; font-size: 1.0625rem; }
.lead p + p { margin-top: 0.75rem; }
.summary { margin: 1.25rem 0; font-size: 1.125rem; font-weight: 600; }
.bar {
  position: sticky; top: 0; z-index: 1; display: flex; gap: 1.25rem; align-items: baseline; overflow-x: auto;
  margin: 0 -2rem; padding: 0.6rem 2rem; background: var(--page); border-bottom: 1px solid var(--line);
  font-size: 0.9375rem; white-space: nowrap;
}
.bar a { text-decoration: none; }
.bar a:hover { text-decoration: underline; }
.numbers { display: flex; gap: 0.25rem; margin-left: -0.75rem; }
.numbers a { min-width: 2em; padding: 0 0.4em; border-radius: 0.25rem; background: var(--surface); text-align: center; }
section, footer, figure, tr { scroll-margin-top: 3.5rem; }
section:first-child h2 { margin-top: 2rem; }

.claims { width: 100%; border-collapse: collapse; font-size: 0.9375rem; line-height: 1.5; }
.claims th { padding: 0.5rem 1.25rem 0.5rem 0; border-bottom: 2px solid var(--line); color: var(--muted);
  font-size: 0.875rem; font-weight: 600; text-align: left; }
.claims td { padding: 0.85rem 1.25rem 0.85rem 0; border-bottom: 1px solid var(--line); vertical-align: top; }
.claims td:last-child, .claims th:last-child { padding-right: 0; }
.verdict { width: 11.5rem; }
.found { width: 27%; }
.source { width: 15%; color: var(--muted); }
.badge { display: inline-block; padding: 0.05rem 0.6rem; border-radius: 1rem; font-size: 0.875rem; font-weight: 600;
  white-space: nowrap; }
.badge.holds { color: var(--holds); background: var(--holds-surface); }
.badge.limit { color: var(--limit); background: var(--limit-surface); }
.badge.fails { color: var(--fails); background: var(--fails-surface); }
.sentence { max-width: 68ch; }
.note { max-width: 68ch; margin-top: 0.35rem; }
.note b { color: var(--muted); font-weight: 600; }
details { max-width: 68ch; margin-top: 0.35rem; color: var(--muted); font-size: 0.875rem; }
summary { width: fit-content; cursor: pointer; }
details p { margin-top: 0.25rem; }
.found p { font-variant-numeric: tabular-nums; }
.threshold { margin-top: 0.2rem; color: var(--muted); font-size: 0.875rem; }
.threshold span { font-weight: 600; }
.label { display: none; }

.table { overflow-x: auto; font-size: 0.9375rem; line-height: 1.45; }
.table:focus-visible { outline: 2px solid var(--link); outline-offset: 2px; }
.table table { min-width: 100%; border-collapse: collapse; font-variant-numeric: tabular-nums; }
.table th, .table td { padding: 0.4rem 1.5rem 0.4rem 0; border-bottom: 1px solid var(--line); text-align: left;
  vertical-align: top; }
.table th { border-bottom-width: 2px; color: var(--muted); font-size: 0.875rem; font-weight: 600; white-space: nowrap; }
.table td:last-child, .table th:last-child { padding-right: 0; }
.table td { min-width: 4.5rem; }
.critical td, .searches td:nth-child(-n+5) { white-space: nowrap; }
.searches th, .searches td { padding-right: 1rem; }
.searches td:nth-child(6) { min-width: 14rem; }
.searches td:nth-child(7) { min-width: 11rem; }
.searches td:nth-child(8) { min-width: 14rem; }
.remark { max-width: 68ch; margin-top: 0.75rem; color: var(--muted); font-size: 0.9375rem; }

.contents ul { list-style: none; columns: 24rem auto; column-gap: 2.5rem; }
.contents li { break-inside: avoid; }
.contents a { display: flex; padding: 0.2rem 0; text-decoration: none; }
.contents a:hover { text-decoration: underline; }
.number { flex: none; min-width: 2.75rem; padding-right: 0.5rem; color: var(--muted); }
.figures { display: grid; grid-template-columns: minmax(0, 1fr); column-gap: 3rem; margin-top: 2.5rem; }
@media (min-width: 68rem) {
  .figures { grid-template-columns: repeat(2, minmax(0, 1fr)); }
  .wide, .alone { grid-column: 1 / -1; }
}
figure { display: grid; grid-row: span 3; grid-template: subgrid / minmax(0, 1fr); margin-bottom: 3.5rem;
  padding-top: 1rem; border-top: 1px solid var(--line); }
figure h3 { display: flex; }
.plot { margin: 0.75rem 0; overflow-x: auto; }
.plot svg { display: block; margin: 0 auto; }
figcaption p { max-width: 68ch; }
.files { display: flex; flex-wrap: wrap; gap: 0.15rem 1.5rem; margin-top: 0.5rem; color: var(--muted);
  font-size: 0.875rem; }

.origin { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 22rem), 1fr)); gap: 2rem 3rem; }
.origin h3 { margin-bottom: 0.5rem; }
dl { font-size: 0.9375rem; }
dl div { display: flex; gap: 1rem; justify-content: space-between; padding: 0.3rem 0;
  border-bottom: 1px solid var(--line); }
dt { color: var(--muted); }
dd { min-width: 0; text-align: right; font-variant-numeric: tabular-nums; }
footer > p { margin-top: 1.5rem; color: var(--muted); }

@media screen and (max-width: 52rem) {
  body { padding: 0 1rem 3rem; }
  header { padding-top: 1.75rem; }
  .bar { margin: 0 -1rem; padding: 0.6rem 1rem; }
  .claims, .claims tbody, .claims td { display: block; width: auto; }
  .claims thead { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); }
  .claims tr { display: block; margin-bottom: 1rem; padding: 0.9rem 1rem; border: 1px solid var(--line);
    border-radius: 0.5rem; }
  .claims td { padding: 0; border: 0; }
  .claims td + td { margin-top: 0.6rem; }
  .found { padding: 0.5rem 0.75rem !important; border-radius: 0.35rem; background: var(--surface); }
  .source { font-size: 0.875rem; }
  .label { display: inline; }
  figure { margin-bottom: 2.5rem; }
  .plot { margin: 0.75rem -1rem; }
}
@media print {
  @page { margin: 15mm; }
  html { font-size: 9pt; }
  body { max-width: none; padding: 0; }
  header { padding-top: 0; }
  h2 { margin-top: 1.5rem; break-after: avoid; }
  .bar { display: none; }
  .verdict { width: 10.5rem; }
  .claims tr, figure, dl div { break-inside: avoid; }
  details::details-content { display: block; content-visibility: visible; }
  details summary { list-style: none; }
  .badge { border: 1px solid currentColor; }
  .figures { display: block; }
  figure { display: block; margin-bottom: 1.5rem; }
  .plot { overflow: visible; }
  .plot svg { min-width: 0 !important; max-width: 12.5cm !important; }
  .wide .plot svg { max-width: 100% !important; }
  a { color: inherit; text-decoration: none; }
}
"""
