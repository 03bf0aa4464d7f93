"""Archives and downloads that hold more than they should, or point elsewhere, are refused in one sentence."""

import gzip
import io
import tarfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from batchlens.errors import BatchlensError
from batchlens.training.data import _sources as sources
from batchlens.training.data import fetching
from batchlens.training.data._catalogue import SOURCES, Content
from batchlens.training.data._sources import read_plain, verify
from batchlens.training.data.fetching import fetch
from tests.training.tiny_sources import Server, cifar_files, idx_files, serve, shrink, write

BOMB = gzip.compress(bytes(50_000_000))
ARCHIVE = "cifar-10-binary.tar.gz"
FIRST = "cifar-10-batches-bin/data_batch_1.bin"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with serve() as running:
        yield running


def archive_of(member: tarfile.TarInfo, content: bytes = b"") -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        archive.addfile(member, io.BytesIO(content))
    return packed.getvalue()


def link(kind: bytes) -> bytes:
    member = tarfile.TarInfo(FIRST)
    member.type, member.linkname = kind, "../../../nowhere"
    return archive_of(member)


def large(size: int) -> bytes:
    member = tarfile.TarInfo(FIRST)
    member.size = size
    return archive_of(member, bytes(size))


def test_gzip_is_unpacked_no_further_than_expected(tmp_path: Path) -> None:
    (tmp_path / "bomb").write_bytes(BOMB)
    assert len(read_plain(tmp_path / "bomb", Content(1000, ""))) == 1001


def test_file_that_unpacks_to_more_is_damaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shrink(monkeypatch, "mnist", idx_files())
    write(tmp_path / "mnist", {"train-images-idx3-ubyte.gz": BOMB})
    found = {file.file: file for file in verify("mnist", tmp_path)}["train-images-idx3-ubyte"]
    assert (found.state, found.problem) == ("damaged", "holds more than the 31,376 bytes that are expected")


def test_shard_of_unknown_size_has_an_end_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "_LARGEST_SHARD", 1000)
    write(tmp_path / "lm1b", {"news.en-00001-of-00100.gz": BOMB})
    assert [file.problem for file in verify("lm1b", tmp_path)] == ["holds more than 1,000 bytes"]


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE])
def test_link_in_an_archive_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server: Server, kind: bytes
) -> None:
    packed = link(kind)
    shrink(monkeypatch, "cifar10", cifar_files(), packed)
    server.offer({ARCHIVE: packed})
    with pytest.raises(BatchlensError, match=r"data_batch_1\.bin in it is a link, and nothing to unpack"):
        fetch("cifar10", tmp_path, url=server.url)
    write(tmp_path / "cifar10", {ARCHIVE: packed})
    assert verify("cifar10", tmp_path)[0].problem == "holds a link as data_batch_1.bin"


def test_member_that_is_too_large_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server: Server) -> None:
    packed = large(100_000)
    shrink(monkeypatch, "cifar10", cifar_files(), packed)
    server.offer({ARCHIVE: packed})
    with pytest.raises(BatchlensError, match=r"is a file of 100,000 bytes, and nothing to unpack"):
        fetch("cifar10", tmp_path, url=server.url)
    write(tmp_path / "cifar10", {ARCHIVE: packed})
    assert verify("cifar10", tmp_path)[0].problem == "holds more than the 30,730 bytes that are expected"


def test_archive_that_unpacks_to_far_more_counts_as_altered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shrink(monkeypatch, "cifar10", cifar_files())
    write(tmp_path / "cifar10", {ARCHIVE: large(10_000_000)})
    assert {file.problem for file in verify("cifar10", tmp_path)[1:]} == {
        "is cut short or altered: it cannot be unpacked"
    }


def test_download_ends_where_the_catalogue_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server: Server
) -> None:
    shrink(monkeypatch, "mnist", idx_files())
    monkeypatch.setitem(SOURCES, "mnist", replace(SOURCES["mnist"], download=1000))
    monkeypatch.setattr(fetching, "_CHUNK", 1000)
    monkeypatch.setattr(fetching, "_SLACK", 4000)
    server.offer({"train-images-idx3-ubyte.gz": bytes(20_000)})
    with pytest.raises(BatchlensError, match="what came is larger than the 1,000 bytes expected"):
        fetch("mnist", tmp_path, url=server.url)
    assert list((tmp_path / "mnist").iterdir()) == []
