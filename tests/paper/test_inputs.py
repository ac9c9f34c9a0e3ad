"""Test texts, images and point clouds as tensors against tokenizers, Pillow and the contract of packed beams."""

import struct
import sys

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch

from ddpn.paper import inputs
from ddpn.paper.inputs import auto_augment, decode_images, join_texts, pack, read_image, tokenize
from ddpn.runtime.errors import ConfigError, DDPNError, InputError

# Texts ----------------------------------------------------------------------------------------------------------------


WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "it", "fits", "too", "small", "##er", "blue", "."]
TEXTS = ["It fits.", "", "Too smaller. It fits. Too blue.", "\n ", "blue"]


def make_tokenizer(folder, **options):
    transformers = pytest.importorskip("transformers")
    (folder / "vocab.txt").write_text("\n".join(WORDS))
    return transformers.BertTokenizerFast(vocab=str(folder / "vocab.txt"), **options)


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    return make_tokenizer(tmp_path_factory.mktemp("bert"), model_max_length=128)


@pytest.fixture(autouse=True)
def limit_blocks(monkeypatch):
    monkeypatch.setattr(inputs, "_BLOCK_TEXTS", 2)


@pytest.mark.parametrize("max_length", [3, 7, 128])
def test_tokens_are_those_of_transformers(tokenizer, max_length):
    tokens = tokenize(TEXTS, tokenizer, max_length=max_length)
    assert tokens.dtype == torch.int32
    assert tokens.shape == (5, min(max_length, 12))
    padded = tokenizer(TEXTS, truncation=True, max_length=max_length, padding="longest", return_tensors="pt")
    assert torch.equal(tokens.long(), padded["input_ids"])
    assert tokens[1].tolist() == [2, 3] + [0] * (tokens.shape[1] - 2), "an empty text has special tokens alone"


@pytest.mark.parametrize("kind", [tuple, np.array, pd.Series, pl.Series, lambda t: pd.Series(t, index=[9, 1, 1, 0, 4])])
def test_texts_in_every_kind_of_column_are_read(tokenizer, kind):
    assert torch.equal(tokenize(kind(TEXTS), tokenizer), tokenize(TEXTS, tokenizer))


def test_a_tokenizer_is_loaded_from_a_folder_or_an_installed_package(tokenizer, tmp_path, monkeypatch):
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
def test_inputs_that_are_no_texts_are_refused(tokenizer, case):
    arguments, name = REFUSED[case]
    with pytest.raises(DDPNError) as error:
        tokenize(**({"texts": TEXTS, "tokenizer": tokenizer} | arguments))
    assert error.value.argument == name


def test_tokenizers_that_cannot_be_used_are_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    without_pad = make_tokenizer(tmp_path)
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
    assert join_texts(table, ("text", "title")) == ["x a", "y", "c"]
    assert join_texts(table, "text") == ["x", "y", ""]


def test_missing_texts_are_left_out():
    frame = pd.DataFrame({"title": ["a", np.nan, None], "text": [None, "y", "z"]}, dtype=object)
    assert join_texts(frame) == ["a", "y", "z"]
    with pytest.raises(InputError, match=r"got 3 at row 1"):
        join_texts({"text": ["a", 3]}, ["text"])


# Images ---------------------------------------------------------------------------------------------------------------


Image = pytest.importorskip("PIL.Image")

COLORS = np.random.default_rng(7).integers(0, 256, (20, 30, 3), dtype=np.uint8)


@pytest.fixture
def files(tmp_path):
    paths = [tmp_path / f"{name}.png" for name in "abcde"]
    for i, path in enumerate(paths):
        Image.fromarray(np.roll(COLORS, i, axis=0)).save(path)
    return paths


def resize(image, size):
    """Resize an image as Pillow does, channels first."""
    return torch.from_numpy(np.array(image.resize((size, size), Image.Resampling.BILINEAR))).permute(2, 0, 1)


@pytest.mark.parametrize("size", [8, 64])
def test_images_are_those_of_pillow(files, size):
    images = decode_images(files, size)
    assert (images.dtype, images.shape) == (torch.uint8, (5, 3, size, size))
    for i in range(5):
        assert torch.equal(images[i], resize(Image.fromarray(np.roll(COLORS, i, axis=0)), size))


