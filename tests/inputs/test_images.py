"""Pictures written by Pillow; what it decodes and resizes itself is the oracle."""

import pickle
import sys

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from ddpn.datasets import Dataset, Pictures, Table, in_memory, split
from ddpn.datasets.coco_people import coco_people
from ddpn.errors import ConfigError, InputError

Image = pytest.importorskip("PIL.Image")

RNG = np.random.default_rng(7)
COLOURS = RNG.integers(0, 256, (20, 30, 3), dtype=np.uint8)


@pytest.fixture
def root(tmp_path):
    """Five pictures, a, b and c png."""
    for i, name in enumerate("abcde"):
        Image.fromarray(np.roll(COLOURS, i, axis=0)).save(tmp_path / f"{name}.png")
    return tmp_path


FILES = [f"{name}.png" for name in "abcde"]
Y = np.array([3, 0, 1, 7, 2])


def resized(image, size):
    """As Pillow has it, channels first."""
    return torch.from_numpy(np.array(image.resize((size, size), Image.Resampling.BILINEAR))).permute(2, 0, 1)


@pytest.mark.parametrize("size", [8, 64])
def test_items(root, size):
    found = Pictures(root, FILES, Y, size=size)
    assert len(found) == 5
    for i in range(5):
        picture, y = found[i]
        assert (picture.dtype, picture.shape, picture.is_contiguous()) == (torch.uint8, (3, size, size), True)
        assert (y.dtype, y.item()) == (torch.float32, Y[i])
        assert torch.equal(picture, resized(Image.fromarray(np.roll(COLOURS, i, axis=0)), size))
    assert found.augmenter is None


def test_other_pictures_counts_and_sizes_have_another_identity(root):
    found = Pictures(root, FILES, Y, size=8)
    assert found.identity == Pictures(root, FILES, Y, size=8).identity
    others = [
        Pictures(root, FILES[::-1], Y, size=8), Pictures(root, FILES, Y[::-1].copy(), size=8),
        Pictures(root, FILES, Y, size=9), found.rows([0, 1, 2, 3]),
    ]  # fmt: skip
    assert all(other.identity != found.identity for other in others)


def test_the_usual_size(root):
    assert Pictures(root, FILES, Y)[0][0].shape == (3, 224, 224)


def test_in_memory(root):
    found = Pictures(root, FILES, Y, size=8, transform=lambda picture: picture * 0)
    for workers in (0, 2):
        pictures, y = in_memory(found, workers=workers)
        assert (pictures.dtype, pictures.shape) == (torch.uint8, (5, 3, 8, 8))
        assert all(torch.equal(pictures[i], found.decoded(i)) for i in range(5))
        assert torch.equal(y, torch.tensor(Y, dtype=torch.float32))


def test_a_transform_of_ones_own(root):
    found = Pictures(root, FILES, Y, size=8, transform=lambda picture: 255 - picture)
    assert torch.equal(found[1][0], 255 - Pictures(root, FILES, Y, size=8)[1][0])


def augmented(found, workers, seed):
    loader = DataLoader(found, batch_size=2, num_workers=workers, generator=torch.Generator().manual_seed(seed))
    torch.manual_seed(seed)
    return torch.cat([pictures for pictures, _ in loader])


def test_augmenting_is_fixed_by_the_seed_and_the_workers(root):
    pytest.importorskip("kornia")
    found = Pictures(root, FILES, Y, size=16, augment=True)
    assert found.augmenter in ("torchvision", "kornia")
    for workers in (0, 2):
        first = augmented(found, workers, 1)
        assert first.dtype == torch.uint8
        assert torch.equal(first, augmented(found, workers, 1))
        assert not torch.equal(first, augmented(found, workers, 2))
    again = pickle.loads(pickle.dumps(found))
    assert torch.equal(augmented(again, 0, 1), augmented(found, 0, 1))
    plain = in_memory(found)[0]
    assert torch.equal(plain, in_memory(Pictures(root, FILES, Y, size=16))[0])


