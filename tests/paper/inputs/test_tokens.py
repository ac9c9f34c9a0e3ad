"""Tokens by a small tokenizer made here: its own padding is the oracle."""

import sys
from importlib.util import find_spec

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch

from ddpn.paper.inputs import tokens
from ddpn.paper.inputs.tokens import join_texts, tokenize
from ddpn.runtime.errors import ConfigError, DDPNError, InputError

pytestmark = pytest.mark.skipif(find_spec("transformers") is None, reason="needs ddpn[text]")

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "it", "fits", "too", "small", "##er", "blue", "."]
TEXTS = ["It fits.", "", "Too smaller. It fits. Too blue.", "\n ", "blue"]


def bert(folder, **options):
    import transformers

    (folder / "vocab.txt").write_text("\n".join(WORDS))
    return transformers.BertTokenizerFast(vocab=str(folder / "vocab.txt"), **options)


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    return bert(tmp_path_factory.mktemp("bert"), model_max_length=128)


@pytest.fixture(autouse=True)
def blocks_of_two(monkeypatch):
    monkeypatch.setattr(tokens, "_BLOCK", 2)


@pytest.mark.parametrize("max_length", [3, 7, 128])
def test_they_are_those_of_transformers(tokenizer, max_length):
    found = tokenize(TEXTS, tokenizer, max_length=max_length)
    assert found.dtype == torch.int32
    assert found.shape == (5, min(max_length, 12))
    padded = tokenizer(TEXTS, truncation=True, max_length=max_length, padding="longest", return_tensors="pt")
    assert torch.equal(found.long(), padded["input_ids"])
    assert found[1].tolist() == [2, 3] + [0] * (found.shape[1] - 2), "an empty text has special tokens alone"


@pytest.mark.parametrize("kind", [tuple, np.array, pd.Series, pl.Series, lambda t: pd.Series(t, index=[9, 1, 1, 0, 4])])
def test_every_kind_of_column(tokenizer, kind):
    assert torch.equal(tokenize(kind(TEXTS), tokenizer), tokenize(TEXTS, tokenizer))


def test_padding_is_behind_wherever_the_tokenizer_puts_it(tmp_path):
    left = bert(tmp_path, padding_side="left")
    assert tokenize(["blue", "It fits."], left).tolist() == [[2, 10, 3, 0, 0], [2, 5, 6, 11, 3]]


def test_a_tokenizer_by_its_folder_or_in_an_installed_package(tokenizer, tmp_path, monkeypatch):
    from transformers import BertConfig

    folder = tmp_path / "packed_tokens" / "small"
    tokenizer.save_pretrained(folder)
    BertConfig().save_pretrained(folder)
    (tmp_path / "packed_tokens" / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    for name in (folder, str(folder), "package:packed_tokens/small"):
        assert torch.equal(tokenize(TEXTS, name), tokenize(TEXTS, tokenizer))


REFUSED = {
    "a frame": ({"texts": pd.DataFrame({"text": TEXTS})}, "texts"),
    "a frame of polars": ({"texts": pl.DataFrame({"text": TEXTS})}, "texts"),
    "two axes": ({"texts": np.array([TEXTS, TEXTS])}, "texts"),
    "nothing": ({"texts": None}, "texts"),
    "a set": ({"texts": set(TEXTS)}, "texts"),
    "one text": ({"texts": "one text"}, "texts"),
    "no text": ({"texts": []}, "texts"),
    "a missing text": ({"texts": ["a", "b", "c", None]}, "texts"),
    "a number": ({"texts": [1]}, "texts"),
    "half a token": ({"max_length": 10.5}, "max_length"),
    "no length": ({"max_length": None}, "max_length"),
    "too short": ({"max_length": 2}, "max_length"),
    "too long": ({"max_length": 129}, "max_length"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_tokenized(tokenizer, case):
    given, name = REFUSED[case]
    with pytest.raises(DDPNError) as found:
        tokenize(**({"texts": TEXTS, "tokenizer": tokenizer} | given))
    assert found.value.argument == name


def test_tokenizers_that_cannot_be_used(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    without_pad = bert(tmp_path)
    without_pad.pad_token = None
    with pytest.raises(ConfigError, match="must have a pad token"):
        tokenize(TEXTS, without_pad)
    with pytest.raises(ConfigError, match="must name a model"):
        tokenize(TEXTS, tmp_path)
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(ConfigError, match=r"ddpn\[text\] is not installed"):
        tokenize(TEXTS, "distilbert-base-cased")


@pytest.mark.parametrize("frame", [dict, pd.DataFrame, pl.DataFrame])
def test_columns_are_joined(frame):
    table = frame({"title": ["a", "", "c"], "text": ["x", "y", ""]})
    assert join_texts(table) == ["a x", "y", "c"]
    assert join_texts(table, ("text", "title"), sep=" | ") == ["x | a", "y", "c"]
    assert join_texts(table, "text") == ["x", "y", ""]


def test_missing_texts_are_left_out():
    frame = pd.DataFrame({"title": ["a", np.nan, None], "text": [None, "y", "z"]}, dtype=object)
    assert join_texts(frame) == ["a", "y", "z"]
    with pytest.raises(InputError, match=r"got 3 at row 1"):
        join_texts({"text": ["a", 3]}, ["text"])
