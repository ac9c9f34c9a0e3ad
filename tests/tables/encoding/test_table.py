"""Reading tables of every sort, and what is said about those that cannot be read."""

import re
import warnings
from datetime import date, datetime
from types import SimpleNamespace

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from scipy import sparse
from sklearn.base import BaseEstimator

from ddpn.runtime.errors import InputError
from ddpn.tables.encoding import table
from ddpn.tables.encoding.table import Column, read_table

ROWS = {"n": [1.5, None, -2.0], "b": [True, False, None], "t": ["x", None, "y"]}
KINDS = {"n": "number", "b": "flag", "t": "category"}


class Reader(BaseEstimator):
    """The estimator on whose behalf a table is read."""

    def read(self, X, reset: bool = True) -> list[Column]:
        return read_table(self, X, reset=reset)


def texts(column: Column) -> list[str | None]:
    return [None if code < 0 else column.levels[code] for code in column.values]


TABLES = {
    "pandas": lambda: pd.DataFrame(ROWS),
    "pandas objects": lambda: pd.DataFrame(ROWS, dtype=object),
    "pandas nullable": lambda: pd.DataFrame(ROWS).astype({"n": "Float64", "b": "boolean", "t": "string"}),
    "pandas category": lambda: pd.DataFrame(ROWS).astype({"b": "boolean", "t": "category"}),
    "pandas arrow": lambda: pa.table(ROWS).to_pandas(types_mapper=pd.ArrowDtype),
    "polars": lambda: pl.DataFrame(ROWS),
    "polars categorical": lambda: pl.DataFrame(ROWS).with_columns(pl.col("t").cast(pl.Categorical)),
    "polars enum": lambda: pl.DataFrame(ROWS).with_columns(pl.col("t").cast(pl.Enum(["y", "z", "x"]))),
    "pyarrow": lambda: pa.table(ROWS),
    "object array": lambda: np.array(list(zip(*ROWS.values(), strict=True)), dtype=object),
    "lists": lambda: [list(row) for row in zip(*ROWS.values(), strict=True)],
}


@pytest.mark.parametrize("make", TABLES.values(), ids=TABLES.keys())
def test_every_sort_of_table_gives_the_same_columns(make):
    reader = Reader()
    number, flag, category = reader.read(make())
    assert [number.kind, flag.kind, category.kind] == list(KINDS.values())
    np.testing.assert_array_equal(number.values, [1.5, np.nan, -2.0])
    np.testing.assert_array_equal(flag.values, [1, 0, np.nan])
    assert texts(category) == ROWS["t"]
    named = hasattr(make(), "columns")
    assert [number.name, flag.name, category.name] == (list(ROWS) if named else ["x0", "x1", "x2"])
    assert hasattr(reader, "feature_names_in_") == named
    assert reader.n_features_in_ == 3


@pytest.mark.parametrize("dtype", [np.int8, np.uint16, np.int64, np.float16, np.float32, np.float64, np.longdouble])
def test_arrays_of_any_number_type(dtype):
    read = Reader().read(np.array([[1, 2], [3, 4]], dtype=dtype))
    assert [column.values.tolist() for column in read] == [[1, 3], [2, 4]]


def test_arrays_of_booleans_text_and_bytes():
    assert [c.kind for c in Reader().read(np.eye(2, dtype=bool))] == ["flag", "flag"]
    for dtype in ("U", "S"):
        assert texts(Reader().read(np.array([["a"], ["b"], ["a"]], dtype=dtype))[0]) == ["a", "b", "a"]


@pytest.mark.parametrize("values", [[1, 2.5, None], [np.int64(1), 2.5, np.nan], [1, 2.5, pd.NA]])
def test_objects_that_are_numbers(values):
    (column,) = Reader().read(np.array(values, dtype=object)[:, None])
    assert column.kind == "number"
    np.testing.assert_array_equal(column.values, [1, 2.5, np.nan])


def test_objects_of_mixed_type_are_text_in_their_one_form():
    (column,) = Reader().read(np.array(["a", 1, np.nan, True, 1.0, " a"], dtype=object)[:, None])
    assert (column.kind, texts(column)) == ("category", ["a", "1", None, "true", "1", "a"])


