"""Official files: found in every form, refused when they are not the official ones, fetched whole or not at all."""

import gzip
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from batchlens import cli
from batchlens.cli.progress import download_bar
from batchlens.errors import BatchlensError
from batchlens.training.data import _catalogue as catalogue
from batchlens.training.data import fetching
from batchlens.training.data._catalogue import NAMES, SOURCES
from batchlens.training.data._sources import (
    SUMS,
    Found,
    find_dataset_folder,
    find_folder,
    is_present,
    is_shard,
    list_shards,
    read_files,
    remedy,
    verify,
)
from batchlens.training.data.fetching import Fetched, fetch
from tests.program import heed_interrupts
from tests.training.tiny_sources import (
    HELD_OUT,
    TRAINING,
    Server,
    cifar_files,
    content_of,
    free_port,
    idx_files,
    pack,
    serve,
    shard_files,
    shrink,
    write,
)

IMAGES = "train-images-idx3-ubyte"


@pytest.fixture
def mnist(monkeypatch: pytest.MonkeyPatch) -> dict[str, bytes]:
    """Small files that count as the official ones."""
    files = idx_files()
    shrink(monkeypatch, "mnist", files)
    return files


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with serve() as running:
        yield running


def states(found: list[Found]) -> dict[str, str]:
    return {file.file: file.state for file in found}


def zipped(files: dict[str, bytes]) -> dict[str, bytes]:
    return {f"{name}.gz": gzip.compress(content) for name, content in files.items()}


