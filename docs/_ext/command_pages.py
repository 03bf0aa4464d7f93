"""Every command with every option, from the parser that reads them: `.. commands::`."""

import re
from collections.abc import Iterator

import click
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from batchlens.cli import cli


def walk(name: str, command: click.Command) -> Iterator[tuple[str, click.Command]]:
    """Commands and commands of commands, by the words that one types."""
    if isinstance(command, click.Group):
        for part, inner in command.commands.items():
            yield from walk(f"{name} {part}", inner)
    else:
        yield name, command


class Commands(SphinxDirective):  # type: ignore[misc]
    """A section for each command: what it does, an example, how it is called, its options."""

    def run(self) -> list[nodes.Node]:
        return [self.section(name, command) for name, command in walk("batchlens", cli)]

    def section(self, name: str, command: click.Command) -> nodes.section:
        title = nodes.title("", "", nodes.literal(name, name))
        section = nodes.section("", title, ids=[name.replace(" ", "-")], names=[name])
        self.state.document.note_explicit_target(section)
        for block in (command.help or "").replace("\f", "").split("\n\n"):
            section += self.paragraph(block)
        context = click.Context(command, info_name=name)
        usage = " ".join([name, *command.collect_usage_pieces(context)])
        section += [nodes.paragraph("", "How it is called:"), nodes.literal_block("", usage, language="console")]
        section += self.options_of(context)
        return section

    def paragraph(self, block: str) -> list[nodes.Node]:
        """Text, or after a line with a backspace, as click has it, an example as it stands."""
        if "\b" not in block:
            return [nodes.paragraph("", " ".join(block.split()))]
        head, *lines = [line.strip() for line in block.replace("\b", "").splitlines() if line.strip()]
        return [nodes.paragraph("", head), nodes.literal_block("", "\n".join(lines), language="console")]

    def options_of(self, context: click.Context) -> nodes.definition_list:
        found = nodes.definition_list(classes=["options"])
        options = [given for given in context.command.get_params(context) if isinstance(given, click.Option)]
        for names, text in filter(None, (option.get_help_record(context) for option in options)):
            term = nodes.term("", "", nodes.literal(names, names))
            found += nodes.definition_list_item("", term, nodes.definition("", nodes.paragraph("", tidy(text))))
        return found


def tidy(text: str) -> str:
    """One line."""
    return re.sub(r"\s+", " ", text)


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_directive("commands", Commands)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
