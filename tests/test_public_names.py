"""What users may rely on: `batchlens.__all__` and what docs/reference.md lists beside it, and nothing else.

A module whose dotted name has a part that begins with an underscore is private, and so are `cli` and `__main__`, whose
commands are documented by --help. Of any other module, the names that it defines (or lists in `__all__`) are public.
"""

import ast
import inspect
import re
from importlib import import_module
from pathlib import Path

import pytest

import batchlens

ROOT = Path(batchlens.__file__).parent
REFERENCE = Path(__file__).parent.parent / "docs" / "reference.md"
PROGRAMS = ("cli", "__main__")


def is_public(path: Path) -> bool:
    parts = path.relative_to(ROOT).with_suffix("").parts
    inner = [part for part in parts if part != "__init__"]
    return bool(inner) and inner[0] not in PROGRAMS and not any(part.startswith("_") for part in inner)


def dotted(path: Path) -> str:
    parts = [part for part in path.relative_to(ROOT).with_suffix("").parts if part != "__init__"]
    return ".".join(["batchlens", *parts])


def public_names(path: Path) -> list[str]:
    """Names that a module defines or lists in `__all__`, without those that begin with an underscore."""
    names: list[str] = []
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        match node:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                names.append(name)
            case ast.Assign(targets=[ast.Name(id="__all__")], value=value):
                names += ast.literal_eval(value)
            case ast.Assign(targets=targets):
                names += [name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name)]
            case ast.AnnAssign(target=ast.Name(id=name)):
                names.append(name)
    return [name for name in dict.fromkeys(names) if not name.startswith("_")]


PUBLIC = {dotted(path): public_names(path) for path in sorted(ROOT.rglob("*.py")) if is_public(path)}
BEYOND = {f"{module}.{name}" for module, names in PUBLIC.items() for name in names if name not in batchlens.__all__}


def documented() -> set[str]:
    """Names in docs/reference.md: `bl.tune`, `batchlens.kfac.CurvatureError`."""
    listed = re.findall(r"^- `([\w.]+)`", REFERENCE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return set(listed)


def test_the_walk_sees_public_modules() -> None:
    assert {"batchlens.scaling.curve", "batchlens.theory.tuning", "batchlens.errors"} <= PUBLIC.keys()


def test_the_reference_lists_exactly_what_is_public() -> None:
    doors = {f"bl.{name}" for name in batchlens.__all__ if name != "__version__"}
    assert documented() == doors | BEYOND


def test_the_reference_says_what_the_docstrings_say() -> None:
    text = " ".join(REFERENCE.read_text(encoding="utf-8").split())
    for name in set(batchlens.__all__) - {"__version__"}:
        first = (inspect.getdoc(getattr(batchlens, name)) or "").partition("\n\n")[0]
        assert f"- `bl.{name}`: {' '.join(first.split())}" in text


@pytest.mark.parametrize("name", sorted(set(batchlens.__all__) - {"__version__"}))
def test_every_argument_of_a_door_is_described_on_a_line_of_its_own(name: str) -> None:
    door = getattr(batchlens, name)
    if inspect.isclass(door) and issubclass(door, Exception):
        return
    described = set(re.findall(r"^\s*(\w+): ", inspect.getdoc(door) or "", flags=re.MULTILINE))
    assert set(inspect.signature(door).parameters) - {"options"} <= described


@pytest.mark.parametrize("name", sorted(set(batchlens.__all__) - {"__version__"}))
def test_every_door_shows_how_it_is_used(name: str) -> None:
    text = inspect.getdoc(getattr(batchlens, name)) or ""
    assert ">>>" in text, f"bl.{name} has no doctest"


@pytest.mark.parametrize("name", sorted(BEYOND))
def test_other_public_names_say_what_they_are(name: str) -> None:
    module, _, attribute = name.rpartition(".")
    found = getattr(import_module(module), attribute)
    if inspect.isclass(found) or inspect.isfunction(found):
        assert inspect.getdoc(found)


def test_the_readme_uses_doors_only() -> None:
    text = (REFERENCE.parent.parent / "README.md").read_text(encoding="utf-8")
    used = set(re.findall(r"\bbl\.(\w+)", text))
    assert used
    assert used <= set(batchlens.__all__)
    assert not re.search(r"from batchlens|import batchlens\.", text)