def everything(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


# ---------------------------------------------------------------------------------------------
# Where the files lie
# ---------------------------------------------------------------------------------------------


def test_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("BATCHLENS_DATA", raising=False)
    assert find_folder() == tmp_path / ".cache" / "batchlens"
    monkeypatch.setenv("BATCHLENS_DATA", "")
    assert find_folder() == tmp_path / ".cache" / "batchlens"
    monkeypatch.setenv("BATCHLENS_DATA", "~/sets")
    assert find_folder() == tmp_path / "sets"
    assert find_folder("~/mine") == tmp_path / "mine"
    assert find_dataset_folder("mnist") == tmp_path / "sets" / "mnist"


def test_remedy_repeats_the_folder_given() -> None:
    assert remedy("mnist") == "batchlens data fetch mnist"
    assert remedy("mnist", "my data") == "batchlens data fetch mnist --data-dir 'my data'"
    assert remedy("digits").startswith("pip install ")


@pytest.mark.parametrize("name", ["mnist", "fashion_mnist", "cifar10", "lm1b", "digits"])
def test_real_files(name: str) -> None:
    if not is_present(name):
        pytest.skip(f"{name} is not in the data folder: run `batchlens data fetch {name}`")
    assert set(states(verify(name)).values()) <= {"right", "unchecked"}


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_files_are_read_plain_or_compressed(tmp_path: Path, mnist: dict[str, bytes], suffix: str) -> None:
    write(tmp_path / "mnist", mnist, suffix)
    assert is_present("mnist", tmp_path)
    assert read_files("mnist", mnist, tmp_path) == list(mnist.values())
    assert set(states(verify("mnist", tmp_path)).values()) == {"right"}


def test_a_right_form_counts_where_another_is_damaged(tmp_path: Path, mnist: dict[str, bytes]) -> None:
    write(tmp_path / "mnist", mnist, ".gz")
    (tmp_path / "mnist" / IMAGES).write_bytes(b"half")
    assert read_files("mnist", [IMAGES], tmp_path) == [mnist[IMAGES]]


def test_presence_needs_every_file(tmp_path: Path, mnist: dict[str, bytes]) -> None:
    assert not is_present("mnist", tmp_path)
    write(tmp_path / "mnist", mnist)
    (tmp_path / "mnist" / IMAGES).unlink()
    assert not is_present("mnist", tmp_path)
    assert is_present("digits", tmp_path)


def test_shards_by_official_name(tmp_path: Path) -> None:
    folder = tmp_path / "lm1b"
    write(folder, {"news.en.heldout-00011-of-00050": b"b", "news.en-00000-of-00100": b"held out", "news.en.txt": b"?"})
    write(folder, {"news.en.heldout-00011-of-00050": b"b"}, ".gz")
    write(folder / TRAINING, {"news.en-00007-of-00100": b"a"})
    assert list_shards(tmp_path) == {
        "news.en-00007-of-00100": folder / TRAINING / "news.en-00007-of-00100",
        "news.en.heldout-00011-of-00050": folder / "news.en.heldout-00011-of-00050",
    }
    assert states(verify("lm1b", tmp_path)) == {
        "news.en-00007-of-00100": "unchecked",
        "news.en.heldout-00011-of-00050": "damaged",
    }
    assert not is_shard("../news.en-00007-of-00100")


# ---------------------------------------------------------------------------------------------
# Files that are not the official ones
# ---------------------------------------------------------------------------------------------


def _cut(content: bytes) -> bytes:
    return content[: len(content) // 2]


def _altered(content: bytes) -> bytes:
    return content[:-1] + bytes([content[-1] ^ 1])


@pytest.mark.parametrize(
    ("suffix", "harm", "words"),
    [
        ("", _cut, r"holds 15,688 bytes where 31,376 are expected"),
        ("", _altered, r"has SHA-256 [0-9a-f]{64} where [0-9a-f]{64} is expected"),
        (".gz", _cut, "is cut short or altered: it cannot be decompressed"),
        (".gz", _altered, "is cut short or altered: it cannot be decompressed"),
    ],
)
def test_a_damaged_file_is_refused(
    tmp_path: Path, mnist: dict[str, bytes], suffix: str, harm: Callable[[bytes], bytes], words: str
) -> None:
    write(tmp_path / "mnist", mnist, suffix)
    path = tmp_path / "mnist" / f"{IMAGES}{suffix}"
    path.write_bytes(harm(path.read_bytes()))
    with pytest.raises(
        BatchlensError, match=rf"^\S*{path.name} {words}; run `batchlens data fetch mnist --data-dir \S+`\.$"
    ):
        read_files("mnist", [IMAGES], tmp_path)
    assert states(verify("mnist", tmp_path)) == dict.fromkeys(mnist, "right") | {IMAGES: "damaged"}


def test_a_missing_file_is_named(tmp_path: Path, mnist: dict[str, bytes]) -> None:
    with pytest.raises(BatchlensError, match=rf"{IMAGES} is missing \(31,376 bytes, SHA-256 [0-9a-f]{{64}}\); run `"):
        read_files("mnist", [IMAGES], tmp_path)
    assert set(states(verify("mnist", tmp_path)).values()) == {"missing"}


def test_a_folder_in_place_of_the_data_is_missing(tmp_path: Path, mnist: dict[str, bytes]) -> None:
    (tmp_path / "mnist" / IMAGES).mkdir(parents=True)
    with pytest.raises(BatchlensError, match="is missing"):
        read_files("mnist", [IMAGES], tmp_path)


@pytest.mark.parametrize("harm", [_cut, lambda _: pack({"cifar-10-batches-bin/readme.html": b""}), lambda _: b"no tar"])
def test_a_damaged_archive_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, harm: Callable[[bytes], bytes]
) -> None:
    files = cifar_files()
    shrink(monkeypatch, "cifar10", files)
    packed = pack({f"cifar-10-batches-bin/{name}": content for name, content in files.items()})
    write(tmp_path / "cifar10", {"cifar-10-binary.tar.gz": harm(packed)})
    with pytest.raises(BatchlensError, match=r"binary\.tar\.gz (is cut short|lacks data_batch_5\.bin|is cut).*; run `"):
        read_files("cifar10", ["data_batch_5.bin"], tmp_path)


# ---------------------------------------------------------------------------------------------
# Fetching
# ---------------------------------------------------------------------------------------------


def test_fetch_brings_what_is_missing_or_damaged(tmp_path: Path, mnist: dict[str, bytes], server: Server) -> None:
    server.offer(zipped(mnist))
    write(tmp_path / "mnist", mnist)
    (tmp_path / "mnist" / IMAGES).write_bytes(b"half")
    (tmp_path / "mnist" / "t10k-labels-idx1-ubyte").unlink()
    untouched = (tmp_path / "mnist" / "train-labels-idx1-ubyte").stat()
    assert fetch("mnist", tmp_path, url=server.url) == [
        Fetched("t10k-images-idx3-ubyte", "present"),
        Fetched("t10k-labels-idx1-ubyte", "fetched"),
        Fetched("train-images-idx3-ubyte", "fetched"),
        Fetched("train-labels-idx1-ubyte", "present"),
    ]
    assert sorted(server.asked) == ["/t10k-labels-idx1-ubyte.gz", f"/{IMAGES}.gz"]
    assert (tmp_path / "mnist" / "train-labels-idx1-ubyte").stat() == untouched
    assert everything(tmp_path / "mnist") == sorted(mnist)
    assert read_files("mnist", mnist, tmp_path) == list(mnist.values())
    server.asked.clear()
    fetch("mnist", tmp_path, url=f"{server.url}/")
    assert server.asked == []


@pytest.mark.parametrize("name", ["mnist", "cifar10"])
@pytest.mark.parametrize(
    ("trouble", "words"),
    [
        (
            "altered",
            r"what came (has SHA-256 [0-9a-f]{64} where [0-9a-f]{64} is|holds 0 bytes where [\d,]+ are) expected",
        ),
        ("cut", "the transfer broke off"),
        ("absent", "HTTP 404 Not Found"),
        ("unreachable", "no connection"),
    ],
)
def test_a_fetch_that_fails_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server: Server, name: str, trouble: str, words: str
) -> None:
    files = idx_files() if name == "mnist" else cifar_files()
    packed = pack({f"cifar-10-batches-bin/{file}": content for file, content in files.items()})
    shrink(monkeypatch, name, files, packed)
    server.offer(zipped(files) if name == "mnist" else {"cifar-10-binary.tar.gz": packed})
    url = server.url
    if trouble == "altered":
        server.pages = {path: _altered(content) for path, content in server.pages.items()}
    elif trouble == "cut":
        server.cut = set(server.pages)
    elif trouble == "absent":
        server.pages.clear()
    else:
        url = f"http://127.0.0.1:{free_port()}"
    with pytest.raises(BatchlensError) as error:
        fetch(name, tmp_path, url=url)
    file = f"{IMAGES}.gz" if name == "mnist" else "cifar-10-binary.tar.gz"
    again = f"run `batchlens data fetch {name} --data-dir {tmp_path}` once that is mended"
    start, _, end = str(error.value).partition("; ")
    assert start.startswith(f"cannot fetch {url}/{file}: ")
    assert re.fullmatch(words, start.removeprefix(f"cannot fetch {url}/{file}: "))
    assert end == f"{again}, or put the official file into {tmp_path / name} yourself."
    assert everything(tmp_path / name) == []


