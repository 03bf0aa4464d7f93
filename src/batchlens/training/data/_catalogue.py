"""The official files of every data set: where they come from, and what they contain."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple


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