@pytest.fixture
def damaged(root):
    """b ends too soon, d is no picture, e is not there."""
    whole = (root / "b.png").read_bytes()
    (root / "b.png").write_bytes(whole[: len(whole) // 2])
    (root / "d.png").write_text("<html>404</html>")
    (root / "e.png").unlink()
    return root


@pytest.mark.parametrize(("row", "why"), [(1, "truncated"), (3, "cannot identify"), (4, "no such file")])
def test_a_picture_that_cannot_be_read_is_named(damaged, row, why):
    with pytest.raises(InputError, match=rf"{FILES[row]} must be a picture, got one that .* \(.*{why}") as found:
        Pictures(damaged, FILES, Y, size=8)[row]
    assert "checked()" not in str(found.value)
    with pytest.raises(InputError, match=r"Leave such pictures out with checked\(\)"):
        Pictures(damaged, FILES, Y, size=8, on_error="skip")[row]


def test_broken_chunks_of_a_png_are_told_too(root):
    data = bytearray((root / "a.png").read_bytes())
    data[10] ^= 0xFF
    (root / "a.png").write_bytes(bytes(data))
    with pytest.raises(InputError, match=r"a\.png must be a picture"):
        Pictures(root, FILES, Y, size=8)[0]


@pytest.mark.parametrize("workers", [0, 2])
def test_checked_leaves_out_counts_and_names(damaged, workers):
    good, report = Pictures(damaged, FILES, Y, size=8, on_error="skip").checked(workers=workers)
    assert report.count == 3
    assert report.files == ("b.png", "d.png", "e.png")
    assert "no such file" in report.reasons[2]
    assert report.kept.tolist() == [0, 2]
    assert str(report) == "3 of 5 pictures cannot be read and are left out: b.png, d.png, e.png"
    assert good.files == ["a.png", "c.png"]
    assert in_memory(good)[1].tolist() == [3, 1]
    assert good.size == 8


def test_checked_keeps_the_options(root):
    whole, report = Pictures(root, FILES, Y, size=8, on_error="skip", transform=torch.neg).checked()
    assert str(report) == "all 5 pictures can be read"
    assert (whole.size, whole.on_error, whole.transform) == (8, "skip", torch.neg)
    pytest.importorskip("kornia")
    assert Pictures(root, FILES, Y, size=8, augment=True).checked()[0].augmenter is not None


@pytest.mark.parametrize("workers", [0, 1])
def test_an_error_from_a_worker_is_one_sentence(damaged, workers):
    for read in (in_memory, Pictures.checked):
        with pytest.raises(InputError) as found:
            read(Pictures(damaged, FILES, Y, size=8), workers=workers)
        assert str(found.value).startswith(f"{damaged / 'b.png'} must be a picture")
        assert "Traceback" not in str(found.value)


def test_no_picture_can_be_read(damaged):
    with pytest.raises(InputError, match=r"pictures must be readable, got none of 1: .*d\.png must be"):
        Pictures(damaged, ["d.png"], [1], on_error="skip").checked()


def test_parts_of_a_data_set(root):
    rows = split(5, parts=(0.6, 0.2, 0.2))
    data = Dataset("five", Table({"file": np.array(FILES, dtype=object)}), Y, rows, "mine", "me", root=root)
    found = Pictures.of(data, "train", size=8)
    assert found.files == [FILES[row] for row in rows.train]
    assert found.y.tolist() == Y[rows.train].tolist()
    nowhere = Dataset("five", data.X, Y, rows, "mine", "me")
    with pytest.raises(InputError, match="data must know the folder of its pictures as root, got none in five"):
        Pictures.of(nowhere, "train")


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"size": 0}, "size must be at least 1, got 0"),
        ({"size": 8.5}, r"size must be a whole number, got 8\.5"),
        ({"size": "8"}, "size must be a whole number, got '8'"),
        ({"size": (8, 8)}, r"size must be a whole number, got \(8, 8\)"),
        ({"on_error": "ignore"}, 'on_error must be "raise" or "skip", got \'ignore\''),
        ({"augment": True, "transform": torch.neg}, "augment must be False with a transform, got both"),
    ],
)
def test_misuse(root, options, sentence):
    with pytest.raises(ConfigError, match=sentence):
        Pictures(root, FILES, Y, **options)


