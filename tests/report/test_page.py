"""The page of a report: it parses, loads nothing, clashes nowhere and can be read in every mode."""

import dataclasses
import io
import itertools
import re
from html.parser import HTMLParser
from importlib.resources import files
from typing import Any

import matplotlib as mpl
import pytest
from matplotlib.figure import Figure

from batchlens._drawing import FOREGROUND
from batchlens.report._page.frame import claims_section, frame_page, style_sheet, summarise
from batchlens.report._page.records import Claim, Panel, Verdict
from batchlens.report._page.svg import aspect_ratio, inline_svg

NASTY = """</title><script>alert("1")</script> & 'x' <img src="https://example.org/x.png"> ]]> &amp; é"""
VOID = {"meta", "link", "br", "hr", "img", "input"}
LOADING = {"script", "img", "iframe", "object", "embed", "video", "audio", "source", "base"}


class Reader(HTMLParser):
    """Reads a document strictly: every tag is closed, in order, and no attribute stands twice."""

    def __init__(self, document: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.words: list[str] = []
        self.feed(document)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_startendtag(tag, attrs)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = [name for name, _ in attrs]
        assert len(names) == len(set(names)), f"<{tag}> has an attribute twice: {names}"
        self.elements.append((tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    @property
    def text(self) -> str:
        return "".join(self.words)

    def values(self, name: str) -> list[str]:
        return [attributes[name] for _, attributes in self.elements if name in attributes]

    def having(self, tag: str) -> list[dict[str, str]]:
        return [attributes for name, attributes in self.elements if name == tag]


def draw(fonttype: str = "path", width: float = 4.0, image: bool = False) -> str:
    """A figure with markers, a clip path, a hatch, mathematics and text, drawn in FOREGROUND."""
    names = ("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color")
    style: Any = {"svg.fonttype": fonttype, "svg.hashsalt": "batchlens", **dict.fromkeys(names, FOREGROUND)}
    with mpl.rc_context(style):
        figure = Figure(figsize=(width, 3))
        ax = figure.subplots()
        ax.plot([1, 2, 3], [3, 1, 2], marker="o", label="a < b & c")
        ax.scatter([1, 2], [2, 2])
        ax.fill_between([1, 2], [1, 2], hatch="//")
        ax.set_xlabel(r"$\alpha/(1-\beta)$ of batch")
        if image:
            ax.imshow([[0, 1], [1, 0]])
        ax.legend()
        file = io.StringIO()
        figure.savefig(file, format="svg", transparent=True, metadata={"Date": None})
    return file.getvalue()


SVG = {fonttype: draw(fonttype) for fonttype in ("path", "none")}
WIDE = draw(width=8.0)


def claim(name: str = "two_regimes", verdict: Verdict = "holds", note: str = "") -> Claim:
    return Claim(
        name,
        "Steps fall, then stay.",
        "section 3.3",
        "Slopes at both ends.",
        "-0.99, -0.01",
        "-0.8, -0.2",
        verdict,
        note,
    )


def panel(slug: str = "steps", number: str = "3a", svg: str = SVG["path"], csv: tuple[str, ...] = ("3a.csv",)) -> Panel:
    return Panel(slug, number, "Steps against batch", "figure 3a", "Curves bend.", "Two lines.", svg, "3a.png", csv)


CLAIMS = (
    claim(),
    claim("momentum", "holds with a limit", "Only up to momentum 0.99."),
    claim("rates", "fails"),
    claim("bounds"),
)
PANELS = (panel(), panel("schedules", "3b", SVG["none"], ("a b.csv", "tables/c.csv")), panel("again", "4"))


def render(
    title: str = "How large a batch?",
    lead: str = "First.\n\nSecond.",
    claims: tuple[Claim, ...] = CLAIMS,
    panels: tuple[Panel, ...] = PANELS,
    seconds: float = 12.34,
) -> str:
    summary, versions = summarise(claims), {"numpy": "2.1"}
    return frame_page(title, lead, summary, [claims_section(claims)], panels, {"dim": "10000"}, versions, seconds)


# ---------------------------------------------------------------------------------------------
# One figure
# ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fonttype", SVG)
def test_an_inlined_figure_is_a_scaling_image_with_a_name(fonttype: str) -> None:
    assert "<metadata>" in SVG[fonttype]
    assert 'width="288pt"' in SVG[fonttype]
    fragment = inline_svg(SVG[fonttype], "Two lines & a hatch.", "steps")
    reader = Reader(fragment)
    tag, root = reader.elements[0]
    assert (tag, root["role"], root["width"], root["viewbox"]) == ("svg", "img", "100%", "0 0 288 216")
    assert "height" not in root
    assert reader.elements[1] == ("title", {"id": root["aria-labelledby"]})
    assert reader.words[0] == "Two lines & a hatch."
    assert len(reader.having("title")) == 1
    for gone in ("<?xml", "<!DOCTYPE", "metadata", "http:", "https:", "xmlns", "xlink"):
        assert gone not in fragment


@pytest.mark.parametrize("fonttype", SVG)
def test_text_and_axes_take_the_colour_of_the_page(fonttype: str) -> None:
    fragment = inline_svg(SVG[fonttype], "", "steps")
    assert FOREGROUND not in fragment
    assert fragment.count("currentColor") == SVG[fonttype].count(FOREGROUND) > 10
    assert fragment.count("#1f77b4") == SVG[fonttype].count("#1f77b4") > 0


def test_only_the_colour_itself_is_replaced() -> None:
    fragment = inline_svg(
        f'<svg viewBox="0 0 1 1"><text fill="{FOREGROUND.upper()}">{FOREGROUND}</text><g fill="{FOREGROUND}80"/></svg>',
        FOREGROUND,
        "a",
    )
    assert f">{FOREGROUND}</title>" in fragment
    assert f'<text fill="currentColor">{FOREGROUND}</text>' in fragment
    assert f'fill="{FOREGROUND}80"' in fragment


@pytest.mark.parametrize("fonttype", SVG)
def test_every_reference_of_a_figure_finds_its_target(fonttype: str) -> None:
    fragment = inline_svg(SVG[fonttype], "", "steps")
    ids = Reader(fragment).values("id")
    references = re.findall(r'href="#([^"]*)"', fragment) + re.findall(r"url\(#([^)]*)\)", fragment)
    assert len(references) > 10
    assert re.search(r"fill: url\(#steps--", fragment), "the hatch"
    assert set(references) <= set(ids)
    assert all(name.startswith("steps-") or name.startswith("steps_") for name in ids)


def test_the_ids_of_two_figures_never_meet() -> None:
    svg = SVG["path"]
    ids = [Reader(inline_svg(svg, "", slug)).values("id") for slug in ("fig", "fig-1", "fig-1-figure")]
    for first, second in itertools.combinations(ids, 2):
        assert len(first) > 20
        assert not set(first) & set(second)


def test_the_style_of_a_figure_holds_for_that_figure_only() -> None:
    fragment = inline_svg(SVG["path"], "", "steps")
    (style,) = re.findall(r"<style[^>]*>(.*?)</style>", fragment)
    assert style == "#steps__svg *{stroke-linejoin: round; stroke-linecap: butt}"
    assert 'id="steps__svg"' in fragment.partition(">")[0]
    text = f'<svg viewBox="0 0 1 1"><style>g, text {{fill: {FOREGROUND}}} path {{fill: url(#x)}}</style></svg>'
    assert "#a__svg g, #a__svg text{fill: currentColor}#a__svg path{fill: url(#a--x)}" in inline_svg(text, "", "a")


def test_text_and_paths_survive() -> None:
    reader = Reader(inline_svg(SVG["none"], "", "steps"))
    assert "a < b & c" in reader.text
    before = [" ".join(d.split()) for d in re.findall(r'\sd="([^"]*)"', SVG["path"])]
    assert Reader(inline_svg(SVG["path"], "", "steps")).values("d") == before


def test_an_embedded_image_stays_embedded() -> None:
    images = Reader(inline_svg(draw(image=True), "", "steps")).having("image")
    assert [image["href"][:22] for image in images] == ["data:image/png;base64,"]


def test_the_same_figure_gives_the_same_bytes() -> None:
    assert inline_svg(draw(), "x", "steps") == inline_svg(draw(), "x", "steps")


def test_aspect_ratio() -> None:
    assert aspect_ratio(SVG["path"]) == pytest.approx(4 / 3)


@pytest.mark.parametrize(
    ("body", "got"),
    [
        ('<a href="https://example.org/"/>', "nothing outside itself, got 'https://example.org/'"),
        ("<g style=\"fill: url( '//example.org/x#y' )\"/>", "nothing outside itself, got '//example.org/x#y'"),
        ("<style>*{fill: url(x.svg)}</style>", "nothing outside itself, got 'x.svg'"),
        ('<style>@import "x.css"; *{fill: red}</style>', "stylesheet of plain rules, got '@import"),
        ("<script/>", "still picture, got one with <script>"),
        ('<g onclick="go()"/>', "still picture, got one with onclick"),
    ],
)
def test_a_figure_that_would_load_or_run_something_is_refused(body: str, got: str) -> None:
    with pytest.raises(ValueError, match=re.escape(got)):
        inline_svg(f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 1 1">{body}</svg>', "", "steps")


@pytest.mark.parametrize("slug", ["", "3a", "Fig", "a b", "a--b", "a-", 'a"', "a_b"])
def test_a_slug_that_cannot_begin_an_id_is_refused(slug: str) -> None:
    with pytest.raises(ValueError, match="`slug` must be lower-case words"):
        inline_svg(SVG["path"], "", slug)


@pytest.mark.parametrize(
    ("text", "message"),
    [("", "does not parse"), ("<svg>", "does not parse"), ("<p/>", "got one of <p>"), ("<svg/>", "viewBox of four")],
)
def test_what_is_no_figure_is_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        inline_svg(text, "", "steps")


# ---------------------------------------------------------------------------------------------
# The page
# ---------------------------------------------------------------------------------------------


def test_the_page_loads_and_runs_nothing() -> None:
    page = render()
    reader = Reader(page)
    assert not LOADING & {tag for tag, _ in reader.elements}
    assert not re.search(r"https?:|@import|url\((?!#)", page)
    assert not [name for _, attributes in reader.elements for name in attributes if name.startswith("on")]
    assert reader.values("src") == []
    links = reader.values("href")
    assert "data:," in links  # without an icon of its own a browser asks the server for one
    assert all(re.match(r"#|data:|[\w%./-]+$", link) for link in links)
    policy = next(meta["content"] for meta in reader.having("meta") if "http-equiv" in meta)
    assert policy.startswith("default-src 'none';")


def test_ids_are_unique_and_links_inside_the_page_lead_somewhere() -> None:
    reader = Reader(render())
    ids = reader.values("id")
    assert len(ids) == len(set(ids)) > 60
    inside = [link[1:] for link in reader.values("href") if link.startswith("#")]
    assert set(inside) | set(reader.values("aria-labelledby")) <= set(ids)
    assert {"claims", "figures", "origin", "figure-steps", "figure-schedules"} <= set(inside)


def test_everything_given_is_shown() -> None:
    page = render()
    reader = Reader(page)
    for text in ("How large a batch?", "First.", "Second.", "dim", "10000", "numpy", "2.1", "12.3 s"):
        assert text in reader.text
    for entry in CLAIMS:
        for value in dataclasses.astuple(entry):
            assert value in reader.text
    for figure in PANELS:
        for text in (figure.number, figure.title, str(figure.source), figure.caption, figure.alt):
            assert text in reader.text
    files = [link for link in reader.values("href") if not link.startswith(("#", "data:"))]
    assert files == ["3a.csv", "3a.png", "a%20b.csv", "tables/c.csv", "3a.png", "3a.csv", "3a.png"]
    assert len(reader.having("figure")) == len(reader.having("svg")) == 3
    assert page.index('id="claims"') < page.index('id="figures"') < page.index('id="origin"')
    assert page.count("<p>First.</p>\n<p>Second.</p>") == 1


def test_verdicts_are_words_with_a_kind() -> None:
    page = render()
    for kind, mark, verdict, count in (
        ("holds", "✓", "holds", 2),
        ("limit", "◐", "holds with a limit", 1),
        ("fails", "✕", "fails", 1),
    ):
        badge = f'<span class="badge {kind}"><span aria-hidden="true">{mark}</span> {verdict}</span>'
        assert page.count(badge) == count


def test_a_note_is_there_only_when_there_is_one() -> None:
    assert render().count('class="note"') == 1


def test_nasty_text_stays_text() -> None:
    nasty = Claim(NASTY, NASTY, NASTY, NASTY, NASTY, NASTY, "fails", NASTY)
    figure = Panel("steps", NASTY, NASTY, NASTY, NASTY, NASTY, SVG["path"], NASTY, (NASTY, NASTY))
    names = {NASTY: NASTY}
    page = frame_page(NASTY, NASTY, summarise([nasty]), [claims_section([nasty])], [figure], names, names, 1.0)
    reader = Reader(page)
    assert not LOADING & {tag for tag, _ in reader.elements}
    assert not re.search(r"<script|<img|&amp;lt;", page)
    # The title twice, the lead, 7 of the claim; of the figure 3 numbers, 2 titles, source, caption and alt; 4 names
    # and values at the bottom.  The names of files do not count: they are shown from their last slash on.
    assert reader.text.count(NASTY) == 22
    assert all(link.startswith(("#", "data:,", "%3C/title%3E")) for link in reader.values("href"))
    ids = reader.values("id")
    assert len(ids) == len(set(ids))
    assert not any(re.search(r"\s", name) for name in ids)


def test_the_same_parameters_give_the_same_bytes_but_for_the_seconds() -> None:
    first, second = render(seconds=12.34), render(seconds=777.0)
    assert first == render(seconds=12.34)
    assert first.count("12.3 s") == second.count("777.0 s") == 1
    assert first.replace("12.3 s", "777.0 s") == second


def test_figures_that_would_stand_alone_in_a_row_take_both_columns() -> None:
    def places(*wide: bool) -> str:
        panels = tuple(panel(f"f{index}", svg=WIDE if is_wide else SVG["path"]) for index, is_wide in enumerate(wide))
        return " ".join(figure["class"] for figure in Reader(render(panels=panels)).having("figure"))

    assert places(False, False, True) == "beside beside wide"
    assert places(False, True, False, False) == "alone wide beside beside"
    assert places(False, False, False) == "beside beside alone"
    assert places(True) == "wide"
    assert places(False) == "alone"
    assert places() == ""


def test_a_figure_that_the_paper_does_not_have_says_so() -> None:
    assert "In the paper: figure 3a" in render(claims=(), panels=(panel(),))
    page = render(claims=(), panels=(dataclasses.replace(panel(), source=""),))
    assert "Beyond the paper" in page
    assert "In the paper: " not in page


def test_a_page_without_claims_or_figures_is_a_page() -> None:
    page = render(claims=(), panels=())
    Reader(page)
    assert "0 claims hold, 0 hold with a limit, 0 fail." in page


@pytest.mark.parametrize(
    ("claims", "panels", "message"),
    [
        ((claim("a"), claim("a")), (), "`claims` must differ in `name`, got 'a' 2 times."),
        ((), (panel("a"), panel("a"), panel("a")), "`panels` must differ in `slug`, got 'a' 3 times."),
    ],
)
def test_names_that_clash_are_refused(claims: tuple[Claim, ...], panels: tuple[Panel, ...], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        render(claims=claims, panels=panels)


# ---------------------------------------------------------------------------------------------
# How it looks
# ---------------------------------------------------------------------------------------------


def style_of(page: str) -> str:
    return page.partition("<style>")[2].partition("</style>")[0]


def luminance(colour: str) -> float:
    parts = [int(colour[index : index + 2], 16) / 255 for index in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(first: str, second: str) -> float:
    low, high = sorted((luminance(first), luminance(second)))
    return (high + 0.05) / (low + 0.05)


def test_contrast_is_enough_in_light_and_in_dark_mode() -> None:
    light, rule, dark = style_of(render()).partition("@media screen and (prefers-color-scheme: dark)")
    assert rule
    modes = [dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6});", part)) for part in (light, dark)]
    assert modes[0].keys() == modes[1].keys()
    assert luminance(modes[0]["page"]) > 0.9
    assert luminance(modes[1]["page"]) < 0.02
    pairs = [("text", "page"), ("text", "surface"), ("muted", "page"), ("muted", "surface")]
    pairs += [("link", "page"), ("link", "surface")]
    pairs += [(kind, f"{kind}-surface") for kind in ("holds", "limit", "fails")]
    for colours, (front, back) in itertools.product(modes, pairs):
        assert contrast(colours[front], colours[back]) >= 4.5, (front, back)
    assert modes[0]["text"] == FOREGROUND


def test_the_style_sheet_is_a_file_of_the_package() -> None:
    file = files("batchlens.report").joinpath("_page", "style.css")
    assert style_of(render()).strip() == file.read_text(encoding="utf-8").strip() == style_sheet().strip()


def test_there_are_rules_for_narrow_windows_and_for_paper() -> None:
    style = style_of(render())
    assert style.count("{") == style.count("}")
    for rule in ("@media screen and (max-width:", "@media (min-width:", "@media print"):
        assert rule in style
    used = set(re.findall(r"var\(--([\w-]+)\)", style))
    assert used == set(re.findall(r"--([\w-]+):", style))
    assert '<meta name="viewport" content="width=device-width, initial-scale=1">' in render()


@pytest.mark.parametrize(
    ("verdicts", "sentence"),
    [
        ([], "0 claims hold, 0 hold with a limit, 0 fail."),
        (["holds", "fails"], "1 claim holds, 0 hold with a limit, 1 fails."),
        (["holds with a limit"], "0 claims hold, 1 holds with a limit, 0 fail."),
        (["holds"] * 17 + ["holds with a limit"] * 3 + ["fails"] * 2, "17 claims hold, 3 hold with a limit, 2 fail."),
    ],
)
def test_summary(verdicts: list[Verdict], sentence: str) -> None:
    assert summarise(claim(verdict=verdict) for verdict in verdicts) == sentence


def test_records_do_not_change() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        claim().found = "0"  # type: ignore[misc]
    with pytest.raises(dataclasses.FrozenInstanceError):
        panel().svg = ""  # type: ignore[misc]
