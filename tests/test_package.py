"""What `import batchlens` gives, and what it leaves alone."""

import subprocess
import sys
from importlib.resources import files

import pytest

import batchlens

HEAVY = ("torch", "matplotlib", "numba")


def test_import_leaves_heavy_modules_out() -> None:
    program = f"import sys, batchlens; print(*(set({HEAVY}) & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


@pytest.mark.parametrize("name", batchlens.__all__)
def test_public_name_resolves_and_is_listed(name: str) -> None:
    assert getattr(batchlens, name) is not None
    assert name in dir(batchlens)


def test_every_lazy_name_is_public() -> None:
    assert {*batchlens._MODULE_OF, "__version__"} == set(batchlens.__all__)
    assert len(batchlens.__all__) == len(set(batchlens.__all__))


def test_lazy_name_is_the_object_of_its_module() -> None:
    from batchlens.errors import BatchlensError

    assert batchlens.BatchlensError is BatchlensError


def test_unknown_attribute_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'batchlens' has no attribute 'nonsense'"):
        _ = batchlens.nonsense  # type: ignore[attr-defined]


def test_types_are_shipped() -> None:
    assert files("batchlens").joinpath("py.typed").is_file()