def truncate_file(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def write_unknown_dds(path):
    Image.new("RGB", (4, 4)).save(path, format="DDS")
    data = bytearray(path.read_bytes())
    data[76 + 4 : 76 + 12] = struct.pack("<I4s", 4, b"NONE")
    path.write_bytes(bytes(data))


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (truncate_file, r"c\.png must be an image, got: .*truncated"),
        (lambda path: path.write_text("<html>404</html>"), "got: cannot identify"),
        (lambda path: path.unlink(), "^File not found: .*c"),
        (write_unknown_dds, r"c\.png must be an image, got: .+"),
    ],
)
def test_a_file_that_cannot_be_read_is_named_in_one_sentence(files, damage, words):
    damage(files[2])
    with pytest.raises(InputError, match=words):
        decode_images(files, 8)


@pytest.mark.parametrize(
    ("arguments", "name"),
    [((["a.png"], 0), "size"), ((["a.png"], 8.5), "size"), (("a.png",), "files"), (([],), "files")],
)
def test_bad_sizes_and_files_are_refused(arguments, name):
    with pytest.raises((ConfigError, InputError)) as error:
        decode_images(*arguments)
    assert error.value.argument == name


@pytest.mark.parametrize(
    ("mode", "color", "name", "rgb"),
    [
        ("L", 77, "a.png", (77, 77, 77)),
        ("1", 1, "a.png", (255, 255, 255)),
        ("LA", (77, 9), "a.png", (77, 77, 77)),
        ("RGBA", (10, 20, 30, 40), "a.png", (10, 20, 30)),
        ("CMYK", (0, 255, 255, 0), "a.jpg", (255, 0, 0)),
    ],
)
def test_every_mode_becomes_rgb(tmp_path, mode, color, name, rgb):
    Image.new(mode, (6, 4), color).save(tmp_path / name)
    image = read_image(tmp_path / name, 5)
    # A jpeg keeps colors to a step or two.
    off = (image.int() - torch.tensor(rgb)[:, None, None]).abs().max()
    assert off <= (2 if name.endswith("jpg") else 0)


@pytest.mark.parametrize("dtype", ["uint16", "int32", "float32"])
def test_more_than_eight_bits_are_an_error(tmp_path, dtype):
    Image.fromarray(np.full((2, 2), 7, dtype=dtype)).save(tmp_path / "a.tif")
    with pytest.raises(InputError, match=r"a\.tif must have 8 bits"):
        read_image(tmp_path / "a.tif", 8)


# AutoAugment ----------------------------------------------------------------------------------------------------------

IMAGES = torch.stack([torch.full((3, 8, 8), 5 * n, dtype=torch.uint8) for n in range(40)])
IMAGES[:, :, 2:6, 2:6] += 40


@pytest.mark.parametrize("images", [IMAGES / 255, IMAGES[:, :1], IMAGES[0], IMAGES.numpy(), None])
def test_tensors_that_are_no_images_are_refused(images):
    with pytest.raises(InputError) as error:
        auto_augment(images)
    assert error.value.argument == "images"


def test_images_are_changed_in_groups_and_keep_their_positions():
    pytest.importorskip("kornia")
    torch.manual_seed(3)
    first = auto_augment(IMAGES)
    assert (first.dtype, first.shape) == (torch.uint8, IMAGES.shape)
    changed = (first != IMAGES).flatten(1).any(1)
    assert 0.3 < changed.float().mean() < 1.0
    # One that was not changed is still in its own place, and few are changed alike.
    assert torch.equal(first[~changed], IMAGES[~changed])
    assert not torch.equal(auto_augment(IMAGES), first)
    torch.manual_seed(3)
    assert torch.equal(auto_augment(IMAGES), first)


@pytest.mark.parametrize(("group_size", "sizes"), [(1, [1] * 40), (16, [16, 16, 8])])
def test_the_images_of_a_group_share_a_policy(monkeypatch, group_size, sizes):
    auto = pytest.importorskip("kornia.augmentation.auto")
    usual, seen = auto.AutoAugment.forward, []

    def forward(self, images, *arguments, **options):
        seen.append(len(images))
        return usual(self, images, *arguments, **options)

    monkeypatch.setattr(auto.AutoAugment, "forward", forward)
    assert auto_augment(IMAGES, group_size).shape == IMAGES.shape
    assert seen == sizes


