"""Test random tables, dirty and changed: no traceback, no cell lost in silence, the same rows the same everywhere.

Each case draws a schema and its rows, writes them as CSV (any separator, encoding and decimal sign), Parquet and JSON
lines and as pandas and polars frames, decides on the columns from one of these and reads the others by that decision.
The inputs of the model (`Roles.features`, then `FeatureEncoder`) must be equal; a small GLM predicts from them.
DDPN_FUZZ sets the number of cases of all tests together.
"""

import io
import os
import warnings
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from ddpn.estimators import DDPNRegressor
from ddpn.runtime.errors import DDPNError
from ddpn.tables.encoding import FeatureEncoder
from ddpn.tables.files import read_file
from ddpn.tables.roles import Roles
from ddpn.workflow.column_roles import find_roles
from ddpn.workflow.config import FitConfig

#: Cases of each of the five tests.
CASES = int(os.environ.get("DDPN_FUZZ", "50")) // 5
FUZZ = settings(
    max_examples=CASES,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture, HealthCheck.filter_too_much],
)
MARKERS = ["n/a", "-", "--", "n.a.", "unknown", "NA", "?", "null", "#N/A", "none"]
WORDS = ["a", "b ", " c", "d e", "é", "x;y", "q,r", 'quo"te', "new\nline", "007", "1A", "True story", "NAN", "Ü|ß"]


class DrawnColumn(NamedTuple):
    """A column: its true values (None where missing), and its cells as text."""

    kind: str
    values: list
    cells: list[str | None]


def format_number(value: float, style: str, decimals: int) -> str:
    grouped = f"{value:,.{decimals}f}"
    plain = f"{value:.{decimals}f}"
    return {
        "plain": plain,
        "blanks": f" {plain} ",
        "thousands": grouped,
        "european": grouped.translate(str.maketrans(",.", ".,")),
        "euro": f"€{plain}" if value >= 0 else f"-€{-value:.{decimals}f}",
        "percent": f"{plain}%",
        "unit": f"{plain} kg",
        "brackets": plain if value >= 0 else f"({-value:.{decimals}f})",
    }[style]


@st.composite
def draw_column(draw, rows: int) -> DrawnColumn:
    kind = draw(st.sampled_from(["number", "number", "integer", "text", "flag", "date", "code"]))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    if kind in ("number", "integer"):
        decimals = 0 if kind == "integer" else draw(st.sampled_from([1, 2]))
        scale = draw(st.sampled_from([3.0, 200.0, 50_000.0]))
        values: list = [round(float(v), decimals) + 0.0 for v in rng.normal(0.5, 1.0, rows) * scale]
        style = draw(
            st.sampled_from(["plain", "blanks", "thousands", "european", "euro", "percent", "unit", "brackets"])
        )
        cells = [format_number(value, style, decimals) for value in values]
    elif kind == "date":
        start = draw(st.sampled_from([datetime(1890, 1, 1), datetime(1969, 12, 1), datetime(2021, 1, 1)]))
        values = [start + timedelta(days=int(d)) for d in rng.integers(0, 500, rows)]
        style = draw(st.sampled_from(["%Y-%m-%d", "%d.%m.%Y", "%m/%d/%Y", "%d/%m/%Y", "%Y-%m-%d %H:%M:%S", "%d %b %Y"]))
        cells = [value.strftime(style) for value in values]
    elif kind == "flag":
        values = [bool(v) for v in rng.integers(0, 2, rows)]
        words = draw(st.sampled_from([("true", "false"), ("True", "False"), ("TRUE", "FALSE")]))
        cells = [words[0] if value else words[1] for value in values]
    elif kind == "code":
        values = [f"{int(v):05d}" for v in rng.integers(0, 12, rows)]
        cells = list(values)
    else:
        levels = draw(st.lists(st.sampled_from(WORDS), min_size=2, max_size=6, unique=True))
        values = [levels[v].strip() for v in rng.integers(0, len(levels), rows)]
        cells = list(values)
    share = draw(st.sampled_from([0.0, 0.0, 0.03, 0.3]))
    absent = rng.random(rows) < share
    marker = draw(st.sampled_from(["", "NA", "N/A"] if kind in ("text", "code") else ["", *MARKERS]))
    values = [None if gone else value for value, gone in zip(values, absent, strict=True)]
    cells = [marker if gone else cell for cell, gone in zip(cells, absent, strict=True)]
    return DrawnColumn(kind, values, cells)


