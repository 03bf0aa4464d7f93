"""The hparams.yaml that Lightning writes beside its logs."""

import re
from contextlib import suppress
from pathlib import Path

from batchlens.scaling._logs.log import Setting

FILE = "hparams.yaml"
_LINE = re.compile(r"(\w+):[ ]+(\S.*)")
_WORDS: dict[str, Setting | None] = {"true": True, "false": False, "null": None, "~": None}


def read_hparams(folder: Path) -> dict[str, Setting]:
    """The numbers, words and flags at the top level of the file; none where there is no file.

    What is nested or tagged is no setting that one run could be told from another by.
    """
    text = ""
    with suppress(OSError, UnicodeDecodeError):
        text = (folder / FILE).read_text(encoding="utf-8")
    found = {match[1]: _scalar(match[2].strip()) for match in map(_LINE.fullmatch, text.splitlines()) if match}
    return {name: value for name, value in found.items() if value is not None}


def _scalar(text: str) -> Setting | None:
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    with suppress(ValueError):
        return float(text)
    if text[0] in "'\"":
        return text.strip("'\"")
    return None if text[0] in "!&*{[|>" else text
