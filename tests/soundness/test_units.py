"""Test that `ddpn fit` and `CountRegressor` report rows and columns that are not what they seem, with the remedy.

Every truth gives a random split an advantage that new rows do not have. Tables in which a number is a measurement
raise no alarm.
"""

import re
import warnings
from collections.abc import Callable
from itertools import product

import numpy as np
import polars as pl
import pytest

import ddpn
from ddpn.estimators.data_warnings import warn_about_table
from ddpn.rows.count_rows import CountRows
from ddpn.runtime.deadlines import Clock
from ddpn.tables.date_columns import DateColumns
from ddpn.tables.reading import read_table
from ddpn.workflow.config import FitConfig
from ddpn.workflow.preparing import prepare

#: Three draws of every truth, and seven more in `make prove`.
SEEDS = [*range(3), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(3, 10))]
Random = np.random.Generator


def list_command_line_warnings(frame: pl.DataFrame) -> list[str]:
    prepared = prepare(frame, FitConfig(target="y"))
    return [*prepared.leaks, *prepared.warnings]


def list_python_warnings(X, y) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warn_about_table(CountRows(read_table(X), y), DateColumns(), is_split=False, clock=Clock())
    assert all(warning.category is ddpn.DataWarning for warning in caught)
    return [str(warning.message) for warning in caught]


# Truths that mislead a random split -----------------------------------------------------------------------------------


def draw_near_copies(rng: Random) -> pl.DataFrame:
    """Draw counts that no input predicts, in three rows each with tiny noise."""
    X = np.repeat(rng.normal(size=(400, 4)), 3, axis=0)
    y = np.repeat(rng.negative_binomial(2, 0.3, 400), 3)
    return pl.DataFrame({f"x{j}": X[:, j] + rng.normal(0, 0.003, 1200) for j in range(4)} | {"y": y})


def draw_noisy_copies(rng: Random) -> pl.DataFrame:
    """Draw the same with ten times the noise: copies are near in all columns together, and in no single one."""
    X = np.repeat(rng.normal(size=(400, 4)), 3, axis=0)
    y = np.repeat(rng.negative_binomial(2, 0.3, 400), 3)
    return pl.DataFrame({f"x{j}": X[:, j] + rng.normal(0, 0.03, 1200) for j in range(4)} | {"y": y})


def draw_places(rng: Random) -> pl.DataFrame:
    """Draw 300 places with a level of their own, and coordinates that differ a little from row to row."""
    location, x = np.repeat(np.arange(300), 5), rng.normal(size=1500)
    where = rng.uniform(0, 8, (300, 2))[location] + rng.normal(0, 0.002, (1500, 2))
    y = rng.poisson(np.exp(1 + 0.4 * x + rng.normal(0, 0.8, 300)[location]))
    return pl.DataFrame({"latitude": where[:, 0], "longitude": where[:, 1], "x": x, "y": y})


def draw_stores(rng: Random) -> pl.DataFrame:
    """Draw 80 stores with a level of their own, known by numbers that mean nothing."""
    store, x = np.repeat(np.arange(80), 15), rng.normal(size=1200)
    y = rng.poisson(np.exp(1 + 0.4 * x + rng.normal(0, 0.8, 80)[store]))
    return pl.DataFrame({"branch": rng.choice(1000, 80, replace=False)[store], "x": x, "y": y})


def draw_exact_copies(rng: Random) -> pl.DataFrame:
    """Draw rows that occur up to three times."""
    X, times = rng.normal(size=(400, 3)), rng.integers(0, 4, 400)
    y = rng.poisson(np.exp(0.5 + 0.5 * X[:, 0]) * rng.gamma(2, 0.5, 400))
    return pl.DataFrame({f"x{j}": np.repeat(X[:, j], times) for j in range(3)} | {"y": np.repeat(y, times)})


def draw_target_means(rng: Random) -> pl.DataFrame:
    """Draw a column of mean counts of groups of three; nothing predicts the counts."""
    y = rng.negative_binomial(2, 0.4, 1200)
    mean = np.repeat(y.reshape(400, 3).mean(axis=1), 3)
    return pl.DataFrame({"encoded": mean, "x": rng.normal(size=1200), "y": y})[rng.permutation(1200)]


