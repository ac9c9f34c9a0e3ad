"""Test tables of every sort, also of types that differ from those of fit, and messages about other objects."""

import json
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

from ddpn import CountRegressor
from ddpn.rows.count_rows import CountRows
from ddpn.runtime.errors import InputError
from ddpn.tables import columns, reading
from ddpn.tables.columns import Column, ColumnTable, Kind, Levels
from ddpn.tables.encoding import FeatureEncoder
from ddpn.tables.reading import read_table
from ddpn.tables.schema import Schema

ROWS = {"n": [1.5, None, -2.0], "b": [True, False, None], "t": ["x", None, "y"]}
KINDS = {"n": Kind.NUMBER, "b": Kind.BOOLEAN, "t": Kind.CATEGORY}


def list_texts(column: Column) -> list[str | None]:
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
    table = read_table(make())
    number, flag, category = table
    assert [number.kind, flag.kind, category.kind] == list(KINDS.values())
    np.testing.assert_array_equal(number.values, [1.5, np.nan, -2.0])
    np.testing.assert_array_equal(flag.values, [1, 0, np.nan])
    assert list_texts(category) == ROWS["t"]
    named = hasattr(make(), "columns")
    assert [number.name, flag.name, category.name] == (list(ROWS) if named else ["x0", "x1", "x2"])
    assert table.is_named == named
    assert table.shape == (3, 3)


@pytest.mark.parametrize("dtype", [np.int8, np.uint16, np.int64, np.float16, np.float32, np.float64, np.longdouble])
def test_arrays_of_any_number_type_are_read(dtype):
    read = read_table(np.array([[1, 2], [3, 4]], dtype=dtype))
    assert [column.values.tolist() for column in read] == [[1, 3], [2, 4]]


def test_arrays_of_booleans_text_and_bytes_are_read():
    assert read_table(np.eye(2, dtype=bool)).kinds == [Kind.BOOLEAN] * 2
    for dtype in ("U", "S"):
        assert list_texts(read_table(np.array([["a"], ["b"], ["a"]], dtype=dtype))[0]) == ["a", "b", "a"]


@pytest.mark.parametrize("values", [[1, 2.5, None], [np.int64(1), 2.5, np.nan], [1, 2.5, pd.NA]])
def test_objects_that_are_numbers_are_read(values):
    (column,) = read_table(np.array(values, dtype=object)[:, None])
    assert column.kind == Kind.NUMBER
    np.testing.assert_array_equal(column.values, [1, 2.5, np.nan])


def test_mixed_objects_become_levels_with_one_name_per_value():
    (column,) = read_table(np.array(["a", 1, np.nan, True, 1.0, " a"], dtype=object)[:, None])
    assert (column.kind, list_texts(column)) == (Kind.NUMBER_CATEGORY, ["a", "1", None, "true", "1", "a"])


def test_columns_with_nothing_in_them_are_numbers():
    for empty in (pl.DataFrame({"a": [None, None]}), np.full((2, 1), None), np.full((2, 1), np.nan)):
        (column,) = read_table(empty)
        assert column.kind == Kind.NUMBER
        assert np.isnan(column.values).all()


@pytest.mark.parametrize("make", [sparse.csr_matrix, sparse.csc_array, sparse.coo_array])
def test_sparse_matrices_are_spread_out(make):
    X = np.array([[0.0, 3.0], [np.nan, 0.0]])
    np.testing.assert_array_equal(np.stack([c.values for c in read_table(make(X))], axis=1), X)


def test_frames_of_sparse_columns_are_read():
    X = pd.DataFrame({"a": pd.arrays.SparseArray([0.0, 0.0, 2.0]), "b": [1, 2, 3]})
    assert [column.values.tolist() for column in read_table(X)] == [[0, 0, 2], [1, 2, 3]]


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
        (pd.DataFrame(np.eye(3), columns=["a", "b", "a"]), "unique column names, got 'a' more than once"),
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
def test_objects_that_are_no_table_are_refused_with_a_way_out(X, words):
    with pytest.raises(ValueError, match=re.escape(words)):
        read_table(X)


def test_a_sparse_matrix_too_large_to_spread_out_is_refused(monkeypatch):
    monkeypatch.setattr(reading, "MAX_DENSE_CELLS", 5)
    with pytest.raises(InputError, match=r"sparse X must have at most 5 cells, .* got shape 2 x 3"):
        read_table(sparse.eye_array(2, 3))


def test_objects_that_are_no_numbers_or_text_are_refused():
    with pytest.raises(TypeError, match="argument must be a string or a real number, not 'dict'"):
        read_table(np.array([[{"a": 1}]], dtype=object))


@pytest.fixture(params=[pd.DataFrame, pl.DataFrame])
def schema_and_frame(request) -> SimpleNamespace:
    return SimpleNamespace(schema=Schema.from_table(read_table(request.param(ROWS))), frame=request.param)


