"""Test that values reach the model alike in fit and in predictions, and that bad values are reported."""

import re
from dataclasses import replace
from datetime import date, datetime, timedelta

import numpy as np
import polars as pl
import pytest

from ddpn.runtime.errors import InputError
from ddpn.tables.columns import Kind
from ddpn.tables.conversion import TableColumn
from ddpn.tables.dates import DateFormat
from ddpn.tables.files import read_file
from ddpn.tables.numbers import NumberFormat
from ddpn.tables.roles import Roles
from ddpn.workflow.column_roles import find_roles
from ddpn.workflow.config import FitConfig

ROLES = Roles(
    "y",
    "days",
    "w",
    (
        TableColumn("n", Kind.NUMBER),
        TableColumn("c", Kind.CATEGORY),
        TableColumn("f", Kind.BOOLEAN),
        TableColumn("d", Kind.DATE, parts=("day", "month", "weekday", "hour")),
        TableColumn("id", Kind.CATEGORY, left_out="dropped as requested"),
    ),
)
FRAME = pl.DataFrame(
    {
        "extra": [0, 0],
        "n": [1, None],
        "c": ["007", None],
        "f": [True, False],
        "d": [datetime(1970, 1, 2, 6, 30), datetime(2024, 12, 30)],
        "y": [0, 3],
        "days": [1.5, 2.0],
        "w": [0, 2],
    }
)
PLAIN = Roles("y", None, None, (TableColumn("n", Kind.NUMBER),))


def read_counts(values: list, fractional: str = "error") -> list[float]:
    frame = pl.DataFrame({"y": values, "n": [0.0] * len(values)})
    return PLAIN.read_rows(frame, fractional).y.tolist()


def test_columns_become_what_the_model_sees():
    X = ROLES.parse(FRAME).to_polars()
    assert X.columns == ["n", "c", "f", "d day", "d month", "d weekday", "d hour"]
    assert X["c"].to_list() == ["007", None]
    # 2 January 1970 was a Friday; 30 December 2024 a Monday, 20,087 days after 1 January 1970.
    assert X["d day"].to_list() == [1 + 6.5 / 24, (date(2024, 12, 30) - date(1970, 1, 1)).days]
    assert X["d month"].to_list() == [1, 12]
    assert X["d weekday"].to_list() == [5, 1]
    assert X["d hour"].to_list() == [6.5, 0]


def test_other_spellings_of_the_same_values_give_the_same():
    same = FRAME.with_columns(
        n=pl.Series(["1.0", None]), c=pl.Series(["007", None], dtype=pl.Categorical), d=pl.col("d").dt.to_string()
    )
    assert ROLES.parse(same).to_polars().equals(ROLES.parse(FRAME).to_polars())


@pytest.mark.parametrize("dtype", [pl.String, pl.Null, pl.Float64, pl.Categorical])
def test_a_column_without_values_is_missing(dtype):
    names = ["n", "c", "f", "d"]
    X = ROLES.parse(FRAME.with_columns(pl.Series(name, [None, None], dtype=dtype) for name in names)).to_polars()
    assert X.columns == ROLES.parse(FRAME).to_polars().columns
    assert X.null_count().row(0) == (2,) * X.width


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"n": ["x", "1"]}, "Column n: 1 of 2 values are not numbers as in fit ('x') and are treated as missing."),
        ({"d": ["soon", "later"]}, "Column d: 2 of 2 values are not dates as in fit ('soon', 'later') and are"),
        ({"f": ["maybe", "yes"]}, "Column f: 1 of 2 values are not booleans as in fit ('maybe') and are"),
        ({"f": [2, 0]}, "Column f: 1 of 2 values are not booleans as in fit ('2.0') and are"),
        ({"n": [float("inf"), 1]}, "Column n: 1 of 2 values are not numbers as in fit ('inf') and are"),
    ],
)
def test_cells_that_cannot_be_read_are_missing_and_reported(change, sentence):
    frame = FRAME.with_columns(**{name: pl.Series(values, strict=False) for name, values in change.items()})
    with pytest.warns(UserWarning, match=re.escape(sentence)) as result:
        ROLES.parse(frame).to_polars()
    assert len(result) == 1