def draw_rolling_means(rng: Random) -> pl.DataFrame:
    """Draw a column of mean counts of the seven rows around each row."""
    y = rng.negative_binomial(2, 0.4, 1000)
    return pl.DataFrame({"rolling": np.convolve(y, np.ones(7) / 7, "same"), "x": rng.normal(size=1000), "y": y})


def draw_unknown_counts(rng: Random) -> pl.DataFrame:
    x = rng.normal(size=800)
    y = np.where(rng.random(800) < 0.03, 999, rng.poisson(np.exp(0.8 + 0.4 * x)))
    return pl.DataFrame({"x": x, "z": rng.normal(size=800), "y": y})


def draw_unknown_inputs(rng: Random) -> pl.DataFrame:
    x = rng.normal(size=800)
    y = rng.poisson(np.exp(0.8 + 0.4 * x))
    return pl.DataFrame({"x": np.where(rng.random(800) < 0.1, -999, x), "z": rng.normal(size=800), "y": y})


def draw_unknown_ages(rng: Random) -> pl.DataFrame:
    """Draw 99 for an unknown age, which is far from the others in units of their gaps only."""
    age = np.where(rng.random(800) < 0.05, 99, rng.integers(18, 80, 800))
    return pl.DataFrame({"age": age, "x": rng.normal(size=800), "y": rng.poisson(2.0, 800)})


#: What `ddpn fit` and `CountRegressor` offer for each of them.
TRUTHS: dict[Callable[[Random], pl.DataFrame], tuple[str, str]] = {
    draw_near_copies: ('`group=["equal-inputs"]`', r"groups=ddpn\.group_similar_rows\(X\)"),
    draw_noisy_copies: ('`group=["equal-inputs"]`', r"groups=ddpn\.group_similar_rows\(X\)"),
    draw_places: (
        '`group=["latitude", "longitude"]`',
        r"groups=ddpn\.group_similar_rows\(X\[\[.latitude., .longitude.\]\]",
    ),
    draw_stores: ('`group=["branch"]`', r"groups=X\[.branch.\]"),
    draw_exact_copies: ('`group=["equal-inputs"]`', r"groups=ddpn\.group_similar_rows\(X\)"),
    draw_target_means: ('`drop=["encoded"]`', "leave it out of X"),
    draw_rolling_means: ('`drop=["rolling"]`', "leave it out of X"),
    draw_unknown_counts: ('`missing=["999"]`', "leave these rows out"),
    draw_unknown_inputs: ('`missing=["-999"]`', "replace it by NaN"),
    draw_unknown_ages: ('`missing=["99"]`', "replace it by NaN"),
}


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("make", TRUTHS, ids=lambda make: make.__name__)
def test_tables_that_mislead_a_random_split_give_a_warning_with_the_remedy(make, seed):
    option, argument = TRUTHS[make]
    frame = make(np.random.default_rng(seed))
    (sentence,) = list_command_line_warnings(frame)
    assert option in sentence
    (sentence,) = list_python_warnings(frame.drop("y").to_pandas(), frame["y"].to_numpy())
    assert re.search(argument, sentence)


@pytest.mark.parametrize(
    ("make", "group", "groups"),
    [
        (draw_near_copies, "equal-inputs", 400),
        (draw_noisy_copies, "equal-inputs", 400),
        (draw_places, "latitude,longitude", 300),
        (draw_exact_copies, "equal-inputs", 300),
    ],
)
def test_the_option_keeps_what_it_names_together(make, group, groups):
    frame = make(np.random.default_rng(0))
    prepared = prepare(frame, FitConfig(target="y", group=tuple(group.split(","))))
    labels = [set(prepared.sample.group[rows].tolist()) for rows in prepared.split.rows]
    assert len(set.union(*labels)) == pytest.approx(groups, rel=0.05)
    assert not labels[2] & (labels[0] | labels[1])
    assert prepared.warnings == ()
    X = frame.drop("y") if group == "equal-inputs" else frame.select(group.split(","))
    similar = ddpn.group_similar_rows(X.to_numpy())
    assert len(np.unique(similar)) == len(set.union(*labels))


