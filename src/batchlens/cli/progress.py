"""Progress on standard error: a bar where a person is looking, a line a minute elsewhere."""

import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import click

from batchlens.cli.terminal import plain, say

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
            say(f"batchlens: {words()} ({_minutes(now - self._started)})", err=True)


def _minutes(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}"


@contextmanager
def progress_bar(what: str) -> Iterator[Callable[[int, int, str], None]]:
    """A function that is told how many parts are done, of how many, and which was the last."""
    if not is_watched():
        lines = Lines()
        yield lambda done, total, name: lines.say(lambda: f"{what}: {name}, {done} of {total}")
        return
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(what, total=None)
        yield lambda done, total, name: progress.update(
            task, completed=done, total=total, description=f"{what}: {escape(plain(name))}"
        )


def track(items: Sequence[_T], what: str) -> Iterable[_T]:
    """The same items, with progress."""
    with progress_bar(what) as tell:
        for done, item in enumerate(items, start=1):
            yield item
            tell(done, len(items), str(item))


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


class Stopped(KeyboardInterrupt):
    """Ctrl-C, as a class of its own.

    Where a plain KeyboardInterrupt has passed through `exec`, which imports use, Python ends by the signal in the end,
    whatever status the program asks for.
    """


@contextmanager
def interruptible() -> Iterator[None]:
    """Inside, Ctrl-C is `Stopped`, unless it was to be ignored."""
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return

    def stop(*_: object) -> None:
        raise Stopped

    signal.signal(signal.SIGINT, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@contextmanager
def stopping() -> Iterator[Callable[[], bool]]:
    """Whether Ctrl-C or SIGTERM asked a run to stop after its step; a second one ends the program."""
    asked: list[int] = []

    def ask(number: int, _: object) -> None:
        if asked:
            raise Stopped
        asked.append(number)
        say("batchlens: stopping after this step; once more to stop at once", err=True)

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: bool(asked)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


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


@contextmanager
def saying_how_to_go_on(option: str, kept: bool, begun: Callable[[], bool] = lambda: True) -> Iterator[None]:
    """Whenever Ctrl-C comes, it ends with what becomes of the run, which `option` would keep once it has begun."""
    try:
        yield
    except KeyboardInterrupt as stopped:
        step = getattr(stopped, "step", None)
        where = "before the end" if step is None else f"at step {step:,}"
        remedy = "run the same command again to go on." if kept else f"with {option} it would be kept."
        if kept and not begun():
            remedy = "nothing is kept so far; run the same command again to begin anew."
        raise click.Abort(f"{where}; {remedy}") from None
