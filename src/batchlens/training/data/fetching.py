"""Bringing data sets from their official places into the folder.

A file is gathered in a temporary folder inside the data set's own, checked there, and then renamed: what lies under a
final name is whole, whatever interrupts. Nothing here needs torch.
"""

import hashlib
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Literal, NamedTuple

from batchlens._checks import require_choice
from batchlens._extras import import_extra
from batchlens.errors import BatchlensError
from batchlens.training.data._catalogue import NAMES, SOURCES, Content, Source
from batchlens.training.data._sources import (
    BROKEN,
    SUMS,
    find_dataset_folder,
    is_shard,
    largest,
    open_archive,
    read_plain,
    read_sums,
    remedy,
    verify,
    what_is_wrong,
)

__all__ = ["Fetched", "fetch"]

_CHUNK = 1 << 18
# Bytes by which a download may seem larger than it is: chunks are counted as full.
_SLACK = 4 * _CHUNK
# Told which file is coming, how many bytes of it have come, and how many there are, where that is known.
_Progress = Callable[[str, int, int | None], None]


class Fetched(NamedTuple):
    """A file that is right now: because it was, or because it was brought."""

    file: str
    state: Literal["present", "fetched"]


def fetch(
    name: str, data_dir: Path | str | None = None, *, url: str | None = None, progress: _Progress | None = None
) -> list[Fetched]:
    """Brings what is missing or damaged of a data set into the folder, and leaves alone what is right.

    Files come from the official place or, where `url` is given, from there under the same names; Fashion-MNIST is
    copied from Debian's package where that is installed. LM1B is brought whole. An official archive that already lies
    in the folder is unpacked, not downloaded again.

    Raises BatchlensError, with what to do, where a place cannot be reached or hands out something else.
    """
    source = SOURCES[require_choice("name", name, NAMES)]
    states = {found.file: found.state for found in verify(name, data_dir)}
    present = [file for file, state in states.items() if state == "right"]
    wanted = [file for file, state in states.items() if state in ("missing", "damaged")]
    if name == "digits" and wanted:
        raise BatchlensError(f"digits is part of batchlens and damaged; run `{remedy(name)}`.")
    fetched: list[str] = []
    if wanted or (name == "lm1b" and not read_sums(data_dir)):
        folder = find_dataset_folder(name, data_dir)
        job = _Job(source, folder, (url or source.url).removesuffix("/"), remedy(name, data_dir), progress)
        with _gathering(folder) as place:
            bring = _bring_files(job, place, wanted) if source.archive is None else _unpack(job, place, present)
            for file in bring:
                os.replace(place / file, folder / file)
                fetched.append(file)
    states_now: dict[str, Literal["present", "fetched"]] = dict.fromkeys(present, "present")
    states_now.update(dict.fromkeys((file for file in fetched if file != SUMS), "fetched"))
    return [Fetched(file, state) for file, state in sorted(states_now.items())]


class _Job(NamedTuple):
    source: Source
    folder: Path
    url: str
    again: str
    progress: _Progress | None = None

    def error(self, url: str, reason: str) -> BatchlensError:
        return BatchlensError(
            f"cannot fetch {url}: {reason}; run `{self.again}` once that is mended, "
            f"or put the official file into {self.folder} yourself."
        )