def test_what_came_before_the_failure_stays(tmp_path: Path, mnist: dict[str, bytes], server: Server) -> None:
    server.offer(zipped(mnist))
    del server.pages["/t10k-images-idx3-ubyte.gz"]
    with pytest.raises(BatchlensError, match="HTTP 404"):
        fetch("mnist", tmp_path, url=server.url)
    assert everything(tmp_path / "mnist") == ["train-images-idx3-ubyte", "train-labels-idx1-ubyte"]


def test_an_interrupted_fetch_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mnist: dict[str, bytes], server: Server
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    server.offer(zipped(mnist))
    monkeypatch.setattr(fetching, "read_plain", interrupt)
    with pytest.raises(KeyboardInterrupt):
        fetch("mnist", tmp_path, url=server.url)
    assert everything(tmp_path / "mnist") == []


def test_fetch_takes_what_debian_has_packaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server: Server) -> None:
    files = idx_files()
    shrink(monkeypatch, "fashion_mnist", files)
    packaged = tmp_path / "packaged"
    write(packaged, files, ".gz")
    (packaged / f"{IMAGES}.gz").write_bytes(b"\x1f\x8bdamaged")
    monkeypatch.setitem(catalogue.SOURCES, "fashion_mnist", replace(SOURCES["fashion_mnist"], packaged=packaged))
    server.offer(zipped(files))
    fetch("fashion_mnist", tmp_path / "data", url=server.url)
    assert server.asked == [f"/{IMAGES}.gz"]
    assert read_files("fashion_mnist", files, tmp_path / "data") == list(files.values())


