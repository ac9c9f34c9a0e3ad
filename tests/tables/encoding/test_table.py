"""Reading tables of every sort, also of types that differ from those of fit, and what is said about other things."""

import pickle
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

from ddpn.members.member import TableReader
from ddpn.rows.count_rows import CountRows
from ddpn.runtime.errors import InputError
from ddpn.tables.encoding import FeatureEncoder, table
from ddpn.tables.encoding.table import Column, Levels, PreparedTable, read_table

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


# Types that change between fit and prediction -------------------------------------------------------------------------

CODES = [1, 2, 3, 1, 2, 1]


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


def inputs_of_levels(values) -> np.ndarray:
    """The inputs of later values by an encoder that was fitted to a category of integers."""
    encoder = FeatureEncoder().fit(pd.DataFrame({"c": pd.Series(CODES, dtype="category")}))
    return encoder.transform(values if isinstance(values, pl.DataFrame | pa.Table) else pd.DataFrame({"c": values}))


@pytest.mark.parametrize(
    "later",
    [
        CODES,
        [float(code) for code in CODES],
        [str(code) for code in CODES],
        [f"{code}.0" for code in CODES],
        [f"0{code}" for code in CODES],
        pd.Series(CODES, dtype="Int64"),
        pd.Series(CODES, dtype=object),
        pd.Series([str(code) for code in CODES], dtype="category"),
        pl.DataFrame({"c": CODES}),
        pl.DataFrame({"c": [float(code) for code in CODES]}),
        pa.table({"c": [str(code) for code in CODES]}),
    ],
    ids=str,
)
def test_categories_of_numbers_by_any_type(later):
    expected = np.eye(3)[[code - 1 for code in CODES]]
    assert inputs_of_levels(later).tolist() == expected.tolist()


def test_a_missing_value_that_turns_integers_into_floats():
    later = pd.Series([1, None, 2])
    assert later.dtype == np.float64
    assert inputs_of_levels(later).tolist() == [[1, 0, 0], [0, 0, 0], [0, 1, 0]]


def test_booleans_by_any_type():
    flags = [True, False, None]
    encoder = FeatureEncoder().fit(pd.DataFrame({"f": pd.Series([True, False, True], dtype="boolean")}))
    expected = encoder.transform(pd.DataFrame({"f": pd.Series(flags, dtype="boolean")})).tolist()
    for later in ([1.0, 0.0, None], ["True", "false", None], ["1", "0", None], pd.Series(flags, dtype=object)):
        assert encoder.transform(pd.DataFrame({"f": later})).tolist() == expected
    with pytest.raises(InputError, match="'f' must hold booleans as in fit, got 'maybe' at row 1"):
        encoder.transform(pd.DataFrame({"f": ["true", "maybe"]}))


def test_numbers_by_any_type():
    encoder = FeatureEncoder().fit(pd.DataFrame({"n": [1.0, 2.5, 4.0]}))
    expected = encoder.transform(pd.DataFrame({"n": [1.0, None, 4.0]})).tolist()
    for later in (["1", None, "4.0"], [" 1", None, "4e0"], pd.Series(["1", None, "4"], dtype="category")):
        assert encoder.transform(pd.DataFrame({"n": later})).tolist() == expected
    with pytest.raises(InputError, match="'n' must hold numbers as in fit, got 'n/a' at rows 1, 2"):
        encoder.transform(pd.DataFrame({"n": ["1", "n/a", "n/a"]}))


@pytest.mark.parametrize("known", [["a", "b"], ["007", "12"]])
def test_text_is_not_guessed_from_numbers(known):
    encoder = FeatureEncoder().fit(pd.DataFrame({"c": known}))
    with pytest.raises(InputError, match="'c' must hold text as in fit, got numbers"):
        encoder.transform(pd.DataFrame({"c": [7, 12]}))
    with pytest.raises(InputError, match="'c' must hold text as in fit, got booleans"):
        encoder.transform(pd.DataFrame({"c": [True, False]}))


# A table that is read already -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def frame() -> pl.DataFrame:
    rng = np.random.default_rng(0)
    age = [None if rng.random() < 0.1 else float(v) for v in rng.normal(50, 9, 90)]
    columns = {"age": age, "ward": rng.choice(["A", "B"], 90), "urgent": rng.random(90) < 0.5}
    return pl.DataFrame(columns)


def test_parts_are_fitted_as_if_they_had_been_read_alone(frame):
    frame = frame.with_columns(ward=pl.Series(["A", "B", "C"] * 30))
    rows = np.flatnonzero(frame["ward"].to_numpy() != "B")
    part = PreparedTable.of_all(frame)[0].rows(rows)
    alone, prepared = TableReader(), TableReader()
    expected, found = alone.fit(frame[rows]), prepared.fit(part)
    assert prepared.as_dict() == alone.as_dict()
    for column, same in zip(found, expected, strict=True):
        assert (column.name, column.kind, set(column.levels)) == (same.name, same.kind, set(same.levels))
    levels = [[None if code < 0 else c.levels[code] for code in c.values] for c in (found[1], expected[1])]
    assert levels[0] == levels[1]
    assert "B" not in levels[0]


def test_other_tables_have_the_columns_of_the_first(frame):
    first, second = PreparedTable.of_all(frame, frame.select(reversed(frame.columns)))
    assert [column.name for column in second.columns] == [column.name for column in first.columns]
    with pytest.raises(InputError, match="no 'age'"):
        PreparedTable.of_all(frame, frame.drop("age"))


def test_samples_of_equal_tables_have_equal_digests(frame):
    y = np.arange(90.0)
    digests = [CountRows(PreparedTable.of_all(frame)[0], y).digest() for _ in range(2)]
    assert digests[0] == digests[1]
    assert digests[0] != CountRows(PreparedTable.of_all(frame.with_columns(age=pl.lit(1.0)))[0], y).digest()


def test_rows_of_a_table_share_what_was_looked_up_about_its_levels():
    column = Reader().read(pd.DataFrame({"ward": ["A", "B", None, "A"]}))[0]
    calls = []

    def count(levels: Levels) -> int:
        calls.append(levels)
        return len(levels)

    whole = PreparedTable([column])
    keys = {"A": 1.0}, {"A": 1.0}
    for start in (0, 2):
        levels = whole.rows(slice(start, start + 2)).columns[0].levels
        assert [levels.compute_once(key, count) for key in keys] == [2, 2]
    assert len(calls) == len(keys)  # equal keys that are different objects are looked up apart


def test_levels_are_looked_up_anew_in_another_process():
    levels = Levels(("A", "B"))
    key: dict[str, float] = {}
    assert levels.compute_once(key, len) == 2
    sent = pickle.loads(pickle.dumps(levels))
    assert sent == levels
    assert isinstance(sent, Levels)
    assert sent.compute_once(key, lambda names: "".join(names)) == "AB"


def test_levels_keep_a_bounded_number_of_results(monkeypatch):
    monkeypatch.setattr(table, "_MAX_RESULTS", 2)
    levels, keys = Levels(("A",)), [{}, {}, {}]
    first = [levels.compute_once(key, lambda names: object()) for key in keys]
    assert levels.compute_once(keys[2], lambda names: object()) is first[2]
    assert levels.compute_once(keys[0], lambda names: object()) is not first[0]
