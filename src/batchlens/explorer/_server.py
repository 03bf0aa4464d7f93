"""The server: this machine alone, files of the package, JSON in and JSON out."""

import base64
import binascii
import json
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from batchlens import __version__
from batchlens._checks import require_whole
from batchlens._notation import as_typed
from batchlens._results import finite
from batchlens.errors import BatchlensError
from batchlens.explorer._answers import Answers, Check
from batchlens.explorer._page import STATIC, page, static_file
from batchlens.explorer._turns import Superseded, Turns

HOST = "127.0.0.1"
# Bytes of a question, and of one that brings a file, at most.
MOST_BYTES, MOST_FILE_BYTES = 256 * 1024, 64 * 1024 * 1024
# Seconds that a connection may stay silent.
_PATIENCE = 60

_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
}

Answer = Callable[[dict[str, Any], Check], dict[str, Any]]


class Server(ThreadingHTTPServer):
    """Answers on the loopback address, to pages that it served itself."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, answers: Answers, port: int) -> None:
        self._open: set[socket.socket] = set()
        super().__init__((HOST, port), _Handler)
        self.turns = Turns()
        self.hosts = {f"{name}:{self.server_port}" for name in (HOST, "localhost")}
        self.page = page({"version": __version__, "files": [file.as_document() for file in answers.files.given()]})
        self.answers: dict[str, Answer] = {
            "/api/steps": answers.steps,
            "/api/risk": answers.risk,
            "/api/schedule": answers.schedule,
            "/api/file": answers.file,
            "/api/open": lambda question, _: answers.files.add(*_file_of(question)).as_document(),
        }

    @property
    def address(self) -> str:
        """Where the page is."""
        return f"http://{HOST}:{self.server_port}/"

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answers in a thread of its own."""
        self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """A connection that has ended."""
        self._open.discard(request)
        super().shutdown_request(request)

    def server_close(self) -> None:
        """Hangs up on browsers that keep their connection."""
        super().server_close()
        for connection in list(self._open):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A browser that hangs up is no error."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)


class _Refused(Exception):
    """A request that is not answered: status and reason."""

    def __init__(self, status: HTTPStatus, reason: str) -> None:
        super().__init__(reason)
        self.status = status


class _Handler(BaseHTTPRequestHandler):
    server: Server
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "batchlens", ""
    timeout = _PATIENCE
    wbufsize = 1 << 20  # header and content in one packet: a second one would wait for the first's acknowledgement
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        """The page and its files."""
        try:
            self._check_origin()
            name = self.path.partition("?")[0]
            if name == "/":
                self._send(HTTPStatus.OK, "text/html; charset=utf-8", self.server.page)
                return
            if name.removeprefix("/static/") not in STATIC or not name.startswith("/static/"):
                raise _Refused(HTTPStatus.NOT_FOUND, "there is no such file.")
            self._send(HTTPStatus.OK, *static_file(name.removeprefix("/static/")))
        except _Refused as refused:
            self._refuse(refused)

    def do_POST(self) -> None:
        """Answers a question."""
        try:
            self._check_origin()
            answer = self.server.answers.get(self.path)
            if answer is None:
                raise _Refused(HTTPStatus.NOT_FOUND, "there is no such question.")
            question = self._read_question()
        except _Refused as refused:
            self._refuse(refused)
            return
        status, document = self._answer(answer, question)
        self._send(status, "application/json", json.dumps(finite(document)).encode())

    def _answer(self, answer: Answer, question: dict[str, Any]) -> tuple[HTTPStatus, dict[str, Any]]:
        try:
            turn = require_whole("turn", question.get("turn", 0))
            check = self.server.turns.begin(str(question.get("tab", self.client_address))[:64], turn)
            return HTTPStatus.OK, answer(question, check)
        except Superseded:
            return HTTPStatus.CONFLICT, {"error": "superseded"}
        except (ValueError, TypeError, BatchlensError) as error:
            return HTTPStatus.BAD_REQUEST, {"error": as_typed(str(error))}
        except MemoryError:
            return HTTPStatus.BAD_REQUEST, {"error": "this needs more memory than there is."}
        except Exception as error:  # the next question is another matter
            print(f"batchlens: {self.path} failed: {type(error).__name__}: {error}", file=sys.stderr)
            return HTTPStatus.INTERNAL_SERVER_ERROR, {"error": f"this failed: {type(error).__name__}."}

    def _check_origin(self) -> None:
        """Refuses other sites' pages, also those that call themselves by this machine's address."""
        if self.headers.get("Host") not in self.server.hosts:
            raise _Refused(HTTPStatus.FORBIDDEN, "the Host header must be that of this server.")
        origin = self.headers.get("Origin")
        if origin is not None and origin.removeprefix("http://") not in self.server.hosts:
            raise _Refused(HTTPStatus.FORBIDDEN, "the Origin header must be that of this server.")
        if self.headers.get("Sec-Fetch-Site", "none") == "cross-site" and self.command != "GET":
            raise _Refused(HTTPStatus.FORBIDDEN, "pages of other sites may not ask.")

    def _read_question(self) -> dict[str, Any]:
        if self.headers.get_content_type() != "application/json":
            raise _Refused(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "a question must be application/json.")
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal() or self.headers.get("Transfer-Encoding"):
            raise _Refused(HTTPStatus.LENGTH_REQUIRED, "a question must say its Content-Length.")
        most = MOST_FILE_BYTES if self.path == "/api/open" else MOST_BYTES
        if int(length) > most:
            raise _Refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"this must be at most {most:,} bytes, got {length}.")
        try:
            question = json.loads(self.rfile.read(int(length)))
        except (ValueError, RecursionError):
            question = None
        if not isinstance(question, dict):
            raise _Refused(HTTPStatus.BAD_REQUEST, "a question must be a JSON object.")
        return question

    def _refuse(self, refused: _Refused) -> None:
        self.close_connection = True  # what follows on it may be the rest of what was refused
        self._send(refused.status, "application/json", json.dumps({"error": str(refused)}).encode())

    def _send(self, status: HTTPStatus, kind: str, content: bytes) -> None:
        self.send_response(status)
        headers = _HEADERS | {"Content-Type": kind, "Content-Length": str(len(content))}
        for name, value in (headers | ({"Connection": "close"} if self.close_connection else {})).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        """Says nothing: the page says what went wrong."""


def _file_of(question: dict[str, Any]) -> tuple[str, bytes]:
    """Name and content of a file that the page brings."""
    name, content = question.get("name"), question.get("content")
    if not isinstance(name, str) or not isinstance(content, str) or not 0 < len(name) <= 200:
        raise ValueError("`file` must have a name and a content, got neither.")
    try:
        return name, base64.b64decode(content, validate=True)
    except binascii.Error:
        raise ValueError("`file` must have its content in base64, got other text.") from None