@pytest.mark.parametrize("already", [False, True])
def test_cifar10_comes_out_of_its_archive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server: Server, already: bool
) -> None:
    files = cifar_files()
    outside = {"../escaped": b"!", "cifar-10-batches-bin/readme.html": b"!", "elsewhere/data_batch_1.bin": b"!"}
    inside = {f"cifar-10-batches-bin/{file}": content for file, content in files.items()}
    packed = pack(outside | inside)
    shrink(monkeypatch, "cifar10", files, packed)
    server.offer({"cifar-10-binary.tar.gz": packed})
    folder = tmp_path / "cifar10"
    if already:
        write(folder, {"cifar-10-binary.tar.gz": packed})
    found = fetch("cifar10", tmp_path, url=server.url)
    assert [file.file for file in found] == sorted(files)
    # Files inside the archive are present as they are.
    assert everything(folder) == (["cifar-10-binary.tar.gz"] if already else sorted(files))
    assert server.asked == ([] if already else ["/cifar-10-binary.tar.gz"])
    assert read_files("cifar10", files, tmp_path) == list(files.values())
    assert everything(tmp_path) == ["cifar10"]


def test_lm1b_comes_out_of_its_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server: Server) -> None:
    shards = shard_files()
    known = {name: content for name, content in shards.items() if name.endswith("00002-of-00050")}
    members = {f"{HELD_OUT if 'heldout' in name else TRAINING}/{name}": content for name, content in shards.items()}
    packed = pack(members | {f"{HELD_OUT}/news.en-00000-of-00100": b"held out", "README": b"!"})
    shrink(monkeypatch, "lm1b", known, packed)
    server.offer({f"{TRAINING.split('/')[0]}.tar.gz": packed})
    folder = tmp_path / "lm1b"
    write(folder, known)
    before = (folder / next(iter(known))).stat()
    found = fetch("lm1b", tmp_path, url=server.url)
    assert {file.file: file.state for file in found} == dict.fromkeys(shards, "fetched") | dict.fromkeys(
        known, "present"
    )
    assert (folder / next(iter(known))).stat() == before
    assert everything(folder) == sorted([*shards, SUMS])
    assert states(verify("lm1b", tmp_path)) == dict.fromkeys(shards, "right")

    # What the archive held is known from now on.
    (folder / "news.en-00001-of-00100").write_bytes(b"altered")
    (folder / "news.en-00002-of-00100").unlink()
    assert states(verify("lm1b", tmp_path)) == dict.fromkeys(shards, "right") | {
        "news.en-00001-of-00100": "damaged",
        "news.en-00002-of-00100": "missing",
    }
    server.asked.clear()
    write(folder, {f"{TRAINING.split('/')[0]}.tar.gz": packed})
    fetch("lm1b", tmp_path, url=server.url)
    assert server.asked == []
    assert states(verify("lm1b", tmp_path)) == dict.fromkeys(shards, "right")


def test_a_folder_that_cannot_be_made(tmp_path: Path, mnist: dict[str, bytes]) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(BatchlensError, match=r"cannot write to .*; choose another folder with --data-dir or "):
        fetch("mnist", tmp_path / "file")


