import numpy as np
import pytest

from ddpn.datasets.split import Split, split
from ddpn.errors import InputError


@pytest.mark.parametrize("n", [1, 2, 3, 7, 10, 99, 101, 1000, 17379, 20000, 100_000])
def test_the_published_recipe(n):
    order = np.random.default_rng(1998).permutation(n)
    train, validation, test = split(n)
    np.testing.assert_array_equal(train, order[: int(0.8 * n)])
    np.testing.assert_array_equal(validation, order[int(0.8 * n) : int(0.9 * n)])
    np.testing.assert_array_equal(test, order[int(0.9 * n) :])


def test_every_row_once_whatever_the_shares():
    parts = split(57, seed=3, parts=(0.5, 0.2, 0.3))
    assert sorted(np.concatenate(list(parts))) == list(range(57))
    assert [len(part) for part in parts] == [28, 11, 18]
    assert parts.n == 57


def test_the_seed_decides():
    assert not np.array_equal(split(50, seed=1).train, split(50, seed=2).train)
    np.testing.assert_array_equal(split(50, seed=1).train, split(50, seed=1).train)


def test_empty_parts():
    parts = split(5, parts=(1.0, 0.0, 0.0))
    assert [len(part) for part in parts] == [5, 0, 0]


@pytest.mark.parametrize("parts", [(0.8, 0.1), (0.8, 0.1, 0.2), (1.2, -0.1, -0.1)])
def test_shares_that_are_none(parts):
    with pytest.raises(InputError, match=r"parts must be three shares .* sum to 1, got"):
        split(10, parts=parts)


def test_no_rows():
    with pytest.raises(InputError, match="seed must be at least 0, got -1"):
        split(5, seed=-1)
    with pytest.raises(InputError, match="n must be at least 1, got 0"):
        split(0)


def test_saved_and_loaded(tmp_path):
    path = tmp_path / "split.npz"
    split(40).save(path, "abc")
    split(100).save(path, "def")
    for got, expected in zip(Split.load(path, "def"), split(100), strict=True):
        assert got.dtype == np.int64
        np.testing.assert_array_equal(got, expected)
    assert [file.name for file in tmp_path.iterdir()] == ["split.npz"]


def test_a_split_of_other_data(tmp_path):
    split(40).save(tmp_path / "split.npz", "a" * 64)
    with pytest.raises(InputError, match="must belong to the data, got rows of data with fingerprint aaaaaaaaaaaa"):
        Split.load(tmp_path / "split.npz", "b" * 64)


@pytest.mark.parametrize("content", [b"", b"no split at all", b"PK\x03\x04 broken", None])
def test_what_is_no_split(tmp_path, content):
    path = tmp_path / "split.npz"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InputError, match=r"split\.npz must be a split that Split\.save wrote"):
        Split.load(path, "a")


def test_a_truncated_split(tmp_path):
    path = tmp_path / "split.npz"
    split(400).save(path, "a")
    path.write_bytes(path.read_bytes()[:-200])
    with pytest.raises(InputError, match=r"must be a split that Split\.save wrote"):
        Split.load(path, "a")