def test_of_many_sentences_the_first_are_reported():
    names = [f"n{j}" for j in range(25)]
    roles = Roles("y", None, None, tuple(TableColumn(name, Kind.NUMBER) for name in names))
    result = []
    roles.parse(pl.DataFrame({name: ["x"] for name in names}), result.append).to_polars()
    assert len(result) == 21
    assert result[-1] == "5 more columns have such cells."


def test_roles_are_read_in_the_number_formats_of_fit():
    roles = Roles(
        "y", "e", "w", (TableColumn("n", Kind.NUMBER),), formats={"e": NumberFormat(","), "w": NumberFormat(".")}
    )
    frame = pl.DataFrame({"n": [1, 2], "y": ["1,234", " 7 "], "e": ["1.000,5", "2"], "w": ["1", "$2"]})
    sample = replace(roles, formats={**roles.formats, "w": NumberFormat(".", "$")}).read_rows(frame)
    assert (sample.y.tolist(), sample.exposure.tolist(), sample.weight.tolist()) == ([1234, 7], [1000.5, 2], [1, 2])
    with pytest.raises(InputError, match=r"weight 'w' must hold numbers, got '\$2' at row 2"):
        roles.read_rows(frame)


def test_rows_without_a_target_are_left_out():
    roles = Roles("y", None, None, (TableColumn("n", Kind.NUMBER),), missing=("-999",))
    for y in (["n/a", "3", "5"], [-999, 3, 5], [None, 3.0, 5.0], [float("nan"), 3.0, 5.0]):
        sample = roles.read_rows(pl.DataFrame({"n": [1, 2, 3], "y": y}))
        assert (sample.y.tolist(), sample.labels.tolist(), sample.X.column("n").cells().tolist()) == (
            [3, 5],
            [2, 3],
            [2, 3],
        )
    assert roles.describe_rows_without_target(0) == []
    assert roles.describe_rows_without_target(1) == ["1 row without a value of 'y' was left out."]
    assert roles.describe_rows_without_target(1200) == ["1,200 rows without a value of 'y' were left out."]


def test_columns_that_were_no_text_in_fit_may_be_any_text_later():
    later = FRAME.with_columns(n=pl.Series(["1,0", None]), d=pl.Series(["02.01.1970 06:30", "30.12.2024 00:00"]))
    assert ROLES.parse(later).to_polars().equals(ROLES.parse(FRAME).to_polars())
    iso = replace(ROLES, columns=tuple(replace(c, date=DateFormat("year first")) for c in ROLES.columns))
    assert iso.parse(later).to_polars().equals(ROLES.parse(FRAME).to_polars())
    result = []
    X = ROLES.parse(
        FRAME.with_columns(n=pl.Series(["1,234", None]), d=pl.Series(["02/01/1970"] * 2)), result.append
    ).to_polars()
    assert (X["n"].to_list(), X["d month"].to_list()) == ([1234, None], [2, 2])
    assert ["thousands separator" in result[0], "with the month first" in result[1]] == [True, True]


def test_a_zone_of_fit_is_the_clock_of_later_tables():
    roles = Roles(
        "y", None, None, (TableColumn("d", Kind.DATE, parts=("hour",), date=DateFormat(zone="Europe/Berlin")),)
    )
    noon = pl.Series("d", [datetime(2024, 7, 1, 12)])
    for same in (
        noon.dt.replace_time_zone("Europe/Berlin"),
        noon.dt.replace_time_zone("Europe/Berlin").dt.convert_time_zone("America/New_York"),
        pl.Series("d", ["2024-07-01T10:00:00Z"]),
        pl.Series("d", ["2024-07-01 12:00"]),
        noon,
    ):
        assert roles.parse(pl.DataFrame([same])).to_polars()["d hour"].to_list() == [12]


def test_roles_survive_json():
    assert Roles.from_dict(ROLES.as_dict()) == ROLES
    assert ROLES.as_text == ["c"]


def test_a_sample_has_counts_weights_exposures_and_the_rows_of_the_file():
    sample = ROLES.read_rows(FRAME)
    assert (sample.y.tolist(), sample.exposure.tolist(), sample.weight.tolist()) == ([0, 3], [1.5, 2], [0, 2])
    assert sample.labels.tolist() == [1, 2]
    assert ROLES.read_rows(FRAME.drop("w")).weight is None
    assert PLAIN.read_rows(FRAME).exposure is None