def test_columns_in_another_order_are_put_right(schema_and_frame):
    swapped = schema_and_frame.frame({name: ROWS[name] for name in ("t", "n", "b")})
    assert schema_and_frame.schema.parse(swapped).kinds == list(KINDS.values())


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["n", "t"], "'b' is missing"),
        (["n", "b", "t", "u", "v"], "'u', 'v' are not columns of fit. Leave them out."),
        (["n", "T"], "'b', 't' are missing, and 'T' is not a column of fit. Is 'T' the column 't'"),
        (
            [f"c{j}" for j in range(12)],
            "'n', 'b', 't' are missing, and 'c0', .*, 'c7' and 4 more are not columns of fit.",
        ),
    ],
)
def test_missing_and_extra_columns_are_named(schema_and_frame, names, message):
    with pytest.raises(InputError, match=f"X must have the columns of fit: {message}"):
        schema_and_frame.schema.parse(schema_and_frame.frame({name: [1.0] for name in names}))


def test_an_array_after_a_frame_warns_as_scikit_learn_does(schema_and_frame):
    with pytest.warns(UserWarning, match="X does not have valid feature names, but Model was fitted"):
        read = schema_and_frame.schema.parse(np.array([[1.0, True, "x"]], dtype=object))
    assert read.names == list(ROWS)


def test_frames_without_text_names_are_read_by_position():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        schema = Schema.from_table(read_table(pd.DataFrame(np.eye(3))))
        assert schema.parse(pd.DataFrame(np.eye(3))).names == ["x0", "x1", "x2"]
    with pytest.raises(ValueError, match=r"X has 2 features, but \w+ is expecting 3 features"):
        schema.parse(np.eye(2))


# Types that change between fit and prediction -------------------------------------------------------------------------

CODES = [1, 2, 3, 1, 2, 1]


FEW_ROWS = {
    "number": [1.5, None, 3.0],
    "count": [1, 2, None],
    "flag": [True, None, False],
    "text": ["b", None, "b"],
    "level": ["01", "1.0", None],
}
PANDAS_TYPES = {"count": "Int64", "flag": "boolean", "text": "string"}


@pytest.mark.parametrize(
    ("frame", "repeat"),
    [
        (pl.DataFrame(FEW_ROWS), lambda frame: pl.concat([frame] * 20)),
        (pd.DataFrame(FEW_ROWS), lambda frame: pd.concat([frame] * 20)),
        (pd.DataFrame(FEW_ROWS).astype(PANDAS_TYPES), lambda frame: pd.concat([frame] * 20)),
        (pd.DataFrame(FEW_ROWS).astype({"text": "category"}), lambda frame: pd.concat([frame] * 20)),
    ],
    ids=["polars", "pandas", "pandas with NA", "pandas with categories"],
)
def test_few_rows_are_read_like_many(frame, repeat):
    schema = Schema.from_table(read_table(frame))
    many = repeat(frame)
    for one, other in zip(schema.parse(frame), schema.parse(many), strict=True):
        assert (one.name, one.kind) == (other.name, other.kind)
        if not one.is_category:
            np.testing.assert_array_equal(one.values, other.values[:3])
        else:
            named = [
                [None if code < 0 else column.levels[code] for code in column.values[:3]] for column in (one, other)
            ]
            assert named[0] == named[1]
    with pytest.raises(InputError, match=r"finite numbers or missing values, got inf in column 'number'"):
        schema.parse(
            frame.with_columns(number=pl.lit(np.inf))
            if isinstance(frame, pl.DataFrame)
            else frame.assign(number=np.inf)
        )


def encode_levels(values) -> np.ndarray:
    """Encode later values by an encoder that was fitted to a category of integers."""
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
def test_categories_of_numbers_are_read_from_any_type(later):
    expected = np.eye(3)[[code - 1 for code in CODES]]
    assert encode_levels(later).tolist() == expected.tolist()


def test_integers_with_a_missing_value_keep_their_levels():
    later = pd.Series([1, None, 2])
    assert later.dtype == np.float64
    assert encode_levels(later).tolist() == [[1, 0, 0], [0, 0, 0], [0, 1, 0]]


def test_booleans_are_read_from_any_type():
    flags = [True, False, None]
    encoder = FeatureEncoder().fit(pd.DataFrame({"f": pd.Series([True, False, True], dtype="boolean")}))
    expected = encoder.transform(pd.DataFrame({"f": pd.Series(flags, dtype="boolean")})).tolist()
    for later in ([1.0, 0.0, None], ["True", "false", None], ["1", "0", None], pd.Series(flags, dtype=object)):
        assert encoder.transform(pd.DataFrame({"f": later})).tolist() == expected
    with pytest.raises(InputError, match="'f' must hold booleans as in fit, got 'maybe' at row 1"):
        encoder.transform(pd.DataFrame({"f": ["true", "maybe"]}))