def test_exact_copies_in_python_cover_with_the_groups_that_are_named():
    rng = np.random.default_rng(0)
    frame, new = draw_exact_copies(rng), draw_exact_copies(rng).unique()
    X, y = frame.drop("y").to_numpy(), frame["y"].to_numpy()
    model = ddpn.CountRegressor(members=["trees"], random_state=0)
    counts = new["y"].to_numpy()

    def excess():
        """Return the coverage of new rows beyond the intervals' own probability."""
        intervals, probability = model.predict_interval(new.drop("y").to_numpy(), return_probability=True)
        return np.mean((intervals[:, 0] <= counts) & (counts <= intervals[:, 1])) - probability.mean()

    with pytest.warns(ddpn.DataWarning, match="groups="):
        model.fit(X, y)
    assert excess() < -0.08
    model.fit(X, y, groups=ddpn.group_similar_rows(X))
    assert excess() == pytest.approx(0.0, abs=0.04)


# Tables in which numbers are what they seem ---------------------------------------------------------------------------


def draw_ages(rng: Random) -> dict:
    age, income = rng.integers(18, 95, 1500), rng.integers(0, 200, 1500)
    return {"age": age, "income": income, "mean": np.exp(1 + 0.5 * np.sin(age / 15) + 0.003 * income)}


def draw_hours(rng: Random) -> dict:
    """Draw hours with two sharp peaks a day."""
    hour = rng.integers(0, 24, 2000)
    peaks = np.exp(-0.5 * (hour - 8) ** 2) + np.exp(-0.5 * (hour - 17) ** 2)
    return {"hour": hour, "x": rng.normal(size=2000), "mean": np.exp(1 + 1.5 * peaks)}


def draw_years(rng: Random) -> dict:
    year = rng.integers(1980, 2020, 1500)
    return {"year": year, "x": rng.normal(size=1500), "mean": np.exp(1 + 0.03 * (year - 1980))}


def draw_scales(rng: Random) -> dict:
    """Draw answers on scales of 0 to 10."""
    answers = rng.integers(0, 11, (1200, 4))
    return {f"item{j}": answers[:, j] for j in range(4)} | {"mean": np.exp(0.5 + 0.1 * answers[:, 0])}


def draw_designs(rng: Random) -> dict:
    """Draw all combinations of levels, each with an effect of its own, measured with errors in the levels."""
    cells = np.array(list(product(range(4), range(4), range(4))), dtype=float)
    row = np.repeat(np.arange(64), 12)
    levels = cells[row] + rng.normal(0, 0.2, (768, 3))
    return {f"f{j}": levels[:, j] for j in range(3)} | {"mean": np.exp(0.5 + 0.2 * cells.sum(axis=1))[row]}


def draw_heaps(rng: Random) -> dict:
    """Draw amounts that people round, to ten or to a hundred."""
    amount = rng.gamma(2, 200, 1500)
    amount = np.where(rng.random(1500) < 0.6, np.round(amount, -2), np.round(amount, -1))
    return {"amount": amount, "x": rng.normal(size=1500), "mean": np.exp(0.5 + 0.002 * amount)}


def draw_measurements(rng: Random) -> dict:
    """Draw measurements with one decimal, two of them nearly the same."""
    size = np.round(rng.normal(20, 3, 1500), 1)
    return {"size": size, "length": np.round(2 * size + rng.normal(0, 0.1, 1500), 1), "mean": np.exp(size / 15)}


def draw_averages(rng: Random) -> dict:
    """Draw rounded predictions of the mean, so that many rows share one."""
    mean = np.exp(rng.normal(1, 0.5, 1500))
    return {"forecast": np.round(mean, 1), "x": rng.normal(size=1500), "mean": mean}


HONEST = [draw_ages, draw_hours, draw_years, draw_scales, draw_designs, draw_heaps, draw_measurements, draw_averages]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("dispersion", [5.0, 1e6], ids=["over-dispersed", "Poisson"])
@pytest.mark.parametrize("make", HONEST, ids=lambda make: make.__name__)
def test_measurements_raise_no_alarm(make, dispersion, seed):
    rng = np.random.default_rng(seed)
    columns = make(rng)
    mean = columns.pop("mean")
    frame = pl.DataFrame(columns | {"y": rng.poisson(mean * rng.gamma(dispersion, 1 / dispersion, len(mean)))})
    assert list_command_line_warnings(frame) == []
    assert list_python_warnings(frame.drop("y").to_pandas(), frame["y"].to_numpy()) == []
