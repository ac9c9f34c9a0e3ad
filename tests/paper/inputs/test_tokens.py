"""Tokens by a small tokenizer made here: its own padding is the oracle."""

import logging
import os
import sys
from importlib.util import find_spec

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from safetensors.torch import load_file, save_file

from ddpn.paper.inputs import tokens
from ddpn.paper.inputs.tokens import join_texts, tokenize
from ddpn.runtime.errors import ConfigError, InputError

pytestmark = pytest.mark.skipif(find_spec("transformers") is None, reason="needs ddpn[text]")

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "it", "fits", "too", "small", "##er", "blue", "."]
TEXTS = ["It fits.", "", "Too smaller. It fits. Too blue.", "\n ", "blue"]


def bert(folder, words=WORDS, **options):
    import transformers

    (folder / "vocab.txt").write_text("\n".join(words))
    return transformers.BertTokenizerFast(vocab=str(folder / "vocab.txt"), **options)


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    return bert(tmp_path_factory.mktemp("bert"))


@pytest.fixture(autouse=True)
def blocks_of_two(monkeypatch):
    monkeypatch.setattr(tokens, "_BLOCK", 2)


def by_itself(tokenizer, texts, max_length):
    """All texts at once, padded by transformers."""
    return tokenizer(texts, truncation=True, max_length=max_length, padding="longest", return_tensors="pt")["input_ids"]


@pytest.mark.parametrize("max_length", [3, 7, 128])
def test_they_are_those_of_transformers(tokenizer, max_length):
    found = tokenize(TEXTS, tokenizer, max_length=max_length)
    assert found.dtype == torch.int32
    assert found.shape == (5, min(max_length, 12))
    assert torch.equal(found.long(), by_itself(tokenizer, TEXTS, max_length))


def test_the_texts_of_a_table_and_a_slice(tokenizer):
    column = np.array(TEXTS, dtype=object)
    assert torch.equal(tokenize(column, tokenizer), tokenize(TEXTS, tokenizer))
    assert torch.equal(tokenize(column[1:2], tokenizer), torch.tensor([[2, 3]], dtype=torch.int32))


@pytest.mark.parametrize("kind", [tuple, np.array, pd.Series, pl.Series, lambda t: pd.Series(t, index=[9, 1, 1, 0, 4])])
def test_every_kind_of_column(tokenizer, tmp_path, kind):
    for cache in (None, tmp_path):
        assert torch.equal(tokenize(kind(TEXTS), tokenizer, cache=cache), tokenize(TEXTS, tokenizer))


NOT_LISTS = {
    "DataFrame": lambda: pd.DataFrame({"title": TEXTS, "text": TEXTS}),
    "ndarray": lambda: np.array([TEXTS, TEXTS], dtype=object),
    "NoneType": lambda: None,
    "generator": lambda: (text for text in TEXTS),
    "set": lambda: set(TEXTS),
    "dict": lambda: {"text": TEXTS},
    "bytes": lambda: b"blue",
}


@pytest.mark.parametrize("kind", NOT_LISTS)
def test_texts_that_are_not_a_list(tokenizer, tmp_path, kind):
    for cache in (None, tmp_path / "cache"):
        with pytest.raises(InputError, match=rf"^texts must be a list of texts, got {kind}\. .* join_texts\(X"):
            tokenize(NOT_LISTS[kind](), tokenizer, cache=cache)
    with pytest.raises(InputError, match="got DataFrame"):
        tokenize(pl.DataFrame({"text": TEXTS}), tokenizer)


@pytest.mark.parametrize("length", [10.0, "9", None, True])
def test_a_length_that_is_not_an_integer(tokenizer, length):
    with pytest.raises(ConfigError, match=rf"^max_length must be an integer of at least 1, got {length!r}"):
        tokenize(TEXTS, tokenizer, max_length=length)
    assert tokenize(TEXTS, tokenizer, max_length=np.int64(7)).shape == (5, 7)


