"""A matplotlib SVG document as a part of an HTML page: it scales, follows the colours of the page and loads nothing."""

import re
from xml.etree import ElementTree

from batchlens._drawing import FOREGROUND

# How far a figure shrinks before its box scrolls, and grows before it stops, in pixels per point.
_SMALLEST, _LARGEST = 0.8, 1.4

_SLUG = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
_NAMESPACE = re.compile(r"\{.*?\}")
_URL = re.compile(r"url\(\s*(['\"]?)(.*?)\1\s*\)")
_FOREGROUND = re.compile(re.escape(FOREGROUND) + r"(?![0-9a-f])", re.IGNORECASE)
_RULE = re.compile(r"([^{}]+)(\{[^{}]*\})")
_DROPPED = {"metadata", "title", "desc"}
_FORBIDDEN = {"script", "foreignObject", "iframe"}
_TEXT = {"text", "tspan", "style"}


def inline_svg(text: str, alt: str, slug: str) -> str:
    """The SVG document `text` as an element to put into an HTML page.

    Arguments:
        text: as matplotlib writes it.
        alt: what the figure shows, for those who cannot see it.
        slug: lower-case words joined by hyphens; every id begins with it, so that two figures of a page never share
            one.

    >>> document = '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 100 50"><g id="line" fill="#202124"/></svg>'
    >>> print(inline_svg(document, "A line.", "demo").replace("><", ">\\n<"))
    <svg viewBox="0 0 100 50" id="demo__svg" role="img" aria-labelledby="demo__title" width="100%" style="min-width: 80px; max-width: 140px">
    <title id="demo__title">A line.</title>
    <g id="demo--line" fill="currentColor" />
    </svg>
    """  # noqa: E501
    if not _SLUG.fullmatch(slug):
        raise ValueError(f"`slug` must be lower-case words joined by hyphens, got {slug!r}.")
    root = _parse(text)
    width, _ = _view_box(root)
    _clean(root, slug)
    for name in ("version", "height"):
        root.attrib.pop(name, None)
    root.attrib |= {
        "id": f"{slug}__svg",
        "role": "img",
        "aria-labelledby": f"{slug}__title",
        "width": "100%",
        "style": f"min-width: {width * _SMALLEST:.0f}px; max-width: {width * _LARGEST:.0f}px",
    }
    title = ElementTree.Element("title", id=f"{slug}__title")
    title.text = alt
    root.insert(0, title)
    return ElementTree.tostring(root, encoding="unicode")


def aspect_ratio(text: str) -> float:
    """Width over height of the SVG document `text`."""
    width, height = _view_box(_parse(text))
    return width / height


def _parse(text: str) -> ElementTree.Element:
    try:
        root = ElementTree.fromstring(text)
    except ElementTree.ParseError as error:
        raise ValueError(f"`text` must be an SVG document, but it does not parse: {error}.") from None
    if _NAMESPACE.sub("", root.tag) != "svg":
        raise ValueError(f"`text` must be an SVG document, got one of <{root.tag}>.")
    return root


def _view_box(root: ElementTree.Element) -> tuple[float, float]:
    try:
        _, _, width, height = map(float, root.get("viewBox", "").replace(",", " ").split())
    except ValueError:
        raise ValueError(f"`text` must have a viewBox of four numbers, got {root.get('viewBox')!r}.") from None
    return width, height


def _clean(element: ElementTree.Element, slug: str) -> None:
    """Inside HTML no namespaces are needed: <svg> brings its own, and href replaces xlink:href."""
    element.tag = _NAMESPACE.sub("", element.tag)
    if element.tag in _FORBIDDEN:
        raise ValueError(f"`text` must be a still picture, got one with <{element.tag}>.")
    attributes = {_NAMESPACE.sub("", name): value for name, value in element.attrib.items()}
    element.attrib.clear()
    for name, value in attributes.items():
        element.set(name, _clean_attribute(name, value, slug))
    if element.tag == "style":
        element.text = _clean_stylesheet(element.text or "", slug)
    elif element.tag not in _TEXT and not (element.text or "").strip():
        element.text = None
    for child in list(element):
        if _NAMESPACE.sub("", child.tag) in _DROPPED:
            element.remove(child)
            continue
        _clean(child, slug)
        if element.tag not in _TEXT and not (child.tail or "").strip():
            child.tail = None


def _clean_attribute(name: str, value: str, slug: str) -> str:
    if name == "id":
        return f"{slug}--{value}"
    if name == "d":
        return " ".join(value.split())
    if name in ("href", "src"):
        return _link(value, slug)
    if name.startswith("on"):
        raise ValueError(f"`text` must be a still picture, got one with {name}.")
    return _FOREGROUND.sub("currentColor", _link_urls(value, slug))


def _clean_stylesheet(text: str, slug: str) -> str:
    """Inside a page a figure's stylesheet would hold for all of it: here it holds for the figure alone."""
    if "@" in text:
        raise ValueError(f"`text` must have a stylesheet of plain rules, got {text.strip()!r}.")
    rules = []
    for selectors, body in _RULE.findall(text):
        scoped = ", ".join(f"#{slug}__svg {selector.strip()}" for selector in selectors.split(","))
        rules.append(scoped + _FOREGROUND.sub("currentColor", _link_urls(body, slug)))
    return "".join(rules)


def _link_urls(value: str, slug: str) -> str:
    return _URL.sub(lambda match: f"url({_link(match[2], slug)})", value)


def _link(target: str, slug: str) -> str:
    if target.startswith("#"):
        return f"#{slug}--{target[1:]}"
    if target.startswith("data:image/"):
        return target
    raise ValueError(f"`text` must refer to nothing outside itself, got {target!r}.")
