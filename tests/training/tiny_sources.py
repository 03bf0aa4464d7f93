"""Small stand-ins for the official files, in their formats, and a server that hands them out well or badly."""

import gzip
import hashlib
import io
import socket
import tarfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

from batchlens.training.data import loading
from batchlens.training.data._catalogue import SOURCES, Content

COUNT = 40
TRAINING, HELD_OUT = SOURCES["lm1b"].archive.folders if SOURCES["lm1b"].archive else ("", "")


def content_of(data: bytes) -> Content:
    return Content(len(data), hashlib.sha256(data).hexdigest())


def pixels(name: str, count: int = COUNT, size: int = 28 * 28) -> bytes:
    seed = int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "big")
    return np.random.default_rng(seed).integers(0, 256, (count, size), dtype=np.uint8).tobytes()


def labels(count: int = COUNT) -> bytes:
    return bytes(k % 10 for k in range(count))


def idx_files() -> dict[str, bytes]:
    head = {3: b"\0\0\x08\x03" + b"".join(n.to_bytes(4, "big") for n in (COUNT, 28, 28))}
    head[1] = b"\0\0\x08\x01" + COUNT.to_bytes(4, "big")
    return {file: head[3] + pixels(file) if "images" in file else head[1] + labels() for file in SOURCES["mnist"].files}


def cifar_files() -> dict[str, bytes]:
    def record(file: str) -> bytes:
        images = np.frombuffer(pixels(file, 10, 3072), np.uint8).reshape(10, 3072)
        return np.concatenate([np.arange(10, dtype=np.uint8)[:, None], images], axis=1).tobytes()

    return {file: record(file) for file in SOURCES["cifar10"].files}


def text(seed: int, sentences: int = 300) -> bytes:
    words = ["the", "cat", "sat", "on", "a", "mat", "and", "saw", "dogs", "running", "off", "with", "one", "red", "hat"]
    rng = np.random.default_rng(seed)
    lines = [" ".join(rng.choice(words, rng.integers(4, 12))) + " ." for _ in range(sentences)]
    return ("\n".join(lines) + "\n").encode()


def shard_files() -> dict[str, bytes]:
    names = [f"news.en-0000{k}-of-00100" for k in (1, 2)] + [f"news.en.heldout-0000{k}-of-00050" for k in range(3)]
    return {name: text(k) for k, name in enumerate(names)}


def pack(members: dict[str, bytes]) -> bytes:
    """A .tar.gz of these files."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return packed.getvalue()


def write(folder: Path, files: dict[str, bytes], suffix: str = "") -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / f"{name}{suffix}").write_bytes(gzip.compress(content) if suffix == ".gz" else content)


def shrink(monkeypatch: pytest.MonkeyPatch, name: str, files: dict[str, bytes], archive: bytes | None = None) -> None:
    """Makes `files` the official ones of a data set, five of whose examples validate."""
    known = SOURCES[name]
    packed = known.archive
    if packed is not None and archive is not None:
        packed = replace(packed, sha256=hashlib.sha256(archive).hexdigest())
    official = {file: content_of(content) for file, content in files.items()}
    monkeypatch.setitem(SOURCES, name, replace(known, files=official, archive=packed, packaged=None))
    if name in loading._IMAGES:
        monkeypatch.setitem(loading._IMAGES, name, loading._IMAGES[name]._replace(validation=5))


class Server:
    """What it hands out under which path; half way, the connection breaks at `cut` paths, and stalls if told."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.pages: dict[str, bytes] = {}
        self.cut: set[str] = set()
        self.asked: list[str] = []
        self.waiting = threading.Event()
        self.stall = False

    def offer(self, files: dict[str, bytes]) -> None:
        self.pages.update({f"/{name}": content for name, content in files.items()})


@contextmanager
def serve() -> Iterator[Server]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            server.asked.append(self.path)
            if self.path not in server.pages:
                self.send_error(404)
                return
            page = server.pages[self.path]
            self.send_response(200)
            self.send_header("Content-Length", str(len(page)))
            self.end_headers()
            self.wfile.write(page[: len(page) // 2] if server.stall or self.path in server.cut else page)
            if server.stall:
                server.waiting.wait(30)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as listening:
        server = Server(f"http://127.0.0.1:{listening.server_address[1]}")
        thread = threading.Thread(target=listening.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.waiting.set()
            listening.shutdown()
            thread.join()


def free_port() -> int:
    """A port where nothing listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