@pytest.mark.parametrize(
    "series",
    [
        pd.Series([1, 2, 1], dtype="category"),
        pd.Series([1.0, 2.0, 1.0], dtype="category"),
        pd.Series(["1", "2 ", "1"], dtype="category"),
        pd.Series([1, "2", 1.0], dtype=object),
        pd.Series(["1", " 2", "1"], dtype="string"),
        pl.Series(["1", "2", " 1"]),
    ],
    ids=["integers", "floats", "text", "objects", "strings", "polars"],
)
def test_levels_have_one_form(series):
    frame = pl.DataFrame({"c": series}) if isinstance(series, pl.Series) else pd.DataFrame({"c": series})
    (column,) = Reader().read(frame)
    assert (column.kind, texts(column)) == ("category", ["1", "2", "1"])


def test_columns_with_nothing_in_them_are_numbers():
    for empty in (pl.DataFrame({"a": [None, None]}), np.full((2, 1), None), np.full((2, 1), np.nan)):
        (column,) = Reader().read(empty)
        assert column.kind == "number"
        assert np.isnan(column.values).all()


@pytest.mark.parametrize("make", [sparse.csr_matrix, sparse.csc_array, sparse.coo_array])
def test_sparse_matrices_are_spread_out(make):
    X = np.array([[0.0, 3.0], [np.nan, 0.0]])
    np.testing.assert_array_equal(np.stack([c.values for c in Reader().read(make(X))], axis=1), X)


def test_frames_of_sparse_columns():
    X = pd.DataFrame({"a": pd.arrays.SparseArray([0.0, 0.0, 2.0]), "b": [1, 2, 3]})
    assert [column.values.tolist() for column in Reader().read(X)] == [[0, 0, 2], [1, 2, 3]]


@pytest.mark.parametrize(
    ("X", "words"),
    [
        (pd.DataFrame({"c": pd.to_datetime(["2024-01-01"])}), "in column 'c'. Derive numbers from it"),
        (pl.DataFrame({"c": [date(2024, 1, 1), None]}), "in column 'c'. Derive numbers from it"),
        (pl.DataFrame({"c": [datetime(2024, 1, 2) - datetime(2024, 1, 1)]}), "in column 'c'. Derive numbers from it"),
        (pd.DataFrame({"c": [date(2024, 1, 1), None]}, dtype=object), "in column 'c'. Derive numbers from it"),
        (np.array([["2024-01-01"]], dtype="datetime64[D]"), "got dtype datetime64[D]. Derive numbers"),
        *((pd.DataFrame({"c": [cell]}), "'c'. Unnest it") for cell in ([1, 2], np.ones(2), {"a": 1}, b"x")),
        (pl.DataFrame({"c": [[1, 2], [3]]}), "in column 'c'. Unnest it"),
        (pd.DataFrame({"c": [1.0, -np.inf]}), "got -inf in column 'c' at row 1"),
        (np.array([[1.0], [-np.inf]], dtype=object), "got -inf in column 'x0' at row 1"),
        (pd.DataFrame({"c": [1.0, np.inf]}, index=["p", "q"]), "got inf in column 'c' at row q."),
        (pl.LazyFrame({"c": [1]}), "got a lazy one. Call collect()"),
        (pd.DataFrame(np.eye(3), columns=["a", "b", "a"]), "each column name once, got 'a' more than once"),
        (pd.DataFrame({"a": []}), "at least one row and one column"),
        (np.array([[np.inf]]), "Input X contains infinity"),
        (np.array([[1j]]), "Complex data not supported"),
        (np.array([1.0, 2.0]), "Expected 2D array, got 1D array"),
        (np.array(["a", "b"]), "Expected 2D array, got 1D array"),
        (np.empty((0, 3)), "Found array with 0 sample(s)"),
        (np.empty((3, 0)), "0 feature(s)"),
        (pd.Series([1.0]), "Expected a 2-dimensional container"),
    ],
)
def test_what_is_no_table_is_refused_with_a_way_out(X, words):
    with pytest.raises(ValueError, match=re.escape(words)):
        Reader().read(X)


