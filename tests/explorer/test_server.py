"""The explorer's server: for this machine and its own page only, and hard to bring down."""

import json
import random
import re
import signal
import socket
import threading
import urllib.request
from pathlib import Path
from typing import Any

import pytest

import batchlens as bl
from batchlens.explorer import _answers, _page, _server
from batchlens.explorer._turns import Superseded, Turns
from tests.explorer.conftest import QUESTION, Ask
from tests.program import start


def test_the_page_comes_with_a_strict_policy(explorer: bl.Explorer) -> None:
    with urllib.request.urlopen(explorer.address) as response:
        policy = response.headers["Content-Security-Policy"]
        page = response.read().decode()
    assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self';")
    assert "unsafe" not in policy
    assert "style=" not in page
    assert not re.search(r"\son\w+=", page)
    assert "//" not in re.sub(r"<!doctype html>", "", page)  # nothing of another host


def test_every_file_of_the_page_is_served_and_no_other(ask: Ask) -> None:
    for name in _page.STATIC:
        assert ask(f"/static/{name}", method="GET")[0] == 200
    for path in ("/static/page.html", "/static/../_server.py", "/static/%2e%2e/_server.py", "/etc/passwd", "/api/steps",
                 "/static/", "/static"):  # fmt: skip
        assert ask(path, method="GET")[0] == 404
    folder = Path(_page.__file__).parent / "_static"
    assert {path.name for path in folder.iterdir()} == _page.STATIC | {"page.html"}


def test_no_script_names_what_another_names() -> None:
    """In an exported page they share one scope."""
    folder = Path(_page.__file__).parent / "_static"
    names = [
        name
        for script in _page.SCRIPTS
        for name in re.findall(
            r"^(?:export )?(?:async )?(?:function|const|let|class) (\w+)", (folder / script).read_text(), re.MULTILINE
        )
    ]
    assert len(names) == len(set(names)) > 50


def test_other_names_of_this_machine_are_refused(ask: Ask, explorer: bl.Explorer) -> None:
    """A page of another site whose name resolves to the loopback address carries that name."""
    for host in ("evil.example", "evil.example:80", "127.0.0.1", ""):
        assert ask("/", method="GET", Host=host)[0] == 403
        assert ask("/api/steps", QUESTION, Host=host)[0] == 403
    port = explorer.address.split(":")[2].rstrip("/")
    assert ask("/", method="GET", Host=f"localhost:{port}")[0] == 200


def test_pages_of_other_sites_are_refused(ask: Ask, explorer: bl.Explorer) -> None:
    for origin in ("http://evil.example", "null", "https://127.0.0.1", "http://127.0.0.1:1"):
        assert ask("/api/steps", QUESTION, Origin=origin)[0] == 403
    assert ask("/api/steps", QUESTION, Origin=explorer.address.rstrip("/"))[0] == 200
    assert ask("/api/steps", QUESTION, Content_Type="text/plain")[0] == 415
    assert ask("/api/steps", QUESTION, Sec_Fetch_Site="cross-site")[0] == 403


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"1", b"\xff", b"[" * 50_000, b'{"tab": 1, "turn": "x"}'])
def test_what_is_no_question_is_refused(ask: Ask, body: bytes) -> None:
    status, answer = ask("/api/steps", body)
    assert status == 400
    assert answer["error"]


def test_large_questions_are_refused_unread(ask: Ask) -> None:
    assert ask("/api/steps", b" " * (_server.MOST_BYTES + 1))[0] == 413
    assert ask("/api/nothing", QUESTION)[0] == 404


def test_a_question_without_a_length_is_refused(explorer: bl.Explorer) -> None:
    host = explorer.address.removeprefix("http://").rstrip("/")
    with socket.create_connection(("127.0.0.1", int(host.split(":")[1])), timeout=10) as connection:
        connection.sendall(
            f"POST /api/steps HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n\r\n{{}}".encode()
        )
        assert b" 411 " in connection.recv(100)


def test_it_listens_on_the_loopback_address_only(explorer: bl.Explorer) -> None:
    assert explorer._server.server_address[0] == "127.0.0.1"