def test_fractions_are_rounded_on_request_and_text_may_hold_numbers():
    assert read_counts([0.6, 2.2], "round") == [1, 2]
    assert read_counts(["3", "4.0"]) == [3, 4]


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ([None, np.nan], ["target 'y' must have values", "missing values only"]),
        ([1.0, np.inf], ["must be finite", "at row 2"]),
        ([1, -2, 3, -1], ["non-negative integers", "got -2 at rows 2, 4"]),
        ([0.5] * 7, ["non-negative integers", "got 0.5 at rows 1, 2, 3, 4, 5 and 2 more", "fractional"]),
        (["1", "x"], ["target 'y' must hold numbers", "'x' at row 2"]),
        ([date(2024, 1, 1)], ["must hold numbers", "got Date"]),
    ],
)
def test_a_target_that_is_not_a_count_is_refused(values, words):
    with pytest.raises(InputError) as error:
        read_counts(values)
    assert [word for word in words if word not in str(error.value)] == []


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"n": [date(2024, 1, 1)] * 2}, ["column 'n' must hold numbers", "Date"]),
        ({"f": [date(2024, 1, 1)] * 2}, ["column 'f' must hold booleans", "Date"]),
        ({"c": [[1], [2]]}, ["column 'c' must hold text", "List"]),
        ({"c": [timedelta(1)] * 2}, ["column 'c' must hold text", "Duration"]),
        ({"d": [1, 2]}, ["column 'd' must hold dates", "Int64"]),
        ({"days": [1, 0]}, ["exposure 'days' must be finite and positive", "got 0 at row 2"]),
        ({"w": [None, 0]}, ["weight 'w' must be finite and not negative", "at row 1"]),
        ({"w": [0, 0]}, ["weight 'w' must be positive in some row"]),
    ],
)
def test_columns_with_bad_values_are_reported(change, words):
    with pytest.raises(InputError) as error:
        ROLES.read_rows(FRAME.with_columns(**{name: pl.Series(values) for name, values in change.items()}))
    assert [word for word in words if word not in str(error.value)] == []


@pytest.mark.parametrize(
    ("frame", "words"),
    [
        (FRAME.rename({"n": "nn"}), r"No column named 'n' \(needed by the model\)\. Did you mean 'nn'\?"),
        (FRAME.drop("days"), r"No column named 'days' \(`exposure`\)"),
        (FRAME.drop("y"), r"No column named 'y' \(`target`\)\. .*The columns are: extra, n"),
    ],
)
def test_missing_columns_are_named(frame, words):
    with pytest.raises(InputError, match=words):
        ROLES.read_rows(frame)


@pytest.mark.parametrize("kind", ["csv", "text"])
@pytest.mark.parametrize(
    ("cells", "values"),
    [
        (["31.287", "-1.783", "43.080", "185"], [31287.0, -1783.0, 43080.0, 185.0]),
        (["31.287", "-1.783", "43.080", "18.5"], [31.287, -1.783, 43.08, 18.5]),
        (["31287", "-1783", "43080.0", "185"], [31287.0, -1783.0, 43080.0, 185.0]),
    ],
    ids=["thousands", "decimals", "plain"],
)
def test_points_separate_thousands_where_fit_had_integers(tmp_path, kind, cells, values):
    """Points before three digits, and no others, separate thousands where fit had integers only."""
    fitted = pl.DataFrame({"n": [20_000, 300, 4, -7], "y": [1, 2, 3, 4]})
    roles = find_roles(fitted, FitConfig(target="y"))
    (tmp_path / "later.csv").write_text("\n".join(["n;y", *(f"{cell};1" for cell in cells)]))
    later = read_file(str(tmp_path / "later.csv"), roles.as_text) if kind == "csv" else pl.DataFrame({"n": cells})
    sentences: list[str] = []
    assert roles.parse(later, sentences.append).to_polars()["n"].to_list() == values
    is_grouped = cells[0] == "31.287" and values[0] == 31287.0
    assert sum("thousands separators" in sentence for sentence in sentences) == is_grouped


def test_errors_in_a_target_name_the_row_of_the_file():
    with pytest.raises(InputError, match=r"'many' at row 104"):
        PLAIN.find_rows_with_target(pl.DataFrame({"y": ["3", "4", "5", "many"]}), 100)
