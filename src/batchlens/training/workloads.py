"""Workloads: what is trained, and when it counts as trained."""

from pathlib import Path

from batchlens._checks import require_choice, require_instance
from batchlens.training._published import PUBLISHED
from batchlens.training._workload import SIZES, Workload
from batchlens.training._workload_files import workload_in

__all__ = ["Workload", "find_workload"]


def find_workload(name: str, size: str = "laptop") -> Workload:
    """The workload of that name, or `workload` of `my_file.py:workload`.

    Arguments:
        name: one of the paper's workloads, "digits", or FILE.py:NAME.
        size: "laptop", or "paper" for a workload as published.

    >>> find_workload("digits").target
    0.97
    """
    size = require_choice("size", size, SIZES)
    file, colon, attribute = require_instance("workload", name, str).rpartition(":")
    if colon:
        return workload_in(Path(file), attribute, size)
    if name not in PUBLISHED:
        known = ", ".join(PUBLISHED)
        raise ValueError(f"`workload` must be one of {known}, or FILE.py:NAME for one of your own, got {name!r}.")
    return PUBLISHED[name][size]
