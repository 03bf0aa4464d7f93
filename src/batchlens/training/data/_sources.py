"""The official files behind every data set: where they lie, what they must contain, and whether they do.

Nothing here needs torch. A file counts as right when its decompressed content has the official SHA-256, however it lies
in the folder: as it is, as .gz, or for CIFAR-10 inside the official archive.
"""

import gzip
import hashlib
import importlib
import os
import re
import shlex
import tarfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

from batchlens.checks import require_choice
from batchlens.errors import BatchlensError

State = Literal["right", "missing", "damaged", "unchecked"]
# What reading a compressed file raises when it is cut short or altered.
BROKEN = (EOFError, gzip.BadGzipFile, zlib.error, tarfile.TarError)


class Content(NamedTuple):
    """What an official file holds once decompressed."""

    size: int | None
    sha256: str


@dataclass(frozen=True)
class Archive:
    """One .tar.gz that holds every file of a data set; `folders` are those inside it that hold them."""

    name: str
    sha256: str
    folders: tuple[str, ...]


@dataclass(frozen=True)
class Source:
    """Where a data set comes from.

    `url` ends in / and is completed by a file's name and .gz, or by the archive's name. `download` is in bytes.
    """

    title: str
    examples: str
    download: int
    licence: str
    url: str
    files: Mapping[str, Content]
    archive: Archive | None = None
    packaged: Path | None = None


class Found(NamedTuple):
    """An official file as it lies in the folder; `problem` completes the sentence "PATH ..."."""

    file: str
    state: State
    path: Path
    problem: str
    data: bytes


def _idx_files(*sums: str) -> dict[str, Content]:
    names = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")
    sizes = (47_040_016, 60_008, 7_840_016, 10_008)
    return {name: Content(size, sha256) for name, size, sha256 in zip(names, sizes, sums, strict=True)}


_LM1B = "1-billion-word-language-modeling-benchmark-r13output"

SOURCES: dict[str, Source] = {
    "mnist": Source(
        title="handwritten digits, 28x28 grey",
        examples="55,000 + 5,000",
        download=11_594_722,
        licence="CC BY-SA 3.0",
        url="https://ossci-datasets.s3.amazonaws.com/mnist/",
        files=_idx_files(
            "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
            "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
            "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
            "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
        ),
    ),
    "fashion_mnist": Source(
        title="clothing, 28x28 grey",
        examples="55,000 + 5,000",
        download=30_878_645,
        licence="MIT",
        url="http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
        files=_idx_files(
            "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
            "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
            "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
            "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
        ),
        packaged=Path("/usr/share/datasets/fashion-mnist"),  # Debian's dataset-fashion-mnist
    ),
    "cifar10": Source(
        title="animals and vehicles, 32x32 colour",
        examples="45,000 + 5,000",
        download=170_052_171,
        licence="none stated",
        url="https://www.cs.toronto.edu/~kriz/",
        files={
            name: Content(30_730_000, sha256)
            for name, sha256 in {
                "data_batch_1.bin": "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5",
                "data_batch_2.bin": "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed",
                "data_batch_3.bin": "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67",
                "data_batch_4.bin": "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48",
                "data_batch_5.bin": "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add",
                "test_batch.bin": "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b",
            }.items()
        },
        archive=Archive(
            "cifar-10-binary.tar.gz",
            "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
            ("cifar-10-batches-bin",),
        ),
    ),
    "lm1b": Source(
        title="news sentences, shuffled",
        examples="30 million + 300,000 sentences",
        download=1_792_209_805,
        licence="research use",
        url="http://www.statmt.org/lm-benchmark/",
        # Shards known beforehand; `fetch` records the others from the archive, whose own checksum is known.
        files={
            "news.en.heldout-00010-of-00050": Content(
                839_374, "13d5e6e54f5a1f12549f997029954781df3fb87b84e628f4ea802ca08e852399"
            ),
            "news.en.heldout-00011-of-00050": Content(
                834_233, "1f49c581ba4268e635b9a085fa362a2df22da13cdafdeb8b598f077ada0d56c3"
            ),
            "news.en.heldout-00012-of-00050": Content(
                812_401, "6737d8cbc8aab8c4265a711821c9dbc361d489557b44e0107eeb17ee8519b473"
            ),
            "news.en.heldout-00013-of-00050": Content(
                837_746, "5b1517339e20809895e1d5ead436385c87ae2283ff89193791875edf7ac318b0"
            ),
        },
        archive=Archive(
            f"{_LM1B}.tar.gz",
            "01ba60381110baf7f189dfd2b8374de371e8c9a340835793f190bdae9e90a34e",
            (f"{_LM1B}/training-monolingual.tokenized.shuffled", f"{_LM1B}/heldout-monolingual.tokenized.shuffled"),
        ),
    ),
    "digits": Source(
        title="handwritten digits, 8x8 grey",
        examples="1,500 + 297",
        download=0,
        licence="CC BY 4.0",
        url="https://doi.org/10.24432/C50P49",
        files={
            "digits.csv": Content(264_712, "6ebb3d2fee246a4e99363262ddf8a00a3c41bee6014c373ed9d9216ba7f651b8"),
        },
    ),
}
NAMES = tuple(SOURCES)
# Shard 0 of the training shards is the held-out text itself, which is also cut into the held-out shards.
_SHARD = re.compile(r"news\.en(\.heldout-\d{5}-of-\d{5}|-(?!00000-)\d{5}-of-\d{5})")
SUMS = "SHA256SUMS"


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


