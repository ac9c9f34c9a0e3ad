"""Test that trends in time and drifts in the order of rows are found, and that periodic tables raise no alarm."""

from datetime import date, timedelta

import numpy as np
import polars as pl
import pytest

from ddpn.rows.count_rows import CountRows
from ddpn.tables.checks.findings import FindingKind
from ddpn.tables.checks.order import find_drift, find_time_columns
from ddpn.workflow.config import FitConfig
from ddpn.workflow.preparing import prepare


def simulate_trend(slope: float, seed: int, rows: int = 600, dates: bool = False) -> pl.DataFrame:
    """Simulate counts whose mean grows by so many times over the table."""
    rng = np.random.default_rng(seed)
    x, when = rng.normal(size=rows), np.arange(rows) / rows
    y = rng.poisson(np.exp(1.5 + 0.5 * x + slope * when) * rng.gamma(5, 0.2, rows))
    days = [date(2020, 1, 1) + timedelta(days=int(day)) for day in range(rows)]
    order = rng.permutation(rows)
    return pl.DataFrame({"x": x, "when": days if dates else when, "y": y})[order.tolist()]


def list_trend_warnings(frame: pl.DataFrame, **options) -> list[str]:
    return [
        warning
        for warning in prepare(frame, FitConfig(target="y", time="when", **options)).warnings
        if "trend" in warning
    ]


@pytest.mark.parametrize("slope", [1.5, -1.5])
@pytest.mark.parametrize("dates", [False, True])
def test_a_trend_is_reported(slope, dates):
    (result,) = list_trend_warnings(simulate_trend(slope, seed=0, dates=dates))
    assert ("higher" if slope > 0 else "lower") in result
    assert '`use=["when"]`' in result
    kept = list_trend_warnings(simulate_trend(slope, seed=0, dates=dates), use=("when",))
    assert not any('`use=["when"]`' in sentence for sentence in kept)


def test_no_trend_is_not_reported():
    assert not [seed for seed in range(6) if list_trend_warnings(simulate_trend(0.0, seed))]


def test_a_trend_that_inputs_explain_is_not_reported():
    frame = simulate_trend(0.0, seed=0)
    rising = frame["when"].to_numpy()
    y = np.random.default_rng(0).poisson(np.exp(1 + 3 * np.abs(np.sin(40 * rising))))
    explained = frame.with_columns(season=np.abs(np.sin(40 * rising)), y=pl.Series(y))
    assert not list_trend_warnings(explained)


# Columns that follow time: periodic and free ones do not

DAYS = pl.Series([date(2021, 1, 1) + timedelta(days=day) for day in range(500)])
RNG = np.random.default_rng(0)


@pytest.fixture(scope="module")
def calendar() -> pl.DataFrame:
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


def test_calendar_and_trend_are_found_in_any_order_of_rows(calendar):
    order = RNG.permutation(500)
    assert (
        find_time_columns(calendar, DAYS)
        == find_time_columns(calendar[order], DAYS[order])
        == ["year", "season", "month", "index"]
    )


def test_columns_that_do_not_follow_time_are_not_named(calendar):
    days = pl.Series([date(2001, 1, 1) + timedelta(days=day) for day in range(7000)])
    months = pl.DataFrame({"month": days.dt.month(), "weekday": days.dt.weekday()})
    assert find_time_columns(months, days) == [], "months that come again many times"
    assert find_time_columns(calendar.select("year", "month"), DAYS) == [], "where all follow time, none is left out"
    assert find_time_columns(calendar.select("index", "temperature"), pl.Series([1] * 500)) == [], (
        "one time for all rows"
    )


# The order of rows


def simulate_drift(seed: int, rows: int = 1500) -> CountRows:
    """Simulate counts and a covariate that both change slowly from row to row, each in its own way."""
    rng = np.random.default_rng(seed)
    when, phases = np.arange(rows) / rows, rng.uniform(0, 6, 2)
    slow = np.sin(4 * np.pi * when + phases[0]) + 0.3 * when + rng.normal(0, 0.02, rows)
    x, level = rng.normal(size=rows), 1.2 * np.sin(10 * np.pi * when + phases[1])
    return CountRows(pl.DataFrame({"slow": slow, "x": x}), rng.poisson(np.exp(1 + 0.4 * x + level)).astype(float))


@pytest.mark.parametrize("seed", range(3))
def test_rows_that_drift_are_found_in_their_order_only(seed):
    sample = simulate_drift(seed)
    finding = find_drift(sample)
    assert finding is not None
    assert finding.kind == FindingKind.ORDER
    assert finding.columns == ("slow",)
    assert find_drift(sample.rows(np.random.default_rng(seed).permutation(len(sample)))) is None


@pytest.mark.parametrize("seed", range(3))
def test_sorted_tables_do_not_drift(seed):
    """Sort a table of counts that follow a column smoothly: by that column, by another one, and by the counts."""
    rng = np.random.default_rng(seed)
    age, size = rng.normal(size=1200), rng.normal(size=1200)
    y = rng.poisson(np.exp(1 + 0.6 * age)).astype(float)
    sample = CountRows(pl.DataFrame({"age": age, "size": size}), y)
    for column in (age, size, y):
        assert find_drift(sample.rows(np.argsort(column, kind="stable"))) is None