def test_a_sparse_matrix_too_large_to_spread_out(monkeypatch):
    monkeypatch.setattr(table, "MAX_DENSE_CELLS", 5)
    with pytest.raises(InputError, match=r"sparse X must have at most 5 cells, .* got shape 2 x 3"):
        Reader().read(sparse.eye_array(2, 3))


def test_objects_that_are_nothing_of_the_kind():
    with pytest.raises(TypeError, match="argument must be a string or a real number, not 'dict'"):
        Reader().read(np.array([[{"a": 1}]], dtype=object))


@pytest.fixture(params=[pd.DataFrame, pl.DataFrame])
def fitted(request) -> SimpleNamespace:
    reader = Reader()
    reader.read(request.param(ROWS))
    return SimpleNamespace(reader=reader, frame=request.param)


def test_columns_in_another_order_are_put_right(fitted):
    swapped = fitted.frame({name: ROWS[name] for name in ("t", "n", "b")})
    assert [c.kind for c in fitted.reader.read(swapped, reset=False)] == list(KINDS.values())


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["n", "t"], "got no 'b'"),
        (["n", "b", "t", "u", "v"], "got also 'u', 'v'"),
        (["n", "T"], "got no 'b', 't' and also 'T'"),
        ([f"c{j}" for j in range(12)], "got no 'n', 'b', 't' and also 'c0', .*, 'c7' and 4 more"),
    ],
)
def test_missing_and_extra_columns_are_named(fitted, names, message):
    with pytest.raises(InputError, match=f"X must have the columns of fit, {message}"):
        fitted.reader.read(fitted.frame({name: [1.0] for name in names}), reset=False)


def test_an_array_after_a_frame_warns_as_scikit_learn_does(fitted):
    with pytest.warns(UserWarning, match="X does not have valid feature names"):
        read = fitted.reader.read(np.array([[1.0, True, "x"]], dtype=object), reset=False)
    assert [column.name for column in read] == list(ROWS)


def test_frames_without_text_names_are_read_by_position():
    reader = Reader()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        reader.read(pd.DataFrame(np.eye(3)))
        assert [c.name for c in reader.read(pd.DataFrame(np.eye(3)), reset=False)] == ["x0", "x1", "x2"]
    with pytest.raises(ValueError, match="X has 2 features, but Reader is expecting 3 features"):
        reader.read(np.eye(2), reset=False)


def test_a_table_is_read_once_within_a_prediction(monkeypatch):
    frame, calls, real = pl.DataFrame({"a": [1.0, 2.0], "b": ["x", "y"]}), [], table._read
    first, second, swapped = BaseEstimator(), BaseEstimator(), BaseEstimator()
    for reader in (first, second):
        read_table(reader, frame, reset=True)
    read_table(swapped, frame.select("b", "a"), reset=True)
    monkeypatch.setattr(table, "_read", lambda *arguments: calls.append(1) or real(*arguments))
    with table.reading_once():
        found = [read_table(reader, frame, reset=False) for reader in (first, second, swapped)]
    assert found[0] is found[1]
    assert [column.name for column in found[2]] == ["b", "a"]
    assert len(calls) == 2  # another order of columns is another table
    assert read_table(first, frame, reset=False) is not found[0]


def test_few_rows_are_read_like_many():
    frame = pl.DataFrame(
        {
            "number": [1.5, None, 3.0],
            "count": [1, 2, None],
            "flag": [True, None, False],
            "text": ["b", None, "b"],
            "level": ["01", "1.0", None],
        }
    )
    reader = BaseEstimator()
    read_table(reader, frame, reset=True)
    many = pl.concat([frame] * 20)
    for one, other in zip(read_table(reader, frame, reset=False), read_table(reader, many, reset=False), strict=True):
        assert (one.name, one.kind) == (other.name, other.kind)
        if one.kind != "category":
            np.testing.assert_array_equal(one.values, other.values[:3])
        else:
            named = [[None if code < 0 else each.levels[code] for code in each.values[:3]] for each in (one, other)]
            assert named[0] == named[1]
    with pytest.raises(InputError, match=r"finite numbers or missing values, got inf in column 'number'"):
        read_table(reader, frame.with_columns(number=pl.lit(np.inf)), reset=False)
