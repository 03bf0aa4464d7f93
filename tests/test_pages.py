"""Every code block of README and docs/ runs, or is marked as output.

```python with >>>     runs as a doctest: the page is among pytest's testpaths
```python              runs here, after the comment above it: <!-- runs after: ... -->; below a line "and holds:" in
                       that comment is what must be so afterwards
```{code-cell}         runs when the site is built
```console             is read here by the parsers of the programs that it names
```text                is output, a formula or a file
"""

import json
import re
import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import click
import pytest
from click.testing import CliRunner
from markdown_it import MarkdownIt

from batchlens.cli import cli

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.rglob("*.md"))]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
TARGETS = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), flags=re.MULTILINE))
# What a block may be, beside ```python, ```console and ```{code-cell}.
OUTPUT = ("text",)
DIRECTIVES = ("{eval-rst}", "{include}", "{literalinclude}", "{toctree}")
SETUP = re.compile(r"<!-- runs( slowly)? after:(.*?)(?:\nand holds:(.*?))?-->", flags=re.DOTALL)
# Programs of others, whose options are theirs.
OTHERS = (".venv/bin/pre-commit", "ray")


class Block(NamedTuple):
    """A code block, and the comment right above it."""

    page: Path
    line: int
    language: str
    code: str
    before: str

    @property
    def name(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def blocks() -> Iterator[Block]:
    for page in PAGES:
        before = ""
        for token in MarkdownIt("commonmark").enable("table").parse(page.read_text(encoding="utf-8")):
            if token.type in ("fence", "code_block"):
                assert token.map is not None
                language = token.info.split()[0] if token.info else ""
                yield Block(page, token.map[0] + 1, language, token.content, before)
            before = token.content if token.type == "html_block" else ""


BLOCKS = list(blocks())
RUN = [block for block in BLOCKS if block.language == "python" and ">>>" not in block.code]
TYPED = [block for block in BLOCKS if block.language == "console"]


def marks_of(block: Block) -> list[pytest.MarkDecorator]:
    found = SETUP.fullmatch(block.before.strip())
    marks = [pytest.mark.slow] if found and found[1] else []
    return [*marks, pytest.mark.integrations] if "batchlens.integrations" in block.code else marks


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.name)
def test_block_says_what_it_is(block: Block) -> None:
    known = ("python", "console", "{code-cell}", *OUTPUT, *DIRECTIVES)
    assert block.language in known, "a code block needs a fence and a language: ```python, ```console or ```text"
    if block.language == "{code-cell}":
        assert block.page.read_text(encoding="utf-8").startswith("---\nfile_format: mystnb\n")
    if block.language == "text":
        assert not re.search(r"^(batchlens \w|>>> |import )", block.code, flags=re.MULTILINE)


def test_doctests_of_every_page_run() -> None:
    collected = {
        path for pattern in PROJECT["tool"]["pytest"]["ini_options"]["testpaths"] for path in ROOT.glob(pattern)
    }
    assert {block.page for block in BLOCKS if ">>>" in block.code} <= collected


@pytest.mark.parametrize("block", [pytest.param(block, marks=marks_of(block), id=block.name) for block in RUN])
def test_python_runs(block: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    setup = SETUP.fullmatch(block.before.strip())
    before, after = (setup[2], setup[3] or "") if setup else ("", "")
    code = f"from pathlib import Path\nDOCS = Path({str(DOCS)!r})\n{before}\n{block.code}\n{after}"
    monkeypatch.chdir(tmp_path)
    exec(compile(code, block.name, "exec"), {"__name__": "block"})


def commands_of(block: Block) -> Iterator[list[str]]:
    for line in block.code.replace("\\\n", " ").splitlines():
        if words := shlex.split(line, comments=True):
            yield words


def require_command(command: click.Command, name: str, words: list[str], parent: click.Context | None = None) -> None:
    """What the program itself does before it starts to work; a bad option ends in click.UsageError."""
    if isinstance(command, click.Group):
        with command.make_context(name, list(words[:1]) or ["--help"], parent) as context:
            inner = command.get_command(context, words[0])
            assert inner is not None, f"there is no command {words[0]}"
            require_command(inner, words[0], words[1:], context)
    else:
        command.make_context(name, list(words), parent).close()


def require_packages(words: list[str]) -> None:
    for word in words:
        name, _, extras = word.rstrip("]").partition("[")
        assert name == "batchlens"
        assert set(filter(None, extras.split(","))) <= set(PROJECT["project"]["optional-dependencies"])


def require_python(words: list[str]) -> None:
    path = f"{words[1].replace('.', '/')}.py" if words[0] == "-m" else words[0]
    assert (ROOT / path).is_file()


@pytest.mark.parametrize("block", TYPED, ids=lambda block: block.name)
def test_commands_are_understood(block: Block) -> None:
    for program, *words in commands_of(block):
        match program, words:
            case "batchlens", _:
                require_command(cli, "batchlens", words)
            case "make", [target, *_]:
                assert target in TARGETS
            case "pip", ["install", *packages]:
                require_packages(packages)
            case "python", _:
                require_python(words)
            case _:
                assert program in OTHERS, f"{program} is no program that is known here"


def test_a_command_that_is_wrong_is_seen() -> None:
    for words in (["sweep", "digits", "--no-such-option"], ["risk"], ["train", "digits", "--batch-size", "many"]):
        with pytest.raises(click.UsageError):
            require_command(cli, "batchlens", words)


def keys_of(command: str) -> set[str]:
    """What formats.md says that --json prints."""
    text = (DOCS / "formats.md").read_text(encoding="utf-8")
    row: Any = re.search(rf"^\| `{command}` \| (.+?)(;.*)? \|$", text, flags=re.MULTILINE)
    return set(re.findall(r"`(\w+)`", row[1]))


@pytest.mark.parametrize(
    "typed",
    [
        "risk --learning-rate 0.1 --batch-size 4 --steps 10",
        "steps --optimizer sgd --batch-sizes 4 --target 0.05",
        "schedule --batch-size 256 --target 0.05",
        "fit examples/data/zhang2024.csv",
        "train digits --optimizer sgd --batch-size 64 --set learning_rate=0.5",
        "transfer --optimizer sgd --from 64 --to 128 --set learning_rate=0.1",
        "data list",
    ],
)
def test_documents_have_the_keys_that_the_page_about_formats_says(typed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    done = CliRunner().invoke(cli, [*typed.split(), "--json"])
    name = " ".join(word for word in typed.split()[:2] if word in ("data", "list")) or typed.split()[0]
    assert set(json.loads(done.stdout)) == keys_of(name)
