import sys

import numpy as np
import pytest
from sklearn.linear_model import LinearRegression

from ddpn.datasets.table import Table
from ddpn.errors import ConfigError, InputError

NUMBERS = {"a": np.array([1.0, 2.0, 4.0]), "b": np.array([0.5, -1.0, 3.0])}
TEXT = {"c": np.array(["x", "y", "x"], dtype=object)}


def test_what_it_says_of_itself():
    table = Table(NUMBERS | TEXT)
    assert (table.names, table.text, table.shape, len(table)) == (("a", "b", "c"), ("c",), (3, 3), 3)
    assert table["c"].tolist() == ["x", "y", "x"]


def test_rows_keep_their_order():
    part = Table(NUMBERS | TEXT).rows(np.array([2, 0]))
    assert part["a"].tolist() == [4.0, 1.0]
    assert part["c"].tolist() == ["x", "x"]


def test_numbers_are_an_array():
    expected = np.array([[1.0, 0.5], [2.0, -1.0], [4.0, 3.0]])
    np.testing.assert_array_equal(Table(NUMBERS).matrix, expected)
    np.testing.assert_array_equal(np.asarray(Table(NUMBERS)), expected)
    assert np.asarray(Table(NUMBERS), dtype=np.float32).dtype == np.float32
    with pytest.raises(ValueError, match="copy must not be False"):
        np.array(Table(NUMBERS), copy=False)


def test_scikit_learn_takes_it():
    y = 2 * NUMBERS["a"] - 3 * NUMBERS["b"] + 1
    fit = LinearRegression().fit(Table(NUMBERS), y)
    np.testing.assert_allclose(fit.coef_, [2, -3])


def test_text_is_no_matrix():
    with pytest.raises(InputError, match=r"must be numbers to make a matrix, got text in c\. Use to_pandas"):
        _ = Table(NUMBERS | TEXT).matrix


def test_frames():
    table = Table(NUMBERS | TEXT)
    assert table.to_pandas().to_dict("list") == table.to_polars().to_dict(as_series=False)
    assert table.to_pandas()["b"].tolist() == [0.5, -1.0, 3.0]
    assert table.to_polars()["c"].to_list() == ["x", "y", "x"]


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_a_library_that_is_not_there(monkeypatch, library):
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(ConfigError, match=f"{library} must be installed .* pip install {library}"):
        getattr(Table(NUMBERS), f"to_{library}")()


@pytest.mark.parametrize("columns", [{}, {"a": np.ones(2), "b": np.ones(3)}])
def test_columns_that_do_not_fit(columns):
    with pytest.raises(InputError, match="columns must be one or more, of one length, got"):
        Table(columns)


def test_a_name_that_is_not_there():
    with pytest.raises(InputError, match="name must be one of a, b, got 'z'"):
        Table(NUMBERS)["z"]


def test_the_fingerprint_sees_every_change():
    y = np.array([1, 2, 3])
    text = {"c": np.array(["x", "y", "z"], dtype=object)}
    tables = [
        (NUMBERS | text, y),
        (NUMBERS | text, np.array([1, 2, 4])),
        ({"a": NUMBERS["a"], "B": NUMBERS["b"]} | text, y),
        ({"a": NUMBERS["b"], "b": NUMBERS["a"]} | text, y),
        ({"a": np.nextafter(NUMBERS["a"], 9), "b": NUMBERS["b"]} | text, y),
        (NUMBERS | {"c": np.array(["x", "y", "zz"], dtype=object)}, y),
        (NUMBERS, y),
    ]
    prints = [Table(columns).fingerprint(counts) for columns, counts in tables]
    assert len(set(prints)) == len(tables)
    assert Table(dict(NUMBERS | text)).fingerprint(y.astype(float)) == prints[0]