# Point clouds ---------------------------------------------------------------------------------------------------------


def draw_cloud(n, seed=0):
    return np.random.default_rng(seed).normal(size=(n, 3)).astype(np.float32)


def test_a_packed_beam_is_as_the_contract_has_it():
    points = np.array([[1, 2, 3], [3, 2, 7], [2, 6, 5]], dtype=np.float32)
    x = pack([points, points[:0]], np.array([4, 2]), max_points=4)
    assert x.dtype == torch.float32
    assert x[0].tolist() == [[4, 2, 4, 5], [0, 2, 4, 4], [1, 1, 2, 3], [1, 3, 2, 7], [1, 2, 6, 5], [0, 0, 0, 0]]
    assert x[1].tolist() == [[2, 0, 0, 0]] + [[0, 0, 0, 0]] * 5


def test_too_many_points_leave_a_random_subset_and_the_box_of_all():
    clouds = [draw_cloud(500, 1), draw_cloud(500, 1), draw_cloud(8, 2)]
    x = pack(clouds, np.zeros(3, dtype=int), max_points=64, seed=3)
    kept = [beam[2:][beam[2:, 0] == 1.0, 1:].numpy() for beam in x]
    all_points = {tuple(point) for point in clouds[0]}
    assert len({tuple(point) for point in kept[0]} & all_points) == 64
    assert not np.array_equal(kept[0], kept[1]), "each beam has its own subset"
    np.testing.assert_array_equal(kept[2], clouds[2])
    np.testing.assert_array_equal(x[0, 1, 1:], clouds[0].max(0) - clouds[0].min(0))
    assert torch.equal(x, pack(clouds, np.zeros(3, dtype=int), max_points=64, seed=3))
    assert not torch.equal(x, pack(clouds, np.zeros(3, dtype=int), max_points=64, seed=4))


TWO = [draw_cloud(4), draw_cloud(4)]
INVALID = {
    "one axis": ([draw_cloud(1)[0]], [0], {}, r"cloud 0 must be points \(n, 3\), got .* shape \(3,\)\."),
    "four columns": ([np.zeros((4, 4))], [0], {}, r"cloud 0 must be .*float64 of shape \(4, 4\)"),
    "ragged": ([[[1, 2, 3], [1, 2]]], [0], {}, r"cloud 0 must be points \(n, 3\), got list"),
    "no clouds": (None, [0], {}, r"clouds must be a list of points \(n, 3\), got NoneType"),
    "no cloud": ([None], [0], {}, r"cloud 0 must be points \(n, 3\), got NoneType"),
    "nan": ([[[1, 2, 3], [1, np.nan, 3]]], [0], {}, r"finite coordinates, got \[1.0, nan, 3.0\] at point 2"),
    "too large": ([[[1, 2, 1e60]]], [0], {}, r"cloud 0 must hold finite coordinates, got \[1.0, 2.0, 1e\+60"),
    "one class": (TWO, [1], {}, "geometry must have one count per row of X, got 1 for 2 rows"),
    "a name": (TWO, ["box", "can"], {}, "geometry must hold numbers, got 'box' at rows 0, 1"),
    "a class below": (TWO, [0, -1], {}, "geometry must hold non-negative integers, got -1 at row 1"),
    "half a point": (TWO, [0, 1], {"max_points": 2.5}, "max_points must be an integer of at least 1, got 2.5"),
    "no points": (TWO, [0, 1], {"max_points": 0}, "max_points must be an integer of at least 1, got 0"),
    "a seed below": (TWO, [0, 1], {"seed": -1}, "seed must be an integer of at least 0, got -1"),
}


@pytest.mark.parametrize("name", INVALID)
def test_invalid_clouds_are_refused(name):
    clouds, geometry, options, fault = INVALID[name]
    with pytest.raises(InputError, match=fault):
        pack(clouds, geometry, **options)