def test_digits_need_no_fetching() -> None:
    assert fetch("digits") == [Fetched("digits.csv", "present")]


def test_damaged_digits_are_mended_by_installing(monkeypatch: pytest.MonkeyPatch) -> None:
    damaged = replace(SOURCES["digits"], files={"digits.csv": content_of(b"other")})
    monkeypatch.setitem(catalogue.SOURCES, "digits", damaged)
    with pytest.raises(BatchlensError, match="run `pip install --force-reinstall batchlens`"):
        read_files("digits", ["digits.csv"])
    with pytest.raises(BatchlensError, match="run `pip install --force-reinstall batchlens`"):
        fetch("digits")


def test_unknown_names_are_refused() -> None:
    for call in (fetch, verify, is_present, find_dataset_folder):
        with pytest.raises(ValueError, match="`name` must be one of mnist, "):
            call("svhn")


@pytest.mark.parametrize("module", ["pooch", "requests"])
def test_a_missing_extra_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mnist: dict[str, bytes], module: str
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(BatchlensError, match=rf'^{module} is not installed: run `pip install "batchlens\[train\]"`\.$'):
        fetch("mnist", tmp_path)
    assert everything(tmp_path / "mnist") == []


def test_progress_is_shown_to_a_person(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], mnist: dict[str, bytes],
    server: Server,
) -> None:  # fmt: skip
    server.offer(zipped(mnist))
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    with download_bar() as progress:
        fetch("mnist", tmp_path, url=server.url, progress=progress)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert f"{IMAGES}.gz" in captured.err


def test_progress_tells_file_and_bytes(tmp_path: Path, mnist: dict[str, bytes], server: Server) -> None:
    files = zipped(mnist)
    server.offer(files)
    told: dict[str, int] = {}
    fetch("mnist", tmp_path, url=server.url, progress=lambda file, done, _: told.update({file: done}))
    assert told == {file: len(content) for file, content in files.items()}


# ---------------------------------------------------------------------------------------------
# The command
# ---------------------------------------------------------------------------------------------


