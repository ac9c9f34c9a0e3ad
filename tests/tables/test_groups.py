"""Test the names of interval groups: they do not depend on the library or the file that the labels come from."""

from datetime import date, datetime

import numpy as np
import pandas as pd
import polars as pl
import pytest

from ddpn.runtime.errors import InputError
from ddpn.tables.groups import name_interval_groups

DAYS = [date(2024, 1, 1), date(2024, 2, 29), None]


@pytest.mark.parametrize(
    "labels",
    [
        pl.Series(DAYS),
        pl.Series(DAYS).cast(pl.Datetime),
        pd.Series(pd.to_datetime(pd.Series(DAYS))),
        DAYS,
        pl.Series(["2024-01-01", "2024-02-29", None]),
    ],
)
def test_a_date_and_its_midnight_have_one_name(labels):
    assert name_interval_groups(labels).tolist() == ["2024-01-01", "2024-02-29", "missing"]


@pytest.mark.parametrize("make", [pl.Series, pd.Series, np.asarray, list])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_numbers_have_the_digits_that_they_are_written_with(make, dtype):
    assert name_interval_groups(make(np.array([0.1, 7.0, np.nan], dtype=dtype))).tolist() == ["0.1", "7", "missing"]


def test_times_of_day_stay_in_the_name():
    assert name_interval_groups([datetime(2024, 1, 1, 12, 30)]).tolist() == ["2024-01-01 12:30:00"]


def test_each_row_has_one_label():
    with pytest.raises(InputError, match="groups must have one label per row of X, got 2 for 3 rows"):
        name_interval_groups(np.array([1.0, 2.0], dtype=np.float32), 3)
    with pytest.raises(InputError, match="groups must hold one label per row of X"):
        name_interval_groups(np.ones((2, 2), dtype=np.float32))
