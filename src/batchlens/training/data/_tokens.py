"""LM1B as one long row of tokens: sub-words learned from the training shards, sentences joined by an end mark.

The sub-words (byte-pair encoding) and the tokens are kept next to the shards, under names that say the vocabulary and
which shards they come from. Nothing here needs torch.
"""

import hashlib
import io
import os
import re
import tempfile
import warnings
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from batchlens._checks import require_whole
from batchlens._extras import import_extra
from batchlens.errors import BatchlensError
from batchlens.training.data._sources import find_dataset_folder, read_shard, remedy, require_shards

Tokens = npt.NDArray[np.int32]

UNKNOWN, END = 0, 1
# More sentences than these would take longer and find about the same sub-words.
LEARN_FROM = 1_000_000
_AT_ONCE = 50_000
# Part of the names of what is kept: to be raised when the same shards would give other tokens.
_VERSION = 1


class Corpus(NamedTuple):
    """Which shards train and which validate."""

    train: list[Path]
    validation: list[Path]


def split_shards(data_dir: Path | str | None = None) -> Corpus:
    """The LM1B shards to train on and those to validate on.

    Held-out shards validate where training shards lie in the folder; where only held-out shards do, the one of the
    highest number validates and the others train.
    """
    shards = require_shards(data_dir)
    train = [path for name, path in shards.items() if "heldout" not in name]
    held_out = [path for name, path in shards.items() if "heldout" in name]
    if not train:
        train, held_out = held_out[:-1], held_out[-1:]
    if not train or not held_out:
        lacking = "held-out shard to validate on" if train else "second shard to train on"
        folder = find_dataset_folder("lm1b", data_dir)
        raise BatchlensError(f"{folder} holds no {lacking}; run `{remedy('lm1b', data_dir)}`.")
    return Corpus(train, held_out)


def read_tokens(vocabulary: int, data_dir: Path | str | None = None) -> tuple[Tokens, Tokens]:
    """The training and the validation text as tokens below `vocabulary`, every sentence followed by `END`.

    The first call learns the sub-words and keeps the tokens; later ones map the files kept into memory.
    """
    vocabulary = require_whole("vocabulary", vocabulary, 2, 2**31 - 1)
    corpus = split_shards(data_dir)
    folder = find_dataset_folder("lm1b", data_dir)
    stem = f"tokens-{vocabulary}-{_fingerprint(corpus)}"
    kept = [folder / f"{stem}.{part}.int32" for part in Corpus._fields]
    if not all(_is_whole(path) for path in kept):
        if not os.access(folder, os.W_OK):
            warnings.warn(f"{folder} cannot be written to: LM1B is tokenised anew on every load.", stacklevel=2)
            with tempfile.TemporaryDirectory() as place:
                made = _make(corpus, vocabulary, data_dir, Path(place))
                return np.fromfile(made.train, "<i4"), np.fromfile(made.validation, "<i4")
        # Whole files only ever get their final names, whatever interrupts.
        with tempfile.TemporaryDirectory(dir=folder, prefix=".tokens-") as place:
            made = _make(corpus, vocabulary, data_dir, Path(place))
            os.replace(made.model, folder / f"{stem}.model")
            os.replace(made.train, kept[0])
            os.replace(made.validation, kept[1])
    train, validation = (np.memmap(path, "<i4", mode="c") for path in kept)
    return train, validation


def learn(sentences: Iterator[str], vocabulary: int) -> bytes:
    """A sentencepiece model of at most `vocabulary` sub-words; the same one for the same sentences."""
    model = io.BytesIO()
    try:
        import_extra("sentencepiece").SentencePieceTrainer.train(
            sentence_iterator=sentences,
            model_writer=model,
            model_type="bpe",
            vocab_size=vocabulary,
            hard_vocab_limit=False,
            normalization_rule_name="identity",
            unk_id=UNKNOWN,
            eos_id=END,
            bos_id=-1,
            pad_id=-1,
            num_threads=1,
            minloglevel=2,
        )
    except RuntimeError as error:
        needed = re.search(r"required_chars\. \d+ vs (\d+)", str(error))
        if needed is None:
            raise BatchlensError(
                f"cannot learn {vocabulary} sub-words from LM1B: {str(error).splitlines()[0]}"
            ) from None
        raise ValueError(
            f"`vocabulary` must be at least {needed[1]}, the letters and signs of the text, got {vocabulary}."
        ) from None
    return model.getvalue()


class _Made(NamedTuple):
    model: Path
    train: Path
    validation: Path


def _make(corpus: Corpus, vocabulary: int, data_dir: Path | str | None, place: Path) -> _Made:
    """Learns the sub-words and writes them and the tokens into the folder `place`."""
    made = _Made(*(place / part for part in _Made._fields))
    made.model.write_bytes(learn(_sample(corpus.train, data_dir), vocabulary))
    pieces = import_extra("sentencepiece").SentencePieceProcessor(model_file=str(made.model))
    for shards, path in ((corpus.train, made.train), (corpus.validation, made.validation)):
        with path.open("wb") as file:
            for tokens in _encode(shards, data_dir, pieces):
                tokens.tofile(file)
    return made


def _sample(shards: list[Path], data_dir: Path | str | None) -> Iterator[str]:
    """At most LEARN_FROM sentences, evenly spaced, as many from every shard."""
    share = max(1, LEARN_FROM // len(shards))
    for path in shards:
        sentences = _sentences(path, data_dir)
        yield from sentences[:: -(-len(sentences) // share)]


def _encode(shards: list[Path], data_dir: Path | str | None, pieces: Any) -> Iterator[Tokens]:
    for path in shards:
        sentences = _sentences(path, data_dir)
        for start in range(0, len(sentences), _AT_ONCE):
            tokens = pieces.encode(sentences[start : start + _AT_ONCE], add_eos=True)
            yield np.fromiter(chain.from_iterable(tokens), "<i4")


def _sentences(path: Path, data_dir: Path | str | None) -> list[str]:
    try:
        text = read_shard(path, data_dir).decode("utf-8")
    except UnicodeDecodeError:
        raise BatchlensError(f"{path} is not UTF-8 text; run `{remedy('lm1b', data_dir)}`.") from None
    # Not splitlines: a sentence may hold what Unicode counts as a line's end.
    sentences = [sentence for sentence in text.split("\n") if sentence.strip()]
    if not sentences:
        raise BatchlensError(f"{path} holds no sentence; run `{remedy('lm1b', data_dir)}`.")
    return sentences


def _is_whole(path: Path) -> bool:
    return path.is_file() and path.stat().st_size > 0 and path.stat().st_size % 4 == 0


def _fingerprint(corpus: Corpus) -> str:
    parts = [[(path.name, path.stat().st_size) for path in shards] for shards in corpus]
    return hashlib.sha256(repr((_VERSION, *parts)).encode()).hexdigest()[:12]
