"""Every public name with its docstring: `.. doors:: The theory` shows those that reference.md lists in that section."""

import importlib
import inspect
import re
from pathlib import Path
from typing import Any

from docutils import nodes
from docutils.statemachine import StringList
from numpy.typing import ArrayLike
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util.docutils import SphinxDirective
from sphinx.util.typing import stringify_annotation

import batchlens
from batchlens._arrays import FloatArray

# Types whose names say more than what they stand for.
SHORT = {
    stringify_annotation(given, "smart"): name for given, name in ((ArrayLike, "ArrayLike"), (FloatArray, "ndarray"))
}
REFERENCE = Path(__file__).parents[1] / "reference.md"
LISTED = re.compile(r"^- `([\w.]+)`", flags=re.MULTILINE)


def names_in(section: str) -> list[str]:
    """What reference.md lists under a heading, `bl` spelt out."""
    parts = re.split(r"^## (.+)$", REFERENCE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    names = LISTED.findall(dict(zip(parts[1::2], parts[2::2], strict=True))[section])
    return [spelt_out(name) for name in names]


def kind_of(name: str) -> str:
    """Which of autodoc's directives shows it."""
    module, _, attribute = name.rpartition(".")
    found = getattr(importlib.import_module(module), attribute)
    if inspect.isclass(found):
        return "autoexception" if issubclass(found, Exception) else "autoclass"
    return "autofunction" if inspect.isfunction(found) else "autodata"


class Doors(SphinxDirective):  # type: ignore[misc]
    """The names of a section of reference.md."""

    required_arguments = 1
    final_argument_whitespace = True

    def run(self) -> list[nodes.Node]:
        lines: list[str] = []
        for name in names_in(self.arguments[0]):
            lines += [f".. {kind_of(name)}:: {name}", *["   :members:"] * (kind_of(name) == "autoclass"), ""]
        holder = nodes.container()
        self.state.nested_parse(StringList(lines, str(REFERENCE)), 0, holder)
        return list(holder.children)


def link_names(_: Sphinx, document: str, source: list[str]) -> None:
    """Names in reference.md lead to what is said of them."""
    if document == "reference":
        source[0] = LISTED.sub(lambda found: f"- {{py:obj}}`{found[1]} <{spelt_out(found[1])}>`", source[0])


def spelt_out(name: str) -> str:
    """`bl.tune` by its whole name."""
    return re.sub(r"^bl\.", "batchlens.", name)


def find_door(app: Sphinx, env: BuildEnvironment, node: pending_xref, content: nodes.Element) -> Any:
    """A name by the module that defines it is the door of that name."""
    name = str(node.get("reftarget", "")).rpartition(".")[2]
    if node.get("refdomain") != "py" or name not in batchlens.__all__:
        return None
    return env.domains["py"].resolve_xref(env, node["refdoc"], app.builder, "obj", f"batchlens.{name}", node, content)


def as_restructured_text(_: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]) -> None:
    """Docstrings are plain text: what would be mark-up of reStructuredText is not meant as such.

    What stands apart and indented, a formula for instance, is shown as it is.
    """
    shown, found = False, [""]
    for line in lines:
        if line.strip() and found[-1:] == [""] and indent(line) > max(map(indent, found[-2:])):
            found += ["::", ""]
            shown = True
        shown = line.lstrip().startswith(">>>") or (shown and bool(line.strip()))
        found.append(line if shown else re.sub(r"(`[^`]*`)|([*|])|(?<=\w)_(?=\W|$)", escaped, line))
    lines[:] = found[1:]


def indent(line: str) -> int:
    """Spaces before the first word."""
    return len(line) - len(line.lstrip())


def with_short_types(
    _: Sphinx, what: str, name: str, obj: object, options: object, signature: str | None, returned: str | None
) -> tuple[str | None, str | None]:
    """Arguments and what is returned, with short names of types."""
    return shortened(signature), shortened(returned)


def shortened(text: str | None) -> str | None:
    """The text with types by their short names."""
    for long, name in SHORT.items():
        text = text.replace(long, name) if text else text
    return text


def escaped(found: re.Match[str]) -> str:
    """Code as it is, anything else behind a backslash."""
    return found[1] or f"\\{found[0]}"


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_directive("doors", Doors)
    app.connect("source-read", link_names)
    app.connect("autodoc-process-signature", with_short_types)
    app.connect("missing-reference", find_door)
    app.connect("autodoc-process-docstring", as_restructured_text, priority=400)  # before napoleon
    return {"parallel_read_safe": True, "parallel_write_safe": True}