def import_extra(module: str) -> Any:
    """The module, if the extra that brings it is installed."""
    try:
        return importlib.import_module(module)
    except ImportError:
        raise BatchlensError(f'{module} is not installed: run `pip install "batchlens[train]"`.') from None


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
    """In words, what keeps `data` from being the official content; empty where nothing does."""
    if content.size is not None and len(data) != content.size:
        return f"holds {len(data):,} bytes where {content.size:,} are expected"
    if (sha256 := hashlib.sha256(data).hexdigest()) != content.sha256:
        return f"has SHA-256 {sha256} where {content.sha256} is expected"
    return ""


def read_plain(path: Path) -> bytes:
    """The file's content, decompressed where it is gzip."""
    data = path.read_bytes()
    return gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data


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
        data = read_plain(path)
    except BROKEN:
        return Found(file, "damaged", path, "is cut short or altered: it cannot be decompressed", b"")
    except FileNotFoundError:
        return _missing(path, file, content)
    except OSError as error:
        return Found(file, "damaged", path, f"cannot be read: {error.strerror}", b"")
    if content is None:
        return Found(file, "unchecked", path, "", data)
    problem = what_is_wrong(data, content)
    return Found(file, "damaged" if problem else "right", path, problem, data)


def _look_inside(source: Source, path: Path, wanted: list[str]) -> dict[str, Found]:
    """What the archive at `path` holds of the files wanted, in one pass."""
    assert source.archive is not None
    found: dict[str, Found] = {}
    try:
        with tarfile.open(path) as archive:
            for member in archive:
                inner, _, file = member.name.rpartition("/")
                if file in wanted and inner in source.archive.folders and (stream := archive.extractfile(member)):
                    data = stream.read()
                    problem = what_is_wrong(data, source.files[file])
                    found[file] = Found(file, "damaged" if problem else "right", path, problem, data)
    except BROKEN:
        problem = "is cut short or altered: it cannot be unpacked"
    except OSError as error:
        problem = f"cannot be read: {error.strerror}"
    else:
        problem = "lacks {file}"
    missing = [file for file in wanted if file not in found]
    return found | {file: Found(file, "damaged", path, problem.format(file=file), b"") for file in missing}


def _known_shards(data_dir: Path | str | None) -> dict[str, Content]:
    return read_sums(data_dir) | dict(SOURCES["lm1b"].files)


def _no_shards(data_dir: Path | str | None) -> Found:
    path = find_dataset_folder("lm1b", data_dir) / "news.en*"
    return Found(path.name, "missing", path, "is missing: LM1B needs two of its shards at least", b"")


def _require_right(name: str, found: Found, data_dir: Path | str | None) -> None:
    if found.problem:
        raise BatchlensError(f"{found.path} {found.problem}; run `{remedy(name, data_dir)}`.")
