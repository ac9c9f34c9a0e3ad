"""Single files that Pillow writes, valid and damaged."""

import struct
import sys

import numpy as np
import pytest
import torch

from ddpn.errors import ConfigError, InputError
from ddpn.inputs import Images
from ddpn.inputs.image_files import read_image

Image = pytest.importorskip("PIL.Image")
features = pytest.importorskip("PIL.features")
GRAYS = np.array([[0, 0x4D02], [0x8000, 0xFFFF]], dtype=np.uint16)


def flat(mode, color, path, **options):
    image = Image.new(mode, (6, 4), color)
    image.save(path, **options)


@pytest.mark.parametrize(
    ("mode", "color", "name", "rgb"),
    [
        ("L", 77, "a.png", (77, 77, 77)),
        ("1", 1, "a.png", (255, 255, 255)),
        ("LA", (77, 9), "a.png", (77, 77, 77)),
        ("RGBA", (10, 20, 30, 40), "a.png", (10, 20, 30)),
        ("CMYK", (0, 255, 255, 0), "a.jpg", (255, 0, 0)),
        ("I;16", 0x4D02, "a.png", (0x4D, 0x4D, 0x4D)),
    ],
)
def test_every_mode_becomes_rgb(tmp_path, mode, color, name, rgb):
    flat(mode, color, tmp_path / name)
    image = read_image(tmp_path / name, 5)
    # A jpeg keeps colors to a step or two.
    near = torch.tensor(rgb)[:, None, None].expand(3, 5, 5)
    torch.testing.assert_close(image.int(), near.int(), rtol=0, atol=2 if name.endswith("jpg") else 0)


@pytest.mark.parametrize("options", [{}, {"transparency": 0}, {"transparency": b"\x00\x80"}])
def test_palettes(tmp_path, options):
    image = Image.new("P", (6, 4), 1)
    image.putpalette([0, 0, 0, 200, 100, 50])
    image.save(tmp_path / "a.png", **options)
    image = read_image(tmp_path / "a.png", 5)
    assert image[:, 2, 2].tolist() == [200, 100, 50]


def test_a_rotation_in_exif_is_ignored(tmp_path):
    image = Image.fromarray(np.arange(20 * 30 * 3, dtype=np.uint8).reshape(20, 30, 3))
    exif = image.getexif()
    exif[0x0112] = 6
    image.save(tmp_path / "a.png", exif=exif)
    expected = np.array(image.resize((8, 8), Image.Resampling.BILINEAR))
    assert torch.equal(read_image(tmp_path / "a.png", 8), torch.from_numpy(expected).permute(2, 0, 1))


@pytest.mark.parametrize("name", ["a.png", "a.tif", "a.pgm"])
def test_sixteen_bits_of_gray_keep_the_upper_eight(tmp_path, name):
    Image.fromarray(GRAYS).save(tmp_path / name)
    found = read_image(tmp_path / name, 2)
    assert found.dtype == torch.uint8
    assert found.tolist() == [(GRAYS // 256).tolist()] * 3


@pytest.mark.parametrize(("dtype", "kind"), [("int32", "integers"), ("float32", "floats")])
@pytest.mark.parametrize("scale", [1.0, 1 / 65_535])
def test_thirty_two_bits_are_an_error(tmp_path, dtype, kind, scale):
    Image.fromarray((GRAYS * scale).astype(dtype)).save(tmp_path / "a.tif")
    with pytest.raises(InputError, match=rf"a\.tif must have 8 or 16 bits per channel, got 32-bit {kind}"):
        read_image(tmp_path / "a.tif", 8)
    Image.fromarray(GRAYS.astype(np.uint8)).save(tmp_path / "b.tif")
    _, report = Images(tmp_path, ["a.tif", "b.tif"], [1, 2], on_error="skip").check()
    assert report.files == ("a.tif",)
    assert kind in report.reasons[0]


def damaged_avif(path):
    if not features.check("avif"):
        pytest.skip("needs a Pillow with AVIF")
    rng = np.random.default_rng(0)
    Image.fromarray(rng.integers(0, 256, (64, 64, 3), dtype=np.uint8)).save(path)
    data = bytearray(path.read_bytes())
    start = data.index(b"mdat") + 4
    data[start:] = bytes(len(data) - start)
    path.write_bytes(bytes(data))


def dds_of_an_unknown_kind(path):
    Image.new("RGB", (4, 4)).save(path)
    data = bytearray(path.read_bytes())
    data[76 + 4 : 76 + 12] = struct.pack("<I4s", 4, b"NONE")
    path.write_bytes(bytes(data))


@pytest.mark.parametrize(("ending", "damage"), [("avif", damaged_avif), ("dds", dds_of_an_unknown_kind)])
def test_errors_of_formats_become_one_sentence(tmp_path, ending, damage):
    path = tmp_path / f"a.{ending}"
    damage(path)
    with pytest.raises(InputError, match=rf"a\.{ending} must be an image, got: .+"):
        read_image(path, 8)
    with pytest.raises(InputError, match="None of 1 images can be read"):
        Images(tmp_path, [path.name], [1], on_error="skip").check()


def test_without_pillow(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    with pytest.raises(ConfigError, match=r"ddpn\[images\] is not installed"):
        read_image(tmp_path / "a.png", 8)
