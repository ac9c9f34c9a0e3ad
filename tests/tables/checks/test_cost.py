"""Test that checks take a small part of a fit, however many rows and columns there are, and still find leaks."""

import time
import warnings

import numpy as np
import polars as pl
import pytest

from ddpn import CountRegressor
from ddpn.rows.count_rows import CountRows
from ddpn.runtime.deadlines import Clock
from ddpn.tables.checks import FindingKind, find_column_problems, find_identifiers, find_row_problems, run_checks
from ddpn.tables.checks.sampling import choose_rows_of_groups, hash_values

RNG = np.random.default_rng(0)
#: A column of each kind, by a number of rows.
KINDS = {
    "decimals": lambda rows: RNG.normal(size=rows),
    "rounded": lambda rows: np.round(RNG.normal(size=rows), 2),
    "gaps": lambda rows: np.where(RNG.random(rows) < 0.1, np.nan, RNG.normal(size=rows)),
    "integers": lambda rows: RNG.integers(0, 10**6, rows),
    "few integers": lambda rows: RNG.integers(0, 30, rows),
    "few levels": lambda rows: [f"l{level}" for level in RNG.integers(0, 20, rows)],
    "many levels": lambda rows: [f"l{level}" for level in RNG.integers(0, 1 + rows // 10, rows)],
    "flags": lambda rows: RNG.random(rows) < 0.3,
}


def make_rows(rows: int, n_columns: int) -> CountRows:
    """Return a table with so many columns of each kind, and counts that depend on one of them."""
    frame = pl.DataFrame(
        {f"{kind} {number}": make(rows) for kind, make in KINDS.items() for number in range(n_columns)}
    )
    mean = np.exp(1.0 + 0.5 * frame["decimals 0"].to_numpy())
    return CountRows(frame, RNG.poisson(mean).astype(float))


def time_checks(sample: CountRows) -> float:
    """Return the CPU seconds of all checks."""
    start = time.process_time()
    find_identifiers(sample.X, {})
    find_column_problems(sample, {})
    find_row_problems(sample, {})
    return time.process_time() - start


def test_the_cost_of_checks_grows_little_with_rows():
    """Give sixteen times as many rows: comparing all pairs of columns, or sorting all rows often, would take longer."""
    time_checks(make_rows(2_000, 1))  # imports
    small, large = time_checks(make_rows(20_000, 1)), time_checks(make_rows(320_000, 1))
    assert large < 8.0 * small + 1.0


def test_the_cost_of_checks_is_proportional_to_columns():
    few, many = time_checks(make_rows(2_000, 5)), time_checks(make_rows(2_000, 40))
    assert many < 16.0 * few + 1.0


@pytest.mark.slow
@pytest.mark.parametrize(("rows", "n_columns", "share"), [(1_000_000, 1, 0.1), (2_000, 250, 0.25)])
def test_checks_take_a_small_part_of_a_fit(rows, n_columns, share):
    """Fit a million rows with a budget of a minute, and 2,000 columns without one."""
    sample = make_rows(rows, n_columns)
    seconds = time_checks(sample)
    start = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        CountRegressor(time_budget="60s" if rows > 10_000 else None, random_state=0).fit(sample.X, sample.y)
    assert seconds < share * (time.process_time() - start)


def test_a_leak_and_a_code_are_found_in_a_large_table():
    sample = make_rows(100_000, 1)
    coded = np.where(np.arange(100_000) % 5_000 == 0, -999.0, RNG.uniform(1.0, 2.0, 100_000))
    X = sample.X.with_columns(copy=2.0 * sample.y + 1.0, coded=coded)
    findings = find_column_problems(CountRows(X, sample.y), {})
    assert {(finding.kind, finding.columns) for finding in findings} >= {
        (FindingKind.LEAK, ("copy",)),
        (FindingKind.MARKER, ("coded",)),
    }


@pytest.mark.parametrize("groups", [40, 40_000])
def test_units_are_found_in_a_large_table(groups):
    """Some rows of 40 shops with 3,000 rows are looked at, and all rows of some of 40,000 persons."""
    rng = np.random.default_rng(1)
    unit = rng.integers(0, groups, 120_000)
    mean = np.exp(1.0 + rng.normal(0.0, 0.8, groups)[unit])
    X = pl.DataFrame({"unit": [f"u{number}" for number in unit], "x": rng.normal(size=len(unit))})
    (finding,) = find_row_problems(CountRows(X, rng.poisson(mean).astype(float)), {})
    assert finding.columns == ("unit",)
    assert f"120,000 rows have {len(np.unique(unit)):,} different values of unit" in finding.statement


def test_means_of_the_target_by_level_are_found_in_a_large_table():
    rng = np.random.default_rng(2)
    level = rng.integers(0, 10_000, 100_000)
    y = rng.poisson(3.0, 100_000).astype(float)
    means = (np.bincount(level, y) / np.bincount(level))[level]
    X = pl.DataFrame({"encoded": means, "x": np.round(rng.normal(size=100_000), 3)})
    assert [finding.columns for finding in find_column_problems(CountRows(X, y), {})] == [("encoded",)]


@pytest.mark.parametrize(("groups", "most"), [(50, 1_000), (5_000, 2_000), (100_000, 4_000)])
def test_chosen_groups_are_whole_or_have_many_rows(groups, most):
    unit = np.repeat(np.arange(groups), 200_000 // groups)
    labels = hash_values(pl.Series(unit))
    chosen = choose_rows_of_groups(labels, groups, most, seed=0)
    assert len(chosen) == pytest.approx(most, rel=0.35)
    sizes = np.unique(unit[chosen], return_counts=True)[1]
    assert sizes.mean() == pytest.approx(min(200_000 // groups, max(20, most / groups)), rel=0.2)


def test_checks_without_time_are_named():
    findings, sentence = run_checks([list], Clock(0.0))
    assert findings == []
    assert "time budget" in sentence
