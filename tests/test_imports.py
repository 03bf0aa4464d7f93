"""The direction of imports inside batchlens.

A *part* is a module or package directly under `batchlens`. A part imports only what ALLOWED says,
wherever the import stands: at the top, inside a function, or for types only. And nothing that
TORCH_FREE names reaches torch, however long the chain of imports.
"""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import batchlens

PACKAGE = "batchlens"

BASE = {
    "_arrays", "_drawing", "_results", "_shapes", "_grid", "_checks", "errors", "_extras", "_notation", "_tables",
    "optimizers",
}  # fmt: skip
ALLOWED: dict[str, set[str]] = {
    "errors": set(),
    "_checks": {"_arrays"},
    "_arrays": set(),
    "_tables": {"_checks", "errors"},
    "_drawing": {"optimizers"},
    "_results": set(),
    "_shapes": {"_arrays"},
    "_grid": set(),
    "_notation": set(),
    "optimizers": set(),
    "_extras": {"errors"},
    "scaling": BASE,
    "theory": {"scaling"} | BASE,
    "kfac": BASE,
    "monitor": {"kfac", "scaling"} | BASE,
    "integrations": {"monitor", "scaling"} | BASE,
    "training": {"kfac", "scaling"} | BASE,
    "sweep": {"training", "scaling"} | BASE,
    "curvature": {"monitor", "theory", "training", "kfac", "scaling"} | BASE,
    "prediction": {"curvature", "training", "theory", "scaling"} | BASE,
    "advice": {"sweep", "theory", "training", "scaling"} | BASE,
    "report": {"advice", "prediction", "curvature", "sweep", "theory", "scaling"} | BASE,
    "explorer": {"sweep", "theory", "scaling"} | BASE,
    "cli": {"explorer", "report", "advice", "prediction", "curvature", "sweep", "training", "theory", "scaling"} | BASE,
    "__main__": {"cli"},
}
TORCH_FREE = (
    *("_checks", "errors", "scaling", "theory", "report", "explorer", "sweep._store", "sweep._curves"),
    *("monitor.monitor", "monitor._estimator", "monitor.noise_estimate", "curvature.measurement"),
    *("advice.transfer", "advice.plan"),
)
NEEDS_TORCH = ("torch", f"{PACKAGE}.kfac", f"{PACKAGE}.training")


@dataclass(frozen=True)
class Import:
    """`target` is the module that the import names, dotted in full."""

    source: str
    target: str
    line: int
    types_only: bool = False

    def __str__(self) -> str:
        return f"{self.source}:{self.line} imports {self.target}"