def test_a_port_that_is_taken_is_named_before_anything_is_compiled(
    explorer: bl.Explorer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_answers, "warm_up", pytest.fail)
    port = int(explorer.address.split(":")[2].rstrip("/"))
    with pytest.raises(bl.BatchlensError, match=f"port {port} cannot be listened on"):
        bl.explore(port=port, browser=False)


def test_a_start_that_is_broken_off_frees_the_port(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    with bl.explore(browser=False) as free:
        port = free._server.server_port
    with monkeypatch.context() as patched:
        patched.setattr(_answers, "warm_up", interrupt)
        with pytest.raises(KeyboardInterrupt):
            bl.explore(port=port, browser=False)
    bl.explore(port=port, browser=False).close()


def test_a_newer_question_of_the_same_tab_ends_an_older_one() -> None:
    turns = Turns()
    old, other = turns.begin("one", 1), turns.begin("two", 1)
    new = turns.begin("one", 2)
    new()
    other()
    with pytest.raises(Superseded):
        old()
    with pytest.raises(Superseded):
        turns.begin("one", 1)()


def test_what_nobody_waits_for_is_given_up(ask: Ask) -> None:
    question = {**QUESTION, "problem": {**QUESTION["problem"], "dim": 1000, "exponent": 1.1},
                "optimizer": "sgd,momentum,nesterov,sgd+ema,momentum+ema", "target": 0.01, "tab": "one"}  # fmt: skip
    found: list[tuple[int, Any]] = []
    thread = threading.Thread(target=lambda: found.append(ask("/api/steps", question | {"turn": 1})))
    thread.start()
    while ask("/api/steps", QUESTION | {"tab": "one", "turn": 1})[0] != 200:  # the other one has begun by then
        pass
    assert ask("/api/steps", QUESTION | {"tab": "one", "turn": 2})[0] == 200
    thread.join()
    assert found == [(409, {"error": "superseded"})]


def test_a_thousand_random_requests_are_survived(ask: Ask) -> None:
    chance = random.Random(0)
    values: list[Any] = ["", "0", "-1", "nan", "inf", "1e400", "abc", None, True, [], {}, [1], {"a": 1}, 0, -1, 1e308,
                         "1e-320", "4..8", "sgd", "0.5", "x" * 2000, "\x00", "💥", 2**70, "sgd,sgd"]  # fmt: skip
    paths = ["/api/steps", "/api/risk", "/api/schedule", "/api/file", "/api/open", "/", "/api", "/static/x"]
    usual = QUESTION | {"batch_size": 8, "power": "0", "steps": 10, "learning_rate": 0.1, "momentum": 0.5,
                        "averaging": 0, "optimizer": "sgd", "batch_sizes": "4,8", "name": "a.csv",
                        "content": "Y3VydmF0dXJlCjEK", "near": None}  # fmt: skip
    statuses = set()
    for _ in range(1000):
        question: Any = {**usual, "problem": {**usual["problem"], "dim": 10}}
        for _ in range(chance.randrange(3)):
            place = question["problem"] if chance.random() < 0.3 else question
            place[chance.choice(sorted(place))] = chance.choice(values)
            if not isinstance(question["problem"], dict):
                break
        path = chance.choice(paths)
        body = json.dumps(question).encode()
        if chance.random() < 0.1:
            body = body[: chance.randrange(len(body))]
        status, _answer = ask(path, body, method=chance.choice(["POST", "POST", "POST", "GET", "PUT"]))
        statuses.add(status)
    assert 500 not in statuses
    assert {200, 400, 404} <= statuses
    assert ask("/api/steps", QUESTION)[0] == 200


def test_ctrl_c_ends_it() -> None:
    with start("explore --no-browser --json") as program:
        assert program.stdout is not None
        address = json.loads(program.stdout.readline())["address"]
        with urllib.request.urlopen(address) as response:
            assert response.status == 200
        program.send_signal(signal.SIGINT)
        assert program.wait(timeout=60) == 0
        assert program.stdout.read() == ""
