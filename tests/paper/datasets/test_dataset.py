import numpy as np
import polars as pl
import pytest
import torch

from ddpn.paper.datasets.dataset import Dataset, as_counts, fingerprint
from ddpn.paper.datasets.splits import split
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


def test_a_split_is_saved_and_loaded(tmp_path):
    data = dataset()
    other = Dataset("made_up", data.X, data.y, split(20, seed=5), "none", "nobody")
    other.save_split(tmp_path / "split.npz")
    again = data.with_split(tmp_path / "split.npz")
    np.testing.assert_array_equal(again.split.train, split(20, seed=5).train)
    assert again.fingerprint == data.fingerprint
    with pytest.raises(InputError, match="must belong to this data"):
        dataset(shift=1e-9).with_split(tmp_path / "split.npz")


def test_invalid_arguments():
    with pytest.raises(InputError, match="must have the same number of rows, got 3, 4 and 5"):
        Dataset("bad", pl.DataFrame({"x": np.ones(3)}), np.ones(4, dtype=int), split(5), "none", "nobody")
    with pytest.raises(InputError, match="features of made_up must be 'raw' or 'centered', got 'cooked'"):
        dataset().features("cooked")
    with pytest.raises(InputError, match="part must be one of train, validation, test, got 'dev'"):
        dataset().part("dev")
    with pytest.raises(InputError, match="made_up has no folder of images"):
        dataset().images("train")


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


def test_the_fingerprint_changes_with_names_kinds_and_values():
    a, b, y = np.array([1.0, 2.0, 4.0]), np.array([0.5, -1.0, 3.0]), np.array([1, 2, 3])
    text = {"c": np.array(["x", "y", "z"], dtype=object)}
    tables = [
        ({"a": a, "b": b} | text, y),
        ({"a": a, "b": b} | text, np.array([1, 2, 4])),
        ({"a": a, "B": b} | text, y),
        ({"a": b, "b": a} | text, y),
        ({"a": np.nextafter(a, 9), "b": b} | text, y),
        ({"a": a, "b": b, "c": np.array(["x", "y", "zz"], dtype=object)}, y),
        ({"a": a, "b": b}, y),
    ]
    prints = [fingerprint(columns, counts) for columns, counts in tables]
    assert len(set(prints)) == len(tables)
    assert fingerprint({"a": a, "b": b} | text, y.astype(float)) == prints[0]
