"""Without the library, a callback says what to install; the module can be imported all the same."""

from importlib import import_module
from importlib.util import find_spec

import pytest

from batchlens.errors import MissingExtra


@pytest.mark.parametrize("library", ["lightning", "transformers"])
def test_a_callback_without_its_library_says_what_to_install(library: str) -> None:
    if find_spec(library):
        pytest.skip(f"{library} is here")
    module = import_module(f"batchlens.integrations.{library}")
    with pytest.raises(MissingExtra, match=f"{library} is not installed: run `pip install {library}`"):
        module.BatchlensCallback("run.jsonl")
