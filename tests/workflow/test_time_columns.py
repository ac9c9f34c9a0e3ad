"""Columns that follow time are found; periodic and free ones are not."""

from datetime import date, timedelta

import numpy as np
import polars as pl
import pytest

from ddpn.workflow.trends import time_columns

DAYS = pl.Series([date(2021, 1, 1) + timedelta(days=day) for day in range(500)])
RNG = np.random.default_rng(0)


@pytest.fixture(scope="module")
def table() -> pl.DataFrame:
    return pl.DataFrame(
        {
            "year": DAYS.dt.year(),
            "season": pl.Series(["cold", "warm"])[((DAYS.dt.month() > 3) & (DAYS.dt.month() < 10)).cast(int)],
            "month": DAYS.dt.month(),
            "index": 100.0 + np.arange(500) + RNG.normal(0.0, 20.0, 500),
            "weekday": DAYS.dt.weekday(),
            "holiday": DAYS.dt.ordinal_day().is_in([1, 100, 200, 300]),
            "temperature": 10 * np.sin(np.arange(500) / 58) + RNG.normal(0.0, 3.0, 500),
            "same": 1.0,
        }
    )


def test_calendar_and_trend_are_found(table):
    assert time_columns(table, DAYS) == ["year", "season", "month", "index"]


def test_the_order_of_rows_does_not_matter(table):
    order = RNG.permutation(500)
    assert time_columns(table[order], DAYS[order]) == time_columns(table, DAYS)


def test_months_that_come_again_many_times_are_not_found():
    days = pl.Series([date(2001, 1, 1) + timedelta(days=day) for day in range(7000)])
    table = pl.DataFrame({"month": days.dt.month(), "weekday": days.dt.weekday()})
    assert time_columns(table, days) == []


def test_where_all_columns_follow_time_none_is_left_out(table):
    assert time_columns(table.select("year", "month"), DAYS) == []


def test_one_time_for_all_rows(table):
    assert time_columns(table.select("index", "temperature"), pl.Series([1] * 500)) == []
