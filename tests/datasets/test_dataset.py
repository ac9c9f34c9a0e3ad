import numpy as np
import pytest

from ddpn.datasets.dataset import Dataset, as_counts
from ddpn.datasets.split import split
from ddpn.datasets.table import Table
from ddpn.errors import InputError


def dataset(n=20, shift=0.0):
    x = np.arange(n) + shift
    return Dataset(
        name="made_up",
        X=Table({"x": x}),
        y=np.arange(n),
        split=split(n),
        licence="none",
        citation="nobody",
        encodings={"centred": lambda table, train: Table({"x": table["x"] - table["x"][train].mean()})},
    )


def test_parts_are_rows_of_the_split():
    data = dataset()
    for part in ("train", "validation", "test"):
        X, y = data.part(part)
        np.testing.assert_array_equal(y, getattr(data.split, part))
        np.testing.assert_array_equal(X["x"], y)


def test_encodings_see_the_training_rows():
    data = dataset()
    assert data.part("train", "centred")[0]["x"].mean() == pytest.approx(0.0)
    expected = np.arange(20) - data.split.train.mean()
    np.testing.assert_allclose(data.features("centred")["x"], expected)
    np.testing.assert_array_equal(data.features()["x"], np.arange(20))


def test_a_split_is_kept_and_found_again(tmp_path):
    data = dataset()
    other = Dataset("made_up", data.X, data.y, split(20, seed=5), "none", "nobody")
    other.save_split(tmp_path / "split.npz")
    again = data.with_split(tmp_path / "split.npz")
    np.testing.assert_array_equal(again.split.train, split(20, seed=5).train)
    assert again.fingerprint == data.fingerprint
    with pytest.raises(InputError, match="must belong to the data"):
        dataset(shift=1e-9).with_split(tmp_path / "split.npz")


def test_rows_that_do_not_match():
    with pytest.raises(InputError, match="must have the same rows, got 3, 4 and 5"):
        Dataset("bad", Table({"x": np.ones(3)}), np.ones(4, dtype=int), split(5), "none", "nobody")


def test_names_that_are_not_there():
    with pytest.raises(InputError, match="features of made_up must be one of raw, centred, got 'cooked'"):
        dataset().features("cooked")
    with pytest.raises(InputError, match="part must be train, validation or test, got 'dev'"):
        dataset().part("dev")


@pytest.mark.parametrize(("bad", "shown"), [(-1.0, "-1"), (0.5, "0.5")])
def test_counts_that_are_none(bad, shown):
    with pytest.raises(InputError, match=f"visits must hold non-negative integers, got {shown} in row 3"):
        as_counts(np.array([1.0, 0.0, bad]), "visits")


@pytest.mark.parametrize("bad", [1e300, np.inf, 2.0**53 + 2])
def test_counts_too_large_for_an_integer(bad):
    with pytest.raises(InputError, match=r"visits must hold counts up to 2\^53, got .* in row 2\. Mend that row"):
        as_counts(np.array([2.0**53, bad]), "visits")


def test_counts():
    counts = as_counts(np.array([1.0, 0.0, 1e7]), "visits")
    assert counts.dtype == np.int64
    assert counts.tolist() == [1, 0, 10_000_000]
