"""Dates and times written as text: every usual spelling is read, and what is neither is not."""

from datetime import UTC, datetime

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ddpn.tables.dates import (
    DAY_FIRST,
    MONTH_FIRST,
    DateFormat,
    extract_date_parts,
    find_date_format,
    parse_dates,
    to_local_times,
)


def parse_times(cells: list[str]) -> list[datetime | None]:
    text = pl.Series("d", cells)
    return parse_dates(text, find_date_format(text) or DateFormat()).to_list()


@pytest.mark.parametrize(
    ("cells", "times"),
    [
        (["2021-01-31", "2021-2-1"], [datetime(2021, 1, 31), datetime(2021, 2, 1)]),
        (["2021/01/31 10:30"], [datetime(2021, 1, 31, 10, 30)]),
        (["01/31/2021", "02/03/2021"], [datetime(2021, 1, 31), datetime(2021, 2, 3)]),
        (["31/01/2021", "02/03/2021"], [datetime(2021, 1, 31), datetime(2021, 3, 2)]),
        (["31.01.2021", "1.2.2021"], [datetime(2021, 1, 31), datetime(2021, 2, 1)]),
        (["31.01.21", "01.02.69", "01.02.70"], [datetime(2021, 1, 31), datetime(2069, 2, 1), datetime(1970, 2, 1)]),
        (["31 Jan 2021", "March 5, 2021", "5-apr-2021"],
         [datetime(2021, 1, 31), datetime(2021, 3, 5), datetime(2021, 4, 5)]),
        (["1/31/2021 1:05 PM", "1/31/2021 12:00 am"], [datetime(2021, 1, 31, 13, 5), datetime(2021, 1, 31)]),
        (["2021-01-31T10:30:15.25"], [datetime(2021, 1, 31, 10, 30, 15, 250_000)]),
        (["1850-07-01", "0099-01-01"], [datetime(1850, 7, 1), datetime(99, 1, 1)]),
        (["2021-02-30", "2021-13-01", "2021-01-01 25:00", "2021-01-01"], [None, None, None, datetime(2021, 1, 1)]),
    ],
)  # fmt: skip
def test_every_spelling_of_dates_is_read(cells, times):
    assert parse_times(cells) == times


def test_an_ambiguous_order_is_assumed_and_named():
    assert find_date_format(pl.Series(["03/04/2021"])) == DateFormat(MONTH_FIRST, ambiguous="03/04/2021")
    assert find_date_format(pl.Series(["03.04.2021"])) == DateFormat(DAY_FIRST, ambiguous="03.04.2021")
    assert find_date_format(pl.Series(["04/04/2021"])).ambiguous == ""
    days = [f"{day:02d}/0{month}/20{year}" for year in range(10, 99) for month in range(1, 10) for day in range(1, 9)]
    assert find_date_format(pl.Series([*days, "31/01/2021"])) == DateFormat(DAY_FIRST)


@pytest.mark.parametrize("cells", [["a", "b"], ["1.5", "2.5"], ["12:30"], ["May 1st and 2nd"], ["192.168.0.1"]])
def test_text_that_is_no_date_is_not_read(cells):
    assert parse_times(cells) == [None] * len(cells)


@settings(max_examples=15, deadline=None)
@given(st.lists(st.datetimes(datetime(1000, 1, 1)), min_size=1, max_size=20), st.sampled_from(["%d.%m.%Y", "%m/%d/%Y"]))
def test_a_written_time_is_read(times, written):
    order = DAY_FIRST if written.startswith("%d") else MONTH_FIRST
    text = pl.Series([time.strftime(written).rjust(10, "0") + time.strftime(" %H:%M:%S.%f") for time in times])
    assert parse_dates(text, DateFormat(order)).to_list() == times


def test_times_are_moved_to_the_zone_of_the_column():
    noon = pl.Series([datetime(2024, 7, 1, 12, tzinfo=UTC)]).dt.convert_time_zone("Asia/Tokyo")
    assert to_local_times(noon, "").to_list() == [datetime(2024, 7, 1, 21)]
    assert to_local_times(noon, "UTC").to_list() == [datetime(2024, 7, 1, 12)]
    text = pl.Series(["2024-07-01T12:00:00Z", "2024-07-01 14:00:00+02:00", "2024-07-01 07:30-0430"])
    assert parse_dates(text, DateFormat(zone="UTC")).to_list() == [datetime(2024, 7, 1, 12)] * 3
    assert [time.hour for time in parse_dates(text, DateFormat()).to_list()] == [12, 14, 7]
    assert find_date_format(text.head(1)).zone == "UTC"
    assert find_date_format(text).zone == ""


def test_parts_of_dates_are_numbers():
    times = pl.Series([datetime(1969, 12, 31, 18), datetime(2024, 2, 29, 6, 30), None])
    day, month, weekday, hour = extract_date_parts(times, ("day", "month", "weekday", "hour"), list("abcd"))
    assert day.to_list() == [-0.25, 19782 + 6.5 / 24, None]
    assert (month.to_list(), weekday.to_list(), hour.to_list()) == ([12, 2, None], [3, 4, None], [18, 6.5, None])