@st.composite
def draw_table(draw) -> dict[str, DrawnColumn]:
    rows = draw(st.sampled_from([40, 60]))
    return {f"x{j}": draw(draw_column(rows)) for j in range(draw(st.integers(1, 4)))}


def make_typed_frame(table: dict[str, DrawnColumn]) -> pl.DataFrame:
    """Make a frame of the true values, as Parquet would hold them."""
    dtypes = {
        "number": pl.Float64, "integer": pl.Int64, "text": pl.String, "flag": pl.Boolean, "date": pl.Datetime("us"),
        "code": pl.String,
    }  # fmt: skip
    return pl.DataFrame(
        [pl.Series(name, drawn.values, dtype=dtypes[drawn.kind], strict=False) for name, drawn in table.items()]
    )


def write_text(table: dict[str, DrawnColumn], separator: str, encoding: str) -> bytes:
    texts = pl.DataFrame({name: pl.Series(drawn.cells, dtype=pl.String) for name, drawn in table.items()})
    return texts.write_csv(separator=separator, quote_style="necessary").encode(encoding, errors="replace")


@st.composite
def draw_file(draw, table: dict[str, DrawnColumn]) -> tuple[str, bytes]:
    """Write the table to a file of some type, and return the file's name and content."""
    kind = draw(st.sampled_from(["csv", "csv", "csv", "tsv", "parquet", "feather", "jsonl", "text.parquet"]))
    if kind in ("csv", "tsv"):
        separator = "\t" if kind == "tsv" else draw(st.sampled_from(",;|\t"))
        encoding = draw(st.sampled_from(["utf-8", "utf-8-sig", "utf-16", "cp1252"]))
        return f"t.{kind}", write_text(table, separator, encoding)
    out = io.BytesIO()
    if kind == "parquet":
        make_typed_frame(table).write_parquet(out)
    elif kind == "feather":
        make_typed_frame(table).write_ipc(out)
    elif kind == "text.parquet":
        pl.DataFrame({name: drawn.cells for name, drawn in table.items()}).write_parquet(out)
    else:
        make_typed_frame(table).write_ndjson(out)
    return f"t.{kind}", out.getvalue()


def load_file(folder: Path, file: tuple[str, bytes], as_text: Any = ()) -> pl.DataFrame:
    name, content = file
    (folder / name).write_bytes(content)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".* is not UTF-8; read as ")
        warnings.filterwarnings("ignore", message=".* empty rows? ")
        return read_file(str(folder / name), as_text)


def decide_roles(frame: pl.DataFrame, **options) -> Roles:
    y = np.random.default_rng(0).poisson(3.0, frame.height)
    try:
        return find_roles(frame.with_columns(count=pl.Series(y)), FitConfig(target="count", **options))
    except DDPNError as error:
        assume("No column is left" not in str(error))
        raise


def attempt(work: Callable[[], Any]) -> Any:
    """Return the result, or the one-line sentence of an error of ours; any other error is a failure."""
    try:
        return work()
    except DDPNError as error:
        sentence = str(error)
    assert "\n" not in sentence
    return sentence


def ignore_sentence(sentence: str) -> None:
    """Ignore a sentence, in tests that do not look at what is reported."""


def is_regular(table: dict[str, DrawnColumn]) -> bool:
    """Return True if every file type keeps all rows: text leaves out empty rows, and one column has no separator."""
    rows = len(next(iter(table.values())).values)
    empty = [all(drawn.cells[row] in ("", None) for drawn in table.values()) for row in range(rows)]
    return len(table) > 1 and not any(empty)


def convert_to_numbers(drawn: DrawnColumn) -> np.ndarray:
    """Return the true values as numbers, NaN where missing; for text and codes the values themselves."""
    if drawn.kind == "date":
        return np.array([np.nan if v is None else (v - datetime(1970, 1, 1)).days for v in drawn.values], dtype=float)
    if drawn.kind in ("text", "code"):
        return np.array(drawn.values, dtype=object)
    return np.array([np.nan if v is None else float(v) for v in drawn.values])


def could_be_decimals(drawn: DrawnColumn) -> bool:
    """Return True if every point between thousands could be a decimal point, as which it is read: 31.287."""
    present_cells = [cell for cell, value in zip(drawn.cells, drawn.values, strict=True) if value is not None]
    dotted = [cell for cell in present_cells if "." in cell]
    return drawn.kind == "integer" and bool(dotted) and all(cell.count(".") == 1 for cell in dotted)


