"""Persons in several rows and trends are found; designed experiments and smooth columns raise no alarm."""

from datetime import date, timedelta
from itertools import product

import numpy as np
import polars as pl
import pytest

from ddpn.workflow.plan import Plan
from ddpn.workflow.preparing import prepare, roles_of
from ddpn.workflow.table_warnings import Repeated, repeated_rows, time_columns

#: One draw of every design, and two more in `make prove`.
SEEDS = [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2))]


def found(inputs: dict, mean: np.ndarray, rng: np.random.Generator, dispersion: float = 5.0) -> Repeated | None:
    """What is found in a table of over-dispersed counts with these means."""
    y = rng.poisson(mean * rng.gamma(dispersion, 1 / dispersion, len(mean)))
    frame = pl.DataFrame({**inputs, "y": y})
    roles = roles_of(frame, Plan(target="y"))
    return repeated_rows(roles.sample(frame, report=lambda sentence: None), roles.used)


def persons(seed: int, number: int, rows: int, spread: float = 0.8):
    rng = np.random.default_rng(seed)
    one = np.repeat(np.arange(number), rows)
    level = rng.normal(0.0, spread, number)[one]
    return rng, one, rng.normal(size=(number, 2))[one], rng.normal(size=len(one)), np.exp(1.0 + level)


@pytest.mark.parametrize(("number", "rows"), [(80, 10), (400, 5)])
def test_equal_inputs_of_persons(number, rows):
    rng, _, of_person, _, mean = persons(0, number, rows)
    result = found({"a": of_person[:, 0], "b": of_person[:, 1]}, mean, rng, 20.0)
    assert result is not None
    assert (result.option, result.groups, result.rows) == ("equal-inputs", number, number * rows)
    assert result.seen > result.new + 0.03


@pytest.mark.parametrize(("number", "rows"), [(80, 10), (400, 5)])
def test_a_column_of_persons(number, rows):
    rng, one, _, x, mean = persons(1, number, rows)
    result = found({"who": [f"p{each}" for each in one], "x": x}, mean, rng, 20.0)
    assert result is not None
    assert result.option == "who"
    assert "--group who" in result.sentence


def test_the_column_that_equal_inputs_are_named_by():
    rng, one, of_person, _, mean = persons(2, 100, 8)
    result = found({"person": one, "a": of_person[:, 0]}, mean, rng, 20.0)
    assert result is not None
    assert result.option == "person"


def test_inputs_of_a_person_beside_others_of_the_row():
    rng, _, of_person, x, mean = persons(3, 100, 8)
    result = found({"a": of_person[:, 0], "b": of_person[:, 1], "x": x}, mean, rng, 20.0)
    assert result is not None
    assert result.option in ("a", "b")


@pytest.mark.parametrize("seed", SEEDS)
def test_persons_without_an_effect_do_not_matter(seed):
    rng, one, of_person, x, mean = persons(seed, 100, 8, spread=0.0)
    assert found({"who": [f"p{each}" for each in one], "x": x}, mean, rng) is None
    assert found({"a": of_person[:, 0], "b": of_person[:, 1]}, mean, rng) is None


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("levels", [(3, 4, 3), (4, 4, 4), (10, 10), (2,) * 6])
def test_factorial_designs_are_no_persons(seed, levels):
    """All combinations of some levels, with main effects and an own effect of each combination."""
    rng = np.random.default_rng(seed)
    cells = np.array(list(product(*(range(number) for number in levels))))
    effect = sum(rng.normal(0, 0.5, number)[cells[:, at]] for at, number in enumerate(levels))
    rows = np.repeat(np.arange(len(cells)), 6)
    mean = np.exp(1 + effect + rng.normal(0, 0.3, len(cells)))[rows]
    for inputs in (cells.astype(float), np.char.add("l", cells.astype(str))):
        assert found({f"f{at}": inputs[rows, at] for at in range(len(levels))}, mean, rng) is None


@pytest.mark.parametrize("seed", SEEDS)
def test_fractional_and_space_filling_designs_are_no_persons(seed):
    """32 of 1,024 combinations with main effects; 60 points of a smooth surface; both with replicates."""
    rng = np.random.default_rng(seed)
    base = ((np.arange(32)[:, None] >> np.arange(5)) & 1) * 2.0 - 1.0
    more = [base[:, rng.choice(5, 3, replace=False)].prod(axis=1) for _ in range(5)]
    design = np.column_stack([base, *more])
    mean = np.exp(1 + design @ rng.normal(0, 0.25, 10))
    rows = np.repeat(np.arange(32), 6)
    assert found({f"x{at}": design[rows, at] for at in range(10)}, mean[rows], rng) is None
    points = (np.argsort(rng.random((3, 60)), axis=1).T + 0.5) / 60
    surface = np.exp(1 + np.sin(3 * points[:, 0]) + points[:, 1] ** 2)
    rows = np.repeat(np.arange(60), 5)
    assert found({f"x{at}": points[rows, at] for at in range(3)}, surface[rows], rng, 10.0) is None