def test_numbers_are_read_from_any_type():
    encoder = FeatureEncoder().fit(pd.DataFrame({"n": [1.0, 2.5, 4.0]}))
    expected = encoder.transform(pd.DataFrame({"n": [1.0, None, 4.0]})).tolist()
    for later in (["1", None, "4.0"], [" 1", None, "4e0"], pd.Series(["1", None, "4"], dtype="category")):
        assert encoder.transform(pd.DataFrame({"n": later})).tolist() == expected
    with pytest.raises(InputError, match="'n' must hold numbers as in fit, got 'n/a' at rows 1, 2"):
        encoder.transform(pd.DataFrame({"n": ["1", "n/a", "n/a"]}))


@pytest.mark.parametrize("levels", [["a", "b"], ["007", "12"]])
def test_text_is_not_guessed_from_numbers(levels):
    encoder = FeatureEncoder().fit(pd.DataFrame({"c": levels}))
    with pytest.raises(InputError, match="hold text in column 'c', as when fitted, got numbers"):
        encoder.transform(pd.DataFrame({"c": [7, 12]}))
    with pytest.raises(InputError, match="hold text in column 'c', as when fitted, got booleans"):
        encoder.transform(pd.DataFrame({"c": [True, False]}))


# A table that is read already -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def frame() -> pl.DataFrame:
    rng = np.random.default_rng(0)
    age = [None if rng.random() < 0.1 else float(v) for v in rng.normal(50, 9, 90)]
    columns = {"age": age, "ward": rng.choice(["A", "B"], 90), "urgent": rng.random(90) < 0.5}
    return pl.DataFrame(columns)


def test_parts_of_a_table_are_encoded_as_if_read_alone(frame):
    frame = frame.with_columns(ward=pl.Series(["A", "B", "C"] * 30))
    rows = np.flatnonzero(frame["ward"].to_numpy() != "B")
    part = read_table(frame).rows(rows)
    alone, parsed = FeatureEncoder().fit(frame[rows]), FeatureEncoder().fit(part)
    assert parsed.get_feature_names_out().tolist() == alone.get_feature_names_out().tolist()
    assert "ward = B" not in parsed.get_feature_names_out()
    np.testing.assert_array_equal(parsed.transform(part), alone.transform(frame[rows]))


def test_other_tables_have_the_columns_of_the_first(frame):
    first = read_table(frame)
    schema = Schema.from_table(first)
    swapped = frame.select(reversed(frame.columns))
    for second in (schema.parse(swapped), schema.parse(read_table(swapped))):
        assert second.names == first.names
    assert schema.parse(first) is first
    for short in (frame.drop("age"), read_table(frame.drop("age"))):
        with pytest.raises(InputError, match="'age' is missing"):
            schema.parse(short)


def test_a_schema_is_saved_as_json(frame):
    schema = Schema.from_table(read_table(frame))
    assert Schema.from_dict(json.loads(json.dumps(schema.as_dict()))) == schema
    with pytest.raises(ValueError, match="'colour' is not a valid Kind"):
        Schema.from_dict(schema.as_dict() | {"kinds": ["colour"] * 3})


def test_samples_of_equal_tables_have_equal_digests(frame):
    y = np.arange(90.0)
    digests = [CountRows(read_table(frame), y).compute_digest() for _ in range(2)]
    assert digests[0] == digests[1]
    assert digests[0] != CountRows(read_table(frame.with_columns(age=pl.lit(1.0))), y).compute_digest()


def test_rows_of_a_table_share_what_was_looked_up_about_its_levels():
    column = read_table(pd.DataFrame({"ward": ["A", "B", None, "A"]}))[0]
    calls = []

    def count(levels: Levels) -> int:
        calls.append(levels)
        return len(levels)

    whole = ColumnTable([column])
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
    monkeypatch.setattr(columns, "_MAX_RESULTS", 2)
    levels, keys = Levels(("A",)), [{}, {}, {}]
    first = [levels.compute_once(key, lambda names: object()) for key in keys]
    assert levels.compute_once(keys[2], lambda names: object()) is first[2]
    assert levels.compute_once(keys[0], lambda names: object()) is not first[0]


def test_a_fit_reads_its_table_once_and_a_prediction_its_rows(frame, monkeypatch):
    calls, read = [], reading._read_columns
    monkeypatch.setattr(reading, "_read_columns", lambda *arguments: calls.append(1) or read(*arguments))
    many = pl.concat([frame] * 3)
    y = np.random.default_rng(0).poisson(3.0, len(many))
    model = CountRegressor(members=["glm", "trees"], random_state=0).fit(many, y, groups=np.arange(len(y)) % 90)
    assert len(calls) == 1
    model.predict_interval(frame)
    assert len(calls) == 2
