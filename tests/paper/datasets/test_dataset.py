import numpy as np
import polars as pl
import pytest
import torch

from ddpn.paper.datasets.dataset import Dataset, as_counts, read_columns, split
from ddpn.runtime.errors import InputError


def dataset(n=20, shift=0.0, **options):
    return Dataset(
        "made_up",
        pl.DataFrame({"x": np.arange(n) + shift}),
        np.arange(n),
        split(n),
        license="none",
        citation="nobody",
        encodings={"centered": lambda table, train: {"x": (table["x"] - table["x"][train].mean()).to_numpy()}},
        **options,
    )


def test_parts_are_rows_of_the_split():
    data = dataset()
    for part in ("train", "validation", "test"):
        X, y = data.part(part)
        np.testing.assert_array_equal(y, getattr(data.split, part))
        np.testing.assert_array_equal(X["x"], y)


def test_parts_of_tensors():
    data = Dataset("clouds", torch.arange(10), np.arange(10), split(10), "none", "nobody")
    X, y = data.part("train")
    assert X.tolist() == y.tolist() == data.split.train.tolist()


def test_encodings_use_the_training_rows():
    data = dataset()
    assert data.part("train", "centered")[0]["x"].mean() == pytest.approx(0.0)
    np.testing.assert_allclose(data.features("centered")["x"], np.arange(20) - data.split.train.mean())
    np.testing.assert_array_equal(data.features()["x"], np.arange(20))


def test_invalid_arguments():
    with pytest.raises(InputError, match="must have the same number of rows, got 3, 4 and 5"):
        Dataset("bad", pl.DataFrame({"x": np.ones(3)}), np.ones(4, dtype=int), split(5), "none", "nobody")
    with pytest.raises(InputError, match="features of made_up must be 'raw' or 'centered', got 'cooked'"):
        dataset().features("cooked")
    with pytest.raises(InputError, match="part must be one of train, validation, test, got 'dev'"):
        dataset().part("dev")
    with pytest.raises(InputError, match="made_up has no folder of images"):
        dataset().files("train")


def test_counts_are_integers():
    counts = as_counts(np.array([1.0, 0.0, 1e7]), "visits")
    assert counts.dtype == np.int64
    assert counts.tolist() == [1, 0, 10_000_000]


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (-1.0, "non-negative integers, got -1 at row 3"),
        (0.5, "non-negative integers, got 0.5 at row 3"),
        (np.inf, "visits must be finite, got inf at row 3"),
        (1e300, r"visits must be at most 2\^53, got 1e\+300 at row 3"),
        (2.0**53 + 2, r"must be at most 2\^53, got .* at row 3"),
    ],
)
def test_invalid_counts(bad, words):
    with pytest.raises(InputError, match=words):
        as_counts(np.array([2.0**53, 0.0, bad]), "visits")


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
def test_invalid_splits(options, words):
    with pytest.raises(InputError, match=words):
        split(**{"n": 10} | options)


def test_columns_are_in_the_order_of_the_file_and_others_are_left_out(tmp_path):
    path = tmp_path / "file.csv"
    path.write_text('\ufeffid,who,n\r\n7,"a, b",1.5\r\n8,c, -2e3\r\n', encoding="utf-8")
    table = read_columns(path, numbers=["n"], texts=["who"])
    assert table.columns == ["who", "n"]
    assert table.rows() == [("a, b", 1.5), ("c", -2000.0)]


INVALID = {
    "missing column": ("a,t\n1,x\n", r"file\.csv must have the columns a, b, t, got no b"),
    "word": ("a,b,t\n1,2,x\n1,z,x\n", "Column b of .* must hold finite numbers, got 'z' at row 2"),
    "infinity": ("a,b,t\n1,inf,x\n", "Column b of .* must hold finite numbers, got 'inf' at row 1"),
    "missing number": ("a,b,t\n1,2,x\n1,,y\n", "Column b of .* must hold finite numbers, got none at row 2"),
    "missing text": ("a,b,t\n1,2,x\n2,3,\n", "Column t of .* must hold text, got none at row 2"),
    "empty file": ("", "is an empty file"),
}


@pytest.mark.parametrize(("content", "words"), INVALID.values(), ids=INVALID.keys())
def test_invalid_files(tmp_path, content, words):
    (tmp_path / "file.csv").write_text(content)
    with pytest.raises(InputError, match=words):
        read_columns(tmp_path / "file.csv", numbers=["a", "b"], texts=["t"])
