"""Test that texts, images and point clouds become rows; features computed once by a frozen network change nothing."""

import gzip
import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch

from ddpn.paper.experiments import rows, runs
from ddpn.paper.experiments.catalogue import parse_experiment
from ddpn.paper.experiments.rows import load_rows
from ddpn.paper.experiments.runs import execute, read_predictions
from ddpn.runtime.errors import ConfigError

WORDS = [
    "it", "fits", "is", "too", "small", "and", "the", "colour", "was", "nice", "in", "beginning", "god", "created",
    "heaven", "earth",
]  # fmt: skip
TINY = {"hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 8}
TRAINING = {"epochs": 1, "batch_size": 8, "lr": 1e-2, "weight_decay": 0.0, "hidden": [6], "n_networks": 2}


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A small encoder and its tokenizer in a folder."""
    from transformers import BertConfig, BertModel, BertTokenizerFast

    folder = tmp_path_factory.mktemp("model")
    vocabulary = {word: i for i, word in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS])}
    BertTokenizerFast(vocab=vocabulary).save_pretrained(folder)
    torch.manual_seed(0)
    BertModel(BertConfig(vocab_size=len(vocabulary), **TINY)).save_pretrained(folder)
    return str(folder)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A data folder with reviews and verses; not to be changed."""
    random = np.random.default_rng(0)
    folder = tmp_path_factory.mktemp("data")
    for name in ("reviews", "bible"):
        (folder / name).mkdir(parents=True)
    texts = [" ".join(random.choice(WORDS, random.integers(1, 9))) for _ in range(40)]
    lines = ["Title,Review Text,Rating", *(f"nice,{text},{1 + i % 5}" for i, text in enumerate(texts))]
    with gzip.open(folder / "reviews" / "womens_clothing.csv.gz", "wt") as file:
        file.write("\n".join(lines) + "\n")
    with gzip.open(folder / "bible" / "kjv_verses.txt.gz", "wt") as file:
        file.write("in the beginning god created\nthe heaven and the earth\n")
    return folder


@pytest.fixture
def data(folder, monkeypatch):
    monkeypatch.setenv("DDPN_DATA", str(folder))


def parse_reviews(model, **changes):
    return parse_experiment("tiny", {
        "title": "A test", "paper": "none", "methods": ["ddpn"], "minutes": 1, "ood": "bible",
        "data": {"name": "reviews", "text": ["title", "text"], "max_length": 12},
        "backbone": {"name": "text", "pretrained": model, "frozen": -1}, "training": TRAINING | changes,
    })  # fmt: skip


def execute_run(experiment, tmp_path, name="run", parts=None):
    """Execute an experiment's only run, and return its raw outputs."""
    execute(experiment.runs()[0], load_rows(experiment) if parts is None else parts, tmp_path / name, "cpu")
    return read_predictions(tmp_path / name)


def test_features_computed_once_give_the_same_results(model, data, tmp_path, monkeypatch):
    experiment = parse_reviews(model)
    kept = load_rows(experiment)
    monkeypatch.setattr(rows, "_MAX_MEMORY_SHARE", 0.0)
    texts = load_rows(experiment)
    assert (kept.cached, texts.cached) == (True, False)
    cached, whole = execute_run(experiment, tmp_path, "cached", kept), execute_run(experiment, tmp_path, "whole", texts)
    for name in ("raw", "ood"):
        torch.testing.assert_close(cached[name], whole[name], rtol=1e-4, atol=1e-5)
    assert cached["raw"].shape == (8, 2, 2)
    assert cached["ood"].shape == (2, 2, 2)


def test_rounding_and_storage_of_features_do_not_change_the_identity_of_rows(model, data, monkeypatch):
    """Otherwise results of a GPU, or of a process with another number of threads, would be discarded."""
    experiment, usual = parse_reviews(model), rows.compute_features
    cached = load_rows(experiment)
    monkeypatch.setattr(rows, "compute_features", lambda *arguments: usual(*arguments) * (1 + 1e-6))
    assert load_rows(experiment).identity == cached.identity
    monkeypatch.setattr(rows, "_MAX_MEMORY_SHARE", 0.0)
    assert load_rows(experiment).identity == cached.identity
    shorter = replace(experiment, data=dict(experiment.data) | {"max_length": 5})
    assert load_rows(shorter).identity != cached.identity


def test_hidden_states_are_kept_in_the_precision_they_are_trained_in(model, data):
    full, half = load_rows(parse_reviews(model)), load_rows(parse_reviews(model, precision="bf16"))
    assert (full.train.X.dtype, half.train.X.dtype) == (torch.float32, torch.bfloat16)
    assert torch.equal(half.test.X[..., -1].float(), full.test.X[..., -1]), "the mask is as it was"
    torch.testing.assert_close(half.test.X.float(), full.test.X, rtol=0.05, atol=0.05)
    pooled = replace(
        parse_reviews(model, precision="bf16"), backbone={"name": "text", "pretrained": model, "frozen": "all"}
    )
    assert (load_rows(pooled).train.X.shape, load_rows(pooled).train.X.dtype) == ((28, 8), torch.float32)


def test_networks_some_at_a_time_are_those_of_all_at_once(model, data, tmp_path):
    parts = load_rows(parse_reviews(model))
    together = execute_run(parse_reviews(model), tmp_path, "together", parts)
    apart = execute_run(parse_reviews(model, at_once=1), tmp_path, "apart", parts)
    torch.testing.assert_close(apart["raw"], together["raw"], rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(apart["ood"], together["ood"], rtol=1e-5, atol=1e-6)
    assert not list((tmp_path / "apart").glob("members-*"))


def test_an_interrupted_run_resumes_with_the_missing_networks(model, data, tmp_path, monkeypatch):
    experiment, trained_seeds = parse_reviews(model, at_once=1), []
    parts, usual = load_rows(experiment), runs.fit
    expected = execute_run(experiment, tmp_path, "whole", parts)

    def fit_or_interrupt(*arguments, **options):
        if len(trained_seeds) == 1:
            raise KeyboardInterrupt
        trained_seeds.append(arguments[3].seeds)
        return usual(*arguments, **options)

    monkeypatch.setattr(runs, "fit", fit_or_interrupt)
    with pytest.raises(KeyboardInterrupt):
        execute_run(experiment, tmp_path, "stopped", parts)
    trained_seeds.clear()
    after = execute_run(experiment, tmp_path, "stopped", parts)
    assert trained_seeds == [(1,)]
    assert torch.equal(after["raw"], expected["raw"])


def test_an_unknown_option_of_a_backbone_is_reported(model, data):
    experiment = replace(parse_reviews(model), backbone={"name": "text", "pretrained": model, "frosen": 1})
    with pytest.raises(ConfigError, match=r"Invalid option in \[backbone\] of tiny: .*'frosen'"):
        load_rows(experiment)


def test_a_tokenizer_with_another_padding_than_its_model_is_reported(model, data, tmp_path):
    folder = tmp_path / "other"
    shutil.copytree(model, folder)
    config = json.loads((folder / "config.json").read_text()) | {"pad_token_id": 3}
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(ConfigError, match=r"^pad_token_id of the tokenizer must .* 3, got 0\. .*config\.json"):
        load_rows(parse_reviews(str(folder)))
