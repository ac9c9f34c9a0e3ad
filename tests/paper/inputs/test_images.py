"""Images written by Pillow, whose own decoding and resizing is the oracle."""

import pickle
import struct
import sys

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from ddpn.paper.inputs.images import Images, decode_images, read_image
from ddpn.runtime.errors import ConfigError, InputError

Image = pytest.importorskip("PIL.Image")
features = pytest.importorskip("PIL.features")

RNG = np.random.default_rng(7)
COLORS = RNG.integers(0, 256, (20, 30, 3), dtype=np.uint8)


@pytest.fixture
def root(tmp_path):
    """Five images, a, b and c png."""
    for i, name in enumerate("abcde"):
        Image.fromarray(np.roll(COLORS, i, axis=0)).save(tmp_path / f"{name}.png")
    return tmp_path


FILES = [f"{name}.png" for name in "abcde"]
Y = np.array([3, 0, 1, 7, 2])


def resized(image, size):
    """As Pillow has it, channels first."""
    return torch.from_numpy(np.array(image.resize((size, size), Image.Resampling.BILINEAR))).permute(2, 0, 1)


@pytest.mark.parametrize("size", [8, 64])
def test_items(root, size):
    found = Images(root, FILES, Y, size=size)
    assert len(found) == 5
    for i in range(5):
        image, y = found[i]
        assert (image.dtype, image.shape, image.is_contiguous()) == (torch.uint8, (3, size, size), True)
        assert (y.dtype, y.item()) == (torch.float32, Y[i])
        assert torch.equal(image, resized(Image.fromarray(np.roll(COLORS, i, axis=0)), size))
    assert not found.augment


def test_other_images_counts_and_sizes_have_another_identity(root):
    found = Images(root, FILES, Y, size=8)
    assert found.identity == Images(root, FILES, Y, size=8).identity
    others = [
        Images(root, FILES[::-1], Y, size=8), Images(root, FILES, Y[::-1].copy(), size=8),
        Images(root, FILES, Y, size=9), found.rows([0, 1, 2, 3]),
    ]  # fmt: skip
    assert all(other.identity != found.identity for other in others)


def test_the_default_size(root):
    assert Images(root, FILES, Y)[0][0].shape == (3, 224, 224)


def test_decode_images(root):
    found = Images(root, FILES, Y, size=8, transform=lambda image: image * 0)
    for workers in (0, 2):
        images, y = decode_images(found, workers=workers)
        assert (images.dtype, images.shape) == (torch.uint8, (5, 3, 8, 8))
        assert all(torch.equal(images[i], found.decode(i)) for i in range(5))
        assert torch.equal(y, torch.tensor(Y, dtype=torch.float32))


def test_a_transform(root):
    found = Images(root, FILES, Y, size=8, transform=lambda image: 255 - image)
    assert torch.equal(found[1][0], 255 - Images(root, FILES, Y, size=8)[1][0])


def augmented(found, workers, seed):
    loader = DataLoader(found, batch_size=2, num_workers=workers, generator=torch.Generator().manual_seed(seed))
    torch.manual_seed(seed)
    return torch.cat([images for images, _ in loader])


def test_augmenting_is_fixed_by_the_seed_and_the_workers(root):
    pytest.importorskip("kornia")
    found = Images(root, FILES, Y, size=16, augment=True)
    assert found.augment
    for workers in (0, 1):
        first = augmented(found, workers, 1)
        assert first.dtype == torch.uint8
        assert torch.equal(first, augmented(found, workers, 1))
        assert not torch.equal(first, augmented(found, workers, 2))
    again = pickle.loads(pickle.dumps(found))
    assert torch.equal(augmented(again, 0, 1), augmented(found, 0, 1))
    plain = decode_images(found)[0]
    assert torch.equal(plain, decode_images(Images(root, FILES, Y, size=16))[0])


