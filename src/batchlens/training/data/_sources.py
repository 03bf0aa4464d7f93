"""The official files behind every data set: where they lie, and whether they contain what they must.

Nothing here needs torch. A file counts as right when its decompressed content has the official SHA-256, however it lies
in the folder: as it is, as .gz, or for CIFAR-10 inside the official archive.
"""

import gzip
import hashlib
import os
import re
import shlex
import tarfile
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, NamedTuple

from batchlens._checks import require_choice
from batchlens.errors import BatchlensError
from batchlens.training.data._catalogue import NAMES, SOURCES, Content, Source

State = Literal["right", "missing", "damaged", "unchecked"]
# What reading a compressed file raises when it is cut short or altered.
BROKEN = (EOFError, gzip.BadGzipFile, zlib.error, tarfile.TarError)


class Found(NamedTuple):
    """An official file as it lies in the folder; `problem` completes the sentence "PATH ..."."""

    file: str
    state: State
    path: Path
    problem: str
    data: bytes


# Shard 0 of the training shards is the held-out text itself, which is also cut into the held-out shards.
_SHARD = re.compile(r"news\.en(\.heldout-\d{5}-of-\d{5}|-(?!00000-)\d{5}-of-\d{5})")
SUMS = "SHA256SUMS"
# Bytes: of an LM1B shard, whose size the catalogue does not know, and of all; and of what an archive adds to its files.
_LARGEST_SHARD, _LARGEST_SHARDS, _SLACK = 1 << 28, 1 << 34, 1 << 20


def find_folder(data_dir: Path | str | None = None) -> Path:
    """The folder that holds every data set: `data_dir`, else $BATCHLENS_DATA, else ~/.cache/batchlens."""
    return Path(data_dir or os.environ.get("BATCHLENS_DATA") or "~/.cache/batchlens").expanduser()


def find_dataset_folder(name: str, data_dir: Path | str | None = None) -> Path:
    """The folder of one data set; for digits the one that is part of batchlens."""
    require_choice("name", name, NAMES)
    if name == "digits":
        return Path(__file__).parent
    return find_folder(data_dir) / name


def remedy(name: str, data_dir: Path | str | None = None) -> str:
    """The command that brings a data set back."""
    if name == "digits":
        return "pip install --force-reinstall batchlens"
    return f"batchlens data fetch {name}" + (f" --data-dir {shlex.quote(str(data_dir))}" if data_dir else "")


def is_present(name: str, data_dir: Path | str | None = None) -> bool:
    """Whether every file of the data set lies in the folder, whatever it contains."""
    source, folder = SOURCES[require_choice("name", name, NAMES)], find_dataset_folder(name, data_dir)
    if name == "lm1b":
        return bool(list_shards(data_dir))
    packed = source.archive is not None and (folder / source.archive.name).is_file()
    return packed or all(any(place.is_file() for place in _places(source, folder, file)) for file in source.files)


def read_files(name: str, wanted: Iterable[str], data_dir: Path | str | None = None) -> list[bytes]:
    """The content of official files, decompressed and checked.

    Raises BatchlensError, naming the file and the command that mends it, where one is missing or not the official one.
    """
    found = _find(name, list(wanted), data_dir)
    for file in found:
        _require_right(name, file, data_dir)
    return [file.data for file in found]


def read_shard(path: Path, data_dir: Path | str | None = None) -> bytes:
    """The text of one LM1B shard, decompressed, and checked where its checksum is known."""
    file = path.name.removesuffix(".gz")
    found = _look_at(path, file, _known_shards(data_dir).get(file))
    _require_right("lm1b", found, data_dir)
    return found.data