# Exit status, standard output and standard error.
Run = Callable[[str], tuple[int, str, str]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    def call(command: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["batchlens", *shlex.split(command)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            cli.main()
        assert isinstance(ended.value.code, int)
        return ended.value.code, *capsys.readouterr()

    return call


def document(outcome: tuple[int, str, str], status: int = 0) -> Any:
    assert (outcome[0], outcome[2], outcome[1].count("\n")) == (status, "", 1)
    return json.loads(outcome[1])


def test_list(run: Run, tmp_path: Path, mnist: dict[str, bytes]) -> None:
    write(tmp_path / "mnist", mnist)
    found = document(run(f"data list --data-dir {tmp_path} --json"))
    assert found["folder"] == str(tmp_path)
    assert {row["name"]: row["present"] for row in found["datasets"]} == {
        "mnist": True, "fashion_mnist": False, "cifar10": False, "lm1b": False, "digits": True,
    }  # fmt: skip
    assert all(row["licence"] and row["what"] and row["examples"] for row in found["datasets"])
    status, out, err = run(f"data list --data-dir {tmp_path}")
    assert (status, err) == (0, "")
    assert all(name in out for name in NAMES)
    assert "1,792.2 MB" in out


def test_verify(run: Run, tmp_path: Path, mnist: dict[str, bytes]) -> None:
    write(tmp_path / "mnist", mnist)
    found = document(run(f"data verify mnist --data-dir {tmp_path} --json"))
    assert found["right"] is True
    assert {row["file"]: row["state"] for row in found["files"]} == dict.fromkeys(mnist, "right")
    (tmp_path / "mnist" / IMAGES).write_bytes(b"half")
    found = document(run(f"data verify mnist --data-dir {tmp_path} --json"), status=1)
    assert found["right"] is False
    assert [row["problem"] for row in found["files"] if row["state"] != "right"] == [
        "holds 4 bytes where 31,376 are expected"
    ]
    status, out, err = run(f"data verify --data-dir {tmp_path}")
    assert (status, err) == (1, "")
    for word in ("right", "damaged", "missing", f"mnist: run `batchlens data fetch mnist --data-dir {tmp_path}`"):
        assert word in out
    assert "digits: run" not in out


def test_fetch_command(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mnist: dict[str, bytes], server: Server
) -> None:
    server.offer(zipped(mnist))
    monkeypatch.setitem(catalogue.SOURCES, "mnist", replace(SOURCES["mnist"], url=server.url))
    found = document(run(f"data fetch mnist --data-dir {tmp_path} --json"))
    assert found["folder"] == str(tmp_path / "mnist")
    assert {row["file"]: row["state"] for row in found["files"]} == dict.fromkeys(mnist, "fetched")
    status, out, err = run(f"data fetch mnist --data-dir {tmp_path}")
    assert (status, err) == (0, "")
    assert "present" in out
    server.pages.clear()
    (tmp_path / "mnist" / IMAGES).unlink()
    status, out, err = run(f"data fetch mnist --data-dir {tmp_path} --json")
    assert (status, out) == (1, "")
    assert err.startswith(f"batchlens: cannot fetch {server.url}/{IMAGES}.gz: HTTP 404")
    assert err.count("\n") == 1


@pytest.mark.parametrize("command", ["fetch", "verify"])
def test_unknown_name_on_the_command_line(run: Run, command: str) -> None:
    expected = "batchlens: NAME must be one of mnist, fashion_mnist, cifar10, lm1b, digits, got svhn.\n"
    assert run(f"data {command} svhn") == (2, "", expected)


@pytest.mark.parametrize("command", ["list", "fetch", "verify"])
def test_help_has_an_example(run: Run, command: str) -> None:
    status, out, err = run(f"data {command} --help")
    assert (status, err) == (0, "")
    assert f"batchlens data {command}" in out.split("Options:")[0].split("Example")[1]
    assert "--json" in out


def test_list_and_verify_need_no_extra(tmp_path: Path) -> None:
    program = f"""
import sys
for module in ("torch", "pooch", "sentencepiece"):
    sys.modules[module] = None
from click.testing import CliRunner
from batchlens.cli import cli
assert CliRunner().invoke(cli, ["data", "list", "--json"]).exit_code == 0
assert CliRunner().invoke(cli, ["data", "verify", "digits", "--json"]).exit_code == 0
assert CliRunner().invoke(cli, ["data", "verify", "--data-dir", {str(tmp_path)!r}]).exit_code == 1
"""
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.skipif(os.name == "nt", reason="signals")
def test_ctrl_c_leaves_nothing(tmp_path: Path, mnist: dict[str, bytes], server: Server) -> None:
    """A real interrupt in the middle of a transfer that never ends."""
    program = f"""
import sys
from dataclasses import replace
from batchlens import cli
from batchlens.training.data import _catalogue as catalogue
from batchlens.training.data import _sources as sources
from batchlens.training.data import fetching
catalogue.SOURCES["mnist"] = replace(catalogue.SOURCES["mnist"], url={server.url!r})
sys.argv = ["batchlens", "data", "fetch", "mnist", "--data-dir", {str(tmp_path)!r}]
cli.main()
"""
    server.offer(zipped(mnist))
    server.stall = True
    command = [sys.executable, "-c", program]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, preexec_fn=heed_interrupts)
    folder = tmp_path / "mnist"
    patience = time.monotonic() + 20
    while not (folder.is_dir() and list(folder.glob(".fetch-*/download"))) and time.monotonic() < patience:
        time.sleep(0.02)
    time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=20)
    assert (process.returncode, err) == (130, "\nbatchlens: interrupted.\n")
    assert everything(folder) == []