@pytest.fixture
def damaged(root):
    """b ends too soon, d is not an image, e is missing."""
    content = (root / "b.png").read_bytes()
    (root / "b.png").write_bytes(content[: len(content) // 2])
    (root / "d.png").write_text("<html>404</html>")
    (root / "e.png").unlink()
    return root


UNREADABLE = [
    (1, r"b\.png must be an image, got: .*truncated"),
    (3, "got: cannot identify"),
    (4, "^File not found: .*e"),
]


@pytest.mark.parametrize(("row", "words"), UNREADABLE)
def test_an_image_that_cannot_be_read(damaged, row, words):
    with pytest.raises(InputError, match=words):
        Images(damaged, FILES, Y, size=8)[row]


def test_broken_chunks_of_a_png(root):
    data = bytearray((root / "a.png").read_bytes())
    data[10] ^= 0xFF
    (root / "a.png").write_bytes(bytes(data))
    with pytest.raises(InputError, match=r"a\.png must be an image"):
        Images(root, FILES, Y, size=8)[0]


@pytest.mark.parametrize("workers", [0, 1])
def test_check_leaves_unreadable_images_out(damaged, workers):
    good, reasons = Images(damaged, FILES, Y, size=8).check(workers=workers)
    assert list(reasons) == [1, 3, 4]
    assert "File not found" in reasons[4]
    assert good.files == ["a.png", "c.png"]
    assert decode_images(good)[1].tolist() == [3, 1]
    assert good.size == 8


def test_check_keeps_the_options(root):
    good, reasons = Images(root, FILES, Y, size=8, transform=torch.neg).check()
    assert reasons == {}
    assert (good.size, good.transform) == (8, torch.neg)
    pytest.importorskip("kornia")
    assert Images(root, FILES, Y, size=8, augment=True).check()[0].augment


@pytest.mark.parametrize("workers", [0, 1])
def test_an_error_from_a_worker_is_one_sentence(damaged, workers):
    with pytest.raises(InputError) as found:
        decode_images(Images(damaged, FILES, Y, size=8), workers=workers)
    assert str(found.value).startswith(f"{damaged / 'b.png'} must be an image")
    assert "Traceback" not in str(found.value)


def test_no_image_can_be_read(damaged):
    with pytest.raises(InputError, match=r"^None of 1 images can be read: .*d\.png must be"):
        Images(damaged, ["d.png"], [1]).check()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"size": 0}, "size must be an integer of at least 1, got 0"),
        ({"size": 8.5}, r"size must be an integer of at least 1, got 8\.5"),
        ({"size": "8"}, "size must be an integer .*, got '8'"),
        ({"size": (8, 8)}, r"size must be an integer .*, got \(8, 8\)"),
        ({"augment": True, "transform": torch.neg}, "augment must be False with a transform, got both"),
    ],
)
def test_misuse(root, options, words):
    with pytest.raises(ConfigError, match=words):
        Images(root, FILES, Y, **options)


@pytest.mark.parametrize(
    ("files", "y", "words"),
    [
        (None, [1], "files must be a list .*, got None"),
        ("a.png", [1], "files must be a list .*, got 'a.png'"),
        (["a.png"], None, "y must be a list .*, got None"),
        (["a.png"], ["a"], "y must hold numbers, got 'a' at row 0"),
        (["a.png", "b.png"], [1, None], "y must hold numbers, got None at row 1"),
        (["a.png"], [np.nan], "y must be finite, got nan at row 0"),
        (["a.png"], [-1], "y must hold non-negative integers, got -1 at row 0"),
        (["a.png"], [0.5], "y must hold non-negative integers, got 0.5 at row 0"),
        (["a.png"], [[1, 2]], r"y must have one dimension, got shape \(1, 2\)"),
        (["a.png", "b.png"], [1], "y must have one count per row of X, got 1 for 2 rows"),
        ([], [], "y must hold at least one count"),
    ],
)
def test_invalid_files_and_counts(root, files, y, words):
    with pytest.raises(InputError, match=f"^{words}"):
        Images(root, files, y)


@pytest.mark.parametrize("y", [[3.0, 1.0], (3, 1), torch.tensor([3, 1]), np.array([3, 1], dtype=object)])
def test_counts_of_every_kind(root, y):
    assert Images(root, FILES[:2], y).y.tolist() == [3.0, 1.0]


def test_rows(root):
    found = Images(root, FILES, Y, size=8)
    for index in ([4, 1], np.array([4, 1]), torch.tensor([4, 1]), [-1, -4]):
        assert found.rows(index).files == ["e.png", "b.png"]
        assert found.rows(index).y.tolist() == [2, 0]
    for index in (np.array([False, True, False, False, True]), [False, True, False, False, True], slice(1, None, 3)):
        assert found.rows(index).files == ["b.png", "e.png"]
    for index in ([], [9], np.array([True, False]), np.zeros(5, dtype=bool), ["a.png"], 3, None, [1.0], slice(0)):
        with pytest.raises(InputError, match=r"^index must select rows of 5 images, got "):
            found.rows(index)


@pytest.mark.parametrize("workers", [-1, 1.5])
def test_invalid_workers(root, workers):
    for read in (decode_images, Images.check):
        with pytest.raises(ConfigError, match=r"^workers must be an integer of at least 0, got "):
            read(Images(root, FILES, Y, size=8), workers=workers)


def test_without_pillow(root, monkeypatch):
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    with pytest.raises(ConfigError, match=r"ddpn\[images\] is not installed"):
        Images(root, FILES, Y)


# Single files ---------------------------------------------------------------------------------------------------------


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
    off = (image.int() - torch.tensor(rgb)[:, None, None]).abs().max()
    assert off <= (2 if name.endswith("jpg") else 0)


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
    _, reasons = Images(tmp_path, ["a.tif", "b.tif"], [1, 2]).check()
    assert list(reasons) == [0]
    assert kind in reasons[0]


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
        Images(tmp_path, [path.name], [1]).check()