def find_modules(root: Path) -> dict[str, Path]:
    """Maps dotted names to the files under the package directory `root`."""
    modules = {}
    for path in sorted(root.rglob("*.py")):
        parts = (PACKAGE, *path.relative_to(root).with_suffix("").parts)
        modules[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return modules


def read_imports(source: str, modules: dict[str, Path]) -> list[Import]:
    """Lists every import statement in the file of module `source`."""
    path = modules[source]
    package = source if path.name == "__init__.py" else source.rpartition(".")[0]

    def walk(node: ast.AST, types_only: bool) -> Iterator[Import]:
        match node:
            case ast.Import(names=names):
                for alias in names:
                    yield Import(source, alias.name, node.lineno, types_only)
            case ast.ImportFrom(module=module, names=names, level=level):
                base = ".".join(package.split(".")[: len(package.split(".")) - level + 1])
                origin = ".".join(filter(None, [base if level else "", module]))
                for alias in names:
                    inner = f"{origin}.{alias.name}"
                    # A name of the root package stays visible: which part it comes from is unknown.
                    named = inner in modules or origin == PACKAGE
                    yield Import(source, inner if named else origin, node.lineno, types_only)
            case ast.If(test=ast.Name("TYPE_CHECKING") | ast.Attribute(attr="TYPE_CHECKING")):
                for statement in node.body:
                    yield from walk(statement, True)
                for statement in node.orelse:
                    yield from walk(statement, types_only)
            case _:
                for child in ast.iter_child_nodes(node):
                    yield from walk(child, types_only)

    return list(walk(ast.parse(path.read_text(encoding="utf-8")), False))


def is_within(module: str, package: str) -> bool:
    return module == package or module.startswith(f"{package}.")


def find_upward_imports(modules: dict[str, Path]) -> list[str]:
    """Says which imports ALLOWED does not allow."""
    problems = []
    for source in modules:
        if source == PACKAGE:  # the façade names every part
            continue
        part = source.split(".")[1]
        if part not in ALLOWED:
            problems.append(f"{PACKAGE}.{part} is new: add to ALLOWED what it may import")
            continue
        for found in read_imports(source, modules):
            if not is_within(found.target, PACKAGE) or found.target == f"{PACKAGE}.__version__":
                continue
            target = f"{found.target}.".split(".")[1]
            if target not in {part, *ALLOWED[part]} and not (part == "cli" and target == ""):
                problems.append(str(found))
    return problems


def find_torch_chains(modules: dict[str, Path]) -> list[str]:
    """Says how what must do without torch reaches it."""
    imports = {source: [found for found in read_imports(source, modules) if not found.types_only] for source in modules}
    problems = []
    for free in TORCH_FREE:
        chains = {name: name for name in modules if is_within(name, f"{PACKAGE}.{free}")}
        waiting = list(chains)
        while waiting:
            source = waiting.pop()
            # Importing a module runs its parents too. The root is left out: it loads lazily.
            parent = source.rpartition(".")[0]
            reached = [found.target for found in imports.get(source, [])]
            for target in [*reached, parent]:
                if target in chains or target in ("", PACKAGE):
                    continue
                chains[target] = f"{chains[source]} -> {target}"
                if any(is_within(target, heavy) for heavy in NEEDS_TORCH):
                    problems.append(chains[target])
                elif target in modules:
                    waiting.append(target)
    return problems


@pytest.fixture(scope="module")
def modules() -> dict[str, Path]:
    return find_modules(Path(batchlens.__file__).parent)


def test_the_walk_sees_the_package(modules: dict[str, Path]) -> None:
    assert {"batchlens", "batchlens.errors", "batchlens.theory"} <= modules.keys()


def test_allowed_imports_form_no_cycle() -> None:
    TopologicalSorter(ALLOWED).prepare()


def test_no_module_imports_another_in_a_circle(modules: dict[str, Path]) -> None:
    """Imports inside functions count, those for types only do not."""
    graph = {
        source: {
            found.target for found in read_imports(source, modules) if found.target in modules and not found.types_only
        }
        - {source, PACKAGE}
        for source in modules
        if source != PACKAGE
    }
    TopologicalSorter(graph).prepare()


def test_imports_point_down(modules: dict[str, Path]) -> None:
    assert find_upward_imports(modules) == []


def test_theory_and_stored_results_need_no_torch(modules: dict[str, Path]) -> None:
    assert find_torch_chains(modules) == []


def write_package(root: Path, sources: dict[str, str]) -> dict[str, Path]:
    for name, text in sources.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return find_modules(root)


@pytest.mark.parametrize(
    ("name", "text", "target"),
    [
        ("theory/rule.py", "from batchlens.training import loop", "training.loop"),
        ("theory/rule.py", "from ..training.loop import run", "training.loop"),
        ("theory/rule.py", "from .. import training", "training"),
        ("theory/__init__.py", "from .. import training", "training"),
        ("theory/rule.py", "def f():\n    import batchlens.training.loop", "training.loop"),
        ("theory/rule.py", "if TYPE_CHECKING:\n    from batchlens import training", "training"),
        ("training/loop.py", "from batchlens.theory import rule", "theory.rule"),
        ("scaling.py", "import batchlens.theory.rule", "theory.rule"),
        ("sweep/_store.py", "from batchlens.report import page", "report"),
        ("report/page.py", "import batchlens.cli", "cli"),
        ("theory/rule.py", "from batchlens import train", "train"),
    ],
)
def test_upward_import_is_found(tmp_path: Path, name: str, text: str, target: str) -> None:
    sources = {
        "theory/rule.py": "",
        "theory/__init__.py": "",
        "training/__init__.py": "",
        "training/loop.py": "",
    }
    modules = write_package(tmp_path, sources | {name: text})
    (problem,) = find_upward_imports(modules)
    assert problem.endswith(f" imports batchlens.{target}")


def test_unknown_part_is_found(tmp_path: Path) -> None:
    modules = write_package(tmp_path, {"novelty.py": ""})
    assert find_upward_imports(modules) == ["batchlens.novelty is new: add to ALLOWED what it may import"]


@pytest.mark.parametrize(
    "sources",
    [
        {"theory/rule.py": "def f():\n    import torch.nn"},
        {"sweep/_store.py": "from . import plan", "sweep/plan.py": "import batchlens.training"},
        {"sweep/_store.py": "", "sweep/__init__.py": "from .running import run_all",
         "sweep/running.py": "from batchlens.training.loop import run"},
        {"report/page.py": "import batchlens.sweep.running", "sweep/running.py": "import torch"},
    ],
)  # fmt: skip
def test_chain_to_torch_is_found(tmp_path: Path, sources: dict[str, str]) -> None:
    (problem,) = find_torch_chains(write_package(tmp_path, sources))
    assert problem.startswith("batchlens.")


def test_downward_imports_pass(tmp_path: Path) -> None:
    modules = write_package(
        tmp_path,
        {
            "__init__.py": "from batchlens.training import loop",
            "scaling.py": "import numpy",
            "theory/rule.py": "from batchlens import __version__, scaling\nfrom . import problem",
            "theory/problem.py": "from batchlens.errors import BatchlensError",
            "training/loop.py": "import torch",
            "sweep/__init__.py": "if TYPE_CHECKING:\n    from batchlens.sweep import running",
            "sweep/_store.py": "import json",
            "sweep/running.py": "from batchlens.training.loop import run",
            "curvature/fit.py": "from ..theory import problem\nfrom ..training import loop",
            "report/page.py": "from batchlens.sweep._store import read\nfrom ..theory import rule",
            "cli.py": "import batchlens as bl\nfrom batchlens import report",
        },
    )
    assert find_upward_imports(modules) == []
    assert find_torch_chains(modules) == []
