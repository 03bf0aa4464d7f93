"""The page and its files: as they are for the server, and all in one for export."""

import base64
import hashlib
import html
import json
import re
from functools import cache
from importlib.resources import files
from typing import Any

_TYPES = {"css": "text/css; charset=utf-8", "js": "text/javascript; charset=utf-8", "svg": "image/svg+xml"}
# Scripts in the order in which one builds on another.
SCRIPTS = ("words.js", "state.js", "answers.js", "dom.js", "chart.js", "figures.js", "spectrum.js", "copying.js",
           "controls.js", "main.js")  # fmt: skip
STATIC = frozenset({*SCRIPTS, "explorer.css", "icon.svg"})


@cache
def _read(name: str) -> str:
    return files(__package__).joinpath("_static", name).read_text(encoding="utf-8")


def static_file(name: str) -> tuple[str, bytes]:
    """Type and content of a file of the page."""
    return _TYPES[name.rpartition(".")[2]], _read(name).encode()


def page(facts: dict[str, Any]) -> bytes:
    """The page, with what it needs to know before it asks."""
    return _read("page.html").replace("{{facts}}", _json(facts)).encode()


def whole_page(facts: dict[str, Any], answers: bytes) -> str:
    """The page in one file that asks nobody: styles, scripts and compressed answers inside.

    The scripts are modules; here they stand one after the other in one, without the lines that bind them.
    """
    script = "\n".join(_unbound(_read(name)) for name in SCRIPTS)
    style = _read("explorer.css")
    policy = f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'; img-src data:"
    icon = "data:image/svg+xml;base64," + base64.b64encode(_read("icon.svg").encode()).decode()
    text = _read("page.html").replace("{{facts}}", _json(facts))
    for old, new in (
        ('<meta charset="utf-8">', f'<meta charset="utf-8">\n<meta http-equiv="Content-Security-Policy" '
                                   f'content="{html.escape(policy)}">'),
        ('href="/static/icon.svg"', f'href="{icon}"'),
        ('<link rel="stylesheet" href="/static/explorer.css">', f"<style>{style}</style>"),
        ('<script type="module" src="/static/main.js"></script>',
         f'<script type="text/plain" id="answers">{base64.b64encode(answers).decode()}</script>\n'
         f'<script type="module">{script}</script>'),
    ):  # fmt: skip
        assert old in text, old
        text = text.replace(old, new)
    return text


def _unbound(script: str) -> str:
    """A module without its imports and the word export."""
    script = re.sub(r"^import \{[^}]*\} from \"\./[\w.]+\";\n", "", script, flags=re.MULTILINE)
    return re.sub(r"^export ", "", script, flags=re.MULTILINE)


def _hash(text: str) -> str:
    """What a content security policy calls a script or style."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _json(facts: dict[str, Any]) -> str:
    """JSON that can stand inside a script element."""
    return json.dumps(facts).replace("<", "\\u003c")
