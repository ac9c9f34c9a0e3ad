"""How values reach the model: the same in fit and in predictions, and bad ones told by their rows."""

from datetime import date, datetime

import numpy as np
import polars as pl
import pytest

from ddpn.errors import InputError
from ddpn.workflow.roles import Column, Roles, target_counts

ROLES = Roles(
    "y",
    "days",
    "w",
    (
        Column("n", "number"),
        Column("c", "category"),
        Column("f", "boolean"),
        Column("d", "date", parts=("day", "month", "weekday", "hour")),
        Column("id", "category", left_out="as asked"),
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


def test_columns_become_what_the_model_sees():
    X = ROLES.features(FRAME)
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
    assert ROLES.features(same).equals(ROLES.features(FRAME))


def test_a_column_without_a_value_is_missing():
    empty = FRAME.with_columns(n=pl.Series([None, None], dtype=pl.String), d=pl.Series([None, None], dtype=pl.String))
    X = ROLES.features(empty)
    assert X["n"].is_nan().all()
    assert X["d day"].null_count() == 2


def test_roles_survive_json():
    assert Roles.from_dict(ROLES.as_dict()) == ROLES
    assert ROLES.as_text == ["c"]


def test_counts_exposures_and_weights():
    assert ROLES.counts(FRAME).tolist() == [0, 3]
    assert ROLES.exposures(FRAME).tolist() == [1.5, 2]
    assert ROLES.weights(FRAME).tolist() == [0, 2]
    assert ROLES.weights(FRAME.drop("w")) is None
    assert Roles("y", None, None, ()).exposures(FRAME) is None


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ([1, None, 2, None], "must have a count in every row, got none in rows 2, 4 .* Fill or drop these rows."),
        ([1.0, np.nan], "must have a count in every row, got none in row 2 "),
        ([1.0, np.inf], "must be finite, got infinity in row 2 "),
        ([1, -2, 3, -1], "must hold counts 0, 1, 2, ..., got negative numbers in rows 2, 4 .* Recode or drop these"),
        ([0.5] * 7, r'got fractions in rows 1, 2, 3, 4, 5 and 2 more .* or put fractional = "round" into a file'),
        (["1", "x"], "must hold numbers, got 'x' in row 2"),
        ([date(2024, 1, 1)], r"must hold numbers, got datetime.date\(2024, 1, 1\) in row 1"),
    ],
)
def test_a_target_that_is_no_count(values, sentence):
    with pytest.raises(InputError, match=sentence):
        target_counts(pl.DataFrame({"y": values}), "y")


def test_fractions_are_rounded_where_asked():
    assert target_counts(pl.DataFrame({"y": [0.6, 2.2]}), "y", "round").tolist() == [1, 2]


def test_numbers_in_text_are_numbers():
    assert target_counts(pl.DataFrame({"y": ["3", "4.0"]}), "y").tolist() == [3, 4]


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"n": ["x", "1"]}, "column 'n' must hold numbers, got 'x' in row 1"),
        ({"d": ["soon", "later"]}, "column 'd' must hold dates as in fit, got text that is none. Write 2024-12-31."),
        ({"d": [1, 2]}, "column 'd' must hold dates as in fit, got Int64"),
    ],
)
def test_a_column_of_another_kind(change, sentence):
    with pytest.raises(InputError, match=sentence):
        ROLES.features(FRAME.with_columns(**{name: pl.Series(values) for name, values in change.items()}))


def test_a_column_that_is_missing():
    with pytest.raises(InputError, match=r"must have the columns of fit, got no 'n' and 1 others. Did you mean 'nn'?"):
        ROLES.features(FRAME.rename({"n": "nn"}).drop("f"))


def test_exposures_and_weights_that_are_none():
    with pytest.raises(InputError, match="exposure 'days' must be positive in every row, got other values in row 2"):
        ROLES.exposures(FRAME.with_columns(days=pl.Series([1, 0])))
    with pytest.raises(InputError, match="weight 'w' must be 0 or positive in every row, got other values in row 1"):
        ROLES.weights(FRAME.with_columns(w=pl.Series([None, 0])))
    with pytest.raises(InputError, match="exposure must name a column, got 'days'"):
        ROLES.exposures(FRAME.drop("days"))