def test_a_tokenizer_that_loses_texts(tokenizer):
    class Lossy:
        pad_token_id, model_max_length = 0, 128
        num_special_tokens_to_add = staticmethod(lambda: 2)

        def __call__(self, block, **options):
            return {"input_ids": [[5, 6]]}

    with pytest.raises(ConfigError, match="tokenizer must return a list of ids per text, got 1 for 2 texts"):
        tokenize(TEXTS, Lossy())


def test_padding_is_behind_wherever_the_tokenizer_puts_it(tmp_path):
    left = bert(tmp_path, padding_side="left")
    assert tokenize(["blue", "It fits."], left).tolist() == [[2, 10, 3, 0, 0], [2, 5, 6, 11, 3]]


def test_empty_texts_hold_special_tokens_alone_and_are_counted(tokenizer, monkeypatch, tmp_path):
    messages = []
    logger = logging.getLogger("ddpn.paper.inputs.tokens")
    monkeypatch.setattr(logger, "isEnabledFor", lambda level: level >= logging.INFO)
    monkeypatch.setattr(logger, "handle", lambda record: messages.append(record.getMessage()))
    for cache in (None, tmp_path, tmp_path):
        messages.clear()
        assert tokenize(TEXTS, tokenizer, cache=cache)[1].tolist() == [2, 3] + [0] * 10
        assert messages == ["2 of 5 texts are empty: they have only special tokens"]


def test_a_tokenizer_by_its_folder(tokenizer, tmp_path):
    tokenizer.save_pretrained(tmp_path / "saved")
    for name in (tmp_path / "saved", str(tmp_path / "saved")):
        assert torch.equal(tokenize(TEXTS, name), tokenize(TEXTS, tokenizer))