def verify(name: str, data_dir: Path | str | None = None) -> list[Found]:
    """How every official file of a data set lies in the folder: right, missing, damaged or unchecked.

    Unchecked is an LM1B shard that `fetch` did not bring: its checksum is not known.
    """
    source = SOURCES[require_choice("name", name, NAMES)]
    if name != "lm1b":
        return [file._replace(data=b"") for file in _find(name, list(source.files), data_dir)]
    shards, folder, known = list_shards(data_dir), find_dataset_folder(name, data_dir), _known_shards(data_dir)
    # What `fetch` has brought is to be there; of other shards, any number will do.
    expected = sorted({*shards, *read_sums(data_dir)})
    found = [_look_at(shards.get(file, folder / file), file, known.get(file))._replace(data=b"") for file in expected]
    return found or [_no_shards(data_dir)]


def read_sums(data_dir: Path | str | None = None) -> dict[str, Content]:
    """The LM1B shards that `fetch` has brought, with their checksums; empty where it has not."""
    try:
        text = (find_dataset_folder("lm1b", data_dir) / SUMS).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return {}
    lines = [line.partition("  ") for line in text.splitlines()]
    return {file: Content(None, sha256) for sha256, _, file in lines if is_shard(file)}


def list_shards(data_dir: Path | str | None = None) -> dict[str, Path]:
    """The LM1B shards in the folder, by official name and in its order: training before held-out."""
    folder = find_dataset_folder("lm1b", data_dir)
    archive = SOURCES["lm1b"].archive
    assert archive is not None
    shards: dict[str, Path] = {}
    for place in (folder, *(folder / inner for inner in archive.folders)):
        for path in sorted(place.glob("news.en*")):
            name = path.name.removesuffix(".gz")
            if is_shard(name) and path.is_file():
                shards.setdefault(name, path)  # the shorter name, which is not compressed, comes first
    return dict(sorted(shards.items()))


def is_shard(name: str) -> bool:
    """Whether a file of this name is an official shard."""
    return _SHARD.fullmatch(name) is not None


def require_shards(data_dir: Path | str | None = None) -> dict[str, Path]:
    """As `list_shards`, and BatchlensError where there is none."""
    shards = list_shards(data_dir)
    if not shards:
        _require_right("lm1b", _no_shards(data_dir), data_dir)
    return shards


def what_is_wrong(data: bytes, content: Content) -> str:
    """In words, what keeps `data`, as `read_plain` gives it, from being the official content; empty if nothing does."""
    if content.size is not None and len(data) > content.size:
        return f"holds more than the {content.size:,} bytes that are expected"
    if content.size is not None and len(data) != content.size:
        return f"holds {len(data):,} bytes where {content.size:,} are expected"
    if (sha256 := hashlib.sha256(data).hexdigest()) != content.sha256:
        return f"has SHA-256 {sha256} where {content.sha256} is expected"
    return ""


def read_plain(path: Path, content: Content | None) -> bytes:
    """The file's content, decompressed where it is gzip; one byte more than expected at the most, whatever it holds."""
    most = largest(content) + 1
    with path.open("rb") as file:
        packed = file.read(2) == b"\x1f\x8b"
        file.seek(0)
        if not packed:
            return file.read(most)
        with gzip.GzipFile(fileobj=file) as unpacked:
            return unpacked.read(most)


def largest(content: Content | None) -> int:
    """The bytes that a file has at the most."""
    return _LARGEST_SHARD if content is None or content.size is None else content.size


@contextmanager
def open_archive(source: Source, path: Path) -> Iterator[tarfile.TarFile]:
    """Read once from its beginning; one that holds far more than the files expected counts as altered."""
    most = _SLACK + sum(map(largest, source.files.values()))
    if any(map(is_shard, source.files)):
        most = _LARGEST_SHARDS
    with gzip.open(path) as packed:
        stream = _Bounded(packed, most)
        with tarfile.open(fileobj=stream, mode="r|") as archive:  # type: ignore[call-overload]  # it only reads
            yield archive


class _Bounded:
    """A stream that breaks off after so many bytes."""

    def __init__(self, stream: gzip.GzipFile, most: int) -> None:
        self._stream, self._left = stream, most

    def read(self, count: int) -> bytes:
        data = self._stream.read(count)
        self._left -= len(data)
        if self._left < 0:
            raise tarfile.ReadError
        return data


