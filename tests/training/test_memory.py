"""Memory that a training process keeps."""

import subprocess
import sys

import pytest

CHURN = """
import resource, sys, torch
from batchlens.training._memory import keep_freed_memory
kept = sys.argv[1] == "keep" and keep_freed_memory()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(50):
    torch.ones(40_000_000 // 4)
print(int(kept), resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def churn(how: str) -> tuple[bool, int]:
    answer = subprocess.run([sys.executable, "-c", CHURN, how], capture_output=True, text=True, check=True)
    kept, faults = answer.stdout.split()
    return kept == "1", int(faults)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="pages are counted on Linux")
def test_freed_memory_is_used_again_instead_of_fresh_pages() -> None:
    _, usual = churn("give back")
    kept, fewer = churn("keep")
    if not kept:
        pytest.skip("this system's malloc does not take options")
    assert fewer < usual / 5
