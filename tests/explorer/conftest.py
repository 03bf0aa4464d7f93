"""An explorer to ask, and how to ask it."""

import http.client
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import batchlens as bl

# Small enough that a question takes milliseconds.
QUESTION: dict[str, Any] = {
    "problem": {"dim": "100", "exponent": "1", "bins": "0", "rounding": "down"},
    "target": "0.1", "optimizer": "sgd,momentum", "power": "0,0.5", "batch_sizes": "4..64",
}  # fmt: skip

Ask = Callable[..., tuple[int, Any]]


@pytest.fixture(scope="module")
def explorer() -> Iterator[bl.Explorer]:
    with bl.explore(browser=False) as running:
        yield running


@pytest.fixture
def ask(explorer: bl.Explorer) -> Ask:
    """Status and document of a question, or of anything else that is sent."""
    host = explorer.address.removeprefix("http://").rstrip("/")

    def send(path: str, question: Any = None, method: str = "POST", **headers: str) -> tuple[int, Any]:
        connection = http.client.HTTPConnection(host, timeout=60)
        body = question if isinstance(question, bytes) else json.dumps(question).encode()
        usual = {"Host": host, "Content-Type": "application/json"} if method == "POST" else {"Host": host}
        given = usual | {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, path, body if method == "POST" else None, given)
        response = connection.getresponse()
        content = response.read()
        connection.close()
        kind = response.headers.get_content_type()
        return response.status, json.loads(content) if kind == "application/json" else content.decode()

    return send