@FUZZ
@given(data=st.data())
def test_a_dirty_table_is_read_as_its_true_values(data, tmp_path):
    """No cell with a value is lost: neither in silence nor by leaving a column out."""
    table = data.draw(draw_table())
    assume(is_regular(table))
    frame = load_file(tmp_path, data.draw(draw_file(table)))
    roles = decide_roles(frame)
    sentences: list[str] = []
    X = roles.parse(frame, sentences.append).to_polars()
    for column in roles.columns:
        drawn = table[column.name]
        present = [value for value in drawn.values if value is not None]
        if column.left_out:
            is_constant = len(set(present)) <= 1
            assert is_constant or drawn.kind in ("text", "code") or "row numbers" in column.left_out, column
            continue
        true = convert_to_numbers(drawn)
        if drawn.kind in ("text", "code"):
            assert [v or None for v in X[column.name].to_list()] == [v or None for v in true.tolist()], column
        elif drawn.kind == "date" and not column.date.ambiguous:
            np.testing.assert_array_equal(np.floor(X[f"{column.name} day"].to_numpy()), true)
        elif drawn.kind != "date" and not column.number.ambiguous and not could_be_decimals(drawn):
            np.testing.assert_allclose(X[column.name].cast(pl.Float64).to_numpy(), true, rtol=1e-12)


@FUZZ
@given(data=st.data())
def test_the_same_rows_are_the_same_in_every_file_and_frame(data, tmp_path):
    """Columns are decided from one file and read from another: inputs and predictions are equal."""
    table = data.draw(draw_table())
    assume(is_regular(table))
    # Levels such as €5 are names; only those that are plain numbers are the same level in every file.
    category = tuple(name for name, drawn in table.items() if drawn.kind == "integer" and has_plain_cells(drawn))
    clean = {
        name: DrawnColumn(drawn.kind, drawn.values, drawn.cells)
        for name, drawn in table.items()
        if drawn.kind not in ("number", "integer", "date") or (is_exact(drawn) and not could_be_decimals(drawn))
    }
    assume(len(clean) > 1 and is_regular(clean))
    first = load_file(tmp_path, data.draw(draw_file(clean)), category)
    roles = decide_roles(first, category=tuple(name for name in category if name in clean))
    X = roles.parse(first, ignore_sentence).to_polars()
    later = load_file(tmp_path, data.draw(draw_file(clean)), roles.as_text)
    assume(first.height == later.height)
    rng = np.random.default_rng(1)
    order = rng.permutation(first.height)
    encoder = FeatureEncoder().fit(X)
    inputs = encoder.transform(X)
    np.testing.assert_allclose(encoder.transform(roles.parse(later, ignore_sentence).to_polars()), inputs, atol=1e-5)
    np.testing.assert_allclose(
        encoder.transform(roles.parse(later[order], ignore_sentence).to_polars()), inputs[order], atol=1e-5
    )
    as_pandas = X.to_pandas()
    np.testing.assert_allclose(encoder.transform(as_pandas), inputs, atol=1e-5)
    np.testing.assert_allclose(encoder.transform(pd.DataFrame(as_pandas, dtype=object)), inputs, atol=1e-5)


def has_plain_cells(drawn: DrawnColumn) -> bool:
    present_cells = [cell for cell, value in zip(drawn.cells, drawn.values, strict=True) if value is not None]
    return len(set(present_cells)) < 12 and all(cell.strip().removeprefix("-").isdecimal() for cell in present_cells)


def is_exact(drawn: DrawnColumn) -> bool:
    """Return True if the text is unambiguous: commas and days may be ambiguous in short columns."""
    cells = [cell for cell, value in zip(drawn.cells, drawn.values, strict=True) if value is not None]
    if drawn.kind == "date":
        return any(int(value.day) > 12 for value in drawn.values if value is not None)
    return not any("," in cell for cell in cells)