def test_a_tokenizer_in_an_installed_package(tokenizer, tmp_path, monkeypatch):
    tokenizer.save_pretrained(tmp_path / "packed_tokens" / "small")
    (tmp_path / "packed_tokens" / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    assert torch.equal(tokenize(TEXTS, "package:packed_tokens/small"), tokenize(TEXTS, tokenizer))
    with pytest.raises(ConfigError, match=r"^no_such is not installed: pip install no-such$"):
        tokenize(TEXTS, "package:no_such/small")
    for strange in ("package:", "package:/small", "package:a..b/small"):
        with pytest.raises(ConfigError, match=r"^tokenizer must be .package:NAME/FOLDER., got "):
            tokenize(TEXTS, strange)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(
        ConfigError, match=r"must be a name on the hub or a folder .*, got 'package:packed_tokens/gone'"
    ):
        tokenize(TEXTS, "package:packed_tokens/gone")


def test_a_folder_without_a_tokenizer(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(ConfigError, match="tokenizer must be a name on the hub or a folder with its files, got "):
        tokenize(TEXTS, tmp_path)


def test_transformers_missing(monkeypatch, tokenizer):
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(ConfigError, match=r"ddpn\[text\] is not installed"):
        tokenize(TEXTS, "distilbert-base-cased")
    assert len(tokenize(TEXTS, tokenizer)) == 5


def test_misuse(tokenizer, tmp_path):
    with pytest.raises(ConfigError, match=r"max_length must be between 3 and .*, got 2"):
        tokenize(TEXTS, tokenizer, max_length=2)
    with pytest.raises(ConfigError, match=r"max_length must be between 3 and 16 for .*, got 17"):
        tokenize(TEXTS, bert(tmp_path, model_max_length=16), max_length=17)
    with pytest.raises(ConfigError, match="tokenizer must be one of transformers, its name or its folder, got Encoder"):
        tokenize(TEXTS, type("Encoder", (), {})())
    with pytest.raises(InputError, match="texts must be strings, got None at row 3"):
        tokenize(["a", "b", "c", None], tokenizer)
    for none in ("one text", []):
        with pytest.raises(InputError, match="texts must be a list of at least one text, got "):
            tokenize(none, tokenizer)
    without_pad = bert(tmp_path)
    without_pad.pad_token = None
    with pytest.raises(ConfigError, match=r"tokenizer must have a pad token, got none in .* Set tokenizer\.pad_token"):
        tokenize(TEXTS, without_pad)


def only_file(folder):
    (path,) = folder.iterdir()
    return path


def test_the_cache_is_used_and_equal(tokenizer, tmp_path, monkeypatch):
    folder = tmp_path / "not" / "yet"
    first = tokenize(TEXTS, tokenizer, cache=folder)
    assert only_file(folder).suffix == ".safetensors"
    monkeypatch.setattr(tokens, "_compute", None)
    again = tokenize(TEXTS, tokenizer, cache=folder)
    assert again.dtype == torch.int32
    assert torch.equal(first, again)


def test_a_call_does_not_change_what_a_tokenizer_is(tokenizer, tmp_path):
    tokenize(TEXTS, tokenizer, max_length=7, cache=tmp_path / "a")
    by_itself(tokenizer, TEXTS, 4)
    tokenize(TEXTS, tokenizer, max_length=7, cache=tmp_path / "a")
    assert len(list((tmp_path / "a").iterdir())) == 1


def test_whatever_changes_the_numbers_changes_the_file(tokenizer, tmp_path):
    folder = tmp_path / "cache"
    calls = [
        (TEXTS, tokenizer, 7),
        (TEXTS, tokenizer, 8),
        (TEXTS[::-1], tokenizer, 7),
        (["It fits", ".", *TEXTS[1:]], tokenizer, 7),
        (TEXTS, bert(tmp_path, [*WORDS[:5], *WORDS[:4:-1]]), 7),
        (TEXTS, bert(tmp_path, do_lower_case=False), 7),
        (TEXTS, bert(tmp_path, truncation_side="left"), 7),
        (TEXTS, bert(tmp_path, name_or_path="another"), 7),
    ]
    for n, (texts, which, length) in enumerate(calls, start=1):
        found = tokenize(texts, which, max_length=length, cache=folder)
        assert len(list(folder.iterdir())) == n
        assert torch.equal(found.long(), by_itself(which, texts, length))


def cut(path, data):
    path.write_bytes(data[: len(data) // 2])


def flip(path, data):
    path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))


def nothing(path, data):
    path.write_bytes(b"")


def foreign(path, data):
    save_file({"tokens": torch.zeros(5, 12, dtype=torch.int32)}, path)


def another_key(path, data):
    save_file(load_file(path), path, metadata={"key": "0" * 64, "empty": "2", "sha256": ""})


@pytest.mark.parametrize("damage", [cut, flip, nothing, foreign, another_key])
def test_a_damaged_or_foreign_cache_is_written_again(tokenizer, tmp_path, damage):
    folder = tmp_path / "cache"
    first = tokenize(TEXTS, tokenizer, cache=folder).clone()
    path = only_file(folder)
    damage(path, path.read_bytes())
    assert torch.equal(tokenize(TEXTS, tokenizer, cache=folder), first)
    assert only_file(folder) == path
    assert torch.equal(load_file(path)["tokens"], first)


def test_a_cache_that_cannot_be_written(tokenizer, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"cache must be a folder that can be written to, got .*file"):
        tokenize(TEXTS, tokenizer, cache=tmp_path / "file")

    def full(*arguments):
        raise OSError("no space left")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(InputError, match="no space left"):
        tokenize(TEXTS, tokenizer, cache=tmp_path / "cache")
    assert list((tmp_path / "cache").iterdir()) == []


@pytest.mark.parametrize("frame", [dict, pd.DataFrame, pl.DataFrame])
def test_columns_are_joined(frame):
    table = frame({"title": ["a", "", "c"], "text": ["x", "y", ""]})
    assert join_texts(table) == ["a x", "y", "c"]
    assert join_texts(table, ("text", "title"), sep=" | ") == ["x | a", "y", "c"]
    assert join_texts(table, "text") == ["x", "y", ""]


def test_missing_texts_are_left_out():
    frame = pd.DataFrame({"title": ["a", np.nan, None], "text": [None, "y", "z"]}, dtype=object)
    assert join_texts(frame) == ["a", "y", "z"]
    with pytest.raises(InputError, match=r"^Column text must hold text, got 3 at row 1"):
        join_texts({"text": ["a", 3]}, ["text"])
