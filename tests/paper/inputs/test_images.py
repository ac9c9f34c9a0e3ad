"""Images written by Pillow, whose own decoding and resizing is the oracle."""

import struct
import sys

import numpy as np
import pytest
import torch

from ddpn.paper.inputs.images import auto_augment, decode_images, read_image
from ddpn.runtime.errors import ConfigError, InputError

Image = pytest.importorskip("PIL.Image")

COLORS = np.random.default_rng(7).integers(0, 256, (20, 30, 3), dtype=np.uint8)


@pytest.fixture
def files(tmp_path):
    paths = [tmp_path / f"{name}.png" for name in "abcde"]
    for i, path in enumerate(paths):
        Image.fromarray(np.roll(COLORS, i, axis=0)).save(path)
    return paths


def resized(image, size):
    """As Pillow has it, channels first."""
    return torch.from_numpy(np.array(image.resize((size, size), Image.Resampling.BILINEAR))).permute(2, 0, 1)


@pytest.mark.parametrize(("size", "workers"), [(8, 0), (64, 0), (8, 2)])
def test_images_are_those_of_pillow(files, size, workers):
    found = decode_images(files, size, workers)
    assert (found.dtype, found.shape) == (torch.uint8, (5, 3, size, size))
    for i in range(5):
        assert torch.equal(found[i], resized(Image.fromarray(np.roll(COLORS, i, axis=0)), size))


def cut(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def unknown_dds(path):
    Image.new("RGB", (4, 4)).save(path, format="DDS")
    data = bytearray(path.read_bytes())
    data[76 + 4 : 76 + 12] = struct.pack("<I4s", 4, b"NONE")
    path.write_bytes(bytes(data))


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (cut, r"c\.png must be an image, got: .*truncated"),
        (lambda path: path.write_text("<html>404</html>"), "got: cannot identify"),
        (lambda path: path.unlink(), "^File not found: .*c"),
        (unknown_dds, r"c\.png must be an image, got: .+"),
    ],
)
def test_a_file_that_cannot_be_read_is_named_in_one_sentence(files, damage, words, workers):
    damage(files[2])
    with pytest.raises(InputError, match=words) as found:
        decode_images(files, 8, workers)
    assert "Traceback" not in str(found.value)


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ((["a.png"], 0), "size"), ((["a.png"], 8.5), "size"), ((["a.png"], 8, -1), "workers"),
        (("a.png",), "files"), (([],), "files"),
    ],
)  # fmt: skip
def test_misuse(arguments, name):
    with pytest.raises((ConfigError, InputError)) as found:
        decode_images(*arguments)
    assert found.value.argument == name


def test_without_the_extra(files, monkeypatch):
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    monkeypatch.setitem(sys.modules, "kornia.augmentation.auto", None)
    for call in (lambda: decode_images(files), lambda: auto_augment(IMAGES)):
        with pytest.raises(ConfigError, match=r"ddpn\[images\] is not installed"):
            call()


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
def test_what_cannot_be_augmented(images):
    with pytest.raises(InputError) as found:
        auto_augment(images)
    assert found.value.argument == "images"


def test_images_are_changed_in_groups_and_keep_their_places():
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
