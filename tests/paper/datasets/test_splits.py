import numpy as np
import pytest

from ddpn.paper.datasets.splits import Split, split
from ddpn.runtime.errors import InputError


@pytest.mark.parametrize("n", [1, 2, 3, 7, 10, 99, 101, 1000, 17379, 20000, 100_000])
def test_the_published_recipe(n):
    order = np.random.default_rng(1998).permutation(n)
    train, validation, test = split(n)
    np.testing.assert_array_equal(train, order[: int(0.8 * n)])
    np.testing.assert_array_equal(validation, order[int(0.8 * n) : int(0.9 * n)])
    np.testing.assert_array_equal(test, order[int(0.9 * n) :])


def test_every_row_is_in_one_part():
    parts = split(57, seed=3, shares=(0.5, 0.2, 0.3))
    assert sorted(np.concatenate(list(parts))) == list(range(57))
    assert [len(part) for part in parts] == [28, 11, 18]
    assert parts.n == 57


def test_the_seed_determines_the_split():
    assert not np.array_equal(split(50, seed=1).train, split(50, seed=2).train)
    np.testing.assert_array_equal(split(50, seed=1).train, split(50, seed=1).train)


def test_empty_parts():
    parts = split(5, shares=(1.0, 0.0, 0.0))
    assert [len(part) for part in parts] == [5, 0, 0]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"shares": (0.8, 0.1)}, r"shares must be .* sum to 1, got \(0\.8, 0\.1\)"),
        ({"shares": (0.8, 0.1, 0.2)}, "shares must be"),
        ({"shares": (1.2, -0.1, -0.1)}, "shares must be"),
        ({"seed": -1}, "seed must be an integer of at least 0, got -1"),
        ({"n": 0}, "n must be an integer of at least 1, got 0"),
    ],
)
def test_invalid_arguments(options, words):
    with pytest.raises(InputError, match=words):
        split(**{"n": 10} | options)


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
    with pytest.raises(
        InputError, match=r"must belong to this data, got the fingerprint aaaaaaaaaaaa where .* bbbbbbbbbbbb"
    ):
        Split.load(tmp_path / "split.npz", "b" * 64)


@pytest.mark.parametrize("content", [b"", b"no split at all", b"PK\x03\x04 broken", None])
def test_an_invalid_file(tmp_path, content):
    path = tmp_path / "split.npz"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InputError, match=r"split\.npz must be a file that Split\.save wrote"):
        Split.load(path, "a")


def test_a_truncated_split(tmp_path):
    path = tmp_path / "split.npz"
    split(400).save(path, "a")
    path.write_bytes(path.read_bytes()[:-200])
    with pytest.raises(InputError, match=r"must be a file that Split\.save wrote"):
        Split.load(path, "a")
