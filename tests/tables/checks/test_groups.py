"""Test that persons in several rows are found, and that designed experiments and smooth columns raise no alarm."""

from itertools import product

import numpy as np
import polars as pl
import pytest

from ddpn.rows.count_rows import CountRows
from ddpn.tables.checks.findings import TableFinding
from ddpn.tables.checks.groups import find_groups

#: One draw of every design, and two more in `make prove`.
SEEDS = [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2))]


def find_groups_of_counts(
    inputs: dict, mean: np.ndarray, rng: np.random.Generator, dispersion: float = 5.0
) -> TableFinding | None:
    """Return what is found in a table of over-dispersed counts with these means."""
    y = rng.poisson(mean * rng.gamma(dispersion, 1 / dispersion, len(mean))).astype(float)
    return find_groups(CountRows(pl.DataFrame(inputs), y))


def simulate_persons(seed: int, number: int, rows: int, spread: float = 0.8):
    rng = np.random.default_rng(seed)
    one = np.repeat(np.arange(number), rows)
    level = rng.normal(0.0, spread, number)[one]
    return rng, one, rng.normal(size=(number, 2))[one], rng.normal(size=len(one)), np.exp(1.0 + level)


@pytest.mark.parametrize(("number", "rows"), [(80, 10), (400, 5)])
def test_equal_inputs_of_persons_are_groups(number, rows):
    rng, _, of_person, _, mean = simulate_persons(0, number, rows)
    result = find_groups_of_counts({"a": of_person[:, 0], "b": of_person[:, 1]}, mean, rng, 20.0)
    assert result is not None
    assert result.columns == ()
    assert f"{number * rows:,} rows have {number:,} different inputs" in result.statement


@pytest.mark.parametrize(("number", "rows"), [(80, 10), (400, 5)])
def test_a_column_of_persons_is_named(number, rows):
    rng, one, _, x, mean = simulate_persons(1, number, rows)
    result = find_groups_of_counts(
        {"who": [f"p{number_of_person}" for number_of_person in one], "x": x}, mean, rng, 20.0
    )
    assert result is not None
    assert result.columns == ("who",)


def test_the_column_that_tells_equal_inputs_apart_is_the_group():
    rng, one, of_person, _, mean = simulate_persons(2, 100, 8)
    result = find_groups_of_counts({"person": one, "a": of_person[:, 0]}, mean, rng, 20.0)
    assert result is not None
    assert result.columns == ("person",)


@pytest.mark.parametrize("name", ["store", "StoreNo", "storeId", "STORE_ID"])
def test_few_integers_that_are_named_like_units_are_groups(name):
    rng, one, _, x, mean = simulate_persons(5, 10, 120)
    result = find_groups_of_counts({name: one + 1, "x": x}, mean, rng, 20.0)
    assert result is not None
    assert result.columns == (name,)
    assert find_groups_of_counts({"score": one + 1, "x": x}, mean, rng, 20.0) is None, (
        "few integers of any other name are a scale"
    )


def test_copies_in_a_table_of_one_column_are_groups():
    rng = np.random.default_rng(0)
    copied = np.repeat(np.arange(400), 3)
    x, y = rng.normal(size=400), rng.negative_binomial(2, 0.3, 400)
    result = find_groups(CountRows(pl.DataFrame({"x": x[copied]}), y[copied].astype(float)))
    assert result is not None
    assert result.columns == ()
    other = rng.negative_binomial(2, 0.3, 1200).astype(float)
    assert find_groups(CountRows(pl.DataFrame({"x": x[copied]}), other)) is None


def test_inputs_of_a_person_are_found_beside_those_of_the_row():
    rng, _, of_person, x, mean = simulate_persons(3, 100, 8)
    result = find_groups_of_counts({"a": of_person[:, 0], "b": of_person[:, 1], "x": x}, mean, rng, 20.0)
    assert result is not None
    assert result.columns in (("a",), ("b",))


@pytest.mark.parametrize("seed", SEEDS)
def test_persons_without_an_effect_do_not_matter(seed):
    rng, one, of_person, x, mean = simulate_persons(seed, 100, 8, spread=0.0)
    assert find_groups_of_counts({"who": [f"p{person}" for person in one], "x": x}, mean, rng) is None
    assert find_groups_of_counts({"a": of_person[:, 0], "b": of_person[:, 1]}, mean, rng) is None


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("levels", [(3, 4, 3), (4, 4, 4), (10, 10), (2,) * 6])
def test_factorial_designs_are_no_persons(seed, levels):
    """Combine all levels, with main effects and an effect of each combination."""
    rng = np.random.default_rng(seed)
    cells = np.array(list(product(*(range(number) for number in levels))))
    effect = sum(rng.normal(0, 0.5, number)[cells[:, at]] for at, number in enumerate(levels))
    rows = np.repeat(np.arange(len(cells)), 6)
    mean = np.exp(1 + effect + rng.normal(0, 0.3, len(cells)))[rows]
    for inputs in (cells.astype(float), np.char.add("l", cells.astype(str))):
        assert find_groups_of_counts({f"f{at}": inputs[rows, at] for at in range(len(levels))}, mean, rng) is None


@pytest.mark.parametrize("seed", SEEDS)
def test_fractional_and_space_filling_designs_are_no_persons(seed):
    """Draw 32 of 1,024 combinations with main effects, and 60 points of a smooth surface, both with replicates."""
    rng = np.random.default_rng(seed)
    base = ((np.arange(32)[:, None] >> np.arange(5)) & 1) * 2.0 - 1.0
    more = [base[:, rng.choice(5, 3, replace=False)].prod(axis=1) for _ in range(5)]
    design = np.column_stack([base, *more])
    mean = np.exp(1 + design @ rng.normal(0, 0.25, 10))
    rows = np.repeat(np.arange(32), 6)
    assert find_groups_of_counts({f"x{at}": design[rows, at] for at in range(10)}, mean[rows], rng) is None
    points = (np.argsort(rng.random((3, 60)), axis=1).T + 0.5) / 60
    surface = np.exp(1 + np.sin(3 * points[:, 0]) + points[:, 1] ** 2)
    rows = np.repeat(np.arange(60), 5)
    assert find_groups_of_counts({f"x{at}": points[rows, at] for at in range(3)}, surface[rows], rng, 10.0) is None


@pytest.mark.parametrize("seed", SEEDS)
def test_few_categories_and_smooth_columns_are_no_persons(seed):
    rng = np.random.default_rng(seed)
    z = rng.normal(size=1500)
    flags = {f"b{at}": z * rng.uniform() + rng.normal(size=1500) > 0 for at in range(6)}
    ward = np.array(list("abcde"))[np.clip((z + 2).astype(int), 0, 4)]
    assert (
        find_groups_of_counts({**flags, "ward": ward}, np.exp(0.5 * flags["b0"] * flags["b1"] + 0.4 * flags["b2"]), rng)
        is None
    )
    age, income = rng.integers(18, 95, 1500), rng.integers(0, 200, 1500)
    mean = np.exp(1 + 0.5 * np.sin(age / 15) + 0.003 * income)
    assert find_groups_of_counts({"age": age, "age_squared": age**2, "income": income}, mean, rng) is None


def test_people_of_the_health_insurance_experiment_are_found():
    """RAND has the same people in three or five years, without a column that names them."""
    data = pytest.importorskip("statsmodels.datasets").randhie.load_pandas().data[:6000]
    X = pl.DataFrame({name: data[name].to_numpy() for name in data.columns if name != "mdvis"})
    result = find_groups(CountRows(X, data["mdvis"].to_numpy(dtype=float)))
    assert result is not None
    assert result.columns == ()