@pytest.mark.parametrize("seed", SEEDS)
def test_few_categories_and_smooth_columns_are_no_persons(seed):
    rng = np.random.default_rng(seed)
    z = rng.normal(size=1500)
    flags = {f"b{at}": z * rng.uniform() + rng.normal(size=1500) > 0 for at in range(6)}
    ward = np.array(list("abcde"))[np.clip((z + 2).astype(int), 0, 4)]
    assert found({**flags, "ward": ward}, np.exp(0.5 * flags["b0"] * flags["b1"] + 0.4 * flags["b2"]), rng) is None
    age, income = rng.integers(18, 95, 1500), rng.integers(0, 200, 1500)
    mean = np.exp(1 + 0.5 * np.sin(age / 15) + 0.003 * income)
    assert found({"age": age, "age_squared": age**2, "income": income}, mean, rng) is None


def test_the_health_insurance_experiment():
    """RAND: the same people in three or five years, without a column that names them."""
    data = pytest.importorskip("statsmodels.datasets").randhie.load_pandas().data[:6000]
    frame = pl.DataFrame({name: data[name].to_numpy() for name in data.columns})
    roles = roles_of(frame, Plan(target="mdvis"))
    result = repeated_rows(roles.sample(frame, report=lambda sentence: None), roles.used)
    assert result is not None
    assert result.option == "equal-inputs"


# Trends


def series(slope: float, seed: int, rows: int = 600, dates: bool = False) -> pl.DataFrame:
    """Counts whose mean grows by so many times over the table."""
    rng = np.random.default_rng(seed)
    x, when = rng.normal(size=rows), np.arange(rows) / rows
    y = rng.poisson(np.exp(1.5 + 0.5 * x + slope * when) * rng.gamma(5, 0.2, rows))
    days = [date(2020, 1, 1) + timedelta(days=int(day)) for day in range(rows)]
    order = rng.permutation(rows)
    return pl.DataFrame({"x": x, "when": days if dates else when, "y": y})[order.tolist()]


def trends(frame: pl.DataFrame, **options) -> list[str]:
    return [each for each in prepare(frame, Plan(target="y", time="when", **options)).warnings if "trend" in each]


@pytest.mark.parametrize("slope", [1.5, -1.5])
@pytest.mark.parametrize("dates", [False, True])
def test_a_trend_is_reported(slope, dates):
    (found,) = trends(series(slope, seed=0, dates=dates))
    assert ("higher" if slope > 0 else "lower") in found
    assert "--use when" in found


def test_no_trend_is_not_reported():
    assert not [seed for seed in range(6) if trends(series(0.0, seed))]


def test_inputs_may_explain_a_trend():
    frame = series(0.0, seed=0)
    rising = frame["when"].to_numpy()
    y = np.random.default_rng(0).poisson(np.exp(1 + 3 * np.abs(np.sin(40 * rising))))
    explained = frame.with_columns(season=np.abs(np.sin(40 * rising)), y=pl.Series(y))
    assert not trends(explained)


@pytest.mark.parametrize("dates", [False, True])
def test_the_time_is_an_input_only_if_asked(dates):
    frame = series(1.5, seed=0, dates=dates)
    names = {"when day", "when"}
    assert not names & set(prepare(frame, Plan(target="y", time="when")).sample.X.columns)
    kept = prepare(frame, Plan(target="y", time="when", use=("when",)))
    assert names & set(kept.sample.X.columns)
    assert not any("--use when" in sentence for sentence in kept.warnings)


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
        time_columns(calendar, DAYS)
        == time_columns(calendar[order], DAYS[order])
        == ["year", "season", "month", "index"]
    )


def test_columns_that_do_not_follow_time(calendar):
    days = pl.Series([date(2001, 1, 1) + timedelta(days=day) for day in range(7000)])
    months = pl.DataFrame({"month": days.dt.month(), "weekday": days.dt.weekday()})
    assert time_columns(months, days) == [], "months that come again many times"
    assert time_columns(calendar.select("year", "month"), DAYS) == [], "where all follow time, none is left out"
    assert time_columns(calendar.select("index", "temperature"), pl.Series([1] * 500)) == [], "one time for all rows"