def _places(source: Source, folder: Path, file: str) -> Iterator[Path]:
    for inner in ("", *(source.archive.folders if source.archive else ())):
        yield folder / inner / file
        yield folder / inner / f"{file}.gz"


def _find(name: str, wanted: list[str], data_dir: Path | str | None) -> list[Found]:
    source, folder = SOURCES[require_choice("name", name, NAMES)], find_dataset_folder(name, data_dir)
    found = [_look(source, folder, file) for file in wanted]
    if source.archive is None or all(file.state == "right" for file in found):
        return found
    path = folder / source.archive.name
    if not path.is_file():
        return found
    packed = _look_inside(source, path, [file.file for file in found if file.state != "right"])
    return [packed.get(file.file, file) for file in found]


def _look(source: Source, folder: Path, file: str) -> Found:
    """The first place that holds the official content, else the first that holds anything."""
    damaged = None
    for path in _places(source, folder, file):
        if path.is_file():
            found = _look_at(path, file, source.files[file])
            if found.state == "right":
                return found
            damaged = damaged or found
    return damaged or _missing(folder / file, file, source.files[file])


def _missing(path: Path, file: str, content: Content | None) -> Found:
    size, sha256 = content or (None, "not known")
    expected = f"SHA-256 {sha256}" if size is None else f"{size:,} bytes, SHA-256 {sha256}"
    return Found(file, "missing", path, f"is missing ({expected})", b"")


def _look_at(path: Path, file: str, content: Content | None) -> Found:
    try:
        data = read_plain(path, content)
    except BROKEN:
        return Found(file, "damaged", path, "is cut short or altered: it cannot be decompressed", b"")
    except FileNotFoundError:
        return _missing(path, file, content)
    except OSError as error:
        return Found(file, "damaged", path, f"cannot be read: {error.strerror}", b"")
    if content is None:
        if len(data) > _LARGEST_SHARD:
            return Found(file, "damaged", path, f"holds more than {_LARGEST_SHARD:,} bytes", b"")
        return Found(file, "unchecked", path, "", data)
    problem = what_is_wrong(data, content)
    return Found(file, "damaged" if problem else "right", path, problem, data)


def _look_inside(source: Source, path: Path, wanted: list[str]) -> dict[str, Found]:
    """What the archive at `path` holds of the files wanted, in one pass."""
    assert source.archive is not None
    found: dict[str, Found] = {}
    try:
        with open_archive(source, path) as archive:
            for member in archive:
                inner, _, file = member.name.rpartition("/")
                if file in wanted and inner in source.archive.folders:
                    data = read_member(archive, member, largest(source.files[file]) + 1)
                    problem = what_is_wrong(data, source.files[file]) if member.isreg() else f"holds a link as {file}"
                    found[file] = Found(file, "damaged" if problem else "right", path, problem, data)
    except BROKEN:
        problem = "is cut short or altered: it cannot be unpacked"
    except OSError as error:
        problem = f"cannot be read: {error.strerror}"
    else:
        problem = "lacks {file}"
    missing = [file for file in wanted if file not in found]
    return found | {file: Found(file, "damaged", path, problem.format(file=file), b"") for file in missing}


def read_member(archive: tarfile.TarFile, member: tarfile.TarInfo, most: int) -> bytes:
    """What a file in an archive holds; nothing where it is a link, a folder or a device."""
    stream = archive.extractfile(member) if member.isreg() else None
    return b"" if stream is None else stream.read(most)


def _known_shards(data_dir: Path | str | None) -> dict[str, Content]:
    return read_sums(data_dir) | dict(SOURCES["lm1b"].files)


def _no_shards(data_dir: Path | str | None) -> Found:
    path = find_dataset_folder("lm1b", data_dir) / "news.en*"
    return Found(path.name, "missing", path, "is missing: LM1B needs two of its shards at least", b"")


def _require_right(name: str, found: Found, data_dir: Path | str | None) -> None:
    if found.problem:
        raise BatchlensError(f"{found.path} {found.problem}; run `{remedy(name, data_dir)}`.")
