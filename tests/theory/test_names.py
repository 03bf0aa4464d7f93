"""Public modules of the theory hold names that users type, and nothing else; each shows how it is used."""

import ast
from pathlib import Path

import pytest

import batchlens as bl

ROOT = Path(bl.__file__).parent
MODULES = [path for path in sorted((ROOT / "theory").glob("*.py")) if not path.name.startswith("_")]
PUBLIC = [name for name in bl.__all__ if getattr(getattr(bl, name), "__module__", "").startswith("batchlens.theory")]
# Not in `batchlens.__all__`: described in docs/theory.md.
DOCUMENTED = {"sgd_risk", "preconditioned_bound", "momentum_bound", "averaging_bound"}


def defined_names(path: Path) -> set[str]:
    """The names without underscore that a module defines at its top level."""
    names = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        match node:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name) | ast.AnnAssign(target=ast.Name(id=name)):
                names.add(name)
            case ast.Assign(targets=targets):
                names |= {target.id for target in targets if isinstance(target, ast.Name)}
    return {name for name in names if not name.startswith("_")}


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.stem)
def test_a_public_module_defines_public_names_only(path: Path) -> None:
    assert defined_names(path) - set(bl.__all__) - DOCUMENTED == set()


@pytest.mark.parametrize("name", sorted(PUBLIC))
def test_a_public_name_shows_how_it_is_used(name: str) -> None:
    assert ">>> " in (getattr(bl, name).__doc__ or ""), name
