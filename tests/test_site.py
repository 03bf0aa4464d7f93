"""The documentation site as it was built: complete, without dead links, and of one piece (make docs)."""

import zlib
from collections.abc import Iterator
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag

import click
import pytest

import batchlens
from batchlens.cli import cli
from tests.explorer.browsing import browser, why_not
from tests.test_public_names import BEYOND

SITE = Path(__file__).parent.parent / "build" / "docs"
SHOWN = ("index", "understand/model", "gallery", "notebooks/both-lenses", "api/theory", "commands", "verdicts")
pytestmark = pytest.mark.site


class Page(HTMLParser):
    """What a page links to, loads and has anchors for."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.anchors: set[str] = set()
        self.images: list[dict[str, str | None]] = []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if found := given.get("id"):
            self.anchors.add(found)
        if tag == "a" and given.get("href"):
            self.links.append(str(given["href"]))
        if tag == "link" and given.get("rel") in ("stylesheet", "icon", "preload"):
            self.loaded.append(str(given["href"]))
        if tag in ("script", "img", "iframe") and given.get("src"):
            self.loaded.append(str(given["src"]))
        if tag == "img":
            self.images.append(given)


@cache
def pages() -> dict[Path, Page]:
    return {path: Page(path) for path in sorted(SITE.rglob("*.html"))}


@cache
def names_on_the_site() -> set[str]:
    """Python names that one can link to, from the inventory that Sphinx writes."""
    *_, packed = (SITE / "objects.inv").read_bytes().split(b"\n", 4)
    lines = zlib.decompress(packed).decode().splitlines()
    return {line.split()[0] for line in lines if line.split()[1].startswith("py:")}


def commands(command: click.Command, words: str) -> Iterator[tuple[str, click.Command]]:
    if isinstance(command, click.Group):
        for name, inner in command.commands.items():
            yield from commands(inner, f"{words}-{name}")
    else:
        yield words, command


def is_foreign(address: str) -> bool:
    return address.startswith(("http:", "https:", "//"))


def test_the_site_is_there() -> None:
    assert len(pages()) > 40


def test_every_public_name_is_on_the_site() -> None:
    wanted = {f"batchlens.{name}" for name in batchlens.__all__ if name != "__version__"} | BEYOND
    assert wanted - names_on_the_site() == set()


def test_every_command_and_option_is_on_the_site() -> None:
    page = pages()[SITE / "commands.html"]
    text = (SITE / "commands.html").read_text(encoding="utf-8")
    for name, command in commands(cli, "batchlens"):
        assert name in page.anchors
        section = text.split(f'id="{name}"')[1].split("<section")[0]
        for parameter in command.params:
            if isinstance(parameter, click.Option):
                assert all(f"{option}" in section for option in parameter.opts)


def test_no_internal_link_is_dead() -> None:
    dead = []
    for path, page in pages().items():
        for link in page.links + page.loaded:
            address, anchor = urldefrag(link)
            if is_foreign(link) or link.startswith(("mailto:", "data:")):
                continue
            target = (path.parent / unquote(address.partition("?")[0])).resolve() if address else path
            known = pages().get(target)
            if not target.exists() or (anchor and known and unquote(anchor) not in known.anchors):
                dead.append(f"{path.relative_to(SITE)}: {link}")
    assert dead == []


def test_formulas_of_docstrings_stand_as_they_were_written() -> None:
    """Indented text that is not marked as such would be run together into a quotation."""
    shown = [path for path in pages() if path.parent.name == "api"]
    assert shown
    assert [path.name for path in shown if "<blockquote" in path.read_text(encoding="utf-8")] == []


def test_nothing_is_loaded_from_elsewhere() -> None:
    assert [link for page in pages().values() for link in page.loaded if is_foreign(link)] == []


def test_every_figure_says_in_words_what_it_shows() -> None:
    silent = [
        f"{path.relative_to(SITE)}: {image['src']}"
        for path, page in pages().items()
        for image in page.images
        if not image.get("alt") or "_images" in str(image["alt"])
    ]
    assert silent == []


@pytest.mark.browser
@pytest.mark.skipif(bool(why_not()), reason=why_not())
@pytest.mark.parametrize(("width", "theme"), [(400, "dark"), (1600, "light")])
def test_pages_fit_the_screen_and_ask_nobody(width: int, theme: str) -> None:
    with browser() as chromium:
        page = chromium.new_page(viewport={"width": width, "height": 900}, color_scheme=theme)
        heard: list[str] = []
        page.on("console", lambda message: heard.append(message.text) if message.type == "error" else None)
        page.on("request", lambda request: heard.append(request.url) if is_foreign(request.url) else None)
        for name in SHOWN:
            page.goto((SITE / f"{name}.html").as_uri())
            assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"), name
        page.goto((SITE / "understand" / "model.html").as_uri())
        formula = page.locator("math mfrac").first.bounding_box()
        assert formula["height"] > 20  # drawn as a fraction, not as a line of letters
        assert heard == []
