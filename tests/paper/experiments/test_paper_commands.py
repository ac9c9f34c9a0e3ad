"""Test that commands for the paper's data work at the first try: on small data in real formats, with tiny networks."""

import gzip
import json

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from ddpn.cli.program import app
from ddpn.paper.datasets import simulate_shelves
from ddpn.paper.experiments import catalogue

image = pytest.importorskip("PIL.Image")
transformers = pytest.importorskip("transformers")

WORDS = ["the", "hose", "leaks", "after", "a", "week", "great", "rake", "in", "beginning", "god", "created", "heaven"]
TINY_TEXT = {"dim": 8, "n_layers": 3, "n_heads": 2, "hidden_dim": 8}
TINY_IMAGE = {
    "hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 8, "image_size": 32,
    "patch_size": 16,
}  # fmt: skip


@pytest.fixture
def save_tiny_network(tmp_path):
    """Save a tiny network under the name of one of a hub, and its tokenizer if it reads texts."""

    def make(name):
        folder = tmp_path / "hub" / name
        torch.manual_seed(0)
        if "distilbert" in name:
            vocabulary = {word: i for i, word in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS])}
            transformers.DistilBertTokenizerFast(vocab=vocabulary, do_lower_case=False).save_pretrained(folder)
            config = transformers.DistilBertConfig(vocab_size=len(vocabulary), **TINY_TEXT)
        else:
            config = transformers.ViTConfig(**TINY_IMAGE)
        transformers.AutoModel.from_config(config).save_pretrained(folder)
        return str(folder)

    return make


@pytest.fixture
def run_reproduce(tmp_path, monkeypatch, save_tiny_network):
    """Run `ddpn reproduce` of one experiment for one epoch, with a tiny network in place of one of a hub."""
    usual = catalogue.read_toml

    def read(name):
        content = usual(name)
        if "pretrained" in (backbone := content.get("backbone", {})):
            backbone["pretrained"] = save_tiny_network(backbone["pretrained"])
            # Images of the size of the tiny network: kornia takes most of the time.
            content["data"] |= {"size": 32} if "size" in content["data"] else {}
        return content

    def run(name, methods):
        arguments = [
            "reproduce",
            name,
            "--quick",
            "--networks",
            "2",
            "--only",
            methods,
            "--device",
            "cpu",
            "--jobs",
            "1",
        ]
        done = CliRunner().invoke(app, [*arguments, "--out", str(tmp_path / "results")])
        assert done.exit_code == 0, done.output
        assert "Figures are missing" not in done.output
        return tmp_path / "results" / f"{name}-quick", done.output

    monkeypatch.setattr(catalogue, "read_toml", read)
    monkeypatch.setenv("DDPN_DATA", str(tmp_path / "data"))
    return run


def test_images_are_read_as_coco_unpacks_them(tmp_path, run_reproduce):
    pytest.importorskip("kornia")
    random, home = np.random.default_rng(0), tmp_path / "data" / "coco_people"
    (home / "annotations").mkdir(parents=True)
    (home / "train2017").mkdir()
    shown, annotations = [], []
    for number in range(40):
        name = f"{number:012}.jpg"
        image.fromarray(random.integers(0, 256, (24, 32, 3), dtype=np.uint8)).save(home / "train2017" / name)
        shown.append({"license": 3, "file_name": name, "height": 24, "width": 32, "id": number})
        region = {"segmentation": [[1.0, 2.0, 3.0, 4.0]], "area": 9.0, "iscrowd": 0, "bbox": [0.0, 1.0, 2.0, 3.0]}
        annotations += [region | {"image_id": number, "category_id": 1, "id": number}] * (1 + number % 4)
        annotations.append(region | {"image_id": number, "category_id": 18, "id": number})
    categories = [{"supercategory": "person", "id": 1, "name": "person"}, {"id": 18, "name": "dog"}]
    content = {"info": {}, "licenses": [], "images": shown, "annotations": annotations, "categories": categories}
    (home / "annotations" / "instances_train2017.json").write_text(json.dumps(content))

    folder, output = run_reproduce("paper-coco-people", "beta_ddpn_1.0,gaussian")
    assert "40 of the 64,115 images of the paper's data" in output
    assert {path.name for path in folder.glob("*.png")} == {
        "image_pmfs.png", "image_pmfs_single.png", "image_pmfs_ensembles.png",
    }  # fmt: skip
    result = json.loads((folder / "beta_ddpn_1.0" / "run.json").read_text())
    assert result["rows"] == {"train": 28, "validation": 4, "test": 8}
    assert result["settings"]["backbone"]["pooling"] == "pooler"
    assert (result["settings"]["batch_size"], result["settings"]["lr"]) == (256, 1e-4)


def test_reviews_and_verses_are_read_as_they_are_published(tmp_path, run_reproduce):
    random, data = np.random.default_rng(0), tmp_path / "data"
    for name in ("reviews", "bible"):
        (data / name).mkdir(parents=True)
    texts = [" ".join(random.choice(WORDS, random.integers(1, 30))) for _ in range(60)]
    records = [
        {"overall": float(1 + row % 5), "verified": True, "reviewerID": "A1", "asin": "B0", "reviewText": text}
        for row, text in enumerate([*texts, "has <br> in it"])
    ]
    path = data / "reviews" / "Patio_Lawn_and_Garden_5.json.gz"
    path.write_bytes(gzip.compress("".join(json.dumps(record) + "\n" for record in records).encode()))
    verses = "\n".join([*texts[:30], "", ""])
    (data / "bible" / "eng-eng-kjv.txt").write_text(verses)

    folder, output = run_reproduce("paper-reviews", "ddpn,natural_gaussian")
    assert "1 rows with HTML left out, 60 of the 793,966 reviews of the paper's data" in output
    assert {path.name for path in folder.glob("*.png")} == {"ood_pmfs.png", "ood_densities.png", "ood_variances.png"}
    assert {"table_ood.md", "table_ood_paper.md"} <= {path.name for path in folder.glob("*.md")}
    settings = json.loads((folder / "ddpn" / "run.json").read_text())["settings"]
    assert settings["source"]["max_length"] == 128
    assert (settings["backbone"]["pooling"], settings["backbone"]["dropout"]) == ("cls", True)


def test_beams_of_an_inventory_are_read(tmp_path, run_reproduce):
    drawn = simulate_shelves(60, max_points=16)
    (tmp_path / "data" / "inventory").mkdir(parents=True)
    np.savez(tmp_path / "data" / "inventory" / "beams.npz", X=drawn.X, y=drawn.y, classes=drawn.classes)

    folder, output = run_reproduce("paper-inventory", "ddpn,poisson")
    assert "paper 0.861" in output, "Table 2 of the paper: DDPN, ensemble"
    assert (folder / "beams.png").is_file()
    settings = json.loads((folder / "ddpn" / "run.json").read_text())["settings"]
    assert (settings["batch_size"], settings["epochs"], settings["lr"], settings["weight_decay"]) == (16, 5, 1e-3, 1e-5)