CHANGES = {
    "as text": lambda s: s.cast(pl.String, strict=False),
    "as floats": lambda s: s.cast(pl.Float64, strict=False),
    "as integers": lambda s: s.cast(pl.Int64, strict=False),
    "as booleans": lambda s: pl.Series(s.name, [i % 2 == 0 for i in range(len(s))]),
    "as categories": lambda s: s.cast(pl.String, strict=False).cast(pl.Categorical),
    "empty": lambda s: pl.Series(s.name, [None] * len(s)),
    "dirty": lambda s: s.cast(pl.String, strict=False).scatter(0, "what?"),
    "infinite": lambda s: pl.Series(s.name, [float("inf"), float("nan"), -float("inf")] * (len(s) // 3 + 1))[: len(s)],
    "nested": lambda s: pl.Series(s.name, [[1]] * len(s)),
    "dates": lambda s: pl.Series(s.name, [datetime(2020, 1, 1)] * len(s)),
    "bytes": lambda s: pl.Series(s.name, [b"x"] * len(s)),
    "times": lambda s: pl.Series(s.name, [timedelta(days=1)] * len(s)),
    "one row": lambda s: s,
}


@pytest.fixture(scope="module")
def predictor() -> DDPNRegressor:
    """An exact GLM on every kind of column, as the model that predicts."""
    rng = np.random.default_rng(0)
    X = pl.DataFrame(
        {
            "n": rng.normal(size=80),
            "c": rng.choice(["1", "2", "b"], 80),
            "f": rng.random(80) < 0.5,
            "d day": rng.normal(size=80),
        }
    )
    model = DDPNRegressor(
        hidden=(), n_networks=1, epochs=1, numeric="standard", mix_with=(), validation=None, device="cpu"
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return model.fit(X, rng.poisson(3, 80))


@FUZZ
@given(data=st.data())
def test_changed_columns_never_end_in_a_traceback(data, tmp_path):
    """Any change of type gives inputs, or one sentence of ours; cells that are lost are reported."""
    table = data.draw(draw_table())
    file = data.draw(draw_file(table))
    frame = attempt(lambda: load_file(tmp_path, file))
    # A file of one column whose cells hold a comma looks like one of more columns.
    assume(not isinstance(frame, str))
    roles = decide_roles(frame)
    used = [column.name for column in roles.features]
    name, change = data.draw(st.sampled_from(used)), data.draw(st.sampled_from(list(CHANGES)))
    later = frame.with_columns(CHANGES[change](frame[name]).alias(name))
    later = later.head(1) if change == "one row" else later
    reported: list[str] = []
    X = attempt(lambda: roles.parse(later, reported.append).to_polars())
    if isinstance(X, str):
        assert name in X
        return
    column = next(candidate for candidate in roles.features if candidate.name == name)
    before = roles.parse(frame, ignore_sentence).to_polars()[: X.height]
    given_ = sum(cell is not None and cell == cell for cell in later[name].to_list())
    lost = given_ - (X.height - X[column.inputs[0]].null_count())
    marked = before[column.inputs[0]].null_count()
    assert lost - marked <= 0.01 * X.height or any(f"Column {name}:" in sentence for sentence in reported)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert np.isfinite(FeatureEncoder().fit(before).transform(X)).all()


@FUZZ
@given(data=st.data())
def test_frames_of_any_type_are_predicted_or_refused_in_one_sentence(data, predictor):
    """Call DDPNRegressor itself, on pandas and polars frames whose types have changed."""
    rows = 6
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    plain = pl.DataFrame(
        {
            "n": rng.normal(size=rows),
            "c": ["1", "2", "b", "1", None, "2"],
            "f": [True, False] * 3,
            "d day": rng.normal(size=rows),
        }
    )
    name, change = data.draw(st.sampled_from(plain.columns)), data.draw(st.sampled_from(list(CHANGES)))
    later = plain.with_columns(CHANGES[change](plain[name]).alias(name))
    frame = later.to_pandas() if data.draw(st.booleans()) else later
    mean = attempt(lambda: predictor.predict(frame))
    if isinstance(mean, str):
        return
    assert np.isfinite(mean).all()
    if change in ("as text", "as categories") and name != "f":
        np.testing.assert_allclose(mean, predictor.predict(plain), rtol=1e-6)


@FUZZ
@given(
    content=st.one_of(st.binary(max_size=200), st.text(max_size=200).map(str.encode)),
)
def test_any_bytes_are_a_table_or_one_sentence(content, tmp_path):
    for name in ("t.csv", "t.tsv", "t.jsonl", "t.json", "t.parquet", "t.xlsx"):
        attempt(lambda file=(name, content): load_file(tmp_path, file))