@contextmanager
def _gathering(folder: Path) -> Iterator[Path]:
    """A folder next to the final files, gone at the end with all that is in it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        place = tempfile.TemporaryDirectory(dir=folder, prefix=".fetch-")
    except OSError as error:
        raise BatchlensError(
            f"cannot write to {folder}: {error.strerror}; choose another folder with --data-dir or $BATCHLENS_DATA."
        ) from None
    with place as name:
        yield Path(name)


def _bring_files(job: _Job, place: Path, wanted: list[str]) -> Iterator[str]:
    for file in wanted:
        packaged = None if job.source.packaged is None else job.source.packaged / f"{file}.gz"
        data = b""
        if packaged is not None and packaged.is_file():
            data = _read_or_nothing(packaged, job.source.files[file])
        if what_is_wrong(data, job.source.files[file]):
            url = f"{job.url}/{file}.gz"
            _download(job, url, place / "download")
            data = _read_or_nothing(place / "download", job.source.files[file])
            if problem := what_is_wrong(data, job.source.files[file]):
                raise job.error(url, f"what came {problem}")
        with _writing(job):
            (place / file).write_bytes(data)
        yield file


def _unpack(job: _Job, place: Path, present: list[str]) -> Iterator[str]:
    """Brings what the official archive holds and is not present; for LM1B also a record of every shard's checksum."""
    archive, files = job.source.archive, job.source.files
    assert archive is not None
    path, url = job.folder / archive.name, f"{job.url}/{archive.name}"
    if not (path.is_file() and _sha256(path) == archive.sha256):
        path = place / "download"
        _download(job, url, path)
        if (sha256 := _sha256(path)) != archive.sha256:
            raise job.error(url, f"what came has SHA-256 {sha256} where {archive.sha256} is expected")
    shards = is_shard(next(iter(files)))
    sums = {}
    try:
        with open_archive(job.source, path) as members:
            for member in members:
                inner, _, file = member.name.rpartition("/")
                # The name is one of those known, so that nothing in the archive can say where to write.
                if inner not in archive.folders or not (is_shard(file) if shards else file in files):
                    continue
                if not member.isreg() or member.size > largest(files.get(file)):
                    what = f"a file of {member.size:,} bytes" if member.isreg() else "a link"
                    raise job.error(url, f"{file} in it is {what}, and nothing to unpack")
                stream = members.extractfile(member)
                assert stream is not None
                with _writing(job):
                    sums[file] = _copy(stream, place / file)
                if file in files and sums[file] != files[file].sha256:
                    raise job.error(
                        url, f"{file} in it has SHA-256 {sums[file]} where {files[file].sha256} is expected"
                    )
                if file not in present:
                    yield file
    except BROKEN:
        raise job.error(url, "what came cannot be unpacked") from None
    if lacking := [file for file in files if file not in sums]:
        raise job.error(url, f"it lacks {', '.join(lacking)}")
    if shards:
        with _writing(job):
            (place / SUMS).write_text("".join(f"{sha256}  {file}\n" for file, sha256 in sorted(sums.items())))
        yield SUMS


@contextmanager
def _writing(job: _Job) -> Iterator[None]:
    try:
        yield
    except BROKEN:  # some of which are OSErrors
        raise
    except OSError as error:
        raise BatchlensError(
            f"cannot write to {job.folder}: {error.strerror}; make room and run `{job.again}`."
        ) from None


def _read_or_nothing(path: Path, content: Content) -> bytes:
    try:
        return read_plain(path, content)
    except (*BROKEN, OSError):
        return b""


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _copy(stream: IO[bytes], path: Path) -> str:
    """Writes the stream into a file and returns its SHA-256."""
    digest = hashlib.sha256()
    with path.open("wb") as file:
        while chunk := stream.read(_CHUNK):
            digest.update(chunk)
            file.write(chunk)
    return digest.hexdigest()


def _download(job: _Job, url: str, path: Path) -> None:
    pooch, requests = import_extra("pooch"), import_extra("requests")
    try:
        bar = _Bar(url.rpartition("/")[2], job.progress or (lambda *_: None), job.source.download + _SLACK)
        # Compressed files come as they are, not unpacked on the way.
        headers = {"Accept-Encoding": "identity"}
        pooch.HTTPDownloader(progressbar=bar, chunk_size=_CHUNK, headers=headers)(url, str(path), None)
    except _TooMuchError:
        raise job.error(url, f"what came is larger than the {job.source.download:,} bytes expected") from None
    except requests.HTTPError as error:
        error.response.close()
        raise job.error(url, f"HTTP {error.response.status_code} {error.response.reason}") from None
    except requests.Timeout:
        raise job.error(url, "no answer in time") from None
    except requests.ConnectionError:
        raise job.error(url, "no connection") from None
    except (requests.RequestException, ValueError):  # a length that is no number
        raise job.error(url, "the transfer broke off") from None
    except OSError as error:
        raise BatchlensError(
            f"cannot write to {job.folder}: {error.strerror}; make room and run `{job.again}`."
        ) from None


class _TooMuchError(Exception):
    """A download that goes on beyond what the catalogue says."""


class _Bar:
    """What pooch tells how far it is: it sets `total`, calls `update` for every chunk, then `reset` and `close`."""

    def __init__(self, file: str, progress: _Progress, most: int) -> None:
        self.file, self.progress, self.most = file, progress, most
        self.total, self.done = 0, 0

    def update(self, count: int) -> None:
        self.done += count
        if self.done > self.most:
            raise _TooMuchError
        self.progress(self.file, self.done, self.total or None)

    def reset(self) -> None:
        self.done = 0

    def close(self) -> None:
        pass
