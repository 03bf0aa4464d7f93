"""LM1B as tokens: which shards train, the same tokens every time, and what is kept of the work."""

import os
import re
import sys
from pathlib import Path

import numpy as np
import pytest
import sentencepiece

from batchlens.errors import BatchlensError
from batchlens.training.data import _tokens as tokens
from batchlens.training.data._tokens import END, UNKNOWN, learn, read_tokens, split_shards
from tests.training.tiny_sources import shard_files, text, write

VOCABULARY = 60


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The data folder, with two training shards and three held-out ones."""
    write(tmp_path / "lm1b", shard_files())
    return tmp_path


def names(paths: list[Path]) -> list[str]:
    return [path.name for path in paths]


def kept(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "lm1b").iterdir() if not path.name.startswith("news.en"))


# ---------------------------------------------------------------------------------------------
# Which shards
# ---------------------------------------------------------------------------------------------


def test_held_out_shards_validate_where_there_are_training_shards(folder: Path) -> None:
    train, validation = split_shards(folder)
    assert names(train) == ["news.en-00001-of-00100", "news.en-00002-of-00100"]
    assert names(validation) == [f"news.en.heldout-0000{k}-of-00050" for k in range(3)]


def test_last_held_out_shard_validates_where_they_are_all(folder: Path) -> None:
    for path in (folder / "lm1b").glob("news.en-*"):
        path.unlink()
    train, validation = split_shards(folder)
    assert names(train) == ["news.en.heldout-00000-of-00050", "news.en.heldout-00001-of-00050"]
    assert names(validation) == ["news.en.heldout-00002-of-00050"]


@pytest.mark.parametrize(
    ("shard", "lacking"),
    [("news.en-00003-of-00100", "held-out shard to validate on"), ("news.en.heldout-00003-of-00050", "second shard")],
)
def test_one_shard_is_not_enough(tmp_path: Path, shard: str, lacking: str) -> None:
    write(tmp_path / "lm1b", {shard: text(1)})
    with pytest.raises(BatchlensError, match=rf"lm1b holds no {lacking}.*; run `batchlens data fetch lm1b --data-dir "):
        split_shards(tmp_path)


# ---------------------------------------------------------------------------------------------
# Tokens
# ---------------------------------------------------------------------------------------------


def test_tokens_spell_the_text(folder: Path) -> None:
    train, validation = read_tokens(VOCABULARY, folder)
    (model,) = (folder / "lm1b").glob("*.model")
    pieces = sentencepiece.SentencePieceProcessor(model_file=str(model))
    for found, shards in ((train, split_shards(folder).train), (validation, split_shards(folder).validation)):
        assert found.dtype == np.int32
        assert found[-1] == END
        assert UNKNOWN not in found
        assert found.max() < VOCABULARY
        ends = np.flatnonzero(found == END)[:-1] + 1
        sentences = [pieces.decode(part[:-1].tolist()) for part in np.split(found, ends)]
        assert sentences == [line for path in shards for line in path.read_text().splitlines()]


def test_a_small_text_has_fewer_sub_words(folder: Path) -> None:
    train, _ = read_tokens(32_768, folder)
    assert train.max() < 200


def test_what_training_never_saw_is_unknown(folder: Path) -> None:
    path = folder / "lm1b" / "news.en.heldout-00002-of-00050"
    path.write_bytes("the 猫 sat\u2028on a mat\n\n \n".encode())
    _, validation = read_tokens(VOCABULARY, folder)
    last = np.split(validation, np.flatnonzero(validation == END)[:-1] + 1)[-1]
    assert (last == UNKNOWN).sum() == 2  # one sentence: the line separator does not end it


def test_the_same_sub_words_every_time_and_whatever_the_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    sentences = (text(1) + text(2)).decode().splitlines()
    model = learn(iter(sentences), VOCABULARY)
    assert learn(iter(sentences), VOCABULARY) == model

    def vocabulary(proto: bytes) -> list[tuple[str, float]]:
        pieces = sentencepiece.SentencePieceProcessor(model_proto=proto)
        return [(pieces.id_to_piece(k), pieces.get_score(k)) for k in range(pieces.get_piece_size())]

    original = sentencepiece.SentencePieceTrainer.train
    monkeypatch.setattr(
        sentencepiece.SentencePieceTrainer, "train", lambda **options: original(**(options | {"num_threads": 8}))
    )
    assert vocabulary(learn(iter(sentences), VOCABULARY)) == vocabulary(model)


def test_compressed_shards_give_the_same_tokens(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    other = tmp_path_factory.mktemp("compressed")
    write(other / "lm1b", shard_files(), ".gz")
    for plain, compressed in zip(read_tokens(VOCABULARY, folder), read_tokens(VOCABULARY, other), strict=True):
        assert np.array_equal(plain, compressed)


def test_sub_words_are_learned_from_evenly_spaced_sentences(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens, "LEARN_FROM", 60)
    found = list(tokens._sample(split_shards(folder).train, folder))
    first, second = (path.read_text().splitlines() for path in split_shards(folder).train)
    assert found == first[::10] + second[::10]


# ---------------------------------------------------------------------------------------------
# What is kept
# ---------------------------------------------------------------------------------------------


def test_later_calls_read_what_is_kept(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = read_tokens(VOCABULARY, folder)
    assert len(kept(folder)) == 3
    assert all(name.startswith(f"tokens-{VOCABULARY}-") for name in kept(folder))
    monkeypatch.setitem(sys.modules, "sentencepiece", None)
    for before, after in zip(first, read_tokens(VOCABULARY, folder), strict=True):
        assert np.array_equal(before, after)


@pytest.mark.parametrize("left", [0, 6])
def test_what_is_kept_but_not_whole_is_made_anew(folder: Path, left: int) -> None:
    first = [found.copy() for found in read_tokens(VOCABULARY, folder)]
    (path,) = (folder / "lm1b").glob("*.train.int32")
    path.write_bytes(path.read_bytes()[:left])
    assert np.array_equal(read_tokens(VOCABULARY, folder)[0], first[0])


def test_other_shards_or_vocabularies_are_kept_apart(folder: Path) -> None:
    read_tokens(VOCABULARY, folder)
    read_tokens(VOCABULARY + 1, folder)
    (folder / "lm1b" / "news.en-00001-of-00100").write_bytes(text(9))
    read_tokens(VOCABULARY, folder)
    assert len(kept(folder)) == 9


def test_an_interrupted_call_leaves_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(tokens, "_encode", interrupt)
    with pytest.raises(KeyboardInterrupt):
        read_tokens(VOCABULARY, folder)
    assert kept(folder) == []


def test_a_folder_that_cannot_be_written_to(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = [found.copy() for found in read_tokens(VOCABULARY, folder)]
    for name in kept(folder):
        (folder / "lm1b" / name).unlink()
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.warns(UserWarning, match="lm1b cannot be written to: LM1B is tokenised anew on every load"):
        found = read_tokens(VOCABULARY, folder)
    assert all(np.array_equal(*pair) for pair in zip(expected, found, strict=True))
    assert kept(folder) == []


def test_nothing_is_printed(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    read_tokens(VOCABULARY, folder)
    assert capfd.readouterr() == ("", "")


# ---------------------------------------------------------------------------------------------
# What goes wrong
# ---------------------------------------------------------------------------------------------


def test_least_vocabulary(folder: Path) -> None:
    with pytest.raises(ValueError, match=r"`vocabulary` must be at least \d+, the letters and signs") as error:
        read_tokens(5, folder)
    (least,) = re.findall(r"at least (\d+)", str(error.value))
    with pytest.raises(ValueError, match=f"`vocabulary` must be at least {least}"):
        read_tokens(int(least) - 1, folder)
    assert read_tokens(int(least), folder)[0].max() < int(least)


@pytest.mark.parametrize(
    ("content", "words"),
    [(b"\xff\xfe\xff\n", "is not UTF-8 text"), (b"\n", "holds no sentence"), (b"", "holds no sentence")],
)
def test_a_shard_that_is_no_text(folder: Path, content: bytes, words: str) -> None:
    (folder / "lm1b" / "news.en-00001-of-00100").write_bytes(content)
    with pytest.raises(BatchlensError, match=rf"news\.en-00001-of-00100 {words}; run `batchlens data fetch lm1b "):
        read_tokens(VOCABULARY, folder)
    assert kept(folder) == []


def test_an_altered_shard_is_refused(folder: Path) -> None:
    write(folder / "lm1b", {"news.en.heldout-00010-of-00050": b"not the official text\n"})
    with pytest.raises(BatchlensError, match=r"00010-of-00050 holds 22 bytes where 839,374 are expected; run `"):
        read_tokens(VOCABULARY, folder)


def test_missing_sentencepiece_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sentencepiece", None)
    with pytest.raises(
        BatchlensError, match=r'^sentencepiece is not installed: run `pip install "batchlens\[train\]"`'
    ):
        read_tokens(VOCABULARY, folder)
    assert kept(folder) == []
