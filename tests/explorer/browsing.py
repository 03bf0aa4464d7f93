"""A real browser for the explorer: playwright drives the system's chromium."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

# Where chromium is; playwright's own download is not needed.
EXECUTABLE = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")


def why_not() -> str:
    """Why there is no browser to drive, empty where there is one."""
    try:
        import playwright.sync_api  # noqa: F401
    except ImportError:
        return "playwright is not installed"
    return "" if EXECUTABLE else "no chromium is installed"


@contextmanager
def browser() -> Iterator[Any]:
    """A browser without a window."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=EXECUTABLE, args=["--no-sandbox"])
        try:
            yield chromium
        finally:
            chromium.close()


def settle(page: Any) -> None:
    """Waits until all figures show exact numbers."""
    page.wait_for_selector('body[data-state="settled"]', timeout=60_000)
