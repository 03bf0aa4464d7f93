"""Doors to the explorer: start it, or export it as one file."""

import os
import tempfile
import threading
import webbrowser
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Self

from batchlens._checks import require_path, require_sequence, require_whole
from batchlens.errors import BatchlensError

if TYPE_CHECKING:
    from batchlens.explorer._server import Server

__all__ = ["Explorer", "explore", "export_explorer"]

_Path = str | os.PathLike[str]


class Explorer:
    """An explorer that runs until it is closed; also a context manager.

    Arguments:
        server: what `explore` started.

    >>> import batchlens as bl
    >>> with bl.explore(browser=False) as explorer:
    ...     explorer.address.startswith("http://127.0.0.1:")
    True
    """

    def __init__(self, server: "Server") -> None:
        self._server = server
        self._thread = threading.Thread(target=server.serve_forever, name="batchlens explorer", daemon=True)
        self._thread.start()

    @property
    def address(self) -> str:
        """Where the page is, for browsers of this machine."""
        return self._server.address

    def wait(self) -> None:
        """Returns when the explorer has been closed."""
        self._thread.join()

    def close(self) -> None:
        """Stops the server."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Explorer: {self.address}>"


def explore(files: Sequence[_Path] = (), port: int = 0, browser: bool = True) -> Explorer:
    """Critical batch sizes that move as one drags a slider: opens a page about the theory in the browser.

    A server of this process answers the page, on the loopback address only, until it is closed. Before it starts, the
    kernels that it needs are compiled where they are not yet; that happens once and takes up to a minute.

    Arguments:
        files: to begin with: a spectrum or a measurement (see `read_problem`), and runs, a sweep's store, a prediction
            or other curves to lay over the theory.
        port: to listen on; 0 takes one that is free.
        browser: whether to open the page in the browser.

    >>> import batchlens as bl
    >>> explorer = bl.explore(browser=False)
    >>> explorer.close()
    """
    port = require_whole("port", port, high=65535)
    paths = [require_path("files", path) for path in require_sequence("files", files)]
    from batchlens.explorer._answers import Answers, warm_up
    from batchlens.explorer._files import Files
    from batchlens.explorer._server import Server

    answers = Answers(Files(paths))
    try:
        server = Server(answers, port)
    except OSError as error:
        raise BatchlensError(f"port {port} cannot be listened on: {error.strerror or error}.") from None
    try:
        warm_up()
    except BaseException:  # Ctrl-C while it compiles
        server.server_close()
        raise
    explorer = Explorer(server)
    if browser:
        webbrowser.open(explorer.address)
    return explorer


def export_explorer(
    out: _Path,
    files: Sequence[_Path] = (),
    optimizers: Sequence[str] = ("sgd", "momentum", "sgd+ema"),
    powers: Sequence[float] = (0.0, 0.5),
    progress: Callable[[int, int, str], None] | None = None,
) -> Path:
    """The explorer as one file for a talk or a paper's site: curves computed beforehand, no server, no other file.

    The sliders stop where something has been computed: five exponents of the power law (or the problem of a file), five
    targets and ten batch sizes.

    Arguments:
        out: the file to write, such as explorer.html.
        files: as for `explore`.
        optimizers: to be compared, as for `tune`.
        powers: of the preconditioning H^-power.
        progress: told how many parts are done, of how many, and which was the last.

    >>> import tempfile
    >>> from pathlib import Path
    >>> import batchlens as bl
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     spectrum = Path(folder) / "spectrum.csv"
    ...     _ = spectrum.write_text("curvature\\n1\\n0.5\\n")
    ...     bl.export_explorer(f"{folder}/talk.html", [spectrum], ["sgd"], [0.0]).name
    'talk.html'
    """
    path = require_path("out", out)
    paths = [require_path("files", each) for each in require_sequence("files", files)]
    from batchlens.explorer._export import build
    from batchlens.explorer._files import Files

    with _saying_what_cannot_be_written(path):
        _try_to_write(path)
    text = build(Files(paths), list(optimizers), list(powers), progress or (lambda *_: None))
    with _saying_what_cannot_be_written(path):
        path.write_text(text, encoding="utf-8")
    return path


def _try_to_write(path: Path) -> None:
    """Fails where the page could not be written, before minutes are spent on it; leaves no file behind."""
    if path.exists():
        path.open("ab").close()
    else:
        tempfile.TemporaryFile(dir=path.parent).close()


@contextmanager
def _saying_what_cannot_be_written(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise BatchlensError(f"{path} cannot be written: {error.strerror or error}.") from None
