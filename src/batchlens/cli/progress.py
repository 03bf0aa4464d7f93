"""Progress on standard error: a bar where a person is looking, a line a minute elsewhere."""

import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import click

_T = TypeVar("_T")
# Seconds between two lines where nobody is looking.
PAUSE = 60.0


def is_watched() -> bool:
    """Whether standard error is a terminal."""
    return sys.stderr.isatty()


class Lines:
    """Prints a line to standard error at most once a minute; the first after a minute."""

    def __init__(self) -> None:
        self._started = self._said = time.monotonic()

    def say(self, words: Callable[[], str]) -> None:
        """Prints what `words` gives, if it is time to."""
        now = time.monotonic()
        if now - self._said >= PAUSE:
            self._said = now
            click.echo(f"batchlens: {words()} ({_minutes(now - self._started)})", err=True)


def _minutes(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}"


@contextmanager
def progress_bar(what: str, total: int | None = None) -> Iterator[Callable[..., None]]:
    """A function that says what comes next, and if it is given two numbers first, how many of how many are done."""
    done = 0

    def count(*words: Any) -> tuple[int, int | None, str]:
        nonlocal done, total
        if len(words) == 3:
            done, total = words[0], words[1]
        else:
            done += 1
        return done, total, str(words[-1])

    if not is_watched():
        lines = Lines()

        def tell(*words: Any) -> None:
            now, all_, name = count(*words)
            lines.say(lambda: f"{what}: {name}" + (f", {now} of {all_}" if all_ else ""))

        yield tell
        return
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(what, total=total)

        def show(*words: Any) -> None:
            now, all_, name = count(*words)
            progress.update(task, completed=now, total=all_, description=f"{what}: {escape(name)}")

        yield show


def track(items: Sequence[_T], what: str) -> Iterable[_T]:
    """The same items, with progress."""
    with progress_bar(what, len(items)) as advance:
        for item in items:
            advance(str(item))
            yield item


@contextmanager
def waiting(what: str) -> Iterator[None]:
    """Shows that something is being done which cannot say how far it is."""
    if is_watched():
        from rich.console import Console
        from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
        with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
            progress.add_task(what, total=None)
            yield
        return
    over = threading.Event()
    lines = Lines()

    def tell() -> None:
        while not over.wait(PAUSE):
            lines.say(lambda: what)

    thread = threading.Thread(target=tell, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@contextmanager
def download_bar() -> Iterator[Callable[[str, int, int | None], None] | None]:
    """A function that is told which file, how many bytes of it have come and how many there are."""
    if not is_watched():
        lines = Lines()
        yield lambda file, done, total: lines.say(
            lambda: f"fetching {file}: {done / 1e6:,.0f} MB" + (f" of {total / 1e6:,.0f}" if total else "")
        )
        return
    from rich import progress as rich
    from rich.console import Console

    columns = (
        rich.TextColumn("{task.description}"),
        rich.BarColumn(),
        rich.DownloadColumn(),
        rich.TransferSpeedColumn(),
        rich.TimeRemainingColumn(),
    )
    with rich.Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        tasks: dict[str, Any] = {}

        def show(file: str, done: int, total: int | None) -> None:
            if file not in tasks:
                tasks[file] = bar.add_task(file, total=total)
            bar.update(tasks[file], completed=done, total=total)

        yield show