def test_files_and_counts_must_pair(root):
    for files, y in ((FILES, Y[1:]), ([], [])):
        with pytest.raises(InputError, match=f"must be as many, one or more, got {len(files)} and {len(y)}"):
            Pictures(root, files, y)


@pytest.mark.parametrize(
    ("files", "y", "sentence"),
    [
        (None, [1], "files must be a list, got None"),
        ("a.png", [1], "files must be a list, got 'a.png'"),
        (["a.png"], None, "y must be a list, got None"),
        (["a.png"], ["a"], "y must hold non-negative integers, got 'a' in row 1"),
        (["a.png", "b.png"], [1, None], "y must hold non-negative integers, got None in row 2"),
        (["a.png"], [np.nan], "y must hold non-negative integers, got nan in row 1. Recode or drop those rows"),
        (["a.png"], [-1], "y must hold non-negative integers, got -1 in row 1"),
        (["a.png"], [0.5], "y must hold non-negative integers, got 0.5 in row 1"),
        (["a.png"], [[1]], r"y must be one count a picture, got shape \(1, 1\)"),
    ],
)
def test_files_and_counts_that_are_none(root, files, y, sentence):
    with pytest.raises(InputError, match=f"^{sentence}"):
        Pictures(root, files, y)


@pytest.mark.parametrize("y", [[3.0, 1.0], (3, 1), torch.tensor([3, 1]), np.array([3, 1], dtype=object)])
def test_counts_of_every_kind(root, y):
    assert Pictures(root, FILES[:2], y).y.tolist() == [3.0, 1.0]


def test_rows(root):
    found = Pictures(root, FILES, Y, size=8)
    for index in ([4, 1], np.array([4, 1]), torch.tensor([4, 1]), [-1, -4]):
        assert found.rows(index).files == ["e.png", "b.png"]
        assert found.rows(index).y.tolist() == [2, 0]
    for index in (np.array([False, True, False, False, True]), [False, True, False, False, True], slice(1, None, 3)):
        assert found.rows(index).files == ["b.png", "e.png"]
    for index in ([], [9], np.array([True, False]), np.zeros(5, dtype=bool), ["a.png"], 3, None, [1.0], slice(0)):
        with pytest.raises(InputError, match=r"^index must be rows of 5 pictures, one or more, got .* Count them"):
            found.rows(index)


@pytest.mark.parametrize("workers", [-1, 1.5])
def test_workers_that_are_none(root, workers):
    for read in (in_memory, Pictures.checked):
        with pytest.raises(ConfigError, match=r"^workers must be .*, got .*\. Use 0 to read them in this process\."):
            read(Pictures(root, FILES, Y, size=8), workers=workers)


def test_without_pillow(root, monkeypatch):
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(ConfigError, match=r"pillow must be installed to read pictures, got none\. .*ddpn\[images\]"):
        Pictures(root, FILES, Y)


def test_some_real_pictures(real_data):
    data = coco_people(real_data("coco_people/person_counts.csv"))
    found = Pictures(data.root, data.X["file"][:64], data.y[:64])
    pictures, y = in_memory(found)
    assert pictures.shape == (64, 3, 224, 224)
    assert y.tolist() == data.y[:64].tolist()
    # Photographs: neither dark nor white, nor one like another.
    assert 20 < pictures.float().mean() < 235
    assert len({picture.numpy().tobytes() for picture in pictures}) == 64
